"""Prediction: a table of texts in, a table of classes and probabilities out, row by row.

Tables may be larger than memory; the output appears when it is whole. What can be checked before
PyTorch is imported is.
"""

import contextlib
import itertools
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from bertpre.artefacts import faults_named, read_manifest
from bertpre.config.load import parse_config
from bertpre.config.schema import Finetune
from bertpre.errors import ConfigError, CorpusError
from bertpre.finetuning.tasks import read_texts

log = logging.getLogger(__name__)

_CHUNK_ROWS = 4096  # sorted by length together
_FIRST_ROWS = 1000  # read before anything is loaded, since most faults show there


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictReport:
    """What was predicted.

    Args:
        num_rows: rows of the table, and of the output.
        num_truncated: rows whose text lost tokens at its end.
        num_empty: rows without a token, for which the model saw [CLS] [SEP].
    """

    num_rows: int
    num_truncated: int
    num_empty: int


def predict(
    model: str | Path,
    table: str | Path,
    *,
    output: str | Path,
    config: Finetune | None = None,
    overwrite: bool = False,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> PredictReport:
    """Classify every row of a table.

    Args:
        model: folder that fine-tuning wrote.
        table: TSV, CSV or JSON lines; only its text column is read.
        output: TSV with a header: ``prediction``, then one probability a class; one row for each
            row of the table, in order.
        config: how the table is read and where the model runs; default: as in training.
        overwrite: replace an existing file.
        on_rows: called with the rows done.

    Raises:
        BertpreError: the output exists, or the model or the table is at fault. Nothing is written
            then.
    """
    folder, table, output = Path(model), Path(table), Path(output)
    manifest = read_manifest(folder, "model")
    config = config or parse_config({"finetune": table_options(manifest)}).finetune
    _check_output_file(output, table, overwrite=overwrite)
    texts = read_texts(table, config)
    first = list(itertools.islice(texts, _FIRST_ROWS))
    if not first:
        raise CorpusError(f"{table}: has no rows; expected at least one with a text")
    # From here on with PyTorch.
    from bertpre.finetuning.batches import encode_texts
    from bertpre.finetuning.classifier import Classifier
    from bertpre.training.devices import pick_device, pick_precision

    device = pick_device(config.device)
    classifier = Classifier.load(
        folder, device=device, precision=pick_precision(config.precision, device)
    )
    num_rows = num_truncated = num_empty = 0
    with _whole_or_absent(output) as file:
        file.write(prediction_header(classifier.classes) + "\n")
        for chunk in _chunks(itertools.chain(first, texts)):
            encoded = encode_texts(
                classifier.tokenizer, chunk, max_seq_length=classifier.max_seq_length
            )
            probabilities = np.exp(classifier.log_probabilities(encoded))
            for line in prediction_lines(classifier.classes, probabilities):
                file.write(line + "\n")
            num_rows += len(encoded)
            num_truncated += encoded.num_truncated
            num_empty += encoded.num_empty
            on_rows(num_rows)
    return PredictReport(num_rows=num_rows, num_truncated=num_truncated, num_empty=num_empty)


def table_options(manifest: dict[str, Any]) -> dict[str, Any]:
    """Give the options by which a model's training table was read, for tables like it."""
    return {name: manifest["options"][name] for name in ("text_column", "header")}


def prediction_header(classes: Sequence[str]) -> str:
    """Give the first line of a table of predictions."""
    return "\t".join(["prediction", *classes])


def prediction_lines(
    classes: Sequence[str], probabilities: npt.NDArray[np.float32]
) -> Iterator[str]:
    """Give a line for each row: the likeliest class, then the probability of each.

    Args:
        classes: the labels.
        probabilities: (rows, classes).
    """
    for row in probabilities:
        shown = [f"{probability:.6f}" for probability in row]
        yield "\t".join([classes[int(row.argmax())], *shown])


def _chunks(texts: Iterator[str]) -> Iterator[Iterator[str]]:
    # Iterators, so that of a chunk's texts only the tokens that are kept are ever held.
    for text in texts:
        yield itertools.chain([text], itertools.islice(texts, _CHUNK_ROWS - 1))


def _check_output_file(output: Path, table: Path, *, overwrite: bool) -> None:
    if not output.exists():
        return
    if output.is_dir():
        raise ConfigError(f"{output}: is a folder; expected a file", "choose another --output")
    if output.samefile(table):
        raise ConfigError(f"{output}: is the table to be read", "choose another --output")
    if not overwrite:
        raise ConfigError(
            f"{output}: exists already", "choose another --output, or pass --overwrite"
        )


@contextlib.contextmanager
def _whole_or_absent(output: Path) -> Iterator[TextIO]:
    unfinished = output.with_name(f".{output.name}.partial")
    try:
        file = unfinished.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigError(
            f"{output}: cannot be written ({error.strerror})", "choose another --output"
        ) from error
    try:
        with faults_named(output), file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(output)
    finally:
        unfinished.unlink(missing_ok=True)
