"""Fine-tuning and prediction against the transformers library, in turns: ``make bench``.

Both sides start from the same checkpoint and read the same short rows in memory, with the same
batch size, dropout and precision; both tokenise. Theirs pads each batch to its longest row.
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
from bertpre.finetuning.finetune import finetune
from bertpre.finetuning.predict import predict
from bertpre.model.bert import initialize
from bertpre.model.heads import BertForPreTraining
from bertpre.model.weights import save_weights
from bertpre.text.tokenizer import Tokenizer

NUM_ROWS = 1000
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
    save_weights(checkpoint, model)
    tokenizer.save_files(checkpoint)
    return checkpoint


def write_table(folder: Path) -> tuple[Path, list[str], list[int]]:
    """Rows of 3 to 40 words, most of them short, with one of two labels."""
    words = (folder / "text.txt").read_text().split()
    generator = np.random.default_rng(0)
    lengths = np.clip(generator.lognormal(2.6, 0.6, NUM_ROWS), 3, 40).astype(int)
    starts = generator.integers(0, len(words) - 40, NUM_ROWS)
    pairs = zip(starts, lengths, strict=True)
    texts = [" ".join(words[start : start + length]) for start, length in pairs]
    labels = generator.integers(0, 2, NUM_ROWS).tolist()
    table = folder / "rows.tsv"
    rows = (f"{text}\t{label}\n" for text, label in zip(texts, labels, strict=True))
    table.write_text("".join(["text\tlabel\n", *rows]))
    return table, texts, labels


def bench(name: str) -> None:
    """One epoch of training, and prediction of the same rows by the trained model."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        checkpoint = make_checkpoint(folder, name)
        table, texts, labels = write_table(folder)
        dev = folder / "dev.tsv"
        dev.write_text("".join(table.read_text().splitlines(keepends=True)[:11]))
        config = Finetune(
            num_epochs=1, batch_size=BATCH_SIZE, max_seq_length=MAX_LENGTH, precision="fp32",
            device="cpu", baseline=False, learning_rate=1e-4,
        )  # fmt: skip
        output = folder / "model"

        def train_ours() -> None:
            finetune(checkpoint, train=table, dev=dev, output=output, config=config, overwrite=True)

        def train_theirs() -> None:
            tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
            model = transformers.AutoModelForSequenceClassification.from_pretrained(checkpoint)
            encoded = tokenizer(texts, truncation=True, max_length=MAX_LENGTH)
            rows = [
                {**{key: encoded[key][row] for key in encoded}, "labels": labels[row]}
                for row in range(len(texts))
            ]
            arguments = transformers.TrainingArguments(
                output_dir=str(folder / "theirs"), num_train_epochs=1, use_cpu=True,
                per_device_train_batch_size=BATCH_SIZE, learning_rate=1e-4, warmup_steps=3,
                save_strategy="no", report_to=[], disable_tqdm=True, logging_strategy="no",
            )  # fmt: skip
            transformers.Trainer(
                model, arguments, train_dataset=rows, processing_class=tokenizer,
                data_collator=transformers.DataCollatorWithPadding(tokenizer),
            ).train()  # fmt: skip

        seconds, ratio = take_turns(train_ours, train_theirs)
        print(
            f"finetune, {name}, {NUM_ROWS} short rows, start to end: "
            f"{NUM_ROWS / seconds:,.0f} rows/s, {ratio:.2f} times transformers' Trainer"
        )
        plain = Finetune(device="cpu", precision="fp32")
        classify = transformers.pipeline("text-classification", model=str(output), device="cpu")

        def predict_ours() -> None:
            predict(output, table, output=folder / "out.tsv", config=plain, overwrite=True)

        for batch_size in (1, BATCH_SIZE):

            def predict_theirs(batch_size: int = batch_size) -> None:
                # top_k: all probabilities, as ours gives them.
                classify(texts, batch_size=batch_size, top_k=None, truncation=True)

            seconds, ratio = take_turns(predict_ours, predict_theirs)
            print(
                f"predict, {name}: {NUM_ROWS / seconds:,.0f} rows/s, {ratio:.2f} times "
                f"transformers' pipeline, its batches of {batch_size}"
            )


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.getLogger("bertpre").setLevel(logging.ERROR)
    for preset in ("tiny", "mini"):
        bench(preset)
