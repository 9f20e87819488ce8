import pytest

from bertpre.config.fields import parse_weights


def test_weights_become_shares() -> None:
    assert parse_weights("6 3 2") == (6 / 11, 3 / 11, 2 / 11)
    assert parse_weights("0 0.5") == (0.0, 1.0)


@pytest.mark.parametrize("text", ["", "0 0", "1 -1", "a", "6:3:2", "nan", "inf", "1 " * 11])
def test_weights_without_meaning_are_refused(text: str) -> None:
    with pytest.raises(
        ValueError, match="expected 1 to 10 non-negative numbers separated by spaces"
    ):
        parse_weights(text)
