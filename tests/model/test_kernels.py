"""The loss against its plain twin and sums in double precision; dropout against its statistics."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertpre.model import kernels
from bertpre.model.kernels import Dropout, cross_entropy, dropout, linear_cross_entropy


def made(*, rows: int, width: int, entries: int, labels: int, dtype: torch.dtype) -> list[Tensor]:
    """Hidden states, weight and bias that want gradients, and labels."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(rows, width), (entries, width), (entries,)]
    tensors = [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
    wanted = torch.randint(entries, (labels,), generator=generator)
    return [*(tensor.requires_grad_() for tensor in tensors), wanted]


def plain_linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Do what the kernel does, in PyTorch's own steps."""
    return cross_entropy(F.linear(hidden[: len(labels)], weight, bias), labels)


@pytest.mark.parametrize("entries", [64, 70])  # 70: filled up to 128 inside
@pytest.mark.parametrize("block_scores", [1, 128 * 7, 2**20])
def test_loss_and_gradients_are_those_of_the_plain_form(monkeypatch, entries, block_scores):
    monkeypatch.setattr(kernels, "_BLOCK_SCORES", {"cpu": block_scores})
    *parameters, labels = made(rows=50, width=16, entries=entries, labels=50, dtype=torch.float64)

    loss, correct = linear_cross_entropy(*parameters, labels)
    gradients = torch.autograd.grad(0.3 * loss, parameters)
    plain_loss, plain_correct = plain_linear_cross_entropy(*parameters, labels)
    plain_gradients = torch.autograd.grad(0.3 * plain_loss, parameters)

    assert correct.item() == plain_correct.item()
    # Both take their exponentials in fp32.
    torch.testing.assert_close(loss, plain_loss, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradients, plain_gradients, rtol=0, atol=1e-5)


def test_filler_rows_have_no_loss_and_no_gradient():
    *parameters, labels = made(rows=24, width=8, entries=30, labels=21, dtype=torch.float32)

    loss, correct = linear_cross_entropy(*parameters, labels)
    gradients = torch.autograd.grad(loss, parameters)
    plain_loss, plain_correct = plain_linear_cross_entropy(*parameters, labels)
    plain_gradients = torch.autograd.grad(plain_loss, parameters)

    assert correct.item() == plain_correct.item()
    torch.testing.assert_close(loss, plain_loss)
    torch.testing.assert_close(gradients, plain_gradients, rtol=1e-5, atol=1e-5)
    assert not gradients[0][21:].any()


def test_in_bf16_the_exponentials_are_summed_in_fp32():
    *parameters, labels = made(rows=64, width=32, entries=5000, labels=64, dtype=torch.float32)

    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        loss, _ = linear_cross_entropy(*parameters, labels)

    hidden, weight, bias = (parameter.detach().bfloat16() for parameter in parameters)
    scores = F.linear(hidden, weight, bias).double()
    exact = (scores.logsumexp(dim=1) - scores[torch.arange(64), labels]).sum()
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=1e-6)


def test_a_label_that_is_hopeless_has_a_finite_loss():
    hidden = torch.tensor([[200.0]])
    weight = torch.tensor([[1.0], [-1.0]])

    loss, correct = linear_cross_entropy(hidden, weight, torch.zeros(2), torch.tensor([1]))

    assert loss.item() == pytest.approx(400)
    assert correct.item() == 0


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_drops_the_share_and_scales_the_rest(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    count = 1_000_003  # not a multiple of the four masks in a word

    result = dropout(torch.ones(count, dtype=dtype), p, training=True)

    share = (result == 0).double().mean().item()
    assert share == pytest.approx(p, abs=5 * (p * (1 - p) / count) ** 0.5)  # five sigma
    kept = result[result != 0].unique()
    assert kept.tolist() == pytest.approx([1 / (1 - p)], rel=1e-4 if dtype.itemsize == 4 else 4e-3)


def test_dropout_of_neighbours_is_independent() -> None:
    torch.manual_seed(2)
    count, p = 400_000, 0.3
    dropped = (dropout(torch.ones(count), p, training=True) == 0).double()

    for distance in (1, 2, 3, 4, 8):  # within a word of four and across words
        both = (dropped[:-distance] * dropped[distance:]).mean().item()
        assert both == pytest.approx(p * p, abs=5 * (p * p / count) ** 0.5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_dropout_sends_gradients_through_the_kept_values_only(dtype: torch.dtype) -> None:
    values = torch.randn(20, 10, dtype=dtype, requires_grad=True)

    result = dropout(values, 0.5, training=True)
    result.sum().backward()

    assert torch.equal(values.grad, torch.where(result == 0, 0.0, 2.0).to(dtype))
    assert torch.equal(result, values.grad * values)
    assert not torch.equal(result, 2 * values)


def test_dropout_of_nearly_all_values_leaves_numbers() -> None:
    assert torch.isfinite(dropout(torch.ones(10_000), 0.999999, training=True)).all()


def test_dropout_draws_anew_each_time_and_repeats_after_a_seed() -> None:
    values = torch.ones(1000)

    torch.manual_seed(3)
    first, second = (dropout(values, 0.5, training=True) for _ in range(2))
    torch.manual_seed(3)
    again = dropout(values, 0.5, training=True)

    assert not torch.equal(first, second)
    assert torch.equal(first, again)


def test_dropout_module_is_idle_in_evaluation_and_at_zero() -> None:
    values = torch.ones(1000)

    assert (Dropout(0.5)(values) == 0).any()
    assert Dropout(0.5).eval()(values) is values
    assert Dropout(0.0)(values) is values
