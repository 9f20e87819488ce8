"""The count of operations, against PyTorch's own counter."""

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bertpre.config.schema import Config, Model
from bertpre.data.dataset import PretrainingData
from bertpre.data.loader import Cursor, training_batches
from bertpre.model.flat import Batch, flatten
from bertpre.model.heads import BertForPreTraining
from bertpre.training.device import matmul_operations, matmul_peak

SHAPE = Model(
    hidden_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=256,
    max_position_embeddings=128,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def full_batch(num_sequences: int, length: int, num_predicted: int) -> Batch:
    ids = torch.arange(num_sequences * length).view(num_sequences, length) % 128
    return Batch(
        tokens=flatten(ids, torch.ones_like(ids)),
        predicted=torch.arange(num_predicted),
        mlm_labels=torch.arange(num_predicted) % 128,
        nsp_labels=torch.zeros(num_sequences, dtype=torch.long),
    )


def test_the_operations_are_those_that_pytorch_counts() -> None:
    model = BertForPreTraining(SHAPE, vocab_size=128, with_nsp=True)
    # Multiples of 8 need no rows of filler, which PyTorch counts and we do not.
    batch = full_batch(16, 64, num_predicted=160)

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
