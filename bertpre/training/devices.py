"""Where a model runs and in which precision, chosen at run time."""

import contextlib
from typing import Literal

import torch

from bertpre.errors import TrainingError

DeviceName = Literal["auto", "cpu", "cuda", "mps"]
PrecisionName = Literal["auto", "fp32", "bf16", "fp16"]
Precision = Literal["fp32", "bf16", "fp16"]

_AUTOCAST_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def pick_device(name: DeviceName) -> torch.device:
    """Choose a device; ``auto`` takes CUDA if there is any, else the CPU.

    Raises:
        TrainingError: a device was asked for by name and is not there.
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
    """Choose a precision; ``auto`` takes bf16 where the hardware multiplies it faster than fp32.

    That goes by what the processor states and not by a timing, so that it is the same each time.
    """
    if name != "auto":
        return name
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    if device.type == "cpu":
        # Private names, so absent ones mean "no": matrix units (AMX) or 512-bit dot products.
        checks = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
        has_bf16 = any(getattr(torch.cpu, check, lambda: False)() for check in checks)
        return "bf16" if has_bf16 else "fp32"
    return "fp32"


def autocast(
    device: torch.device, precision: Precision
) -> contextlib.AbstractContextManager[object]:
    """Give the context in which a forward pass runs; parameters stay fp32 in both precisions."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=_AUTOCAST_TYPES[precision])
