import pytest

from bertpre.training.schedule import linear_warmup_decay


@pytest.mark.parametrize(
    ("step", "factor"),
    # By hand for 4 warm-up updates of 12: a rise by quarters, then a fall by eighths.
    [(0, 1 / 4), (1, 2 / 4), (2, 3 / 4), (3, 1), (4, 1), (5, 7 / 8), (8, 4 / 8), (11, 1 / 8)],
)
def test_linear_warmup_decay_at_each_kind_of_step(step: int, factor: float) -> None:
    assert linear_warmup_decay(step, warmup_steps=4, max_steps=12) == pytest.approx(factor)


def test_without_warmup_the_first_update_has_the_peak_rate() -> None:
    factors = [linear_warmup_decay(step, warmup_steps=0, max_steps=4) for step in range(4)]

    assert factors == [1, 0.75, 0.5, 0.25]
