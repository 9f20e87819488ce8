"""Reading of input tables for predict and embed.

Tables may be larger than memory; the output file appears when it is complete. As much as possible
is checked before PyTorch is imported.
"""

import contextlib
import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from bertpre.artefacts import check_output_file, whole_file
from bertpre.corpus.files import STDIN
from bertpre.errors import CorpusError
from bertpre.finetuning.tables import InputRow

if TYPE_CHECKING:
    from bertpre.finetuning.batches import EncodedTexts

_CHUNK_ROWS = 4096  # sorted by length together
_CHUNK_CHARACTERS = 16_000_000  # so that huge cells do not fill the memory
_FIRST_ROWS = 1000  # read before anything is loaded, since they show most faults

_COUNTED_BY_TEXTS = ("num_truncated", "num_windowed", "num_empty", "num_unknown", "num_tokens")


@dataclass(frozen=True, kw_only=True, slots=True)
class TableReport:
    """What became of the rows of a table.

    Args:
        num_rows: rows of the table, and of the output.
        num_truncated: rows with tokens cut off.
        num_windowed: rows that were read in several windows.
        num_empty: rows without tokens, for which the model saw [CLS] [SEP].
        num_skipped: rows that could not be read, with an empty output.
    """

    num_rows: int
    num_truncated: int
    num_windowed: int
    num_empty: int
    num_skipped: int


class TableReader:
    """Reads the texts of a table in chunks, and counts them.

    Args:
        path: the table, for messages.
        rows: its rows; those that cannot be read have no cells.

    Raises:
        CorpusError: the table cannot be read or is empty, or one of the first rows is bad.
    """

    def __init__(self, path: Path, rows: Iterator[InputRow]) -> None:
        self._counts = dict.fromkeys(("num_rows", "num_skipped", *_COUNTED_BY_TEXTS), 0)
        first = list(itertools.islice(rows, _FIRST_ROWS))
        if not first:
            raise CorpusError(
                f"{path}: has no rows; expected at least one with a text", "check the file"
            )
        self._remaining = itertools.chain(first, rows)

    def chunks(self) -> Iterator[list[InputRow]]:
        """Yield a few thousand rows at a time, fewer if their texts are huge."""
        chunk: list[InputRow] = []
        characters = 0
        for row in self._remaining:
            chunk.append(row)
            characters += sum(map(len, row.cells or ()))
            if len(chunk) >= _CHUNK_ROWS or characters >= _CHUNK_CHARACTERS:
                yield chunk
                chunk, characters = [], 0
        if chunk:
            yield chunk

    def count(self, chunk: Sequence[InputRow], texts: "EncodedTexts | None") -> int:
        """Count a finished chunk; return the rows done so far.

        Args:
            chunk: from `chunks`.
            texts: its readable rows, encoded; None if there are none.
        """
        self._counts["num_rows"] += len(chunk)
        self._counts["num_skipped"] += sum(row.cells is None for row in chunk)
        for name in () if texts is None else _COUNTED_BY_TEXTS:
            self._counts[name] += getattr(texts, name)
        return self._counts["num_rows"]

    def finish(self) -> TableReport:
        """Warn if many tokens were unknown, and return the counts."""
        from bertpre.finetuning.batches import warn_of_unknown

        counts = dict(self._counts)
        warn_of_unknown(counts.pop("num_unknown"), counts.pop("num_tokens"))
        return TableReport(**counts)


def table_path(table: str | Path) -> Path:
    """Return the path of a table; "-" means standard input."""
    return STDIN if str(table) == "-" else Path(table)


def check_table_output(output: str | Path | TextIO, table: str | Path, *, overwrite: bool) -> None:
    """Refuse an output that exists or is the table itself; open files are not checked.

    Raises:
        ConfigError: it exists or is the table.
    """
    if isinstance(output, str | Path):
        path = table_path(table)
        reads = None if path == STDIN else path
        check_output_file(Path(output), reads=reads, overwrite=overwrite)


@contextlib.contextmanager
def open_text(output: str | Path | TextIO) -> Iterator[TextIO]:
    """Open a text file that appears when it is complete; an open file is yielded unchanged."""
    if not isinstance(output, str | Path):
        yield output
        return
    with whole_file(Path(output)) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="\n", write_through=True)
        yield text
        text.detach()
