"""Parts of the fine-tuning recipe: layer-wise rates, word dropout, adversarial steps, averages."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertpre.data.random64 import hash64, uniform
from bertpre.finetuning.batches import Ids
from bertpre.model.bert import EncoderLayer
from bertpre.model.heads import BertForTokenClassification
from bertpre.model.names import Finetuned
from bertpre.tokenizer.tokenizer import Tokenizer

_SMALLEST_CRF_RATE = 0.01


def build_layered_optimizer(
    model: Finetuned, *, learning_rate: float, layer_decay: float, weight_decay: float
) -> torch.optim.AdamW:
    """Build AdamW with bias correction and lower learning rates for lower layers.

    Args:
        model: the model to train.
        learning_rate: its peak; the scores of a CRF learn at 0.01 if that is higher.
        layer_decay: factor on the rate from the head to the top layer, from each layer to the one
            below, and from the lowest to the embeddings, in (0, 1].
        weight_decay: decoupled; biases and layer norms are not decayed.

    Source: Howard and Ruder 2018, section 3.2 (rates by layer); Mosbach et al. 2021 (the bias
        correction, without which fine-tuning on few rows fails for some seeds).
    """
    num_layers = len(model.bert.encoder.layers)
    depth_of = {id(parameter): 0 for parameter in model.bert.embeddings.parameters()}
    for depth, layer in enumerate(model.bert.encoder.layers, start=1):
        assert isinstance(layer, EncoderLayer)
        depth_of |= {id(parameter): depth for parameter in layer.parameters()}
    crf = _crf_parameters(model)
    groups: dict[tuple[int, bool], list[nn.Parameter]] = {}
    for parameter in model.parameters():
        depth = depth_of.get(id(parameter), num_layers + 1)
        if not any(parameter is part for part in crf):
            groups.setdefault((depth, parameter.ndim >= 2), []).append(parameter)
    settings: list[dict[str, Any]] = [
        {
            "params": parameters,
            "weight_decay": weight_decay if is_matrix else 0.0,
            "rate_factor": layer_decay ** (num_layers + 1 - depth),
        }
        for (depth, is_matrix), parameters in groups.items()
    ]
    if crf:
        # They start at 0 and add to logits of several units: the rate of the encoder would leave
        # them there.
        factor = max(1.0, _SMALLEST_CRF_RATE / learning_rate)
        settings.append({"params": crf, "weight_decay": 0.0, "rate_factor": factor})
    return torch.optim.AdamW(
        settings,
        lr=0.0,  # set before each update
        betas=(0.9, 0.999),
        eps=1e-6,
        fused=True,
    )


def _crf_parameters(model: Finetuned) -> list[nn.Parameter]:
    if not isinstance(model, BertForTokenClassification) or model.crf is None:
        return []
    return list(model.crf.parameters())


def set_rates(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Set the learning rate of the next update, scaled by the factor of each group."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group["rate_factor"]


def hide_tokens(ids: Ids, rows: Ids, *, tokenizer: Tokenizer, probability: float, key: int) -> Ids:
    """Replace random tokens, except [CLS] and [SEP], with [MASK], as in pretraining.

    A token that a row contains several times is hidden everywhere in it or nowhere: otherwise the
    texts of a pair would seem to differ where they agree.

    Args:
        ids: (N,), tokens of several rows, concatenated.
        rows: (N,), the row of each token.
        tokenizer: the model's.
        probability: of each token to be replaced, in [0, 1].
        key: the choice depends on the key, the rows and the ids alone.

    Source: Iyyer et al. 2015, "Deep unordered composition rivals syntactic methods for text
        classification", section 3.1 (word dropout); there the words are left out.
    """
    drawn = uniform(hash64(key, rows * 2**32 + ids)) < probability
    is_text = (ids != tokenizer.cls_id) & (ids != tokenizer.sep_id)
    return np.where(drawn & is_text, tokenizer.mask_id, ids)


@contextlib.contextmanager
def moved_against(embedding: nn.Embedding, epsilon: float) -> Iterator[None]:
    """Move an embedding along its gradient inside the block (FGM), and back afterwards.

    Args:
        embedding: with a gradient.
        epsilon: norm of the change.

    Source: Miyato et al. 2017, "Adversarial training methods for semi-supervised text
        classification", section 3; for the embedding table instead of each sequence.
    """
    weight, gradient = embedding.weight, embedding.weight.grad
    assert gradient is not None
    before = weight.detach().clone()
    with torch.no_grad():
        weight.add_(gradient * (epsilon / gradient.norm().clamp_min(1e-12)))
    try:
        yield
    finally:
        with torch.no_grad():
            weight.copy_(before)


class RunningAverage:
    """An exponential moving average of a model's weights.

    Args:
        model: the model to average.
        decay: share of the average that each update keeps, in [0, 1); smaller at first, so that
            the average soon forgets the random head.

    Source: Polyak and Juditsky 1992; TensorFlow's ExponentialMovingAverage for the warm-up of the
        decay.
    """

    def __init__(self, model: nn.Module, *, decay: float) -> None:
        self._decay = decay
        self._num_updates = 0
        self._parameters = list(model.parameters())
        self._averages = [parameter.detach().clone() for parameter in self._parameters]

    @torch.no_grad()
    def update(self) -> None:
        """Add the weights after an update to the average."""
        self._num_updates += 1
        decay = min(self._decay, (1 + self._num_updates) / (10 + self._num_updates))
        for average, parameter in zip(self._averages, self._parameters, strict=True):
            average.lerp_(parameter, 1 - decay)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Replace the model's weights by the average inside the block."""
        kept: list[Tensor] = [parameter.detach().clone() for parameter in self._parameters]
        self._put(self._averages)
        try:
            yield
        finally:
            self._put(kept)

    @torch.no_grad()
    def _put(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self._parameters, values, strict=True):
            parameter.copy_(value)
