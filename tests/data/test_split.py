from collections.abc import Iterator

import numpy as np
import pytest

from bertpre.data.split import split_documents


class Store:
    def __init__(self, sizes: list[int], hashes: list[int] | None = None) -> None:
        self.document_starts = np.cumsum([0, *sizes])
        numbers = range(len(sizes)) if hashes is None else hashes
        self.hashes = np.array([n * 0x9E3779B97F4A7C15 % 2**64 for n in numbers], np.uint64)

    def documents(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        middle = len(self.hashes) // 3  # two shards
        yield self.document_starts[: middle + 1], self.hashes[:middle]
        yield self.document_starts[middle:], self.hashes[middle:]


def held_out_numbers(store: Store, fraction: float = 0.1, seed: int = 0) -> set[int]:
    _, held_out = split_documents(store, fraction=fraction, seed=seed)  # type: ignore[arg-type]
    return set(np.searchsorted(store.document_starts, held_out.first).tolist())


def test_the_share_of_documents_is_about_the_fraction() -> None:
    # 10,000 draws at 0.1: deviation 30.
    assert len(held_out_numbers(Store([2] * 10_000))) == pytest.approx(1000, abs=5 * 30)


def test_training_and_held_out_documents_are_all_documents() -> None:
    store = Store([2] * 1000)

    training, held_out = split_documents(store, fraction=0.2, seed=3)  # type: ignore[arg-type]

    assert sorted([*training.first, *held_out.first]) == store.document_starts[:-1].tolist()
    assert (training.end - training.first == 2).all()


def test_a_grown_corpus_keeps_its_split_and_another_seed_draws_another() -> None:
    small, grown = held_out_numbers(Store([2] * 1000)), held_out_numbers(Store([2] * 3000))

    assert small == {n for n in grown if n < 1000}
    assert small != held_out_numbers(Store([2] * 1000), seed=1)


def test_equal_documents_stay_on_one_side() -> None:
    hashes = [n % 300 for n in range(3000)]

    held_out = held_out_numbers(Store([2] * 3000, hashes))

    assert {hashes[n] for n in held_out}.isdisjoint(
        hashes[n] for n in range(3000) if n not in held_out
    )


def test_a_tiny_fraction_still_holds_out_two_documents() -> None:
    assert len(held_out_numbers(Store([2] * 50), fraction=1e-9)) == 2


def test_of_few_documents_the_tails_are_held_out() -> None:
    store = Store([10, 1, 40])

    training, held_out = split_documents(store, fraction=0.1, seed=0)  # type: ignore[arg-type]

    # A tenth of 10 is 1 sentence, of 40 it is 4; a document of one sentence keeps it.
    assert list(zip(training.first, training.end, strict=True)) == [(0, 9), (10, 11), (11, 47)]
    assert list(zip(held_out.first, held_out.end, strict=True)) == [(9, 10), (47, 51)]


def test_a_fraction_of_zero_holds_out_nothing() -> None:
    training, held_out = split_documents(Store([2] * 30), fraction=0, seed=0)  # type: ignore[arg-type]

    assert (len(training), len(held_out)) == (30, 0)


def test_two_sentences_of_a_document_always_stay() -> None:
    training, held_out = split_documents(Store([3, 2, 4]), fraction=0.5, seed=0)  # type: ignore[arg-type]

    assert (training.end - training.first).tolist() == [2, 2, 2]
    assert (held_out.end - held_out.first).tolist() == [1, 2]
