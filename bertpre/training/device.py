"""The device: choosing it and a precision, memory, speed, compilation."""

import contextlib
import ctypes
import logging
import platform
import time
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, fx

from bertpre.config.schema import Model
from bertpre.errors import TrainingError
from bertpre.model.bert import Encoder
from bertpre.model.flat import Batch

log = logging.getLogger(__name__)

DeviceName = Literal["auto", "cpu", "cuda", "mps"]
PrecisionName = Literal["auto", "fp32", "bf16", "fp16"]
Precision = Literal["fp32", "bf16", "fp16"]

_AUTOCAST_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}

# Source: glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_NEVER = 2**31 - 1

_PEAK_SIZES = {"cuda": 8192}  # rows and columns of the matrices that are multiplied
_PEAK_SIZE_ELSEWHERE = 1024
_PEAK_ROUNDS = 5


def pick_device(name: DeviceName) -> torch.device:
    """Choose a device; ``auto`` means CUDA if available, else the CPU.

    Raises:
        TrainingError: the named device is not available.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    available = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if not available[name]:
        raise TrainingError(
            f"device {name}: PyTorch {torch.__version__} finds none on this machine",
            "use --device auto, or install a PyTorch build for it",
        )
    return torch.device(name)


def pick_precision(name: PrecisionName, device: torch.device) -> Precision:
    """Choose a precision; ``auto`` means bf16 where the hardware multiplies it faster than fp32.

    The choice depends on the processor's features, not on timing, so it is always the same.
    """
    if name != "auto":
        return name
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    if device.type == "cpu":
        # Private names, so a missing one means "no": matrix units (AMX), 512-bit dot products.
        checks = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
        has_bf16 = any(getattr(torch.cpu, check, lambda: False)() for check in checks)
        return "bf16" if has_bf16 else "fp32"
    return "fp32"


def autocast(
    device: torch.device, precision: Precision
) -> contextlib.AbstractContextManager[object]:
    """Return the context for a forward pass; parameters stay fp32 in all precisions."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=_AUTOCAST_TYPES[precision])


def keep_freed_memory() -> bool:
    """Make the process keep freed memory for the next update.

    An update allocates and frees hundreds of blocks of megabytes, and by default each is mapped
    and faulted in again. With this, the process keeps its peak memory until it ends. It works
    with glibc only; elsewhere nothing changes.

    Returns:
        Whether the C library supports it.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(_M_MMAP_MAX, 0) and libc.mallopt(_M_TRIM_THRESHOLD, _NEVER))


def matmul_peak(device: torch.device, precision: Precision) -> float:
    """Measure the fastest of a few large matrix products, in operations per second."""
    size = _PEAK_SIZES.get(device.type, _PEAK_SIZE_ELSEWHERE)
    dtype = _AUTOCAST_TYPES.get(precision, torch.float32)
    left, right = (torch.ones(size, size, device=device, dtype=dtype) for _ in range(2))
    times = []
    for _ in range(_PEAK_ROUNDS + 1):  # the first one is a warm-up
        start = time.perf_counter()
        # Reading a number waits for the device.
        float((left @ right)[0, 0])
        times.append(time.perf_counter() - start)
    return 2 * size**3 / min(times[1:])


def matmul_operations(model: Model, batches: list[Batch], *, vocab_size: int) -> float:
    """Count the operations of an update's matrix products, for real tokens only.

    A product with a (D, F) matrix takes 2 D F operations per token, and a backward pass twice as
    many as a forward pass. Attention compares each query with all tokens of its sequence. In the
    last layer only tokens to predict and, for pairs, [CLS] have queries and what follows them.

    Source: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters",
        section 5.1, without recomputation.
    """
    width, layers = model.hidden_size, model.num_hidden_layers
    keys_and_values = 4 * width**2
    others = 4 * width**2 + 4 * width * model.intermediate_size
    total = 0.0
    for batch in batches:
        starts = batch.tokens.cu_seqlens.long()
        lengths = starts.diff().double()
        read = torch.searchsorted(batch.predicted, starts).diff().double()
        if batch.nsp_labels is not None:
            read += 1
            total += 2 * width * (width + 2) * len(lengths)
        total += layers * keys_and_values * float(lengths.sum())
        for queries, count in ((lengths, layers - 1), (read, 1)):
            total += count * others * float(queries.sum())
            total += count * 4 * width * float((queries * lengths).sum())
        total += 2 * width * (width + vocab_size) * len(batch.mlm_labels)
    return 3 * total


def compile_layers(encoder: Encoder) -> None:
    """Compile the layers when they first run, and log each compilation.

    All layers share the compiled code, and the number of tokens is a symbol in it, as no two
    batches have the same. So compilation ends after the first updates.
    """
    from torch._dynamo import lookup_backend  # takes seconds, and most runs do not compile

    inductor, num_compiled = lookup_backend("inductor"), 0

    def logged_inductor(graph: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        nonlocal num_compiled
        start = time.monotonic()
        compiled: Callable[..., Any] = inductor(graph, inputs)
        num_compiled += 1
        seconds = time.monotonic() - start
        log.info("compiled part %d of the layers in %.0f s", num_compiled, seconds)
        return compiled

    for layer in encoder.layers:
        layer.compile(dynamic=True, backend=logged_inductor)
