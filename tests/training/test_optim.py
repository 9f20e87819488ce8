import math

import pytest
import torch
from torch import nn

from bertpre.config import schema
from bertpre.model.bert import initialize
from bertpre.model.heads import BertForPreTraining
from bertpre.training.optim import PretrainingOptimizer


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(3, 2)
        self.dense = nn.Linear(2, 2)
        self.norm = nn.LayerNorm(2)
        self.tied = self.dense.weight


def test_biases_and_layer_norms_are_not_decayed_and_a_tied_weight_counts_once() -> None:
    model = Small()

    (adamw,) = PretrainingOptimizer(model, schema.Optimizer(weight_decay=0.01)).optimizers

    decayed, plain = adamw.param_groups
    assert decayed["weight_decay"] == 0.01
    assert {id(p) for p in decayed["params"]} == {id(model.embedding.weight), id(model.tied)}
    assert plain["weight_decay"] == 0
    assert {id(p) for p in plain["params"]} == {
        id(model.dense.bias),
        id(model.norm.weight),
        id(model.norm.bias),
    }


def test_two_updates_equal_the_formula_by_hand() -> None:
    rate, decay, beta1, beta2, eps = 0.1, 0.01, 0.9, 0.999, 1e-2
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 2.0)
    optimizer = PretrainingOptimizer(
        model,
        schema.Optimizer(learning_rate=rate, weight_decay=decay, beta1=beta1, beta2=beta2, eps=eps),
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
    optimizer = PretrainingOptimizer(Small(), schema.Optimizer(learning_rate=1e-3))

    optimizer.set_learning_rate(5e-4)

    (adamw,) = optimizer.optimizers
    assert [group["lr"] for group in adamw.param_groups] == [5e-4, 5e-4]


@pytest.fixture
def bert() -> BertForPreTraining:
    shape = schema.Model(
        hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    model = BertForPreTraining(shape, vocab_size=20, with_nsp=True)
    initialize(model, 0.1, torch.Generator().manual_seed(0))
    return model


def give_gradients(model: nn.Module, seed: int = 1) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def by_newton_schulz(gradient: torch.Tensor) -> torch.Tensor:
    """Jordan et al. 2024: five steps of the quintic that brings singular values close to 1."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = gradient.bfloat16()
    if len(x) > x.shape[1]:
        x = x.T
    x = x / x.norm()
    for _ in range(5):
        product = x @ x.T
        x = a * x + (b * product + c * product @ product) @ x
    return (x if x.shape == gradient.shape else x.T).float()


def test_muon_updates_query_key_and_value_apart_by_the_formula(bert: BertForPreTraining) -> None:
    options = schema.Optimizer(
        name="muon", learning_rate=0.02, weight_decay=0.1, momentum=0.9, eps=1e-6
    )
    optimizer = PretrainingOptimizer(bert, options)
    give_gradients(bert)
    qkv = bert.bert.encoder.layers[1].attention.qkv.weight
    before, gradient = qkv.detach().clone(), qkv.grad.clone()

    optimizer.step()

    for i in range(3):
        rows = slice(8 * i, 8 * i + 8)
        # The first momentum is (1 - 0.9) g; Nesterov looks ahead by as much again.
        momentum = 0.1 * gradient[rows]
        update = by_newton_schulz(0.1 * gradient[rows] + 0.9 * momentum)
        # Liu et al. 2025, equation 4: 0.2 sqrt(max(rows, columns)) gives the size of AdamW's.
        expected = before[rows] * (1 - 0.02 * 0.1) - 0.02 * 0.2 * math.sqrt(8) * update
        # Five products in bf16 differ by their order.
        assert (qkv[rows] - expected).norm() < 0.05 * (before[rows] - expected).norm()


def test_muon_has_the_encoder_matrices_and_adamw_the_rest(bert: BertForPreTraining) -> None:
    optimizer = PretrainingOptimizer(bert, schema.Optimizer(name="muon"))
    give_gradients(bert)

    optimizer.step()

    moments: dict[str, set[str]] = {}
    for key in optimizer.state():
        name, _, moment = key.rpartition("/")
        moments.setdefault(name, set()).add(moment)
    with_muon = {name for name, found in moments.items() if found == {"momentum_buffer"}}
    layer = {
        *(f"attention.{part}.weight" for part in ("query", "key", "value", "output")),
        "feed_forward.up.weight",
        "feed_forward.down.weight",
    }
    assert with_muon == {f"bert.encoder.layers.{i}.{name}" for i in (0, 1) for name in layer}
    fused = {f"bert.encoder.layers.{i}.attention.qkv.weight" for i in (0, 1)}
    names = {name for name, _ in bert.named_parameters()}
    assert moments.keys() - with_muon == names - fused - with_muon


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_the_state_comes_back_to_the_same_next_update(bert: BertForPreTraining, name: str) -> None:
    options = schema.Optimizer(name=name)  # type: ignore[arg-type]
    optimizer = PretrainingOptimizer(bert, options)
    give_gradients(bert, 1)
    optimizer.step()
    state = {key: value.clone() for key, value in optimizer.state().items()}
    weights = {key: value.clone() for key, value in bert.state_dict().items()}
    give_gradients(bert, 2)
    optimizer.step()
    expected = {key: value.clone() for key, value in bert.state_dict().items()}

    bert.load_state_dict(weights)
    again = PretrainingOptimizer(bert, options)
    again.load_state(state)
    give_gradients(bert, 2)
    again.step()

    for key, value in bert.state_dict().items():
        assert torch.equal(value, expected[key]), key


def test_the_rate_reaches_both_optimizers(bert: BertForPreTraining) -> None:
    optimizer = PretrainingOptimizer(bert, schema.Optimizer(name="muon"))
    give_gradients(bert)
    before = {key: value.clone() for key, value in bert.state_dict().items()}

    optimizer.set_learning_rate(0.0)
    optimizer.step()

    for key, value in bert.state_dict().items():
        assert torch.equal(value, before[key]), key
