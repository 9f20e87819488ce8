"""Files to lines of text: compression, encoding and bad bytes; the lowest step of reading.

Serves corpora and the labelled tables of finetuning alike.
"""

import bz2
import codecs
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, cast

from bertpre.errors import ConfigError, CorpusError

STDIN = Path("/dev/stdin")
COMPRESSION_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")

# Compressed files are known by these first bytes, whatever their names.
_MAGIC = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bzip2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),  # text may start with BZh
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
}
_LONGEST_MAGIC = 10
_BUFFER_BYTES = 1 << 16

# A lead byte with its continuation bytes is one fault, as surrogateescape writes bad bytes.
_BAD_SEQUENCE = re.compile("[\udcc0-\udcff][\udc80-\udcbf]*|[\udc80-\udcbf]")
_REPLACEMENT = "\ufffd"
_GUESSED_SHARE = 0.9
# Text holds hardly any NUL; every second byte of UTF-16 is one wherever it is in the Latin script.
_MOST_NULS, _FEWEST_NULS = 0.1, 8
_LOOKED_AT_BYTES = 4096
_OF_NAMES = ("punycode", "idna")  # encodings of names on the internet, not of texts


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoding:
    """How bytes become text.

    Attributes:
        encoding: a name that Python knows.
        on_bad_bytes: raise an error, put U+FFFD in their place, or leave them out.
    """

    encoding: str = "utf-8"
    on_bad_bytes: Literal["error", "replace", "skip"] = "error"

    def __post_init__(self) -> None:
        """Refuse an encoding that does not exist or that is none of texts, before any reading."""
        try:
            "a\n".encode(self.encoding)
            if codecs.lookup(self.encoding).name in _OF_NAMES:
                raise LookupError("not for texts")
        except (LookupError, UnicodeError) as error:
            raise ConfigError(
                f"--encoding {self.encoding}: there is no such text encoding",
                "name one that Python knows, such as utf-8, utf-16, gb18030, big5, shift_jis, "
                "euc-kr or cp1252",
            ) from error


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
    decode = _LineDecoder(path, decoding, on_bad_bytes or (lambda count: None))
    try:
        with (
            _Watched(path, on_bytes) as file,
            io.BufferedReader(file, buffer_size=_BUFFER_BYTES) as buffered,
            _unpacked(path, buffered) as stream,
        ):
            decode.check_start(stream)
            yield from decode.lines(stream)
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise _damaged(path, decode.number, error) from error
    except FileNotFoundError as error:
        raise CorpusError(f"{path}: there is no such file", "check the path") from error
    except UnicodeError as error:  # of a whole file, as of UTF-16 without a mark
        raise CorpusError(
            f"{path}: expected {decoding.encoding.upper()}: {error}",
            "state the --encoding that the text is in, such as utf-16-le or utf-8",
        ) from error
    except OSError as error:
        if error.errno is None:  # bz2 has no error of its own
            raise _damaged(path, decode.number, error) from error
        raise CorpusError(f"{path}: cannot be read ({error.strerror})") from error


class _Watched(io.FileIO):
    """A file that tells how far it has been read, which works under compression too."""

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


def _unpacked(path: Path, buffered: "io.BufferedReader[_Watched]") -> BinaryIO:
    first = buffered.peek(_LONGEST_MAGIC)
    kind = next((kind for kind, magic in _MAGIC.items() if magic.match(first)), None)
    if kind is None:
        return buffered
    unpacked: object
    if kind == "gzip":
        unpacked = gzip.GzipFile(fileobj=buffered)
    elif kind == "bzip2":
        unpacked = bz2.BZ2File(buffered)
    elif kind == "xz":
        unpacked = lzma.LZMAFile(buffered)  # noqa: SIM115
    else:
        unpacked = _unpack_zstd(path, buffered)
    # Their own iteration over lines runs Python code for each line; BufferedReader's does not.
    return io.BufferedReader(cast(io.RawIOBase, unpacked), buffer_size=_BUFFER_BYTES)


def _unpack_zstd(path: Path, packed: BinaryIO) -> object:
    try:
        import zstandard
    except ImportError as error:
        raise CorpusError(
            f"{path}: compressed with zstd, which needs the package zstandard",
            "pip install 'bertpre[zstd]'",
        ) from error

    class Unpacked(io.RawIOBase):
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
                packed_bytes = self._frame.unused_data or packed.read(_BUFFER_BYTES)
                if self._frame.eof:
                    self._new_frame()
                if not packed_bytes:
                    if self._in_frame:
                        raise EOFError("the file ends inside a zstd frame")
                    return 0
                self._in_frame = True
                try:
                    self._rest = self._frame.decompress(packed_bytes)
                except zstandard.ZstdError as error:
                    raise EOFError(str(error)) from error
                self._in_frame = not self._frame.eof
            count = min(len(view), len(self._rest))
            view[:count] = self._rest[:count]
            self._rest = self._rest[count:]
            return count

    return Unpacked()


def _damaged(path: Path, number: int, error: Exception) -> CorpusError:
    return CorpusError(
        f"{path}: damaged compressed file after line {number} ({error})", "copy the file again"
    )


class _LineDecoder:
    """Turns a stream of bytes into lines of text.

    Attributes:
        number: lines begun so far.
    """

    def __init__(self, path: Path, decoding: Decoding, on_bad_bytes: Callable[[int], None]) -> None:
        self._path = path
        name = codecs.lookup(decoding.encoding).name
        self._encoding = "utf-8" if name == "utf-8-sig" else name  # the mark is removed anyway
        self._policy = decoding.on_bad_bytes
        self._on_bad_bytes = on_bad_bytes
        self.number = 0

    def check_start(self, stream: BinaryIO) -> None:
        """Refuse what is UTF-16 or UTF-32 while the encoding is one of single bytes."""
        start = cast(io.BufferedReader, stream).peek(_LOOKED_AT_BYTES)[:_LOOKED_AT_BYTES]
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return  # the decoder says so, if it is wrong
        if "\0" in "a".encode(self._encoding).decode("latin-1"):
            return
        at_even, at_odd = start[::2].count(0), start[1::2].count(0)
        # In Latin letters one byte of each two is 0, and always the same one.
        if max(at_even, at_odd) > max(_FEWEST_NULS, _MOST_NULS * len(start)) and (
            min(at_even, at_odd) < _MOST_NULS * max(at_even, at_odd)
        ):
            kind = "utf-16-le" if at_odd > at_even else "utf-16-be"
            raise CorpusError(
                f"{self._path}: expected {self._encoding.upper()}, found {start.count(0):,} NUL "
                f"bytes among the first {len(start):,}",
                f"state the --encoding that the text is in, most likely --encoding {kind}",
            )

    def lines(self, stream: BinaryIO) -> Iterator[str]:
        # In UTF-16 and the like, the byte of a newline may be part of another character.
        if "\n".encode(self._encoding) == b"\n":
            lines = self._by_line(stream)
        else:
            lines = self._by_block(stream)
        if (first := next(lines, None)) is not None:
            yield first.removeprefix("\ufeff")
        yield from lines

    def _by_line(self, stream: BinaryIO) -> Iterator[str]:
        for self.number, line in enumerate(stream, start=1):
            try:
                yield line.decode(self._encoding)
            except UnicodeDecodeError as error:
                if self._policy == "error":
                    raise self._error(
                        f"line {self.number}, byte {error.start + 1} of the line", error
                    ) from error
                yield self._mend(line)

    def _by_block(self, stream: BinaryIO) -> Iterator[str]:
        errors = "strict" if self._policy == "error" else "replace"
        decoder = codecs.getincrementaldecoder(self._encoding)(errors)
        parts: list[str] = []
        num_bytes = 0
        while True:
            block = stream.read(_BUFFER_BYTES)
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                # What the decoder had kept from the block before stands at the front.
                place = num_bytes - (len(error.object) - len(block)) + error.start + 1
                raise self._error(f"byte {place} of the text", error) from error
            num_bytes += len(block)
            if errors == "replace" and (bad := text.count(_REPLACEMENT)):
                self._on_bad_bytes(bad)
                text = text.replace(_REPLACEMENT, "") if self._policy == "skip" else text
            *whole, rest = text.split("\n")
            for line in whole:
                self.number += 1
                yield "".join([*parts, line, "\n"])
                parts.clear()
            if rest:
                parts.append(rest)
            if not block:
                break
        if parts:
            self.number += 1
            yield "".join(parts)

    def _mend(self, line: bytes) -> str:
        put = _REPLACEMENT if self._policy == "replace" else ""
        if self._encoding == "utf-8":
            text, count = _BAD_SEQUENCE.subn(put, line.decode("utf-8", "surrogateescape"))
        else:
            text = line.decode(self._encoding, "replace")
            count = text.count(_REPLACEMENT)
            text = text.replace(_REPLACEMENT, put)
        self._on_bad_bytes(count)
        return text

    def _error(self, where: str, error: UnicodeDecodeError) -> CorpusError:
        name = self._encoding.upper()
        hint = f"state the --encoding that the text is in{_guess(error.object, self._encoding)}"
        return CorpusError(
            f"{self._path}: {where}: expected {name}, found 0x{error.object[error.start]:02X}",
            f"{hint}; or count and drop what is wrong with --on-bad-bytes replace",
        )


def _guess(data: bytes, encoding: str) -> str:
    """Suggest the encoding that data of another one most likely is in."""
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):  # before those of UTF-16
        return ", most likely --encoding utf-32"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return ", most likely --encoding utf-16"
    if encoding == "utf-8":
        try:
            text = data.decode("gb18030")
        except UnicodeDecodeError:
            return ""
        # Nearly any bytes are some rare character of GB18030; those of GB2312 are the usual ones.
        beyond_ascii = [char for char in text if char > "\x7f"]
        usual = sum(bool(char.encode("gb2312", "ignore")) for char in beyond_ascii)
        if usual >= _GUESSED_SHARE * len(beyond_ascii):
            return ", most likely --encoding gb18030"
    return ""
