"""What the option token_mode may say, beside the names of modes: how sequences become k-mers."""

import re
from typing import NamedTuple

LONGEST_KMER = 100
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
    if not 1 <= kmer.length <= LONGEST_KMER:
        raise ValueError(f"expected K of 1 to {LONGEST_KMER} in kmer:K")
    if not 1 <= kmer.stride <= kmer.length:
        raise ValueError("expected a STRIDE of 1 to K in kmer:K:STRIDE, or text would be dropped")
    return kmer


_MOST = 10


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
    if not (is_fine and len(weights) <= _MOST):
        raise ValueError(
            f"expected one to {_MOST} numbers of 0 or more with spaces between, such as '6 3 2', "
            f"found {text!r}"
        )
    return tuple(weight / sum(weights) for weight in weights)
