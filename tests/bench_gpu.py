"""The GPU tests, then training speed on a GPU against the transformers library: ``make bench-gpu``.

At most eight minutes; prints a line as soon as it is known, so that a cut run still tells.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from bench import ROOT, bench_training, write_text

from bertpre import build_vocab, load_config, make_data, pretrain
from bertpre.config.schema import BuildVocab, MakeData

BATCHES = (("base", 128, 256), ("base", 512, 64), ("large", 128, 128))


def peak_matmul_flops() -> float:
    """Measure what bf16 products of 8192 x 8192 reach, in operations a second."""
    left, right = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for round in range(30):
        if round == 10:
            start.record()
        left @ right
    end.record()
    torch.cuda.synchronize()
    return 20 * 2 * 8192**3 / (start.elapsed_time(end) / 1000)


def train_for_real() -> None:
    """Vocabulary, examples and 300 updates of the mini size, as a user runs them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder / "text.txt", 20)
        build_vocab([folder / "text.txt"], folder / "tokenizer", BuildVocab(vocab_size=8000))
        make_data([folder / "text.txt"], tokenizer=folder / "tokenizer", output=folder / "data",
                  config=MakeData())  # fmt: skip
        config = load_config(ROOT / "configs/mini.yaml", sets=["pretrain.max_steps=300"])
        result = pretrain(folder / "data", output=folder / "run", config=config)
        assert result.held_out is not None
        print(f"300 real updates of mini: held-out MLM loss {result.held_out.mlm_loss:.3f}")


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("there is no CUDA device")
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-m", "gpu"], cwd=ROOT, check=False)
    print(f"{torch.cuda.get_device_name()}: {peak_matmul_flops() / 1e12:.0f} TFLOP/s in bf16")
    for preset, length, rows in BATCHES:
        bench_training(preset, rows=rows, length=length, dropout=0.0)
    train_for_real()
