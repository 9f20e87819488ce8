"""Sources and targets as tokens: encoding, batches for training, and their loss."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertpre.finetuning.batches import EncodedTexts, Encoder, Ids
from bertpre.finetuning.outputs import Objective, Targets
from bertpre.finetuning.words import ranges
from bertpre.model.decoder import TextGenerator, TextPairs
from bertpre.model.flat import FlatTokens
from bertpre.model.names import Finetuned
from bertpre.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedSources(EncodedTexts):
    """Sources, each as one sequence, and their targets if these are known.

    Args:
        tokenizer: of sources and targets.
        label_ids: (M,) int32, y1 ... ym [SEP] of each row; no [SEP] if the target was cut.
        label_starts: (rows + 1,) int64; None if there are no targets.
        num_cut_targets: rows whose target was cut.
    """

    tokenizer: Tokenizer
    label_ids: npt.NDArray[np.int32]
    label_starts: Ids | None = None
    num_cut_targets: int = 0

    @property
    def label_lengths(self) -> Ids:
        """Tokens to predict in each row, (rows,); 0 without targets."""
        if self.label_starts is None:
            return np.zeros(len(self), dtype=np.int64)
        return np.diff(self.label_starts)

    def draw_batch(
        self,
        rows: Ids,
        key: int,
        device: torch.device,
        hide: Callable[[Ids, Ids], Ids] | None = None,
    ) -> TextPairs:
        """Build a training batch of some rows, in which nothing is drawn; ``hide`` for sources."""
        return self.pairs(rows, device, hide)

    def pairs(
        self,
        rows: Ids,
        device: torch.device,
        hide: Callable[[Ids, Ids], Ids] | None = None,
    ) -> TextPairs:
        """Build a batch of sources and targets; arguments as in `EncodedTexts.batch`."""
        assert self.label_starts is not None
        lengths = self.label_lengths[rows]
        ends = np.cumsum(lengths)
        labels = self.label_ids[ranges(self.label_starts[rows], lengths)].astype(np.int64)
        inputs = np.roll(labels, 1)
        inputs[ends - lengths] = self.tokenizer.cls_id
        positions = np.arange(len(labels)) - np.repeat(ends - lengths, lengths)
        target = FlatTokens(
            input_ids=torch.from_numpy(inputs).to(device),
            token_type_ids=torch.zeros(len(inputs), dtype=torch.int64, device=device),
            position_ids=torch.from_numpy(positions).to(device),
            cu_seqlens=torch.from_numpy(np.concatenate([[0], ends]).astype(np.int32)).to(device),
            max_length=int(lengths.max()),
        )
        return TextPairs(
            source=self.batch(rows, device, hide),
            target=target,
            labels=torch.from_numpy(labels).to(device),
        )


def encode_sources(
    encoder: Encoder,
    texts: Iterable[str],
    pairs: Iterable[str] | None = None,
    *,
    targets: Iterable[str] | None = None,
    max_target_length: int = 0,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> EncodedSources:
    """Encode sources, and targets if given.

    Args:
        encoder: how sources are encoded.
        texts: the sources.
        pairs: their second texts, if any.
        targets: as many.
        max_target_length: longer targets are cut, and teach no end.
        on_rows: called with the number of rows done.
    """
    source = encoder.texts(texts, pairs, on_rows=on_rows)
    values = {name: getattr(source, name) for name in EncodedTexts.__dataclass_fields__}
    values |= {"tokenizer": encoder.tokenizer, "label_ids": np.zeros(0, dtype=np.int32)}
    if targets is None:
        return EncodedSources(**values)
    end = [encoder.tokenizer.sep_id]
    labels = encode_targets(encoder.tokenizer, targets)
    num_cut = sum(len(ids) > max_target_length for ids in labels)
    labels = [
        ids[:max_target_length] if len(ids) > max_target_length else np.concatenate([ids, end])
        for ids in labels
    ]
    return EncodedSources(
        **values
        | {
            "label_ids": np.concatenate(labels).astype(np.int32),
            "label_starts": np.cumsum([0, *map(len, labels)]),
            "num_cut_targets": num_cut,
        }
    )


def encode_targets(tokenizer: Tokenizer, targets: Iterable[str]) -> list[Ids]:
    """Return the ids of each target, without [CLS] and [SEP]."""
    found = tokenizer.encode_all(list(targets))
    return np.split(found.ids.astype(np.int64), np.cumsum(found.lengths)[:-1])


@dataclass(frozen=True, kw_only=True, slots=True)
class NextTokenLoss(Objective):
    """Cross-entropy of every token of the targets, [SEP] included.

    Args:
        label_smoothing: share of each token to spread over the vocabulary.
    """

    label_smoothing: float

    def loss(self, model: Finetuned, batch: TextPairs, targets: Targets) -> Tensor:
        generator = cast(TextGenerator, model)
        loss_sum = generator.loss(batch, label_smoothing=self.label_smoothing)
        return loss_sum / len(batch.labels)

    def count_units(self, targets: Targets) -> int:
        """Count the tokens."""
        return sum(target.num_tokens for target in targets)
