"""Cut plain text files into spans of bytes that are read by themselves, such as in other processes.

A span starts where a document does and ends where one ends, so that reading spans gives the same
documents as reading the file, and only the bytes of a file decide where its spans are.
"""

import hashlib
import io
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from bertpre.config.fields import Kmer
from bertpre.config.schema import TextOptions
from bertpre.corpus.decoding import Decoding, LineDecoder
from bertpre.corpus.files import is_compressed
from bertpre.corpus.inputs import InputFile
from bertpre.corpus.records import (
    LONGEST_DOCUMENT,
    count_and_cut,
    group_by_document,
    sentences_of,
    txt_records,
)
from bertpre.corpus.report import CorpusReport, Statistics
from bertpre.errors import CorpusError

# Large enough that sending work to a process costs little, small enough to keep several busy.
SPAN_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 16
_BLANK_LINE = re.compile(rb"\n[ \t\r]*\n")
_LINE_END = re.compile(rb"\n")


class Span(NamedTuple):
    """Whole documents of a text file: the bytes from start to end."""

    path: Path
    start: int
    end: int


def find_spans(file: InputFile, options: TextOptions) -> Iterator[Span | InputFile]:
    """Yield the spans of a file, or the file itself if it must be read from start to end.

    That is so for tables, compressed files and pipes, for a file that is one document, if repeats
    are removed, and in encodings in which a newline byte may be a part of another character.
    """
    size = file.size()
    can_be_cut = (
        file.format == "txt"
        and size is not None
        and options.document != "file"
        and options.dedup == "none"
        and "\n".encode(options.encoding) == b"\n"
        and os.access(file.path, os.R_OK)  # or else reading it in order says what is wrong
        and not is_compressed(file.path)
    )
    if not can_be_cut:
        yield file
        return
    document_end = _LINE_END if options.document == "line" else _BLANK_LINE
    with file.path.open("rb") as opened:
        start = 0
        while start < (size or 0):
            end = _find_after(document_end, opened, start + SPAN_BYTES) or size or 0
            yield Span(file.path, start, end)
            start = end


def identify(file: InputFile, options: TextOptions) -> list[object]:
    """Return values that differ for another file, as far as its size, start and end show.

    Reads little, so that one share of a corpus is known to belong to others without all their text.
    """
    size = file.size()
    if size is None or not isinstance(next(find_spans(file, options), None), Span):
        return [file.path.name]
    with file.path.open("rb") as opened:
        start = opened.read(_BLOCK_BYTES)
        opened.seek(max(0, size - _BLOCK_BYTES))
        end = opened.read()
    return [file.path.name, size, hashlib.sha256(start + end).hexdigest()]


def _find_after(pattern: re.Pattern[bytes], file: BinaryIO, place: int) -> int | None:
    """Return where the first match at or after a place ends; None if there is none."""
    file.seek(place)
    rest = b""
    while block := file.read(_BLOCK_BYTES):
        data = rest + block
        if found := pattern.search(data):
            return place - len(rest) + found.end()
        place += len(block)
        last = data.rfind(b"\n")
        rest = data[last:] if last >= 0 else b""  # a match may go on in the next block
    return None


def read_span(
    span: Span, options: TextOptions, *, kmer: Kmer | None = None
) -> tuple[list[tuple[str, ...]], Statistics]:
    """Read the documents of a span, each as its sentences, and count them.

    Args:
        span: from `find_spans`.
        options: how to read it.
        kmer: how sequences will be cut, for windows of tokens.

    Raises:
        CorpusError: the file cannot be read.
    """
    try:
        with span.path.open("rb") as file:
            file.seek(span.start)
            data = file.read(span.end - span.start)
    except OSError as error:
        raise CorpusError(f"{span.path}: cannot be read ({error.strerror})") from error
    statistics = Statistics(CorpusReport())
    decoding = Decoding(encoding=options.encoding, on_bad_bytes=options.on_bad_bytes)
    lines = _decode(span, data, decoding, statistics.report)
    is_short = len(data) < LONGEST_DOCUMENT
    if isinstance(lines, list) and options.sentences == "line" and is_short:
        documents = _group_lines(lines, by_line=options.document == "line")
        statistics.count(documents)
        return documents, statistics
    records = txt_records(lines, str(span.path), options.document)
    counted = count_and_cut(records, None, statistics, options, kmer=kmer)
    return list(map(sentences_of, group_by_document(counted))), statistics


def _decode(
    span: Span, data: bytes, decoding: Decoding, report: CorpusReport
) -> list[str] | Iterator[str]:
    """Return the lines of a span, as a list if the fast way works."""
    decoder = LineDecoder(span.path, decoding, lambda count: None)
    if decoder.encoding == "utf-8":
        if span.start == 0:
            decoder.check_start(data)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            pass
        else:
            lines = text.removeprefix("\ufeff" if span.start == 0 else "").split("\n")
            if lines[-1] == "":
                del lines[-1]
            return lines
    return _decode_lines(span, data, decoding, report)


def _decode_lines(
    span: Span, data: bytes, decoding: Decoding, report: CorpusReport
) -> Iterator[str]:
    def count_bad(count: int) -> None:
        report.bad_bytes += count

    def lines(number: int, is_counted: bool) -> Iterator[str]:
        count = count_bad if is_counted else lambda count: None
        decoder = LineDecoder(span.path, decoding, count, number=number)
        stream = io.BufferedReader(io.BytesIO(data))
        return decoder.lines(stream) if span.start == 0 else decoder.more_lines(stream)

    try:
        yield from lines(0, is_counted=True)
    except CorpusError:
        # Only an error needs the number of its line in the file.
        for _ in lines(_count_lines_before(span), is_counted=False):
            pass
        raise


def _count_lines_before(span: Span) -> int:
    count = 0
    with span.path.open("rb") as file:
        while file.tell() < span.start:
            count += file.read(min(SPAN_BYTES, span.start - file.tell())).count(b"\n")
    return count


def _group_lines(lines: Sequence[str], *, by_line: bool) -> list[tuple[str, ...]]:
    documents: list[tuple[str, ...]] = []
    document: list[str] = []
    for line in lines:
        if not line or line.isspace():
            if document:
                documents.append(tuple(document))
                document = []
        elif by_line:
            documents.append((line.removesuffix("\r"),))
        else:
            document.append(line[:-1] if line[-1] == "\r" else line)
    if document:
        documents.append(tuple(document))
    return documents
