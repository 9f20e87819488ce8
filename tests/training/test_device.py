"""What belongs to the device: its operations counted, its memory kept, its layers compiled."""

import logging
import platform
import resource
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bertpre.config.schema import Config, Model
from bertpre.data.dataset import PretrainingData
from bertpre.data.loader import Cursor, training_batches
from bertpre.model.bert import initialize
from bertpre.model.flat import Batch, flatten
from bertpre.model.heads import BertForPreTraining
from bertpre.training.device import (
    compile_layers,
    keep_freed_memory,
    matmul_operations,
    matmul_peak,
)
from bertpre.training.metrics import read_metrics
from bertpre.training.pretrain import pretrain
from bertpre.training.step import accumulate_gradients

SHAPE = Model(
    hidden_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=256,
    max_position_embeddings=128,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def full_batch(num_sequences: int, length: int, *, num_predicted: int) -> Batch:
    """Equal sequences with so many predicted tokens each."""
    ids = torch.arange(num_sequences * length).view(num_sequences, length) % 128
    places = torch.arange(num_sequences)[:, None] * length + 1 + 3 * torch.arange(num_predicted)
    return Batch(
        tokens=flatten(ids, torch.ones_like(ids)),
        predicted=places.flatten(),
        max_predicted=num_predicted,
        mlm_labels=places.flatten() % 128,
        nsp_labels=torch.zeros(num_sequences, dtype=torch.long),
    )


def test_the_operations_are_those_that_pytorch_counts() -> None:
    model = BertForPreTraining(SHAPE, vocab_size=128, with_nsp=True)
    # Multiples of 8 need no rows of filler, which PyTorch counts and we do not.
    batch = full_batch(16, 64, num_predicted=10)

    with FlopCounterMode(display=False) as counter:
        loss = model.loss(batch)
        assert loss.nsp_loss_sum is not None
        (loss.mlm_loss_sum + loss.nsp_loss_sum).backward()  # type: ignore[no-untyped-call]

    assert matmul_operations(SHAPE, [batch], vocab_size=128) == counter.get_total_flops()


def test_the_operations_do_not_depend_on_how_a_batch_is_divided(
    tiny_data: Path, tiny_config: Config
) -> None:
    data, counts = PretrainingData(tiny_data), []
    for micro_batch_size in (1, 5, 24):
        batches = training_batches(
            data,
            Cursor(),
            seed=0,
            batch_size=lambda step: 24,
            micro_batch_size=micro_batch_size,
            spec=lambda step: data.mask_spec,
        )
        counts.append(matmul_operations(tiny_config.model, next(batches), vocab_size=90))
        batches.close()

    assert counts == pytest.approx([counts[0]] * 3)


def test_the_peak_is_that_of_a_processor() -> None:
    # Between an operation in ten nanoseconds and what no processor does.
    for precision in ("fp32", "bf16"):
        assert 1e8 < matmul_peak(torch.device("cpu"), precision) < 1e15


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_freed_memory_is_used_again_without_page_faults():
    def faults_of_ten_tensors() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(10):
            torch.ones(2**22)  # 16 MiB: 4,096 pages
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    obeys = keep_freed_memory()
    faults_of_ten_tensors()

    assert obeys
    assert faults_of_ten_tensors() < 4096


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("musl", "1.2"))

    assert not keep_freed_memory()


needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None and shutil.which("clang++") is None,
    reason="torch.compile needs a C++ compiler on a CPU",
)


@pytest.mark.slow
@needs_compiler
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_layers_give_the_same_gradients_after_a_handful_of_compilations(
    tiny_data: Path, tiny_config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    data = PretrainingData(tiny_data)
    models = []
    for _ in range(2):
        model = BertForPreTraining(
            tiny_config.model, vocab_size=data.tokenizer.vocab_size, with_nsp=True
        )
        initialize(model, 0.2, torch.Generator().manual_seed(0))
        models.append(model.eval())  # without dropout, which compiled code draws in its own way
    plain, compiled = models
    compile_layers(compiled.bert.encoder)
    caplog.set_level(logging.INFO, "bertpre")
    batches = training_batches(
        data,
        Cursor(),
        seed=0,
        batch_size=lambda step: 5 + step,  # no two batches have the same number of tokens
        micro_batch_size=64,
        spec=lambda step: data.mask_spec,
    )
    logged = []

    for _, batch in zip(range(12), batches, strict=False):
        for model in models:
            accumulate_gradients(
                model, batch, device=torch.device("cpu"), precision="fp32", seed=0, step=0
            )
        for ours, theirs in zip(plain.parameters(), compiled.parameters(), strict=True):
            assert ours.grad is not None
            assert theirs.grad is not None
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)
        logged.append(len(caplog.messages))

    batches.close()
    assert 1 <= logged[-1] <= 6
    assert logged[-1] == logged[len(logged) // 2]
    assert caplog.messages[0].startswith("compiled part 1 of the layers in ")


@pytest.mark.slow
@needs_compiler
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_a_compiled_run_with_dropout_learns_after_a_handful_of_compilations(
    tiny_data: Path, tiny_config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bertpre")
    config = replace(tiny_config, pretrain=replace(tiny_config.pretrain, compile=True))

    result = pretrain(tiny_data, output=tmp_path / "run", config=config)

    losses = [row["mlm_loss"] for row in read_metrics(tmp_path / "run")]
    assert result.is_finished
    assert losses[-1] < losses[0]
    assert 1 <= sum("compiled part" in message for message in caplog.messages) <= 6


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_layers_settle_on_a_gpu(
    tiny_data: Path, tiny_config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bertpre")
    losses = []
    for is_compiled in (False, True):
        options = replace(
            tiny_config.pretrain, device="cuda", precision="bf16", compile=is_compiled
        )
        model = replace(tiny_config.model, attention_probs_dropout_prob=0.0)
        config = replace(tiny_config, model=model, pretrain=options)
        result = pretrain(tiny_data, output=tmp_path / str(is_compiled), config=config)
        assert result.held_out is not None
        losses.append(result.held_out.mlm_loss)

    assert losses[1] == pytest.approx(losses[0], rel=0.05)
    assert 1 <= sum("compiled part" in message for message in caplog.messages) <= 8
