"""One stack for source and target: the encoder's layers write text, without a decoder.

Size letters: B batch, M target tokens and N source tokens in the batch, D hidden_size, H heads,
K head size.
"""

import dataclasses
from functools import partial

import torch
from torch import Tensor

from bertpre.config import schema
from bertpre.model.attention import Attend, attention, causal_mask
from bertpre.model.bert import BertModel, LastLayer
from bertpre.model.decoder import TextGenerator
from bertpre.model.flat import FlatTokens, Layout, add_filler, layout_of, make_layout, round_up
from bertpre.model.heads import MlmHead


class PrefixAttention:
    """Lets a source token see its source, and a target token its source and the target so far.

    Tokens are flat, all sources before all targets.

    Args:
        source, target: the layouts of B sources and their targets.

    Source: Dong et al. 2019, "Unified language model pre-training for natural language
        understanding and generation", figure 1 ("sequence-to-sequence LM").
    """

    def __init__(self, source: Layout, target: Layout) -> None:
        self._num_source, self._num_target = source.num_tokens, target.num_tokens
        joined = make_layout(
            source.cu_seqlens + target.cu_seqlens,
            num_tokens=source.num_tokens + target.num_tokens,
            max_length=_longest(source, target),
        )
        self._order = _interleave(source.cu_seqlens, target.cu_seqlens, joined.num_tokens)
        self._in_source = partial(attention, queries=source, keys=source)
        self._in_both = partial(
            attention, queries=target, keys=joined, causal=causal_mask(target, joined)
        )

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *, dropout_p: float) -> Tensor:
        """Return (rows, H, K) for as many rows: N, M, and perhaps filler."""
        ends = self._num_source, self._num_source + self._num_target
        source = self._in_source(
            *(part[: ends[0]] for part in (query, key, value)), dropout_p=dropout_p
        )
        target = self.of_target(query[ends[0] : ends[1]], key, value, dropout_p=dropout_p)
        context = torch.cat([source[: ends[0]], target[: self._num_target]])
        return add_filler(context, len(query))

    def of_target(self, query: Tensor, key: Tensor, value: Tensor, *, dropout_p: float) -> Tensor:
        """Return (M, H, K) for queries of the target alone, (M, H, K)."""
        key, value = (part.index_select(0, self._order) for part in (key, value))
        return self._in_both(query, key, value, dropout_p=dropout_p)


def _longest(source: Layout, target: Layout) -> int:
    """Bound the length of source and target together, without a transfer from a GPU."""
    if source.cu_seqlens.device.type == "cpu":
        return int((source.cu_seqlens + target.cu_seqlens).diff().max())
    return source.longest + target.longest


def _interleave(source: Tensor, target: Tensor, num_tokens: int) -> Tensor:
    """Return the order (N + M,) that puts each target behind its source.

    Args:
        source, target: (B + 1,), their starts.
        num_tokens: N + M.
    """
    lengths = torch.stack([source.diff(), target.diff()], dim=1).flatten()  # (2 B,)
    starts = torch.stack([source[:-1], target[:-1] + source[-1]], dim=1).flatten().long()
    firsts = lengths.cumsum(0) - lengths
    shifts = torch.repeat_interleave(starts - firsts, lengths, output_size=num_tokens)
    return torch.arange(num_tokens, device=source.device) + shifts


class PrefixGenerator(TextGenerator):
    """An encoder that reads source and target in one pass, and scores the target's next tokens.

    Each token sees its whole source, and those of the target up to itself. Targets are in
    segment 1, if there is one, and their positions start at 0. No weight is new.

    Args:
        config: the shape.
        vocab_size: rows of the word embedding.

    Source: Dong et al. 2019, section 2.2; there the positions of targets continue those of sources.
    """

    def __init__(self, config: schema.Model, *, vocab_size: int) -> None:
        super().__init__()
        self.bert = BertModel(config, vocab_size=vocab_size, with_pooler=False)
        self.mlm = MlmHead(config, vocab_size=vocab_size)

    def embed_target(self, target: FlatTokens) -> Tensor:
        """Return the embeddings (M, D) of target tokens."""
        segment = min(1, self.bert.config.type_vocab_size - 1)
        segments = torch.full_like(target.token_type_ids, segment)
        embedded: Tensor = self.bert.embeddings(
            dataclasses.replace(target, token_type_ids=segments)
        )
        return embedded

    def encode(
        self, source: FlatTokens, layout: Layout, attend: Attend, attend_last: Attend
    ) -> None:
        """Run the sources alone, for the sake of the keys and values that ``attend`` sees.

        Nothing reads the last layer's output, so ``attend_last`` gets no queries.
        """
        hidden = add_filler(self.bert.embeddings(source), layout.num_rows)
        nowhere = torch.empty(0, dtype=torch.int64, device=hidden.device)
        self.bert.encoder(hidden, attend, LastLayer(nowhere, attend_last))

    def decode(self, source: FlatTokens, target: FlatTokens) -> Tensor:
        num_source, num_target = len(source.input_ids), len(target.input_ids)
        embedded = [self.bert.embeddings(source), self.embed_target(target)]
        num_rows = num_source + num_target
        if source.input_ids.device.type == "cpu":
            num_rows = round_up(num_rows)
        layout = layout_of(target)
        attend = PrefixAttention(layout_of(source), layout)
        hidden = add_filler(torch.cat(embedded), num_rows)
        places = torch.arange(num_source, num_source + num_target, device=hidden.device)
        last = LastLayer(add_filler(places, layout.num_rows), attend.of_target)
        target_hidden: Tensor = self.bert.encoder(hidden, attend, last)
        return target_hidden
