"""The decoder, in the order of the computation: cross-attention, layers, stack, scores.

It reads a target from left to right, looks at the encoder's output for the source, and scores the
next token. With the encoder of `bertpre.model.bert` it is the Transformer of the tutorials.

Size letters: B batch, M target tokens and N source tokens in the batch, D hidden_size, H heads,
K = D / H head size, V vocab_size.
"""

from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from bertpre.config import schema
from bertpre.model.attention import Attend, attention, causal_mask
from bertpre.model.bert import (
    BertEmbeddings,
    BertModel,
    EncoderLayer,
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
)
from bertpre.model.flat import FlatTokens, Layout, add_filler, layout_of
from bertpre.model.heads import MlmHead
from bertpre.model.kernels import Dropout, linear_cross_entropy


@dataclass(frozen=True, kw_only=True, slots=True)
class TextPairs:
    """Sources, and the targets to write from them.

    Attributes:
        source: B sequences [CLS] text [SEP].
        target: B sequences [CLS] y1 ... ym, what the decoder reads.
        labels: (M,) int64, y1 ... ym [SEP] of each target: the next token at each place.
    """

    source: FlatTokens
    target: FlatTokens
    labels: Tensor


class CrossAttention(nn.Module):
    """Attention with queries from the target, and keys and values from the source.

    Source: Vaswani et al. 2017, section 3.2.3, "encoder-decoder attention".
    """

    def __init__(self, config: schema.Model) -> None:
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.dropout_p = config.attention_probs_dropout_prob
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key_value = nn.Linear(config.hidden_size, 2 * config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)

    def keys_values(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values, (N, H, K) each, for the encoder's output (N, D)."""
        both = self.key_value(source).unflatten(1, (2, self.num_heads, -1))  # -> (N, 2, H, K)
        key, value = both.unbind(dim=1)
        return key, value

    def forward(self, hidden: Tensor, key: Tensor, value: Tensor, attend: Attend) -> Tensor:
        """Return (M, D) for hidden states (M, D), and keys and values from `keys_values`."""
        query = self.query(hidden).unflatten(1, (self.num_heads, -1))  # (M, D) -> (M, H, K)
        context = attend(query, key, value, dropout_p=self.dropout_p if self.training else 0.0)
        output: Tensor = self.output(context.flatten(1))  # (M, H, K) -> (M, D)
        return output


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention and feed-forward network.

    Each has dropout, residual sum and layer norm, as in `bertpre.model.bert.EncoderLayer`.

    Source: Vaswani et al. 2017, section 3.1.
    """

    def __init__(self, config: schema.Model) -> None:
        super().__init__()
        self.is_pre_norm = config.norm == "pre"
        self.attention = MultiHeadAttention(config)
        self.attention_norm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.cross_attention = CrossAttention(config)
        self.cross_attention_norm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(
        self, hidden: Tensor, key: Tensor, value: Tensor, attend: Attend, attend_source: Attend
    ) -> Tensor:
        """Return (M, D).

        Args:
            hidden: (M, D), of the target.
            key, value: of the source, from `CrossAttention.keys_values`.
            attend: lets a token see itself and those before it.
            attend_source: lets it see the whole source.
        """
        if self.is_pre_norm:
            attended = self.attention(self.attention_norm(hidden), attend)
            hidden = hidden + self.dropout(attended)
            query = self.cross_attention_norm(hidden)
            attended = self.cross_attention(query, key, value, attend_source)
            hidden = hidden + self.dropout(attended)
            hidden = hidden + self.dropout(self.feed_forward(self.feed_forward_norm(hidden)))
        else:
            attended = self.attention(hidden, attend)
            hidden = self.attention_norm(hidden + self.dropout(attended))
            attended = self.cross_attention(hidden, key, value, attend_source)
            hidden = self.cross_attention_norm(hidden + self.dropout(attended))
            hidden = self.feed_forward_norm(hidden + self.dropout(self.feed_forward(hidden)))
        return hidden

    def share(self, layer: EncoderLayer) -> None:
        """Use the self-attention and the feed-forward network of an encoder layer."""
        self.attention, self.attention_norm = layer.attention, layer.attention_norm
        self.feed_forward, self.feed_forward_norm = layer.feed_forward, layer.feed_forward_norm


class Decoder(nn.Module):
    """Embeddings and the stack of layers, with a layer norm at its end in the pre-norm form.

    All target tokens are in segment 0.

    Source: Vaswani et al. 2017, section 3.1.
    """

    def __init__(self, config: schema.Model, *, vocab_size: int, num_layers: int) -> None:
        super().__init__()
        self.embeddings = BertEmbeddings(config, vocab_size=vocab_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(num_layers))
        self.final_norm: LayerNorm | None = None
        if config.norm == "pre":
            self.final_norm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, target: FlatTokens, source: Tensor, source_layout: Layout) -> Tensor:
        """Return (M, D), perhaps with rows of filler at the end.

        Args:
            target: B sequences.
            source: (N, D), the encoder's output for their sources, perhaps with filler.
            source_layout: the layout of the sources.
        """
        layout = layout_of(target)
        attend = partial(attention, queries=layout, keys=layout, causal=causal_mask(layout, layout))
        attend_source = partial(attention, queries=layout, keys=source_layout)
        hidden = add_filler(self.embeddings(target), layout.num_rows)
        for layer in self.layers:
            assert isinstance(layer, DecoderLayer)
            key, value = layer.cross_attention.keys_values(source)
            hidden = layer(hidden, key, value, attend, attend_source)
        return self.finish(hidden)

    def finish(self, hidden: Tensor) -> Tensor:
        """Return the output (M, D) for that of the last layer."""
        return hidden if self.final_norm is None else self.final_norm(hidden)


class TextGenerator(nn.Module):
    """Scores the next token of a target, given its source: what all forms have in common.

    The scores come from the head of the masked language model, tied to the word embedding.
    """

    bert: BertModel
    mlm: MlmHead

    @property
    def word_embedding(self) -> Tensor:
        """The (V, D) embedding that the head compares with: the one of the targets."""
        return self.bert.embeddings.word.weight

    def decode(self, source: FlatTokens, target: FlatTokens) -> Tensor:
        """Return hidden states (M, D), perhaps with rows of filler at the end."""
        raise NotImplementedError

    def forward(self, source: FlatTokens, target: FlatTokens) -> Tensor:
        """Return the scores (M, V) of the next token at each place of the targets."""
        hidden = self.decode(source, target)[: len(target.input_ids)]
        scores: Tensor = self.mlm(hidden, self.word_embedding)
        return scores

    def loss(self, pairs: TextPairs, *, label_smoothing: float = 0.0) -> Tensor:
        """Return the sum of the losses of all target tokens in nats, fp32, 0-dimensional."""
        hidden = self.mlm.transform(self.decode(pairs.source, pairs.target))
        loss_sum, _ = linear_cross_entropy(
            hidden,
            self.word_embedding,
            self.mlm.bias,
            pairs.labels,
            label_smoothing=label_smoothing,
        )
        return loss_sum


class EncoderDecoder(TextGenerator):
    """The whole Transformer: an encoder for the source, a decoder for the target.

    Args:
        config: the shape of both.
        vocab_size: rows of the word embeddings.
        num_decoder_layers: layers of the decoder; the encoder's number is in ``config``.
        is_shared: the decoder uses the encoder's embeddings and layers, and has only its
            cross-attention for itself.

    Source: Vaswani et al. 2017, figure 1; Rothe et al. 2020, "Leveraging pre-trained checkpoints
        for sequence generation tasks", section 3, for encoders and decoders that start from BERT
        and for shared ones.
    """

    def __init__(
        self, config: schema.Model, *, vocab_size: int, num_decoder_layers: int, is_shared: bool
    ) -> None:
        super().__init__()
        self.bert = BertModel(config, vocab_size=vocab_size, with_pooler=False)
        self.decoder = Decoder(config, vocab_size=vocab_size, num_layers=num_decoder_layers)
        self.is_shared = is_shared
        if is_shared:
            self.decoder.embeddings = self.bert.embeddings
            self.decoder.final_norm = self.bert.encoder.final_norm
            for own, layer in zip(self.decoder.layers, self.bert.encoder.layers, strict=False):
                assert isinstance(own, DecoderLayer)
                assert isinstance(layer, EncoderLayer)
                own.share(layer)
        self.mlm = MlmHead(config, vocab_size=vocab_size)

    @property
    def word_embedding(self) -> Tensor:
        return self.decoder.embeddings.word.weight

    def decode(self, source: FlatTokens, target: FlatTokens) -> Tensor:
        layout = layout_of(source)
        hidden: Tensor = self.decoder(target, self.encode(source, layout), layout)
        return hidden

    def encode(self, source: FlatTokens, layout: Layout) -> Tensor:
        """Return the encoder's output (N, D), with the filler of the layout."""
        return add_filler(self.bert(source).hidden_states, layout.num_rows)
