"""Training and prediction of taggers against the transformers library, in turns: ``make bench``.

Both sides have the same shape, sentences in memory, batch size, dropout and precision. Theirs pads
each batch to its longest sentence.
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
from bertpre.finetuning.loop import Part, Training, fit
from bertpre.finetuning.running import Placement, Run
from bertpre.finetuning.start import read_start
from bertpre.finetuning.tagging import Tagging
from bertpre.model.folder import save_model
from bertpre.training.device import Precision, keep_freed_memory, pick_precision

NAMES = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
IGNORED = -100


def draw_tags(sentences: list[list[str]]) -> list[list[str]]:
    """Valid tags that mean nothing: a name at every eighth token."""
    return [
        ["B-PER" if place % 8 == 5 else "O" for place, _ in enumerate(tokens)]
        for tokens in sentences
    ]


def encode_theirs(
    tokenizer: transformers.PreTrainedTokenizerBase,
    sentences: list[list[str]],
    tags: list[list[str]],
) -> list[dict[str, list[int]]]:
    """Rows for their Trainer: the first piece of a token has its tag."""
    encoded = tokenizer(sentences, is_split_into_words=True, truncation=True, max_length=MAX_LENGTH)
    rows = []
    for row, row_tags in enumerate(tags):
        words = encoded.word_ids(row)
        labels = [
            IGNORED if word is None or word == before else NAMES.index(row_tags[word])
            for before, word in zip([None, *words], words, strict=False)
        ]
        rows.append({**{key: encoded[key][row] for key in encoded}, "labels": labels})
    return rows


def bench(name: str, num_rows: int, *, precision: Precision) -> None:
    """Train for an epoch, and tag the same sentences, with a model of the shape of a preset."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        checkpoint = make_checkpoint(folder, name)
        sentences = [text.split() for text in write_table(folder, num_rows)[1]]
        tags = draw_tags(sentences)
        placement = Placement(torch.device("cpu"), precision)
        start = read_start(checkpoint, config=Finetune(max_seq_length=MAX_LENGTH), pools=False)
        task = Tagging(names=NAMES)
        targets = task.targets(tags)
        table = EncodedTable(texts=task.encode(start.encoder, sentences), targets=targets)
        model = start.build(task, seed=0)
        config = Finetune(batch_size=BATCH_SIZE)
        objective = task.objective(targets, config=config, device=placement.device)
        training = Training(
            task=task, model=model, objective=objective, train=Part(table, np.arange(num_rows)),
            dev=Part(table, np.arange(1)), tokenizer=start.encoder.tokenizer, config=config,
            learning_rate=1e-4, num_epochs=1, metric="accuracy", placement=placement, seed=0,
        )  # fmt: skip
        theirs = folder / "theirs"
        theirs.mkdir()
        save_model(theirs, model, extra_config=task.config_entries())
        start.encoder.tokenizer.save_files(theirs)
        tokenizer = transformers.AutoTokenizer.from_pretrained(theirs)
        arguments = transformers.TrainingArguments(
            output_dir=str(folder / "out"), num_train_epochs=1, use_cpu=True,
            per_device_train_batch_size=BATCH_SIZE, learning_rate=1e-4, save_strategy="no",
            bf16=precision == "bf16", report_to=[], disable_tqdm=True, logging_strategy="no",
        )  # fmt: skip
        trainer = transformers.Trainer(
            transformers.AutoModelForTokenClassification.from_pretrained(theirs),
            arguments,
            train_dataset=encode_theirs(tokenizer, sentences, tags),
            data_collator=transformers.DataCollatorForTokenClassification(tokenizer),
        )
        trainer.remove_callback(transformers.PrinterCallback)
        seconds, ratio = take_turns(lambda: fit(training), trainer.train)
        print(
            f"tagging, {name}, short sentences, {precision}: {num_rows / seconds:,.0f} "
            f"sentences/s, {ratio:.2f} times transformers' Trainer",
            flush=True,
        )
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        pipeline = transformers.pipeline(
            "token-classification", model=str(theirs), device="cpu", dtype=dtype
        )
        joined = [" ".join(tokens) for tokens in sentences]

        def tag_ours() -> None:
            task.predict([Run(model, task.encode(start.encoder, sentences))], placement=placement)

        for batch_size in (1, BATCH_SIZE):
            seconds, ratio = take_turns(
                tag_ours, lambda size=batch_size: pipeline(joined, batch_size=size)
            )
            print(
                f"tag, {name}, short sentences, {precision}: {num_rows / seconds:,.0f} "
                f"sentences/s, {ratio:.2f} times transformers' pipeline, its batches of "
                f"{batch_size}",
                flush=True,
            )


if __name__ == "__main__":
    torch.set_num_threads(1)
    keep_freed_memory()  # as the commands do; it serves both sides
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.getLogger("bertpre").setLevel(logging.ERROR)
    for preset, rows in (("tiny", 1000), ("mini", 300)):
        bench(preset, rows, precision=pick_precision("auto", torch.device("cpu")))
