"""Decode bytes to lines of text, and handle bytes that are invalid in the encoding."""

import codecs
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, cast

from bertpre.errors import ConfigError, CorpusError

_BLOCK_BYTES = 1 << 16

# A lead byte with its continuation bytes counts as one, as decoded by surrogateescape.
_BAD_SEQUENCE = re.compile("[\udcc0-\udcff][\udc80-\udcbf]*|[\udc80-\udcbf]")
_REPLACEMENT = "\ufffd"
# Share of common Chinese among non-ASCII characters from which a text is taken for GB18030.
_USUAL_CHINESE_SHARE = 0.9
# Text has hardly any NULs, but in Latin script every second byte of UTF-16 is one.
_MOST_NULS, _FEWEST_NULS = 0.1, 8
_LOOKED_AT_BYTES = 4096
_NAME_ENCODINGS = ("punycode", "idna")  # encodings of domain names, not of text


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoding:
    """How bytes become text.

    Attributes:
        encoding: any name that Python knows.
        on_bad_bytes: raise an error, replace with U+FFFD, or drop.
    """

    encoding: str = "utf-8"
    on_bad_bytes: Literal["error", "replace", "skip"] = "error"

    def __post_init__(self) -> None:
        """Refuse an encoding that does not exist or is not for text."""
        try:
            "a\n".encode(self.encoding)
            if codecs.lookup(self.encoding).name in _NAME_ENCODINGS:
                raise LookupError("not for text")
        except (LookupError, UnicodeError) as error:
            raise ConfigError(
                f"--encoding {self.encoding}: there is no such text encoding",
                "use one that Python knows, such as utf-8, utf-16, gb18030, big5, shift_jis, "
                "euc-kr or cp1252",
            ) from error


class LineDecoder:
    """Decodes a stream of bytes to lines of text.

    Attributes:
        number: number of the current line, from 1.
        encoding: its name; utf-8 also for utf-8-sig, as the byte order mark is removed anyway.
    """

    def __init__(
        self,
        path: Path,
        decoding: Decoding,
        on_bad_bytes: Callable[[int], None],
        *,
        number: int = 0,
    ) -> None:
        self._path = path
        name = codecs.lookup(decoding.encoding).name
        self.encoding = "utf-8" if name == "utf-8-sig" else name
        self._policy = decoding.on_bad_bytes
        self._on_bad_bytes = on_bad_bytes
        self.number = number

    def lines(self, stream: BinaryIO) -> Iterator[str]:
        """Yield the lines of a buffered stream without the byte order mark."""
        self.check_start(cast(io.BufferedReader, stream).peek(_LOOKED_AT_BYTES))
        lines = self.more_lines(stream)
        if (first := next(lines, None)) is not None:
            yield first.removeprefix("\ufeff")
        yield from lines

    def more_lines(self, stream: BinaryIO) -> Iterator[str]:
        """Yield the lines of a stream that does not begin where the file does."""
        # In encodings such as UTF-16, a newline byte may be part of another character.
        if "\n".encode(self.encoding) == b"\n":
            return self._by_line(stream)
        return self._by_block(stream)

    def check_start(self, data: bytes) -> None:
        """Refuse text in UTF-16 or UTF-32 if the encoding is based on single bytes."""
        start = data[:_LOOKED_AT_BYTES]
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return  # the decoder reports it if it is wrong
        if "\0" in "a".encode(self.encoding).decode("latin-1"):
            return
        at_even, at_odd = start[::2].count(0), start[1::2].count(0)
        # With Latin letters, either all even or all odd bytes are 0.
        if max(at_even, at_odd) > max(_FEWEST_NULS, _MOST_NULS * len(start)) and (
            min(at_even, at_odd) < _MOST_NULS * max(at_even, at_odd)
        ):
            kind = "utf-16-le" if at_odd > at_even else "utf-16-be"
            raise CorpusError(
                f"{self._path}: expected {self.encoding.upper()}, found {start.count(0):,} NUL "
                f"bytes among the first {len(start):,}",
                f"set --encoding to that of the text, most likely --encoding {kind}",
            )

    def _by_line(self, stream: BinaryIO) -> Iterator[str]:
        for line in stream:
            self.number += 1
            try:
                yield line.decode(self.encoding)
            except UnicodeDecodeError as error:
                if self._policy == "error":
                    raise self._error(
                        f"line {self.number}, byte {error.start + 1} of the line", error
                    ) from error
                yield self._replace_bad_bytes(line)

    def _by_block(self, stream: BinaryIO) -> Iterator[str]:
        errors = "strict" if self._policy == "error" else "replace"
        decoder = codecs.getincrementaldecoder(self.encoding)(errors)
        parts: list[str] = []
        num_bytes = 0
        while True:
            block = stream.read(_BLOCK_BYTES)
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                # The object starts with the bytes kept from the previous block.
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
        if self.encoding == "utf-8":
            text, count = _BAD_SEQUENCE.subn(replacement, line.decode("utf-8", "surrogateescape"))
        else:
            text = line.decode(self.encoding, "replace")
            count = text.count(_REPLACEMENT)
            text = text.replace(_REPLACEMENT, replacement)
        self._on_bad_bytes(count)
        return text

    def _error(self, where: str, error: UnicodeDecodeError) -> CorpusError:
        name = self.encoding.upper()
        guess = _guess_encoding(error.object, self.encoding)
        return CorpusError(
            f"{self._path}: {where}: expected {name}, found 0x{error.object[error.start]:02X}",
            f"set --encoding to that of the text{guess}; or replace and count invalid bytes "
            "with --on-bad-bytes replace",
        )


def _guess_encoding(data: bytes, encoding: str) -> str:
    """Suggest the most likely encoding of data that ``encoding`` cannot decode."""
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):  # before those of UTF-16
        return ", most likely --encoding utf-32"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return ", most likely --encoding utf-16"
    if encoding == "utf-8":
        try:
            text = data.decode("gb18030")
        except UnicodeDecodeError:
            return ""
        # Almost any bytes are valid GB18030; common characters are also in GB2312.
        beyond_ascii = [char for char in text if char > "\x7f"]
        usual = sum(bool(char.encode("gb2312", "ignore")) for char in beyond_ascii)
        if usual >= _USUAL_CHINESE_SHARE * len(beyond_ascii):
            return ", most likely --encoding gb18030"
    return ""
