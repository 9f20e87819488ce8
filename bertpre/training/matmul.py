"""How much of what the device can do a training run uses: matrix products against their peak."""

import time

import torch

from bertpre.config.schema import Model
from bertpre.data.loader import Batch
from bertpre.training.devices import Precision, autocast

_SIZES = {"cuda": 8192}
_SIZE_ELSEWHERE = 1024
_ROUNDS = 5


def matmul_peak(device: torch.device, precision: Precision) -> float:
    """Measure the fastest of a few large matrix products, in operations a second."""
    size = _SIZES.get(device.type, _SIZE_ELSEWHERE)
    left, right = (torch.ones(size, size, device=device) for _ in range(2))
    times = []
    with torch.no_grad(), autocast(device, precision):
        if precision != "fp32":
            dtype = torch.get_autocast_dtype(device.type)
            left, right = left.to(dtype), right.to(dtype)
        for _ in range(_ROUNDS + 1):  # the first one sets things up
            start = time.perf_counter()
            # Asking for a number waits for the device.
            float((left @ right)[0, 0])
            times.append(time.perf_counter() - start)
    return 2 * size**3 / min(times[1:])


def matmul_operations(model: Model, batches: list[Batch], *, vocab_size: int) -> float:
    """Count the operations of an update's matrix products, for real tokens only.

    A product with a (D, F) matrix takes 2 D F operations a token; a backward pass takes twice a
    forward pass. Attention compares each token with all of its sequence.

    Source: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters",
        section 5.1, without recomputation.
    """
    width, layers = model.hidden_size, model.num_hidden_layers
    per_token = 2 * layers * (4 * width**2 + 2 * width * model.intermediate_size)
    total = 0.0
    for batch in batches:
        lengths = batch.cu_seqlens.diff().double()
        total += per_token * float(lengths.sum())
        total += layers * 4 * width * float(lengths.square().sum())
        total += 2 * width * (width + vocab_size) * len(batch.mlm_labels)
        if batch.nsp_labels is not None:
            total += 2 * width * (width + 2) * len(lengths)
    return 3 * total
