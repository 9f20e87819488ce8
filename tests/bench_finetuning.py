"""Fine-tuning and prediction against the transformers library, in turns: ``make bench``.

Both sides have the same shape, rows in memory, batch size, dropout and precision. Theirs pads each
batch to its longest row.
"""

import logging
import os
import tempfile
import warnings
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
import transformers
from bench import ROOT, take_turns, write_text

from bertpre import build_vocab, load_config
from bertpre.config.schema import BuildVocab, Finetune, Model
from bertpre.finetuning.batches import EncodedTable
from bertpre.finetuning.classifier import read_start
from bertpre.finetuning.finetune import finetune
from bertpre.finetuning.inference import Classifier
from bertpre.finetuning.labels import Labels
from bertpre.finetuning.loop import Part, fit
from bertpre.finetuning.objective import Objective
from bertpre.model.bert import initialize
from bertpre.model.folder import save_model
from bertpre.model.heads import BertForPreTraining
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.training.device import Precision, keep_freed_memory, pick_precision

BATCH_SIZE = 32
MAX_LENGTH = 128


def make_checkpoint(folder: Path, name: str) -> Path:
    """A checkpoint of random weights with a pooler, in the shape of a preset."""
    write_text(folder / "text.txt", 2)
    config = BuildVocab(vocab_size=8000)
    build_vocab([folder / "text.txt"], folder / "tokenizer", config, overwrite=True)
    tokenizer = Tokenizer.load(folder / "tokenizer")
    preset = load_config(ROOT / f"configs/{name}.yaml").model
    shape = Model(
        hidden_size=preset.hidden_size,
        num_hidden_layers=preset.num_hidden_layers,
        num_attention_heads=preset.num_attention_heads,
        intermediate_size=preset.intermediate_size,
        max_position_embeddings=MAX_LENGTH,
    )
    model = BertForPreTraining(shape, vocab_size=tokenizer.vocab_size, with_nsp=True)
    initialize(model, 0.02, torch.Generator().manual_seed(0))
    checkpoint = folder / name
    checkpoint.mkdir()
    save_model(checkpoint, model)
    tokenizer.save_files(checkpoint)
    return checkpoint


def write_table(folder: Path, num_rows: int) -> tuple[Path, list[str], list[int]]:
    """Rows of 3 to 40 words, most of them short, with one of two labels."""
    words = (folder / "text.txt").read_text().split()
    generator = np.random.default_rng(0)
    lengths = np.clip(generator.lognormal(2.6, 0.6, num_rows), 3, 40).astype(int)
    starts = generator.integers(0, len(words) - 40, num_rows)
    pairs = zip(starts, lengths, strict=True)
    texts = [" ".join(words[start : start + length]) for start, length in pairs]
    labels = generator.integers(0, 2, num_rows).tolist()
    table = folder / "rows.tsv"
    rows = (f"{text}\t{label}\n" for text, label in zip(texts, labels, strict=True))
    table.write_text("".join(["text\tlabel\n", *rows]))
    return table, texts, labels


def bench_training(
    name: str, checkpoint: Path, texts: list[str], labels: list[int], *, precision: Precision
) -> None:
    """One epoch over tokenised rows: batches, forward, backward, update."""
    start = read_start(checkpoint, config=Finetune(max_seq_length=MAX_LENGTH))
    ours = start.build(num_outputs=2, seed=0)
    kinds = Labels(kind="classification", names=("0", "1"))
    table = EncodedTable(texts=start.encoder.texts(texts), targets=np.array(labels))
    rows = Part(table, np.arange(len(texts)))

    def train_ours() -> None:
        fit(
            ours, rows, dev=Part(table, np.arange(1)), labels=kinds,
            objective=Objective(kind="classification"), tokenizer=start.encoder.tokenizer,
            config=Finetune(batch_size=BATCH_SIZE),
            learning_rate=1e-4, num_epochs=1, metric="accuracy", device=torch.device("cpu"),
            precision=precision, seed=0, on_update=lambda done, total: None,
            on_epoch=lambda report: None,
        )  # fmt: skip

    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    encoded = tokenizer(texts, truncation=True, max_length=MAX_LENGTH)
    arguments = transformers.TrainingArguments(
        output_dir=str(checkpoint / "theirs"), num_train_epochs=1, use_cpu=True,
        per_device_train_batch_size=BATCH_SIZE, learning_rate=1e-4, save_strategy="no",
        bf16=precision == "bf16", report_to=[], disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    trainer = transformers.Trainer(
        transformers.AutoModelForSequenceClassification.from_pretrained(checkpoint),
        arguments,
        train_dataset=[
            {**{key: encoded[key][row] for key in encoded}, "labels": labels[row]}
            for row in range(len(texts))
        ],
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    seconds, ratio = take_turns(train_ours, trainer.train)
    print(
        f"finetune, {name}, short rows, {precision}: {len(texts) / seconds:,.0f} rows/s, "
        f"{ratio:.2f} times transformers' Trainer",
        flush=True,
    )


def bench_prediction(name: str, folder: Path, texts: list[str], *, precision: Precision) -> None:
    """Texts to probabilities, the models already loaded."""
    ours = Classifier.load(folder, device=torch.device("cpu"), precision=precision)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    theirs = transformers.pipeline(
        "text-classification", model=str(folder), device="cpu", dtype=dtype
    )
    for batch_size in (1, BATCH_SIZE):

        def predict_theirs(batch_size: int = batch_size) -> None:
            # top_k: all probabilities, as ours gives them.
            theirs(texts, batch_size=batch_size, top_k=None, truncation=True)

        seconds, ratio = take_turns(
            lambda: ours.readings(ours.encoder.texts(texts)), predict_theirs
        )
        print(
            f"predict, {name}, short rows, {precision}: {len(texts) / seconds:,.0f} rows/s, "
            f"{ratio:.2f} times transformers' pipeline, its batches of {batch_size}",
            flush=True,
        )


def bench(name: str, num_rows: int) -> None:
    """Both, with a model of the shape of a preset."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        checkpoint = make_checkpoint(folder, name)
        table, texts, labels = write_table(folder, num_rows)
        precisions = list(dict.fromkeys(["fp32", pick_precision("auto", torch.device("cpu"))]))
        for precision in precisions:
            bench_training(name, checkpoint, texts, labels, precision=precision)
        config = Finetune(
            num_epochs=1, max_seq_length=MAX_LENGTH, precision="fp32", device="cpu", baseline=False
        )  # fmt: skip
        finetune(checkpoint, train=table, output=folder / "model", config=config)
        for precision in precisions:
            bench_prediction(name, folder / "model", texts, precision=precision)


if __name__ == "__main__":
    torch.set_num_threads(1)
    keep_freed_memory()  # as the commands do; it serves both sides
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.getLogger("bertpre").setLevel(logging.ERROR)
    for preset, rows in (("tiny", 1000), ("mini", 200)):
        bench(preset, rows)
