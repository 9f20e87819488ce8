"""Attention over flat batches: the formula written out, and the choice of an implementation.

Queries and keys are tokens of the same sequences in self-attention, of targets and their sources in
cross-attention. Size letters: B batch, Q queries and T keys of a sequence, M queries and N keys in
the batch, H heads, K head size.
"""

import math
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from bertpre.model.flat import Layout
from bertpre.model.kernels import dropout


class Attend(Protocol):
    """Mixes values by the similarity of queries and keys; it knows who may look at whom."""

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *, dropout_p: float) -> Tensor:
        """Return (M, H, K) for queries (M, H, K), and keys and values (N, H, K)."""


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, *, keep: Tensor | None, dropout_p: float
) -> Tensor:
    """Return for each query the mean of the values, weighted by similarity of the keys.

    Args:
        query: (B, H, Q, K).
        key, value: (B, H, T, K).
        keep: bool, (B, 1, Q, T) or sizes that broadcast to it, true where a query may see a key;
            None: everywhere. Outputs of queries at padding are computed but never read.
        dropout_p: share of the attention probabilities to drop.

    Returns:
        (B, H, Q, K).

    Source: Vaswani et al. 2017, section 3.2.1, equation 1.
    """
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)  # (B, H, Q, T)
    if keep is not None:
        no_score = torch.zeros(keep.shape, dtype=scores.dtype, device=scores.device)
        # exp(-inf) = 0: no probability; a sum needs no copy
        scores += no_score.masked_fill(~keep, -torch.inf)
    probabilities = torch.softmax(scores, dim=-1)
    probabilities = dropout(probabilities, dropout_p, training=True)
    return probabilities @ value


def padded_attention(
    query: Tensor, key: Tensor, value: Tensor, *, keep: Tensor | None, dropout_p: float
) -> Tensor:
    """Do as `scaled_dot_product_attention` with the fastest implementation for the device."""
    if query.device.type == "cpu":
        # In bf16 on a CPU, PyTorch's fused kernel is several times slower than this.
        return scaled_dot_product_attention(query, key, value, keep=keep, dropout_p=dropout_p)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=keep, dropout_p=dropout_p)


def suits_flash_attention(dtype: torch.dtype, dropout_p: float) -> bool:
    """Return whether flash attention supports this precision and dropout."""
    return dtype in (torch.bfloat16, torch.float16) and dropout_p == 0


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    queries: Layout,
    keys: Layout,
    causal: Tensor | None = None,
    dropout_p: float,
) -> Tensor:
    """Compute attention within each sequence, with the fastest available implementation.

    Args:
        query: (M, H, K), flat.
        key, value: (N, H, K), flat.
        queries: the sequences of the queries.
        keys: those of the keys, as many.
        causal: from `causal_mask`; None: each query sees all keys of its sequence.
        dropout_p: share of the attention probabilities to drop.

    Returns:
        (M, H, K).
    """
    if queries.has_flash and suits_flash_attention(query.dtype, dropout_p):
        context = varlen_attn(
            query,
            key,
            value,
            queries.cu_seqlens,
            keys.cu_seqlens,
            queries.longest,
            keys.longest,
            window_size=(-1, -1) if causal is None else (-1, 0),
        )
        return cast(Tensor, context)  # a single tensor unless more is requested
    padded = queries.pad(query), keys.pad(key), keys.pad(value)  # (B, Q, H, K), (B, T, H, K)
    keep = None if keys.keep is None else keys.keep[:, None, None, :]  # (B, T) -> (B, 1, 1, T)
    if causal is not None:  # which hides the padding, too
        keep = causal[:, None]  # (B, Q, T) -> (B, 1, Q, T)
    query, key, value = (part.transpose(1, 2) for part in padded)  # (B, H, Q, K), (B, H, T, K)
    context = padded_attention(query, key, value, keep=keep, dropout_p=dropout_p)
    return queries.unpad(context.transpose(1, 2))  # (B, H, Q, K) -> (M, H, K)


def causal_mask(queries: Layout, keys: Layout) -> Tensor:
    """Let each query see the keys up to its own token: the last query sees the last key.

    Returns:
        (B, Q, T) bool, true where a query may see a key; for padded queries it has no meaning.

    Source: Vaswani et al. 2017, section 3.2.3; Dong et al. 2019, figure 1 ("sequence-to-sequence
        LM"), for keys of a source before those of the queries.
    """
    device = keys.cu_seqlens.device
    num_before = keys.cu_seqlens.diff() - queries.cu_seqlens.diff()  # (B,)
    positions = torch.arange(queries.max_length, device=device)[:, None]
    distance = torch.arange(keys.max_length, device=device) - positions  # (Q, T)
    return distance <= num_before[:, None, None]
