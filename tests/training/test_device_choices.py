"""What goes by the kind of device, with a GPU that is only said to be there."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from bertpre.data.dataset import HELD_OUT_MASKS, PretrainingData
from bertpre.data.loader import Cursor, training_batches
from bertpre.errors import TrainingError
from bertpre.training.device import pick_device, pick_precision
from bertpre.training.distributed import exact_dtype, join_ranks
from bertpre.training.summary import _attention

CPU, GPU, MPS = (torch.device(name) for name in ("cpu", "cuda", "mps"))


@pytest.mark.parametrize("is_there", [False, True])
def test_auto_takes_a_gpu_if_there_is_one(is_there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: is_there)
    assert pick_device("auto").type == ("cuda" if is_there else "cpu")


def test_a_device_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(TrainingError, match=r"device cuda: PyTorch .* finds none on this machine"):
        pick_device("cuda")


@pytest.mark.parametrize(("has_bf16", "expected"), [(True, "bf16"), (False, "fp16")])
def test_a_gpu_without_bf16_takes_fp16(
    has_bf16: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **options: has_bf16)
    assert pick_precision("auto", GPU) == expected
    assert pick_precision("fp32", GPU) == "fp32"


@pytest.mark.parametrize("check", ["_is_amx_tile_supported", "_is_avx512_bf16_supported", None])
def test_a_cpu_takes_bf16_only_with_units_for_it(
    check: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda found=name == check: found, raising=False)
    assert pick_precision("auto", CPU) == ("fp32" if check is None else "bf16")
    assert pick_precision("auto", MPS) == "fp32"


@pytest.mark.parametrize(("device", "backend"), [(GPU, "nccl"), (CPU, "gloo")])
def test_processes_on_gpus_join_by_nccl_each_with_its_own(
    device: torch.device, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "set_device", calls.append)
    monkeypatch.setattr(dist, "init_process_group", calls.append)
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)

    ranks = join_ranks(device)

    assert (ranks.rank, ranks.size) == (1, 2)
    assert calls == ([1, "nccl"] if backend == "nccl" else ["gloo"])


def test_counts_are_summed_exactly_where_the_device_can() -> None:
    assert [exact_dtype(device) for device in (CPU, GPU, MPS)] == [
        torch.float64,
        torch.float64,
        torch.float32,
    ]


@pytest.mark.parametrize("pin", [False, True])
def test_batches_for_a_gpu_are_in_page_locked_memory(
    tiny_data: Any, pin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned: list[Tensor] = []

    def pin_memory(tensor: Tensor) -> Tensor:
        pinned.append(tensor)
        return tensor

    monkeypatch.setattr(Tensor, "pin_memory", pin_memory)
    batches = training_batches(
        PretrainingData(tiny_data),
        Cursor(),
        seed=0,
        batch_size=lambda step: 4,
        micro_batch_size=2,
        spec=lambda step: HELD_OUT_MASKS,
        pin=pin,
    )
    first = next(batches)
    batches.close()
    given = {id(tensor) for tensor in pinned}
    ids = [id(batch.tokens.input_ids) for batch in first]
    assert all(one in given for one in ids) is pin


@pytest.mark.parametrize(
    ("capability", "precision", "dropout", "expected"),
    [
        ((9, 0), "bf16", 0.0, "flash attention without padding"),
        ((9, 0), "bf16", 0.1, "needs model.attention_probs_dropout_prob 0"),
        ((9, 0), "fp32", 0.0, "PyTorch's, padded to the longest sequence of a batch"),
        ((7, 5), "fp16", 0.0, "PyTorch's, padded to the longest sequence of a batch"),
    ],
)
def test_the_summary_says_which_attention_a_gpu_gets(
    capability: tuple[int, int],
    precision: str,
    dropout: float,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    setup = SimpleNamespace(device=GPU, precision=precision)
    assert expected in _attention(cast(Any, setup), dropout)
