"""make-data and the loader: speed, memory and disk, ``make bench``.

Speed is a ratio to the bare ``encode_batch_fast`` of the tokenizers library with all its threads on
the same lines, in turns. On a machine with other work, processor time tells more than elapsed time,
so both are shown. Texts are invented, with words that grow in number as in nature.
"""

import resource
import statistics
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

from bertpre import build_vocab, make_data
from bertpre.config.schema import BuildVocab, MakeData
from bertpre.data.dataset import HELD_OUT_MASKS, PretrainingData

ROUNDS = 3
_DIFFERENT_WORDS = 1_000_000
_FREQUENT_WORDS = 2500
_WORDS_AT_ONCE = 200_000
MEGABYTES = 100
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


def write_chinese_text(path: Path, megabytes: int) -> None:
    """Invent Chinese prose: sentences of 5 to 40 characters by Zipf's law, with punctuation."""
    generator = np.random.default_rng(7)
    characters = np.array([chr(point) for point in range(0x4E00, 0x4E00 + 6000)])
    size = 0
    with path.open("w", encoding="utf-8") as file:
        while size < megabytes * 10**6:
            lines = []
            for number, length in enumerate(generator.integers(5, 41, 5000)):
                ranks = np.minimum(generator.zipf(1.15, length), len(characters)) - 1
                text = "".join(characters[ranks])
                comma = int(length) // 2
                lines.append(f"{text[:comma]}，{text[comma:]}。" + "\n" * (1 + (number % 12 == 11)))
            joined = "".join(lines)
            file.write(joined)
            size += len(joined.encode())


def clock(run: Callable[[], object]) -> Times:
    """Run once."""

    def processor() -> float:
        kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        return sum(sum(resource.getrusage(kind)[:2]) for kind in kinds)

    before, start = processor(), time.perf_counter()
    run()
    return Times(time.perf_counter() - start, processor() - before)


def make_tokenizer(text: Path, folder: Path) -> Path:
    """Make a vocabulary from the text."""
    config = BuildVocab(vocab_size=20_000, sample_bytes=10**7)
    build_vocab([text], folder / "tokenizer", config, overwrite=True)
    return folder / "tokenizer"


def bench_speed(name: str, text: Path, folder: Path) -> None:
    """Text to finished data folder, against the bare library."""
    tokenizer = make_tokenizer(text, folder)
    bare = tokenizers.Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    lines = [line for line in text.read_text(encoding="utf-8").split("\n") if line]

    def theirs() -> None:
        for start in range(0, len(lines), 10_000):  # all at once would take gigabytes
            bare.encode_batch_fast(lines[start : start + 10_000])

    runs: dict[str, Callable[[], object]] = {"bare": theirs}
    for workers in (1, 2):
        for dupe_factor in (1, 5):
            config = MakeData(workers=workers, dupe_factor=dupe_factor)
            runs[f"{workers} workers, {dupe_factor} passes"] = lambda config=config: make_data(
                [text], tokenizer=tokenizer, output=folder / "data", config=config, overwrite=True
            )
    times: dict[str, list[Times]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for what, run in runs.items():
            times[what].append(clock(run))
    megabytes = text.stat().st_size / 1e6
    bare_times = times.pop("bare")
    for what, ours in times.items():
        elapsed, processor = (
            statistics.median(b[i] / o[i] for b, o in zip(bare_times, ours, strict=True))
            for i in range(2)
        )
        speed = megabytes / statistics.median(run.elapsed for run in ours)
        print(
            f"make-data, {name}, {what}: {speed:.1f} MB/s, {elapsed:.1f} times bare "
            f"encode_batch_fast, {processor:.1f} times by processor time",
            flush=True,
        )


def bench_disk(name: str, text: Path, folder: Path) -> None:
    """Bytes written for each byte of text."""
    for dupe_factor in (1, 10):
        output = folder / "data"
        make_data(
            [text],
            tokenizer=folder / "tokenizer",
            output=output,
            config=MakeData(dupe_factor=dupe_factor),
            overwrite=True,
        )
        size = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
        share = size / text.stat().st_size
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
        make_tokenizer(text, folder)
        cost = measure_process(MAKE, text, folder / "tokenizer", folder / "data")
        print(f"make-data, {megabytes} MB: {cost.mebibytes:.0f} MiB of private memory", flush=True)


def main(sizes: Sequence[int]) -> None:
    """Print a line for each measurement; ``sizes`` are those of the texts for memory, in MB."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = folder / "text.txt"
        for language, write in (("English", write_english_text), ("Chinese", write_chinese_text)):
            write(text, MEGABYTES)
            bench_speed(language, text, folder)
            bench_disk(language, text, folder)
        bench_loader(folder)
        bench_memory(sizes, folder)


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [10, 50, 250])
