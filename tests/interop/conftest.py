"""A whole chain of folders beside one another, and BERTs as the transformers library saves them."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bertpre.config.schema import Config, Finetune


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
