"""What a section of the options is made of: strict kinds of values, described and bounded."""

from typing import Annotated, Any

from annotated_types import Lt
from pydantic import AllowInfNan, Field, Strict
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
