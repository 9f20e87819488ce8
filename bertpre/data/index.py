"""The index of a data folder: the examples of each pass, and the held-out ones.

Examples that need no drawn pairs are made here: packed sentences, and rows of a table.
"""

import itertools
import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertpre.config.schema import MakeData
from bertpre.data.examples import (
    NO_LABEL,
    RECORD,
    Drawn,
    make_records,
    map_records,
    sort_by_document,
)
from bertpre.data.pairs import PairRules, balance, draw_next_pairs, draw_order_pairs, share_room
from bertpre.data.random64 import derive, permute
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

_NO_NSP_FROM_COLUMNS = (
    "turn next-sentence prediction off with --objective mlm, or mark the start of each document of "
    "several sentences by a line -DOCSTART-"
)


class DrawnIndex(NamedTuple):
    """What `write_index` wrote.

    Attributes:
        pass_ends: number of training examples up to the end of each pass.
        unused: tokens that fit in no training example, over all passes.
        num_held_out: examples.
    """

    pass_ends: list[int]
    unused: int
    num_held_out: int


class IdCounts(NamedTuple):
    """How often each id occurs, int64, (vocab_size,).

    Attributes:
        everywhere: in the whole text.
        in_training: in the training text, for the unigram baseline.
    """

    everywhere: npt.NDArray[np.int64]
    in_training: npt.NDArray[np.int64]


def check_pairs_possible(
    store: TokenStore, training: SplitDocuments, *, has_columns: bool = False
) -> None:
    """Refuse text that cannot supply both true and random next sentences.

    Args:
        store: the tokens of all documents.
        training: the documents to draw from.
        has_columns: whether the text was files of columns, for the hint.

    Raises:
        CorpusError: no two documents differ, or none has two sentences.
    """
    hint = _NO_NSP_FROM_COLUMNS if has_columns else _NO_NSP
    if training.num_distinct < 2:
        raise CorpusError(
            f"next-sentence prediction needs two different documents to draw random sentences "
            f"from; found documents: {store.num_documents:,}, different ones: "
            f"{training.num_distinct}, sentences: {store.num_sentences:,}",
            hint,
        )
    one = sum(
        int((training.end[block] - training.first[block] == 1).sum()) for block in training.blocks()
    )
    if one == len(training):
        raise CorpusError(
            f"next-sentence prediction needs documents of at least two sentences; 100 % of the "
            f"{one:,} training documents have only one",
            hint,
        )
    if one > len(training) / 2:
        log.warning(
            "%d of %d training documents (%.0f %%) have only one sentence and yield "
            "only random pairs; --objective mlm may suit this text better",
            one,
            len(training),
            100 * one / len(training),
        )


def write_index(
    folder: Path,
    splits: tuple[SplitDocuments, SplitDocuments],
    config: MakeData,
    *,
    seed: int,
    passes: int,
) -> DrawnIndex:
    """Write the training examples to ``examples.bin`` and the others to ``held-out.bin``.

    Args:
        folder: where they go.
        splits: training and held-out documents.
        config: how examples are made.
        seed: decides the pairs.
        passes: over the training documents.

    Raises:
        CorpusError: there is no example.
    """
    training, held_out = splits
    pass_ends, unused = _write_training_examples(
        folder / "examples.bin", training, config, seed=seed, passes=passes
    )
    num_held_out = _write_held_out_examples(folder / "held-out.bin", held_out, config, seed=seed)
    return DrawnIndex(pass_ends, unused, num_held_out)


def _write_training_examples(
    path: Path, training: SplitDocuments, config: MakeData, *, seed: int, passes: int
) -> tuple[list[int], int]:
    """Write one pass after another, a block of documents at a time."""
    draw = _choose_procedure(training, config, balance_key=derive(seed, "balance"))
    drawn = draw([derive(seed, "pairs", number) for number in range(passes)])
    ends, unused = _write_passes(path, drawn, passes)
    total = ends[-1]
    if total == 0:
        raise CorpusError(
            f"no pair can be made: each of the {len(training):,} training documents is a single "
            "token",
            "pass --objective mlm, or use longer documents",
        )
    if config.balance_nsp and config.objective == "mlm-nsp":
        share = float(map_records(path)["label"].mean())
        # More than chance explains for so few pairs.
        if share - 0.5 > max(_BALANCE_MISSED, 1 / np.sqrt(total)):
            log.warning(
                "%.0f %% of the pairs are random, though --balance-nsp asks for half: too many "
                "documents end with a sentence that nothing follows",
                100 * share,
            )
    return ends, unused


def _write_passes(path: Path, drawn: Iterable[Drawn], passes: int) -> tuple[list[int], int]:
    """Write blocks of several passes, pass by pass; return where each ends, and unused tokens."""
    unused = 0
    with tempfile.TemporaryFile(dir=path.parent) as file, path.open("wb") as ordered:
        places: list[list[tuple[int, int]]] = [[] for _ in range(passes)]
        for block in drawn:
            places[block.number].append((file.tell(), block.records.nbytes))
            file.write(block.records.tobytes())
            unused += block.unused
        for start, size in itertools.chain.from_iterable(places):
            file.seek(start)
            ordered.write(file.read(size))
    sizes = [sum(size for _, size in places_of_pass) for places_of_pass in places]
    return [end // RECORD.itemsize for end in itertools.accumulate(sizes)], unused


def _write_held_out_examples(
    path: Path, held_out: SplitDocuments, config: MakeData, *, seed: int
) -> int:
    """Write one pass of at most `MOST_HELD_OUT` examples, and return their number."""
    records = np.zeros(0, RECORD)
    if len(held_out) == 0:
        if config.eval_fraction > 0:
            log.warning(
                "no document has a third sentence to hold out, so there is no held-out loss"
            )
    elif config.objective == "mlm-nsp" and held_out.num_distinct < 2:
        log.warning(
            "the held-out text is one document, but NSP needs two: there are no held-out examples"
        )
    else:
        # On disk first, as there may be many more than are kept.
        draw = _choose_procedure(held_out, config, balance_key=derive(seed, "held-out balance"))
        with path.open("wb") as file:
            for drawn in draw([derive(seed, "held-out pairs")]):
                file.write(drawn.records.tobytes())
        records = map_records(path)
        kept = np.arange(len(records))
        if len(records) > MOST_HELD_OUT:
            key = derive(seed, "held-out sample")
            kept = np.sort(permute(np.arange(MOST_HELD_OUT), len(records), key))
        records = records[kept]
    records.tofile(path)
    return len(records)


def count_ids(store: TokenStore, held_out: SplitDocuments, vocab_size: int) -> IdCounts:
    """Count each id in the whole text, and in the training text."""
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
    return IdCounts(everything, training)


def pack_sentences(documents: SplitDocuments, *, max_seq_length: int) -> Iterator[Drawn]:
    """Pack consecutive sentences of a document up to the budget.

    A sentence longer than the budget is split; no token is lost.

    Args:
        documents: any number of them.
        max_seq_length: most tokens of an example, two special ones included.

    Source: Liu et al. 2019 (RoBERTa), section 4.2, DOC-SENTENCES, but for the splitting.
    """
    budget = max_seq_length - 2
    store = documents.store
    for block in documents.blocks():
        records, owners = [], []
        starts, ends = documents.token_spans(block)
        while len(starts):
            # The last sentence boundary within the budget; if there is none, split the sentence.
            borders = np.minimum(
                store.sentences_at(starts + budget, side="right") - 1, documents.end[block]
            )
            reached = store.token_offsets(borders)
            reached = np.where(reached > starts, reached, starts + budget)
            zeros = np.zeros(len(starts), np.int64)
            records.append(make_records(starts, zeros, reached - starts, zeros, NO_LABEL))
            owners.append(block)
            going = reached < ends
            block, starts, ends = block[going], reached[going], ends[going]
        yield Drawn(sort_by_document(records, owners))


def fit_table_pairs(documents: SplitDocuments, *, max_seq_length: int) -> Iterator[Drawn]:
    """Turn each row of a table of pairs into an example.

    A pair that is too long is cut at the end, one token at a time from the longer side, as in
    fine-tuning; a row with an empty side becomes a single segment.

    Args:
        documents: the rows, of one or two sentences each.
        max_seq_length: most tokens of an example, special ones included.
    """
    for block in documents.blocks():
        a, end = documents.token_spans(block)
        first = documents.first[block]
        is_pair = documents.end[block] - first > 1
        b = np.where(is_pair, documents.store.token_offsets(first + 1), end)
        a_kept, b_kept = share_room(b - a, end - b, max_seq_length - 3)
        alone = np.minimum(b - a, max_seq_length - 2)
        yield Drawn(
            make_records(
                a,
                np.where(is_pair, b, 0),
                np.where(is_pair, a_kept, alone),
                np.where(is_pair, b_kept, 0),
                NO_LABEL,
            )
        )


def _choose_procedure(
    documents: SplitDocuments, config: MakeData, *, balance_key: int
) -> Callable[[Sequence[int]], Iterator[Drawn]]:
    """Return a function that draws the examples of some passes, given a key for each."""
    length = config.max_seq_length
    if config.text.pair_column is not None:
        return lambda keys: _repeat(fit_table_pairs(documents, max_seq_length=length), len(keys))
    if config.objective == "mlm":
        return lambda keys: _repeat(pack_sentences(documents, max_seq_length=length), len(keys))
    rules = PairRules(max_seq_length=length, short_seq_prob=config.short_seq_prob)
    if config.objective == "mlm-sop":
        return lambda keys: draw_order_pairs(documents, rules, keys=keys)
    if config.balance_nsp:
        rules = balance(documents, rules, key=balance_key)
    return lambda keys: draw_next_pairs(documents, rules, keys=keys)


def _repeat(drawn: Iterable[Drawn], passes: int) -> Iterator[Drawn]:
    """Yield examples, which nothing random decides, for each pass."""
    for block in drawn:
        for number in range(passes):
            yield block._replace(number=number)
