"""Kernels against their plain twins, and against sums in double precision."""

import pytest
import torch
from torch import Tensor

from bertpre.model import kernels
from bertpre.model.kernels import linear_cross_entropy, plain_linear_cross_entropy


def made(*, rows: int, width: int, entries: int, labels: int, dtype: torch.dtype) -> list[Tensor]:
    """Hidden states, weight and bias that want gradients, and labels."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(rows, width), (entries, width), (entries,)]
    tensors = [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
    wanted = torch.randint(entries, (labels,), generator=generator)
    return [*(tensor.requires_grad_() for tensor in tensors), wanted]


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
    scores = torch.nn.functional.linear(hidden, weight, bias).double()
    exact = (scores.logsumexp(dim=1) - scores[torch.arange(64), labels]).sum()
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=1e-6)


def test_a_label_that_is_hopeless_has_a_finite_loss():
    hidden = torch.tensor([[200.0]])
    weight = torch.tensor([[1.0], [-1.0]])

    loss, correct = linear_cross_entropy(hidden, weight, torch.zeros(2), torch.tensor([1]))

    assert loss.item() == pytest.approx(400)
    assert correct.item() == 0
