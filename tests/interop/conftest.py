"""Taggers with random weights, as `finetune` writes them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bertpre.artefacts import write_manifest
from bertpre.config.schema import Finetune, Model
from bertpre.finetuning.finetune import stored_options
from bertpre.model.bert import initialize
from bertpre.model.folder import save_model
from bertpre.model.heads import BertForTokenClassification
from bertpre.tokenizer.tokenizer import Tokenizer

TAGS = ["O", "B-LOC", "I-LOC"]


@pytest.fixture
def make_tagger(tmp_path: Path, tiny_tokenizer: Path) -> Callable[..., Path]:
    """A function: with a CRF or not, to a model folder of three tags."""

    def make(*, has_crf: bool) -> Path:
        tokenizer = Tokenizer.load(tiny_tokenizer)
        shape = Model(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=48,
        )
        model = BertForTokenClassification(
            shape, vocab_size=tokenizer.vocab_size, num_labels=len(TAGS), has_crf=has_crf
        )
        generator = torch.Generator().manual_seed(5)
        initialize(model, 0.2, generator)
        with torch.no_grad():
            for part in () if model.crf is None else model.crf.parameters():
                part.copy_(torch.randn(part.shape, generator=generator))
        folder = tmp_path / "tagger"
        folder.mkdir()
        labels = {"id2label": {str(number): tag for number, tag in enumerate(TAGS)}}
        save_model(folder, model, extra_config=labels | {"pad_token_id": tokenizer.pad_id})
        tokenizer.save_files(folder)
        about = {"task": "tagging", "classes": TAGS, "pooling": None, "max_seq_length": 48}
        write_manifest(folder, "model", {**about, "options": stored_options(Finetune())})
        return folder

    return make
