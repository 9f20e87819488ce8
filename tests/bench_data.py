"""make-data and the loader: speed, memory and disk, ``make bench``.

Speed is a ratio to the bare ``encode_batch_fast`` of the tokenizers library with all its threads on
the same lines in memory, in turns. Ours is the whole command: start, reading, tokens, examples,
report and a finished folder. On a machine with other work, processor time tells more than elapsed
time, so both are shown. The texts are real (see `real_text`), but invented for memory.
"""

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tokenizers
from bench_vocabulary import measure_process, spell
from real_text import megabytes_of, write_real_texts

from bertpre import build_vocab, make_data
from bertpre.config.schema import BuildVocab, MakeData
from bertpre.data.dataset import HELD_OUT_MASKS, PretrainingData

ROUNDS = 3
_DIFFERENT_WORDS = 1_000_000
_FREQUENT_WORDS = 2500
_WORDS_AT_ONCE = 200_000
VOCAB_SIZE = 16_000
MAKE = (
    "import sys; from bertpre.config.schema import MakeData;"
    "from bertpre.data.make_data import make_data;"
    "make_data([sys.argv[1]], tokenizer=sys.argv[2], output=sys.argv[3],"
    " config=MakeData(workers=1), overwrite=True)"
)


class Times(NamedTuple):
    """Elapsed seconds and processor seconds, those of ended child processes included."""

    elapsed: float
    processor: float


def write_english_text(path: Path, megabytes: int) -> None:
    """Invent prose whose different words grow as the root of its length, as in novels."""
    generator = np.random.default_rng(5)
    vowels = ["a", "e", "i", "o", "u", "en", "ar", "is"]
    syllables = [consonant + vowel for consonant in "bcdfghjklmnprstvwz" for vowel in vowels]
    words = np.array([spell(rank, syllables) for rank in range(_DIFFERENT_WORDS)], object)
    ranks = np.arange(_DIFFERENT_WORDS)
    # Zipf's law, whose power is two for the rare words: 50,000 different ones among 2.3 million.
    shares = np.cumsum(1 / ((ranks + 2.7) * (1 + ranks / _FREQUENT_WORDS)))
    size = 0
    with path.open("w", encoding="utf-8") as file:
        while size < megabytes * 10**6:
            drawn = words[np.searchsorted(shares, generator.random(_WORDS_AT_ONCE) * shares[-1])]
            for number, start in enumerate(range(0, _WORDS_AT_ONCE, 20)):
                line = [*drawn[start : start + 12], ",", *drawn[start + 12 : start + 20]]
                text = " ".join(line).replace(" ,", ",").capitalize()
                size += file.write(text + (".\n\n" if number % 10 == 9 else ".\n"))


def clock(run: Callable[[], object]) -> Times:
    """Run once."""

    def processor() -> float:
        kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        return sum(sum(resource.getrusage(kind)[:2]) for kind in kinds)

    before, start = processor(), time.perf_counter()
    run()
    return Times(time.perf_counter() - start, processor() - before)


def make_tokenizer(texts: Sequence[Path], folder: Path) -> Path:
    """Make a vocabulary from the text."""
    config = BuildVocab(vocab_size=VOCAB_SIZE, sample_bytes=10**7)
    build_vocab(texts, folder / "tokenizer", config, overwrite=True)
    return folder / "tokenizer"


def bench_speed(name: str, texts: Sequence[Path], folder: Path) -> None:
    """Text to finished data folder, against the bare library."""
    tokenizer = make_tokenizer(texts, folder)
    bare = tokenizers.Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    lines = [
        line for text in texts for line in text.read_text(encoding="utf-8").split("\n") if line
    ]

    def theirs() -> None:
        for start in range(0, len(lines), 10_000):  # all at once would take gigabytes
            bare.encode_batch_fast(lines[start : start + 10_000])

    def ours(workers: int) -> None:
        command = [sys.executable, "-m", "bertpre", "make-data", *map(str, texts), "--overwrite"]
        command += ["--tokenizer", str(tokenizer), "--output", str(folder / "data")]
        subprocess.run([*command, f"--workers={workers}"], check=True, capture_output=True)

    runs = {"bare": theirs, "1 worker": lambda: ours(1), "2 workers": lambda: ours(2)}
    times: dict[str, list[Times]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for what, run in runs.items():
            times[what].append(clock(run))
    megabytes = megabytes_of(texts)
    bare_times = times.pop("bare")
    for what, measured in times.items():
        elapsed, processor = (
            statistics.median(b[i] / o[i] for b, o in zip(bare_times, measured, strict=True))
            for i in range(2)
        )
        seconds = statistics.median(run.elapsed for run in measured)
        print(
            f"make-data, {name}, {megabytes:.1f} MB, {what}: {seconds:.1f} s, {elapsed:.1f} times "
            f"bare encode_batch_fast, {processor:.1f} times by processor time",
            flush=True,
        )


def bench_start(folder: Path) -> None:
    """A megabyte of text against the time of importing the command's libraries."""
    text = folder / "megabyte.txt"
    write_english_text(text, 1)
    tokenizer = make_tokenizer([text], folder)
    command = [sys.executable, "-m", "bertpre", "make-data", str(text), "--overwrite"]
    command += ["--tokenizer", str(tokenizer), "--output", str(folder / "small")]
    imports = "import numpy, tokenizers, pydantic, typer, rich, yaml, multiprocessing"
    ratios = []
    for _ in range(2 * ROUNDS):
        libraries = clock(lambda: subprocess.run([sys.executable, "-c", imports], check=True))
        whole = clock(lambda: subprocess.run(command, check=True, capture_output=True))
        ratios.append(whole.elapsed / libraries.elapsed)
    print(f"make-data, 1 MB: {statistics.median(ratios):.1f} times the import of its libraries")


def bench_disk(name: str, texts: Sequence[Path], folder: Path) -> None:
    """Bytes written for each byte of text."""
    for dupe_factor in (1, 10):
        output = folder / "data"
        make_data(
            texts,
            tokenizer=folder / "tokenizer",
            output=output,
            config=MakeData(dupe_factor=dupe_factor),
            overwrite=True,
        )
        size = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
        share = size / 1e6 / megabytes_of(texts)
        print(f"make-data, {name}, {dupe_factor} passes: {share:.2f} bytes for each byte of text")


def bench_loader(folder: Path) -> None:
    """Examples a second of one core, with new whole-word masks, at 128 tokens."""
    # Not above: each worker process of make-data reads this file, and torch would cost it seconds.
    from bertpre.data.loader import Cursor, training_batches

    data = PretrainingData(folder / "data")
    batches = training_batches(
        data,
        Cursor(),
        seed=0,
        batch_size=lambda step: 512,
        micro_batch_size=128,
        spec=lambda step: replace(HELD_OUT_MASKS, whole_word=True),
    )
    next(batches)
    updates = 40
    times = clock(lambda: list(islice(batches, updates)))
    batches.close()
    print(
        f"loader, whole words, up to 128 tokens: {updates * 512 / times.processor:,.0f} examples/s"
    )


def bench_memory(sizes: Sequence[int], folder: Path) -> None:
    """Peak private memory for texts of these sizes in MB."""
    text = folder / "text.txt"
    for megabytes in sizes:
        write_english_text(text, megabytes)
        make_tokenizer([text], folder)
        cost = measure_process(MAKE, text, folder / "tokenizer", folder / "data")
        print(f"make-data, {megabytes} MB: {cost.mebibytes:.0f} MiB of private memory", flush=True)


def main(sizes: Sequence[int]) -> None:
    """Print a line for each measurement; ``sizes`` are those of the texts for memory, in MB."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "texts").mkdir()
        for language, texts in write_real_texts(folder / "texts").items():
            bench_speed(language, texts, folder)
            bench_disk(language, texts, folder)
        bench_start(folder)
        bench_loader(folder)
        bench_memory(sizes, folder)


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [10, 50, 250])
