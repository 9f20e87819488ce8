import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from bertpre.config import schema
from bertpre.model.bert import initialize
from bertpre.model.flat import flatten
from bertpre.model.heads import (
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
    compare_segments,
    mean_pool,
)
from bertpre.model.kernels import cross_entropy

MakeConfig = Callable[..., schema.Model]
Randomize = Callable[[nn.Module], None]
ToPredict = Callable[..., Any]


def test_mlm_logits_are_products_with_the_word_embedding(
    make_config: MakeConfig, randomize: Randomize, pairs
) -> None:
    model = BertForPreTraining(make_config(), vocab_size=50, with_nsp=True)
    randomize(model)

    logits = model(pairs.flat, pairs.predicted)

    hidden = model.bert(pairs.flat).hidden_states[pairs.predicted]
    transformed = model.mlm.norm(nn.functional.gelu(model.mlm.dense(hidden)))
    expected = transformed @ model.bert.embeddings.word.weight.T + model.mlm.bias
    torch.testing.assert_close(logits.mlm, expected, atol=1e-5, rtol=1e-5)
    assert logits.nsp.shape == (5, 2)


def test_only_predicted_positions_reach_the_vocabulary(make_config: MakeConfig, pairs) -> None:
    model = BertForPreTraining(make_config(), vocab_size=50, with_nsp=False)

    logits = model(pairs.flat, torch.tensor([4, 0, 40]))

    assert logits.mlm.shape == (3, 50)
    assert logits.nsp is None
    assert model.bert.pooler is None


@pytest.mark.parametrize("with_nsp", [True, False])
def test_the_loss_in_one_step_is_that_of_the_logits(
    make_config: MakeConfig, randomize: Randomize, pairs, to_predict: ToPredict, with_nsp: bool
) -> None:
    model = BertForPreTraining(make_config(), vocab_size=50, with_nsp=with_nsp).eval()
    randomize(model)
    nsp_labels = pairs.nsp_labels if with_nsp else None
    batch = to_predict(pairs.flat, pairs.predicted, pairs.predicted_labels, nsp_labels)

    found = model.loss(batch)

    logits = model(batch.tokens, batch.predicted)
    expected = [*cross_entropy(logits.mlm, batch.mlm_labels)]
    if with_nsp:
        expected += cross_entropy(logits.nsp, nsp_labels)
    torch.testing.assert_close([part for part in found if part is not None], expected)
    assert (found.nsp_loss_sum is None) == (not with_nsp)


def test_the_loss_without_labels_of_pairs_has_no_nsp_part(
    make_config: MakeConfig, pairs, to_predict: ToPredict
) -> None:
    model = BertForPreTraining(make_config(), vocab_size=50, with_nsp=True)

    loss = model.loss(to_predict(pairs.flat, pairs.predicted, pairs.predicted_labels, None))

    assert loss.nsp_loss_sum is None
    assert loss.nsp_correct is None


def test_cross_entropies_are_summed_and_right_answers_counted() -> None:
    tokens = torch.tensor([[2.0, 0.0, 1.0], [0.0, 0.0, 0.0]])

    loss_sum, correct = cross_entropy(tokens, torch.tensor([0, 2]))
    pair_loss_sum, pair_correct = cross_entropy(torch.tensor([[3.0, 1.0]]), torch.tensor([1]))

    first = -math.log(math.exp(2) / (math.exp(2) + 1 + math.exp(1)))
    assert loss_sum.item() == pytest.approx(first + math.log(3), rel=1e-6)
    assert correct.item() == 1
    assert pair_loss_sum.item() == pytest.approx(math.log(1 + math.exp(2)), rel=1e-6)
    assert pair_correct.item() == 0


def test_the_cross_entropy_of_bf16_logits_is_computed_in_fp32() -> None:
    logits = torch.randn(64, 5000, generator=torch.Generator().manual_seed(0)).bfloat16()
    labels = torch.arange(64)

    loss, _ = cross_entropy(logits, labels)

    scores = logits.double()
    exact = (scores.logsumexp(dim=1) - scores[labels, labels]).sum()
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=1e-6)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_first_loss_is_that_of_a_uniform_guess(
    norm: str, make_config: MakeConfig, to_predict: ToPredict
) -> None:
    vocab_size = 1000
    config = make_config(norm=norm, hidden_size=48, max_position_embeddings=32)
    model = BertForPreTraining(config, vocab_size=vocab_size, with_nsp=True)
    generator = torch.Generator().manual_seed(3)
    initialize(model, config.initializer_range, generator)
    ids = torch.randint(0, vocab_size, (16, 32), generator=generator)
    predicted = torch.arange(0, 512, 7)

    flat, labels = flatten(ids, torch.ones(16, 32)), ids.flatten()[predicted]
    loss = model.loss(to_predict(flat, predicted, labels, torch.arange(16) % 2))

    total = loss.mlm_loss_sum / len(predicted) + loss.nsp_loss_sum / 16
    assert total.item() == pytest.approx(math.log(vocab_size) + math.log(2), rel=0.05)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_sixteen_examples_can_be_learnt_by_heart(
    norm: str, make_config: MakeConfig, to_predict: ToPredict
) -> None:
    config = make_config(norm=norm, hidden_size=48, intermediate_size=96)
    model = BertForPreTraining(config, vocab_size=50, with_nsp=True)
    generator = torch.Generator().manual_seed(3)
    initialize(model, config.initializer_range, generator)
    ids = torch.randint(5, 50, (16, 16), generator=generator)
    predicted = torch.arange(1, 256, 6)
    labels = torch.randint(5, 50, (len(predicted),), generator=generator)
    is_random_next = torch.randint(0, 2, (16,), generator=generator)
    batch = to_predict(flatten(ids, torch.ones(16, 16)), predicted, labels, is_random_next)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    for _ in range(300):
        loss = model.loss(batch)
        total = loss.mlm_loss_sum / len(labels) + loss.nsp_loss_sum / 16
        optimizer.zero_grad()
        total.backward()
        optimizer.step()

    assert total.item() < 0.1


def test_mean_pool_averages_the_real_tokens() -> None:
    hidden = torch.tensor([[1.0, 2.0], [3.0, 4.0], [10.0, 20.0]])

    pooled = mean_pool(hidden, torch.tensor([0, 2, 3], dtype=torch.int32), 2)

    assert pooled.tolist() == [[2.0, 3.0], [10.0, 20.0]]


def test_classification_from_the_mean_has_no_pooler(
    make_config: MakeConfig, randomize: Randomize, pairs
) -> None:
    model = BertForSequenceClassification(
        make_config(), vocab_size=50, num_labels=4, pooling="mean"
    )
    randomize(model)

    logits = model(pairs.flat)

    hidden = model.bert.forward_padded(pairs.input_ids, pairs.attention_mask, pairs.token_type_ids)
    lengths = pairs.attention_mask.sum(dim=1, keepdim=True)
    expected = model.classifier(hidden.sum(dim=1) / lengths)
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    assert model.bert.pooler is None


def test_classification_of_a_comparison_sees_means_differences_and_what_one_text_lacks(
    make_config: MakeConfig, randomize: Randomize, pairs
) -> None:
    model = BertForSequenceClassification(
        make_config(), vocab_size=50, num_labels=4, pooling="compare"
    )
    randomize(model)

    logits = model(pairs.flat)

    hidden = model.bert.forward_padded(pairs.input_ids, pairs.attention_mask, pairs.token_type_ids)
    for row, (values, ids, keep, types) in enumerate(
        zip(
            hidden, pairs.input_ids.tolist(), pairs.attention_mask.bool(), pairs.token_type_ids,
            strict=True,
        )
    ):  # fmt: skip
        a = values[keep & (types == 0)].mean(dim=0)
        b = values[keep & (types == 1)]
        b = b.mean(dim=0) if len(b) > 0 else torch.zeros_like(a)
        sides = [
            {place for place in range(len(ids)) if keep[place] and types[place] == side}
            for side in (0, 1)
        ]
        alone = []
        for side, other in (sides, sides[::-1]):
            known = {ids[place] for place in other}
            places = [place for place in sorted(side) if place > 0 and ids[place] not in known]
            alone.append(values[places].mean(dim=0) if places else torch.zeros_like(a))
        expected = model.classifier(torch.cat([a, b, (a - b).abs(), a * b, *alone]))
        torch.testing.assert_close(logits[row], expected, atol=1e-5, rtol=1e-5)
    assert model.bert.pooler is None


def test_a_comparison_finds_the_tokens_that_only_one_text_has() -> None:
    # [CLS] 7 8 7 [SEP] 8 9 [SEP] and, with padding, [CLS] 5 [SEP] 5 [SEP].
    ids = torch.tensor([[2, 7, 8, 7, 3, 8, 9, 3], [2, 5, 3, 5, 3, 0, 0, 0]])
    first = torch.tensor([[1.0, 1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0, 0]])
    second = torch.tensor([[0.0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0, 0]])
    hidden = torch.tensor([[[1.0], [2], [4], [8], [16], [32], [64], [128]]] * 2)

    found = compare_segments(hidden, ids, first, second)

    # 7 twice, (2 + 8) / 2; and 9. The second pair is of the same text twice.
    assert found[0, 4:].tolist() == [5.0, 64.0]
    assert found[1, 4:].tolist() == [0.0, 0.0]
    a, b = 31 / 5, 224 / 3
    assert found[0, :4].tolist() == pytest.approx([a, b, b - a, a * b])


def test_classification_head_drops_in_training_only(make_config: MakeConfig, pairs) -> None:
    config = make_config(hidden_dropout_prob=0.5)
    model = BertForSequenceClassification(config, vocab_size=50, num_labels=3, pooling="cls")
    model.bert.eval()

    assert not torch.equal(model(pairs.flat), model(pairs.flat))
    model.eval()
    assert torch.equal(model(pairs.flat), model(pairs.flat))


def test_classification_logits_are_fp32_whatever_the_precision(
    make_config: MakeConfig, randomize: Randomize, pairs
) -> None:
    model = BertForSequenceClassification(
        make_config(), vocab_size=50, num_labels=1, pooling="mean"
    ).eval()
    randomize(model)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(pairs.flat)

    assert logits.dtype == torch.float32
    assert not torch.equal(logits, logits.bfloat16().float())


def test_each_token_is_classified_by_its_own_hidden_state(
    make_config: MakeConfig, randomize: Randomize, pairs
) -> None:
    model = BertForTokenClassification(make_config(), vocab_size=50, num_labels=5, has_crf=False)
    randomize(model)

    logits = model(pairs.flat)

    hidden = model.bert.forward_padded(pairs.input_ids, pairs.attention_mask, pairs.token_type_ids)
    expected = hidden[pairs.attention_mask] @ model.classifier.weight.T + model.classifier.bias
    assert logits.shape == (41, 5)  # the lengths of the sequences are 12, 5, 9, 3 and 12
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    assert model.bert.pooler is None
    assert model.crf is None


def test_a_crf_changes_no_logits_and_starts_at_zero(make_config: MakeConfig, pairs) -> None:
    plain, other = (
        BertForTokenClassification(make_config(), vocab_size=50, num_labels=5, has_crf=has_crf)
        for has_crf in (False, True)
    )
    for model in (plain, other):
        initialize(model, 0.02, torch.Generator().manual_seed(4))

    assert torch.equal(plain(pairs.flat), other(pairs.flat))
    assert other.crf is not None
    assert not any(parameter.any() for parameter in other.crf.parameters())


def test_the_head_of_tokens_drops_in_training_only_and_in_fp32(
    make_config: MakeConfig, randomize: Randomize, pairs
) -> None:
    config = make_config(hidden_dropout_prob=0.5)
    model = BertForTokenClassification(config, vocab_size=50, num_labels=3, has_crf=True)
    randomize(model)
    model.bert.eval()

    assert not torch.equal(model(pairs.flat), model(pairs.flat))
    model.eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(pairs.flat)

    assert logits.dtype == torch.float32
    assert not torch.equal(logits, logits.bfloat16().float())
