"""The files of written texts: tables of predictions, and of those unlike the true texts."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from bertpre.finetuning.outputs import Outputs
from bertpre.finetuning.tables import LabelledTable
from bertpre.finetuning.text_predictions import write_beside_labels


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
