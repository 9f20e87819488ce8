"""Small models and batches for the tests of the model; everything is seeded."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from bertpre.config import schema
from bertpre.model.bert import initialize
from bertpre.model.flat import Batch, FlatTokens, flatten
from bertpre.model.heads import BertForPreTraining

VOCAB_SIZE = 50


class Padded(NamedTuple):
    """A padded batch, and what a pretraining loss needs besides."""

    input_ids: Tensor  # (B, T)
    attention_mask: Tensor  # (B, T) bool
    token_type_ids: Tensor  # (B, T)
    mlm_labels: Tensor  # (B, T), -100 where nothing is predicted
    nsp_labels: Tensor  # (B,)

    @property
    def flat(self) -> FlatTokens:
        return flatten(self.input_ids, self.attention_mask, self.token_type_ids)

    @property
    def predicted(self) -> Tensor:
        return (self.mlm_labels[self.attention_mask] != -100).nonzero().squeeze(1)

    @property
    def predicted_labels(self) -> Tensor:
        return self.mlm_labels[self.mlm_labels != -100]


@pytest.fixture
def to_predict() -> Callable[..., Batch]:
    """A function: sequences and what is to be predicted in them, as one batch."""

    def put_together(
        flat: FlatTokens, predicted: Tensor, labels: Tensor, nsp_labels: Tensor | None
    ) -> Batch:
        counts = torch.searchsorted(predicted, flat.cu_seqlens.long()).diff()
        return Batch(
            tokens=flat,
            predicted=predicted,
            max_predicted=int(counts.max()),
            mlm_labels=labels,
            nsp_labels=nsp_labels,
        )

    return put_together


@pytest.fixture
def make_config() -> Callable[..., schema.Model]:
    """A function: options to a small model's config, without dropout unless asked for."""

    def make(**changes: Any) -> schema.Model:
        options: dict[str, Any] = {
            "hidden_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "intermediate_size": 40,
            "max_position_embeddings": 16,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        }
        return schema.Model(**{**options, **changes})

    return make


@pytest.fixture
def randomize() -> Callable[[nn.Module], None]:
    """A function that gives every parameter, biases and layer norms too, a value of its own."""

    def set_all(module: nn.Module) -> None:
        generator = torch.Generator().manual_seed(11)
        initialize(module, 0.2, generator)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)

    return set_all


@pytest.fixture
def build(
    make_config: Callable[..., schema.Model], randomize: Callable[[nn.Module], None]
) -> Callable[..., BertForPreTraining]:
    """A function: options to a small pretraining model with weights of its own."""

    def build(*, with_nsp: bool = True, **changes: Any) -> BertForPreTraining:
        model = BertForPreTraining(make_config(**changes), vocab_size=VOCAB_SIZE, with_nsp=with_nsp)
        randomize(model)
        return model

    return build


@pytest.fixture
def pairs() -> Padded:
    """Five pairs of unequal lengths, padded with ids that must not matter."""
    generator = torch.Generator().manual_seed(5)
    lengths = torch.tensor([12, 5, 9, 3, 12])
    columns = torch.arange(12)[None]
    keep = columns < lengths[:, None]
    input_ids = torch.randint(1, VOCAB_SIZE, (5, 12), generator=generator)
    segments = (columns >= lengths[:, None] // 2).long()
    labels = torch.randint(1, VOCAB_SIZE, (5, 12), generator=generator)
    chosen = (torch.rand((5, 12), generator=generator) < 0.3) & keep
    chosen[:, 1] = True
    return Padded(
        input_ids=input_ids,
        attention_mask=keep,
        token_type_ids=segments,
        mlm_labels=labels.masked_fill(~chosen, -100),
        nsp_labels=torch.tensor([0, 1, 1, 0, 1]),
    )
