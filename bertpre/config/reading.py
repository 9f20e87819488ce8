"""The options of reading text and tables, which most stages share."""

from typing import Annotated, Literal

from bertpre.config.fields import Bool, Int, matching, option, section

Sentences = Annotated[
    str,
    matching(
        r"line|split|window:[1-9][0-9]{0,8}", "line, split or window:N with a number of words"
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
    """What text and its columns are in any file."""

    text_column: str | Int = option(
        "text",
        "Column (or jsonl field) with the text: its name, or its number from 1; "
        "a.b is field b inside field a.",
    )
    pair_column: str | Int | None = option(
        None, "Second column with text, for pairs: each row is read as [CLS] a [SEP] b."
    )
    header: Bool = option(True, "Whether csv and tsv tables start with a line of column names.")
    quoting: Literal["auto", "none", "csv"] = option(
        "auto",
        "What a quote means in csv and tsv. csv: cells in quotes, quotes inside doubled. "
        "none: a quote is text. auto: csv for csv files and for tsv files that are quoted so.",
    )
    encoding: str = option("utf-8", "Encoding of the text, by any name that Python knows.")
    on_bad_bytes: Literal["error", "replace", "skip"] = option(
        "error",
        "What bytes that are not of the encoding do. error: stop, naming the place. "
        "replace: U+FFFD instead. skip: nothing instead. Both count them.",
    )


@section
class TableOptions(RowOptions):
    """How tables are read, of labelled rows and of rows to predict or embed."""

    format: Literal["auto", "jsonl", "csv", "tsv", "parquet"] = option(
        "auto", "Form of the tables; auto goes by the file name, before .gz."
    )


@section
class TextOptions(RowOptions):
    """How text files are read; the same in build_vocab and make_data."""

    format: Literal["auto", "txt", "jsonl", "csv", "tsv", "parquet"] = option(
        "auto", "Form of the input files; auto goes by the file name, before .gz, .bz2, .xz, .zst."
    )
    pair_column: str | Int | None = option(
        None,
        "Second column with text, for tables of pairs: each row becomes one example, as it is.",
    )
    document: Literal["auto", "blank-line", "line", "file"] = option(
        "auto",
        "What ends a document in txt: a blank line, each line, or the file. "
        "auto: a blank line. A row of a table or of jsonl is a document.",
    )
    sentences: Sentences = option(
        "line",
        "What a sentence is. line: a line. split: the sentences of a line, found by --language. "
        "window:N: each N words (k-mers, Han characters) of a document, for text without "
        "sentences.",
    )
    language: Language = option(
        "en",
        "Language code for splitting sentences, such as en or zh; text of a language without rules "
        "of its own is split as English.",
    )
    dedup: Literal["none", "documents", "lines"] = option(
        "none", "Whether documents or lines that repeat an earlier one exactly are removed."
    )
