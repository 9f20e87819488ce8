"""The encoder, top to bottom in the order of the computation: embeddings, layers, pooler.

With post-norm, learned positions and GELU it is BERT; with pre-norm, sinusoidal positions and ReLU
it is the Transformer encoder of the tutorials. Tokens are flat, without padding: see ``flat.py``.

Size letters: B batch, T tokens, N real tokens in the batch, D hidden_size, H heads, K = D / H head
size, F intermediate_size.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bertpre.config import schema
from bertpre.errors import ConfigError
from bertpre.model.attention import Attend, attention
from bertpre.model.flat import (
    FlatTokens,
    Layout,
    Wanted,
    add_filler,
    flatten,
    layout_of,
    make_layout,
)
from bertpre.model.kernels import Dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}


class LayerNorm(nn.LayerNorm):
    """Layer normalisation in fp32, whatever the precision of the input (Ba et al. 2016)."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise each token to mean 0 and variance 1, then scale and shift."""
        return super().forward(input.float())


def sinusoidal_positions(num_positions: int, hidden_size: int) -> Tensor:
    """Compute the table of sines (even columns) and cosines (odd columns).

    Returns:
        (num_positions, hidden_size) fp32.

    Source: Vaswani et al. 2017, section 3.5.
    """
    position = torch.arange(num_positions, dtype=torch.float64)[:, None]
    even_column = torch.arange(0, hidden_size, 2, dtype=torch.float64)
    angles = position / 10_000 ** (even_column / hidden_size)  # (T, D / 2)
    table = torch.empty(num_positions, hidden_size)
    table[:, 0::2] = angles.sin()
    table[:, 1::2] = angles.cos()[:, : hidden_size // 2]
    return table


class BertEmbeddings(nn.Module):
    """Token + segment + position embeddings, then layer norm and dropout.

    Source: Devlin et al. 2018, section 3, figure 2.
    """

    sinusoidal: Tensor

    def __init__(self, config: schema.Model, *, vocab_size: int) -> None:
        super().__init__()
        self.word = nn.Embedding(vocab_size, config.hidden_size)
        self.token_type = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.position: nn.Embedding | None = None
        if config.position_embeddings == "learned":
            self.position = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        else:
            table = sinusoidal_positions(config.max_position_embeddings, config.hidden_size)
            # At size 1 they would drown out fresh token embeddings, and nothing would be learnt.
            # The Transformer scales tokens up (section 3.4); we scale positions down, as a tied
            # output layer needs small tokens, and segments keep their share.
            self.register_buffer("sinusoidal", config.initializer_range * table, persistent=False)
        self.norm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, batch: FlatTokens) -> Tensor:
        """Return (N, D)."""
        table = self.sinusoidal if self.position is None else self.position.weight
        hidden: Tensor = self.word(batch.input_ids) + self.token_type(batch.token_type_ids)
        hidden = hidden + F.embedding(batch.position_ids, table)  # (N,) -> (N, D)
        hidden = self.dropout(self.norm(hidden))
        return hidden


class MultiHeadAttention(nn.Module):
    """Self-attention in H subspaces of size K, and a linear map of the heads' outputs.

    Query, key and value come from one matrix product.

    Source: Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(self, config: schema.Model) -> None:
        super().__init__()
        if config.hidden_size % config.num_attention_heads:
            raise ConfigError(
                f"model.hidden_size: {config.hidden_size} does not divide into "
                f"model.num_attention_heads: {config.num_attention_heads}",
                "make one a multiple of the other",
            )
        self.num_heads = config.num_attention_heads
        self.dropout_p = config.attention_probs_dropout_prob
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden: Tensor, attend: Attend, places: Tensor | None = None) -> Tensor:
        """Return (N, D) for hidden states (N, D), or (R, D) for the tokens at places (R,)."""
        if places is None:
            qkv = self.qkv(hidden).unflatten(1, (3, self.num_heads, -1))  # (N, 3D) -> (N, 3, H, K)
            query, key, value = qkv.unbind(dim=1)  # (N, H, K)
        else:
            weight, bias, width = self.qkv.weight, self.qkv.bias, hidden.shape[1]
            heads = self.num_heads, width // self.num_heads
            wanted = hidden.index_select(0, places)  # (N, D) -> (R, D)
            query = F.linear(wanted, weight[:width], bias[:width])
            query = query.view(-1, *heads)  # (R, D) -> (R, H, K)
            both = F.linear(hidden, weight[width:], bias[width:])  # (N, D) -> (N, 2D)
            key, value = both.view(-1, 2, *heads).unbind(dim=1)  # (N, H, K)
        context = attend(query, key, value, dropout_p=self.dropout_p if self.training else 0.0)
        output: Tensor = self.output(context.flatten(1))  # (N, H, K) -> (N, D)
        return output


class FeedForward(nn.Module):
    """The position-wise network: up to F, activation, down to D, each token by itself.

    Source: Vaswani et al. 2017, section 3.3.
    """

    def __init__(self, config: schema.Model) -> None:
        super().__init__()
        self.up = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.down = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return (N, D) for hidden states (N, D)."""
        hidden = self.activation(self.up(hidden))  # (N, D) -> (N, F)
        hidden = self.down(hidden)  # (N, F) -> (N, D)
        return hidden


class EncoderLayer(nn.Module):
    """Attention and feed-forward network, each with dropout, residual sum and layer norm.

    Post-norm normalises each sum; pre-norm normalises the input of each part, so that the sum
    itself passes through the stack unchanged.

    Source: Vaswani et al. 2017, section 3.1 (post-norm); Xiong et al. 2020, figure 1 (pre-norm).
    """

    def __init__(self, config: schema.Model) -> None:
        super().__init__()
        self.is_pre_norm = config.norm == "pre"
        self.attention = MultiHeadAttention(config)
        self.attention_norm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, hidden: Tensor, attend: Attend, places: Tensor | None = None) -> Tensor:
        """Return (N, D) for hidden states (N, D).

        Args:
            hidden: (N, D).
            attend: of the queries that there are.
            places: (R,) int64, the tokens to return, (R, D), and the only queries; None: all.
        """
        residual = hidden if places is None else hidden.index_select(0, places)
        if self.is_pre_norm:
            attended = self.attention(self.attention_norm(hidden), attend, places)
            hidden = residual + self.dropout(attended)
            hidden = hidden + self.dropout(self.feed_forward(self.feed_forward_norm(hidden)))
        else:
            attended = self.attention(hidden, attend, places)
            hidden = self.attention_norm(residual + self.dropout(attended))
            hidden = self.feed_forward_norm(hidden + self.dropout(self.feed_forward(hidden)))
        return hidden


class LastLayer(NamedTuple):
    """The tokens at places (R,), which the last layer computes alone, and what they attend to."""

    places: Tensor
    attend: Attend


class Encoder(nn.Module):
    """The stack of layers, with a layer norm at its end in the pre-norm form.

    Where only some tokens of the output are read, such as those to predict, the last layer computes
    the keys and values of all tokens, and the rest of them alone.

    Source: Vaswani et al. 2017, section 3.1.
    """

    def __init__(self, config: schema.Model) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_hidden_layers))
        self.is_checkpointed = False  # recompute layers in the backward pass, to save memory
        self.final_norm: LayerNorm | None = None
        if config.norm == "pre":
            self.final_norm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor, attend: Attend, last: LastLayer | None = None) -> Tensor:
        """Return (N, D) for embeddings (N, D), or (R, D) for the tokens of ``last``."""
        for number, layer in enumerate(self.layers, start=1):
            places: Tensor | None = None
            if last is not None and number == len(self.layers):
                places, attend = last
            if self.is_checkpointed and self.training:
                hidden = checkpoint(layer, hidden, attend, places, use_reentrant=False)
            else:
                hidden = layer(hidden, attend, places)
        return self.finish(hidden)

    def finish(self, hidden: Tensor) -> Tensor:
        """Return the output for that of the last layer, both (N, D) or (R, D)."""
        return hidden if self.final_norm is None else self.final_norm(hidden)


class Pooler(nn.Module):
    """One vector per sequence: that of [CLS], through a dense layer and tanh.

    Source: google-research/bert modeling.py, "pooler".
    """

    def __init__(self, config: schema.Model) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden: Tensor, cu_seqlens: Tensor) -> Tensor:
        """Return (B, D) for hidden states (N, D) whose sequences start with [CLS]."""
        first = hidden.index_select(0, cu_seqlens[:-1])  # (N, D) -> (B, D)
        return torch.tanh(self.dense(first))


class BertOutput(NamedTuple):
    """``hidden_states`` (N, D), or (R, D); ``pooled_output`` (B, D) with a pooler."""

    hidden_states: Tensor
    pooled_output: Tensor | None


class BertModel(nn.Module):
    """Embeddings, encoder and pooler, without a head.

    Args:
        config: the shape; its ``vocab_size`` is ignored.
        vocab_size: rows of the word embedding.
        with_pooler: whether there is a pooler.

    Raises:
        ConfigError: the heads do not divide the width.

    Source: Devlin et al. 2018, section 3.
    """

    def __init__(self, config: schema.Model, *, vocab_size: int, with_pooler: bool = True) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.embeddings = BertEmbeddings(config, vocab_size=vocab_size)
        self.encoder = Encoder(config)
        self.pooler = Pooler(config) if with_pooler else None

    def forward(self, batch: FlatTokens, wanted: Wanted | None = None) -> BertOutput:
        """Encode a flat batch.

        Args:
            batch: B sequences.
            wanted: the tokens whose hidden states are returned; None: all. The pooler reads [CLS]
                of its own accord.

        Raises:
            ValueError: a sequence is longer than the model has positions.
        """
        if batch.max_length > self.config.max_position_embeddings:
            raise ValueError(
                f"a sequence of {batch.max_length} tokens, but the model has "
                f"{self.config.max_position_embeddings} positions"
            )
        layout = layout_of(batch)
        hidden = add_filler(self.embeddings(batch), layout.num_rows)
        attend = partial(attention, queries=layout, keys=layout)
        if wanted is None:
            hidden = self.encoder(hidden, attend)[: layout.num_tokens]
            pooled = None if self.pooler is None else self.pooler(hidden, batch.cu_seqlens)
            return BertOutput(hidden, pooled)
        if self.pooler is None:
            hidden = self._encode_wanted(hidden, layout, wanted)
            return BertOutput(hidden, None)
        with_first, numbers = wanted.with_first(batch)
        hidden = self._encode_wanted(hidden, layout, with_first)
        pooled = self.pooler(hidden, with_first.cu_seqlens)
        return BertOutput(hidden.index_select(0, numbers), pooled)

    def _encode_wanted(self, embedded: Tensor, layout: Layout, wanted: Wanted) -> Tensor:
        """Return (R, D) for embeddings (N, D), perhaps with filler."""
        own = make_layout(
            wanted.cu_seqlens, num_tokens=len(wanted.places), max_length=wanted.max_length
        )
        places = add_filler(wanted.places, own.num_rows)
        last = LastLayer(places, partial(attention, queries=own, keys=layout))
        attend = partial(attention, queries=layout, keys=layout)
        hidden: Tensor = self.encoder(embedded, attend, last)
        return hidden[: len(wanted.places)]

    def forward_padded(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Encode a padded batch, for notebooks.

        Args:
            input_ids: (B, T) integers.
            attention_mask: (B, T), true at real tokens, which come first in each row.
            token_type_ids: (B, T) integers; absent means segment 0.

        Returns:
            Hidden states (B, T, D), zeros at the padding.
        """
        batch = flatten(input_ids, attention_mask, token_type_ids)
        hidden = self(batch).hidden_states
        padded: Tensor = hidden.new_zeros(*attention_mask.shape, hidden.shape[1])
        padded[attention_mask.bool()] = hidden  # (N, D) -> (B, T, D)
        return padded


def initialize(module: nn.Module, std: float, generator: torch.Generator) -> None:
    """Draw fresh weights: truncated normal for matrices, 0 for biases, 1 and 0 for layer norms.

    Parameters are drawn in module order, so equal generators give equal weights.

    Args:
        module: an encoder with or without heads, on the generator's device.
        std: standard deviation before truncation at two of them.
        generator: the only source of randomness.

    Source: google-research/bert modeling.py, "create_initializer".
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(part.weight, std=std, a=-2 * std, b=2 * std, generator=generator)
        if isinstance(part, LayerNorm):
            nn.init.ones_(part.weight)
        if isinstance(bias := getattr(part, "bias", None), nn.Parameter):
            nn.init.zeros_(bias)
