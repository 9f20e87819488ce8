"""Which tokens are predicted and what replaces them, as a pure function of its arguments.

The mask of an example depends only on (seed, epoch, example, rate), so it is the same in every
batch, worker and rank.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertpre.config.fields import parse_weights
from bertpre.config.schema import MakeData
from bertpre.data.examples import Examples
from bertpre.data.random64 import U64, Array, below, derive, hash64, uniform
from bertpre.tokenizer.tokenizer import Tokenizer

_NEVER = np.uint64(2**64 - 1)  # the number of a token that cannot be chosen


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskSpec:
    """How masks are drawn.

    Attributes:
        probability: share of an example's tokens, special ones included, to predict.
        mask_share, random_share: shares of the predicted tokens that become [MASK] or a random
            token; the rest stays unchanged.
        whole_word: mask all pieces of a word together.
        max_predictions: most predicted tokens in an example, or None.
        span_shares: how often 1, 2, 3, ... neighbours are masked together, adding up to 1; empty
            for masks without spans. Neighbours are words if ``whole_word``, else tokens.
        spans_share_fate: all tokens of a span are replaced in the same way.
    """

    probability: float
    mask_share: float
    random_share: float
    whole_word: bool = False
    max_predictions: int | None = None
    span_shares: tuple[float, ...] = ()
    spans_share_fate: bool = False

    def num_predictions(self, lengths: Array) -> npt.NDArray[np.int64]:
        """Return how many tokens are predicted in examples of these lengths.

        Source: google-research/bert create_masked_lm_predictions: round half to even, at least 1.
        """
        counts = np.maximum(1, np.rint(lengths * self.probability)).astype(np.int64)
        return counts if self.max_predictions is None else np.minimum(counts, self.max_predictions)


class MaskedExamples(NamedTuple):
    """Examples as the model sees them, and what it must predict. P predicted tokens.

    Attributes:
        input_ids, token_type_ids, position_ids: int64, (N,).
        lengths: int64, (B,).
        predicted: int64, (P,): places of the predicted tokens in ``input_ids``, ascending.
        mlm_labels: int64, (P,): the original ids.
        nsp_labels: as in `Examples`.
    """

    input_ids: Array
    token_type_ids: Array
    position_ids: Array
    lengths: Array
    predicted: Array
    mlm_labels: Array
    nsp_labels: Array | None


def mask_spec(options: MakeData) -> MaskSpec:
    """Return how to draw masks according to the make_data section."""
    is_geometric = options.mask_spans == "geometric"
    span_shares: tuple[float, ...] = ()
    if is_geometric:
        span_shares = geometric_shares(options.span_stop_prob, options.span_max_words)
    elif options.mask_spans == "ngrams":
        span_shares = parse_weights(options.ngram_weights)
    return MaskSpec(
        probability=options.mlm_probability,
        mask_share=options.mask_token_share,
        random_share=options.random_token_share,
        whole_word=options.whole_word_masking or is_geometric,
        max_predictions=options.max_predictions_per_seq,
        span_shares=span_shares,
        spans_share_fate=is_geometric,
    )


def example_keys(seed: int, epochs: Array, examples: Array) -> U64:
    """Return the number from which all random choices in each example derive, (B,).

    Args:
        seed: the experiment's seed.
        epochs: (B,): the epoch of each example; its pass with static masks.
        examples: (B,): number of each example in its index.
    """
    return hash64(hash64(derive(seed, "mask"), epochs), examples)


def mask_examples(
    examples: Examples, *, keys: U64, spec: MaskSpec, tokenizer: Tokenizer
) -> MaskedExamples:
    """Choose the predicted tokens of each example and replace most of them.

    A random replacement is one of the tokenizer's ordinary tokens. (The reference draws from the
    whole vocabulary, [PAD] included.)

    Args:
        examples: before masking.
        keys: uint64, (B,): from `example_keys`.
        spec: which tokens are predicted, and what replaces them.
        tokenizer: of the ids.

    Source: Devlin et al. 2018, section 3.1, task 1.
    """
    lengths, maskable, word_starts = examples.lengths, examples.maskable, examples.word_starts
    example = np.repeat(np.arange(len(lengths)), lengths)
    position = examples.position_ids
    # Three independent numbers a token: which are chosen, what happens to them, random ids.
    numbers = hash64(keys[example], position)
    wanted = spec.num_predictions(lengths)
    decides_fate = numbers
    if spec.span_shares:
        spans = _number_spans(numbers, maskable, word_starts, spec)
        predicted = _choose_tokens(spans, example, position, maskable, wanted)
        decides_fate = spans if spec.spans_share_fate else numbers
    elif spec.whole_word:
        predicted = _choose_words(numbers, example, maskable, word_starts, wanted)
        # Where every word is larger than the budget, pieces are better than no prediction at all.
        bare = np.bincount(example[predicted], minlength=len(lengths)) == 0
        if bare.any():
            others = maskable & bare[example]
            pieces = _choose_tokens(numbers, example, position, others, wanted)
            predicted = np.sort(np.concatenate([predicted, pieces]))
    else:
        predicted = _choose_tokens(numbers, example, position, maskable, wanted)
    labels = examples.input_ids[predicted]
    fate = uniform(hash64(derive(0, "fate"), decides_fate[predicted]))
    own_numbers = hash64(derive(0, "fate"), numbers[predicted])
    ordinary = tokenizer.ordinary_ids
    drawn = ordinary[below(hash64(derive(0, "id"), own_numbers), len(ordinary))]
    is_random = fate < spec.mask_share + spec.random_share
    input_ids = examples.input_ids.copy()
    input_ids[predicted] = np.where(
        fate < spec.mask_share, tokenizer.mask_id, np.where(is_random, drawn, labels)
    )
    return MaskedExamples(
        input_ids=input_ids,
        token_type_ids=examples.token_type_ids,
        position_ids=position,
        lengths=lengths,
        predicted=predicted,
        mlm_labels=labels,
        nsp_labels=examples.nsp_labels,
    )


def geometric_shares(stop: float, most: int) -> tuple[float, ...]:
    """Return the shares of spans of 1, 2, ... words, if each word is the last one with ``stop``.

    Spans longer than ``most`` words are drawn again, so the shares add up to 1.

    Source: Joshi et al. 2020 (SpanBERT), section 3.1: 0.2 and 10, 3.8 words on average.
    """
    shares = stop * (1 - stop) ** np.arange(most)
    return tuple((shares / shares.sum()).tolist())


def _choose_tokens(
    numbers: U64, example: Array, position: Array, maskable: Array, wanted: Array
) -> Array:
    """Choose the ``wanted`` tokens with the smallest numbers in each example, on ties the first.

    So the tokens chosen at a lower rate are among those chosen at a higher one.
    """
    rows = np.full((len(wanted), int(position.max()) + 1), _NEVER)
    rows[example[maskable], position[maskable]] = numbers[maskable]
    rows.sort(axis=1)
    limits = rows[np.arange(len(wanted)), np.minimum(wanted, rows.shape[1]) - 1]
    chosen = maskable & (numbers < limits[example])
    last = np.flatnonzero(maskable & (numbers == limits[example]))
    left = wanted - np.bincount(example[chosen], minlength=len(wanted))
    chosen[last[_rank_in_group(example[last]) < left[example[last]]]] = True
    return np.flatnonzero(chosen)


def _choose_words(
    numbers: U64, example: Array, maskable: Array, word_starts: Array, wanted: Array
) -> Array:
    """Choose whole words in the order of their numbers, skipping those that do not fit."""
    first, word = _find_words(maskable, word_starts)
    if len(first) == 0:
        return first
    size = np.bincount(word[maskable], minlength=len(first))
    owner = example[first]
    place = _rank_in_group(owner)
    shape = (len(wanted), int(place.max()) + 1)
    rows, sizes = np.full(shape, _NEVER), np.zeros(shape, np.int64)
    rows[owner, place], sizes[owner, place] = numbers[first], size
    order = rows.argsort(axis=1)
    in_turn = np.take_along_axis(sizes, order, axis=1).T.copy()
    taken = np.zeros(shape, bool)
    left, examples = wanted.copy(), np.arange(len(wanted))
    # One turn for the first word of every example, one for the second, and so on.
    for turn, its_size in enumerate(in_turn):
        fits = its_size <= left
        left -= its_size * fits
        taken[examples, order[:, turn]] = fits
        if not left.any():
            break
    return np.flatnonzero(maskable & taken[owner, place][np.maximum(word, 0)])


def _number_spans(numbers: U64, maskable: Array, word_starts: Array, spec: MaskSpec) -> U64:
    """Return for each token the smallest number of the spans that cover it.

    A span begins at any word, has a random length, and never crosses [SEP] or [CLS]. Choosing
    tokens by these numbers chooses span after span in random order; the last one is cut.
    """
    starts = word_starts if spec.whole_word else np.ones_like(word_starts)
    first, word = _find_words(maskable, starts)
    own = numbers[first]
    draws = uniform(hash64(derive(0, "span"), own))
    # The last border may be below 1 by rounding.
    longest = np.searchsorted(np.cumsum(spec.span_shares)[:-1], draws, side="right") + 1
    segment = np.cumsum(~maskable)[first]
    smallest = own.copy()
    for step in range(1, len(spec.span_shares)):
        reaches = (longest[:-step] > step) & (segment[:-step] == segment[step:])
        candidates = np.where(reaches, own[:-step], _NEVER)
        np.minimum(smallest[step:], candidates, out=smallest[step:])
    return np.where(maskable, smallest[np.maximum(word, 0)], _NEVER)


def _find_words(maskable: Array, word_starts: Array) -> tuple[Array, Array]:
    """Return the first token of each word, and the number of the word of each token.

    A word ends at the next word start or special token, so it never spans [SEP] (the reference
    glues a B that was cut inside a word to the last word of A).
    """
    begins = maskable & (word_starts | np.concatenate([[True], ~maskable[:-1]]))
    return np.flatnonzero(begins), np.cumsum(begins) - 1


def _rank_in_group(groups: Array) -> Array:
    """Number the members of each run of equal values from 0."""
    places = np.arange(len(groups))
    starts = np.concatenate([[True], groups[1:] != groups[:-1]])
    return places - np.maximum.accumulate(np.where(starts, places, 0))
