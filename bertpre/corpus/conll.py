"""Read and write files of columns: one token on each line, blank lines between sentences.

The columns are separated by tabs or by spaces. One of them has the tokens, another their tags.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from bertpre.corpus.columns import (
    NO_TOKEN,
    Layout,
    check_column,
    find_spans,
    find_start,
    layout_to_write,
    tagged_layout,
)
from bertpre.corpus.decoding import Decoding
from bertpre.corpus.delimited import count_columns
from bertpre.corpus.files import read_lines
from bertpre.corpus.rows import RowError
from bertpre.errors import CorpusError, shorten


class Sentence(NamedTuple):
    """A sentence with all its lines.

    Attributes:
        line: line of its first token, from 1.
        tokens: its tokens as the file has them; none if there is a fault.
        tags: the tag of each token; None if there are no tags, they are ignored, or there is a
            fault.
        lines: its lines unchanged, with their ends, and the lines without a token up to the next
            sentence; in the first sentence, also those before it. Together, the lines of all
            sentences are the file.
        places: for each token, the index of its line in ``lines``.
        fault: its first bad line, if there is one.
    """

    line: int
    tokens: tuple[str, ...]
    tags: tuple[str, ...] | None
    lines: tuple[str, ...]
    places: tuple[int, ...]
    fault: RowError | None = None


class ColumnFile:
    """A file of columns, read sentence by sentence.

    Lines that start with ``# id`` or ``# text`` are comments. Lines of tabs and spaces are blank.
    A token may be any text without the separator; it may be a space.

    Args:
        path: the file, plain or compressed, or `bertpre.corpus.files.STDIN`.
        tags: read: every token has a tag. write: tags are to be put in, where there may be some
            already. ignore: only tokens are read.
        text_column: number of the column of tokens, from 1; default: as in ``layout``, or 1.
        label_column: number of the column of tags; default: as in ``layout``, or the last.
        layout: for write, the columns of the file that was learned from; default: a token, a tab
            and a tag.
        decoding, on_bytes, on_bad_bytes: see `read_lines`.

    Attributes:
        layout: the columns of the file once it has tags; None if tags are ignored or there is no
            token.

    Raises:
        ConfigError: tokens and tags are in the same column.
        CorpusError: the file cannot be read, or its columns do not fit.
    """

    def __init__(
        self,
        path: Path,
        *,
        tags: Literal["read", "write", "ignore"],
        text_column: int | None = None,
        label_column: int | None = None,
        layout: Layout | None = None,
        decoding: Decoding | None = None,
        on_bytes: Callable[[int], None] | None = None,
        on_bad_bytes: Callable[[int], None] | None = None,
    ) -> None:
        self._path = path
        self._reads_tags = tags == "read"
        lines = read_lines(path, decoding=decoding, on_bytes=on_bytes, on_bad_bytes=on_bad_bytes)
        head, start = find_start(path, lines)
        self._lines = itertools.chain(head, lines)
        self.layout: Layout | None = None
        if start is None:
            return
        self._start = start
        if tags == "read":
            self.layout = tagged_layout(path, start, text_column, label_column)
        elif tags == "write":
            self.layout = layout_to_write(path, start, text_column, label_column, layout)
            # A single column may show no separator.
            self._start = start._replace(separator=self.layout.separator)
        columns = self.layout
        text = columns.text if columns is not None else text_column or 1
        self._has_tags = columns is not None and start.width == columns.width
        # A missing column of tags moves those after it.
        is_moved = columns is not None and not self._has_tags and text > columns.label
        self._text_index = text - 1 - is_moved
        check_column(path, start, self._text_index + 1)

    def sentences(self) -> Iterator[Sentence]:
        """Yield all sentences, in order; those with a bad line have a fault instead of tokens."""
        for start, lines, places in _group(self._lines):
            yield self._read_sentence(start, lines, places)

    def write(self, sentence: Sentence, tags: Sequence[str] | None) -> str:
        """Return the lines of a sentence with tags put in, and everything else unchanged.

        Old tags are replaced. Where there are none, a column is inserted; separators at the end of
        the line are then left out.

        Args:
            sentence: from this file, which was opened to write tags.
            tags: one for each token; None, or a sentence with a fault: leave all lines unchanged.

        Raises:
            CorpusError: a tag contains the separator of the columns.
        """
        lines = list(sentence.lines)
        if tags is not None and sentence.fault is None:
            for place, tag in zip(sentence.places, tags, strict=True):
                lines[place] = self._put(lines[place], tag)
        return "".join(lines)

    def _read_sentence(self, start: int, lines: list[str], places: list[int]) -> Sentence:
        tokens, tags = [], []
        fault = None
        for place in places:
            line = lines[place]
            spans = self._find_cells(line)
            if len(spans) != self._start.width:
                fault = self._width_fault(start + place, line, len(spans))
                break
            first, end = spans[self._text_index]
            tokens.append(line[first:end])
            if self._reads_tags or self._has_tags:
                assert self.layout is not None
                first, end = spans[self.layout.label - 1]
                tags.append(line[first:end].strip(" "))
                if self._reads_tags and not tags[-1]:
                    fault = RowError.at(
                        self._path, start + place, "the tag is empty", "give every token a tag"
                    )
                    break
        return Sentence(
            line=start + places[0],
            tokens=() if fault else tuple(tokens),
            tags=tuple(tags) if tags and not fault else None,
            lines=tuple(lines),
            places=() if fault else tuple(places),
            fault=fault,
        )

    def _find_cells(self, line: str) -> list[tuple[int, int]]:
        """Return start and end of each cell of a line."""
        spans = find_spans(line, self._start.separator)
        width = self._start.width
        if self._start.separator == "\t":
            while len(spans) > width and not line[slice(*spans[-1])].strip(" "):
                spans.pop()
        elif len(spans) == width - 1 and line.startswith(" "):
            spans.insert(0, (0, 1))  # the token is a space
        return spans

    def _put(self, line: str, tag: str) -> str:
        assert self.layout is not None
        separator = self._start.separator
        if separator in tag:
            raise CorpusError(
                f"{self._path}: the tag {tag!r} contains the separator of the columns",
                "separate the columns of the file by tabs",
            )
        spans = self._find_cells(line)
        place = self.layout.label - 1
        if self._has_tags:
            first, end = spans[place]
            return line[:first] + tag + line[end:]
        if place == len(spans):
            end = spans[-1][1]
            return line[:end] + separator + tag + line[end:].lstrip(" \t")
        first, _ = spans[place]
        return line[:first] + tag + separator + line[first:]

    def _width_fault(self, number: int, line: str, found: int) -> RowError:
        line = line.rstrip("\r\n")
        start = self._start
        other = " " if start.separator == "\t" else "\t"
        if line.startswith("#"):
            hint = "if it is a comment, remove it"
        elif found < start.width and other in line.strip(" \t"):
            names = {"\t": "tabs", " ": "spaces"}
            hint = f"separate all columns by {names[start.separator]} as in line {start.number}"
        else:
            hint = "give every token as many columns, and separate sentences by blank lines"
        problem = f"found {count_columns(found)}, expected {start.width} as in line {start.number}"
        if line.startswith("# "):
            problem += "; only lines with '# id' or '# text' are comments"
        elif found == 1 and start.separator == "\t":
            problem += ", whose columns a tab separates"
        return RowError.at(self._path, number, f"{problem}: {shorten(line)}", hint)


def _group(lines: Iterable[str]) -> Iterator[tuple[int, list[str], list[int]]]:
    """Yield the first line's number, the lines and the places of the tokens of each sentence."""
    start, block, places = 1, list[str](), list[int]()
    has_ended = False
    for number, line in enumerate(lines, start=1):
        found = NO_TOKEN.match(line)
        if found is None:
            if has_ended:
                yield start, block, places
                start, block, places = number, [], []
                has_ended = False
            places.append(len(block))
        elif places and found[1] is None:
            has_ended = True
        block.append(line)
    if places:
        yield start, block, places
