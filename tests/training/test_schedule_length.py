import pytest

from bertpre.config.schema import Pretrain
from bertpre.errors import ConfigError
from bertpre.training.schedule import planned_steps

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
