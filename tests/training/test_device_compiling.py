"""Compiled layers give what the others give, and settle. Slow: compiling takes half a minute."""

import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bertpre.config.schema import Config
from bertpre.data.dataset import PretrainingData
from bertpre.data.loader import Cursor, training_batches
from bertpre.model.bert import initialize
from bertpre.model.heads import BertForPreTraining
from bertpre.training.device import compile_layers
from bertpre.training.metrics import read_metrics
from bertpre.training.pretrain import pretrain
from bertpre.training.step import accumulate_gradients

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
