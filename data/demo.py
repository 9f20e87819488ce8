"""The whole job on text that every machine with Python has: does pretraining help?

Gathers the text, runs the whole chain on it as a user would, fine-tunes random weights of the same
shape for comparison, both with several seeds, and prints scores, losses and the time of each step.
Everything it writes is in data/demo.

    python data/demo.py [--short] [--seed N]
"""

import argparse
import csv
import json
import math
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEMO = Path("data/demo")
CONFIG = "configs/demo.yaml"
NUM_FINETUNINGS = 3  # of each kind: with few rows the seed matters
# Enough to see every stage run, not enough to learn: for automatic checks.
SHORT = ["--set", "pretrain.max_steps=60", "--set", "finetune.num_epochs=2"]

seconds: dict[str, float] = {}


def main() -> None:
    """Run the stages and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="cut the step counts, for CI")
    parser.add_argument("--seed", type=int, default=0, help="seed of all stages (default: 0)")
    options = parser.parse_args()
    common = ["--config", CONFIG, "--overwrite"] + (SHORT if options.short else [])
    seed = ["--seed", str(options.seed)]

    run("gather text", "data/gather_demo_text.py", str(DEMO))
    tables = [f"--{name}={DEMO / name}.tsv" for name in ("train", "dev", "test")]
    chain = bertpre("chain", str(DEMO / "corpus.txt"), *tables, "--output", str(DEMO))
    run("chain", *chain, *common, *seed)

    starts = {"pretrained": [], "random": ["--from-scratch"]}
    seeds = range(options.seed, options.seed + (1 if options.short else NUM_FINETUNINGS))
    for number in seeds:
        for start, flags in starts.items():
            model = model_folder(start, number, first=seeds[0])
            if model != DEMO / "model":  # which the chain has made
                output = ["--output", str(model), "--seed", str(number)]
                trained = str(DEMO / "run")
                run("finetune", *bertpre("finetune", trained, *tables, *output, *flags), *common)
            predict = bertpre("predict", str(model), str(DEMO / "test.tsv"), "--overwrite")
            run("predict", *predict, "--output", str(prediction_file(start, number)))
    report(seeds, is_short=options.short)


def bertpre(command: str, *arguments: str) -> list[str]:
    """Return the arguments of Python for one of bertpre's commands."""
    return ["-m", "bertpre", command, *arguments]


def run(stage: str, *arguments: str) -> None:
    """Run Python as a subprocess, show its command line, and add up the stage's time."""
    print(f"\n$ python {shlex.join(arguments)}", flush=True)
    start = time.monotonic()
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT)
    if done.returncode != 0:
        sys.exit(done.returncode)
    seconds[stage] = seconds.get(stage, 0.0) + time.monotonic() - start


def model_folder(start: str, seed: int, *, first: int) -> Path:
    """Return the folder of a fine-tuned model; that of the first seed is the chain's."""
    is_of_chain = start == "pretrained" and seed == first
    return DEMO / ("model" if is_of_chain else f"finetuned-{start}-{seed}")


def prediction_file(start: str, seed: int) -> Path:
    """Return the file with a model's predictions for the test rows."""
    return DEMO / f"predictions-{start}-{seed}.tsv"


def report(seeds: range, *, is_short: bool) -> None:
    """Print losses, scores, whether their difference is noise, and times."""
    lines = (ROOT / DEMO / "run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    held_out = [row for row in rows if row["split"] == "eval"][-1]
    print("\nMasked-language-model loss, nats a prediction")
    print(f"  first update           {rows[0]['mlm_loss']:.2f}")
    print(f"  held out, at the end   {held_out['mlm_loss']:.2f}")
    print(f"  by word frequency      {held_out['unigram_loss']:.2f}")

    scores = {
        start: [
            read_json(model_folder(start, seed, first=seeds[0]) / "metrics.json") for seed in seeds
        ]
        for start in ("random", "pretrained")
    }
    baseline = scores["random"][0]["baselines"]["tfidf_linear"]["test"]
    print(f"\nTest scores, mean (and standard deviation) over {len(seeds)} fine-tuning seeds")
    print(f"  {'':22} {'accuracy':16} macro-F1")
    print(f"  {'TF-IDF, linear':22} {baseline['accuracy']:<16.3f} {baseline['macro_f1']:.3f}")
    for start, shown in (("random", "random weights"), ("pretrained", "pretrained")):
        tests = [metrics["test"] for metrics in scores[start]]
        accuracy, macro_f1 = (
            spread([test[name] for test in tests]) for name in ("accuracy", "macro_f1")
        )
        print(f"  {shown:22} {accuracy:16} {macro_f1}")
    print(f"\n{verdict(seeds)}")
    if is_short:
        print("With --short the steps are far too few for pretraining to help.")

    print("\nSeconds")
    for stage, taken in {**seconds, "all": sum(seconds.values())}.items():
        print(f"  {stage:20} {taken:6.1f}")


def read_json(path: Path) -> dict:
    """Read a JSON file under the repository's root."""
    return json.loads((ROOT / path).read_text(encoding="utf-8"))


def spread(values: list[float]) -> str:
    """Format a mean and, where there are several values, their standard deviation."""
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{statistics.mean(values):.3f} (±{statistics.stdev(values):.3f})"


def verdict(seeds: range) -> str:
    """Say whether pretraining helped by more than chance.

    Two things are chance: which rows are in the test file, and the seed of a fine-tuning. Both are
    paired: the same rows, the same seeds.
    """
    with (ROOT / DEMO / "test.tsv").open(encoding="utf-8") as file:
        labels = [line.rstrip("\n").split("\t")[1] for line in file][1:]
    gains = []  # (seeds, rows): 1 where only the pretrained model is right, -1 where only the other
    for seed in seeds:
        right = {}
        for start in ("pretrained", "random"):
            with (ROOT / prediction_file(start, seed)).open(encoding="utf-8", newline="") as file:
                predictions = [row["prediction"] for row in csv.DictReader(file, delimiter="\t")]
            right[start] = [a == b for a, b in zip(predictions, labels, strict=True)]
        gains.append([a - b for a, b in zip(right["pretrained"], right["random"], strict=True)])
    by_row = [statistics.mean(column) for column in zip(*gains, strict=True)]
    by_seed = [statistics.mean(row) for row in gains]
    variance = statistics.variance(by_row) / len(by_row)
    if len(by_seed) > 1:
        variance += statistics.variance(by_seed) / len(by_seed)
    gain, margin = statistics.mean(by_row), 1.96 * math.sqrt(variance)
    meaning = (
        "more than chance explains: pretraining helped"
        if gain > margin
        else "more than chance explains: pretraining did harm"
        if gain < -margin
        else "within what chance explains: no gain is shown"
    )
    return (
        f"Pretrained minus random: {100 * gain:+.1f} points of accuracy, 95 % interval "
        f"{100 * (gain - margin):+.1f} to {100 * (gain + margin):+.1f}: {meaning}."
    )


if __name__ == "__main__":
    main()
