"""Tables of texts in, a result for each row out: what predict and embed share.

Tables may be larger than memory; the output appears when it is whole. What can be checked before
PyTorch is imported is.
"""

import contextlib
import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from bertpre.artefacts import check_output_file, whole_file
from bertpre.config.reading import TableOptions
from bertpre.corpus.files import STDIN
from bertpre.corpus.tables import RowError
from bertpre.errors import CorpusError
from bertpre.finetuning.tables import read_texts

if TYPE_CHECKING:
    from bertpre.finetuning.batches import EncodedTexts

_CHUNK_ROWS = 4096  # sorted by length together
_CHUNK_CHARACTERS = 16_000_000  # so that a chunk of huge cells does not fill the memory
_FIRST_ROWS = 1000  # read before anything is loaded, since most faults show there

_COUNTED_BY_TEXTS = ("num_truncated", "num_windowed", "num_empty", "num_unknown", "num_tokens")

Cells = tuple[str, ...]  # the text, or both texts, of a row


@dataclass(frozen=True, kw_only=True, slots=True)
class TableReport:
    """What became of the rows of a table.

    Args:
        num_rows: rows of the table, and of the output.
        num_truncated: rows of whose text tokens were not read.
        num_windowed: rows that were read in several windows.
        num_empty: rows without a token, for which the model saw [CLS] [SEP].
        num_skipped: rows that could not be read, whose output is empty.
    """

    num_rows: int
    num_truncated: int
    num_windowed: int
    num_empty: int
    num_skipped: int


class TableReader:
    """Reads the texts of a table in chunks, and counts what becomes of them.

    Args:
        table: TSV, CSV, JSON lines or parquet, or "-" for standard input.
        config: how it is read.
        skips_bad_rows: rows that cannot be read keep their place as None.
        way_out: what else can be done about such rows, for the message.

    Raises:
        CorpusError: the table cannot be read or is empty, or one of the first rows is bad.
    """

    def __init__(
        self,
        table: str | Path,
        config: TableOptions,
        *,
        skips_bad_rows: bool = False,
        way_out: str | None = None,
    ) -> None:
        self._path = table_path(table)
        self._config = config
        self._skips = skips_bad_rows
        self._way_out = way_out
        self._counts = dict.fromkeys(("num_rows", "num_skipped", *_COUNTED_BY_TEXTS), 0)
        rows = self._rows()
        first = list(itertools.islice(rows, _FIRST_ROWS))
        if not first:
            raise CorpusError(f"{self._path}: has no rows; expected at least one with a text")
        self._remaining = itertools.chain(first, rows)

    def _rows(self) -> Iterator[Cells | None]:
        bad: list[RowError] = []
        on_bad = bad.append if self._skips else None
        for row in read_texts(self._path, self._config, on_bad=on_bad, way_out=self._way_out):
            yield from (None for _ in bad)
            bad.clear()
            yield row.cells
        yield from (None for _ in bad)

    def chunks(self) -> Iterator[list[Cells | None]]:
        """Yield some thousand rows at a time, fewer if their texts are huge."""
        chunk: list[Cells | None] = []
        characters = 0
        for cells in self._remaining:
            chunk.append(cells)
            characters += sum(map(len, cells or ()))
            if len(chunk) >= _CHUNK_ROWS or characters >= _CHUNK_CHARACTERS:
                yield chunk
                chunk, characters = [], 0
        if chunk:
            yield chunk

    def count(self, chunk: Sequence[Cells | None], texts: "EncodedTexts | None") -> int:
        """Count a chunk that is done; return the rows done so far.

        Args:
            chunk: from `chunks`.
            texts: its rows that could be read, as the model read them; None if there are none.
        """
        self._counts["num_rows"] += len(chunk)
        self._counts["num_skipped"] += sum(cells is None for cells in chunk)
        for name in () if texts is None else _COUNTED_BY_TEXTS:
            self._counts[name] += getattr(texts, name)
        return self._counts["num_rows"]

    def finish(self) -> TableReport:
        """Warn if the model could not tell much of the texts, and return the counts."""
        from bertpre.finetuning.batches import warn_of_unknown

        counts = dict(self._counts)
        warn_of_unknown(counts.pop("num_unknown"), counts.pop("num_tokens"))
        return TableReport(**counts)


def table_path(table: str | Path) -> Path:
    """Give the path of a table; "-" is standard input."""
    return STDIN if str(table) == "-" else Path(table)


def check_table_output(output: str | Path | TextIO, table: str | Path, *, overwrite: bool) -> None:
    """Refuse an output that exists or that is the table; an open file may be anything.

    Raises:
        ConfigError: it is.
    """
    if isinstance(output, str | Path):
        path = table_path(table)
        reads = None if path == STDIN else path
        check_output_file(Path(output), reads=reads, overwrite=overwrite)


@contextlib.contextmanager
def open_text(output: str | Path | TextIO) -> Iterator[TextIO]:
    """Give a text file that appears when it is whole, or the open file that the caller has."""
    if not isinstance(output, str | Path):
        yield output
        return
    with whole_file(Path(output)) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="\n", write_through=True)
        yield text
        text.detach()
