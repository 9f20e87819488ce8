import math

import pytest
import torch
from torch import nn

from bertpre.training.optim import build_optimizer, set_learning_rate


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(3, 2)
        self.dense = nn.Linear(2, 2)
        self.norm = nn.LayerNorm(2)
        self.tied = self.dense.weight


def test_biases_and_layer_norms_are_not_decayed_and_a_tied_weight_counts_once() -> None:
    model = Small()

    optimizer = build_optimizer(model, learning_rate=1e-3, weight_decay=0.01)

    decayed, plain = optimizer.param_groups
    assert decayed["weight_decay"] == 0.01
    assert {id(p) for p in decayed["params"]} == {id(model.embedding.weight), id(model.tied)}
    assert plain["weight_decay"] == 0
    assert {id(p) for p in plain["params"]} == {
        id(model.dense.bias),
        id(model.norm.weight),
        id(model.norm.bias),
    }


def test_two_updates_equal_the_formula_by_hand() -> None:
    rate, decay, beta1, beta2, eps = 0.1, 0.01, 0.9, 0.999, 1e-6
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 2.0)
    optimizer = build_optimizer(
        model, learning_rate=rate, weight_decay=decay, betas=(beta1, beta2), eps=eps
    )

    # AdamW with bias correction, Loshchilov and Hutter 2019, algorithm 2.
    weight, m, v = 2.0, 0.0, 0.0
    for step, gradient in enumerate([0.5, -0.2], start=1):
        model.weight.grad = torch.tensor([[gradient]])
        optimizer.step()
        m = beta1 * m + (1 - beta1) * gradient
        v = beta2 * v + (1 - beta2) * gradient**2
        corrected = (m / (1 - beta1**step)) / (math.sqrt(v / (1 - beta2**step)) + eps)
        weight = weight - rate * decay * weight - rate * corrected

    assert model.weight.item() == pytest.approx(weight, rel=1e-6)


def test_the_rate_is_set_in_every_group() -> None:
    optimizer = build_optimizer(Small(), learning_rate=1e-3, weight_decay=0.01)

    set_learning_rate(optimizer, 5e-4)

    assert [group["lr"] for group in optimizer.param_groups] == [5e-4, 5e-4]
