"""The index of a data folder: the examples of each pass, and the held-out ones."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertpre.config.schema import MakeData
from bertpre.data.packing import pack_sentences
from bertpre.data.pairs import (
    PairRules,
    balance,
    draw_next_pairs,
    draw_order_pairs,
    take_pairs,
)
from bertpre.data.random64 import derive, permute
from bertpre.data.records import RECORD, Drawn, map_records
from bertpre.data.split import SplitDocuments
from bertpre.data.tokens import TokenStore
from bertpre.errors import CorpusError

log = logging.getLogger(__name__)

MOST_HELD_OUT = 10_000
_BALANCE_MISSED = 0.02
_TOKENS_AT_ONCE = 1 << 20
DUPE_FACTOR = {"mlm-nsp": 5, "mlm-sop": 5, "mlm": 1}  # with one pass, pairs would be memorised

_NO_NSP = (
    "separate documents by blank lines, cut longer texts with --sentences split or window:N, "
    "or turn next-sentence prediction off with --objective mlm"
)


class TrainingIndex(NamedTuple):
    """What `write_training_index` wrote.

    Attributes:
        pass_ends: how many examples there are after each pass.
        unused: tokens that no example could take, all passes together.
    """

    pass_ends: list[int]
    unused: int


def check_pairs_possible(store: TokenStore, training: SplitDocuments) -> None:
    """Refuse text in which the next sentence cannot be told from a random one.

    Raises:
        CorpusError: there is only one document (of that text), or none of two sentences.
    """
    if training.num_distinct < 2:
        raise CorpusError(
            f"next-sentence prediction needs two different documents to draw random sentences "
            f"from; found documents: {store.num_documents:,}, different ones: "
            f"{training.num_distinct}, sentences: {store.num_sentences:,}",
            _NO_NSP,
        )
    one = sum(
        int((training.last[block] - training.first[block] == 1).sum())
        for block in training.blocks()
    )
    if one == len(training):
        raise CorpusError(
            f"next-sentence prediction needs documents of two sentences or more; 100 % of the "
            f"{one:,} training documents have one",
            _NO_NSP,
        )
    if one > len(training) / 2:
        log.warning(
            "%d of %d training documents (%.0f %%) have one sentence and only give random pairs; "
            "--objective mlm may suit this text better",
            one,
            len(training),
            100 * one / len(training),
        )


def write_training_index(
    index: Path, training: SplitDocuments, config: MakeData, *, seed: int, passes: int
) -> TrainingIndex:
    """Write ``examples.bin``, one pass after another, a block of documents at a time.

    Raises:
        CorpusError: there is no example.
    """
    ends, total, unused = [], 0, 0
    path = index / "examples.bin"
    draw = _way_to_draw(training, config, balance_key=derive(seed, "balance"))
    with path.open("wb") as file:
        for number in range(passes):
            for drawn in draw(derive(seed, "pairs", number)):
                file.write(drawn.records.tobytes())
                total += len(drawn.records)
                unused += drawn.unused
            ends.append(total)
    if total == 0:
        raise CorpusError(
            f"no pair can be made: each of the {len(training):,} training documents is a single "
            "token",
            "pass --objective mlm, or larger documents",
        )
    if config.balance_nsp and config.objective == "mlm-nsp":
        share = float(map_records(path)["label"].mean())
        # Beyond what chance does to so few pairs.
        if share - 0.5 > max(_BALANCE_MISSED, 1 / np.sqrt(total)):
            log.warning(
                "%.0f %% of the pairs are random, though --balance-nsp asks for half: too many "
                "documents end with a sentence that nothing follows",
                100 * share,
            )
    return TrainingIndex(ends, unused)


def write_held_out_index(
    index: Path, held_out: SplitDocuments, config: MakeData, *, seed: int
) -> int:
    """Write ``held-out.bin``, of one pass, and return how many examples it has."""
    records = np.zeros(0, RECORD)
    if len(held_out) == 0:
        if config.eval_fraction > 0:
            log.warning(
                "no document has a third sentence to hold out, so there is no held-out loss"
            )
    elif config.objective == "mlm-nsp" and held_out.num_distinct < 2:
        log.warning("the held-out text is one document: no held-out examples, as NSP needs two")
    else:
        # On disk first, as there may be many more than are kept.
        path = index / "held-out.bin"
        draw = _way_to_draw(held_out, config, balance_key=derive(seed, "held-out balance"))
        with path.open("wb") as file:
            for drawn in draw(derive(seed, "held-out pairs")):
                file.write(drawn.records.tobytes())
        records = map_records(path)
        kept = np.arange(len(records))
        if len(records) > MOST_HELD_OUT:
            key = derive(seed, "held-out sample")
            kept = np.sort(permute(np.arange(MOST_HELD_OUT), len(records), key))
        records = records[kept]
    records.tofile(index / "held-out.bin")
    return len(records)


def count_ids(
    store: TokenStore, held_out: SplitDocuments, vocab_size: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Count each id in the whole text, and in the training text.

    The latter is the unigram model that a loss is compared with.
    """
    everything = np.zeros(vocab_size, np.int64)
    for block in store.id_blocks():
        everything += np.bincount(block, minlength=vocab_size)
    training = everything.copy()
    for block in held_out.blocks():
        starts, ends = held_out.token_spans(block)
        parts = np.cumsum(ends - starts) // _TOKENS_AT_ONCE
        for part in np.split(np.arange(len(block)), np.flatnonzero(np.diff(parts)) + 1):
            ids, _ = store.gather(starts[part], lengths=(ends - starts)[part])
            training -= np.bincount(ids, minlength=vocab_size)
    return everything, training


def _way_to_draw(
    documents: SplitDocuments, config: MakeData, *, balance_key: int
) -> Callable[[int], Iterator[Drawn]]:
    """Return what draws the examples of a pass from a key."""
    length = config.max_seq_length
    if config.text.pair_column is not None:
        return lambda _: take_pairs(documents, max_seq_length=length)
    if config.objective == "mlm":
        return lambda _: pack_sentences(documents, max_seq_length=length)
    rules = PairRules(max_seq_length=length, short_seq_prob=config.short_seq_prob)
    if config.objective == "mlm-sop":
        return lambda key: draw_order_pairs(documents, rules, key=key)
    if config.balance_nsp:
        rules = balance(documents, rules, key=balance_key)
    return lambda key: draw_next_pairs(documents, rules, key=key)
