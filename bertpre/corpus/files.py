"""Open files, plain or compressed, and read their lines; the lowest step of reading.

Serves corpora and the labelled tables of finetuning alike. `decoding` turns the bytes into text.
"""

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

# Compressed files are known by these first bytes, whatever their names.
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
    r"""Read a text file, plain or compressed, line by line; only "\n" ends a line.

    Args:
        path: the file, or `STDIN`; gzip, bzip2, xz and zstd are recognised by their first bytes.
        decoding: UTF-8 in which bad bytes are an error, unless stated.
        on_bytes: told how many bytes of the file on disk were read, after each read.
        on_bad_bytes: told how many bad sequences were replaced or skipped, where there are any.

    Yields:
        Lines with their "\n", without a byte order mark.

    Raises:
        CorpusError: no such file, a damaged compressed file, or bytes that are not of the encoding.
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
    except UnicodeError as error:  # of a whole file, as of UTF-16 without a mark
        raise CorpusError(
            f"{path}: expected {decoding.encoding.upper()}: {error}",
            "state the --encoding that the text is in, such as utf-16-le or utf-8",
        ) from error
    except OSError as error:
        if error.errno is None:  # bz2 has no error of its own
            raise _damaged(path, decoder.number, error) from error
        raise CorpusError(f"{path}: cannot be read ({error.strerror})") from error


class _CountingFile(io.FileIO):
    """A file that reports each read: bytes on disk, as it lies below the decompression."""

    def __init__(self, path: Path, on_bytes: Callable[[int], None] | None) -> None:
        is_stdin = path == STDIN
        super().__init__(0 if is_stdin else path, closefd=not is_stdin)
        self._on_bytes = on_bytes
        self._at_start = True

    def readinto(self, buffer: object, /) -> int | None:
        view = memoryview(buffer)  # type: ignore[arg-type]
        count = super().readinto(view)
        # A pipe may give its first bytes one at a time, and the compression is known by several.
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
    first = buffered.peek(_LONGEST_MAGIC)
    kind = next((kind for kind, magic in _MAGIC.items() if magic.match(first)), None)
    if kind is None:
        return buffered
    open_as: dict[str, Callable[[BinaryIO], object]] = {
        "gzip": gzip.open,
        "bzip2": bz2.open,
        "xz": lzma.open,
        "zstd": functools.partial(_decompress_zstd, path),
    }
    # Their own iteration over lines runs Python code for each line; BufferedReader's does not.
    return io.BufferedReader(cast(io.RawIOBase, open_as[kind](buffered)), buffer_size=_BUFFER_BYTES)


def _decompress_zstd(path: Path, compressed: BinaryIO) -> object:
    try:
        import zstandard
    except ImportError as error:
        raise CorpusError(
            f"{path}: compressed with zstd, which needs the package zstandard",
            "pip install 'bertpre[zstd]'",
        ) from error

    class Decompressed(io.RawIOBase):
        """Reads across frames, and raises EOFError where the library would end early."""

        def __init__(self) -> None:
            self._rest = b""
            self._new_frame()

        def _new_frame(self) -> None:
            # Windows of 2 GiB, as `zstd --long=31` makes them.
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
                        raise EOFError("the file ends inside a zstd frame")
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
