"""build-vocab against the bare trainer of the tokenizers library: time and memory, ``make bench``.

Each run is a process of its own, since memory that one took would count for the other. The texts
are real (see `real_text`), but invented ones show how memory grows.
"""

import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from real_text import megabytes_of, write_real_texts

OURS = (
    "import sys; from bertpre.config.schema import BuildVocab;"
    "from bertpre.tokenizer.vocabulary import build_vocab;"
    "build_vocab([sys.argv[1]], sys.argv[2] + '/ours', BuildVocab(vocab_size=int(sys.argv[3])),"
    " overwrite=True)"
)
THEIRS = (
    "import sys, tokenizers; bare = tokenizers.BertWordPieceTokenizer(lowercase=False);"
    "bare.train([sys.argv[1]], vocab_size=int(sys.argv[3]), show_progress=False);"
    "bare.save_model(sys.argv[2])"
)
ROUNDS = 3
_DIFFERENT_WORDS = 1_500_000
_WORDS_AT_ONCE = 200_000


class Cost(NamedTuple):
    """What a process took: elapsed and CPU time, and the peak of its private memory."""

    seconds: float
    cpu_seconds: float
    mebibytes: float


def write_growing_text(path: Path, megabytes: int) -> None:
    """Invent prose in which different words grow with the text, as in nature."""
    generator = np.random.default_rng(5)
    vowels = ["a", "e", "i", "o", "u", "en", "ar", "is"]
    syllables = [consonant + vowel for consonant in "bcdfghjklmnprstvwz" for vowel in vowels]
    words = np.array([spell(rank, syllables) for rank in range(_DIFFERENT_WORDS)], object)
    shares = np.cumsum(1 / (np.arange(len(words)) + 2.7) ** 1.2)
    size = 0
    with path.open("w", encoding="utf-8") as file:
        while size < megabytes * 10**6:
            ranks = np.searchsorted(shares, generator.random(_WORDS_AT_ONCE) * shares[-1])
            drawn = words[np.minimum(ranks, len(words) - 1)]
            for number, start in enumerate(range(0, _WORDS_AT_ONCE, 20)):
                end = ".\n\n" if number % 10 == 9 else ".\n"
                size += file.write(" ".join(drawn[start : start + 20]).capitalize() + end)


def spell(rank: int, syllables: Sequence[str]) -> str:
    spelt = syllables[rank % len(syllables)]
    while rank := rank // len(syllables):
        spelt += syllables[rank % len(syllables)]
    return spelt


def measure_process(script: str, *arguments: object) -> Cost:
    """Run Python code in a new process and watch its RssAnon."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryFile("w+") as log:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        peak = 0
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status")
            found = re.search(r"RssAnon:\s+(\d+)", status.read_text()) if status.exists() else None
            peak = max(peak, int(found[1]) if found else 0)
            time.sleep(0.01)
        if process.returncode != 0:
            log.seek(0)
            raise SystemExit(f"a measured process failed:\n{log.read()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(time.perf_counter() - start, cpu, peak / 1024)


def compare(what: str, text: Path, pieces: int, folder: str) -> None:
    """Print the median ratios of a few runs in turns."""
    pairs = [
        [measure_process(script, text, folder, pieces) for script in (OURS, THEIRS)]
        for _ in range(ROUNDS)
    ]
    seconds, cpu_seconds = (
        statistics.median(ours[field] / theirs[field] for ours, theirs in pairs)
        for field in range(2)
    )
    ours, theirs = pairs[-1]
    print(
        f"build-vocab, {what}, {pieces:,} pieces: {seconds:.2f} times the bare trainer's time, "
        f"{cpu_seconds:.2f} times its CPU time, {ours.mebibytes:.0f} MiB against "
        f"{theirs.mebibytes:.0f}",
        flush=True,
    )


def main(sizes: Sequence[int]) -> None:
    """Compare on real texts, and for memory on invented ones of these sizes in MB."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        (Path(folder) / "texts").mkdir()
        for language, texts in write_real_texts(Path(folder) / "texts").items():
            text.write_bytes(b"\n\n".join(part.read_bytes() for part in texts))
            compare(f"{language}, {megabytes_of([text]):.1f} MB", text, 16_000, folder)
        for megabytes in sizes:
            write_growing_text(text, megabytes)
            for pieces in (8_000, 30_000):
                compare(f"{megabytes} MB of invented text", text, pieces, folder)


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [10, 50, 200])
