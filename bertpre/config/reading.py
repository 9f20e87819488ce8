"""Options for reading text and tables, shared by most stages."""

from typing import Annotated, Literal

from bertpre.config.fields import Bool, Int, matching, option, section

Sentences = Annotated[
    str,
    matching(
        r"line|split|window:[1-9][0-9]{0,8}",
        "line, split or window:N, where N is a number of words",
    ),
]
Language = Annotated[
    str,
    matching(
        r"[a-z]{2,3}(-[a-z0-9]+)*", "a language code in lower case, such as en, zh or zh-hant"
    ),
]


@section
class RowOptions:
    """How files of any kind are read."""

    text_column: str | Int = option(
        "text",
        "Column (or jsonl field) with the text: its name, or its number from 1; "
        "a.b is field b inside field a.",
    )
    pair_column: str | Int | None = option(
        None, "Second column with text, for pairs: each row is read as [CLS] a [SEP] b [SEP]."
    )
    header: Bool = option(True, "Whether csv and tsv files start with a line of column names.")
    quoting: Literal["auto", "none", "csv"] = option(
        "auto",
        "How to read quotes in csv and tsv. csv: cells may be quoted, with inner quotes doubled. "
        "none: quotes are text. auto: csv for csv files, and for tsv files that look quoted.",
    )
    encoding: str = option("utf-8", "Encoding of the text: any name that Python knows.")
    on_bad_bytes: Literal["error", "replace", "skip"] = option(
        "error",
        "How to handle bytes that are invalid in the encoding. error: stop and report where. "
        "replace: insert U+FFFD. skip: drop them. Both are counted.",
    )


@section
class TableOptions(RowOptions):
    """How to read tables of labelled rows, and of rows to predict or embed."""

    format: Literal["auto", "jsonl", "csv", "tsv", "parquet", "conll"] = option(
        "auto", "Format of the tables; auto: by file name, ignoring .gz."
    )


@section
class TextOptions(RowOptions):
    """How to read text, in build_vocab and make_data."""

    format: Literal["auto", "txt", "jsonl", "csv", "tsv", "parquet", "conll"] = option(
        "auto", "Format of the input files; auto: by file name, ignoring .gz, .bz2, .xz and .zst."
    )
    pair_column: str | Int | None = option(
        None,
        "Second column with text, for tables of pairs: each row becomes one example.",
    )
    document: Literal["auto", "blank-line", "line", "file"] = option(
        "auto",
        "What a document is in txt files: text between blank lines, a line, or a file. "
        "auto: blank-line. In other formats, each row is a document, and in conll each sentence.",
    )
    sentences: Sentences = option(
        "line",
        "What a sentence is. line: a line. split: split lines by the rules of --language. "
        "window:N: every N words (k-mers, Han characters) of a document, for text without "
        "sentences.",
    )
    language: Language = option(
        "en",
        "Language code for splitting sentences, such as en or zh; languages without rules are "
        "split as English.",
    )
    dedup: Literal["none", "documents", "lines"] = option(
        "none", "Remove documents or lines that exactly repeat an earlier one."
    )
