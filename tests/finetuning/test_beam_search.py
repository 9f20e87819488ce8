"""Searches over a small table of transitions, where all texts can be listed."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from bertpre.finetuning.beam_search import Hypothesis, SearchOptions, search, top

START, END = 0, 1
CPU = torch.device("cpu")


class Table:
    """The next token depends on the source and on the last token alone."""

    def __init__(self, scores: Tensor) -> None:
        self.scores = scores.log_softmax(dim=2)  # (sources, V, V)
        self.rows = torch.arange(len(scores))
        self.steps = 0

    def step(self, tokens: Tensor) -> Tensor:
        self.steps += 1
        width = len(tokens) // len(self.rows)
        return self.scores[self.rows.repeat_interleave(width), tokens]

    def keep(self, sources: Tensor | None, parents: Tensor) -> None:
        if sources is not None:
            self.rows = self.rows[sources]


def random_table(num_sources: int = 5, vocab_size: int = 5, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(num_sources, vocab_size, vocab_size, generator=generator)
    scores[:, :, START] = -30.0
    return scores


def find(scores: Tensor, **options: Any) -> list[list[Hypothesis]]:
    return search(
        Table(scores),
        len(scores),
        options=SearchOptions(**{"max_length": 4, **options}),
        start_id=START,
        end_id=END,
        device=CPU,
    )


def listed(scores: Tensor, *, max_length: int, length_penalty: float) -> list[float]:
    """The scores of all texts of one source, the best first."""
    scores = scores.log_softmax(dim=1)
    ranked = []
    for length in range(max_length + 1):
        for text in itertools.product(range(2, len(scores)), repeat=length):
            path = [START, *text, END]
            total = sum(float(scores[a, b]) for a, b in itertools.pairwise(path))
            ranked.append(total / (length + 1) ** length_penalty)
    return sorted(ranked, reverse=True)


@pytest.mark.parametrize("length_penalty", [-1.0, 0.0, 1.0, 2.0])
def test_a_wide_beam_finds_the_best_of_all_texts(length_penalty: float) -> None:
    scores = random_table()
    # 3 ** 4 texts of the greatest length: no hypothesis is ever dropped.
    found = find(scores, num_beams=128, num_best=20, length_penalty=length_penalty)
    for row, hypotheses in zip(scores, found, strict=True):
        expected = listed(row, max_length=4, length_penalty=length_penalty)
        assert [
            one.log_probability / (len(one.ids) + 1) ** length_penalty for one in hypotheses
        ] == pytest.approx(expected[:20], abs=1e-5)
        assert len({one.ids for one in hypotheses}) == 20


def test_greedy_search_takes_the_best_token_at_each_step() -> None:
    scores = random_table(seed=3)
    for row, (found,) in zip(scores, find(scores), strict=True):
        last, text, total = START, [], 0.0
        chances = row.log_softmax(dim=1)
        for _ in range(4):
            token = int(chances[last].argmax())
            total += float(chances[last, token])
            if token == END:
                break
            text.append(token)
            last = token
        else:
            total += float(chances[last, END])
        assert found.ids == tuple(text)
        assert found.log_probability == pytest.approx(total, abs=1e-5)
        assert found.mean == pytest.approx(total / (len(text) + 1), abs=1e-5)


def probabilities(rows: dict[int, dict[int, float]]) -> Tensor:
    table = torch.full((1, 5, 5), 1e-9)
    for last, following in rows.items():
        for token, share in following.items():
            table[0, last, token] = share
    return table.log()


def test_beams_find_a_text_that_greedy_search_misses() -> None:
    # Greedy: 0.6 * 0.5 * 1. Better: 0.4 * 1 * 1.
    scores = probabilities(
        {START: {2: 0.6, 3: 0.4}, 2: {2: 0.5, 4: 0.5}, 3: {4: 1.0}, 4: {END: 1.0}}
    )
    assert find(scores)[0][0].ids == (2, 2, 2, 2)
    best = find(scores, num_beams=2, length_penalty=0.0)[0][0]
    assert best.ids == (3, 4)
    assert best.log_probability == pytest.approx(math.log(0.4), abs=1e-4)


def test_of_equal_texts_the_one_with_the_lowest_ids_comes_first() -> None:
    scores = torch.zeros(2, 5, 5)
    scores[:, :, START] = -30.0
    found = find(scores, max_length=1, num_beams=3, num_best=3, length_penalty=0.0)
    assert [one.ids for one in found[0]] == [(), (2,), (3,)]
    assert found[0] == found[1]


def test_lengths_are_limited_on_both_sides() -> None:
    endless = probabilities({START: {2: 1.0}, 2: {3: 0.99, END: 0.01}, 3: {2: 1.0}})
    short = probabilities({START: {END: 0.99, 2: 0.01}, 2: {END: 0.99, 3: 0.01}, 3: {END: 1.0}})
    for num_beams in (1, 3):
        (cut,) = find(endless, num_beams=num_beams, max_length=4, length_penalty=0.0)
        assert len(cut[0].ids) <= 4
        (long,) = find(short, num_beams=num_beams, min_length=2)
        assert long[0].ids == (2, 3)
    assert find(endless, max_length=4)[0][0].ids == (2, 3, 2, 3)
    assert find(endless, max_length=0)[0][0].ids == ()


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_ngram_occurs_twice(num_beams: int, size: int) -> None:
    scores = random_table(num_sources=20, vocab_size=6, seed=1)
    scores[:, :, END] -= 3.0
    free = find(scores, max_length=12, num_beams=num_beams)
    found = find(scores, max_length=12, num_beams=num_beams, no_repeat_ngram=size)

    def repeats(text: tuple[int, ...]) -> bool:
        ngrams = [text[start : start + size] for start in range(len(text) - size + 1)]
        return len(set(ngrams)) < len(ngrams)

    assert any(repeats(row[0].ids) for row in free)
    assert not any(repeats(row[0].ids) for row in found)


def test_a_text_that_cannot_go_on_ends() -> None:
    scores = random_table(vocab_size=4)
    scores[:, :, START] = -torch.inf
    for found, *_ in find(scores, max_length=9, min_length=5, no_repeat_ngram=1):
        assert sorted(found.ids) == [2, 3]  # the only tokens of texts


@pytest.mark.parametrize("num_beams", [1, 4])
def test_a_source_in_a_batch_equals_the_source_alone(num_beams: int) -> None:
    scores = random_table(num_sources=40, vocab_size=12, seed=2)
    scores[:, :, END] += 1.0
    options = {"max_length": 10, "num_beams": num_beams, "num_best": num_beams}
    together = find(scores, **options)
    for row, expected in zip(scores, together, strict=True):
        (alone,) = find(row[None], **options)
        assert [one.ids for one in alone] == [one.ids for one in expected]
    assert len({len(row[0].ids) for row in together}) > 2  # they leave at different steps


def test_search_stops_when_all_sources_are_done() -> None:
    table = Table(probabilities({START: {2: 1.0}, 2: {END: 1.0}}))
    options = SearchOptions(max_length=50)
    search(table, 1, options=options, start_id=START, end_id=END, device=CPU)
    assert table.steps == 2


@pytest.mark.parametrize("size", [40, 5000])
def test_top_equals_a_stable_sort_also_with_ties(size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    for values in (torch.rand(6, size, generator=generator), torch.ones(2, size)):
        for scores in (values, (values * 9).round(), values.masked_fill(values > 0.01, -torch.inf)):
            best, places = top(scores, 8)
            expected = torch.sort(scores, dim=1, descending=True, stable=True)
            assert torch.equal(best, expected.values[:, :8])
            assert torch.equal(places, expected.indices[:, :8])
