"""Attention over flat batches: the formula written out, and the choice of the form it runs in.

Size letters: B batch, T tokens, N real tokens in the batch, H heads, K head size.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from bertpre.model.dropout import dropout
from bertpre.model.flat import key_mask, pad, unpad


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, *, keep: Tensor | None, dropout_p: float
) -> Tensor:
    """Give each query a weighted mean of the values, by its likeness to their keys.

    Args:
        query, key, value: (B, H, T, K).
        keep: (B, T) bool, true at real tokens; None where all are. Only keys are masked: what
            padding asks for is computed and never read.
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


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens: Tensor,
    max_length: int,
    *,
    dropout_p: float,
    training: bool,
) -> Tensor:
    """Let the tokens of each sequence attend to one another, in the fastest form at hand.

    Args:
        query, key, value: (N, H, K), flat.
        cu_seqlens: (B + 1,) int32, where each sequence starts.
        max_length: length of the longest sequence, T.
        dropout_p: share of the attention probabilities to drop in training.
        training: whether to drop at all.

    Returns:
        (N, H, K).
    """
    num_tokens, batch_size = len(query), len(cu_seqlens) - 1
    # (N, H, K) -> (B, T, H, K) -> (B, H, T, K)
    q, k, v = (pad(x, cu_seqlens, max_length).transpose(1, 2) for x in (query, key, value))
    full = num_tokens == batch_size * max_length
    keep = None if full else key_mask(cu_seqlens, max_length)
    dropout_p = dropout_p if training else 0.0
    if query.device.type == "cpu":
        # The library's fused kernel is several times slower than this in bf16 on a CPU.
        context = scaled_dot_product_attention(q, k, v, keep=keep, dropout_p=dropout_p)
    else:
        mask = None if keep is None else keep[:, None, None, :]  # (B, T) -> (B, 1, 1, T)
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout_p)
    return unpad(context.transpose(1, 2), cu_seqlens, num_tokens)  # (B, H, T, K) -> (N, H, K)
