"""The GPU tests, then training speed on a GPU against the transformers library: ``make bench-gpu``.

At most eight minutes; prints a line as soon as it is known, so that a cut run still tells.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from bench import ROOT, bench_training, write_text

from bertpre import build_vocab, load_config, make_data, pretrain
from bertpre.config.schema import BuildVocab, MakeData
from bertpre.training.device import matmul_peak
from bertpre.training.metrics import read_metrics

BATCHES = (("base", 128, 256), ("base", 512, 64), ("large", 128, 128))


def train_for_real() -> None:
    """Vocabulary, examples and 300 updates of the mini size, as a user runs them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder / "text.txt", 20)
        build_vocab([folder / "text.txt"], folder / "tokenizer", BuildVocab(vocab_size=8000))
        make_data([folder / "text.txt"], tokenizer=folder / "tokenizer", output=folder / "data",
                  config=MakeData())  # fmt: skip
        for is_compiled in (False, True):
            run = folder / f"run-{is_compiled}"
            sets = ["pretrain.max_steps=300", f"pretrain.compile={str(is_compiled).lower()}"]
            config = load_config(ROOT / "configs/mini.yaml", sets=sets)
            start = time.perf_counter()
            result = pretrain(folder / "data", output=run, config=config)
            seconds = time.perf_counter() - start
            last = [row for row in read_metrics(run) if row["split"] == "train"][-1]
            assert result.held_out is not None
            print(
                f"300 real updates of mini, {'compiled' if is_compiled else 'eager'}: {seconds:.0f}"
                f" s, held-out MLM loss {result.held_out.mlm_loss:.3f}, at the end "
                f"{last['tokens_per_second']:,.0f} tokens/s, {last['matmul_peak_share']:.0%} of "
                f"the matmul peak, {last['data_wait_share']:.1%} of the time waiting for examples",
                flush=True,
            )


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("there is no CUDA device")
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-m", "gpu"], cwd=ROOT, check=False)
    peak = matmul_peak(torch.device("cuda"), "bf16")
    print(f"{torch.cuda.get_device_name()}: {peak / 1e12:.0f} TFLOP/s in bf16", flush=True)
    for preset, length, rows in BATCHES:
        bench_training(preset, rows=rows, length=length, dropout=0.0)
    train_for_real()
