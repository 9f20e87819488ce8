"""Is a GPU right, and how fast is it? ``make bench-gpu``, at most eight minutes, cold.

First whether results are those of the CPU, then the tests with the marker gpu, then updates against
the transformers library, then a small real run. What cannot be done, such as for want of a package,
is named and passed over. It needs no installation: any Python that has torch (2.11 or newer),
tokenizers, numpy, pydantic and pyyaml can run it from the repository.

    python tests/bench_gpu.py [--output bench-gpu.json] [--device cpu]

Everything is in one JSON file, written after each step, so that a cut run still tells. With
``--device cpu`` the steps run in a small form, to try the script itself.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
# cuBLAS reads this when it starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402

from bertpre.artefacts import fingerprint_file  # noqa: E402
from bertpre.config.load import load_config  # noqa: E402
from bertpre.config.schema import BuildVocab, Config, MakeData, Model  # noqa: E402
from bertpre.model import flat  # noqa: E402
from bertpre.model.bert import BertModel, initialize  # noqa: E402
from bertpre.model.flat import FlatTokens, flatten  # noqa: E402
from bertpre.training.device import autocast, matmul_peak, pick_device, pick_precision  # noqa: E402

BATCHES = (("base", 128, 256), ("base", 512, 64), ("large", 128, 128))
SMALL_BATCHES = (("tiny", 128, 8),)
LENGTHS = [128, 90, 17, 128, 1, 64]
FP32_TOLERANCE, BF16_TOLERANCE = 1e-4, 2e-2  # of the largest value


def outputs(shape: Model, device: torch.device, precision: Any, *, has_flash: bool) -> Any:
    """Return hidden states and gradients of the same model on the same texts, on the CPU."""
    model = BertModel(shape, vocab_size=1000, with_pooler=False)
    initialize(model, 0.02, torch.Generator().manual_seed(0))
    model.to(device)
    batch = texts(device)
    with mock.patch.object(flat, "has_flash_attention", return_value=has_flash):
        with autocast(device, precision):
            hidden, _ = model(batch)
        hidden.float().square().mean().backward()
    gradients = [part.grad.float().cpu() for part in model.parameters() if part.grad is not None]
    return hidden.detach().float().cpu(), gradients


def texts(device: torch.device) -> FlatTokens:
    """Return texts of different lengths."""
    longest = max(LENGTHS)
    ids = torch.randint(
        5, 1000, (len(LENGTHS), longest), generator=torch.Generator().manual_seed(1)
    )
    batch = flatten(ids, torch.arange(longest) < torch.tensor(LENGTHS)[:, None])
    return replace(
        batch,
        input_ids=batch.input_ids.to(device),
        token_type_ids=batch.token_type_ids.to(device),
        position_ids=batch.position_ids.to(device),
        cu_seqlens=batch.cu_seqlens.to(device),
    )


def difference(found: Any, expected: Any) -> float:
    """Return the largest difference as a share of the largest value, over all tensors."""
    pairs = zip([found[0], *found[1]], [expected[0], *expected[1]], strict=True)
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-12)) for a, b in pairs)


def check_fp32(device: torch.device) -> dict[str, Any]:
    """Outputs and gradients in fp32 are those of the CPU."""
    torch.backends.cuda.matmul.allow_tf32 = False
    shape = replace(load_config(ROOT / "configs/mini.yaml").model, hidden_dropout_prob=0.0,
                    attention_probs_dropout_prob=0.0)  # fmt: skip
    expected = outputs(shape, torch.device("cpu"), "fp32", has_flash=False)
    found = difference(outputs(shape, device, "fp32", has_flash=False), expected)
    return {"difference": found, "passed": found <= FP32_TOLERANCE}


def check_flash(device: torch.device) -> dict[str, Any]:
    """Flash attention gives what padded attention gives, within the rounding of bf16."""
    if not flat.has_flash_attention(device):
        return {"skipped": "this device has no flash attention over flat sequences"}
    shape = replace(load_config(ROOT / "configs/mini.yaml").model, hidden_dropout_prob=0.0,
                    attention_probs_dropout_prob=0.0)  # fmt: skip
    padded, flash = (outputs(shape, device, "bf16", has_flash=kind) for kind in (False, True))
    found = difference(flash, padded)
    return {"difference": found, "passed": found <= BF16_TOLERANCE}


def prepare(folder: Path) -> Path:
    """Vocabulary and examples of a small text."""
    from bertpre.data.make_data import make_data
    from bertpre.tokenizer.vocabulary import build_vocab

    gather = ROOT / "data" / "gather_demo_text.py"
    subprocess.run([sys.executable, gather, folder], check=True, stdout=subprocess.DEVNULL)
    text = [folder / "corpus.txt"]
    build_vocab(text, folder / "tokenizer", BuildVocab(vocab_size=8000))
    config = MakeData(workers=1)
    make_data(text, tokenizer=folder / "tokenizer", output=folder / "data", config=config)
    return folder / "data"


def configured(device: torch.device, *sets: str) -> Config:
    """Return the configuration of a small real run."""
    common = [f"pretrain.device={device.type}", "pretrain.log_every_steps=10"]
    return load_config(ROOT / "configs/mini.yaml", sets=[*common, *sets])


def check_resume(device: torch.device, folder: Path, data: Path) -> dict[str, Any]:
    """A run that was stopped and resumed has the bytes of one that was not."""
    from bertpre.training.pretrain import pretrain

    config = configured(device, "pretrain.max_steps=12", "pretrain.save_every_steps=6",
                        "pretrain.deterministic=true", "pretrain.global_batch_size=16")  # fmt: skip
    pretrain(data, output=folder / "whole", config=config)
    updates = iter(range(12))
    pretrain(data, output=folder / "stopped", config=config, should_stop=lambda: next(updates) >= 6)
    pretrain(data, output=folder / "stopped", config=config)
    torch.use_deterministic_algorithms(False)
    weights = [folder / run / "final/model.safetensors" for run in ("whole", "stopped")]
    return {"passed": fingerprint_file(weights[0]) == fingerprint_file(weights[1])}


def run_for_real(device: torch.device, folder: Path, data: Path, steps: int) -> dict[str, Any]:
    """Train the mini size as a user does, eager and compiled."""
    from bertpre.training.metrics import read_metrics
    from bertpre.training.pretrain import pretrain

    found: dict[str, Any] = {}
    for name in ("eager", "compiled") if device.type == "cuda" else ("eager",):
        sets = [
            f"pretrain.max_steps={steps}",
            f"pretrain.compile={str(name == 'compiled').lower()}",
        ]
        start = time.perf_counter()
        run = folder / f"run-{name}"
        result = pretrain(data, output=run, config=configured(device, *sets))
        seconds = time.perf_counter() - start
        last = [row for row in read_metrics(run) if row["split"] == "train"][-1]
        found[name] = {
            "seconds": round(seconds, 1),
            "held_out_mlm_loss": result.held_out and round(result.held_out.mlm_loss, 3),
            **{name: last.get(name) for name in ("tokens_per_second", "matmul_peak_share",
                                                 "data_wait_share")},
        }  # fmt: skip
    return found


def run_gpu_tests() -> dict[str, Any]:
    """Run the tests with the marker gpu."""
    if importlib.util.find_spec("pytest") is None:
        return {"skipped": "pytest is not installed"}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment
    )
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return {"passed": done.returncode == 0, "end": lines[-10:]}


def compare_updates(preset: str, length: int, rows: int) -> list[dict[str, object]]:
    """Compare updates with the library's."""
    from bench import bench_training

    return bench_training(preset, rows=rows, length=length, dropout=0.0)


def main() -> None:
    """Run all steps that are possible here."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("bench-gpu.json"))
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("there is no CUDA device")
    device = pick_device(options.device)
    on_gpu = device.type == "cuda"
    precision = pick_precision("auto", device)
    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "torch": torch.__version__,
        "precision": precision,
        "peak_tflops": round(matmul_peak(device, precision) / 1e12, 1),
    }
    start = time.perf_counter()

    def do(name: str, step: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        try:
            results[name] = step()
        except Exception as error:  # the other steps may work
            results[name] = {"skipped": f"{type(error).__name__}: {error}"}
        print(
            f"{time.perf_counter() - start:.0f} s, {name}: {json.dumps(results[name])}", flush=True
        )
        results.setdefault("seconds", {})[name] = round(time.perf_counter() - began, 1)
        options.output.write_text(json.dumps(results, indent=2) + "\n")
        return results[name]

    do("fp32 equals the CPU", lambda: check_fp32(device))
    do("flash equals padded", lambda: check_flash(device))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        do("text to examples", lambda: str(prepare(folder)))
        data = folder / "data"
        do("resume is exact", lambda: check_resume(device, folder, data))
        if on_gpu:
            do("gpu tests", run_gpu_tests)
        for preset, length, rows in BATCHES if on_gpu else SMALL_BATCHES:
            what = f"updates, {preset}, {rows} rows of {length}"
            do(what, lambda p=preset, n=length, r=rows: compare_updates(p, n, r))
        do("a real run", lambda: run_for_real(device, folder, data, 300 if on_gpu else 10))
    checks = {name: found for name, found in results.items() if isinstance(found, dict)}
    if failed := [name for name, found in checks.items() if found.get("passed") is False]:
        sys.exit(f"wrong: {', '.join(failed)}")


if __name__ == "__main__":
    main()
