from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bertpre.data.dataset import HELD_OUT_MASKS as BERT
from bertpre.data.examples import Examples
from bertpre.data.masking import example_keys, mask_examples

MASK, CLS, SEP = 4, 2, 3
# Ids 5-9 stand for [unused] rows: known to the model, but no replacement.
TOKENIZER = SimpleNamespace(mask_id=MASK, ordinary_ids=np.arange(10, 1000))


def batch(
    lengths: list[int], *, seed: int = 0, examples: list[int] | None = None
) -> dict[str, Any]:
    """Examples [CLS] text [SEP]; the text of example i is the same in every batch."""
    numbers = np.arange(len(lengths)) if examples is None else np.array(examples)
    rows, maskable, starts = [], [], []
    for number, length in zip(numbers, lengths, strict=True):
        text = np.random.default_rng(int(number)).integers(10, 1000, length - 2)
        rows.append(np.concatenate([[CLS], text, [SEP]]))
        maskable.append(np.array([False] + [True] * (length - 2) + [False]))
        starts.append(np.concatenate([[True], text % 3 > 0, [True]]))
    examples = Examples(
        input_ids=np.concatenate(rows),
        token_type_ids=np.zeros(sum(lengths), int),
        position_ids=np.concatenate([np.arange(length) for length in lengths]),
        lengths=np.array(lengths),
        maskable=np.concatenate(maskable),
        word_starts=np.concatenate(starts),
        nsp_labels=None,
    )
    keys = example_keys(seed, np.zeros(len(lengths), int), numbers)
    return {"examples": examples, "keys": keys, "tokenizer": TOKENIZER}


def chosen_by_example(predicted: np.ndarray, lengths: np.ndarray) -> list[list[int]]:
    ends = np.cumsum(lengths)
    return [
        (predicted[(predicted >= end - length) & (predicted < end)] - (end - length)).tolist()
        for end, length in zip(ends, lengths, strict=True)
    ]


@pytest.mark.parametrize(
    ("length", "count"),
    # max(1, round(0.15 * length)) by hand, half to even as Python rounds: 0.15 * 30 = 4.5 -> 4.
    [(3, 1), (7, 1), (10, 2), (11, 2), (30, 4), (50, 8), (128, 19), (512, 77)],
)
def test_number_of_predictions_is_that_of_the_reference(length: int, count: int) -> None:
    masked = mask_examples(**batch([length] * 7), spec=BERT)

    assert [len(c) for c in chosen_by_example(masked.predicted, np.full(7, length))] == [count] * 7


def test_predictions_are_capped() -> None:
    masked = mask_examples(**batch([128]), spec=replace(BERT, max_predictions=5))

    assert len(masked.predicted) == 5


def test_replacements_are_80_10_10_and_never_special() -> None:
    inputs = batch([128] * 12_000)

    masked = mask_examples(**inputs, spec=BERT)

    assert len(masked.predicted) == 12_000 * 19  # 228,000
    before, after = (
        inputs["examples"].input_ids[masked.predicted],
        masked.input_ids[masked.predicted],
    )
    assert (before == masked.mlm_labels).all()
    assert ((before != CLS) & (before != SEP)).all()
    is_mask, is_same = after == MASK, after == before
    assert is_mask.mean() == pytest.approx(0.8, abs=0.005)
    # A random replacement is the token itself once in 990 times.
    assert is_same.mean() == pytest.approx(0.1 + 0.1 / 990, abs=0.005)
    assert (~is_mask & ~is_same).mean() == pytest.approx(0.1 - 0.1 / 990, abs=0.005)
    assert after[~is_mask].min() >= 10
    untouched = np.ones(len(inputs["examples"].input_ids), bool)
    untouched[masked.predicted] = False
    assert (masked.input_ids[untouched] == inputs["examples"].input_ids[untouched]).all()


def test_random_replacements_cover_the_ordinary_vocabulary_evenly() -> None:
    inputs = batch([128] * 12_000)

    masked = mask_examples(**inputs, spec=BERT)

    after = masked.input_ids[masked.predicted]
    drawn = after[(after != MASK) & (after != masked.mlm_labels)]
    counts = np.bincount(drawn, minlength=1000)[10:]
    # About 23 a piece; chi-squared over 989 degrees of freedom has mean 989, deviation 44.
    chi_squared = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert 989 - 5 * 44 < chi_squared < 989 + 5 * 44


def test_every_position_is_predicted_equally_often() -> None:
    masked = mask_examples(**batch([20] * 20_000), spec=BERT)

    counts = np.bincount(masked.predicted % 20, minlength=20)
    assert counts[0] == counts[19] == 0
    # 3 of 18 in each example: expectation 3,333, deviation 53.
    assert np.abs(counts[1:19] - 20_000 * 3 / 18).max() < 5 * 53


def test_a_mask_does_not_depend_on_the_batch_around_it() -> None:
    spec = BERT
    lengths = [30, 12, 50, 7, 22]
    together = mask_examples(**batch(lengths), spec=spec)
    chosen = chosen_by_example(together.predicted, np.array(lengths))

    for number, length in enumerate(lengths):
        alone = mask_examples(**batch([length], examples=[number]), spec=spec)
        assert alone.predicted.tolist() == chosen[number]
        start = sum(lengths[:number])
        assert (alone.input_ids == together.input_ids[start : start + length]).all()


def test_masks_differ_by_epoch_and_by_seed() -> None:
    spec = BERT
    first = batch([64] * 20)
    second = {**first, "keys": example_keys(0, np.ones(20, int), np.arange(20))}
    third = batch([64] * 20, seed=1)

    results = [
        mask_examples(**inputs, spec=spec).predicted.tolist() for inputs in (first, second, third)
    ]

    assert results[0] != results[1] != results[2] != results[0]
    assert results[0] == mask_examples(**first, spec=spec).predicted.tolist()


def test_a_higher_rate_keeps_the_tokens_of_a_lower_one() -> None:
    inputs = batch([64] * 50)

    low = mask_examples(**inputs, spec=BERT)
    high = mask_examples(**inputs, spec=replace(BERT, probability=0.3))

    assert set(low.predicted) < set(high.predicted)
    assert (low.input_ids[low.predicted] == high.input_ids[low.predicted]).all()


def words_of(inputs: dict[str, Any], start: int, end: int) -> list[list[int]]:
    words: list[list[int]] = []
    for position in range(start, end):
        if not inputs["examples"].maskable[position]:
            continue
        if (
            inputs["examples"].word_starts[position]
            or not inputs["examples"].maskable[position - 1]
        ):
            words.append([])
        words[-1].append(position)
    return words


def test_whole_words_are_predicted_in_full_and_within_the_budget() -> None:
    lengths = [64, 40, 90] * 100
    inputs = batch(lengths)

    masked = mask_examples(**inputs, spec=replace(BERT, whole_word=True))

    predicted, start = set(masked.predicted.tolist()), 0
    for length in lengths:
        words = words_of(inputs, start, start + length)
        hit = [len(predicted & set(word)) for word in words]
        assert all(count in (0, len(word)) for count, word in zip(hit, words, strict=True))
        assert 1 <= sum(hit) <= round(0.15 * length)
        # What is left of the budget is smaller than any word that was passed over.
        passed_over = [len(word) for count, word in zip(hit, words, strict=True) if count == 0]
        assert round(0.15 * length) - sum(hit) < min(passed_over)
        start += length


def test_words_do_not_span_a_special_token() -> None:
    # [CLS] 10 [SEP] 11 [SEP], and 11 is cut from a word whose start was truncated away.
    examples = Examples(
        input_ids=np.array([CLS, 10, SEP, 11, SEP]),
        token_type_ids=np.array([0, 0, 0, 1, 1]),
        position_ids=np.arange(5),
        lengths=np.array([5]),
        maskable=np.array([False, True, False, True, False]),
        word_starts=np.array([True, True, True, False, True]),
        nsp_labels=None,
    )
    spec = replace(BERT, probability=0.2, whole_word=True)

    for example in range(20):
        masked = mask_examples(
            examples,
            keys=example_keys(0, np.array([0]), np.array([example])),
            spec=spec,
            tokenizer=TOKENIZER,
        )
        assert len(masked.predicted) == 1


def test_a_word_larger_than_the_budget_gives_pieces_when_there_is_nothing_else() -> None:
    inputs = batch([12])
    inputs["examples"].word_starts[2:11] = False  # one word of ten pieces, budget two

    masked = mask_examples(**inputs, spec=replace(BERT, whole_word=True))

    assert len(masked.predicted) == 2
