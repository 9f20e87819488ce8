"""The last layer computes the tokens that are read, and gives them what it would give them all."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bertpre.config import schema
from bertpre.model.bert import BertModel, initialize
from bertpre.model.flat import FlatTokens, Wanted, flatten
from bertpre.model.heads import BertForPreTraining, BertForSequenceClassification

LENGTHS = [9, 4, 1, 6, 9]
PLACES = [1, 3, 8, 10, 17, 20, 22, 23, 28]  # none of the third sequence, which has one token
MOST = 3
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture
def batch() -> FlatTokens:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, 50, (len(LENGTHS), 9), generator=generator)
    keep = torch.arange(9) < torch.tensor(LENGTHS)[:, None]
    return flatten(ids, keep)


@pytest.fixture(params=["post", "pre"])
def config(request: pytest.FixtureRequest, make_config: Callable[..., schema.Model]) -> Any:
    return make_config(norm=request.param)


def encoder(config: schema.Model, *, with_pooler: bool) -> BertModel:
    model = BertModel(config, vocab_size=50, with_pooler=with_pooler)
    initialize(model, 0.2, torch.Generator().manual_seed(0))
    return model


def gradients(model: nn.Module, loss: Tensor) -> list[Tensor]:
    given = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return [torch.zeros(()) if part is None else part for part in given]


@pytest.mark.parametrize("with_pooler", [False, True])
@pytest.mark.parametrize("form", ["plain", "recomputed"])
def test_outputs_and_gradients_are_those_of_all_rows(
    config: schema.Model, batch: FlatTokens, with_pooler: bool, form: str
) -> None:
    model = encoder(config, with_pooler=with_pooler)
    model.encoder.is_checkpointed = form == "recomputed"
    places = torch.tensor(PLACES)

    found = model(batch, Wanted.at(places, batch, most=MOST))

    whole = model(batch)
    expected = whole.hidden_states[places]
    torch.testing.assert_close(found.hidden_states, expected, **CLOSE)
    losses = [found.hidden_states.square().sum(), expected.square().sum()]
    if with_pooler:
        torch.testing.assert_close(found.pooled_output, whole.pooled_output, **CLOSE)
        losses[0] = losses[0] + found.pooled_output.sum()
        losses[1] = losses[1] + whole.pooled_output.sum()
    for ours, theirs in zip(*(gradients(model, loss) for loss in losses), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_first_tokens_and_no_tokens(config: schema.Model, batch: FlatTokens) -> None:
    model = encoder(config, with_pooler=True)
    whole = model(batch)

    first, none = model(batch, Wanted.first(batch)), model(batch, Wanted.none(batch))

    starts = [0, 9, 13, 14, 20]
    torch.testing.assert_close(first.hidden_states, whole.hidden_states[starts], **CLOSE)
    assert none.hidden_states.shape == (0, 24)
    torch.testing.assert_close(none.pooled_output, whole.pooled_output, **CLOSE)


def test_the_last_layer_leaves_out_what_nobody_reads(
    make_config: Callable[..., schema.Model], batch: FlatTokens
) -> None:
    rows: list[int] = []

    def count(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        rows.append(len(inputs[0]))

    pretraining = BertForPreTraining(make_config(), vocab_size=50, with_nsp=True)
    by_cls, by_mean = (
        BertForSequenceClassification(make_config(), vocab_size=50, num_labels=2, pooling=pooling)
        for pooling in ("cls", "mean")
    )
    for model in (pretraining, by_cls, by_mean):
        for layer in model.bert.encoder.layers:
            layer.feed_forward.register_forward_hook(count)

    pretraining(batch, torch.tensor(PLACES))
    by_cls(batch)
    by_mean(batch)

    # 29 tokens take 32 rows on a CPU, 9 predicted ones and 5 [CLS] take 16, and 5 alone take 8.
    assert rows == [32, 16, 32, 8, 32, 32]
