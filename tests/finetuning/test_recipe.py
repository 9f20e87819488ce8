"""What the recipe adds to an update: masks, rates by layer, steps against the model, averages."""

import numpy as np
import pytest
import torch
from torch import nn

from bertpre.config.schema import Model, Optimizer
from bertpre.finetuning.recipe import (
    RunningAverage,
    build_layered_optimizer,
    hide_tokens,
    moved_against,
    set_rates,
)
from bertpre.model.heads import BertForSequenceClassification, BertForTokenClassification
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.training.optim import PretrainingOptimizer


@pytest.fixture
def model():
    shape = Model(
        hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16,
    )  # fmt: skip
    return BertForSequenceClassification(shape, vocab_size=20, num_labels=2, pooling="cls")


def rates_of(optimizer):
    return {
        id(parameter): group["lr"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }


def test_each_layer_learns_more_slowly_than_the_one_above(model):
    optimizer = build_layered_optimizer(
        model, learning_rate=0.8, layer_decay=0.5, weight_decay=0.01
    )

    set_rates(optimizer, 0.8)

    rates = rates_of(optimizer)
    layers = model.bert.encoder.layers
    assert rates[id(model.classifier.weight)] == 0.8
    assert rates[id(model.bert.pooler.dense.bias)] == 0.8
    assert [rates[id(layer.attention.qkv.weight)] for layer in layers] == [0.1, 0.2, 0.4]
    assert rates[id(model.bert.embeddings.word.weight)] == 0.05
    assert rates[id(model.bert.embeddings.norm.weight)] == 0.05
    assert len(rates) == len(list(model.parameters()))


@pytest.mark.parametrize(("rate", "of_crf"), [(3e-5, 0.01), (0.02, 0.02)])
def test_a_crf_learns_at_a_hundredth_or_more_and_does_not_decay(model, rate, of_crf):
    tagger = BertForTokenClassification(
        model.bert.config, vocab_size=20, num_labels=3, has_crf=True
    )
    optimizer = build_layered_optimizer(
        tagger, learning_rate=rate, layer_decay=0.5, weight_decay=0.1
    )

    set_rates(optimizer, rate)

    rates = rates_of(optimizer)
    assert rates[id(tagger.classifier.weight)] == rate
    assert rates[id(tagger.crf.transitions)] == pytest.approx(of_crf)
    (group,) = (g for g in optimizer.param_groups if g["params"][0] is tagger.crf.transitions)
    assert group["weight_decay"] == 0.0
    assert len(rates) == len(list(tagger.parameters()))


def test_without_decay_by_layer_the_updates_are_those_of_plain_adamw(model):
    twin = BertForSequenceClassification(
        model.bert.config, vocab_size=20, num_labels=2, pooling="cls"
    )
    twin.load_state_dict(model.state_dict())
    ours = build_layered_optimizer(model, learning_rate=1e-2, layer_decay=1.0, weight_decay=0.1)
    plain = PretrainingOptimizer(twin, Optimizer(learning_rate=1e-2, weight_decay=0.1))
    set_rates(ours, 1e-2)

    for step in range(3):
        for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
            generator = torch.Generator().manual_seed(step)
            parameter.grad = torch.randn(parameter.shape, generator=generator)
            other.grad = parameter.grad.clone()
        ours.step()
        plain.step()

    for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(parameter, other, rtol=1e-6, atol=1e-7)


@pytest.fixture
def tokenizer(tiny_tokenizer):
    tokenizer = Tokenizer.load(tiny_tokenizer)
    assert (tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id) == (2, 3, 4)
    return tokenizer


def test_a_share_of_the_text_is_hidden_and_no_other_token(tokenizer):
    ids = np.arange(1000) + 20
    ids[[0, 400]] = 2
    ids[[399, 999]] = 3
    rows = np.repeat([0, 1], [400, 600])
    before = ids.copy()

    def hide(probability, key):
        return hide_tokens(ids, rows, tokenizer=tokenizer, probability=probability, key=key)

    hidden = hide(0.3, key=5)

    changed = hidden != before
    # Of 996 draws, 5 standard deviations to either side.
    assert 299 - 73 <= changed.sum() <= 299 + 73
    assert set(hidden[changed]) == {4}
    assert (ids == before).all()
    assert (hide(0.3, key=5) == hidden).all()
    assert (hide(0.3, key=6) != hidden).any()
    # With a larger share the same ones and more; with all, the structure is still there.
    assert (hide(0.5, key=5)[changed] == 4).all()
    assert np.flatnonzero(hide(1.0, key=5) != 4).tolist() == [0, 399, 400, 999]


def test_a_token_is_hidden_wherever_its_row_has_it(tokenizer):
    ids, rows = np.arange(1000) % 20 + 20, np.repeat([0, 1], [400, 600])

    hidden = hide_tokens(ids, rows, tokenizer=tokenizer, probability=0.5, key=5) == 4

    first, second = hidden[:400].reshape(20, 20), hidden[400:].reshape(30, 20)
    for repeats in (first, second):
        assert (repeats == repeats[0]).all()
        assert 0 < repeats[0].sum() < 20
    assert (first[0] != second[0]).any()


def test_an_embedding_is_moved_along_its_gradient_and_back():
    embedding = nn.Embedding(5, 3)
    before = embedding.weight.detach().clone()
    embedding(torch.tensor([1, 4])).pow(2).sum().backward()
    gradient = embedding.weight.grad.clone()

    with moved_against(embedding, 0.7):
        change = embedding.weight.detach() - before

    assert change.norm().item() == pytest.approx(0.7, rel=1e-5)
    torch.testing.assert_close(change, 0.7 * gradient / gradient.norm(), rtol=1e-5, atol=1e-7)
    assert torch.equal(embedding.weight, before)
    assert torch.equal(embedding.weight.grad, gradient)


def test_the_loss_is_higher_where_an_embedding_is_moved():
    embedding = nn.Embedding(5, 3)
    loss = embedding(torch.tensor([0, 2])).pow(2).sum()
    loss.backward()

    with moved_against(embedding, 0.1):
        moved = embedding(torch.tensor([0, 2])).pow(2).sum()

    assert moved.item() > loss.item()


def test_a_gradient_of_zero_moves_nothing():
    embedding = nn.Embedding(2, 2)
    embedding.weight.grad = torch.zeros(2, 2)
    before = embedding.weight.detach().clone()

    with moved_against(embedding, 1.0):
        assert torch.equal(embedding.weight, before)


def test_an_average_follows_the_weights_and_leaves_them():
    module = nn.Linear(1, 1, bias=False)
    values = [1.0, 5.0, -3.0, 2.0]
    nn.init.constant_(module.weight, values[0])
    average = RunningAverage(module, decay=0.25)

    expected = values[0]
    for number, value in enumerate(values[1:], start=1):
        nn.init.constant_(module.weight, value)
        average.update()
        decay = min(0.25, (1 + number) / (10 + number))
        expected = decay * expected + (1 - decay) * value

    with average.in_place():
        assert module.weight.item() == pytest.approx(expected, rel=1e-6)
    assert module.weight.item() == values[-1]
