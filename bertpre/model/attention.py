"""Attention over flat batches: the formula written out, and the choice of an implementation.

Size letters: B batch, T tokens, N real tokens in the batch, H heads, K head size.
"""

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from bertpre.model.flat import Layout
from bertpre.model.kernels import dropout


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, *, keep: Tensor | None, dropout_p: float
) -> Tensor:
    """Return for each query the mean of the values, weighted by similarity of the keys.

    Args:
        query, key, value: (B, H, T, K).
        keep: (B, T) bool, true at real tokens; None if all are. Only keys are masked: outputs at
            padding are computed but never read.
        dropout_p: share of the attention probabilities to drop.

    Returns:
        (B, H, T, K).

    Source: Vaswani et al. 2017, section 3.2.1, equation 1.
    """
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)  # (B, H, T, T)
    if keep is not None:
        no_score = torch.zeros(keep.shape, dtype=scores.dtype, device=scores.device)
        no_score = no_score.masked_fill(~keep, -torch.inf)  # exp(-inf) = 0: no probability
        scores += no_score[:, None, None, :]  # (B, T) -> (B, 1, 1, T); a sum needs no copy
    probabilities = torch.softmax(scores, dim=-1)
    probabilities = dropout(probabilities, dropout_p, training=True)
    return probabilities @ value


def suits_flash_attention(dtype: torch.dtype, dropout_p: float) -> bool:
    """Return whether flash attention supports this precision and dropout."""
    return dtype in (torch.bfloat16, torch.float16) and dropout_p == 0


def attention(qkv: Tensor, layout: Layout, *, dropout_p: float) -> Tensor:
    """Compute self-attention within each sequence, with the fastest available implementation.

    Args:
        qkv: (N, 3, H, K), flat: query, key and value of each token.
        layout: the sequences of the batch.
        dropout_p: share of the attention probabilities to drop.

    Returns:
        (N, H, K).
    """
    if layout.has_flash and suits_flash_attention(qkv.dtype, dropout_p):
        query, key, value = qkv.unbind(dim=1)  # (N, H, K)
        starts, longest = layout.cu_seqlens, layout.longest
        context = varlen_attn(query, key, value, starts, starts, longest, longest)
        return cast(Tensor, context)  # a single tensor unless more is requested
    padded = layout.pad(qkv)  # (N, 3, H, K) -> (B, T, 3, H, K)
    query, key, value = (part.transpose(1, 2) for part in padded.unbind(dim=2))  # (B, H, T, K)
    if qkv.device.type == "cpu":
        # In bf16 on a CPU, PyTorch's fused kernel is several times slower than this.
        context = scaled_dot_product_attention(
            query, key, value, keep=layout.keep, dropout_p=dropout_p
        )
    else:
        mask = None if layout.keep is None else layout.keep[:, None, None, :]  # (B, 1, 1, T)
        context = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout_p
        )
    return layout.unpad(context.transpose(1, 2))  # (B, H, T, K) -> (N, H, K)
