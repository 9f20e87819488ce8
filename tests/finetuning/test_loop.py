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


@pytest.fixture
def batches_of():
    """A function: a training to the token ids of each of its updates, of all rows together."""

    def batches_of(training):
        seen = []

        def note(module, inputs):
            if module.training:
                seen.append(inputs[0].input_ids.tolist())

        training.model.register_forward_pre_hook(note)
        fit(training)
        return seen

    return batches_of


def with_row(training, row, *, num_epochs):
    """The same training of one row 32 times over, so that its order cannot matter."""
    train = training.train._replace(rows=np.full(32, row))
    return dataclasses.replace(training, train=train, num_epochs=num_epochs)


def test_each_update_has_other_dropout_masks_and_another_seed_has_others(make_training):
    states = []
    for seed in (3, 3, 4):
        training = dataclasses.replace(make_training(), num_epochs=2, seed=seed)
        of_seed = []

        def note(module, inputs, of_seed=of_seed):
            if module.training:
                of_seed.append(torch.get_rng_state().tolist())

        training.model.register_forward_pre_hook(note)
        fit(training)
        states.append(of_seed)

    (first, second), again, (other, _) = states
    assert first != second
    assert again == [first, second]
    assert other != first


def test_each_update_hides_other_tokens(make_training, batches_of):
    training = with_row(make_training(mask_probability=0.4), 0, num_epochs=3)

    batches = batches_of(training)

    assert len({tuple(ids) for ids in batches}) == 3


def test_each_epoch_reads_a_window_that_is_drawn_anew(make_training, batches_of):
    training = make_training(long_texts="windows", max_seq_length=7)
    texts = training.train.table.texts
    windows = texts.first_of_row[1] - texts.first_of_row[0]

    batches = batches_of(with_row(training, 0, num_epochs=12))

    # Twelve draws of two or three: the chance of one and the same is below a thousandth.
    assert windows > 1
    assert len({tuple(ids) for ids in batches}) > 1


def test_each_epoch_has_all_rows_in_another_order(make_training, batches_of):
    first, second = batches_of(dataclasses.replace(make_training(), num_epochs=2))

    assert first != second
    assert sorted(first) == sorted(second)


def test_gradients_are_clipped_and_matrices_decayed_as_the_options_say(make_training):
    # Clipped to next to nothing, gradients move nothing, and what is left is the decay.
    training = make_training(max_grad_norm=1e-20, weight_decay=0.5)
    before = {name: value.clone() for name, value in training.model.state_dict().items()}

    fit(training)

    # AdamW: w - rate x decay x w, at a rate of 1e-3; biases and norms are not decayed.
    for name, value in training.model.state_dict().items():
        kept = 1 - 1e-3 * 0.5 if before[name].ndim >= 2 else 1.0
        torch.testing.assert_close(value, kept * before[name], rtol=1e-6, atol=1e-9)
