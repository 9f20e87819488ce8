from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bertpre.config.schema import Config, Optimizer
from bertpre.data.dataset import PretrainingData
from bertpre.data.loader import Cursor, training_batches
from bertpre.errors import TrainingError
from bertpre.model.bert import initialize
from bertpre.model.flat import Batch
from bertpre.model.heads import BertForPreTraining
from bertpre.model.kernels import cross_entropy
from bertpre.training.distributed import Ranks
from bertpre.training.optim import PretrainingOptimizer
from bertpre.training.step import (
    LossScale,
    StepResult,
    accumulate_gradients,
    evaluate,
    train_step,
)

CPU = torch.device("cpu")


@pytest.fixture
def data(tiny_data: Path) -> PretrainingData:
    return PretrainingData(tiny_data)


@pytest.fixture
def build(data: PretrainingData, tiny_config: Config) -> Callable[..., BertForPreTraining]:
    def build(dropout: float = 0.0) -> BertForPreTraining:
        config = replace(
            tiny_config.model, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
        )
        model = BertForPreTraining(config, vocab_size=data.tokenizer.vocab_size, with_nsp=True)
        initialize(model, 0.2, torch.Generator().manual_seed(0))
        return model

    return build


def micro_batches(data: PretrainingData, micro_batch_size: int) -> list[Batch]:
    batches = training_batches(
        data,
        Cursor(),
        seed=0,
        batch_size=lambda step: 32,
        micro_batch_size=micro_batch_size,
        spec=lambda step: data.mask_spec,
    )
    try:
        return next(batches)
    finally:
        batches.close()


def gradient(model: BertForPreTraining, batches: list[Batch]) -> torch.Tensor:
    accumulate_gradients(model, batches, device=CPU, precision="fp32", seed=0, step=0)
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])  # type: ignore[union-attr]


@pytest.mark.parametrize("micro_batch_size", [1, 8, 13])
def test_the_gradient_does_not_depend_on_the_micro_batches(
    build: Callable[..., BertForPreTraining], data: PretrainingData, micro_batch_size: int
) -> None:
    whole = gradient(build(), micro_batches(data, 32))
    parts = gradient(build(), micro_batches(data, micro_batch_size))

    assert (whole - parts).norm() / whole.norm() < 1e-5
    # 1e-5 of the largest element: fp32 sums of 32 examples in another order.
    torch.testing.assert_close(whole, parts, rtol=0, atol=1e-5 * whole.abs().max().item())


def test_the_loss_is_a_mean_over_predictions_plus_a_mean_over_pairs(
    build: Callable[..., BertForPreTraining], data: PretrainingData
) -> None:
    model, (batch,) = build(), micro_batches(data, 32)

    logits = model(batch.tokens, batch.predicted)
    probabilities = torch.softmax(logits.mlm.double(), -1)
    rows = torch.arange(len(batch.mlm_labels))
    expected = -probabilities[rows, batch.mlm_labels].log().mean().item()
    losses = evaluate(model, [batch], device=CPU, precision="fp32")

    assert losses.mlm_loss == pytest.approx(expected, rel=1e-5)
    assert logits.nsp is not None
    assert batch.nsp_labels is not None
    accuracy = (logits.nsp.argmax(-1) == batch.nsp_labels).double().mean().item()
    assert losses.nsp_accuracy == pytest.approx(accuracy)


def test_the_gradient_is_of_the_mean_over_predictions_plus_the_mean_over_pairs(
    build: Callable[..., BertForPreTraining], data: PretrainingData
) -> None:
    model, (batch,) = build(), micro_batches(data, 32)
    logits = model(batch.tokens, batch.predicted)
    assert logits.nsp is not None
    assert batch.nsp_labels is not None
    mean_loss = torch.nn.functional.cross_entropy  # which averages by itself
    loss = mean_loss(logits.mlm, batch.mlm_labels) + mean_loss(logits.nsp, batch.nsp_labels)

    expected = torch.autograd.grad(loss, list(model.parameters()))

    found = gradient(model, [batch])
    flat = torch.cat([part.flatten() for part in expected])
    assert (found - flat).norm() / flat.norm() < 1e-5


def test_dropout_is_a_function_of_seed_and_step(
    build: Callable[..., BertForPreTraining], data: PretrainingData
) -> None:
    batches = micro_batches(data, 32)
    kwargs = {"device": CPU, "precision": "fp32"}

    def loss(seed: int, step: int) -> float:
        model = build(dropout=0.1).train()
        sums = accumulate_gradients(model, batches, seed=seed, step=step, **kwargs)
        return sums.means().mlm_loss  # type: ignore[arg-type]

    first = loss(0, 0)
    torch.rand(100)  # whatever else draws in between
    assert loss(0, 0) == first
    assert loss(0, 1) != first
    assert loss(1, 0) != first


def mlm_loss(model: BertForPreTraining, batches: list[Batch], ranks: Ranks) -> float:
    """Of one gradient, with the dropout of that process."""
    sums = accumulate_gradients(
        model.train(), batches, device=CPU, precision="fp32", seed=0, step=0, ranks=ranks
    )
    return sums.means().mlm_loss


def test_two_ranks_drop_other_values(
    build: Callable[..., BertForPreTraining], data: PretrainingData
) -> None:
    batches = micro_batches(data, 32)

    # The same examples and weights; only the masks can make the loss another one.
    first, again, other = (mlm_loss(build(dropout=0.1), batches, Ranks(rank)) for rank in (0, 0, 1))

    assert first == again
    assert other != first


def test_two_micro_steps_of_an_update_drop_other_values(
    build: Callable[..., BertForPreTraining], data: PretrainingData
) -> None:
    (batch,) = micro_batches(data, 32)

    # The mean over a batch and itself is that of the batch, unless other values are dropped.
    once, twice = (mlm_loss(build(dropout=0.1), [batch] * num, Ranks()) for num in (1, 2))
    plain_once, plain_twice = (mlm_loss(build(), [batch] * num, Ranks()) for num in (1, 2))

    assert plain_twice == pytest.approx(plain_once, rel=1e-9)
    assert abs(twice - once) > 1e-4


def test_a_loss_that_is_not_finite_stops_before_the_update(
    build: Callable[..., BertForPreTraining], data: PretrainingData
) -> None:
    model = build()
    with torch.no_grad():
        model.bert.embeddings.word.weight[7, 0] = torch.inf
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = PretrainingOptimizer(model, Optimizer(learning_rate=1e-3))

    with pytest.raises(TrainingError, match=r"update 5: MLM loss nan.*before the update") as error:
        train_step(
            model,
            optimizer,
            micro_batches(data, 32),
            max_grad_norm=1.0,
            device=CPU,
            precision="fp32",
            seed=0,
            step=4,
        )

    # Of the same run the rate stays as it is, and it computes in fp32 already.
    assert str(error.value.hint).startswith(
        "start another run with a lower pretrain.optimizer.learning_rate, from this run's"
    )
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], equal_nan=True, rtol=0, atol=0)


def test_the_gradient_is_clipped_to_its_norm(
    build: Callable[..., BertForPreTraining], data: PretrainingData
) -> None:
    model = build()
    optimizer = PretrainingOptimizer(model, Optimizer(learning_rate=1e-12))

    result = train_step(
        model,
        optimizer,
        micro_batches(data, 32),
        max_grad_norm=1e-3,
        device=CPU,
        precision="fp32",
        seed=0,
        step=0,
    )

    norms = [parameter.grad.norm() for parameter in model.parameters()]  # type: ignore[union-attr]
    assert result.grad_norm > 0.1
    assert torch.stack(norms).norm().item() == pytest.approx(1e-3, rel=1e-3)


def test_the_loss_of_uniform_logits_is_the_logarithm_of_the_choices() -> None:
    mlm_loss_sum, _ = cross_entropy(torch.zeros(6, 50), torch.arange(6))
    nsp_loss_sum, _ = cross_entropy(torch.zeros(3, 2), torch.tensor([0, 1, 0]))

    assert mlm_loss_sum.item() == pytest.approx(6 * 3.912023, rel=1e-6)  # ln 50
    assert nsp_loss_sum.item() == pytest.approx(3 * 0.693147, rel=1e-5)  # ln 2


def test_fp16_leaves_out_updates_whose_gradients_overflow() -> None:
    scale = LossScale()

    halved = scale.after(is_finite=False)
    again = halved.after(is_finite=False)
    good = again.after(is_finite=True)

    assert (halved.value, again.value, good.value) == (2.0**15, 2.0**14, 2.0**14)
    assert (again.skipped, again.skipped_in_a_row) == (2, 2)
    assert (good.skipped, good.skipped_in_a_row, good.good_updates) == (2, 0, 1)


def test_fp16_doubles_the_scale_after_two_thousand_good_updates() -> None:
    scale = LossScale(value=8.0)

    for _ in range(1999):
        scale = scale.after(is_finite=True)
    assert scale.value == 8

    assert scale.after(is_finite=True).value == 16
    # They must follow one another: an overflow starts the count again.
    assert scale.after(is_finite=False).after(is_finite=True).good_updates == 1


def test_fp16_trains_to_about_the_gradient_of_fp32(
    build: Callable[..., BertForPreTraining], data: PretrainingData
) -> None:
    batches = micro_batches(data, 32)
    exact = gradient(build(), batches)
    model = build()

    accumulate_gradients(
        model, batches, device=CPU, precision="fp16", seed=0, step=0, scale=2.0**10
    )

    found = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])  # type: ignore[union-attr]
    assert (found - exact).norm() / exact.norm() < 0.02


def overflowing_step(
    model: BertForPreTraining, data: PretrainingData, scale: LossScale
) -> StepResult:
    return train_step(
        model,
        PretrainingOptimizer(model, Optimizer(learning_rate=1e-3)),
        micro_batches(data, 32),
        max_grad_norm=1.0,
        device=CPU,
        precision="fp16",
        seed=0,
        step=0,
        loss_scale=scale,
    )


def test_an_overflow_changes_no_weight_and_the_twentieth_in_a_row_is_an_error(
    build: Callable[..., BertForPreTraining], data: PretrainingData
) -> None:
    model = build()
    before = {name: value.clone() for name, value in model.state_dict().items()}

    result = overflowing_step(model, data, LossScale(value=2.0**60))

    assert result.loss_scale is not None
    assert result.loss_scale.skipped == 1
    assert result.loss_scale.value == 2.0**59
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    with pytest.raises(TrainingError, match=r"gradient norm (inf|nan)"):
        overflowing_step(model, data, LossScale(value=2.0**60, skipped_in_a_row=19))


def test_layers_computed_again_give_the_same_gradient_with_dropout(
    build: Callable[..., BertForPreTraining], data: PretrainingData
) -> None:
    batches = micro_batches(data, 32)
    plain, saving = build(dropout=0.1).train(), build(dropout=0.1).train()
    saving.bert.encoder.is_checkpointed = True

    assert torch.equal(gradient(plain, batches), gradient(saving, batches))
