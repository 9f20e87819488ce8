"""What options are made of: strict values with a description and bounds, some in a notation."""

import re
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from annotated_types import Lt
from pydantic import AfterValidator, AllowInfNan, Field, Strict
from pydantic.dataclasses import dataclass

# Each section may be given in part; what is absent takes the default below.
section: Any = dataclass(frozen=True, kw_only=True, config={"extra": "forbid"})

# Strict, or pydantic would take True for 1 and "8" for 8.
# Beyond 32 bits is a slip, and more than what libraries take. Not Le: a field's own "le" would be
# dropped without a word beside it.
Int = Annotated[int, Strict(), Lt(2**31)]
Float = Annotated[float, Strict(), AllowInfNan(False)]
Bool = Annotated[bool, Strict()]


def option(default: Any, description: str, *, identity: bool = True, **limits: Any) -> Any:
    """Declare an option.

    Args:
        default: the value when nobody states one; None means "derived", as described.
        description: the help text.
        identity: whether a resumed run must have the same value, as its result depends on it.
        limits: pydantic's ge, gt, le, lt.
    """
    extra: Any = {"identity": identity}
    return Field(default, description=description, json_schema_extra=extra, **limits)


def matching(pattern: str, expected: str) -> AfterValidator:
    """Make a check that a text has a form, and says what is expected where it has not."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"expected {expected}")
        return value

    return AfterValidator(check)


def readable(read: Callable[[str], object]) -> AfterValidator:
    """Make a check that ``read`` takes a text; its ValueError says why not."""

    def check(value: str) -> str:
        read(value)
        return value

    return AfterValidator(check)


_LONGEST_KMER = 100
_MOST_WEIGHTS = 10
_MODE = re.compile(r"kmer:([0-9]{1,3})(?::([0-9]{1,3}))?")


class Kmer(NamedTuple):
    """How a sequence is cut: a piece of ``length`` characters at every ``stride``-th one."""

    length: int
    stride: int = 1


def parse_kmer(token_mode: str) -> Kmer | None:
    """Read ``kmer:K`` or ``kmer:K:STRIDE``; for the other token modes there is nothing to read.

    Raises:
        ValueError: there is no such mode, or the numbers are no use.
    """
    if token_mode in ("wordpiece", "whole"):
        return None
    found = _MODE.fullmatch(token_mode)
    if found is None:
        raise ValueError(
            "expected wordpiece, whole, kmer:K or kmer:K:STRIDE, as in kmer:6 or kmer:6:3"
        )
    kmer = Kmer(int(found[1]), int(found[2] or 1))
    if not 1 <= kmer.length <= _LONGEST_KMER:
        raise ValueError(f"expected K of 1 to {_LONGEST_KMER} in kmer:K")
    if not 1 <= kmer.stride <= kmer.length:
        raise ValueError("expected a STRIDE of 1 to K in kmer:K:STRIDE, or text would be dropped")
    return kmer


def parse_weights(text: str) -> tuple[float, ...]:
    """Read ``6 3 2`` as the shares 6/11, 3/11 and 2/11 of 1, 2 and 3 neighbours.

    Raises:
        ValueError: it is not up to ten numbers of 0 or more, with one above 0 among them.
    """
    try:
        weights = [float(word) for word in text.split()]
    except ValueError:
        weights = []
    is_fine = all(0 <= weight < float("inf") for weight in weights) and sum(weights) > 0
    if not (is_fine and len(weights) <= _MOST_WEIGHTS):
        raise ValueError(
            f"expected one to {_MOST_WEIGHTS} numbers of 0 or more with spaces between, such as "
            f"'6 3 2', found {text!r}"
        )
    return tuple(weight / sum(weights) for weight in weights)
