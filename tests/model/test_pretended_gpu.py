"""Forward passes on a pretended GPU: tensors without values, which know their device and shape.

PyTorch's fake tensors refuse to mix devices, and to give the host a value, for which a real GPU
would have to be waited for. So these tests see what tests on a CPU cannot. They need no GPU, but a
PyTorch built for one: ``make TORCH=torch test``. Backward passes cannot run so.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    FakeTensorMode,
)

from bertpre.config import schema
from bertpre.model.bert import BertModel
from bertpre.model.crf import LinearChainCrf
from bertpre.model.decoder import EncoderDecoder, TextGenerator, TextPairs
from bertpre.model.flat import Batch, FlatTokens, Wanted
from bertpre.model.heads import (
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
    Pooling,
    mean_pool,
)
from bertpre.model.prefix import PrefixGenerator
from bertpre.training.device import Precision, autocast

pytestmark = pytest.mark.skipif(
    not torch.backends.cuda.is_built(), reason="this PyTorch is built without CUDA"
)

GPU = torch.device("cuda")
VOCAB_SIZE, NUM_SEQUENCES, LONGEST = 64, 3, 8
NUM_TOKENS = 19  # of three sequences, the longest of eight


@pytest.fixture(params=["flash", "padded"])
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A GPU with or without flash attention over flat sequences."""
    capability = (9, 0) if request.param == "flash" else (7, 5)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    # Without these, autocast finds no GPU and does nothing. Where torch.cuda.is_available() says
    # that there is one, fake tensors try to start it.
    monkeypatch.setattr("torch.cuda.amp.common.amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *args, **options: True)
    with FakeTensorMode():
        yield request.param


@pytest.fixture(params=["fp32", "bf16", "fp16"])
def precision(request: pytest.FixtureRequest) -> Any:
    return request.param


def integers(*sizes: int) -> Tensor:
    return torch.zeros(*sizes, dtype=torch.int64, device=GPU)


def tokens(count: int = NUM_TOKENS) -> FlatTokens:
    return FlatTokens(
        input_ids=integers(count),
        token_type_ids=integers(count),
        position_ids=integers(count),
        cu_seqlens=integers(NUM_SEQUENCES + 1).int(),
        max_length=LONGEST,
    )


def pretraining_batch(count: int = NUM_TOKENS) -> Batch:
    return Batch(
        tokens=tokens(count),
        predicted=integers(4),
        max_predicted=2,
        mlm_labels=integers(4),
        nsp_labels=integers(NUM_SEQUENCES),
    )


def test_the_pretended_gpu_notices_what_it_is_for(gpu: str) -> None:
    values = torch.ones(3, device=GPU)
    with pytest.raises(RuntimeError, match="at least two devices"):
        values + torch.ones(3)
    with pytest.raises(DataDependentOutputException):
        values.sum().item()
    with autocast(GPU, "bf16"):
        assert (torch.ones(2, 2, device=GPU) @ torch.ones(2, 2, device=GPU)).dtype == torch.bfloat16


def test_a_batch_moves_to_a_gpu(gpu: str) -> None:
    values = torch.zeros(4, dtype=torch.int64)
    flat = FlatTokens(
        input_ids=values,
        token_type_ids=values,
        position_ids=values,
        cu_seqlens=values.int(),
        max_length=4,
    )
    batch = Batch(
        tokens=flat, predicted=values, max_predicted=1, mlm_labels=values, nsp_labels=None
    )
    moved = batch.to(GPU)
    tensors = [moved.predicted, moved.mlm_labels, moved.tokens.input_ids, moved.tokens.cu_seqlens]
    tensors += [moved.tokens.token_type_ids, moved.tokens.position_ids]
    assert {tensor.device.type for tensor in tensors} == {"cuda"}


@pytest.mark.parametrize("count", [NUM_TOKENS, NUM_SEQUENCES * LONGEST])
@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"norm": "pre", "position_embeddings": "sinusoidal"},
        {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
    ],
)
def test_pretraining(
    gpu: str,
    precision: Precision,
    shape: dict[str, Any],
    is_checkpointed: bool,
    count: int,
    make_config: Callable[..., schema.Model],
) -> None:
    with GPU:
        model = BertForPreTraining(make_config(**shape), vocab_size=VOCAB_SIZE, with_nsp=True)
    model.bert.encoder.is_checkpointed = is_checkpointed
    batch = pretraining_batch(count)
    with autocast(GPU, precision):
        loss = model.loss(batch)
        model.eval()
        logits = model(batch.tokens, batch.predicted)
    assert {part.device.type for part in loss if part is not None} == {"cuda"}
    assert (loss.mlm_loss_sum.shape, loss.mlm_loss_sum.dtype) == ((), torch.float32)
    assert logits.mlm.shape == (4, VOCAB_SIZE)


@pytest.mark.parametrize("pooling", ["cls", "mean", "compare"])
def test_classification(
    gpu: str, precision: Precision, pooling: Pooling, make_config: Callable[..., schema.Model]
) -> None:
    with GPU:
        model = BertForSequenceClassification(
            make_config(), vocab_size=VOCAB_SIZE, num_labels=5, pooling=pooling
        )
    with autocast(GPU, precision):
        logits = model(tokens())
    assert (logits.shape, logits.device.type) == ((NUM_SEQUENCES, 5), "cuda")


def test_tagging(gpu: str, precision: Precision, make_config: Callable[..., schema.Model]) -> None:
    with GPU:
        model = BertForTokenClassification(
            make_config(), vocab_size=VOCAB_SIZE, num_labels=5, has_crf=True
        )
    batch = tokens()
    with autocast(GPU, precision):
        logits = model(batch, Wanted.at(integers(6), batch, most=3))
    assert (logits.shape, logits.device.type) == ((6, 5), "cuda")


def test_crf(gpu: str) -> None:
    with GPU:
        crf = LinearChainCrf(5)
    emissions = torch.zeros(2, 4, 5, device=GPU)
    lengths = integers(2)
    assert crf.log_likelihood(emissions, integers(2, 4), lengths, None).shape == (2,)
    assert crf.marginals(emissions, lengths, None).shape == (2, 4, 5)


@pytest.mark.parametrize("form", ["decoder", "shared", "prefix"])
def test_generation(
    gpu: str, precision: Precision, form: str, make_config: Callable[..., schema.Model]
) -> None:
    config = make_config()
    model: TextGenerator
    with GPU:
        if form == "prefix":
            model = PrefixGenerator(config, vocab_size=VOCAB_SIZE)
        else:
            model = EncoderDecoder(
                config,
                vocab_size=VOCAB_SIZE,
                num_decoder_layers=config.num_hidden_layers,
                is_shared=form == "shared",
            )
    pairs = TextPairs(source=tokens(), target=tokens(11), labels=integers(11))
    with autocast(GPU, precision):
        loss = model.loss(pairs)
    assert (loss.shape, loss.device.type, loss.dtype) == ((), "cuda", torch.float32)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_embedding(
    gpu: str, precision: Precision, pooling: str, make_config: Callable[..., schema.Model]
) -> None:
    with GPU:
        model = BertModel(make_config(), vocab_size=VOCAB_SIZE, with_pooler=False)
    batch = tokens()
    with autocast(GPU, precision):
        hidden, _ = model(batch, Wanted.first(batch) if pooling == "cls" else None)
        if pooling == "mean":
            hidden = mean_pool(hidden, batch.cu_seqlens, batch.max_length)
    assert (len(hidden), hidden.device.type) == (NUM_SEQUENCES, "cuda")
