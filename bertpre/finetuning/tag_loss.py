"""The loss of tagging: of single tokens, or of whole sentences with a CRF."""

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from bertpre.finetuning.outputs import LogitObjective, Objective, Targets
from bertpre.finetuning.tag_decoding import pad
from bertpre.finetuning.words import SentenceBatch
from bertpre.model.crf import AllowedTags
from bertpre.model.heads import BertForTokenClassification
from bertpre.model.names import Finetuned


@dataclass(frozen=True, kw_only=True, slots=True)
class TagLoss(Objective):
    """Cross-entropy of each token's tag, or the negative log likelihood of a CRF per token.

    Args:
        of_tokens: the loss without a CRF.
        allowed: sequences that the CRF takes as possible; None: all.
    """

    of_tokens: LogitObjective
    allowed: AllowedTags | None = None

    def loss(self, model: Finetuned, batch: SentenceBatch, targets: Targets) -> Tensor:
        logits = model(batch.pieces, batch.firsts)  # (W, C)
        numbers = np.concatenate([target.numbers for target in targets])
        tags = torch.from_numpy(numbers).to(logits.device)
        crf = cast(BertForTokenClassification, model).crf
        if crf is None:
            return self.of_tokens.of_logits(logits, tags)
        lengths = np.array([len(target.numbers) for target in targets])
        likelihoods = crf.log_likelihood(
            pad(logits, lengths), pad(tags, lengths), batch.lengths, self.allowed
        )
        return -likelihoods.sum() / len(tags)

    def count_units(self, targets: Targets) -> int:
        """Count the tokens."""
        return sum(len(target.numbers) for target in targets)
