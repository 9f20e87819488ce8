"""Training and writing of texts against the transformers library, in turns: ``make bench``.

Both sides have the same shape, weights, texts in memory, batch size, dropout and precision. Theirs
pads each batch, sources and targets, to its longest; its decoder has its cache.
"""

import logging
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
import transformers
from bench import take_turns
from bench_finetuning import BATCH_SIZE, MAX_LENGTH, make_checkpoint, write_table

from bertpre.config.schema import Finetune
from bertpre.finetuning.batches import EncodedTable
from bertpre.finetuning.beam_search import SearchOptions
from bertpre.finetuning.encoded_pairs import EncodedSources
from bertpre.finetuning.generation import Generation
from bertpre.finetuning.loop import Part, Training, fit
from bertpre.finetuning.running import Placement, Run
from bertpre.finetuning.start import read_start
from bertpre.finetuning.tables import LabelledTable
from bertpre.finetuning.writing import write_targets
from bertpre.model.folder import save_model
from bertpre.training.device import Precision, keep_freed_memory, pick_precision

WRITTEN_LENGTH = 24  # weights that mean nothing do not know where a text ends
WRITE_BATCH = 64


def make_training(folder: Path, checkpoint: Path, num_rows: int, placement: Placement) -> Training:
    """Sentences, each to be followed by the next one."""
    texts = write_table(folder, num_rows + 1)[1]
    table = LabelledTable(
        name="", texts=tuple(texts[:-1]), labels=tuple(texts[1:]), lines=tuple(range(num_rows))
    )
    start = read_start(checkpoint, config=Finetune(max_seq_length=MAX_LENGTH), pools=False)
    config = Finetune(task="generation", batch_size=BATCH_SIZE, max_target_length=MAX_LENGTH - 1)
    task = Generation(names=(), tokens="13a", options=config)
    task = task.prepared(start.encoder, start.shape, table)
    encoded, targets = task.encode_table(start.encoder, table, on_rows=lambda rows: None)
    pairs = EncodedTable(texts=encoded, targets=targets)
    objective = task.objective(targets, config=config, device=placement.device)
    return Training(
        task=task, model=start.build(task, seed=0), objective=objective,
        train=Part(pairs, np.arange(num_rows)), dev=Part(pairs, np.arange(1)),
        tokenizer=start.encoder.tokenizer, config=config, learning_rate=1e-4, num_epochs=1,
        metric="loss", placement=placement, seed=0,
    )  # fmt: skip


def make_theirs(folder: Path, training: Training) -> transformers.EncoderDecoderModel:
    """The same model in the transformers library."""
    tokenizer = training.tokenizer
    folder.mkdir()
    save_model(
        folder,
        training.model,
        generation_config=training.task.generation_config(tokenizer),
    )
    return transformers.EncoderDecoderModel.from_pretrained(folder)


def rows_of(texts: EncodedSources) -> list[dict[str, list[int]]]:
    """Rows for their trainer."""
    assert texts.label_starts is not None
    sources = np.split(texts.input_ids, texts.starts[1:-1])
    labels = np.split(texts.label_ids, texts.label_starts[1:-1])
    return [
        {"input_ids": source.tolist(), "labels": label.tolist()}
        for source, label in zip(sources, labels, strict=True)
    ]


def bench_training(name: str, training: Training, folder: Path, theirs: torch.nn.Module) -> None:
    """Train for an epoch."""
    texts = training.train.table.texts
    assert isinstance(texts, EncodedSources)
    precision = training.placement.precision
    arguments = transformers.Seq2SeqTrainingArguments(
        output_dir=str(folder / "out"), num_train_epochs=1, use_cpu=True,
        per_device_train_batch_size=BATCH_SIZE, learning_rate=1e-4, save_strategy="no",
        bf16=precision == "bf16", report_to=[], disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "checkpoint")
    trainer = transformers.Seq2SeqTrainer(
        theirs,
        arguments,
        train_dataset=rows_of(texts),
        data_collator=transformers.DataCollatorForSeq2Seq(tokenizer),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    seconds, ratio = take_turns(lambda: fit(training), trainer.train)
    num_tokens = len(texts.input_ids) + len(texts.label_ids)
    print(
        f"generation, {name}, short texts, {precision}: {num_tokens / seconds:,.0f} tokens/s, "
        f"{ratio:.2f} times transformers' Trainer",
        flush=True,
    )


def bench_writing(name: str, training: Training, theirs: transformers.EncoderDecoderModel) -> None:
    """Write texts of a fixed length, by greedy search and with four beams."""
    texts, precision = training.train.table.texts, training.placement.precision
    assert isinstance(texts, EncodedSources)
    num_rows = 2 * WRITE_BATCH
    run = Run(training.model, texts)
    tokenizer = training.tokenizer
    theirs.eval()
    rows = [torch.tensor(row["input_ids"]) for row in rows_of(texts)[:num_rows]]
    batches = []
    for first in range(0, num_rows, WRITE_BATCH):
        ids = torch.nn.utils.rnn.pad_sequence(
            rows[first : first + WRITE_BATCH], batch_first=True, padding_value=tokenizer.pad_id
        )
        batches.append((ids, (ids != tokenizer.pad_id).long()))

    for num_beams in (1, 4):
        options = SearchOptions(
            max_length=WRITTEN_LENGTH, min_length=WRITTEN_LENGTH, num_beams=num_beams
        )

        def write(options: SearchOptions = options) -> None:
            write_targets([run], np.arange(num_rows), options=options, placement=training.placement)

        def write_theirs(num_beams: int = num_beams) -> None:
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                for ids, mask in batches:
                    theirs.generate(
                        ids,
                        attention_mask=mask,
                        num_beams=num_beams,
                        max_length=WRITTEN_LENGTH + 2,
                        min_length=WRITTEN_LENGTH + 1,
                        forced_eos_token_id=tokenizer.sep_id,
                    )

        seconds, ratio = take_turns(write, write_theirs)
        print(
            f"write, {name}, {num_beams} beams, {precision}: {num_rows / seconds:,.0f} texts/s of "
            f"{WRITTEN_LENGTH} tokens, {ratio:.2f} times transformers' generate",
            flush=True,
        )


def bench(name: str, num_rows: int, *, precision: Precision) -> None:
    """Train for an epoch and write texts, with a model of the shape of a preset."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        checkpoint = make_checkpoint(folder, name)
        placement = Placement(torch.device("cpu"), precision)
        training = make_training(folder, checkpoint, num_rows, placement)
        theirs = make_theirs(folder / "theirs", training)
        if checkpoint != folder / "checkpoint":
            (folder / "checkpoint").symlink_to(checkpoint)
        bench_writing(name, training, theirs)
        bench_training(name, training, folder, theirs)


if __name__ == "__main__":
    torch.set_num_threads(1)
    keep_freed_memory()  # as the commands do; it serves both sides
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.getLogger("bertpre").setLevel(logging.ERROR)
    for preset, rows in (("tiny", 1000), ("mini", 300)):
        bench(preset, rows, precision=pick_precision("auto", torch.device("cpu")))
