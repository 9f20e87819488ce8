"""Options reach what they name."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bertpre.config.schema import Config, Optimizer
from bertpre.data.dataset import PretrainingData
from bertpre.data.loader import Cursor
from bertpre.training.checks import check_pretraining
from bertpre.training.setup import Setup, set_up


@pytest.fixture
def build(tmp_path: Path, tiny_data: Path, tiny_config: Config) -> Callable[..., Setup]:
    data = PretrainingData(tiny_data)

    def build(*, seed: int = 1, initializer_range: float = 0.02, **options: Any) -> Setup:
        config = replace(
            tiny_config,
            seed=seed,
            model=replace(tiny_config.model, initializer_range=initializer_range),
            pretrain=replace(tiny_config.pretrain, **options),
        )
        plan = check_pretraining(tiny_data, output=tmp_path / "new", config=config)
        return set_up(data, config, plan, max_steps=12)

    return build


def words(setup: Setup) -> torch.Tensor:
    return setup.model.bert.embeddings.word.weight


def test_the_seed_decides_the_initial_weights(build: Callable[..., Setup]) -> None:
    assert torch.equal(words(build(seed=1)), words(build(seed=1)))
    assert not torch.equal(words(build(seed=1)), words(build(seed=2)))


def test_initial_weights_are_as_wide_as_the_option_says(build: Callable[..., Setup]) -> None:
    # A normal distribution that is cut at twice its standard deviation keeps 0.88 of it.
    assert words(build(initializer_range=0.1)).std().item() == pytest.approx(0.088, rel=0.05)


def test_the_rate_of_masks_and_the_saving_of_memory_are_options(
    build: Callable[..., Setup],
) -> None:
    setup = build(mlm_probability=0.3, gradient_checkpointing=True)

    assert setup.mask_spec(0).probability == 0.3
    assert setup.model.bert.encoder.is_checkpointed
    assert not build().model.bert.encoder.is_checkpointed


def test_algorithms_are_deterministic_if_asked_for(build: Callable[..., Setup]) -> None:
    try:
        build(deterministic=True)

        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_an_update_has_the_rate_of_its_step_and_a_clipped_gradient(
    build: Callable[..., Setup],
) -> None:
    setup = build(optimizer=Optimizer(learning_rate=1e-3, max_grad_norm=1e-4))

    with closing(setup.batches(Cursor())) as batches:
        result = setup.update(next(batches), step=11, loss_scale=None)

    (adamw,) = setup.optimizer.optimizers
    # Of 12 updates one warms up, and the last has an eleventh of the peak.
    assert [group["lr"] for group in adamw.param_groups] == pytest.approx([1e-3 / 11] * 2)
    gradients = [p.grad.norm() for p in setup.model.parameters() if p.grad is not None]
    assert result.grad_norm > 0.01
    assert torch.stack(gradients).norm().item() == pytest.approx(1e-4, rel=1e-2)
