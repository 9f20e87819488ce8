"""Build a ``Config`` from defaults, YAML files, ``--set`` and flags, in rising precedence."""

import dataclasses
import difflib
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, cast, get_args, get_origin

import yaml
from pydantic import TypeAdapter, ValidationError

from bertpre.config.schema import Config
from bertpre.errors import ConfigError

# Pydantic adds these to the location of a problem inside a union such as `int | None`.
_TYPE_NAMES = ("int", "str", "float", "constrained-int")


class _Loader(yaml.SafeLoader):
    """Safe YAML where ``1e-4`` is a number and a repeated key is an error."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue  # refused below, with a better message
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue  # `<<: *anchor`, which the keys beside it may override
            key = self.construct_object(key_node)
            if key in seen:
                line = key_node.start_mark.line + 1
                raise yaml.MarkedYAMLError(problem=f"line {line}: {key!r} is given twice")
            seen.add(key)
        return super().construct_mapping(node, deep)


# YAML 1.1 requires a dot and a signed exponent; everyone writes 1e-4.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def load_config(
    path: str | Path | Sequence[str | Path] | None = None,
    *,
    sets: Sequence[str] = (),
    flags: Mapping[str, object] | None = None,
    derived: Mapping[str, object] | None = None,
) -> Config:
    """Read and check an experiment's options.

    Args:
        path: one or more YAML files with one section per stage; later files take precedence.
        sets: ``SECTION.KEY=VALUE`` strings, the value in YAML.
        flags: values by dotted option name; None if the flag was not given.
        derived: values from an earlier stage by dotted option name, for options not given.

    Raises:
        ConfigError: lists every unknown option, wrong type and value out of range.
    """
    merged: dict[str, Any] = {}
    for file in [path] if isinstance(path, (str, Path)) else path or []:
        values = _read_yaml(Path(file))
        try:
            parse_config(values)  # on its own, to name the file at fault
        except ConfigError as error:
            raise ConfigError(f"{file}: {error.message}") from error
        _merge(merged, values)
    for item in sets:
        key, separator, text = item.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"--set {item}: expected SECTION.KEY=VALUE")
        try:
            value = yaml.load(text, _Loader)
        except (yaml.YAMLError, ValueError) as error:
            raise ConfigError(f"--set {item}: the value is not valid YAML ({error})") from error
        _put(merged, key.strip(), value)
    for key, value in (flags or {}).items():
        if value is not None:
            _put(merged, key, value)
    for key, value in (derived or {}).items():
        _put(merged, key, value, replace=False)
    return parse_config(merged)


def parse_config(values: Mapping[str, Any]) -> Config:
    """Build a config from nested options as in YAML; see `load_config`."""
    try:
        return TypeAdapter(Config).validate_python(_without_empty_sections(values, Config))
    except ValidationError as error:
        problems = _problems(error)
        message = f"{len(problems)} invalid options:\n  " + "\n  ".join(problems)
        raise ConfigError(problems[0] if len(problems) == 1 else message) from error


def config_to_dict(config: object) -> dict[str, Any]:
    """Convert a config or a section to plain nested dicts, as in YAML."""
    return dataclasses.asdict(cast(Any, config))


class OptionText(NamedTuple):
    """An option as the help shows it; ``choices`` is empty if it accepts any value."""

    description: str
    default: object
    choices: tuple[str, ...]


def describe(name: str) -> OptionText:
    """Look up an option by its dotted name."""
    field = _field(name)
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    return OptionText(field.description, field.default, choices)


def value_types(name: str) -> set[type]:
    """Return the plain types of an option's values without None, given its dotted name."""
    return _plain_types(_field(name).annotation) - {NoneType}


def _field(name: str) -> Any:
    return _fields()[name]


@functools.cache  # every flag of every command asks
def _fields() -> dict[str, Any]:
    return dict(_walk(Config))


def _plain_types(annotation: Any) -> set[type]:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return {type(value) for value in inner}
    if origin is Annotated:
        return _plain_types(inner[0])
    return set().union(*map(_plain_types, inner)) if inner else {annotation}


def identity_differences(
    before: Mapping[str, Any], now: Mapping[str, Any], *, section: object, prefix: str
) -> list[str]:
    """Describe the identity options that differ between two versions of a section.

    Args:
        before: the section as stored in a run folder.
        now: the section as requested.
        section: the schema class.
        prefix: the section's dotted name with a final dot.

    Returns:
        One line per option, with both values.
    """
    lines: list[str] = []
    for name, field in cast(Any, section).__pydantic_fields__.items():
        if dataclasses.is_dataclass(inner := field.annotation):
            parts = before.get(name, {}), now[name]
            lines += identity_differences(*parts, section=inner, prefix=f"{prefix}{name}.")
        elif field.json_schema_extra["identity"] and before.get(name) != now[name]:
            lines.append(f"{prefix}{name}: was {before.get(name)!r}, now {now[name]!r}")
    return lines


def identity_options(config: object) -> dict[str, Any]:
    """Return the options of a section that results depend on, as plain nested dicts."""
    found: dict[str, Any] = {}
    for name, field in cast(Any, config).__pydantic_fields__.items():
        value = getattr(config, name)
        if dataclasses.is_dataclass(field.annotation):
            found[name] = identity_options(value)
        elif field.json_schema_extra["identity"]:
            found[name] = value
    return found


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such config file") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read as UTF-8 text ({error})") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an invalid date
        text = str(error).replace('in "<unicode string>", ', "in ")
        raise ConfigError(f"{path}: not valid YAML: {text}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected sections with options, found {values!r:.60}")
    return values


def _put(merged: dict[str, Any], dotted: str, value: object, *, replace: bool = True) -> None:
    *parents, last = dotted.split(".")
    for parent in parents:
        inner = merged.setdefault(parent, {})
        if inner is None:  # an empty section
            inner = merged[parent] = {}
        if not isinstance(inner, dict):
            raise ConfigError(f"{dotted}: expected {parent} to be a section, found {inner!r}")
        merged = inner
    if replace or last not in merged:
        merged[last] = value


def _merge(merged: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(merged.get(key), dict) and isinstance(value, Mapping):
            _merge(merged[key], value)
        elif not (isinstance(merged.get(key), dict) and value is None):  # an empty section
            merged[key] = value


def _without_empty_sections(values: Mapping[str, Any], section: Any) -> dict[str, Any]:
    # An empty section is null in YAML; it means the defaults.
    kept = dict(values)
    for name, field in section.__pydantic_fields__.items():
        if dataclasses.is_dataclass(field.annotation) and name in kept:
            if kept[name] is None:
                del kept[name]
            elif isinstance(kept[name], Mapping):
                kept[name] = _without_empty_sections(kept[name], field.annotation)
    return kept


def _problems(error: ValidationError) -> list[str]:
    lines: list[str] = []
    messages: dict[str, list[str]] = {}
    found: dict[str, object] = {}
    for problem in error.errors():
        parts = [str(part) for part in problem["loc"] if part not in _TYPE_NAMES]
        path = [part for part in parts if not part.startswith("literal[")]
        name = ".".join(path)
        if problem["type"] == "unexpected_keyword_argument":
            lines.append(f"{name}: there is no such option{_did_you_mean(path)}")
        elif problem["type"] == "dataclass_type":
            lines.append(f"{name}: expected a section with options, found {problem['input']!r}")
        else:
            # Our own messages contain values to type, so they keep their case.
            own = problem.get("ctx", {}).get("error")
            messages.setdefault(name, []).append(str(own or problem["msg"].lower()))
            found[name] = problem["input"]
    # A union has one message per member.
    return lines + [
        f"{name}: {', or '.join(texts)}, found {found[name]!r}" for name, texts in messages.items()
    ]


def _did_you_mean(path: list[str]) -> str:
    places: dict[str, list[str]] = {}
    for dotted, _ in _walk(Config):
        places.setdefault(dotted.rpartition(".")[2], []).append(dotted)
    near = difflib.get_close_matches(path[-1], places, n=1)
    if not near:
        return ""
    # If several sections have it, prefer the one given.
    best = min(places[near[0]], key=lambda dotted: not dotted.startswith(f"{path[0]}."))
    return f"; did you mean {best}?"


def _walk(section: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and field of all options and sections inside a section."""
    for name, field in section.__pydantic_fields__.items():
        yield prefix + name, field
        if dataclasses.is_dataclass(field.annotation):
            yield from _walk(field.annotation, f"{prefix}{name}.")
