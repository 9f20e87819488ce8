"""Remove lines or documents that exactly repeat an earlier one.

The text is read twice: the first pass hashes it, the second skips the repeats.
"""

import contextlib
import itertools
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from bertpre.corpus.report import HASH_BYTES, CorpusReport, hash_text
from bertpre.corpus.sentences import Record

_PARTITIONS = 64
_BUFFERED_HASHES = 1 << 16
_HASHED = np.dtype([("digest", f"S{HASH_BYTES}"), ("place", "<u8")])


def remove_repeats(
    lines: Iterable[Record],
    first_reading: Iterable[Record],
    unit: Literal["lines", "documents"],
    report: CorpusReport,
) -> Iterator[Record]:
    """Skip lines that repeat an earlier one, or all lines of documents that do.

    Args:
        lines: the lines of all documents.
        first_reading: the same lines, for the first pass.
        unit: what to compare and remove.
        report: counts what is removed.
    """
    with tempfile.TemporaryDirectory(prefix="bertpre-dedup-") as folder:
        if unit == "lines":
            repeats = Repeats((hash_text(line.text) for line in first_reading), Path(folder))
        else:
            repeats = Repeats(_hash_documents(first_reading), Path(folder))
        document, starts = -1, False
        for place, line in enumerate(lines):
            document += line.starts_document
            report.removed_documents += (
                starts and line.starts_document
            )  # none of its lines was kept
            starts = starts or line.starts_document  # the first line kept starts it
            if repeats[place if unit == "lines" else document]:
                report.removed_lines += 1
            else:
                yield line._replace(starts_document=starts)
                starts = False
        report.removed_documents += starts


def _hash_documents(lines: Iterable[Record]) -> Iterator[bytes]:
    digest = b""
    for line in lines:
        if line.starts_document and digest:
            yield digest
            digest = b""
        digest = hash_text(f"{digest.hex()} {line.text}")
    if digest:
        yield digest


class Repeats:
    """Finds the values that repeat an earlier one, in bounded memory.

    Hashes are partitioned into files on disk, so that memory holds a 64th of them at a time. The
    result is one bit per value, also on disk.

    Args:
        digests: the hash of each value, in order.
        folder: for files of about 24 bytes per value; the caller removes it.
    """

    def __init__(self, digests: Iterable[bytes], folder: Path) -> None:
        paths = [folder / f"hashes-{number:02d}" for number in range(_PARTITIONS)]
        total = _divide(digests, paths)
        self._bits = np.memmap(folder / "repeats", np.uint8, "w+", shape=(total // 8 + 1,))
        for path in paths:
            values = np.fromfile(path, _HASHED)
            path.unlink()
            _, first = np.unique(values["digest"], return_index=True)
            places = np.delete(values["place"], first)
            np.bitwise_or.at(self._bits, places >> 3, (1 << (places & 7)).astype(np.uint8))

    def __getitem__(self, place: int) -> bool:
        return bool(self._bits[place >> 3] >> (place & 7) & 1)


def _divide(digests: Iterable[bytes], paths: list[Path]) -> int:
    """Write hashes with their places to the files, and return their number."""
    total = 0
    digests = iter(digests)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(path.open("wb")) for path in paths]
        while block := b"".join(itertools.islice(digests, _BUFFERED_HASHES)):
            values = np.empty(len(block) // HASH_BYTES, _HASHED)
            values["digest"] = np.frombuffer(block, values["digest"].dtype)
            values["place"] = np.arange(total, total + len(values))
            total += len(values)
            partition = np.frombuffer(block, np.uint8)[::HASH_BYTES] % len(files)
            for number in np.unique(partition):
                values[partition == number].tofile(files[int(number)])
    return total
