"""Writing the targets of sources with one model or several, and scoring true targets."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from bertpre.finetuning.batches import batches_by_length
from bertpre.finetuning.beam_search import Hypothesis, SearchOptions, search
from bertpre.finetuning.encoded_pairs import EncodedSources
from bertpre.finetuning.running import MOST_TOKENS, Placement, Run
from bertpre.finetuning.tables import Rows
from bertpre.model.decoder import TextGenerator, TextPairs
from bertpre.model.stepping import JointSteps, Steps
from bertpre.training.device import autocast

_MOST_HYPOTHESES = 256  # in one step
_MOST_SCORES = 2**24  # of the vocabulary, in one pass over true targets


def write_targets(
    runs: Sequence[Run],
    rows: Rows,
    *,
    options: SearchOptions,
    placement: Placement,
) -> list[list[Hypothesis]]:
    """Search the best targets of some sources; several models average their probabilities.

    Args:
        runs: models with the same tokenizer, each with its own encoding of the sources.
        rows: which sources.
        options: how to search.
        placement: where the models are.

    Returns:
        For each row its hypotheses, the best first.
    """
    first = _sources(runs[0])
    found: list[list[Hypothesis]] = [[] for _ in rows]
    lengths = np.max([_sources(run).lengths[rows] for run in runs], axis=0)
    most_rows = max(1, _MOST_HYPOTHESES // options.num_beams)
    # Not inference_mode, in which autocast would convert the weights anew at each step.
    with torch.no_grad():
        for group in batches_by_length(lengths, most_tokens=MOST_TOKENS):
            for places in np.array_split(group, -(-len(group) // most_rows)):
                with autocast(*placement):
                    members = [
                        Steps(_model(run), _sources(run).batch(rows[places], placement.device))
                        for run in runs
                    ]
                    texts = search(
                        members[0] if len(members) == 1 else JointSteps(members),
                        len(places),
                        options=options,
                        start_id=first.tokenizer.cls_id,
                        end_id=first.tokenizer.sep_id,
                        device=placement.device,
                    )
                for place, text in zip(places, texts, strict=True):
                    found[place] = text
    return found


def score_targets(
    runs: Sequence[Run], rows: Rows, *, placement: Placement
) -> npt.NDArray[np.float64]:
    """Return the log probability of the true target of each row, (rows,), [SEP] included.

    Arguments as in `write_targets`; of several models, the probabilities of each token are
    averaged.
    """
    each = np.stack([_score_tokens(run, rows, placement=placement) for run in runs])
    tokens = np.logaddexp.reduce(each, axis=0) - np.log(len(runs))
    lengths = _sources(runs[0]).label_lengths[rows]
    return np.asarray(np.add.reduceat(tokens, np.cumsum(lengths) - lengths))


def _score_tokens(run: Run, rows: Rows, *, placement: Placement) -> npt.NDArray[np.float64]:
    """Return the log probability of each token of the true targets, in order."""
    model, texts = _model(run), _sources(run)
    lengths = texts.label_lengths[rows]
    starts = np.cumsum(lengths) - lengths
    scores = np.empty(lengths.sum())
    with torch.inference_mode():
        sizes = texts.lengths[rows] + lengths
        for group in batches_by_length(sizes, most_tokens=MOST_TOKENS):
            with autocast(*placement):
                found = _log_probabilities(model, texts.pairs(rows[group], placement.device))
            parts = np.split(found.double().cpu().numpy(), np.cumsum(lengths[group])[:-1])
            for place, part in zip(group, parts, strict=True):
                scores[starts[place] : starts[place] + len(part)] = part
    return scores


def _log_probabilities(model: TextGenerator, pairs: TextPairs) -> Tensor:
    """Return that of each label, (M,)."""
    hidden = model.mlm.transform(model.decode(pairs.source, pairs.target))
    hidden = hidden[: len(pairs.labels)]
    block = max(1, _MOST_SCORES // len(model.word_embedding))
    return -torch.cat(
        [
            F.cross_entropy(
                F.linear(part, model.word_embedding, model.mlm.bias).float(),
                labels,
                reduction="none",
            )
            for part, labels in zip(
                torch.split(hidden, block), torch.split(pairs.labels, block), strict=True
            )
        ]
    )


def _model(run: Run) -> TextGenerator:
    return cast(TextGenerator, run.model.eval())


def _sources(run: Run) -> EncodedSources:
    assert isinstance(run.texts, EncodedSources)
    return run.texts
