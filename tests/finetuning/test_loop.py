"""Updates of fine-tuning: a batch may be cut in parts, and what the recipe adds is added."""

import dataclasses

import numpy as np
import pytest
import torch

from bertpre.config.schema import Finetune
from bertpre.finetuning import loop
from bertpre.finetuning.loop import Part, Training, fit
from bertpre.finetuning.plan import read_plan
from bertpre.finetuning.running import Placement
from bertpre.finetuning.start import read_start

CPU = Placement(torch.device("cpu"), "fp32")


@pytest.fixture
def make_training(tiny_checkpoint, tables):
    """A function: options to a training of 32 rows, one update an epoch, no dropout."""

    def make(**options):
        config = Finetune(
            batch_size=32, hidden_dropout_prob=0.0, pooling="mean", warmup_ratio=0.0, **options
        )
        train, dev = tables / "train.tsv", tables / "dev.tsv"
        plan = read_plan(train, dev=dev, test=None, config=config, seed=0)
        start = read_start(tiny_checkpoint, config=config)
        rows = np.arange(32)
        encoded = {
            part: start.encoder.table(table, plan.task, on_rows=lambda rows: None)
            for part, table in plan.tables().items()
        }
        train = Part(encoded["train"], rows)
        return Training(
            task=plan.task,
            model=start.build(plan.task, seed=0),
            objective=plan.task.objective(train.targets, config=config, device=CPU.device),
            train=train,
            dev=Part(encoded["dev"], np.arange(8)),
            tokenizer=start.encoder.tokenizer,
            config=config,
            learning_rate=1e-3,
            num_epochs=1,
            metric="loss",
            placement=CPU,
            seed=3,
        )

    return make


@pytest.fixture
def gradients_of(monkeypatch):
    """A function: a training of one update to the gradient that it clips, by parameter."""

    def gradients_of(training):
        names = {id(value): name for name, value in training.model.named_parameters()}
        seen = {}

        def note(parameters, max_norm):
            seen.update({names[id(p)]: p.grad.clone() for p in parameters if p.grad is not None})

        monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", note)
        fit(training)
        return seen

    return gradients_of


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mask_probability": 0.4},
        {"class_weights": "balanced", "focal_gamma": 1.0},
        {"adversarial_epsilon": 0.5},
    ],
    ids=str,
)
def test_an_update_of_32_rows_is_one_of_4_times_8(make_training, gradients_of, options):
    whole = gradients_of(make_training(**options))

    parts = gradients_of(make_training(**options, micro_batch_size=8))

    assert whole.keys() == parts.keys()
    for name, gradient in whole.items():
        # fp32 sums in another order.
        torch.testing.assert_close(parts[name], gradient, rtol=1e-4, atol=2e-6)


def test_the_last_micro_batch_may_be_smaller(make_training, gradients_of):
    whole = gradients_of(make_training())

    parts = gradients_of(make_training(micro_batch_size=20))

    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-4, atol=2e-6)


def test_micro_batches_have_other_dropout_masks(make_training):
    training = make_training(micro_batch_size=16)
    for module in training.model.modules():
        if hasattr(module, "p"):
            module.p = 0.5
    states = []
    training.model.register_forward_pre_hook(
        lambda module, inputs: states.append(torch.get_rng_state())
    )

    fit(training)

    assert not torch.equal(states[0], states[1])


def test_an_adversarial_step_adds_the_gradient_where_the_loss_grows_fastest(
    make_training, gradients_of
):
    # Source: Miyato et al. 2017, equations 3 and 4: the loss at the embedding moved by
    # epsilon g / |g| is added; here the table is moved, and both gradients are summed.
    epsilon = 0.7
    plain = make_training()
    clean = gradients_of(plain)
    moved = make_training()
    table = moved.model.bert.embeddings.word.weight
    gradient = clean["bert.embeddings.word.weight"]
    with torch.no_grad():
        table += epsilon * gradient / gradient.norm()
    there = gradients_of(moved)

    both = gradients_of(make_training(adversarial_epsilon=epsilon))

    for name, value in both.items():
        expected = clean[name] + there[name]
        torch.testing.assert_close(value, expected, rtol=1e-4, atol=2e-6)  # fp32 sums
    assert (there["classifier.weight"] - clean["classifier.weight"]).abs().max() > 1e-4


def test_rates_warm_up_and_fall_to_nothing(make_training, monkeypatch):
    rates = []
    monkeypatch.setattr(loop, "set_rates", lambda optimizer, rate: rates.append(rate))
    training = dataclasses.replace(make_training(), num_epochs=4)
    config = dataclasses.replace(training.config, warmup_ratio=0.5)

    fit(dataclasses.replace(training, config=config))

    # Four updates, two of warm-up: a half and all of the peak, then from the peak down by halves.
    assert rates == pytest.approx([0.5e-3, 1e-3, 1e-3, 0.5e-3])
