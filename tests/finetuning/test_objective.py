"""Losses against values worked out by hand, and against PyTorch's own where they agree."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bertpre.config.schema import Finetune
from bertpre.finetuning.classification import Classification, CrossEntropy
from bertpre.finetuning.multi_label import BinaryCrossEntropy, MultiLabel
from bertpre.finetuning.regression import Regression

CLASSES = Classification(names=("a", "b", "c"))
NAMES = MultiLabel(names=("a", "b"))
NUMBERS = Regression(names=("value",))
CPU = torch.device("cpu")


def made(task, targets, **options):
    return task.objective(np.array(targets), config=Finetune(**options), device=CPU)


def test_a_plain_loss_is_the_mean_cross_entropy():
    logits = torch.tensor([[2.0, 0.0, 1.0], [0.0, 0.0, 0.0]])

    loss = made(CLASSES, [0, 1, 2]).of_logits(logits, torch.tensor([0, 2]))

    first = -math.log(math.exp(2) / (math.exp(2) + 1 + math.exp(1)))
    assert loss.item() == pytest.approx((first + math.log(3)) / 2, rel=1e-6)


def test_the_loss_of_several_names_is_the_mean_binary_cross_entropy():
    logits = torch.tensor([[0.0, math.log(3)]])  # probabilities 1/2 and 3/4

    loss = made(NAMES, [[1.0, 0.0]]).of_logits(logits, torch.tensor([[1.0, 0.0]]))

    assert loss.item() == pytest.approx(-(math.log(0.5) + math.log(0.25)) / 2, rel=1e-6)


def test_label_smoothing_spreads_a_share_over_all_classes():
    logits = torch.tensor([[2.0, 0.0, 1.0]])

    loss = made(CLASSES, [0, 1, 2], label_smoothing=0.3).of_logits(logits, torch.tensor([0]))

    log_shares = F.log_softmax(logits, dim=1)[0]
    expected = -(0.8 * log_shares[0] + 0.1 * log_shares[1] + 0.1 * log_shares[2])
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)


def test_label_smoothing_of_names_moves_each_target_towards_a_half():
    logits = torch.tensor([[1.0, -2.0]])

    loss = made(NAMES, [[1.0, 0.0]], label_smoothing=0.2).of_logits(
        logits, torch.tensor([[1.0, 0.0]])
    )

    expected = F.binary_cross_entropy(logits.sigmoid(), torch.tensor([[0.9, 0.1]]))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_focal_loss_weighs_rows_by_what_they_are_wrong_by():
    logits = torch.tensor([[math.log(3), 0.0], [0.0, 0.0]])  # 3/4 and 1/2 for the first

    loss = CrossEntropy(focal_gamma=2.0).of_logits(logits, torch.tensor([0, 0]))

    # Source: Lin et al. 2017, equation 4: -(1 - p)^gamma log p.
    expected = (-(0.25**2) * math.log(0.75) - 0.5**2 * math.log(0.5)) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-6)


def test_focal_loss_of_names_goes_by_the_right_answer_of_each():
    logits = torch.tensor([[math.log(3), math.log(3)]])

    loss = BinaryCrossEntropy(focal_gamma=1.0).of_logits(logits, torch.tensor([[1.0, 0.0]]))

    expected = (-0.25 * math.log(0.75) - 0.75 * math.log(0.25)) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-6)


def test_balanced_weights_are_inverse_to_the_counts():
    objective = made(CLASSES, [0, 0, 0, 1, 1, 2], class_weights="balanced")

    # Source: scikit-learn, class_weight="balanced": rows / (classes * count).
    assert objective.weights.tolist() == pytest.approx([6 / 9, 6 / 6, 6 / 3])
    loss = objective.of_logits(torch.zeros(2, 3), torch.tensor([0, 2]))
    assert loss.item() == pytest.approx(math.log(3) * (6 / 9 + 2) / 2, rel=1e-6)


def test_a_class_that_no_training_row_has_weighs_nothing_of_the_others():
    objective = made(CLASSES, [0, 0, 1, 1], class_weights="balanced")

    assert objective.weights.tolist()[:2] == [1.0, 1.0]


def test_balanced_weights_of_names_are_for_rows_with_and_without_each():
    objective = made(NAMES, [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 1.0]],
                     class_weights="balanced")  # fmt: skip

    # Rows with a: 1, without: 3; with b: 2, without: 2.
    torch.testing.assert_close(
        objective.weights, torch.tensor([[4 / 6, 1.0], [4 / 2, 1.0]]), rtol=1e-6, atol=0
    )
    loss = objective.of_logits(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]))
    assert loss.item() == pytest.approx(math.log(2) * (2 + 1) / 2, rel=1e-6)


def test_numbers_are_learnt_with_mean_zero_and_variance_one():
    objective = made(NUMBERS, np.array([[10.0], [20.0], [30.0]], dtype=np.float32))

    loss = objective.of_logits(torch.tensor([[0.0]]), torch.tensor([[30.0]]))

    assert loss.item() == pytest.approx((10 / objective.scale) ** 2, rel=1e-6)
    assert (objective.center, objective.scale) == pytest.approx((20.0, math.sqrt(200 / 3)))


def test_numbers_that_do_not_vary_in_a_fold_are_not_divided_by_nothing():
    objective = made(NUMBERS, np.array([[5.0], [5.0]], dtype=np.float32))

    assert objective.scale == 1.0


def test_a_finished_head_gives_what_the_outputs_in_training_were():
    objective = made(NUMBERS, np.array([[10.0], [20.0], [30.0]], dtype=np.float32))
    head = nn.Linear(4, 1)
    pooled = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    before = objective.in_units(NUMBERS.read_logits(head(pooled).detach().numpy()))

    objective.finish(SimpleNamespace(classifier=head))

    after = NUMBERS.read_logits(head(pooled).detach().numpy())
    np.testing.assert_allclose(after, before, rtol=1e-5)  # fp32 products in another order


def test_a_finished_head_of_classes_is_as_it_was():
    head = nn.Linear(4, 3)
    before = head.weight.detach().clone(), head.bias.detach().clone()

    made(CLASSES, [0, 1, 2]).finish(SimpleNamespace(classifier=head))

    assert torch.equal(head.weight, before[0])
    assert torch.equal(head.bias, before[1])


@pytest.mark.parametrize(("task", "function"), [(CLASSES, F.softmax), (NAMES, 0)])
def test_outputs_are_probabilities_even_of_huge_logits(task, function):
    logits = torch.tensor([[0.5, -1.0, 2.0], [900.0, -900.0, 0.0]])

    found = task.read_logits(logits.numpy())

    expected = logits.double().softmax(dim=1) if function else logits.double().sigmoid()
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-12)  # double arithmetic
