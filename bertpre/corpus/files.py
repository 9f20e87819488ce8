"""Read lines of plain or compressed files, for corpora and labelled tables."""

import bz2
import functools
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from bertpre.corpus.decoding import Decoding, LineDecoder
from bertpre.errors import CorpusError

STDIN = Path("/dev/stdin")

# Compressed files are recognised by their first bytes, not by name.
_MAGIC = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bzip2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),  # text may start with BZh
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
}
_LONGEST_MAGIC = 10
_BUFFER_BYTES = 1 << 16


def read_lines(
    path: Path,
    *,
    decoding: Decoding | None = None,
    on_bytes: Callable[[int], None] | None = None,
    on_bad_bytes: Callable[[int], None] | None = None,
) -> Iterator[str]:
    r"""Read a plain or compressed text file line by line; only "\n" ends a line.

    Args:
        path: the file, or `STDIN`; may be compressed with gzip, bzip2, xz or zstd.
        decoding: default: strict UTF-8.
        on_bytes: called with the number of bytes after each read from disk.
        on_bad_bytes: called with the number of invalid sequences that were replaced or skipped.

    Yields:
        Lines with their "\n", without the byte order mark.

    Raises:
        CorpusError: the file is missing or damaged, or has bytes that are invalid in the encoding.
    """
    decoding = decoding or Decoding()
    decoder = LineDecoder(path, decoding, on_bad_bytes or (lambda count: None))
    try:
        with (
            _CountingFile(path, on_bytes) as file,
            io.BufferedReader(file, buffer_size=_BUFFER_BYTES) as buffered,
            _decompress(path, buffered) as stream,
        ):
            yield from decoder.lines(stream)
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise _damaged(path, decoder.number, error) from error
    except FileNotFoundError as error:
        raise CorpusError(f"{path}: there is no such file", "check the path") from error
    except UnicodeError as error:  # of the whole file, as in UTF-16 without a mark
        raise CorpusError(
            f"{path}: expected {decoding.encoding.upper()}: {error}",
            "set --encoding to that of the text, such as utf-16-le or utf-8",
        ) from error
    except OSError as error:
        if error.errno is None:  # bz2 raises a plain OSError
            raise _damaged(path, decoder.number, error) from error
        raise CorpusError(f"{path}: cannot be read ({error.strerror})") from error


def is_compressed(path: Path) -> bool:
    """Return whether a file starts as compressed files do; False if it cannot be read."""
    try:
        with path.open("rb") as file:
            first = file.read(_LONGEST_MAGIC)
    except OSError:
        return False
    return _find_compression(first) is not None


def _find_compression(first: bytes) -> str | None:
    return next((kind for kind, magic in _MAGIC.items() if magic.match(first)), None)


class _CountingFile(io.FileIO):
    """A file that reports the bytes of each read, before decompression."""

    def __init__(self, path: Path, on_bytes: Callable[[int], None] | None) -> None:
        is_stdin = path == STDIN
        super().__init__(0 if is_stdin else path, closefd=not is_stdin)
        self._on_bytes = on_bytes
        self._at_start = True

    def readinto(self, buffer: object, /) -> int | None:
        view = memoryview(buffer)  # type: ignore[arg-type]
        count = super().readinto(view)
        # A pipe may deliver single bytes, and several are needed to detect compression.
        while self._at_start and count and count < _LONGEST_MAGIC:
            more = super().readinto(view[count:])
            if not more:
                break
            count += more
        self._at_start = False
        if self._on_bytes is not None and count:
            self._on_bytes(count)
        return count


def _decompress(path: Path, buffered: "io.BufferedReader[_CountingFile]") -> BinaryIO:
    kind = _find_compression(buffered.peek(_LONGEST_MAGIC))
    if kind is None:
        return buffered
    open_as: dict[str, Callable[[BinaryIO], object]] = {
        "gzip": gzip.open,
        "bzip2": bz2.open,
        "xz": lzma.open,
        "zstd": functools.partial(_decompress_zstd, path),
    }
    # Iterating over lines is faster in BufferedReader than in these classes.
    return io.BufferedReader(cast(io.RawIOBase, open_as[kind](buffered)), buffer_size=_BUFFER_BYTES)


def _decompress_zstd(path: Path, compressed: BinaryIO) -> object:
    try:
        import zstandard
    except ImportError as error:
        raise CorpusError(
            f"{path}: reading zstd needs the package zstandard",
            "pip install 'bertpre[zstd]'",
        ) from error

    class Decompressed(io.RawIOBase):
        """Reads all frames, and raises EOFError if the last one is truncated."""

        def __init__(self) -> None:
            self._rest = b""
            self._new_frame()

        def _new_frame(self) -> None:
            # `zstd --long=31` uses windows of 2 GiB.
            self._frame = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
            self._in_frame = False

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: object, /) -> int:
            view = memoryview(buffer)  # type: ignore[arg-type]
            while not self._rest:
                block = self._frame.unused_data or compressed.read(_BUFFER_BYTES)
                if self._frame.eof:
                    self._new_frame()
                if not block:
                    if self._in_frame:
                        raise EOFError("truncated zstd frame")
                    return 0
                self._in_frame = True
                try:
                    self._rest = self._frame.decompress(block)
                except zstandard.ZstdError as error:
                    raise EOFError(str(error)) from error
                self._in_frame = not self._frame.eof
            count = min(len(view), len(self._rest))
            view[:count] = self._rest[:count]
            self._rest = self._rest[count:]
            return count

    return Decompressed()


def _damaged(path: Path, number: int, error: Exception) -> CorpusError:
    return CorpusError(
        f"{path}: damaged compressed file after line {number} ({error})", "copy the file again"
    )
