"""bertpre: pretrain BERT on your own text and fine-tune classifiers on the result.

The names below are the stages and what a notebook needs around them; each is imported when it is
first used, so that ``import bertpre`` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertpre.chaining.chain import chain
    from bertpre.config.load import load_config
    from bertpre.config.schema import Config
    from bertpre.corpus.documents import read_documents
    from bertpre.data.dataset import PretrainingData
    from bertpre.data.make_data import make_data
    from bertpre.errors import BertpreError
    from bertpre.finetuning.finetune import finetune
    from bertpre.inference.embed import embed
    from bertpre.inference.fill_mask import fill_mask
    from bertpre.inference.predict import predict
    from bertpre.inspection.inspection import inspect
    from bertpre.inspection.report import report
    from bertpre.interop.export import export
    from bertpre.interop.import_checkpoint import import_checkpoint
    from bertpre.model.bert import BertModel
    from bertpre.model.folder import load_model
    from bertpre.model.heads import (
        BertForPreTraining,
        BertForSequenceClassification,
        BertForTokenClassification,
    )
    from bertpre.tokenizer.tokenizer import Tokenizer
    from bertpre.tokenizer.vocabulary import build_vocab
    from bertpre.training.pretrain import pretrain

__version__ = "0.1.0"

_HOME = {
    "BertForPreTraining": "bertpre.model.heads",
    "BertForSequenceClassification": "bertpre.model.heads",
    "BertForTokenClassification": "bertpre.model.heads",
    "BertModel": "bertpre.model.bert",
    "BertpreError": "bertpre.errors",
    "Config": "bertpre.config.schema",
    "PretrainingData": "bertpre.data.dataset",
    "Tokenizer": "bertpre.tokenizer.tokenizer",
    "build_vocab": "bertpre.tokenizer.vocabulary",
    "chain": "bertpre.chaining.chain",
    "embed": "bertpre.inference.embed",
    "export": "bertpre.interop.export",
    "fill_mask": "bertpre.inference.fill_mask",
    "finetune": "bertpre.finetuning.finetune",
    "import_checkpoint": "bertpre.interop.import_checkpoint",
    "inspect": "bertpre.inspection.inspection",
    "load_config": "bertpre.config.load",
    "load_model": "bertpre.model.folder",
    "make_data": "bertpre.data.make_data",
    "predict": "bertpre.inference.predict",
    "pretrain": "bertpre.training.pretrain",
    "read_documents": "bertpre.corpus.documents",
    "report": "bertpre.inspection.report",
}

__all__ = [
    "BertForPreTraining",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertModel",
    "BertpreError",
    "Config",
    "PretrainingData",
    "Tokenizer",
    "build_vocab",
    "chain",
    "embed",
    "export",
    "fill_mask",
    "finetune",
    "import_checkpoint",
    "inspect",
    "load_config",
    "load_model",
    "make_data",
    "predict",
    "pretrain",
    "read_documents",
    "report",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'bertpre' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
