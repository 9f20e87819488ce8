"""The option ``ngram_weights``: how often how many neighbours are masked together."""

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
