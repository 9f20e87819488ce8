import math

import pytest

from bertpre.config.schema import Pretrain, Schedule
from bertpre.errors import ConfigError
from bertpre.training.schedule import (
    decay_steps,
    learning_rate_factor,
    linear_warmup_decay,
    planned_steps,
    ramp,
)


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


@pytest.mark.parametrize(
    ("name", "factors"),
    # By hand for 2 warm-up updates of 10, wsd falling over the last 4.
    [
        ("linear", [1 / 2, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]),
        ("constant", [1 / 2, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
        ("wsd", [1 / 2, 1, 1, 1, 1, 1, 1, 3 / 4, 2 / 4, 1 / 4]),
        ("cosine", [1 / 2, 1, *((1 + math.cos(math.pi * i / 8)) / 2 for i in range(8))]),
    ],
)
def test_each_schedule_is_its_curve(name: str, factors: list[float]) -> None:
    schedule = Schedule(name=name, decay_ratio=0.4)  # type: ignore[arg-type]

    found = [
        learning_rate_factor(step, schedule=schedule, warmup_steps=2, max_steps=10)
        for step in range(10)
    ]

    assert found == pytest.approx(factors)


def test_wsd_falls_for_one_step_at_least() -> None:
    assert decay_steps(Schedule(name="wsd", decay_ratio=0.01), 10) == 1
    assert decay_steps(Schedule(name="wsd", decay_ratio=0.25), 10) == 2  # half to even


def test_a_ramp_is_a_line_that_stays_at_its_end() -> None:
    assert [ramp(step, 8, 32, num_steps=4) for step in range(7)] == [8, 14, 20, 26, 32, 32, 32]
    assert ramp(5, 0.3, 0.15, num_steps=10) == pytest.approx(0.225)


REPORT = {"training_examples": 1000, "mean_length": 50.0}


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({}, 10_000),
        ({"max_steps": 7}, 7),
        ({"max_epochs": 2.5}, 250),  # 2,500 examples in batches of 10
        ({"max_epochs": 0.001}, 1),
        ({"max_tokens": 1e6}, 2000),  # 20,000 examples
        # From 2 to 10 over the first half: 6 on average there, 8 over the run; 2,000 / 8.
        (
            {"max_epochs": 2, "initial_global_batch_size": 2, "batch_ramp_ratio": 0.5},
            250,
        ),
        ({"max_hours": 1.0}, None),
    ],
)
def test_any_length_becomes_steps(options, steps) -> None:
    assert planned_steps(Pretrain(global_batch_size=10, **options), REPORT) == steps


def test_two_lengths_are_refused() -> None:
    with pytest.raises(ConfigError) as error:
        planned_steps(Pretrain(max_steps=5, max_hours=0.5), REPORT)

    assert error.value.message == (
        "a run has one length, found pretrain.max_steps: 5, pretrain.max_hours: 0.5"
    )
