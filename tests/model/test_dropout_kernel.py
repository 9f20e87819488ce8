import pytest
import torch

from bertpre.model.kernels import Dropout, dropout


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
