"""Bytes to lines of text: the encoding, and what is done about bytes that are not of it."""

import codecs
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, cast

from bertpre.errors import ConfigError, CorpusError

_BLOCK_BYTES = 1 << 16

# A lead byte with its continuation bytes is one fault, as surrogateescape writes bad bytes.
_BAD_SEQUENCE = re.compile("[\udcc0-\udcff][\udc80-\udcbf]*|[\udc80-\udcbf]")
_REPLACEMENT = "\ufffd"
# So much of what is beyond ASCII must be usual Chinese for a text to be taken for GB18030.
_USUAL_CHINESE_SHARE = 0.9
# Text holds hardly any NUL; every second byte of UTF-16 is one wherever it is in the Latin script.
_MOST_NULS, _FEWEST_NULS = 0.1, 8
_LOOKED_AT_BYTES = 4096
_NAME_ENCODINGS = ("punycode", "idna")  # encodings of names on the internet, not of texts


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
            if codecs.lookup(self.encoding).name in _NAME_ENCODINGS:
                raise LookupError("not for texts")
        except (LookupError, UnicodeError) as error:
            raise ConfigError(
                f"--encoding {self.encoding}: there is no such text encoding",
                "name one that Python knows, such as utf-8, utf-16, gb18030, big5, shift_jis, "
                "euc-kr or cp1252",
            ) from error


class LineDecoder:
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

    def lines(self, stream: BinaryIO) -> Iterator[str]:
        """Yield the lines of a buffered stream, without a byte order mark."""
        self._check_start(stream)
        # In UTF-16 and the like, the byte of a newline may be part of another character.
        if "\n".encode(self._encoding) == b"\n":
            lines = self._by_line(stream)
        else:
            lines = self._by_block(stream)
        if (first := next(lines, None)) is not None:
            yield first.removeprefix("\ufeff")
        yield from lines

    def _check_start(self, stream: BinaryIO) -> None:
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

    def _by_line(self, stream: BinaryIO) -> Iterator[str]:
        for self.number, line in enumerate(stream, start=1):
            try:
                yield line.decode(self._encoding)
            except UnicodeDecodeError as error:
                if self._policy == "error":
                    raise self._error(
                        f"line {self.number}, byte {error.start + 1} of the line", error
                    ) from error
                yield self._replace_bad_bytes(line)

    def _by_block(self, stream: BinaryIO) -> Iterator[str]:
        errors = "strict" if self._policy == "error" else "replace"
        decoder = codecs.getincrementaldecoder(self._encoding)(errors)
        parts: list[str] = []
        num_bytes = 0
        while True:
            block = stream.read(_BLOCK_BYTES)
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

    def _replace_bad_bytes(self, line: bytes) -> str:
        replacement = _REPLACEMENT if self._policy == "replace" else ""
        if self._encoding == "utf-8":
            text, count = _BAD_SEQUENCE.subn(replacement, line.decode("utf-8", "surrogateescape"))
        else:
            text = line.decode(self._encoding, "replace")
            count = text.count(_REPLACEMENT)
            text = text.replace(_REPLACEMENT, replacement)
        self._on_bad_bytes(count)
        return text

    def _error(self, where: str, error: UnicodeDecodeError) -> CorpusError:
        name = self._encoding.upper()
        guess = _guess_encoding(error.object, self._encoding)
        return CorpusError(
            f"{self._path}: {where}: expected {name}, found 0x{error.object[error.start]:02X}",
            f"state the --encoding that the text is in{guess}; or count and drop what is wrong "
            "with --on-bad-bytes replace",
        )


def _guess_encoding(data: bytes, encoding: str) -> str:
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
        if usual >= _USUAL_CHINESE_SHARE * len(beyond_ascii):
            return ", most likely --encoding gb18030"
    return ""
