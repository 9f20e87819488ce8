"""The files of written texts: tables of predictions, and of those unlike the true texts."""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from bertpre.config.schema import Finetune
from bertpre.finetuning.outputs import Outputs
from bertpre.finetuning.tables import InputRow, LabelledTable
from bertpre.finetuning.text_predictions import TextPredictions, write_beside_labels

_MANY_FULL = _MANY_REPEATING = 0.05  # of the texts


class WrittenTexts(TextPredictions):
    """A table of sources, and the TSV of the texts written for them.

    Args:
        path: the table, or `STDIN`.
        config: how to read it, and whether to skip bad rows.
        num_best: texts for each row.
        usual_repeats: the share of training targets that have the same three tokens twice.
        way_out: another way to deal with bad rows, for the hint.
    """

    def __init__(
        self, path: Path, config: Finetune, *, num_best: int, usual_repeats: float, way_out: str
    ) -> None:
        lines = partial(prediction_lines, num_best=num_best)
        super().__init__(path, config, prediction_columns(num_best), lines, way_out=way_out)
        self._usual_repeats = usual_repeats
        self._num_full = self._num_repeating = self._num_texts = 0

    def write(self, rows: Sequence[InputRow], outputs: Outputs | None) -> Iterator[str]:
        for output in () if outputs is None else outputs:
            self._num_full += output.is_full
            self._num_repeating += output.repeats
            self._num_texts += 1
        yield from super().write(rows, outputs)

    def remarks(self) -> list[str]:
        counts = (self._num_full, self._num_repeating, self._num_texts)
        return remarks_on_texts(*counts, usual_repeats=self._usual_repeats)


def remarks_on_texts(
    num_full: int, num_repeating: int, num_texts: int, *, usual_repeats: float
) -> list[str]:
    """Remark on texts that have the maximum length or repeat themselves, if they are many.

    Args:
        num_full: texts of the maximum length.
        num_repeating: texts that have the same three tokens twice.
        num_texts: all texts.
        usual_repeats: the share of training targets that do so.
    """
    remarks = []
    if num_full > _MANY_FULL * num_texts:
        remarks.append(
            f"{num_full:,} of {num_texts:,} texts have the maximum length, so their ends may be "
            "missing; a larger --max-target-length allows more"
        )
    if num_repeating > (_MANY_REPEATING + 2 * usual_repeats) * num_texts:
        remarks.append(
            f"{num_repeating:,} of {num_texts:,} texts have the same three tokens twice, as only "
            f"{usual_repeats:.1%} of the training targets do; --no-repeat-ngram 3 prevents it"
        )
    return remarks


def prediction_columns(num_best: int) -> list[str]:
    """Return the header of a table with so many texts for each row."""
    others = [(f"prediction_{place}", f"score_{place}") for place in range(2, num_best + 1)]
    return ["prediction", "score", *(column for pair in others for column in pair)]


def prediction_lines(outputs: Outputs, *, num_best: int) -> Iterator[str]:
    """Yield a line of that table for each row of outputs."""
    for output in outputs:
        found = [(output.text, output.score), *output.others]
        cells = [cell for text, score in found for cell in (text, f"{score:.6f}")]
        yield "\t".join(cells + [""] * (2 * num_best - len(cells)))


def write_outputs(
    folder: Path, part: str, table: LabelledTable, outputs: Outputs, *, num_best: int
) -> None:
    """Write the texts for a labelled table beside the true ones."""
    labels = tuple(map(_on_one_line, table.labels))
    table = dataclasses.replace(table, labels=labels)
    lines = prediction_lines(outputs, num_best=num_best)
    write_beside_labels(folder, part, table, prediction_columns(num_best), lines)


def write_mistakes(path: Path, table: LabelledTable, outputs: Outputs) -> None:
    """List the rows whose text is not the true one."""
    rows = zip(table.lines, table.sources(), table.labels, outputs, strict=True)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("line\tsource\ttarget\tprediction\n")
        for line, source, target, output in rows:
            cells = [str(line), *map(_on_one_line, (source, target, output.text))]
            if cells[2] != cells[3]:
                file.write("\t".join(cells) + "\n")


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
