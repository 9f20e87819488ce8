"""Flags that several commands share; types, help texts and defaults come from the schema."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bertpre.config.load import describe, load_config, value_types
from bertpre.config.schema import Config

# How to read text; the schema has these options for build-vocab and for make-data.
TEXT_OPTIONS = (
    *("text.format", "text.text_column", "text.pair_column", "text.header", "text.quoting"),
    *("text.encoding", "text.on_bad_bytes", "text.document", "text.sentences", "text.language"),
    "text.dedup",
)
# Names of values in the help, where the type says too little.
_METAVARS = {"extra_tokens": "FILE", "vocab_file": "FILE", "init_from": "DIR"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Options of the schema, as given on the command line.

    Args:
        files: values of ``--config``.
        sets: values of ``--set``.
        flags: dotted option name to value; None if the flag was not given.
    """

    files: list[Path] | None
    sets: list[str]
    flags: Mapping[str, Any]

    def read(self, *, derived: Mapping[str, object] | None = None) -> Config:
        """Load and check the configuration; see `bertpre.config.load.load_config`."""
        return load_config(self.files, sets=self.sets, flags=self.flags, derived=derived)


def flag_of(name: str) -> str:
    """Return the flag of an option: the last part of its name, with dashes."""
    return f"--{name.replace('_', '-')}"


def number_or_name(column: str | None) -> str | int | None:
    """Parse a column option: digits are a number from 1, anything else is a name."""
    return int(column) if column is not None and column.isascii() and column.isdigit() else column


def takes_options(
    section: str | None, names: tuple[str, ...], *, helps: Mapping[str, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add flags for options of the schema to a command, and ``--config``, ``--set``, ``--seed``.

    The command receives them as its argument ``options``; the help lists them in its place.

    Args:
        section: the section of the schema; None if ``names`` include their sections.
        names: the dotted names of the options.
        helps: option name to help text, where that of the schema does not suit the command.
    """
    prefix = "" if section is None else f"{section}."
    dotted = {name.rpartition(".")[2]: prefix + name for name in names}
    helps = helps or {}
    # By default tables have a header, so only --no-header is needed, unless a model decides.
    only_denies_header = "header" in dotted and "header" not in helps

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_flags(**values: Any) -> None:
            if only_denies_header:
                values["header"] = False if values["header"] else None
            files, sets = values.pop("config_files"), values.pop("sets")
            flags = {name: _value(name, values.pop(key)) for key, name in dotted.items()}
            flags["seed"] = values.pop("seed")
            command(**values, options=Options(files=files, sets=list(sets or []), flags=flags))

        declared = {key: _flag(name, helps.get(key)) for key, name in dotted.items()}
        if only_denies_header:
            declared["header"] = NoHeader
        declared |= {"config_files": ConfigFiles, "sets": Sets, "seed": Seed}
        parameters: list[inspect.Parameter] = []
        for own in inspect.signature(command, eval_str=True).parameters.values():
            if own.name == "options":
                parameters += map(_parameter, declared, declared.values())
            else:
                parameters.append(own.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        # Typer learns a command's flags from its signature and annotations.
        with_flags.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_flags.__annotations__ = {value.name: value.annotation for value in parameters}
        return with_flags

    return decorate


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _value(name: str, given: Any) -> Any:
    return number_or_name(given) if value_types(name) == {int, str} else given


def _flag(name: str, help_text: str | None) -> Any:
    types = value_types(name)
    # What may be a number or a name is read as a name at first.
    (kind,) = types if len(types) == 1 else {str}
    return Annotated[kind | None, _option(name, help_text)]


def _option(name: str, help_text: str | None = None) -> Any:
    last = name.rpartition(".")[2]
    flag = flag_of(last)
    if value_types(name) == {bool}:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    return typer.Option(
        flag, help=help_text or _help(name), show_default=False, metavar=_METAVARS.get(last)
    )


def _help(name: str) -> str:
    """Describe an option, with its values and its default."""
    description, default, choices = describe(name)
    facts = [f"one of: {', '.join(choices)}"] if choices else []
    if isinstance(default, bool):
        facts.append(f"default: {'yes' if default else 'no'}")
    elif default is not None and default != "":
        facts.append(f"default: {default}")
    return f"{description} [{'; '.join(facts)}]" if facts else description


ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--config",
        metavar="<path>",
        help="YAML file with options for all commands; repeatable, later files take precedence.",
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Set any option; repeatable."),
]
Seed = Annotated[int | None, _option("seed")]
NoHeader = Annotated[
    bool, typer.Option("--no-header", help="Tables start with a row, not with column names.")
]
Dev = Annotated[
    Path | None,
    typer.Option(
        "--dev", help="Table that chooses the epoch; default: a share of the training rows."
    ),
]
Test = Annotated[Path | None, typer.Option("--test", help="Table that is only scored, at the end.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the output if it exists.")]
