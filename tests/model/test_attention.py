import itertools
import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from bertpre.config import schema
from bertpre.model.attention import (
    attention,
    scaled_dot_product_attention,
    suits_flash_attention,
)
from bertpre.model.bert import EncoderLayer, MultiHeadAttention
from bertpre.model.flat import Layout, make_layout

CU_SEQLENS = torch.tensor([0, 4, 5, 8], dtype=torch.int32)


def layout_of(cu_seqlens: Tensor) -> Layout:
    return make_layout(cu_seqlens, num_tokens=8, max_length=4)


def self_attend(qkv: Tensor, layout: Layout, *, dropout_p: float) -> Tensor:
    return attention(*qkv.unbind(dim=1), queries=layout, keys=layout, dropout_p=dropout_p)


def by_hand(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Vaswani et al. 2017, equation 1, for one head of one sequence, one number at a time."""
    num_tokens, size = query.shape
    result = torch.zeros(num_tokens, size)
    for i in range(num_tokens):
        scores = [
            sum(float(query[i, k] * key[j, k]) for k in range(size)) / math.sqrt(size)
            for j in range(num_tokens)
        ]
        total = sum(math.exp(score) for score in scores)
        for j in range(num_tokens):
            result[i] += math.exp(scores[j]) / total * value[j]
    return result


@pytest.mark.parametrize(
    "cu_seqlens", [CU_SEQLENS, torch.tensor([0, 4, 8])], ids=["ragged", "full"]
)
def test_attention_equals_a_loop_written_from_the_formula(cu_seqlens: Tensor) -> None:
    qkv = torch.randn(8, 3, 2, 3, generator=torch.Generator().manual_seed(0))

    result = self_attend(qkv, layout_of(cu_seqlens), dropout_p=0.0)

    for start, end in itertools.pairwise(cu_seqlens.tolist()):
        for head in range(2):
            expected = by_hand(*qkv[start:end, :, head].unbind(dim=1))
            torch.testing.assert_close(result[start:end, head], expected, atol=1e-6, rtol=1e-5)


def test_scaled_dot_product_attention_equals_the_library_in_outputs_and_gradients() -> None:
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(2, 3, 5, 4, generator=generator, requires_grad=True) for _ in range(3)]
    keep = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)
    weights = torch.randn(2, 3, 5, 4, generator=generator)

    ours = scaled_dot_product_attention(*inputs, keep=keep[:, None, None], dropout_p=0.0)
    theirs = nn.functional.scaled_dot_product_attention(*inputs, attn_mask=keep[:, None, None])
    our_gradients = torch.autograd.grad((ours * weights).sum(), inputs)
    their_gradients = torch.autograd.grad((theirs * weights).sum(), inputs)

    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(our_gradients, their_gradients, atol=1e-6, rtol=1e-5)


def test_attention_drops_probabilities() -> None:
    qkv = torch.randn(8, 3, 2, 3, generator=torch.Generator().manual_seed(0))

    whole, dropped = (self_attend(qkv, layout_of(CU_SEQLENS), dropout_p=p) for p in (0.0, 0.5))

    assert not torch.equal(whole, dropped)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_attention_on_a_gpu_equals_the_written_out_form() -> None:
    qkv = torch.randn(8, 3, 2, 16, generator=torch.Generator().manual_seed(0))

    here = self_attend(qkv, layout_of(CU_SEQLENS), dropout_p=0.0)
    there = self_attend(qkv.cuda(), layout_of(CU_SEQLENS.cuda()), dropout_p=0.0)

    torch.testing.assert_close(there.cpu(), here, atol=1e-5, rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_flash_attention_over_flat_sequences_equals_the_padded_form() -> None:
    qkv = torch.randn(8, 3, 2, 64, generator=torch.Generator().manual_seed(0))
    half = qkv.cuda().bfloat16().requires_grad_()
    assert layout_of(CU_SEQLENS.cuda()).has_flash

    here = self_attend(qkv, layout_of(CU_SEQLENS), dropout_p=0.0)
    there = self_attend(half, layout_of(CU_SEQLENS.cuda()), dropout_p=0.0)
    there.sum().backward()

    torch.testing.assert_close(there.float().cpu(), here, atol=2e-2, rtol=2e-2)
    assert half.grad is not None
    assert torch.isfinite(half.grad).all()


def test_flash_attention_is_not_taken_where_it_does_not_apply() -> None:
    assert not layout_of(CU_SEQLENS).has_flash
    assert suits_flash_attention(torch.bfloat16, 0.0)
    assert suits_flash_attention(torch.float16, 0.0)
    assert not suits_flash_attention(torch.float32, 0.0)
    assert not suits_flash_attention(torch.bfloat16, 0.1)


def layer_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    variance = x.var(dim=-1, correction=0, keepdim=True)
    return (x - x.mean(dim=-1, keepdim=True)) / (
        variance + norm.eps
    ).sqrt() * norm.weight + norm.bias


def self_attention(x: Tensor, module: MultiHeadAttention) -> Tensor:
    """Vaswani et al. 2017, section 3.2.2, for one sequence (T, D)."""
    size = x.shape[1] // module.num_heads
    query, key, value = (x @ module.qkv.weight.T + module.qkv.bias).chunk(3, dim=1)
    heads = [
        by_hand(*(part[:, h * size : (h + 1) * size] for part in (query, key, value)))
        for h in range(module.num_heads)
    ]
    return torch.cat(heads, dim=1) @ module.output.weight.T + module.output.bias


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_encoder_layer_equals_the_formula_of_its_kind(
    norm: str, make_config: Callable[..., schema.Model], randomize: Callable[[nn.Module], None]
) -> None:
    layer = EncoderLayer(make_config(norm=norm, hidden_act="relu"))
    randomize(layer)
    x = torch.randn(8, 24, generator=torch.Generator().manual_seed(2))
    layout = make_layout(torch.tensor([0, 8]), num_tokens=8, max_length=8)

    with torch.no_grad():
        result = layer(x, partial(attention, queries=layout, keys=layout))

        def feed_forward(y: Tensor) -> Tensor:
            up, down = layer.feed_forward.up, layer.feed_forward.down
            return (y @ up.weight.T + up.bias).clamp(min=0) @ down.weight.T + down.bias

        if norm == "pre":
            y = x + self_attention(layer_norm(x, layer.attention_norm), layer.attention)
            expected = y + feed_forward(layer_norm(y, layer.feed_forward_norm))
        else:
            y = layer_norm(x + self_attention(x, layer.attention), layer.attention_norm)
            expected = layer_norm(y + feed_forward(y), layer.feed_forward_norm)
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-5)
