"""Objects of JSON lines: fields inside others, and numbers that stay as they are written."""

import json
import re
from collections.abc import Callable
from typing import Any

from bertpre.corpus.rows import RowError
from bertpre.errors import shorten

_SURROGATE = re.compile("[\ud800-\udfff]")

Fault = Callable[..., RowError]
"""Creates the error of a row from a problem and a hint."""


class Number(str):
    """A number as it is written."""


def parse_object(fault: Fault, line: str) -> dict[str, Any]:
    """Read the object of a line, or raise its fault."""
    try:
        found = json.loads(line, parse_int=Number, parse_float=Number, parse_constant=Number)
    except (ValueError, RecursionError) as error:
        # Its message without its position, which counts lines within this one.
        problem = error.msg if isinstance(error, json.JSONDecodeError) else error
        raise fault(f"not valid JSON ({problem})") from error
    if not isinstance(found, dict):
        raise fault(f"expected a JSON object, found {shorten(line.strip())}")
    return found


def find_field(fields: dict[str, Any], name: str) -> Any:
    """Return the value of a field, of which ``a.b`` is one inside another; None if missing."""
    outer, _, inner = name.partition(".")
    if name in fields or not isinstance(fields.get(outer), dict):
        return fields.get(name)
    return find_field(fields[outer], inner)


def with_field(fields: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return a copy of an object with another value in a field."""
    outer, _, inner = name.partition(".")
    if name in fields or not isinstance(fields.get(outer), dict):
        return {**fields, name: value}
    return {**fields, outer: with_field(fields[outer], inner, value)}


def dump(value: Any) -> str:
    """Write JSON like the standard library, but numbers as they were written."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{dump(key)}: {dump(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(dump, value)) + "]"
    return json.dumps(value, ensure_ascii=isinstance(value, str) and not is_encodable(value))


def is_text(value: Any) -> bool:
    """Return whether a value is a text, not a number."""
    return isinstance(value, str) and not isinstance(value, Number)


def kind_of(value: Any) -> str:
    """Say what a value is, for messages."""
    kinds: dict[type, str] = {Number: "a number", str: "a text", list: "a list", dict: "an object"}
    return "nothing" if value is None else kinds.get(type(value), json.dumps(value))


def is_encodable(text: str) -> bool:
    """Return whether a text has no half of a surrogate pair, which JSON may escape."""
    return _SURROGATE.search(text) is None


def read_text(fault: Fault, fields: dict[str, Any], name: str) -> str:
    """Return the text in a field, or raise the fault that there is none."""
    value = find_field(fields, name)
    if not is_text(value):
        raise fault(f"field {name!r}: expected a text, found {kind_of(value)}")
    if not is_encodable(value):
        raise fault(f"field {name!r}: contains half of a surrogate pair")
    return str(value)


def read_texts(
    fault: Fault, fields: dict[str, Any], name: str, *, with_numbers: bool
) -> tuple[str, ...]:
    """Return the texts in the list of a field, or raise the fault of it.

    Args:
        fault: creates the error.
        fields: an object.
        name: its field.
        with_numbers: whether numbers are texts too.
    """
    value = find_field(fields, name)
    if not isinstance(value, list):
        raise fault(f"field {name!r}: expected a list of texts, found {kind_of(value)}")
    for number, item in enumerate(value, start=1):
        if isinstance(item, Number) and not with_numbers:
            raise fault(
                f"field {name!r}: expected texts, found the number {shorten(item)} at place "
                f"{number}"
            )
        if not isinstance(item, str):  # a number is one too
            raise fault(f"field {name!r}: expected texts, found {kind_of(item)} at place {number}")
        if not is_encodable(item):
            raise fault(f"field {name!r}: contains half of a surrogate pair")
    return tuple(map(str, value))
