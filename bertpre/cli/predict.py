"""``bertpre predict``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from bertpre.cli.options import Options, Overwrite, takes_options

_FLAGS = (
    *("text_column", "pair_column", "format", "header", "quoting", "encoding", "on_bad_bytes"),
    *("on_bad_rows", "constrained", "num_beams", "length_penalty", "max_target_length"),
    *("min_target_length", "no_repeat_ngram", "num_best", "device", "precision"),
)
# Where the help in the schema does not suit prediction.
_HELPS = {
    "text_column": "Column with the text: name, or number from 1; default: as in training.",
    "pair_column": "Column with the second text of a pair; default: as in training.",
    "header": "Whether the table has a line of column names; default: as in training.",
    "on_bad_rows": "What to do with rows that cannot be read. error: stop. skip: write an empty "
    "prediction. [default: error]",
    "constrained": "For taggers: predict only sequences that the tag scheme allows; default: as in "
    "training.",
    "num_beams": "To write texts: hypotheses of beam search; 1: the best token at each step; "
    "default: as in training.",
    "length_penalty": "To write texts: a hypothesis is ranked by its log probability, divided by "
    "its length to this power; larger values favour longer texts; default: as in training.",
    "max_target_length": "To write texts: maximum tokens of a text; default: as in training, else "
    "twice the longest training target.",
    "min_target_length": "To write texts: minimum tokens of a text; default: as in training.",
    "no_repeat_ngram": "To write texts: never write the same N tokens in a row twice; 0: no limit; "
    "default: as in training.",
    "num_best": "To write texts: write this many for each row, best first; needs as many beams; "
    "default: as in training.",
}


@takes_options("finetune", _FLAGS, helps=_HELPS)
def command(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL...",
            help="Model folder, from finetune; several with the same labels are averaged.",
        ),
    ],
    table: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="Table of texts, or for a tagger a file of tokens; - for standard input.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            help="File to create: TSV, or for a tagger the input with tags; - for standard output.",
        ),
    ],
    options: Options,
    overwrite: Overwrite = False,
) -> None:
    """Predict the label of every row of a table, with the probability of each label.

    A tagger predicts a tag for every token, and a model that writes texts a text for every row.

    From a config file, the section finetune is used for the table and the device.

    Example: bertpre predict model new.tsv --output predictions.tsv
    """
    from bertpre.artefacts import read_manifest
    from bertpre.cli import render
    from bertpre.inference.predict import predict, table_options

    stored = table_options(read_manifest(models[0], "model"))
    derived = {f"finetune.{name}": value for name, value in stored.items()}
    config = options.read(derived=derived)
    render.show_log()
    to_stdout = output == "-"
    with render.progress("predict", "rows") as on_progress:
        report = predict(
            models,
            table,
            output=sys.stdout if to_stdout else output,
            config=config.finetune,
            overwrite=overwrite,
            on_rows=lambda rows: on_progress(rows, None),
        )
    if to_stdout:
        return
    rows = {"rows": report.num_rows}
    if report.num_models > 1:
        rows["models averaged"] = report.num_models
    rows["texts truncated"] = report.num_truncated
    if report.num_windowed:
        rows["texts in several windows"] = report.num_windowed
    rows["texts without tokens"] = report.num_empty
    if report.num_skipped:
        rows["rows without a prediction"] = report.num_skipped
    render.table(output, {name: f"{count:,}" for name, count in rows.items()})
