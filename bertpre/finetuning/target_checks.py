"""What a tokenizer makes of targets: lengths, unknown tokens, and what can be written back."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bertpre.errors import ConfigError, CorpusError, shorten
from bertpre.finetuning.tables import LabelledTable
from bertpre.tokenizer.spacing import Spacing, round_trip_share

if TYPE_CHECKING:
    from bertpre.config.schema import Model
    from bertpre.tokenizer.tokenizer import Tokenizer

log = logging.getLogger(__name__)

_MOST_UNKNOWN = 0.05  # of the tokens of the targets
_MANY_CUT = 0.02  # of the targets
_MANY_CHANGED = 0.05  # of the targets


class TargetFacts(NamedTuple):
    """What the training targets show.

    Attributes:
        max_target_length: most tokens of a text to write.
        max_learnt_length: most tokens of a training target; longer ones are cut.
        spacing: where spaces are between words.
        repeating: the share of targets that have the same three tokens twice.
        shown: the facts, for display.
    """

    max_target_length: int
    max_learnt_length: int
    spacing: Spacing
    repeating: float
    shown: dict[str, str]


def examine_targets(
    tokenizer: "Tokenizer", shape: "Model", train: LabelledTable, *, asked: int | None
) -> TargetFacts:
    """Look at the training targets.

    Args:
        tokenizer: that of the checkpoint.
        shape: of the model.
        train: the training table.
        asked: the option ``max_target_length``.

    Raises:
        ConfigError: more tokens are asked for than there are positions.
        CorpusError: the targets cannot be written with this vocabulary.
    """
    kmer = tokenizer.kmer
    if kmer is not None and kmer.stride != kmer.length:
        raise CorpusError(
            f"{train.name}: the targets cannot be written as overlapping {kmer.length}-mers",
            f"use a tokenizer of the mode kmer:{kmer.length}:{kmer.length}",
        )
    room = check_target_length(shape, asked)
    encoded = tokenizer.encode_all(train.labels)
    lengths = encoded.lengths
    num_unknown = int((encoded.ids == tokenizer.unk_id).sum())
    share = num_unknown / max(1, len(encoded.ids))
    if share > _MOST_UNKNOWN:
        raise CorpusError(
            f"{train.name}: {share:.1%} of the tokens of the targets are [UNK], which cannot be "
            f"written; expected at most {_MOST_UNKNOWN:.0%}",
            "build the vocabulary from sources and targets, with --pair-column",
        )
    limit = room if asked is None else asked
    spacing = Spacing.learn(tokenizer, train.labels)
    unchanged = round_trip_share(tokenizer, spacing, train.labels)
    num_cut = int((lengths > limit).sum())
    if num_cut > _MANY_CUT * len(lengths):
        more = (
            f"--max-target-length up to {room:,}" if limit < room else "a model with more positions"
        )
        log.warning(
            "%s of %s training targets have more than %s tokens and are cut, so the model does not "
            "learn where they end; %s would keep more",
            *(f"{count:,}" for count in (num_cut, len(lengths), limit)),
            more,
        )
    _warn_of_changed_text(tokenizer, train.labels)
    shown = {
        "target tokens": f"{np.mean(lengths):.1f} on average, {lengths.max():,} at most",
        f"targets cut at {limit:,} tokens": f"{num_cut:,} ({num_cut / len(lengths):.1%})",
        "target tokens that are [UNK]": f"{num_unknown:,} ({share:.1%})",
        "targets that can be written exactly": f"{unchanged:.1%}",
    }
    targets = np.split(encoded.ids, np.cumsum(lengths)[:-1])
    repeating = sum(has_repeats(target.tolist()) for target in targets) / len(targets)
    longest = min(limit, 2 * int(lengths.max()))
    return TargetFacts(longest, limit, spacing, repeating, shown)


def has_repeats(ids: Sequence[int]) -> bool:
    """Return whether the same three tokens in a row occur twice."""
    triples = list(zip(ids, ids[1:], ids[2:], strict=False))
    return len(set(triples)) < len(triples)


def _warn_of_changed_text(tokenizer: "Tokenizer", targets: Sequence[str]) -> None:
    """Warn if targets lose upper case, accents or the like before they are cut into tokens."""

    def bare(text: str) -> str:
        return "".join(text.split())  # spaces around Han characters are no change

    changed = [text for text in targets if bare(tokenizer.normalize(text)) != bare(text)]
    if len(changed) > _MANY_CHANGED * len(targets):
        log.warning(
            "the tokenizer changes %s of %s training targets, which the model can then never write "
            "as they are: %s becomes %s; a vocabulary built with --no-lowercase keeps case and "
            "accents",
            f"{len(changed):,}",
            f"{len(targets):,}",
            shorten(changed[0]),
            shorten(" ".join(tokenizer.normalize(changed[0]).split())),
        )


def check_target_length(shape: "Model", asked: int | None) -> int:
    """Return the most tokens of a target.

    Raises:
        ConfigError: more are asked for.
    """
    room = shape.max_position_embeddings - 1  # [CLS] has one
    if asked is not None and asked > room:
        raise ConfigError(
            f"max_target_length: {asked:,}, but with [CLS] a decoder has room for {room:,} tokens",
            f"pass --max-target-length {room} or less",
        )
    return room
