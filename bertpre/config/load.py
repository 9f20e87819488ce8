"""One ``Config`` from defaults, YAML files, ``--set`` and flags, in rising precedence."""

import dataclasses
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, cast, get_args, get_origin

import yaml
from pydantic import TypeAdapter, ValidationError

from bertpre.config.schema import Config
from bertpre.errors import ConfigError

# What pydantic adds to the location of a problem inside a union such as `int | None`.
_TYPE_NAMES = ("int", "str", "float", "constrained-int")


class _Loader(yaml.SafeLoader):
    """Safe YAML in which ``1e-4`` is a number and a repeated key is an error."""

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
                raise yaml.MarkedYAMLError(problem=f"line {line}: {key!r} is there twice")
            seen.add(key)
        return super().construct_mapping(node, deep)


# YAML 1.1, which PyYAML reads, wants a dot and a sign in an exponent; everyone else writes 1e-4.
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
        path: a YAML file, one section a stage; absent options take their defaults. Of several
            files, a later one's options go before an earlier one's.
        sets: ``SECTION.KEY=VALUE`` strings, the value in YAML.
        flags: dotted option name to value, None where the flag was not given.
        derived: dotted option name to value, from an earlier stage, for options nobody states.

    Raises:
        ConfigError: names every unknown option, wrong type and value out of range at once.
    """
    merged: dict[str, Any] = {}
    for file in [path] if isinstance(path, (str, Path)) else path or []:
        values = _read_yaml(Path(file))
        try:
            parse_config(values)  # apart from all that is added, to say whose fault it is
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
    """Check nested options, as a YAML file holds them; see `load_config`."""
    try:
        return TypeAdapter(Config).validate_python(_without_empty_sections(values, Config))
    except ValidationError as error:
        problems = _problems(error)
        message = f"{len(problems)} options are wrong:\n  " + "\n  ".join(problems)
        raise ConfigError(problems[0] if len(problems) == 1 else message) from error


def config_to_dict(config: object) -> dict[str, Any]:
    """Turn a config or one of its sections into plain nested dicts, as YAML holds it."""
    return dataclasses.asdict(cast(Any, config))


def describe(name: str) -> tuple[str, object, tuple[str, ...]]:
    """Return an option's description, its default, and the values it may have, if those are few.

    Args:
        name: dotted.
    """
    field = _field(name)
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    return field.description, field.default, choices


def value_types(name: str) -> set[type]:
    """Return the plain types of an option's values, None left out: of ``str | Int``, both.

    Args:
        name: dotted.
    """
    return _plain_types(_field(name).annotation) - {NoneType}


def _field(name: str) -> Any:
    section: Any = Config
    *parents, last = name.split(".")
    for parent in parents:
        section = section.__dataclass_fields__[parent].type
    return section.__pydantic_fields__[last]


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
    """Name the identity options that two versions of a section disagree on.

    Args:
        before: the section as a run folder stored it.
        now: the section as it is asked for now.
        section: the schema class.
        prefix: the section's dotted name, with a final dot.

    Returns:
        One line each: the option, its value before and its value now.
    """
    lines: list[str] = []
    for name, field in cast(Any, section).__pydantic_fields__.items():
        if dataclasses.is_dataclass(field.annotation):
            lines += identity_differences(
                before.get(name, {}),
                now[name],
                section=field.annotation,
                prefix=f"{prefix}{name}.",
            )
        elif field.json_schema_extra["identity"] and before.get(name) != now[name]:
            lines.append(f"{prefix}{name}: was {before.get(name)!r}, now {now[name]!r}")
    return lines


def identity_options(config: object) -> dict[str, Any]:
    """Give the options of a section that its result depends on, as plain nested dicts."""
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
    except (yaml.YAMLError, ValueError) as error:  # ValueError: what only looks like a date
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
        if inner is None:  # a section that is there but empty
            inner = merged[parent] = {}
        if not isinstance(inner, dict):
            raise ConfigError(f"{dotted}: {parent} is not a section but {inner!r}")
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
    # In YAML a section with nothing in it is null; it means the defaults.
    kept = dict(values)
    for name, field in section.__pydantic_fields__.items():
        if dataclasses.is_dataclass(field.annotation) and name in kept:
            if kept[name] is None:
                del kept[name]
            elif isinstance(kept[name], Mapping):
                kept[name] = _without_empty_sections(kept[name], field.annotation)
    return kept


def _problems(error: ValidationError) -> list[str]:
    messages: dict[str, list[str]] = {}
    found: dict[str, object] = {}
    lines = []
    for problem in error.errors():
        # For a union such as `int | None`, pydantic adds the member's type name to the location.
        path = [
            str(part)
            for part in problem["loc"]
            if part not in _TYPE_NAMES and not str(part).startswith("literal[")
        ]
        name = ".".join(path)
        if problem["type"] == "unexpected_keyword_argument":
            near = difflib.get_close_matches(path[-1], [key for key, _ in _all_options()], n=1)
            inside = [dotted for key, dotted in _all_options() if near and key == near[0]]
            # Several sections may have it: most likely the one that was written is meant.
            inside.sort(key=lambda dotted: not dotted.startswith(f"{path[0]}."))
            did_you_mean = f"; did you mean {inside[0]}?" if inside else ""
            lines.append(f"{name}: there is no such option{did_you_mean}")
        elif problem["type"] == "dataclass_type":
            lines.append(f"{name}: expected a section with options, found {problem['input']!r}")
        else:
            # Messages of our own checks are names to type, so they keep their case.
            own = problem.get("ctx", {}).get("error")
            messages.setdefault(name, []).append(str(own or problem["msg"].lower()))
            found[name] = problem["input"]
    # A union has one message for each of its members.
    lines += [
        f"{name}: {', or '.join(texts)}, found {found[name]!r}" for name, texts in messages.items()
    ]
    return lines


def _all_options(section: Any = Config, prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, field in section.__pydantic_fields__.items():
        yield name, prefix + name
        if dataclasses.is_dataclass(field.annotation):
            yield from _all_options(field.annotation, f"{prefix}{name}.")
