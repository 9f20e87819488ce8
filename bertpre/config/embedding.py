"""The options of sentence vectors."""

from typing import Literal

from bertpre.config.fields import Bool, Int, option, section


@section
class Embed:
    """Checkpoint and table to one vector a row."""

    format: Literal["auto", "jsonl", "csv", "tsv", "parquet"] = option(
        "auto", "Form of the table; auto goes by the file name, before .gz."
    )
    text_column: str | Int = option("text", "Column with the text: name, or number from 1.")
    pair_column: str | Int | None = option(
        None, "Column with a second text, which the model sees in the same sequence."
    )
    header: Bool = option(True, "Whether csv and tsv tables start with a line of column names.")
    quoting: Literal["auto", "none", "csv"] = option(
        "auto",
        "What a quote means in csv and tsv. csv: cells in quotes, quotes inside doubled. "
        "none: a quote is text. auto: csv for csv files and for tsv files that are quoted so.",
    )
    encoding: str = option("utf-8", "Encoding of the table, by any name that Python knows.")
    on_bad_bytes: Literal["error", "replace", "skip"] = option(
        "error", "What bytes that are not of the encoding do: stop, become U+FFFD, or vanish."
    )
    pooling: Literal["mean", "cls"] = option(
        "mean", "mean of the hidden states of all tokens, or cls: the first one's, of [CLS]."
    )
    normalize: Bool = option(False, "Scale each vector to length 1, as cosines want it.")
    max_seq_length: Int | None = option(
        None, "Most tokens of a row; default: the longest that training saw.", ge=3
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = option("auto", "Where to compute.")
    precision: Literal["auto", "fp32", "bf16"] = option("fp32", "As in pretrain.")
