"""Speeds as ratios to a peer, measured in turns in one process: ``make bench``.

Times alone say little on a shared machine; the ratio of two things that took turns does.
"""

import csv
import dataclasses
import gzip
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import tokenizers
import torch
from transformers import BertConfig, BertForPreTraining

from bertpre import build_vocab, load_config
from bertpre.config.schema import BuildVocab, Model, Optimizer, TextOptions
from bertpre.corpus.documents import read_records
from bertpre.model.bert import initialize
from bertpre.model.flat import Batch, FlatTokens
from bertpre.model.heads import BertForPreTraining as OurBertForPreTraining
from bertpre.training.device import (
    Precision,
    autocast,
    compile_layers,
    keep_freed_memory,
    matmul_operations,
    matmul_peak,
    pick_device,
    pick_precision,
)
from bertpre.training.optim import PretrainingOptimizer
from bertpre.training.step import train_step

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 7
VOCAB_SIZE = 8000
PROFILED_UPDATES = 5
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")


def take_turns(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float]:
    """Return the median seconds of ours, and the median of theirs / ours.

    Pair by pair, after a round unmeasured, so that a machine whose speed drifts does not matter.
    """
    seconds, ratios = [], []
    for number in range(ROUNDS + 1):
        pair = []
        for run in (ours, theirs):
            start = time.perf_counter()
            run()
            pair.append(time.perf_counter() - start)
        if number > 0:
            seconds.append(pair[0])
            ratios.append(pair[1] / pair[0])
    return statistics.median(seconds), statistics.median(ratios)


def make_batch(lengths: np.ndarray, generator: np.random.Generator) -> Batch:
    """Random sentence pairs of these lengths, 15 % predicted."""
    total = int(lengths.sum())
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
    counts = np.maximum(1, np.rint(0.15 * lengths)).astype(np.int64)
    predicted = np.concatenate(
        [
            start + 1 + np.sort(generator.permutation(length - 1)[:count])  # never [CLS]
            for start, length, count in zip(
                np.cumsum(lengths) - lengths, lengths, counts, strict=True
            )
        ]
    )
    labels = generator.integers(5, VOCAB_SIZE, len(predicted))
    return Batch(
        tokens=FlatTokens(
            input_ids=torch.from_numpy(generator.integers(5, VOCAB_SIZE, total)),
            token_type_ids=torch.zeros(total, dtype=torch.long),
            position_ids=torch.from_numpy(np.arange(total) - starts),
            cu_seqlens=torch.from_numpy(np.cumsum([0, *lengths]).astype(np.int32)),
            max_length=int(lengths.max()),
        ),
        predicted=torch.from_numpy(predicted),
        max_predicted=int(counts.max()),
        mlm_labels=torch.from_numpy(labels),
        nsp_labels=torch.from_numpy(generator.integers(0, 2, len(lengths))),
    )


def pad_batch(batch: Batch, max_length: int) -> dict[str, torch.Tensor]:
    """The same batch as the transformers library takes it: padded to the full length."""
    lengths = batch.tokens.cu_seqlens.diff().tolist()
    labels = torch.full_like(batch.tokens.input_ids, -100)
    labels[batch.predicted] = batch.mlm_labels
    shape = (len(lengths), max_length)
    padded = {
        "input_ids": torch.zeros(shape, dtype=torch.long),
        "attention_mask": torch.zeros(shape, dtype=torch.long),
        "labels": torch.full(shape, -100),
    }
    for row, (start, length) in enumerate(
        zip(batch.tokens.cu_seqlens.tolist(), lengths, strict=False)
    ):
        padded["input_ids"][row, :length] = batch.tokens.input_ids[start : start + length]
        padded["attention_mask"][row, :length] = 1
        padded["labels"][row, :length] = labels[start : start + length]
    assert batch.nsp_labels is not None
    return {**padded, "next_sentence_label": batch.nsp_labels}


def bench_training(
    name: str, *, rows: int, length: int = 128, dropout: float = 0.1
) -> list[dict[str, object]]:
    """A whole update against transformers' BERT at its best, for full rows and for short texts.

    Also the share of the fastest matrix products that is reached, and the ratio that would be left
    if everything but the products took no time.

    Both have fused AdamW, keep freed memory on a CPU, and run in the same precision. Theirs is
    tried with either form of attention, and compiled; ours is compiled on a GPU only.

    Returns:
        What is printed, for each kind of text.
    """
    device = pick_device("auto")
    if device.type == "cpu":
        keep_freed_memory()
    precision = pick_precision("auto", device)
    shape = dataclasses.replace(
        load_config(ROOT / f"configs/{name}.yaml").model,
        max_position_embeddings=length,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    generator = np.random.default_rng(0)
    # 47 % of the maximum on average
    drawn = generator.normal(0.47 * length, 0.2 * length, rows)
    kinds = {
        "full rows": np.full(rows, length),
        "short texts": np.clip(drawn, 8, length).astype(np.int64),
    }
    batches = {kind: make_batch(lengths, generator) for kind, lengths in kinds.items()}
    on_gpu = device.type == "cuda"
    theirs = {
        ("sdpa", False): "SDPA",
        ("eager", False): "eager",
        ("eager", True): "eager, compiled",
    }
    if on_gpu:  # on a CPU the eager form is faster, and each compilation takes a minute
        theirs["sdpa", True] = "SDPA, compiled"
    found: dict[str, list[tuple[float, float, str, float]]] = {kind: [] for kind in kinds}
    peak = matmul_peak(device, precision)
    for ours_is_compiled in (False, True) if on_gpu else (False,):
        our_update = our_updates(shape, device, precision, is_compiled=ours_is_compiled)
        against: dict[str, list[tuple[float, float, str]]] = {kind: [] for kind in kinds}
        for (form, is_compiled), words in theirs.items():
            their_update = their_updates(shape, device, precision, form, is_compiled=is_compiled)
            for kind, batch in batches.items():
                padded = {key: value.to(device) for key, value in pad_batch(batch, length).items()}
                seconds, ratio = take_turns(
                    partial(our_update, batch), partial(their_update, padded)
                )
                what = f"ours {'compiled' if ours_is_compiled else 'eager'}, theirs {words}"
                against[kind].append((ratio, seconds, what))
        for kind, batch in batches.items():
            share = product_share(partial(our_update, batch), device)
            found[kind].append((*min(against[kind]), share))  # their best
    measured: list[dict[str, object]] = []
    for kind, results in found.items():
        ratio, seconds, what, share = max(results)  # our best
        operations = matmul_operations(shape, [batches[kind]], vocab_size=VOCAB_SIZE)
        print(
            f"update, {name}, {rows} {kind} of {length}, {device.type} {precision}: "
            f"{kinds[kind].sum() / seconds:,.0f} real tokens/s, {ratio:.2f} times transformers "
            f"({what}); {operations / seconds / peak:.0%} of the matmul peak; products take "
            f"{share:.0%} of the time, and would alone be {ratio / share:.1f} times",
            flush=True,
        )
        measured.append(
            {
                "model": name,
                "rows": rows,
                "length": length,
                "kind": kind,
                "precision": precision,
                "tokens_per_second": round(float(kinds[kind].sum() / seconds)),
                "times_transformers": round(ratio, 2),
                "forms": what,
                "peak_share": round(operations / seconds / peak, 3),
                "product_share": round(share, 3),
            }
        )
    return measured


def product_share(update: Callable[[], object], device: torch.device) -> float:
    """Return the share of an update's time that matrix products take."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(PROFILED_UPDATES):
            update()
    field = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    times = {event.key: float(getattr(event, field)) for event in profile.key_averages()}
    return sum(times.get(name, 0) for name in PRODUCTS) / sum(times.values())


def our_updates(
    shape: Model, device: torch.device, precision: Precision, *, is_compiled: bool
) -> Callable[[Batch], object]:
    """A model of ours, and the function that trains it on a batch."""
    model = OurBertForPreTraining(shape, vocab_size=VOCAB_SIZE, with_nsp=True)
    initialize(model, 0.02, torch.Generator().manual_seed(0))
    model.to(device)
    if is_compiled and device.type == "cuda":
        compile_layers(model.bert.encoder)
    optimizer = PretrainingOptimizer(model, Optimizer(learning_rate=1e-4))

    def update(batch: Batch) -> None:
        train_step(
            model, optimizer, [batch], max_grad_norm=1.0,
            device=device, precision=precision, seed=0, step=0,
        )  # fmt: skip

    return update


def their_updates(
    shape: Model, device: torch.device, precision: Precision, form: str, *, is_compiled: bool
) -> Callable[[dict[str, torch.Tensor]], object]:
    """A model of the library's in a form of attention, and the function that trains it."""
    config = BertConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.num_hidden_layers,
        num_attention_heads=shape.num_attention_heads,
        intermediate_size=shape.intermediate_size,
        max_position_embeddings=shape.max_position_embeddings,
        hidden_dropout_prob=shape.hidden_dropout_prob,
        attention_probs_dropout_prob=shape.attention_probs_dropout_prob,
        attn_implementation=form,
    )
    model = BertForPreTraining(config).to(device).train()
    if is_compiled:
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def update(padded: dict[str, torch.Tensor]) -> None:
        optimizer.zero_grad(set_to_none=True)
        with autocast(device, precision):
            loss = model(**padded).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()

    return update


def write_text(path: Path, megabytes: int) -> list[str]:
    """Invented prose with word frequencies as in nature, a blank line after ten sentences."""
    generator = np.random.default_rng(1)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = [
        "".join(letters[place] for place in generator.integers(0, 26, (length, 2)).min(axis=1))
        for length in generator.integers(2, 11, 50_000)
    ]
    lines: list[str] = []
    size = 0
    while size < megabytes * 10**6:
        ranks = np.minimum(generator.zipf(1.25, 20), len(words)) - 1
        lines.append(" ".join(words[rank] for rank in ranks) + ".")
        size += len(lines[-1]) + 1
        if len(lines) % 10 == 0:
            lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")
    return [line for line in lines if line]


def bench_text() -> None:
    """build-vocab whole, files and reports included, against the bare tokenizers library."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text, megabytes = folder / "text.txt", 10
        write_text(text, megabytes)

        def train_theirs() -> None:
            tokenizer = tokenizers.BertWordPieceTokenizer(lowercase=False)
            tokenizer.train([str(text)], vocab_size=VOCAB_SIZE, show_progress=False)

        def train_ours() -> None:
            config = BuildVocab(vocab_size=VOCAB_SIZE)
            build_vocab([text], folder / "tokenizer", config, overwrite=True)

        seconds, ratio = take_turns(train_ours, train_theirs)
        print(
            f"build-vocab, {VOCAB_SIZE} pieces: {megabytes / seconds:.1f} MB/s, "
            f"{ratio:.2f} times the bare trainer"
        )


def bench_reading() -> None:
    """Reading with the corpus report, against Python's own reader of each form and no report."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        txt = folder / "text.txt"
        lines = write_text(txt, 10)
        packed, objects, table = folder / "text.txt.gz", folder / "text.jsonl", folder / "text.csv"
        packed.write_bytes(gzip.compress(txt.read_bytes()))
        objects.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
        with table.open("w", newline="") as file:
            csv.writer(file).writerows([["text"], *([line] for line in lines)])

        def bare(path: Path) -> None:
            opener = gzip.open if path == packed else open
            with opener(path, "rt", newline="") as file:
                if path == objects:
                    rows = (json.loads(line)["text"] for line in file)
                else:
                    rows = csv.reader(file) if path == table else file
                for _ in rows:
                    pass

        megabytes = txt.stat().st_size / 1e6  # of text, whatever its form
        for path in (txt, packed, objects, table):

            def ours(path: Path = path) -> None:
                for _ in read_records([path], TextOptions()):
                    pass

            seconds, ratio = take_turns(ours, lambda path=path: bare(path))
            print(
                f"reading and report, {path.name.partition('.')[2]}: "
                f"{megabytes / seconds:.0f} MB/s of text, {ratio:.2f} times Python's bare reader"
            )


if __name__ == "__main__":
    bench_reading()
    bench_text()
    for preset, rows in (("tiny", 64), ("mini", 32), ("small", 16), ("base", 8)):
        bench_training(preset, rows=rows)
    bench_training("mini", rows=8, length=512)
