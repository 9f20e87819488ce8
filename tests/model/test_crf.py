"""The CRF against sums and maxima over every sequence of tags, written out."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from bertpre.model.crf import AllowedTags, LinearChainCrf, viterbi

# With four tags: 3 may not start, 2 may not end, 1 is only followed by 1 and 2, 2 not by itself.
RULES = AllowedTags.from_numpy(
    start=np.array([1, 1, 1, 0], dtype=bool),
    between=np.array([[1, 1, 0, 1], [0, 1, 1, 0], [1, 1, 0, 1], [1, 1, 1, 1]], dtype=bool),
    end=np.array([1, 1, 0, 1], dtype=bool),
)
EVERYTHING = AllowedTags(*(torch.ones_like(part) for part in RULES))
LENGTHS = torch.tensor([3, 1, 5, 2, 4, 1])


def random_crf(num_tags: int = 4) -> LinearChainCrf:
    crf = LinearChainCrf(num_tags).double()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.double))
    return crf


def random_emissions(num_tags: int = 4) -> Tensor:
    """Scores of a padded batch; those of the padding are large."""
    shape = (len(LENGTHS), int(LENGTHS.max()), num_tags)
    emissions = 2 * torch.randn(shape, generator=torch.Generator().manual_seed(8)).double()
    is_padding = torch.arange(shape[1]) >= LENGTHS[:, None]
    return torch.where(is_padding[:, :, None], 100 * emissions, emissions)


def all_sequences(
    crf: LinearChainCrf | None, emissions: Tensor, allowed: AllowedTags
) -> dict[tuple[int, ...], float]:
    """Score each allowed sequence of one sentence, from emissions (T, C) without padding."""
    length, num_tags = emissions.shape
    found = {}
    for tags in itertools.product(range(num_tags), repeat=length):
        pairs = list(itertools.pairwise(tags))
        if not (allowed.start[tags[0]] and allowed.end[tags[-1]]):
            continue
        if not all(allowed.between[pair] for pair in pairs):
            continue
        score = sum(emissions[place, tag].item() for place, tag in enumerate(tags))
        if crf is not None:
            score += crf.start_transitions[tags[0]].item() + crf.end_transitions[tags[-1]].item()
            score += sum(crf.transitions[pair].item() for pair in pairs)
        found[tags] = score
    return found


def allowed_tags(emissions: Tensor, allowed: AllowedTags) -> Tensor:
    """Return a possible sequence for each sentence, padded with what must not matter."""
    tags = torch.full(emissions.shape[:2], -100)
    for row, length in enumerate(LENGTHS.tolist()):
        possible = sorted(all_sequences(None, emissions[row, :length], allowed))
        tags[row, :length] = torch.tensor(possible[len(possible) * (row + 1) // 8])
    return tags


rules = pytest.mark.parametrize("allowed", [None, EVERYTHING, RULES], ids=["none", "all", "rules"])


@rules
def test_the_likelihood_is_a_share_of_the_sum_over_every_sequence(
    allowed: AllowedTags | None,
) -> None:
    crf, emissions = random_crf(), random_emissions()
    tags = allowed_tags(emissions, allowed or EVERYTHING)

    found = crf.log_likelihood(emissions, tags, LENGTHS, allowed)

    for row, length in enumerate(LENGTHS.tolist()):
        scores = all_sequences(crf, emissions[row, :length], allowed or EVERYTHING)
        partition = math.log(sum(math.exp(score) for score in scores.values()))
        expected = scores[tuple(tags[row, :length].tolist())] - partition
        assert found[row].item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("num_tags", [1, 3])
def test_the_probabilities_of_all_sequences_add_up_to_one(num_tags: int) -> None:
    crf, emissions = random_crf(num_tags), random_emissions(num_tags)[2:3]
    every = torch.tensor(list(itertools.product(range(num_tags), repeat=5)))
    lengths = torch.full((len(every),), 5)

    found = crf.log_likelihood(emissions.expand(len(every), -1, -1), every, lengths, None)

    assert found.exp().sum().item() == pytest.approx(1)


@rules
def test_marginals_are_shares_of_the_sum_over_every_sequence(allowed: AllowedTags | None) -> None:
    crf, emissions = random_crf(), random_emissions()

    found = crf.marginals(emissions, LENGTHS, allowed)

    expected = torch.zeros_like(emissions)
    for row, length in enumerate(LENGTHS.tolist()):
        scores = all_sequences(crf, emissions[row, :length], allowed or EVERYTHING)
        partition = sum(math.exp(score) for score in scores.values())
        for tags, score in scores.items():
            expected[row, range(length), tags] += math.exp(score) / partition
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


@rules
@pytest.mark.parametrize("has_crf", [True, False])
def test_viterbi_finds_the_best_of_every_sequence(
    has_crf: bool, allowed: AllowedTags | None
) -> None:
    crf, emissions = random_crf() if has_crf else None, random_emissions()

    found = viterbi(emissions, LENGTHS, transitions=crf, allowed=allowed)

    for row, length in enumerate(LENGTHS.tolist()):
        scores = all_sequences(crf, emissions[row, :length], allowed or EVERYTHING)
        assert tuple(found[row, :length].tolist()) == max(scores, key=scores.__getitem__)
        assert not found[row, length:].any()


@rules
def test_of_equal_sequences_viterbi_takes_the_lowest_tags_from_the_end(
    allowed: AllowedTags | None,
) -> None:
    # Scores of 0 and 1 only, so that sums are exact and most are equal.
    emissions = torch.randint(2, (60, 5, 4), generator=torch.Generator().manual_seed(3)).float()
    lengths = torch.arange(60) % 5 + 1

    found = viterbi(emissions, lengths, transitions=None, allowed=allowed)

    num_ties = 0
    for row, length in enumerate(lengths.tolist()):
        scores = all_sequences(None, emissions[row, :length], allowed or EVERYTHING)
        best = [tags for tags, score in scores.items() if score == max(scores.values())]
        num_ties += len(best) > 1
        assert tuple(found[row, :length].tolist()) == min(best, key=lambda tags: tags[::-1])
    assert num_ties > 30


def test_without_rules_and_transitions_each_token_gets_its_best_tag() -> None:
    emissions = random_emissions()

    found = viterbi(emissions, LENGTHS, transitions=LinearChainCrf(4).double(), allowed=None)

    keep = torch.arange(5) < LENGTHS[:, None]
    assert torch.equal(found, emissions.argmax(dim=2) * keep)


def test_a_new_crf_is_independent_of_its_neighbours() -> None:
    emissions = random_emissions()
    tags = allowed_tags(emissions, EVERYTHING)

    found = LinearChainCrf(4).double().log_likelihood(emissions, tags, LENGTHS, None)

    losses = torch.nn.functional.cross_entropy(
        emissions.transpose(1, 2), tags, reduction="none", ignore_index=-100
    )
    torch.testing.assert_close(found, -losses.sum(dim=1))


@rules
def test_gradients_are_those_of_the_likelihood(allowed: AllowedTags | None) -> None:
    crf, emissions = random_crf(), random_emissions().requires_grad_()
    tags = allowed_tags(emissions.detach(), allowed or EVERYTHING)

    def of(emissions: Tensor, *_: Tensor) -> Tensor:
        return crf.log_likelihood(emissions, tags, LENGTHS, allowed)

    assert torch.autograd.gradcheck(of, (emissions, *crf.parameters()))


def test_gradients_are_finite_in_fp32_whatever_is_forbidden_and_however_long() -> None:
    # Tag 3 is never reached; a sentence of one token stands beside one of 1,000.
    between = RULES.between.clone()
    between[:, 3] = False
    allowed = RULES._replace(between=between)
    crf = random_crf().float()
    generator = torch.Generator().manual_seed(2)
    emissions = (50 * torch.randn(2, 1000, 4, generator=generator)).requires_grad_()
    lengths = torch.tensor([1000, 1])
    tags = viterbi(emissions.detach(), lengths, transitions=None, allowed=allowed)

    found = crf.log_likelihood(emissions, tags, lengths, allowed)
    found.sum().backward()

    assert found.isfinite().all()
    assert (found <= 0).all()
    for part in (emissions, *crf.parameters()):
        assert part.grad is not None
        assert part.grad.isfinite().all()
    assert emissions.grad is not None
    assert not emissions.grad[:, :, 3].any()
    assert not emissions.grad[1, 1:].any()
    assert not crf.transitions.grad[~between].any()


def test_sums_in_fp32_keep_their_digits_in_a_long_sentence() -> None:
    crf = random_crf()
    emissions = random_emissions().repeat(1, 60, 1)[:1] + 1000  # the shift changes nothing
    lengths = torch.tensor([300])
    tags = viterbi(emissions, lengths, transitions=None, allowed=RULES)
    exact = crf.marginals(emissions, lengths, RULES)
    likelihood = crf.log_likelihood(emissions, tags, lengths, RULES)

    crf, emissions = crf.float(), emissions.float()

    found = crf.marginals(emissions, lengths, RULES)
    torch.testing.assert_close(found.double(), exact, atol=1e-4, rtol=0)
    rounded = crf.log_likelihood(emissions, tags, lengths, RULES)
    torch.testing.assert_close(rounded.double(), likelihood, atol=0, rtol=1e-4)


def test_a_sentence_gives_the_same_alone_and_beside_longer_ones() -> None:
    crf, emissions = random_crf().float(), random_emissions().float()
    tags = allowed_tags(emissions, RULES)

    together = crf.log_likelihood(emissions, tags, LENGTHS, RULES)
    marginals = crf.marginals(emissions, LENGTHS, RULES)

    for row, length in enumerate(LENGTHS.tolist()):
        part = slice(row, row + 1), slice(length)
        alone = crf.log_likelihood(emissions[part], tags[part], LENGTHS[row : row + 1], RULES)
        torch.testing.assert_close(alone[0], together[row])
        own = crf.marginals(emissions[part], LENGTHS[row : row + 1], RULES)
        torch.testing.assert_close(own, marginals[part])


def test_two_words_by_hand() -> None:
    # Two tags, both scores 0 except a transition from the first to the second of log 3: of the
    # four sequences, it has 3 of 6 parts. Were it forbidden, the others would have a third each.
    crf = LinearChainCrf(2)
    with torch.no_grad():
        crf.transitions[0, 1] = math.log(3)
    rules = AllowedTags.from_numpy(
        np.ones(2, bool), np.array([[True, False], [True, True]]), np.ones(2, bool)
    )
    emissions, lengths = torch.zeros(1, 2, 2), torch.tensor([2])

    free = crf.log_likelihood(emissions, torch.tensor([[0, 1]]), lengths, None)
    bound = crf.log_likelihood(emissions, torch.tensor([[1, 0]]), lengths, rules)

    assert free.item() == pytest.approx(math.log(1 / 2))
    assert bound.item() == pytest.approx(math.log(1 / 3))
    marginals = crf.marginals(emissions, lengths, rules)
    torch.testing.assert_close(marginals, torch.tensor([[[1, 2], [2, 1]]]) / 3)
