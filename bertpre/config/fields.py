"""Building blocks of options: strict types, descriptions and bounds, and special notations."""

import re
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from annotated_types import Lt
from pydantic import AfterValidator, AllowInfNan, Field, Strict
from pydantic.dataclasses import dataclass

# A section may be given in part; missing options take their defaults.
section: Any = dataclass(frozen=True, kw_only=True, config={"extra": "forbid"})

# Strict, or pydantic would accept True as 1 and "8" as 8. A number beyond 32 bits is a typo, and
# libraries refuse it. Not Le: it would silently replace a field's own "le".
Int = Annotated[int, Strict(), Lt(2**31)]
Float = Annotated[float, Strict(), AllowInfNan(False)]
Bool = Annotated[bool, Strict()]


def option(default: Any, description: str, *, identity: bool = True, **limits: Any) -> Any:
    """Declare an option.

    Args:
        default: the default value; None means derived as the description says.
        description: the help text.
        identity: whether results depend on the value, so that a resumed run must keep it.
        limits: pydantic's ge, gt, le, lt.
    """
    extra: Any = {"identity": identity}
    return Field(default, description=description, json_schema_extra=extra, **limits)


def matching(pattern: str, expected: str) -> AfterValidator:
    """Return a validator for texts that match a pattern; its error says what is expected."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"expected {expected}")
        return value

    return AfterValidator(check)


def readable(read: Callable[[str], object]) -> AfterValidator:
    """Return a validator for texts that ``read`` accepts without a ValueError."""

    def check(value: str) -> str:
        read(value)
        return value

    return AfterValidator(check)


_LONGEST_KMER = 100
_MOST_WEIGHTS = 10
_MODE = re.compile(r"kmer:([0-9]{1,3})(?::([0-9]{1,3}))?")


class Kmer(NamedTuple):
    """How to cut a sequence: into pieces of ``length`` characters, ``stride`` apart."""

    length: int
    stride: int = 1


def parse_kmer(token_mode: str) -> Kmer | None:
    """Parse ``kmer:K`` or ``kmer:K:STRIDE``; return None for the other token modes.

    Raises:
        ValueError: the mode is unknown, or a number is out of range.
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
        raise ValueError(
            "expected a STRIDE of 1 to K in kmer:K:STRIDE, as a larger one would drop text"
        )
    return kmer


def parse_weights(text: str) -> tuple[float, ...]:
    """Parse ``6 3 2`` as the probabilities 6/11, 3/11 and 2/11 of 1, 2 and 3 tokens.

    Raises:
        ValueError: these are not one to ten non-negative numbers with a positive sum.
    """
    try:
        weights = [float(word) for word in text.split()]
    except ValueError:
        weights = []
    is_fine = all(0 <= weight < float("inf") for weight in weights) and sum(weights) > 0
    if not (is_fine and len(weights) <= _MOST_WEIGHTS):
        raise ValueError(
            f"expected 1 to {_MOST_WEIGHTS} non-negative numbers separated by spaces, such as "
            f"'6 3 2', found {text!r}"
        )
    return tuple(weight / sum(weights) for weight in weights)
