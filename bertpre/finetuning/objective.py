"""What is minimised in fine-tuning, by the kind of the labels, and what the logits mean."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertpre.config.schema import Finetune
from bertpre.finetuning.labels import Kind, Labels


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """The loss of a task.

    Numbers are learnt with mean 0 and variance 1, so that a learning rate fits whatever their
    unit is; `finish` puts the unit into the head.

    Args:
        kind: of the labels.
        weights: of classes, the weight of each, (C,); of several names, the weight of a row with
            (1) and without (0) each, (2, C); of either, their mean over the training rows is 1.
        label_smoothing: share of a target that is spread over all classes.
        focal_gamma: exponent of what a row is still wrong by, which it is weighted with.
        center: mean of the training numbers.
        scale: their standard deviation.
    """

    kind: Kind
    weights: Tensor | None = None
    label_smoothing: float = 0.0
    focal_gamma: float = 0.0
    center: float = 0.0
    scale: float = 1.0

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of some rows, 0-dimensional.

        Args:
            logits: (B, C), of any precision.
            targets: see `bertpre.finetuning.labels.Labels.targets`.

        Source: Szegedy et al. 2016, section 7 (label smoothing); Lin et al. 2017 (focal loss).
        """
        logits = logits.float()
        if self.kind == "regression":
            return F.mse_loss(logits, (targets - self.center) / self.scale)
        if self.kind == "classification":
            losses = F.cross_entropy(
                logits, targets, reduction="none", label_smoothing=self.label_smoothing
            )
            share = logits.softmax(dim=1).gather(1, targets[:, None])[:, 0]  # (B, C) -> (B,)
            weights = None if self.weights is None else self.weights[targets]
        else:
            smooth = targets * (1 - self.label_smoothing) + self.label_smoothing / 2
            losses = F.binary_cross_entropy_with_logits(logits, smooth, reduction="none")
            found = logits.sigmoid()
            share = torch.where(targets > 0, found, 1 - found)
            weights = None
            if self.weights is not None:
                weights = torch.where(targets > 0, self.weights[1], self.weights[0])
        if self.focal_gamma > 0:
            losses = losses * (1 - share) ** self.focal_gamma
        if weights is not None:
            losses = losses * weights
        return losses.mean()

    def readings(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Turn logits (rows, C) of a model in training into probabilities or numbers."""
        return read_logits(self.kind, logits * np.float32(self.scale) + np.float32(self.center))

    def finish(self, head: nn.Linear) -> None:
        """Give the head's outputs the unit of the numbers; of classes, change nothing."""
        with torch.no_grad():
            head.weight.mul_(self.scale)
            head.bias.mul_(self.scale).add_(self.center)


def make_objective(
    labels: Labels,
    targets: npt.NDArray[np.int64] | npt.NDArray[np.float32],
    config: Finetune,
    device: torch.device,
) -> Objective:
    """Settle the loss by the training rows.

    Args:
        labels: what the targets stand for.
        targets: of the training rows.
        config: weights, smoothing and focus.
        device: where the model is.
    """
    if labels.kind == "regression":
        center, scale = float(targets.mean(dtype=np.float64)), float(targets.std(dtype=np.float64))
        return Objective(kind=labels.kind, center=center, scale=scale or 1.0)
    weights = None
    if config.class_weights == "balanced":
        weights = _balanced_weights(labels, targets).to(device)
    return Objective(
        kind=labels.kind,
        weights=weights,
        label_smoothing=config.label_smoothing,
        focal_gamma=config.focal_gamma,
    )


def _balanced_weights(labels: Labels, targets: npt.NDArray[np.generic]) -> Tensor:
    # A class that no training row has (it is in another fold) has no loss to weigh either.
    num = len(labels.names)
    if labels.kind == "classification":
        counts = np.bincount(targets.astype(np.int64), minlength=num)
        weights = len(targets) / (np.count_nonzero(counts) * np.maximum(counts, 1))
    else:
        with_name = targets.astype(np.float64).sum(axis=0)
        counts = np.stack([len(targets) - with_name, with_name])
        weights = len(targets) / (2 * np.maximum(counts, 1))
    return torch.from_numpy(weights.astype(np.float32))


def read_logits(kind: Kind, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Turn the logits (rows, C) of a finished model into probabilities or numbers."""
    values = logits.astype(np.float64)
    if kind == "regression":
        return values
    if kind == "multi-label":
        return np.asarray(0.5 * (1 + np.tanh(values / 2)))  # the sigmoid, without overflow
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
