"""Predictions for texts: a TSV with a line for each row of a table."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from bertpre.config.schema import Finetune
from bertpre.finetuning.labels import OWN_COLUMNS
from bertpre.finetuning.outputs import Outputs, PredictionFile
from bertpre.finetuning.tables import InputRow, LabelledTable, read_texts


class TextPredictions(PredictionFile):
    """A table of texts, and the TSV of their predictions.

    Args:
        path: the table, or `STDIN`.
        config: how to read it, and whether to skip bad rows.
        columns: the header of the TSV.
        lines: yields a line of it for each row of outputs.
        way_out: another way to deal with bad rows, for the hint.
    """

    def __init__(
        self,
        path: Path,
        config: Finetune,
        columns: Sequence[str],
        lines: Callable[[Outputs], Iterator[str]],
        *,
        way_out: str,
    ) -> None:
        self._path, self._config, self._way_out = path, config, way_out
        self._columns, self._lines = columns, lines

    def header(self) -> str:
        return "\t".join(self._columns) + "\n"

    def rows(self) -> Iterator[InputRow]:
        skips = self._config.on_bad_rows == "skip"
        return read_texts(self._path, self._config, skips_bad_rows=skips, way_out=self._way_out)

    def write(self, rows: Sequence[InputRow], outputs: Outputs | None) -> Iterator[str]:
        lines = iter(()) if outputs is None else self._lines(outputs)
        empty = "\t" * (len(self._columns) - 1)
        for row in rows:
            yield (empty if row.cells is None else next(lines)) + "\n"


def write_beside_labels(
    folder: Path,
    part: str,
    table: LabelledTable,
    columns: Sequence[str],
    lines: Iterable[str],
) -> None:
    """Write the predictions for a labelled table: those of `predict`, the true label, the line."""
    path = folder / f"{part}_predictions.tsv"
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join([*columns, *OWN_COLUMNS[1:]]) + "\n")
        for shown, label, line in zip(lines, table.labels, table.lines, strict=True):
            file.write(f"{shown}\t{label}\t{line}\n")
