"""Import of BERT checkpoints from other libraries, whatever the names of their weights."""

import logging
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bertpre.artefacts import (
    Kind,
    check_output,
    fingerprint,
    fingerprint_file,
    is_artefact,
    stage_folder,
    write_manifest,
)
from bertpre.config.schema import Finetune
from bertpre.data.random64 import derive
from bertpre.errors import CheckpointError, InteropError
from bertpre.finetuning.finetune import stored_options
from bertpre.model import names
from bertpre.model.bert import BertModel
from bertpre.model.folder import CONFIG, ModelFolder, read_model_config, save_model
from bertpre.model.heads import BertForPreTraining, BertForSequenceClassification
from bertpre.model.names import Model, canonical_name, plain_names
from bertpre.model.weights import LoadReport, load_hugging_face, read_weights, to_hugging_face
from bertpre.tokenizer.folder import BACKEND, VOCAB, state_longest_input
from bertpre.tokenizer.tokenizer import Tokenizer

log = logging.getLogger(__name__)

# Parts that pretraining adds to an encoder.
_ADDED = {"pooler": names.POOLER, "MLM head": names.MLM_HEAD, "NSP head": names.NSP_HEAD}
_LONGEST_SEQUENCE = 512  # BERT's training length, which no folder states
_SHOWN_ENTRIES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportReport:
    """What was imported.

    Args:
        output: the new folder.
        kind: "checkpoint", or "model" for a classifier, which `bertpre predict` takes.
        architecture: the class of the model in the transformers library.
        shapes: shapes of the loaded tensors, by Hugging Face name.
        absent: missing parts of the model: "pooler", "MLM head", "NSP head".
        unused: tensors that the model does not use, by their names in the folder.
        new_entries: vocabulary entries without a row in the weights, now random.
        spare_rows: rows of the word embedding without a vocabulary entry.
    """

    output: Path
    kind: Kind
    architecture: str
    shapes: dict[str, tuple[int, ...]]
    absent: tuple[str, ...]
    unused: tuple[str, ...]
    new_entries: tuple[str, ...]
    spare_rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """A folder of another library: its tensors, and their Hugging Face names by given name."""

    folder: Path
    shape: ModelFolder
    tokenizer: Tokenizer
    tensors: dict[str, Tensor]
    canonical: dict[str, str]

    def has(self, part: Set[str]) -> bool:
        """Return whether all tensors of a part are there."""
        return part <= set(self.canonical.values())

    def length(self, name: str) -> int:
        """Return the length of a tensor, by its Hugging Face name; 0 if absent."""
        given = (given for given, known in self.canonical.items() if known == name)
        return next((len(self.tensors[found]) for found in given), 0)

    @property
    def num_rows(self) -> int:
        """The rows of the word embedding; if it is absent, vocab_size of config.json."""
        return self.length(names.WORDS) or self.shape.vocab_size


def import_checkpoint(
    folder: str | Path,
    output: str | Path,
    *,
    add_rows: bool = False,
    seed: int = 0,
    overwrite: bool = False,
) -> ImportReport:
    """Convert a BERT that others trained to a folder that every command takes.

    Depending on its heads, it becomes a checkpoint with one or both pretraining heads, a
    classifier, or an encoder; nothing is added. Weights become fp32 safetensors under Hugging Face
    names. No code in the folder is run.

    Args:
        folder: config.json (or bert_config.json), vocab.txt or tokenizer.json, and weights as
            safetensors or as a legacy pytorch_model.bin.
        output: the folder to create.
        add_rows: add random rows for vocabulary entries without a row in the weights.
        seed: decides these rows.
        overwrite: replace an existing folder of the same kind.

    Raises:
        CheckpointError: the folder contains no BERT, or its parts do not match.
        TokenizerError: its vocabulary cannot be read.
        InteropError: bertpre wrote the folder, it has no vocabulary, or entries of the vocabulary
            have no row in the weights.
        ConfigError: the output exists.
    """
    output, found = Path(output), _read(Path(folder))
    kind: Kind = "model" if _is_classifier(found) else "checkpoint"
    check_output(output, kind=kind, overwrite=overwrite)
    new_entries = _entries_without_row(found, may_lack=add_rows)
    if new_entries:
        _add_rows(found, len(new_entries), seed=seed)
    model, loaded = _load(found)
    absent = tuple(name for name, part in _ADDED.items() if not part <= set(loaded.loaded))
    source = _fingerprint(found.folder)
    imported = {"from": source, "unused": list(loaded.unused), "new_entries": len(new_entries)}
    facts = {
        "imported": imported,
        "max_seq_length": min(_LONGEST_SEQUENCE, found.shape.config.max_position_embeddings),
    }
    facts |= _task(_classes(found)) if kind == "model" else _objective(absent)
    identity = fingerprint([source, add_rows, seed])
    with stage_folder(output, kind=kind, overwrite=overwrite, identity=identity) as work:
        _write(work, found, model)
        write_manifest(work, kind, facts)
    is_masked_lm = isinstance(model, BertForPreTraining) and model.nsp is None
    return ImportReport(
        output=output,
        kind=kind,
        architecture="BertForMaskedLM" if is_masked_lm else type(model).__name__,
        shapes={name: tuple(part.shape) for name, part in to_hugging_face(model).items()},
        absent=absent,
        unused=loaded.unused,
        new_entries=new_entries,
        spare_rows=max(0, found.num_rows - found.tokenizer.vocab_size),
    )


def _read(folder: Path) -> _Found:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "there is no such folder"
        raise CheckpointError(
            f"{folder}: {what}; expected a folder with {CONFIG}, a vocabulary and weights",
            "download the model first: bertpre fetches nothing",
        )
    if is_artefact(folder):
        raise InteropError(
            f"{folder}: bertpre wrote it, so there is nothing to import",
            "pass it directly to the other commands",
        )
    shape = read_model_config(folder)
    if not any((folder / name).is_file() for name in (VOCAB, BACKEND)):
        raise InteropError(
            f"{folder}: has neither {VOCAB} nor {BACKEND}, so the meaning of its rows is unknown",
            "copy the tokenizer files that the model was trained with into the folder",
        )
    tokenizer = Tokenizer.load(folder)
    tensors = read_weights(folder)
    # Naming the MLM head lets a stored decoder be recognized as a copy of the word embedding.
    plain = plain_names(tensors)
    canonical = {given: canonical_name(plain[given], (names.MLM_BIAS,)) for given in tensors}
    return _Found(
        folder=folder, shape=shape, tokenizer=tokenizer, tensors=tensors, canonical=canonical
    )


def _entries_without_row(found: _Found, *, may_lack: bool) -> tuple[str, ...]:
    """Return the vocabulary entries without a row in the word embedding.

    Raises:
        InteropError: there are some, but ``may_lack`` is false.
    """
    rows, entries = found.num_rows, found.tokenizer.tokens
    if rows != found.shape.vocab_size:
        log.warning(
            "%s: %s says vocab_size %s, but the word embedding has %s rows; using the latter",
            found.folder,
            CONFIG,
            f"{found.shape.vocab_size:,}",
            f"{rows:,}",
        )
    without = entries[rows:]
    if without and not may_lack:
        named = ", ".join(repr(token) for token in without[:_SHOWN_ENTRIES])
        named += ", …" if len(without) > _SHOWN_ENTRIES else ""
        raise InteropError(
            f"{found.folder}: the vocabulary has {len(entries):,} entries, but the word "
            f"embedding only {rows:,} rows; without a row: {named}",
            "copy the tokenizer files that the model was trained with into the folder; or, if "
            "these are the right ones, add random rows with --add-rows",
        )
    return without


def _add_rows(found: _Found, number: int, *, seed: int) -> None:
    """Extend the word embedding by random rows, and the bias of the MLM head by zeros."""
    for given, name in found.canonical.items():
        if name in (names.WORDS, names.MLM_BIAS):
            tensor = found.tensors[given].float()
            fresh = tensor.new_zeros(number, *tensor.shape[1:])
            if name == names.WORDS:
                # The same rows for the embedding and for a decoder that repeats it.
                generator = torch.Generator().manual_seed(derive(seed, "import rows"))
                std = found.shape.config.initializer_range
                nn.init.trunc_normal_(fresh, std=std, a=-2 * std, b=2 * std, generator=generator)
            found.tensors[given] = torch.cat([tensor, fresh])


def _is_classifier(found: _Found) -> bool:
    """Return whether the folder is a classifier with one label per text."""
    raw = found.shape.raw
    architectures = raw.get("architectures") or ["BertForSequenceClassification"]
    problem = raw.get("problem_type") or "single_label_classification"
    return (
        architectures[0] == "BertForSequenceClassification"
        and found.has(names.CLASSIFIER | names.POOLER)
        and problem == "single_label_classification"
        and found.length(names.CLASSIFIER_BIAS) > 1
    )


def _classes(found: _Found) -> tuple[str, ...]:
    numbers, stated = range(found.length(names.CLASSIFIER_BIAS)), found.shape.raw.get("id2label")
    if isinstance(stated, dict) and {str(number) for number in numbers} == set(stated):
        labels = tuple(str(stated[str(number)]) for number in numbers)
        if len(set(labels)) == len(labels):
            return labels
    return tuple(f"LABEL_{number}" for number in numbers)  # as the transformers library does


def _label_names(classes: tuple[str, ...]) -> dict[str, Any]:
    return {
        "id2label": {str(number): name for number, name in enumerate(classes)},
        "label2id": {name: number for number, name in enumerate(classes)},
    }


def _load(found: _Found) -> tuple[Model, LoadReport]:
    model = _build(found)
    loaded = load_hugging_face(model, found.tensors, source=found.folder)
    assert not loaded.new  # the model has only heads that are in the folder
    return model, loaded


def _build(found: _Found) -> Model:
    config, rows = found.shape.config, found.num_rows
    if _is_classifier(found):
        return BertForSequenceClassification(
            config, vocab_size=rows, num_labels=found.length(names.CLASSIFIER_BIAS), pooling="cls"
        )
    if found.has(names.MLM_HEAD):
        return BertForPreTraining(
            config, vocab_size=rows, with_nsp=found.has(names.POOLER | names.NSP_HEAD)
        )
    return BertModel(config, vocab_size=rows, with_pooler=found.has(names.POOLER))


def _write(work: Path, found: _Found, model: Model) -> None:
    extra: dict[str, Any] = {"pad_token_id": found.tokenizer.pad_id}
    if isinstance(model, BertForSequenceClassification):
        extra |= _label_names(_classes(found))
    save_model(work, model, extra_config=extra)
    found.tokenizer.save_files(work)
    state_longest_input(work, found.shape.config.max_position_embeddings, is_trained_here=False)


def _objective(absent: tuple[str, ...]) -> dict[str, object]:
    if "MLM head" in absent:
        return {"objective": None}
    return {"objective": "mlm" if "NSP head" in absent else "mlm-nsp"}


def _task(classes: tuple[str, ...]) -> dict[str, object]:
    """Return the manifest entries that `bertpre predict` needs, with default table options."""
    about = {"task": "classification", "classes": list(classes), "pooling": "cls"}
    return {**about, "options": stored_options(Finetune())}


def _fingerprint(folder: Path) -> str:
    """Return a fingerprint of all files in the folder."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return fingerprint({path.name: fingerprint_file(path) for path in files})
