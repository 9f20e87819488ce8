"""The optimizer: AdamW with decoupled decay, and which parameters are decayed."""

import torch
from torch import nn


def build_optimizer(
    model: nn.Module,
    *,
    learning_rate: float,
    weight_decay: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6,
) -> torch.optim.AdamW:
    """Build AdamW with bias correction; biases and layer norms are not decayed.

    Args:
        model: its parameters are trained; a tied one counts once.
        learning_rate: the peak; the schedule scales it.
        weight_decay: subtracted from weights as ``learning_rate * weight_decay * weight``.
        betas: decay of the first and the second moment.
        eps: added to the root of the second moment.

    Source: google-research/bert optimization.py for what is decayed, embeddings included;
        Loshchilov and Hutter 2019 for the decay. The bias correction, which BERT's own code
        leaves out, is the paper's (Kingma and Ba 2015).
    """
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for parameter in model.parameters():
        # Biases and layer norms are the vectors of the model, everything else is a matrix.
        (decayed if parameter.ndim >= 2 else plain).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, eps=eps, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Set the rate of the next update in every group."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
