"""Writing targets token by token: what is computed once for a source, and kept for each token.

Size letters: B sources, R = B * W hypotheses (W for each source, side by side), D hidden_size,
H heads, K head size, S source tokens, T target tokens so far, V vocab_size.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bertpre.model.attention import attention, padded_attention
from bertpre.model.bert import EncoderLayer
from bertpre.model.decoder import DecoderLayer, EncoderDecoder, TextGenerator
from bertpre.model.flat import FlatTokens, Layout, layout_of
from bertpre.model.kernels import dropout
from bertpre.model.prefix import PrefixGenerator

_FIRST_ROOM = 16  # tokens; doubled when it is full


class TargetCache:
    """The keys and values of the target tokens so far, of one layer; a step's `Attend`."""

    def __init__(self) -> None:
        self._length = 0
        self._keys = self._values = torch.empty(0)

    def add(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add those of a token, (R, H, K) each; return all, (R, H, T, K) each."""
        if self._length == 0:
            self._keys, self._values = (_with_room(part, _FIRST_ROOM) for part in (key, value))
        elif self._length == self._keys.shape[2]:
            self._keys, self._values = (
                torch.cat([part, torch.empty_like(part)], dim=2)
                for part in (self._keys, self._values)
            )
        self._keys[:, :, self._length] = key
        self._values[:, :, self._length] = value
        self._length += 1
        return self._keys[:, :, : self._length], self._values[:, :, : self._length]

    def keep(self, sources: Tensor | None, parents: Tensor) -> None:
        """Continue with some hypotheses; see `Steps.keep`."""
        # Room that is not filled is not copied.
        self._keys, self._values = (
            _taken(part, parents, self._length) for part in (self._keys, self._values)
        )

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *, dropout_p: float) -> Tensor:
        """Return (R, H, K) for a token of each hypothesis, (R, H, K)."""
        keys, values = self.add(key, value)
        context = padded_attention(query[:, :, None], keys, values, keep=None, dropout_p=dropout_p)
        return context[:, :, 0]


class SourceCache:
    """The keys and values of the sources, of one layer, which all hypotheses of a source share.

    Args:
        key, value: (N, H, K), flat.
        layout: the sources.
    """

    def __init__(self, key: Tensor, value: Tensor, layout: Layout) -> None:
        # (N, H, K) -> (B, S, H, K) -> (B, H, S, K)
        self.key, self.value = (
            layout.pad(part).transpose(1, 2).contiguous() for part in (key, value)
        )
        self.sees = None if layout.keep is None else layout.keep[:, None, None, :]  # (B, 1, 1, S)

    def keep(self, sources: Tensor | None, parents: Tensor) -> None:
        """Continue with some sources; see `Steps.keep`."""
        if sources is not None:
            self.key, self.value = (
                part.index_select(0, sources) for part in (self.key, self.value)
            )
            if self.sees is not None:
                self.sees = self.sees.index_select(0, sources)

    def by_source(self, query: Tensor) -> Tensor:
        """Return the queries (R, H, K) of each source together: (B, H, W, K)."""
        return query.view(len(self.key), -1, *query.shape[1:]).transpose(1, 2)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *, dropout_p: float) -> Tensor:
        """Return (R, H, K) for queries (R, H, K); key and value are those of the cache."""
        context = padded_attention(
            self.by_source(query), key, value, keep=self.sees, dropout_p=dropout_p
        )
        return context.transpose(1, 2).flatten(0, 1)  # (B, H, W, K) -> (R, H, K)


class PrefixCache:
    """The keys and values of a source and of the target so far, of one layer of a single stack."""

    def __init__(self, source: SourceCache) -> None:
        self._source, self._target = source, TargetCache()

    def keep(self, sources: Tensor | None, parents: Tensor) -> None:
        """Continue with some hypotheses; see `Steps.keep`."""
        self._source.keep(sources, parents)
        self._target.keep(sources, parents)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *, dropout_p: float) -> Tensor:
        """Return (R, H, K) for a token of each hypothesis, (R, H, K)."""
        keys, values = self._target.add(key, value)
        query = query * query.shape[-1] ** -0.5
        # The source is not copied for each hypothesis, so its scores are computed by themselves.
        of_source = self._source.by_source(query) @ self._source.key.transpose(2, 3)
        if self._source.sees is not None:
            of_source = of_source.masked_fill(~self._source.sees, -torch.inf)
        of_target = (query[:, :, None] @ keys.transpose(2, 3))[:, :, 0]  # (R, H, T)
        size = of_source.shape[-1]
        # (B, H, W, S) -> (R, H, S); with the target's: (R, H, S + T)
        scores = torch.cat([of_source.transpose(1, 2).flatten(0, 1), of_target], dim=2)
        probabilities = dropout(scores.softmax(dim=2), dropout_p, training=True)
        from_source = self._source.by_source(probabilities[:, :, :size]) @ self._source.value
        from_target = (probabilities[:, :, None, size:] @ values)[:, :, 0]
        return from_source.transpose(1, 2).flatten(0, 1) + from_target


class _Recorder:
    """Self-attention of the sources that keeps the keys and values of each layer."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.caches: list[SourceCache] = []

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *, dropout_p: float) -> Tensor:
        self.of_last(query, key, value, dropout_p=dropout_p)
        return attention(
            query, key, value, queries=self._layout, keys=self._layout, dropout_p=dropout_p
        )

    def of_last(self, query: Tensor, key: Tensor, value: Tensor, *, dropout_p: float) -> Tensor:
        """Keep keys and values; there are no queries."""
        self.caches.append(SourceCache(key, value, self._layout))
        return query


class Steps:
    """Scores the next tokens of the targets of some sources, one step at a time.

    Args:
        model: in evaluation mode.
        source: B sources.
    """

    def __init__(self, model: TextGenerator, source: FlatTokens) -> None:
        self._model = model
        self._position = 0
        layout = layout_of(source)
        if isinstance(model, EncoderDecoder):
            encoded = model.encode(source, layout)
            self._sources = [
                SourceCache(*layer.cross_attention.keys_values(encoded), layout)
                for layer in _decoder_layers(model)
            ]
            self._targets: list[TargetCache] | list[PrefixCache] = [
                TargetCache() for _ in self._sources
            ]
        else:
            assert isinstance(model, PrefixGenerator)
            recorder = _Recorder(layout)
            model.encode(source, layout, recorder, recorder.of_last)
            self._sources = []
            self._targets = [PrefixCache(cache) for cache in recorder.caches]

    def step(self, tokens: Tensor) -> Tensor:
        """Read the last token of each hypothesis, (R,); return the log probabilities of the next.

        Returns:
            (R, V) fp32.
        """
        target = FlatTokens(
            input_ids=tokens,
            token_type_ids=torch.zeros_like(tokens),
            position_ids=torch.full_like(tokens, self._position),
            cu_seqlens=torch.arange(len(tokens) + 1, dtype=torch.int32, device=tokens.device),
            max_length=1,
        )
        self._position += 1
        model = self._model
        if isinstance(model, EncoderDecoder):
            hidden = model.decoder.embeddings(target)
            for layer, cache, source in zip(
                _decoder_layers(model), self._targets, self._sources, strict=True
            ):
                hidden = layer(hidden, source.key, source.value, cache, source)
            hidden = model.decoder.finish(hidden)
        else:
            assert isinstance(model, PrefixGenerator)
            hidden = model.embed_target(target)
            for own, cache in zip(_encoder_layers(model), self._targets, strict=True):
                hidden = own(hidden, cache)
            hidden = model.bert.encoder.finish(hidden)
        scores: Tensor = model.mlm(hidden, model.word_embedding)
        return scores.float().log_softmax(dim=1)

    def keep(self, sources: Tensor | None, parents: Tensor) -> None:
        """Continue with some sources and hypotheses.

        Args:
            sources: (B',) int64, which sources stay; None: all.
            parents: (R',) int64, for each new hypothesis the number of the one that it continues.
        """
        for cache in [*self._sources, *self._targets]:
            cache.keep(sources, parents)


class JointSteps:
    """Averages the probabilities of several models, whose vocabulary is the same, at each step."""

    def __init__(self, members: Sequence[Steps]) -> None:
        self._members = members

    def step(self, tokens: Tensor) -> Tensor:
        """Return (R, V) as `Steps.step` does."""
        found = torch.stack([member.step(tokens) for member in self._members])
        return found.logsumexp(dim=0) - torch.tensor(float(len(found))).log()

    def keep(self, sources: Tensor | None, parents: Tensor) -> None:
        """Do as `Steps.keep` with each model."""
        for member in self._members:
            member.keep(sources, parents)


def _decoder_layers(model: EncoderDecoder) -> list[DecoderLayer]:
    return [layer for layer in model.decoder.layers if isinstance(layer, DecoderLayer)]


def _encoder_layers(model: PrefixGenerator) -> list[EncoderLayer]:
    return [layer for layer in model.bert.encoder.layers if isinstance(layer, EncoderLayer)]


def _with_room(part: Tensor, room: int) -> Tensor:
    """Return an empty (R, H, room, K) for values like (R, H, K)."""
    rows, heads, size = part.shape
    return part.new_empty(rows, heads, room, size)


def _taken(part: Tensor, rows: Tensor, length: int) -> Tensor:
    """Return some rows of (R, H, room, K), with as much room."""
    taken = part.new_empty(len(rows), *part.shape[1:])
    taken[:, :, :length] = part[:, :, :length].index_select(0, rows)
    return taken
