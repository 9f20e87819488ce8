"""Greedy and beam search for the best targets, whatever scores the tokens.

Size letters: B sources, W hypotheses of each, R = B * W, K num_beams, T tokens so far,
V vocab_size.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

# Finished sources leave when they are this share, since leaving copies what the others keep.
_LEAVING_SHARE = 0.125
_BLOCK = 64  # scores


class Scorer(Protocol):
    """What a search drives. The hypotheses of a source are side by side."""

    def step(self, tokens: Tensor) -> Tensor:
        """Read the last token of each hypothesis, (R,).

        Returns:
            The log probabilities of the next, (R, V) fp32, which the caller may change.
        """

    def keep(self, sources: Tensor | None, parents: Tensor) -> None:
        """Continue with some sources (None: all) and, for each new hypothesis, an old one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchOptions:
    """What is searched for.

    Args:
        max_length: most tokens of a text, [SEP] not counted, which always follows.
        num_beams: K; 1 is greedy search.
        length_penalty: hypotheses are ranked by log probability / length ** length_penalty.
        min_length: fewest tokens of a text.
        no_repeat_ngram: no so many tokens in a row occur twice in a text; 0: any may.
        num_best: hypotheses to return, at most K.
    """

    max_length: int
    num_beams: int = 1
    length_penalty: float = 1.0
    min_length: int = 0
    no_repeat_ngram: int = 0
    num_best: int = 1


class Hypothesis(NamedTuple):
    """A finished text: its ids without [CLS] and [SEP], and its log probability with [SEP]."""

    ids: tuple[int, ...]
    log_probability: float

    @property
    def mean(self) -> float:
        """Log probability per token, [SEP] included."""
        return self.log_probability / (len(self.ids) + 1)


def search(
    scorer: Scorer,
    num_sources: int,
    *,
    options: SearchOptions,
    start_id: int,
    end_id: int,
    device: torch.device,
) -> list[list[Hypothesis]]:
    """Find the best targets of some sources; each as if it were alone.

    Args:
        scorer: has read the sources, and no token of a target.
        num_sources: B.
        options: what is searched for.
        start_id: the token before a target.
        end_id: the token behind it.
        device: of the scorer.

    Returns:
        Up to ``num_best`` hypotheses of each source, the best first. Of equal ones that with the
        lowest ids comes first.

    Source: the transformers library, ``generate`` with ``early_stopping=False``, for the ranks and
        for when a source is done.
    """
    tokens = torch.full((num_sources,), start_id, device=device)
    if options.num_beams == 1:
        return _greedy(scorer, tokens, options, end_id)
    return _Beams(scorer, tokens, options, end_id).run()


def _greedy(
    scorer: Scorer, tokens: Tensor, options: SearchOptions, end_id: int
) -> list[list[Hypothesis]]:
    found: list[list[Hypothesis]] = [[] for _ in tokens]
    running = torch.arange(len(tokens), device=tokens.device)  # the source of each row
    is_open = torch.ones_like(running, dtype=torch.bool)
    texts = tokens.new_zeros(len(tokens), 0)
    sums = torch.zeros(len(tokens), device=tokens.device)
    for length in range(options.max_length + 1):
        scores = _restrict(scorer.step(tokens), texts, options, end_id)
        best, places = top(scores, 1)  # several times as fast as argmax
        tokens, sums = places[:, 0], sums + best[:, 0]
        ends = is_open & (tokens == end_id)
        rows = ends.nonzero()[:, 0]
        if len(rows):
            parts = (part[rows].tolist() for part in (running, texts, sums))
            for source, text, total in zip(*parts, strict=True):
                found[source].append(Hypothesis(tuple(text), total))
        is_open = is_open & ~ends
        num_open = int(is_open.sum())
        if num_open == 0 or length == options.max_length:
            break
        texts = torch.cat([texts, tokens[:, None]], dim=1)
        if num_open <= (1 - _LEAVING_SHARE) * len(running):
            kept = is_open.nonzero()[:, 0]
            scorer.keep(kept, kept)
            tokens, texts, sums, running, is_open = (
                part[kept] for part in (tokens, texts, sums, running, is_open)
            )
    return found


def _restrict(scores: Tensor, texts: Tensor, options: SearchOptions, end_id: int) -> Tensor:
    """Make impossible tokens impossible: (R, V), changed in place, of the texts so far (R, T)."""
    length, size = texts.shape[1], options.no_repeat_ngram
    end = scores[:, end_id].clone()
    if length == options.max_length:
        scores.fill_(-torch.inf)
        scores[:, end_id] = end
        return scores
    if 0 < size <= length:
        ngrams = texts.unfold(1, size, 1)  # (R, T) -> (R, T - size + 1, size)
        last = texts[:, length - size + 1 :]  # (R, size - 1)
        repeats = (ngrams[:, :, :-1] == last[:, None]).all(dim=2)
        ends = ngrams[:, :, -1]
        values = scores.gather(1, ends).masked_fill(repeats, -torch.inf)
        scores.scatter_reduce_(1, ends, values, "amin")
    if length < options.min_length:
        scores[:, end_id] = -torch.inf
        if size > 0:  # a text that cannot go on ends nevertheless
            is_stuck = scores.amax(dim=1) == -torch.inf
            scores[:, end_id] = torch.where(is_stuck, end, -torch.inf)
    return scores


class _Beams:
    """A beam search.

    Running hypotheses are (B, W), finished ones (B, K), the best first; absent ones score -inf.
    """

    def __init__(self, scorer: Scorer, tokens: Tensor, options: SearchOptions, end_id: int) -> None:
        self._scorer, self._options, self._end_id = scorer, options, end_id
        self._tokens = tokens
        num_sources, num_beams = len(tokens), options.num_beams
        self._source = torch.arange(num_sources, device=tokens.device)
        self._is_open = torch.ones_like(self._source, dtype=torch.bool)
        self._sums = torch.zeros(num_sources, 1, device=tokens.device)
        self._texts = tokens.new_zeros(num_sources, 1, 0)  # (B, W, T)
        self._best = torch.full((num_sources, num_beams), -torch.inf, device=tokens.device)
        self._best_sums = self._best.clone()
        self._best_texts = tokens.new_zeros(num_sources, num_beams, options.max_length)
        self._best_lengths = tokens.new_zeros(num_sources, num_beams)
        self._found: list[list[Hypothesis]] = [[] for _ in tokens]

    def run(self) -> list[list[Hypothesis]]:
        """Search to the end."""
        for length in range(self._options.max_length + 1):
            is_last = length == self._options.max_length
            sums, parents, tokens = self._candidates()
            self._finish(sums, parents, tokens)
            running = self._go_on(sums, parents, tokens)
            is_done = torch.ones_like(self._is_open)
            if not is_last:
                possible = self._sums[:, 0] / (length + 1) ** self._options.length_penalty
                is_done = possible <= self._best[:, -1]  # which is -inf while one is missing
            self._report(is_done & self._is_open)
            self._is_open = self._is_open & ~is_done
            num_open = int(self._is_open.sum())
            if num_open == 0 or is_last:
                break
            self._leave(running, num_open)
        return self._found

    def _candidates(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return sums, parents and tokens of the best continuations of each source, (B, C)."""
        num_sources = len(self._sums)
        scores = self._scorer.step(self._tokens)
        scores = _restrict(scores, self._texts.flatten(0, 1), self._options, self._end_id)
        # The best of a source are among the best of each hypothesis.
        count = min(2 * self._options.num_beams, scores.shape[1])
        best, tokens = top(scores, count)
        sums = (self._sums.flatten()[:, None] + best).view(num_sources, -1)  # (B, W * count)
        best, places = top(sums, min(2 * self._options.num_beams, sums.shape[1]))
        return best, places // count, tokens.view(num_sources, -1).gather(1, places)

    def _finish(self, sums: Tensor, parents: Tensor, tokens: Tensor) -> None:
        """Add the candidates among the best K that end to the finished hypotheses."""
        num_beams, length = self._options.num_beams, self._texts.shape[2]
        sums, parents = sums[:, :num_beams], parents[:, :num_beams]
        ends = (tokens[:, :num_beams] == self._end_id) & self._is_open[:, None]
        if not ends.any():
            return
        scores = sums / (length + 1) ** self._options.length_penalty
        scores = scores.masked_fill(~ends, -torch.inf)
        texts = self._texts.gather(1, parents[:, :, None].expand(-1, -1, length))
        texts = torch.nn.functional.pad(texts, (0, self._options.max_length - length))
        lengths = torch.full_like(parents, length)
        best, places = torch.sort(
            torch.cat([self._best, scores], dim=1), dim=1, descending=True, stable=True
        )
        self._best, places = best[:, :num_beams], places[:, :num_beams]
        self._best_sums = torch.cat([self._best_sums, sums], dim=1).gather(1, places)
        self._best_lengths = torch.cat([self._best_lengths, lengths], dim=1).gather(1, places)
        wide = places[:, :, None].expand(-1, -1, self._options.max_length)
        self._best_texts = torch.cat([self._best_texts, texts], dim=1).gather(1, wide)

    def _go_on(self, sums: Tensor, parents: Tensor, tokens: Tensor) -> Tensor:
        """Continue with the best K candidates that do not end; return their old numbers (B, K)."""
        is_end = tokens == self._end_id
        order = torch.sort(is_end.int(), dim=1, stable=True).indices
        order = order[:, : self._options.num_beams]
        sums = sums.masked_fill(is_end, -torch.inf)
        self._sums, parents, tokens = (part.gather(1, order) for part in (sums, parents, tokens))
        length = self._texts.shape[2]
        texts = self._texts.gather(1, parents[:, :, None].expand(-1, -1, length))
        width = self._texts.shape[1]
        self._texts = torch.cat([texts, tokens[:, :, None]], dim=2)
        self._tokens = tokens.flatten()
        return parents + width * torch.arange(len(parents), device=parents.device)[:, None]

    def _report(self, is_done: Tensor) -> None:
        """Note the best hypotheses of sources that are done."""
        rows = is_done.nonzero()[:, 0]
        if len(rows) == 0:
            return
        parts = (self._source, self._best, self._best_sums, self._best_lengths, self._best_texts)
        for source, scores, sums, lengths, texts in zip(
            *(part[rows].tolist() for part in parts), strict=True
        ):
            self._found[source] = [
                Hypothesis(tuple(texts[place][: lengths[place]]), sums[place])
                for place in range(self._options.num_best)
                if scores[place] > -torch.inf
            ]

    def _leave(self, running: Tensor, num_open: int) -> None:
        """Tell the scorer what goes on; sources that are done leave when they are many."""
        if num_open > (1 - _LEAVING_SHARE) * len(running):
            self._scorer.keep(None, running.flatten())
            return
        kept = self._is_open.nonzero()[:, 0]
        self._scorer.keep(kept, running[kept].flatten())
        self._tokens = self._tokens.view(len(running), -1)[kept].flatten()
        for name in ("source", "is_open", "sums", "texts", "best", "best_sums"):
            setattr(self, f"_{name}", getattr(self, f"_{name}")[kept])
        self._best_texts, self._best_lengths = self._best_texts[kept], self._best_lengths[kept]


def top(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the best scores of each row, descending, and their places; ties by the lowest place.

    Args:
        scores: (B, N) fp32.
        count: how many, at most N.
    """
    size = scores.shape[1]
    if size <= _BLOCK * count:
        best = _keys(scores).topk(count, dim=1).values
        places = _LAST_PLACE - (best & _LAST_PLACE)
        return scores.gather(1, places), places
    # They are in the blocks with the highest maxima, which are found in one pass. Of equal blocks
    # the first ones count, too.
    whole = size - size % _BLOCK
    highest = scores[:, :whole].view(len(scores), -1, _BLOCK).amax(dim=2)
    if whole < size:
        highest = torch.cat([highest, scores[:, whole:].amax(dim=1, keepdim=True)], dim=1)
    _, blocks = top(highest, min(count, highest.shape[1]))
    inside = torch.arange(_BLOCK, device=scores.device)
    places = (blocks.sort(dim=1).values[:, :, None] * _BLOCK + inside).flatten(1)
    among = scores.gather(1, places.clamp(max=size - 1))
    among = among.masked_fill(places >= size, -torch.inf)
    best = _keys(among).topk(count, dim=1).values
    chosen = _LAST_PLACE - (best & _LAST_PLACE)
    return among.gather(1, chosen), places.gather(1, chosen)


_LAST_PLACE = 2**32 - 1


def _keys(scores: Tensor) -> Tensor:
    """Return (B, N) int64 that rank like the scores, and equal scores by the lowest place."""
    bits = (scores + 0.0).contiguous().view(torch.int32).long()  # no -0.0
    ranks = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)  # negative floats grow downwards
    places = torch.arange(scores.shape[1], device=scores.device)
    return (ranks << 32) + (_LAST_PLACE - places)
