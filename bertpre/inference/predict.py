"""Prediction: a table of texts in, a table of labels and probabilities out."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from bertpre.artefacts import read_manifest
from bertpre.config.load import parse_config
from bertpre.config.schema import Finetune
from bertpre.corpus.inputs import COMPRESSIONS, format_by_name
from bertpre.errors import ConfigError
from bertpre.finetuning.labels import name_some
from bertpre.finetuning.registry import member_folders, task_of
from bertpre.finetuning.task import Task
from bertpre.inference.tables import (
    TableReader,
    TableReport,
    check_table_output,
    open_text,
    table_path,
)

if TYPE_CHECKING:
    from bertpre.finetuning.batches import EncodedTexts
    from bertpre.finetuning.running import FinetunedModel, Run


log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictReport(TableReport):
    """What was predicted.

    Args:
        num_models: models that were averaged; the other counts are those of the first.
    """

    num_models: int


def predict(
    model: str | Path | Sequence[str | Path],
    table: str | Path,
    *,
    output: str | Path | TextIO,
    config: Finetune | None = None,
    overwrite: bool = False,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> PredictReport:
    """Predict the label of every row of a table, or the tag of every token of a file.

    Args:
        model: a fine-tuned model folder, or several with the same labels, which are averaged.
        table: TSV, CSV, JSON lines, parquet or for taggers columns, or "-" for standard input; only
            the texts or tokens are read.
        output: TSV with a header: ``prediction``, then a probability per label, named after the
            label (or ``probability of label`` if another column has that name); one row for each
            row of the table, in order. For taggers, the table with the predicted tags. Or an open
            file.
        config: how to read the table and where to run the model; default: as in training.
        overwrite: replace an existing file.
        on_rows: called with the rows done.

    Raises:
        BertpreError: the output exists, or a model or the table is invalid. Nothing is written
            then, except to an open file.
    """
    folders = [Path(model)] if isinstance(model, str | Path) else [Path(one) for one in model]
    manifests = [read_manifest(folder, "model") for folder in folders]
    task = _common_task(folders, manifests)
    config = config or parse_config({"finetune": table_options(manifests[0])}).finetune
    _check_pairs(folders, manifests, config)
    parts = _parts(folders, manifests)
    check_table_output(output, table, overwrite=overwrite)
    task = task.for_prediction(config)
    path = table_path(table)
    file_form = task.open(
        path,
        config,
        layout=manifests[0].get("layout", {}),
        way_out="or give them an empty prediction with --on-bad-rows skip",
    )
    _check_suffix(output, file_form.form)
    reader = TableReader(path, file_form.rows())
    # Imports PyTorch.
    from bertpre.finetuning.running import load_finetuned, place_inference

    placement = place_inference(config.device, config.precision)
    models = [load_finetuned(part, placement.device) for part in parts]
    with open_text(output) as file:
        file.write(file_form.header())
        for chunk in reader.chunks():
            texts = outputs = None
            if readable := [row.cells for row in chunk if row.cells is not None]:
                runs = _encode(task, models, readable)
                texts = runs[0].texts
                outputs = task.predict(runs, placement=placement)
            file.writelines(file_form.write(chunk, outputs))
            on_rows(reader.count(chunk, texts))
    for remark in file_form.remarks():
        log.warning("%s", remark)
    return PredictReport(num_models=len(models), **asdict(reader.finish()))


def table_options(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the options with which the training table was read."""
    names = (
        *("text_column", "pair_column", "label_column", "header", "quoting", "encoding"),
        *("constrained", "num_beams", "length_penalty", "max_target_length", "min_target_length"),
        *("no_repeat_ngram", "num_best"),
    )
    return {name: manifest["options"][name] for name in names if name in manifest["options"]}


def _check_suffix(output: str | Path | TextIO, form: str) -> None:
    """Refuse a name that says something else than the file will hold."""
    if not isinstance(output, str | Path):
        return
    fitting = {"columns": ("conll", "tsv")}.get(form, (form,))
    stated = format_by_name(Path(output))
    is_compressed = Path(output).suffix.lower() in COMPRESSIONS
    if is_compressed or (stated not in (None, "txt") and stated not in fitting):
        what = "columns" if form == "columns" else form.upper()
        raise ConfigError(
            f"{output}: the predictions are written as plain {what}, which the name does not say",
            f"choose an --output that ends in .{fitting[0]}",
        )


def _common_task(folders: Sequence[Path], manifests: Sequence[dict[str, Any]]) -> Task:
    """Return the task of models that are averaged; they must have the same labels."""
    first, *others = (
        task_of(folder, manifest) for folder, manifest in zip(folders, manifests, strict=True)
    )
    for folder, task in zip(folders[1:], others, strict=True):
        if (task.name, task.names) != (first.name, first.names):
            raise ConfigError(
                f"{folder}: predicts {_describe(task)}; expected {_describe(first)}, as in "
                f"{folders[0]}",
                "average only models that were fine-tuned on the same labels",
            )
    return first.together(others)


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
                else "set the column of the second text with --pair-column",
            )


def _parts(folders: Sequence[Path], manifests: Sequence[dict[str, Any]]) -> list[Path]:
    """Return the folders of the single models, each only once."""
    parts: dict[Path, Path] = {}
    for folder, manifest in zip(folders, manifests, strict=True):
        for part in member_folders(folder, manifest):
            if part.resolve() in parts:
                raise ConfigError(
                    f"{part}: is given twice, so it would count twice in the mean",
                    "give each model once; a folder of several models includes all of them",
                )
            parts[part.resolve()] = part
    return list(parts.values())


def _describe(task: Task) -> str:
    return f"{task.name} of {name_some([repr(name) for name in task.names])}"


def _encode(
    task: Task, models: Sequence["FinetunedModel"], rows: Sequence[tuple[Any, ...]]
) -> list["Run"]:
    """Encode rows for each model, once for models with the same encoding."""
    from bertpre.finetuning.running import Run

    encoded: dict[object, EncodedTexts] = {}
    for model in models:
        if model.encoder.identity not in encoded:
            encoded[model.encoder.identity] = task.encode(model.encoder, *zip(*rows, strict=True))
    return [Run(model.model, encoded[model.encoder.identity]) for model in models]
