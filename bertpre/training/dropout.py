"""The one place that seeds PyTorch's generators, from which dropout draws."""

import torch

from bertpre.data.random64 import derive


def seed_dropout(seed: int, *integers: int) -> None:
    """Seed the default generators of all devices for one forward pass.

    As the state before each pass is a function of its place in the run, no generator state has to
    be saved for an exact resume.

    Args:
        seed: the experiment's seed.
        integers: the place in the run: step, micro-step, rank.
    """
    torch.manual_seed(derive(seed, "dropout", *integers))
