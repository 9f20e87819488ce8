"""Masks of neighbours: SpanBERT's geometric spans, n-grams, and shares of replacements."""

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bertpre.data.dataset import HELD_OUT_MASKS as BERT
from bertpre.data.examples import Examples
from bertpre.data.masking import example_keys, geometric_shares, mask_examples

CLS, SEP, MASK = 2, 3, 4
TOKENIZER = SimpleNamespace(mask_id=MASK, ordinary_ids=np.arange(10, 1000))


def batch(count: int, length: int, *, pieces: int = 1, split: int | None = None) -> dict[str, Any]:
    """Examples [CLS] text [SEP] of words of so many pieces, with a [SEP] at ``split`` if given."""
    specials = [0, length - 1] + ([] if split is None else [split])
    maskable = np.ones(length, bool)
    maskable[specials] = False
    ids = np.random.default_rng(0).integers(10, 1000, (count, length))
    ids[:, 0], ids[:, specials[1:]] = CLS, SEP
    starts = np.arange(length) % pieces == 1 % pieces
    examples = Examples(
        input_ids=ids.ravel(),
        token_type_ids=np.zeros(count * length, int),
        position_ids=np.tile(np.arange(length), count),
        lengths=np.full(count, length),
        maskable=np.tile(maskable, count),
        word_starts=np.tile(starts, count),
        nsp_labels=None,
    )
    keys = example_keys(0, np.zeros(count, int), np.arange(count))
    return {"examples": examples, "keys": keys, "tokenizer": TOKENIZER}


def runs_of(predicted: np.ndarray) -> np.ndarray:
    """Lengths of the runs of neighbours among places that rise."""
    breaks = np.flatnonzero(np.diff(predicted) != 1) + 1
    return np.diff(np.concatenate([[0], breaks, [len(predicted)]]))


def test_geometric_lengths_are_those_of_spanbert() -> None:
    # Joshi et al. 2020, section 3.1: p = 0.2, at most 10 words, "mean(l) = 3.8".
    shares = np.array(geometric_shares(0.2, 10))

    assert len(shares) == 10
    assert shares.sum() == pytest.approx(1)
    assert shares @ np.arange(1, 11) == pytest.approx(3.8, abs=0.005)
    assert (shares[1:] / shares[:-1]).tolist() == pytest.approx([0.8] * 9)


def test_few_spans_in_a_long_text_have_the_lengths_that_were_drawn() -> None:
    # Five spans or so in 10,000 tokens hardly meet; the last one is cut, which lowers the mean.
    spec = replace(BERT, probability=0.002, span_shares=geometric_shares(0.2, 10))

    masked = mask_examples(**batch(200, 10_000), spec=spec)

    runs = runs_of(masked.predicted)
    assert 3.0 < runs.mean() < 3.8
    # 0.2 / (1 - 0.8 ** 10) = 0.224 of the spans have one word, and some of those that are cut.
    assert 0.2 < (runs == 1).mean() < 0.33


@pytest.mark.parametrize("probability", [0.15, 0.4])
@pytest.mark.parametrize("shares", [geometric_shares(0.2, 10), (6 / 11, 3 / 11, 2 / 11)])
def test_spans_are_cut_to_the_exact_number(probability: float, shares: tuple[float, ...]) -> None:
    inputs = batch(300, 64, split=30)

    masked = mask_examples(
        **inputs, spec=replace(BERT, probability=probability, span_shares=shares)
    )

    counts = np.bincount(masked.predicted // 64, minlength=300)
    assert (counts == round(probability * 64)).all()
    assert inputs["examples"].maskable[masked.predicted].all()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ngrams_of_one_size_are_of_that_size(size: int) -> None:
    shares = (*[0.0] * (size - 1), 1.0)

    masked = mask_examples(
        **batch(2000, 1000), spec=replace(BERT, probability=size / 1000, span_shares=shares)
    )

    # Near the end of a text they are shorter, and another one follows.
    assert (runs_of(masked.predicted) == size).mean() > 0.99


def test_ngrams_of_several_sizes_have_the_given_shares() -> None:
    # Three predictions an example, so that the first n-gram is whole; runs of two have the shares
    # by hand of [2, 1 of another] and [1, 2 of another], since the second one is cut to fit.
    spec = replace(BERT, probability=0.003, span_shares=(0.5, 0.2, 0.3))

    masked = mask_examples(**batch(4000, 1000), spec=spec)

    most = [int(max(runs_of(row))) for row in masked.predicted.reshape(4000, 3)]
    # Three: 0.3. Two: a two and the cut of the next, 0.2, or a one and then two or more, 0.5 * 0.5.
    assert np.bincount(most, minlength=4)[1:] / 4000 == pytest.approx(
        [0.5 * 0.5, 0.2 + 0.5 * 0.5, 0.3], abs=5 * 0.5 / 4000**0.5
    )


def test_spans_do_not_go_over_a_separator() -> None:
    # Three tokens on each side of [SEP]; spans of three take one side or parts of both.
    inputs = batch(4000, 9, split=4)
    spec = replace(BERT, probability=3 / 9, span_shares=(0.0, 0.0, 1.0))

    masked = mask_examples(**inputs, spec=spec)

    rows = np.zeros((4000, 9), bool)
    rows[masked.predicted // 9, masked.predicted % 9] = True
    first, second = rows[:, 1:4].sum(axis=1), rows[:, 5:8].sum(axis=1)
    assert not rows[:, [0, 4, 8]].any()
    # The first span begins anywhere: at the first word of a side it takes all three of it.
    assert 0.2 < ((first == 3) | (second == 3)).mean() < 0.9


def test_a_span_at_a_separator_is_not_continued_behind_it() -> None:
    # [CLS] a [SEP] b c d e f [SEP]; two predictions, spans of two. A span from a has no more than
    # a, so each of the other five words is as likely beside it as a first word of the next span.
    spec = replace(BERT, probability=2 / 9, span_shares=(0.0, 1.0))

    masked = mask_examples(**batch(6000, 9, split=2), spec=spec)

    pairs = (masked.predicted % 9).reshape(6000, 2)
    beside = pairs[pairs[:, 0] == 1, 1]
    # a is the first of six words, or f is, which ends its text, and a the first of the other five.
    share = 1 / 6 + 1 / 6 * 1 / 5
    assert len(beside) / 6000 == pytest.approx(share, abs=5 * 0.4 / 6000**0.5)
    # b to e are there by the first way alone: 1 / 6 * 1 / 5 of all, and f by both.
    expected = np.array([1, 1, 1, 1, 2]) / 6
    counts = np.bincount(beside, minlength=8)[3:8]
    assert counts / len(beside) == pytest.approx(expected, abs=5 * 0.5 / len(beside) ** 0.5)


def test_spans_of_whole_words_hold_all_pieces_but_at_the_cut() -> None:
    inputs = batch(500, 62, pieces=3)
    spec = replace(BERT, probability=0.3, whole_word=True, span_shares=geometric_shares(0.2, 10))

    masked = mask_examples(**inputs, spec=spec)

    position = masked.predicted % 62 - 1
    example = masked.predicted // 62
    word = example * 20 + position // 3
    counts = np.bincount(word)
    broken = np.unique(np.flatnonzero((counts > 0) & (counts < 3)) // 20, return_counts=True)[1]
    assert (broken == 1).all()  # 19 tokens are six words and a piece: one word in each is cut
    assert len(broken) == 500


@pytest.mark.parametrize("shares", [(), geometric_shares(0.2, 10), (6 / 11, 3 / 11, 2 / 11)])
def test_masks_of_a_rising_rate_are_nested(shares: tuple[float, ...]) -> None:
    inputs = batch(200, 80, split=40)
    rates = [0.1, 0.15, 0.2, 0.3, 0.5, 0.8]

    chosen = [
        mask_examples(**inputs, spec=replace(BERT, probability=rate, span_shares=shares))
        for rate in rates
    ]

    for low, high in itertools.pairwise(chosen):
        assert set(low.predicted) < set(high.predicted)
        # What stands at the masks of the lower rate stays, too.
        assert (low.input_ids[low.predicted] == high.input_ids[low.predicted]).all()


@pytest.mark.parametrize(("mask", "random"), [(1.0, 0.0), (0.5, 0.5), (0.6, 0.2), (0.0, 0.0)])
def test_replacements_follow_the_given_shares(mask: float, random: float) -> None:
    inputs = batch(2000, 128)
    spec = replace(BERT, probability=0.15, mask_share=mask, random_share=random)

    masked = mask_examples(**inputs, spec=spec)

    after = masked.input_ids[masked.predicted]
    # 38,000 draws: deviation 0.0026 at most.
    assert (after == MASK).mean() == pytest.approx(mask, abs=5 * 0.0026)
    kept = 1 - mask - random + random / 990
    assert (after == masked.mlm_labels).mean() == pytest.approx(kept, abs=5 * 0.0026)


def test_a_geometric_span_has_one_fate_and_its_own_random_tokens() -> None:
    inputs = batch(3000, 1000)
    spec = replace(
        BERT,
        probability=0.003,
        span_shares=(0.0, 0.0, 1.0),
        spans_share_fate=True,
        mask_share=0.5,
        random_share=0.3,
    )

    masked = mask_examples(**inputs, spec=spec)

    after = masked.input_ids[masked.predicted].reshape(3000, 3)
    is_one = runs_of(masked.predicted) == 3
    assert is_one.mean() > 0.98
    is_mask = (after == MASK)[np.diff(masked.predicted.reshape(3000, 3), axis=1).sum(axis=1) == 2]
    assert set(is_mask.sum(axis=1)) == {0, 3}
    assert is_mask.mean() == pytest.approx(0.5, abs=5 * 0.5 / 3000**0.5)
    own = masked.mlm_labels.reshape(3000, 3)
    random = (after != MASK).all(axis=1) & (after != own).all(axis=1)
    assert random.sum() > 500
    assert (after[random, 0] != after[random, 1]).mean() > 0.99


def test_a_mask_of_spans_does_not_depend_on_the_batch() -> None:
    spec = replace(BERT, probability=0.2, span_shares=geometric_shares(0.2, 10))
    together = batch(7, 50)
    masked = mask_examples(**together, spec=spec)

    for number in range(7):
        here = slice(50 * number, 50 * number + 50)
        examples = together["examples"]
        alone = Examples(
            *(values[here] for values in examples[:3]),
            lengths=np.array([50]),
            maskable=examples.maskable[here],
            word_starts=examples.word_starts[here],
            nsp_labels=None,
        )
        keys = together["keys"][[number]]
        single = mask_examples(alone, keys=keys, spec=spec, tokenizer=TOKENIZER)
        assert single.input_ids.tolist() == masked.input_ids[here].tolist()
