"""Small real artefacts that many tests share, each made once by the stage that makes it."""

import dataclasses
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bertpre.artefacts import write_manifest
from bertpre.config.load import parse_config
from bertpre.config.schema import Config, Finetune, Model
from bertpre.model.bert import initialize
from bertpre.model.folder import save_model
from bertpre.model.heads import BertForPreTraining
from bertpre.tokenizer.tokenizer import Tokenizer

SUBJECTS = ["the cat", "a dog", "our teacher", "the old sailor", "my sister", "every child"]
VERBS = ["sees", "follows", "likes", "remembers", "paints", "describes"]
OBJECTS = ["the river", "a small boat", "the garden", "some bread", "an empty house", "the moon"]
PLACES = ["in the morning", "near the harbour", "after supper", "without a word", "once again"]


@pytest.fixture(scope="session")
def tiny_documents() -> list[list[str]]:
    """80 documents of 2 to 9 invented sentences; each document keeps to one subject."""
    generator = random.Random(2024)
    documents = []
    for _ in range(80):
        subject = generator.choice(SUBJECTS)
        sentences = []
        for _ in range(generator.randint(2, 9)):
            drawn = [generator.choice(part) for part in (VERBS, OBJECTS, PLACES)]
            sentences.append(" ".join([subject, *drawn]) + ".")
        documents.append(sentences)
    return documents


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory, tiny_documents: list[list[str]]) -> Path:
    """The documents as a text file: a sentence a line, a blank line between documents."""
    path = tmp_path_factory.mktemp("corpus") / "tiny.txt"
    text = "\n\n".join("\n".join(sentences) for sentences in tiny_documents)
    path.write_text(text + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny_tokenizer(tmp_path_factory: pytest.TempPathFactory, tiny_corpus: Path) -> Path:
    """A WordPiece tokenizer folder of the tiny corpus, small enough that words are cut."""
    from bertpre.config.schema import BuildVocab
    from bertpre.tokenizer.vocabulary import build_vocab

    folder = tmp_path_factory.mktemp("tokenizer") / "tokenizer"
    build_vocab([tiny_corpus], folder, config=BuildVocab(vocab_size=90))
    return folder


@pytest.fixture(scope="session")
def tiny_data(
    tmp_path_factory: pytest.TempPathFactory, tiny_corpus: Path, tiny_tokenizer: Path
) -> Path:
    """A data folder of sentence pairs of up to 48 tokens."""
    from bertpre.config.schema import MakeData
    from bertpre.data.make_data import make_data

    folder = tmp_path_factory.mktemp("data") / "data"
    config = MakeData(max_seq_length=48, dupe_factor=2, eval_fraction=0.1, workers=1)
    make_data([tiny_corpus], tokenizer=tiny_tokenizer, output=folder, config=config)
    return folder


@pytest.fixture(scope="session")
def tiny_config() -> Config:
    """A model that trains in milliseconds, with dropout, for 12 updates in two micro-batches."""
    return parse_config(
        {
            "seed": 1,
            "model": {
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "intermediate_size": 64,
                "max_position_embeddings": 48,
            },
            "pretrain": {
                "optimizer": {"learning_rate": 1e-3},
                "max_steps": 12,
                "global_batch_size": 8,
                "micro_batch_size": 4,
                "log_every_steps": 2,
                "eval_every_steps": 4,
                "save_every_steps": 4,
                "device": "cpu",
                "precision": "fp32",
            },
        }
    )


@pytest.fixture(scope="session")
def real_data() -> Path:
    """A folder of real corpora and labelled sets, for those who have one."""
    folder = os.environ.get("BERTPRE_TEST_DATA")
    if not folder:
        pytest.skip("BERTPRE_TEST_DATA names no folder of real corpora")
    return Path(folder)


@pytest.fixture(scope="session")
def make_checkpoint(
    tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path
) -> Callable[..., Path]:
    """Make checkpoint folders, as pretraining leaves them, without their trainer state."""

    def make(*, objective: str = "mlm-nsp", manifest: bool = True, dropout: float = 0.0) -> Path:
        folder = tmp_path_factory.mktemp("checkpoint")
        tokenizer = Tokenizer.load(tiny_tokenizer)
        shape = Model(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=64,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        )
        model = BertForPreTraining(
            shape, vocab_size=tokenizer.vocab_size, with_nsp=objective == "mlm-nsp"
        )
        initialize(model, 0.1, torch.Generator().manual_seed(5))
        save_model(folder, model, extra_config={"pad_token_id": tokenizer.pad_id})
        tokenizer.save_files(folder)
        if manifest:
            facts = {"max_seq_length": 32, "objective": objective, "step": 0}
            write_manifest(folder, "checkpoint", facts)
        return folder

    return make


@pytest.fixture(scope="session")
def tiny_checkpoint(make_checkpoint: Callable[..., Path]) -> Path:
    """A checkpoint with a pooler, an NSP head and an MLM head."""
    return make_checkpoint()


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory, tiny_documents: list[list[str]]) -> Path:
    """A folder with train.tsv (72 rows), dev.tsv (24) and test.tsv (24): who is the subject?"""
    folder = tmp_path_factory.mktemp("tables")
    rows = []
    for sentences in tiny_documents:
        label = " ".join(sentences[0].split()[:2])
        rows += [f"{sentence}\t{label}" for sentence in sentences[:3]]
    rows = [row for row in rows if not row.endswith(("old", "every child"))][:120]
    for name, part in (("train", rows[:72]), ("dev", rows[72:96]), ("test", rows[96:120])):
        text = "\n".join(["text\tlabel", *part])
        (folder / f"{name}.tsv").write_text(text + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def recipe() -> Finetune:
    """Options by which the tables are learnt in a second."""
    return Finetune(num_epochs=12, learning_rate=3e-3, batch_size=8, device="cpu", precision="fp32")


@pytest.fixture(scope="session")
def tiny_model(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_checkpoint: Path,
    tables: Path,
    recipe: Finetune,
) -> Path:
    """A model folder that finetune wrote, with dev and test scores."""
    from bertpre.finetuning.finetune import finetune

    folder = tmp_path_factory.mktemp("model") / "model"
    finetune(
        tiny_checkpoint,
        train=tables / "train.tsv",
        dev=tables / "dev.tsv",
        test=tables / "test.tsv",
        output=folder,
        config=recipe,
        seed=1,
    )
    return folder


@pytest.fixture(scope="session")
def chain(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_documents: list[list[str]],
    tiny_tokenizer: Path,
    tiny_data: Path,
    tiny_config: Config,
) -> Path:
    """A folder with tokenizer, data, run (12 updates of NSP pretraining) and model in it."""
    from bertpre.finetuning.finetune import finetune
    from bertpre.training.pretrain import pretrain

    folder = tmp_path_factory.mktemp("chain")
    shutil.copytree(tiny_tokenizer, folder / "tokenizer")
    shutil.copytree(tiny_data, folder / "data")
    pretrain(folder / "data", output=folder / "run", config=tiny_config)
    lines = [f"{sentences[0]}\t{sentences[0].split()[1]}" for sentences in tiny_documents]
    lines = [line for line in lines if line.endswith(("cat", "dog"))]
    (folder / "train.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n", encoding="utf-8")
    recipe = Finetune(num_epochs=2, device="cpu", precision="fp32", pooling="cls")
    finetune(folder / "run", train=folder / "train.tsv", output=folder / "model", config=recipe)
    return folder


@pytest.fixture(scope="session")
def make_foreign(
    tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path
) -> Callable[..., Path]:
    """A function: a class of the transformers library to a folder that it saved, random weights."""
    transformers = pytest.importorskip("transformers")

    def make(architecture: str = "BertForPreTraining", **changes: Any) -> Path:
        folder = tmp_path_factory.mktemp("foreign") / "bert"
        num_entries = len((tiny_tokenizer / "vocab.txt").read_text(encoding="utf-8").splitlines())
        options: dict[str, Any] = {
            "vocab_size": num_entries,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 64,
            "max_position_embeddings": 48,
            "initializer_range": 0.2,
        }
        torch.manual_seed(7)
        config = transformers.BertConfig(**{**options, **changes})
        getattr(transformers, architecture)(config).eval().save_pretrained(folder)
        shutil.copy(tiny_tokenizer / "vocab.txt", folder)
        (folder / "tokenizer_config.json").write_text(
            '{"tokenizer_class": "BertTokenizer", "do_lower_case": false}'
        )
        return folder

    return make


@pytest.fixture(scope="session")
def tutorial_checkpoint(
    tmp_path_factory: pytest.TempPathFactory, tiny_data: Path, tiny_config: Config
) -> Path:
    """A run of the pre-norm encoder with sinusoidal positions."""
    from bertpre.training.pretrain import pretrain

    model = dataclasses.replace(tiny_config.model, norm="pre", position_embeddings="sinusoidal")
    pretraining = dataclasses.replace(tiny_config.pretrain, max_steps=2)
    config = dataclasses.replace(tiny_config, model=model, pretrain=pretraining)
    folder = tmp_path_factory.mktemp("tutorial") / "run"
    pretrain(tiny_data, output=folder, config=config)
    return folder
