"""A checkpoint of random weights and labelled tables of the tiny corpus."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bertpre.artefacts import write_manifest
from bertpre.config.schema import Finetune, Model
from bertpre.model.bert import initialize
from bertpre.model.heads import BertForPreTraining
from bertpre.model.weights import save_weights
from bertpre.text.tokenizer import Tokenizer


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
        save_weights(folder, model, extra_config={"pad_token_id": tokenizer.pad_id})
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
