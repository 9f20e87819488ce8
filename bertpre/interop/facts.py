"""Reports of manifests as names and values for display."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertpre.corpus.report import QUANTILES

# Endings of names in reports whose values are shares, shown in per cent.
_SHARES = ("share", "unk_rate", "probability", "fraction", "prob", "ratio", "accuracy",
           "kept", "masked", "predicted", "random")  # fmt: skip
# Integers that are not counts.
_NUMBERED = ("seed", "step")
_MOST_ITEMS = 12


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values."""

    title: str
    rows: Mapping[str, str]


def describe(title: str, report: Mapping[str, Any]) -> list[Facts]:
    """Format any report of a manifest as names and values for display.

    Counts get separators, shares are in per cent, quantiles are named. Counts of 0 share a row;
    None and empty values are left out.

    Returns:
        The report itself, and one for each report nested in it; those without rows are left out.
    """
    rows: dict[str, str] = {}
    zeros: list[str] = []
    inner: list[Facts] = []
    for name, value in report.items():
        shown = name.replace("_", " ")
        if isinstance(value, Mapping):
            if _is_small(value):
                rows[shown] = ", ".join(
                    f"{str(key).replace('_', ' ')} {write_value(str(key), inside)}"
                    for key, inside in value.items()
                )
            else:
                inner += describe(f"{title}: {shown}", value)
        elif type(value) is int and value == 0 and name not in _NUMBERED:
            zeros.append(shown)
        elif value is not None and value not in ([], (), "", {}):
            rows[shown] = write_value(name, value)
    if zeros:
        rows["none of"] = ", ".join(zeros)
    return [Facts(title, rows), *inner] if rows else inner


def write_value(name: str, value: object) -> str:
    """Format one value of a report; its name shows what kind of number it is."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value) if name in _NUMBERED else f"{value:,}"
    if isinstance(value, float):
        is_share = name.endswith(_SHARES) and 0 <= value <= 1
        return f"{100 * value:.3g} %" if is_share else f"{value:,.4g}"
    if isinstance(value, list | tuple):
        return _write_list(name, value)
    return str(value)


def _write_list(name: str, values: Sequence[object]) -> str:
    if name.endswith("quantiles") and len(values) == len(QUANTILES):
        pairs = zip(values, QUANTILES, strict=True)
        return ", ".join(f"{value:,} ({share:.0%})" for value, share in pairs)
    shown = [
        f"{value[0]!r} {value[1]:,}"
        if isinstance(value, list | tuple) and len(value) == 2 and isinstance(value[1], int)
        else write_value(name, value)
        for value in values[:_MOST_ITEMS]
    ]
    return ", ".join(shown) + (", …" if len(values) > _MOST_ITEMS else "")


def _is_small(values: Mapping[str, Any]) -> bool:
    return 0 < len(values) <= 6 and all(
        isinstance(value, str | int | float) for value in values.values()
    )


def short(fingerprint: object) -> str:
    """Shorten a fingerprint to its first characters."""
    return str(fingerprint)[:12]
