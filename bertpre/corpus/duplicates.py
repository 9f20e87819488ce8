"""Exact duplicates: how many there are, in fixed memory, and which ones, with the help of the disk.

Duplicates are told by 128-bit hashes of the text.
"""

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

_SKETCH_HASHES = 1 << 16
_COUNTED_TOGETHER = 1 << 12
_PARTITIONS = 64
_BUFFERED_HASHES = 1 << 16


def hash_text(text: str) -> bytes:
    """Return 16 bytes that are equal for equal texts."""
    try:
        data = text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, as JSON can hold
        data = text.encode("utf-8", "surrogatepass")
    return hash_bytes(data)


def hash_bytes(data: bytes) -> bytes:
    """Return 16 bytes that are equal for equal ones."""
    return hashlib.blake2b(data, digest_size=16).digest()


class DistinctSketch:
    """Estimates the share of values that repeat an earlier one; exact up to 65,536 of them.

    Keeps the hashes that end in so many zero bits, and one bit more whenever they are too many.

    Source: Wegman's adaptive sampling, Flajolet 1990.
    """

    def __init__(self) -> None:
        self._kept: set[int] = set()
        self._mask = 0
        self._total = 0
        self._waiting: list[bytes] = []

    def add(self, digests: Iterable[bytes]) -> None:
        """Count values by their hashes."""
        self._waiting.extend(digests)
        if len(self._waiting) >= _COUNTED_TOGETHER:
            self._count()

    def _count(self) -> None:
        numbers = np.frombuffer(b"".join(self._waiting), "<u8")[::2]
        self._total += len(numbers)
        self._waiting.clear()
        self._kept.update(numbers[numbers & np.uint64(self._mask) == 0].tolist())
        while len(self._kept) > _SKETCH_HASHES:
            self._mask = 2 * self._mask + 1
            self._kept = {number for number in self._kept if not number & self._mask}

    def repeated_share(self) -> float:
        """Return the share of values that are not the first of their kind."""
        self._count()
        distinct = len(self._kept) * (self._mask + 1)
        return max(0.0, 1 - distinct / self._total) if self._total else 0.0


class Repeats:
    """Which of a row of values repeat an earlier one, in bounded memory.

    Hashes go to files on disk by their first bits, and each file is looked at on its own, so memory
    holds a 64th of them; the answer is one bit a value, on disk.

    Args:
        digests: a hash of 16 bytes for each value, in order.
        folder: for files of some 24 bytes a value, which the caller removes.
    """

    def __init__(self, digests: Iterable[bytes], folder: Path) -> None:
        record = np.dtype([("high", "<u8"), ("low", "<u8"), ("place", "<u8")])
        paths = [folder / f"hashes-{number:02d}" for number in range(_PARTITIONS)]
        files = [path.open("wb") for path in paths]
        try:
            total = _scatter(digests, files, record)
        finally:
            for file in files:
                file.close()
        self._bits = np.memmap(folder / "repeats", np.uint8, "w+", shape=(total // 8 + 1,))
        for path in paths:
            values = np.fromfile(path, record)
            path.unlink()
            values.sort(order=["high", "low", "place"])
            same = (values["high"][1:] == values["high"][:-1]) & (
                values["low"][1:] == values["low"][:-1]
            )
            places = values["place"][1:][same]
            np.bitwise_or.at(self._bits, places >> 3, (1 << (places & 7)).astype(np.uint8))

    def __getitem__(self, place: int) -> bool:
        return bool(self._bits[place >> 3] >> (place & 7) & 1)


def _scatter(digests: Iterable[bytes], files: Sequence[BinaryIO], record: np.dtype[np.void]) -> int:
    total = 0
    digests = iter(digests)
    while block := b"".join(_take(digests, _BUFFERED_HASHES)):
        pairs = np.frombuffer(block, "<u8").reshape(-1, 2)
        values = np.empty(len(pairs), record)
        values["high"], values["low"] = pairs[:, 0], pairs[:, 1]
        values["place"] = np.arange(total, total + len(pairs))
        total += len(pairs)
        partition = values["high"] % len(files)
        for number in np.unique(partition):
            values[partition == number].tofile(files[int(number)])
    return total


def _take(digests: Iterator[bytes], count: int) -> Iterator[bytes]:
    for _, digest in zip(range(count), digests, strict=False):
        yield digest


def temporary_folder() -> "tempfile.TemporaryDirectory[str]":
    """Make a folder for hashes, under TMPDIR."""
    return tempfile.TemporaryDirectory(prefix="bertpre-dedup-")
