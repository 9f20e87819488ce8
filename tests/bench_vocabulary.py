"""build-vocab against the bare trainer of the tokenizers library: time and memory, ``make bench``.

Each run is a process of its own, since memory that one took would count for the other.
"""

import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

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


def main(sizes: Sequence[int]) -> None:
    """Print a line for each size of text in MB, and 8,000 and 30,000 pieces."""
    with tempfile.TemporaryDirectory() as name:
        text = Path(name) / "text.txt"
        for megabytes in sizes:
            write_growing_text(text, megabytes)
            for pieces in (8_000, 30_000):
                ours, theirs = (
                    measure_process(script, text, name, pieces) for script in (OURS, THEIRS)
                )
                print(
                    f"build-vocab, {megabytes} MB, {pieces:,} pieces: "
                    f"{ours.seconds / theirs.seconds:.2f} times the bare trainer's time, "
                    f"{ours.cpu_seconds / theirs.cpu_seconds:.2f} times its CPU time, "
                    f"{ours.mebibytes:.0f} MiB against {theirs.mebibytes:.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [10, 50, 200])
