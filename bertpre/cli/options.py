"""Options that several commands share; help texts and defaults come from the schema."""

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from bertpre.config.load import describe


def option(name: str, *declarations: str, metavar: str | None = None) -> Any:
    """Declare a flag for the option of that dotted name, with its description and default."""
    description, default, choices = describe(name)
    facts = [f"one of: {', '.join(choices)}"] if choices else []
    if isinstance(default, bool):
        facts.append(f"default: {'yes' if default else 'no'}")
    elif default is not None and default != "":
        facts.append(f"default: {default}")
    if facts:
        description += f" [{'; '.join(facts)}]"
    return typer.Option(*declarations, help=description, show_default=False, metavar=metavar)


def number_or_name(column: str | None) -> str | int | None:
    """Read a column option: digits are a number from 1, anything else is a name."""
    return int(column) if column is not None and column.isascii() and column.isdigit() else column


# Name in the schema, and type; the flag has the same name, with dashes.
_TEXT_OPTIONS: dict[str, type] = {
    "format": str,
    "text_column": str,
    "pair_column": str,
    "header": bool,
    "quoting": str,
    "encoding": str,
    "on_bad_bytes": str,
    "document": str,
    "sentences": str,
    "language": str,
    "dedup": str,
}


def takes_text_options(section: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the flags that say how text is read to a command, as the argument ``text_flags``.

    Args:
        section: the part of the schema that the command reads.
    """
    kinds = {f"{section}.text.{name}": kind for name, kind in _TEXT_OPTIONS.items()}
    return takes_options(kinds, argument="text_flags")


def takes_options(
    kinds: Mapping[str, type], *, argument: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add flags for options of the schema to a command.

    The command gets them as one argument: dotted option name to value, None where the flag was not
    given.

    Args:
        kinds: dotted name in the schema, and type; the flag has the last part of the name, with
            dashes.
        argument: the command's name for them.
    """
    names = {dotted: dotted.rpartition(".")[2] for dotted in kinds}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_flags(**values: Any) -> None:
            flags: dict[str, Any] = {}
            for dotted, name in names.items():
                value = values.pop(name)
                if name == "header":
                    value = False if value else None
                flags[dotted] = number_or_name(value) if name.endswith("_column") else value
            command(**values, **{argument: flags})

        signature = inspect.signature(command, eval_str=True)
        own = [value for name, value in signature.parameters.items() if name != argument]
        shared = [
            inspect.Parameter(
                names[dotted],
                inspect.Parameter.KEYWORD_ONLY,
                default=False if names[dotted] == "header" else None,
                annotation=_flag(dotted, names[dotted], kind),
            )
            for dotted, kind in kinds.items()
        ]
        # Typer learns a command's flags from its signature and annotations.
        parameters = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own
        ] + shared
        with_flags.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        with_flags.__annotations__ = {value.name: value.annotation for value in parameters}
        return with_flags

    return decorate


def _flag(dotted: str, name: str, kind: type) -> Any:
    flag = f"--{name.replace('_', '-')}"
    if name == "header":
        return Annotated[
            bool,
            typer.Option("--no-header", help="Tables start with a row, not with column names."),
        ]
    if kind is bool:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    return Annotated[kind | None, option(dotted, flag)]


Inputs = Annotated[
    list[str],
    typer.Argument(metavar="INPUT...", help="Files, folders, patterns, or - for standard input."),
]
ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--config",
        metavar="<path>",
        help="YAML file with the options of a whole experiment; repeatable: the later one wins.",
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Set any option; repeatable."),
]
Seed = Annotated[int | None, option("seed", "--seed")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace the output folder if it exists.")
]


def spread(quantiles: tuple[int, ...]) -> str:
    """Write lengths at the quantiles of `bertpre.corpus.report.QUANTILES`."""
    names = ("5 %", "25 %", "50 %", "75 %", "95 %", "99 %")
    pairs = zip(quantiles, names, strict=True)
    return ", ".join(f"{length:,} ({name})" for length, name in pairs)


def corpus_rows(corpus: Any) -> dict[str, str]:
    """Describe what reading found, the same way in each command that reads text.

    Args:
        corpus: a `bertpre.corpus.report.CorpusReport`.
    """
    rows = {
        "documents": f"{corpus.documents:,}, "
        f"{corpus.one_sentence_documents / corpus.documents:.0%} of them of one sentence",
        "sentences": f"{corpus.sentences:,}",
        "characters": f"{corpus.characters:,}",
        "characters a sentence": spread(corpus.sentence_length_quantiles),
        "sentences a document": spread(corpus.document_length_quantiles),
        "longest line": f"{corpus.longest_record:,} characters",
        "exact duplicates": f"{corpus.duplicate_line_share:.1%} of the lines, "
        f"{corpus.duplicate_document_share:.1%} of the documents",
    }
    only_if_any = {
        "duplicate lines removed": corpus.removed_lines,
        "duplicate documents removed": corpus.removed_documents,
        "cuts of documents over 8,000,000 characters": corpus.cut_documents,
        "control characters": corpus.control_characters,
        "bad byte sequences": corpus.bad_bytes,
        "empty documents skipped": corpus.empty_documents,
        "unusable records skipped": corpus.bad_records,
    }
    return rows | {name: f"{count:,}" for name, count in only_if_any.items() if count}
