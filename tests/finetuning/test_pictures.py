"""Pictures of a fine-tuning: they exist, show every training, and equal input gives equal bytes."""

import numpy as np
import pytest

from bertpre.finetuning.pictures import draw_curves, draw_numbers
from bertpre.finetuning.results import EpochReport

HISTORY = [
    EpochReport(epoch, 1 / epoch, {"accuracy": 1 - 0.5 / epoch, "loss": 0.9}) for epoch in (1, 2, 3)
]


@pytest.mark.parametrize("num_trainings", [1, 12])
def test_curves_of_any_number_of_trainings_are_drawn(tmp_path, num_trainings):
    histories = {f"fold-{number}": HISTORY[: 1 + number % 3] for number in range(num_trainings)}

    draw_curves(tmp_path / "curves.png", histories, metric="accuracy")

    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_equal_numbers_give_equal_bytes(tmp_path):
    true = np.linspace(0, 5, 12_000)
    for name in ("a.png", "b.png"):
        draw_numbers(tmp_path / name, true**2, true, title="costs $5 and $6")

    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.png").stat().st_size < 200_000
