"""Small real artefacts that many tests share, each made once by the stage that makes it."""

import os
import random
from pathlib import Path

import pytest

from bertpre.config.load import parse_config
from bertpre.config.schema import Config

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
    from bertpre.text.vocabulary import build_vocab

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
