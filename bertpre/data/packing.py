"""Text without sentence pairs: consecutive sentences packed up to the budget, as offsets."""

from collections.abc import Iterator

import numpy as np

from bertpre.data.records import NO_LABEL, Drawn, in_order, make_records
from bertpre.data.split import SplitDocuments


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
            # The last border of sentences within reach; without one, a long sentence is split.
            borders = np.minimum(
                store.sentences_at(starts + budget, side="right") - 1, documents.last[block]
            )
            reached = store.token_offsets(borders)
            reached = np.where(reached > starts, reached, starts + budget)
            zeros = np.zeros(len(starts), np.int64)
            records.append(make_records(starts, zeros, reached - starts, zeros, NO_LABEL))
            owners.append(block)
            going = reached < ends
            block, starts, ends = block[going], reached[going], ends[going]
        yield Drawn(in_order(records, owners))
