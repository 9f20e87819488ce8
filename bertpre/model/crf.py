"""A linear-chain conditional random field over the tags of a sentence, and decoding with it.

Sentences are padded here: rows of a batch differ in length, and what follows a sentence in its row
does not matter, but is finite. Size letters: B sentences, T tokens of the longest, C tags.
"""

from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

# Scores forbidden transitions. It is finite, as the gradient of a sum over -inf alone is nan; its
# exponential is 0 beside any other score, and sums over any sentence stay finite in fp32.
_FORBIDDEN = -1e30


class AllowedTags(NamedTuple):
    """The tags that may start a sentence, follow another, and end a sentence; all are bool.

    Sentences of any length must be possible.

    Attributes:
        start: (C,).
        between: (C, C), true if the second tag may follow the first.
        end: (C,).
    """

    start: Tensor
    between: Tensor
    end: Tensor

    @classmethod
    def from_numpy(
        cls,
        start: npt.NDArray[np.bool_],
        between: npt.NDArray[np.bool_],
        end: npt.NDArray[np.bool_],
        *,
        device: torch.device | str = "cpu",
    ) -> Self:
        """Copy arrays of these shapes to a device."""
        return cls(*(torch.tensor(part, device=device) for part in (start, between, end)))


class LinearChainCrf(nn.Module):
    """Scores of transitions between tags, added to those that the encoder gives each token.

    The probability of a sequence of tags is the exponential of its score, divided by the sum of
    those of all allowed sequences.

    Args:
        num_tags: C.

    Source: Lafferty et al. 2001, "Conditional random fields: probabilistic models for segmenting
        and labeling sequence data", section 3; the scores at both ends are as in Lample et al.
        2016, "Neural architectures for named entity recognition", section 2.2.
    """

    def __init__(self, num_tags: int) -> None:
        super().__init__()
        # With zeros, training starts where a head without a CRF does, and no random number moves.
        self.transitions = nn.Parameter(torch.zeros(num_tags, num_tags))  # [from, to]
        self.start_transitions = nn.Parameter(torch.zeros(num_tags))
        self.end_transitions = nn.Parameter(torch.zeros(num_tags))

    def log_likelihood(
        self, emissions: Tensor, tags: Tensor, lengths: Tensor, allowed: AllowedTags | None
    ) -> Tensor:
        """Compute the log probability of the given tags.

        Args:
            emissions: (B, T, C) fp32, the scores of the tags of each token.
            tags: (B, T) int64. They must be allowed: a forbidden transition among them is scored
                like any other, but is not part of the sum.
            lengths: (B,) int64, at least 1.
            allowed: None allows all.

        Returns:
            (B,), at most 0.
        """
        emissions = _near_zero(emissions)
        keep = _is_real(emissions, lengths)
        tags = tags.masked_fill(~keep, 0)
        ends = (lengths - 1)[:, None]  # (B, 1)
        # Not gather for the parameters: on a GPU, its gradients are summed in varying order.
        steps = self.transitions[tags[:, :-1], tags[:, 1:]]  # (B, T) -> (B, T - 1)
        scores = emissions.gather(2, tags[:, :, None]).squeeze(2)  # (B, T, C) -> (B, T)
        score = (
            self.start_transitions[tags[:, 0]]
            + torch.where(keep, scores, 0).sum(dim=1)
            + torch.where(keep[:, 1:], steps, 0).sum(dim=1)
            + self.end_transitions[tags.gather(1, ends).squeeze(1)]
        )
        chain = _chain(self, allowed, like=emissions)
        last = _sums_before(emissions, chain).take_along_dim(ends[:, :, None], dim=1).squeeze(1)
        return score - (last + chain.end).logsumexp(dim=1)

    def marginals(self, emissions: Tensor, lengths: Tensor, allowed: AllowedTags | None) -> Tensor:
        """Compute the probability of each tag of each token, over all sequences.

        Args:
            emissions: (B, T, C) fp32.
            lengths: (B,) int64, at least 1.
            allowed: None allows all.

        Returns:
            (B, T, C); 0 after the end of a sentence.

        Source: Rabiner 1989, "A tutorial on hidden Markov models", section III, forward-backward.
        """
        emissions = _near_zero(emissions)
        chain = _chain(self, allowed, like=emissions)
        both = _sums_before(emissions, chain) + _sums_after(emissions, lengths, chain)
        keep = _is_real(emissions, lengths)[:, :, None]
        return torch.where(keep, both.softmax(dim=2), 0)


def viterbi(
    scores: Tensor,
    lengths: Tensor,
    *,
    transitions: LinearChainCrf | None,
    allowed: AllowedTags | None,
) -> Tensor:
    """Find the allowed sequence of tags with the highest sum of scores.

    Args:
        scores: (B, T, C) fp32: a CRF's emissions, or log probabilities.
        lengths: (B,) int64, at least 1.
        transitions: the CRF whose scores are added; None adds none.
        allowed: None allows all.

    Returns:
        (B, T) int64; 0 after the end of a sentence. Of equal sequences it is the one whose last
        tag is lowest, then whose last but one is lowest, and so on.

    Source: Viterbi 1967, "Error bounds for convolutional codes and an asymptotically optimum
        decoding algorithm", section IV.
    """
    chain = _chain(transitions, allowed, like=scores)
    into = chain.between.t().contiguous()  # [to, from]: the fastest reduction is over the last
    best = chain.start + scores[:, 0]  # (B, C)
    bests, previous = [best], []
    for t in range(1, scores.shape[1]):
        # (B, 1, C) + (C, C) -> (B, C, C), [to, from]; the first of equal scores is taken
        step, tag_before = (best[:, None, :] + into).max(dim=2)
        best = step + scores[:, t]
        # Only differences matter, and fp32 has most digits for those of small numbers.
        best = best - best.amax(dim=1, keepdim=True)
        bests.append(best)
        previous.append(tag_before)
    ends = lengths - 1
    last = torch.stack(bests, dim=1).take_along_dim(ends[:, None, None], dim=1).squeeze(1)
    last_tag = (last + chain.end).argmax(dim=1)  # (B, T, C) -> (B, C) -> (B,)
    tags = torch.zeros(scores.shape[:2], dtype=torch.int64, device=scores.device)
    tag = last_tag
    for t in range(scores.shape[1] - 1, -1, -1):
        if t < len(previous):
            tag = previous[t].gather(1, tag[:, None]).squeeze(1)
        tag = torch.where(t < ends, tag, last_tag)
        tags[:, t] = tag
    return tags.masked_fill(~_is_real(scores, lengths), 0)


class _Chain(NamedTuple):
    """Scores of starting (C,), of transitions (C, C) and of ending (C,)."""

    start: Tensor
    between: Tensor
    end: Tensor


def _chain(crf: LinearChainCrf | None, allowed: AllowedTags | None, *, like: Tensor) -> _Chain:
    """Return a CRF's scores, or zeros, with those of forbidden transitions replaced."""
    num_tags = like.shape[-1]
    scores = (
        tuple(like.new_zeros(shape) for shape in ((num_tags,), (num_tags, num_tags), (num_tags,)))
        if crf is None
        else (crf.start_transitions, crf.transitions, crf.end_transitions)
    )
    if allowed is None:
        return _Chain(*scores)
    return _Chain(
        *(torch.where(part, own, _FORBIDDEN) for part, own in zip(allowed, scores, strict=True))
    )


def _near_zero(emissions: Tensor) -> Tensor:
    """Shift the scores of each token so that sums over long sentences keep their digits in fp32.

    A number added to all scores of a token changes no probability, so it has no gradient either.
    """
    return emissions - emissions.detach().logsumexp(dim=2, keepdim=True)


def _sums_before(emissions: Tensor, chain: _Chain) -> Tensor:
    """Sum over the sequences up to each token, by its tag: logarithms (B, T, C)."""
    into = chain.between.t()  # [to, from]
    sums = [chain.start + emissions[:, 0]]
    for t in range(1, emissions.shape[1]):
        # (B, 1, C) + (C, C) -> (B, C, C), [to, from] -> (B, C)
        sums.append((sums[-1][:, None, :] + into).logsumexp(dim=2) + emissions[:, t])
    return torch.stack(sums, dim=1)


def _sums_after(emissions: Tensor, lengths: Tensor, chain: _Chain) -> Tensor:
    """Sum over the sequences after each token, by its tag: logarithms (B, T, C)."""
    end = chain.end.expand(len(emissions), -1)  # (C,) -> (B, C)
    sums = [end]
    for t in range(emissions.shape[1] - 1, 0, -1):
        # (B, 1, C) + (C, C) -> (B, C, C), [from, to] -> (B, C)
        step = ((sums[-1] + emissions[:, t])[:, None, :] + chain.between).logsumexp(dim=2)
        sums.append(torch.where((t < lengths)[:, None], step, end))
    return torch.stack(sums[::-1], dim=1)


def _is_real(scores: Tensor, lengths: Tensor) -> Tensor:
    """Return a mask (B, T), true within each sentence."""
    return torch.arange(scores.shape[1], device=scores.device) < lengths[:, None]
