"""Heads on the encoder: masked language model, next sentence, classification of texts and tokens.

Size letters: B batch, N real tokens in the batch, P predicted tokens, D hidden_size, V vocab_size,
C classes.
"""

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertpre.config import schema
from bertpre.model.bert import ACTIVATIONS, BertModel, LayerNorm
from bertpre.model.crf import LinearChainCrf
from bertpre.model.flat import (
    Batch,
    FlatTokens,
    Wanted,
    add_filler,
    layout_of,
    make_layout,
    round_up,
)
from bertpre.model.kernels import Dropout, cross_entropy, linear_cross_entropy

Pooling = Literal["cls", "mean", "compare"]


class MlmHead(nn.Module):
    """Score each vocabulary entry as the original of a masked token.

    Dense, activation, layer norm, then the transposed word embedding and a bias. The embedding is
    tied: an argument here, a parameter of the encoder.

    Source: Devlin et al. 2018, section 3.1, task 1; google-research/bert run_pretraining.py,
        "get_masked_lm_output".
    """

    def __init__(self, config: schema.Model, *, vocab_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.norm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, hidden: Tensor, word_embedding: Tensor) -> Tensor:
        """Return (P, V) for hidden states (P, D) and the embedding (V, D)."""
        return F.linear(self.transform(hidden), word_embedding, self.bias)  # (P, D) -> (P, V)

    def transform(self, hidden: Tensor) -> Tensor:
        """Return (P, D), to be compared with the vocabulary."""
        transformed: Tensor = self.norm(self.activation(self.dense(hidden)))
        return transformed


class NspHead(nn.Module):
    """Score "is next" (0) and "random" (1) for a pair of segments.

    Source: Devlin et al. 2018, section 3.1, task 2.
    """

    def __init__(self, config: schema.Model) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, 2)

    def forward(self, pooled_output: Tensor) -> Tensor:
        """Return (B, 2) for pooled output (B, D)."""
        logits: Tensor = self.dense(pooled_output)
        return logits


class PretrainingLogits(NamedTuple):
    """``mlm`` (P, V); ``nsp`` (B, 2), absent without that head."""

    mlm: Tensor
    nsp: Tensor | None


class PretrainingLoss(NamedTuple):
    """Sums over the predicted tokens and over the pairs, 0-dimensional.

    Losses are in nats, fp32; correct counts are int64. They are sums because only the trainer knows
    the counts of the whole global batch.
    """

    mlm_loss_sum: Tensor
    mlm_correct: Tensor
    nsp_loss_sum: Tensor | None
    nsp_correct: Tensor | None


class BertForPreTraining(nn.Module):
    """The encoder with its pretraining heads.

    Args:
        config: the shape.
        vocab_size: rows of the word embedding.
        with_nsp: whether there are a pooler and a next-sentence head.
    """

    def __init__(self, config: schema.Model, *, vocab_size: int, with_nsp: bool) -> None:
        super().__init__()
        self.bert = BertModel(config, vocab_size=vocab_size, with_pooler=with_nsp)
        self.mlm = MlmHead(config, vocab_size=vocab_size)
        self.nsp = NspHead(config) if with_nsp else None

    def forward(self, batch: FlatTokens, predicted: Tensor) -> PretrainingLogits:
        """Score the vocabulary at the predicted tokens, and the pairs.

        Args:
            batch: B sequences.
            predicted: (P,) int64, places in the flat batch, ascending.
        """
        wanted = Wanted.at(predicted, batch, most=batch.max_length)
        hidden, pooled_output = self.bert(batch, wanted)  # (P, D), (B, D)
        mlm_logits = self.mlm(hidden, self.bert.embeddings.word.weight)
        nsp_logits = None if self.nsp is None else self.nsp(pooled_output)
        return PretrainingLogits(mlm_logits, nsp_logits)

    def loss(self, batch: Batch) -> PretrainingLoss:
        """Compute the loss at the predicted tokens without keeping the scores."""
        wanted = Wanted.at(batch.predicted, batch.tokens, most=batch.max_predicted)
        hidden, pooled_output = self.bert(batch.tokens, wanted)  # (P, D), (B, D)
        labels = batch.mlm_labels
        if hidden.device.type == "cpu":
            hidden = add_filler(hidden, round_up(len(labels)))
        hidden = self.mlm.transform(hidden)
        embedding = self.bert.embeddings.word.weight
        mlm = linear_cross_entropy(hidden, embedding, self.mlm.bias, labels)
        if self.nsp is None or batch.nsp_labels is None:
            return PretrainingLoss(*mlm, None, None)
        return PretrainingLoss(*mlm, *cross_entropy(self.nsp(pooled_output), batch.nsp_labels))


def mean_pool(hidden: Tensor, cu_seqlens: Tensor, max_length: int) -> Tensor:
    """Average the tokens of each sequence, [CLS] and [SEP] included.

    Args:
        hidden: (N, D).
        cu_seqlens: (B + 1,) int32.
        max_length: length of the longest sequence.

    Returns:
        (B, D).
    """
    layout = make_layout(cu_seqlens, num_tokens=len(hidden), max_length=max_length)
    sums = layout.pad(hidden).sum(dim=1)  # (N, D) -> (B, T, D) -> (B, D)
    return sums / cu_seqlens.diff()[:, None]


def compare_segments(hidden: Tensor, input_ids: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Concatenate the means of two texts, their differences, and the means of unshared tokens.

    A shallow encoder does not learn by itself which tokens only one of the texts has.

    Args:
        hidden: (B, T, D).
        input_ids: (B, T).
        first: (B, T), 1 at the tokens of the first text, including [CLS], else 0.
        second: the same of the second text.

    Returns:
        (B, 6 D): the mean a of the first, the mean b of the second, |a - b|, a * b, the mean of
        the tokens of the first that the second lacks, and vice versa; 0 if none.

    Source: Conneau et al. 2017, "Supervised learning of universal sentence representations from
        natural language inference data", section 3.1, for the first four; for matching by the
        token itself Chen et al. 2017, "Reading Wikipedia to answer open-domain questions",
        section 3.2 ("exact match").
    """
    is_same = input_ids[:, :, None] == input_ids[:, None, :]  # (B, T) -> (B, T, T)
    no_cls = torch.cat([torch.zeros_like(first[:, :1]), first[:, 1:]], dim=1)
    only_first = no_cls * ~(is_same & (second[:, None, :] > 0)).any(dim=2)
    only_second = second * ~(is_same & (first[:, None, :] > 0)).any(dim=2)
    a, b, without_b, without_a = (
        (hidden * weights[:, :, None]).sum(dim=1) / weights.sum(dim=1, keepdim=True).clamp_min(1)
        for weights in (first, second, only_first, only_second)
    )  # (B, T, D) -> (B, D)
    return torch.cat([a, b, (a - b).abs(), a * b, without_b, without_a], dim=1)


class BertForSequenceClassification(nn.Module):
    """The encoder with a classification head: pooling, dropout, one dense layer.

    Args:
        config: the shape; ``hidden_dropout_prob`` also applies to the head.
        vocab_size: rows of the word embedding.
        num_labels: C.
        pooling: "cls" uses the pooler; "mean" averages the tokens, and "compare" does as
            `compare_segments` says, both without a pooler.

    Source: Devlin et al. 2018, section 4.1.
    """

    def __init__(
        self,
        config: schema.Model,
        *,
        vocab_size: int,
        num_labels: int,
        pooling: Pooling,
    ) -> None:
        super().__init__()
        self.pooling = pooling
        self.bert = BertModel(config, vocab_size=vocab_size, with_pooler=pooling == "cls")
        self.dropout = Dropout(config.hidden_dropout_prob)
        width = config.hidden_size * (6 if pooling == "compare" else 1)
        self.classifier = nn.Linear(width, num_labels)

    def forward(self, batch: FlatTokens) -> Tensor:
        """Return logits (B, C)."""
        # The pooler reads [CLS] alone, the other forms read all tokens.
        wanted = Wanted.none(batch) if self.pooling == "cls" else None
        hidden, pooled = self.bert(batch, wanted)
        if self.pooling == "compare":
            layout = layout_of(batch)
            second = batch.token_type_ids.to(hidden.dtype)
            pooled = compare_segments(
                layout.pad(hidden),
                layout.pad(batch.input_ids),
                layout.pad(1 - second),
                layout.pad(second),
            )
        elif pooled is None:
            pooled = mean_pool(hidden, batch.cu_seqlens, batch.max_length)
        # In fp32, as bf16 has only 64 values between 3 and 4, and ranks would tie.
        with torch.autocast(pooled.device.type, enabled=False):
            logits: Tensor = self.classifier(self.dropout(pooled.float()))
        return logits


class BertForTokenClassification(nn.Module):
    """The encoder, without a pooler, with a label for each token: dropout, one dense layer.

    Args:
        config: the shape; ``hidden_dropout_prob`` also applies to the head.
        vocab_size: rows of the word embedding.
        num_labels: C.
        has_crf: whether there is a CRF, which takes the logits as scores; `forward` leaves it out.

    Source: Devlin et al. 2018, section 5.3.
    """

    def __init__(
        self, config: schema.Model, *, vocab_size: int, num_labels: int, has_crf: bool
    ) -> None:
        super().__init__()
        self.bert = BertModel(config, vocab_size=vocab_size, with_pooler=False)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, num_labels)
        self.crf = LinearChainCrf(num_labels) if has_crf else None

    def forward(self, batch: FlatTokens, wanted: Wanted | None = None) -> Tensor:
        """Return logits in fp32, (N, C), or (R, C) of the wanted tokens."""
        hidden, _ = self.bert(batch, wanted)
        with torch.autocast(hidden.device.type, enabled=False):
            logits: Tensor = self.classifier(self.dropout(hidden.float()))
        return logits


Classifier = BertForSequenceClassification | BertForTokenClassification
