"""Prediction: a table of texts in, a table of labels and probabilities out, row by row.

Tables may be larger than memory; the output appears when it is whole. What can be checked before
PyTorch is imported is.
"""

import contextlib
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from bertpre.artefacts import check_output_file, read_manifest, whole_file
from bertpre.config.load import parse_config
from bertpre.config.schema import Finetune
from bertpre.corpus.files import STDIN
from bertpre.corpus.tables import RowError
from bertpre.errors import ConfigError, CorpusError
from bertpre.finetuning.labelled import read_texts
from bertpre.finetuning.labels import Labels, labels_of, member_folders, name_some
from bertpre.finetuning.predictions import empty_line, prediction_header, prediction_lines

if TYPE_CHECKING:
    from bertpre.finetuning.batches import EncodedTexts
    from bertpre.finetuning.inference import Classifier
    from bertpre.finetuning.scores import Readings

_CHUNK_ROWS = 4096  # sorted by length together
_CHUNK_CHARACTERS = 16_000_000  # so that a chunk of huge cells does not fill the memory
_FIRST_ROWS = 1000  # read before anything is loaded, since most faults show there

Cells = tuple[str, ...] | None  # the text, or both texts, of a row; None if it cannot be read


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictReport:
    """What was predicted.

    Args:
        num_rows: rows of the table, and of the output.
        num_models: models whose mean the predictions are.
        num_truncated: rows of whose text tokens were not read, by the first model.
        num_windowed: rows that were read in several windows, by the first model.
        num_empty: rows without a token, for which the model saw [CLS] [SEP].
        num_skipped: rows that could not be read, whose output is empty.
    """

    num_rows: int
    num_models: int
    num_truncated: int
    num_windowed: int
    num_empty: int
    num_skipped: int


def predict(
    model: str | Path | Sequence[str | Path],
    table: str | Path,
    *,
    output: str | Path | TextIO,
    config: Finetune | None = None,
    overwrite: bool = False,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> PredictReport:
    """Classify every row of a table.

    Args:
        model: folder that fine-tuning wrote, or several of the same labels, which are averaged.
        table: TSV, CSV, JSON lines or parquet, or "-" for standard input; only its columns of text
            are read.
        output: TSV with a header: ``prediction``, then one probability a label, called as the label
            (or ``probability of label`` where that is the name of a column of ours); one row for
            each row of the table, in order. Or an open file.
        config: how the table is read and where the model runs; default: as in training.
        overwrite: replace an existing file.
        on_rows: called with the rows done.

    Raises:
        BertpreError: the output exists, or a model or the table is at fault. Nothing is written
            then, but to an open file.
    """
    folders = [Path(model)] if isinstance(model, str | Path) else [Path(one) for one in model]
    table = STDIN if str(table) == "-" else Path(table)
    manifests = [read_manifest(folder, "model") for folder in folders]
    labels, thresholds = _common_labels(folders, manifests)
    config = config or parse_config({"finetune": table_options(manifests[0])}).finetune
    _check_pairs(folders, manifests, config)
    parts = _parts(folders, manifests)
    if isinstance(output, str | Path):
        reads = None if table == STDIN else table
        check_output_file(Path(output), reads=reads, overwrite=overwrite)
    rows = _read_cells(table, config)
    first = list(itertools.islice(rows, _FIRST_ROWS))
    if not first:
        raise CorpusError(f"{table}: has no rows; expected at least one with a text")
    # From here on with PyTorch.
    from bertpre.finetuning.batches import warn_of_unknown
    from bertpre.finetuning.inference import Classifier
    from bertpre.training.device import keep_freed_memory, pick_device, pick_precision

    device = pick_device(config.device)
    if device.type == "cpu":
        keep_freed_memory()
    precision = pick_precision(config.precision, device)
    classifiers = [Classifier.load(part, device=device, precision=precision) for part in parts]
    num_rows = num_truncated = num_windowed = num_empty = num_skipped = 0
    num_unknown = num_tokens = 0
    with _open_output(output) as file:
        file.write(prediction_header(labels) + "\n")
        for chunk in _chunks(itertools.chain(first, rows)):
            whole = [cells for cells in chunk if cells is not None]
            lines: Iterator[str] = iter(())
            if whole:
                readings, encoded = _average(classifiers, whole)
                lines = prediction_lines(labels, readings, thresholds)
                num_truncated += encoded.num_truncated
                num_windowed += encoded.num_windowed
                num_empty += encoded.num_empty
                num_unknown += encoded.num_unknown
                num_tokens += encoded.num_tokens
            for cells in chunk:
                file.write((empty_line(labels) if cells is None else next(lines)) + "\n")
            num_rows += len(chunk)
            num_skipped += len(chunk) - len(whole)
            on_rows(num_rows)
    warn_of_unknown(num_unknown, num_tokens)
    return PredictReport(
        num_rows=num_rows,
        num_models=len(classifiers),
        num_truncated=num_truncated,
        num_windowed=num_windowed,
        num_empty=num_empty,
        num_skipped=num_skipped,
    )


def table_options(manifest: dict[str, Any]) -> dict[str, Any]:
    """Give the options by which a model's training table was read, for tables like it."""
    names = ("text_column", "pair_column", "header", "quoting", "encoding")
    return {name: manifest["options"][name] for name in names if name in manifest["options"]}


def _common_labels(
    folders: Sequence[Path], manifests: Sequence[dict[str, Any]]
) -> tuple[Labels, Any]:
    """Check that models go together; give their labels, and the mean of their thresholds."""
    labels = [
        labels_of(folder, manifest) for folder, manifest in zip(folders, manifests, strict=True)
    ]
    for folder, found in zip(folders[1:], labels[1:], strict=True):
        if (found.kind, found.names) != (labels[0].kind, labels[0].names):
            raise ConfigError(
                f"{folder}: does not predict what {folders[0]} does: {_describe(found)}; "
                f"expected {_describe(labels[0])}",
                "average models that were fine-tuned on the same labels",
            )
    thresholds = [manifest["thresholds"] for manifest in manifests if "thresholds" in manifest]
    return labels[0], np.mean(thresholds, axis=0) if thresholds else None


def _check_pairs(
    folders: Sequence[Path], manifests: Sequence[dict[str, Any]], config: Finetune
) -> None:
    for folder, manifest in zip(folders, manifests, strict=True):
        trained = manifest["options"]["pair_column"]
        if (trained is None) != (config.pair_column is None):
            what = "single texts" if trained is None else "pairs of texts"
            raise ConfigError(
                f"{folder}: was trained on {what}, but pair_column is {config.pair_column!r}",
                "leave --pair-column out"
                if trained is None
                else "name the column with the second text with --pair-column",
            )


def _parts(folders: Sequence[Path], manifests: Sequence[dict[str, Any]]) -> list[Path]:
    """Give the folders of the single models, each of which may count once."""
    parts: dict[Path, Path] = {}
    for folder, manifest in zip(folders, manifests, strict=True):
        for part in member_folders(folder, manifest):
            if part.resolve() in parts:
                raise ConfigError(
                    f"{part}: is named twice, so it would count double in the mean",
                    "name each model once; a folder of several models has all of its own",
                )
            parts[part.resolve()] = part
    return list(parts.values())


def _describe(labels: Labels) -> str:
    return f"{labels.kind} of {name_some([repr(name) for name in labels.names])}"


def _read_cells(table: Path, config: Finetune) -> Iterator[Cells]:
    """Read the rows; those that cannot be read keep their places, if they are to be skipped."""
    bad: list[RowError] = []
    on_bad = bad.append if config.on_bad_rows == "skip" else None
    way_out = "or give them an empty prediction with --on-bad-rows skip"
    for row in read_texts(table, config, on_bad=on_bad, way_out=way_out):
        yield from (None for _ in bad)
        bad.clear()
        yield row.cells
    yield from (None for _ in bad)


def _average(
    classifiers: Sequence["Classifier"], rows: Sequence[tuple[str, ...]]
) -> tuple["Readings", "EncodedTexts"]:
    """Give the mean of what the models give, and the tokens of the first of them."""
    texts = [row[0] for row in rows]
    pairs = [row[1] for row in rows] if len(rows[0]) == 2 else None
    encoded: dict[object, EncodedTexts] = {}
    readings = []
    for classifier in classifiers:
        key = classifier.encoder.identity
        if key not in encoded:  # models of one fine-tuning read texts alike
            encoded[key] = classifier.encoder.texts(texts, pairs)
        readings.append(classifier.readings(encoded[key]))
    return np.mean(readings, axis=0), encoded[classifiers[0].encoder.identity]


def _chunks(rows: Iterator[Cells]) -> Iterator[list[Cells]]:
    chunk: list[Cells] = []
    characters = 0
    for cells in rows:
        chunk.append(cells)
        characters += sum(map(len, cells or ()))
        if len(chunk) >= _CHUNK_ROWS or characters >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


@contextlib.contextmanager
def _open_output(output: str | Path | TextIO) -> Iterator[TextIO]:
    """Give a file that appears when it is whole, or the open file that the caller has."""
    if not isinstance(output, str | Path):
        yield output
        return
    with whole_file(Path(output)) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="\n", write_through=True)
        yield text
        text.detach()
