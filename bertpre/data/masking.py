"""Which tokens are predicted and what stands in their place: a pure function of its arguments.

There is no generator and no state: the mask of an example depends on (seed, key, example, rate)
alone, so it is the same in every batch, worker and rank.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertpre.data.random64 import U64, below, derive, hash64, uniform

Array = npt.NDArray[Any]

MASK_SHARE, RANDOM_SHARE = 0.8, 0.1  # the rest stays as it is


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskSpec:
    """How masks are drawn.

    Attributes:
        probability: share of an example's tokens, special ones counted, that is predicted.
        whole_word: mask all pieces of a word together.
        max_predictions: most predicted tokens in an example, or None.
    """

    probability: float
    whole_word: bool = False
    max_predictions: int | None = None

    def num_predictions(self, lengths: Array) -> npt.NDArray[np.int64]:
        """Return how many tokens are predicted in examples of these lengths.

        Source: google-research/bert create_masked_lm_predictions: round half to even, at least 1.
        """
        counts = np.maximum(1, np.rint(lengths * self.probability)).astype(np.int64)
        return counts if self.max_predictions is None else np.minimum(counts, self.max_predictions)


class Vocabulary(NamedTuple):
    """What masking needs of a tokenizer.

    Attributes:
        mask_id: the id of [MASK].
        ordinary_ids: int64: ids that a random replacement may take: no special tokens and no
            [unused] ones. (The reference draws from the whole vocabulary, [PAD] included.)
    """

    mask_id: int
    ordinary_ids: npt.NDArray[np.int64]


class Masked(NamedTuple):
    """Examples with their masks.

    Attributes:
        input_ids: int64, (N,): what the model sees.
        predicted: int64, (P,): positions in ``input_ids``, rising.
        labels: int64, (P,): what stood there.
    """

    input_ids: Array
    predicted: Array
    labels: Array


def example_keys(seed: int, keys: Array, examples: Array) -> U64:
    """Return the number that all random choices in an example derive from, (B,).

    Args:
        seed: the experiment's seed.
        keys: (B,): the epoch of each example with dynamic masks, its pass with static ones.
        examples: (B,): number of each example in its index.
    """
    return hash64(hash64(derive(seed, "mask"), keys), examples)


def mask_tokens(
    ids: Array,
    *,
    lengths: Array,
    maskable: Array,
    word_starts: Array,
    keys: U64,
    spec: MaskSpec,
    vocabulary: Vocabulary,
) -> Masked:
    """Choose the predicted tokens of each example and replace 80/10/10 of them.

    Args:
        ids: int64, (N,): examples one after another, special tokens included.
        lengths: int64, (B,): tokens of each example.
        maskable: bool, (N,): False for [CLS] and [SEP], which are never predicted.
        word_starts: bool, (N,): whether a token begins a word. Only whole-word masks look at it.
        keys: uint64, (B,): from `example_keys`.
        spec: how many tokens, and whether whole words.
        vocabulary: what the replacements are drawn from.

    Source: Devlin et al. 2018, section 3.1, task 1.
    """
    example = np.repeat(np.arange(len(lengths)), lengths)
    position = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    # Three independent numbers a token: which are chosen, what happens to them, random ids.
    numbers = hash64(keys[example], position)
    wanted = spec.num_predictions(lengths)
    if spec.whole_word:
        predicted = _choose_words(numbers, example, maskable, word_starts, wanted)
        # Where every word is larger than the budget, pieces are better than no prediction at all.
        bare = np.bincount(example[predicted], minlength=len(lengths)) == 0
        pieces = _choose_tokens(numbers, example, maskable & bare[example], wanted)
        predicted = np.sort(np.concatenate([predicted, pieces]))
    else:
        predicted = _choose_tokens(numbers, example, maskable, wanted)
    labels = ids[predicted]
    fate_numbers = hash64(derive(0, "fate"), numbers[predicted])
    fate = uniform(fate_numbers)
    drawn = below(hash64(derive(0, "id"), fate_numbers), len(vocabulary.ordinary_ids))
    replaced = np.where(
        fate < MASK_SHARE,
        vocabulary.mask_id,
        np.where(fate < MASK_SHARE + RANDOM_SHARE, vocabulary.ordinary_ids[drawn], labels),
    )
    input_ids = ids.copy()
    input_ids[predicted] = replaced
    return Masked(input_ids, predicted, labels)


def _choose_tokens(numbers: U64, example: Array, maskable: Array, wanted: Array) -> Array:
    """Take the ``wanted`` tokens of smallest number in each example.

    As it is always the smallest, the tokens chosen at a lower rate are among those of a higher one.
    """
    candidates = np.flatnonzero(maskable)
    order = candidates[np.lexsort((numbers[candidates], example[candidates]))]
    return np.sort(order[_rank_in_group(example[order]) < wanted[example[order]]])


def _choose_words(
    numbers: U64, example: Array, maskable: Array, word_starts: Array, wanted: Array
) -> Array:
    """Take whole words in the order of their numbers while they fit; one too large is skipped.

    A word ends at the next word start or special token, so it never spans [SEP] (the reference
    glues a B that was cut inside a word to the last word of A).
    """
    begins = maskable & (word_starts | np.concatenate([[True], ~maskable[:-1]]))
    word = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    size = np.bincount(word[maskable], minlength=len(first))
    order = np.lexsort((numbers[first], example[first]))
    owner = example[first[order]]
    rank = _rank_in_group(owner)
    taken = np.zeros(len(first), bool)
    left = wanted.copy()
    # One round for the first word of every example, one for the second, and so on.
    by_rank = np.argsort(rank, kind="stable")
    for group in np.split(by_rank, np.flatnonzero(np.diff(rank[by_rank])) + 1):
        words, owners = order[group], owner[group]
        fits = size[words] <= left[owners]
        taken[words[fits]] = True
        left[owners[fits]] -= size[words[fits]]
    return np.flatnonzero(maskable & taken[np.maximum(word, 0)])


def _rank_in_group(groups: Array) -> Array:
    """Number the members of each run of equal values from 0."""
    places = np.arange(len(groups))
    starts = np.concatenate([[True], groups[1:] != groups[:-1]])
    return places - np.maximum.accumulate(np.where(starts, places, 0))
