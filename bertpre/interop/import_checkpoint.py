"""Import of BERT checkpoints from other libraries, whatever the names of their weights."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bertpre.artefacts import (
    Kind,
    check_output,
    fingerprint,
    stage_folder,
    write_manifest,
)
from bertpre.config.schema import Finetune
from bertpre.data.random64 import derive
from bertpre.errors import CheckpointError, InteropError
from bertpre.finetuning.finetune import stored_options
from bertpre.finetuning.scheme_recognition import scheme_of_names
from bertpre.finetuning.schemes import IOB1, IOB2
from bertpre.interop.foreign_folder import ForeignFolder, read_foreign_folder
from bertpre.interop.foreign_writers import generation_entries, writer_facts
from bertpre.model import names
from bertpre.model.bert import BertModel
from bertpre.model.decoder import EncoderDecoder
from bertpre.model.folder import CONFIG, save_model
from bertpre.model.heads import (
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
    Classifier,
)
from bertpre.model.names import Model
from bertpre.model.weights import LoadReport, load_hugging_face, to_hugging_face
from bertpre.tokenizer.folder import state_longest_input

log = logging.getLogger(__name__)

# Parts that pretraining adds to an encoder.
_ADDED = {"pooler": names.POOLER, "MLM head": names.MLM_HEAD, "NSP head": names.NSP_HEAD}
# Entries of a classifier's manifest, by its class.
_TASKS: dict[str, dict[str, object]] = {
    "BertForSequenceClassification": {"task": "classification", "pooling": "cls"},
    "BertForTokenClassification": {"task": "tagging", "pooling": None},
}
_LONGEST_SEQUENCE = 512  # BERT's training length, which no folder states
_SHOWN_ENTRIES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportReport:
    """What was imported.

    Args:
        output: the new folder.
        kind: "checkpoint", or "model" for a classifier of texts or tokens, for `bertpre predict`.
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
    classifier of texts or of tokens, or an encoder; nothing is added. Weights become fp32
    safetensors under Hugging Face names. No code in the folder is run.

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
    output, found = Path(output), read_foreign_folder(Path(folder))
    kind: Kind = "model" if found.classifier or found.writes_text else "checkpoint"
    check_output(output, kind=kind, overwrite=overwrite)
    new_entries = _entries_without_row(found, may_lack=add_rows and not found.writes_text)
    if new_entries:
        _add_rows(found, len(new_entries), seed=seed)
    model, loaded = _load(found)
    absent = tuple(name for name, part in _ADDED.items() if not part <= set(loaded.loaded))
    if found.writes_text:
        absent = ()
    source = found.fingerprint()
    imported = {"from": source, "unused": list(loaded.unused), "new_entries": len(new_entries)}
    facts = {
        "imported": imported,
        "max_seq_length": min(_LONGEST_SEQUENCE, found.shape.config.max_position_embeddings),
    }
    if found.writes_text:
        facts |= writer_facts(found)
    else:
        facts |= _task(found) if kind == "model" else _objective(absent)
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


def _entries_without_row(found: ForeignFolder, *, may_lack: bool) -> tuple[str, ...]:
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


def _add_rows(found: ForeignFolder, number: int, *, seed: int) -> None:
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


def _label_names(classes: tuple[str, ...]) -> dict[str, Any]:
    return {
        "id2label": {str(number): name for number, name in enumerate(classes)},
        "label2id": {name: number for number, name in enumerate(classes)},
    }


def _load(found: ForeignFolder) -> tuple[Model, LoadReport]:
    model = _build(found)
    loaded = load_hugging_face(model, found.tensors, source=found.folder)
    if loaded.new:  # heads are there, or the model would have none; a decoder may have gaps
        raise CheckpointError(
            f"{found.folder}: the weights lack {', '.join(loaded.new[:3])}",
            "the file is incomplete: copy it again",
        )
    return model, loaded


def _build(found: ForeignFolder) -> Model:
    config, rows = found.shape.config, found.num_rows
    if found.writes_text:
        return EncoderDecoder(
            config,
            vocab_size=rows,
            num_decoder_layers=found.shape.raw["decoder"]["num_hidden_layers"],
            is_shared=False,
        )
    architecture, num_labels = found.classifier, found.num_classes
    if architecture == "BertForTokenClassification":
        return BertForTokenClassification(
            config, vocab_size=rows, num_labels=num_labels, has_crf=False
        )
    if architecture is not None:
        return BertForSequenceClassification(
            config, vocab_size=rows, num_labels=num_labels, pooling="cls"
        )
    if found.has(names.MLM_HEAD):
        return BertForPreTraining(
            config, vocab_size=rows, with_nsp=found.has(names.POOLER | names.NSP_HEAD)
        )
    return BertModel(config, vocab_size=rows, with_pooler=found.has(names.POOLER))


def _write(work: Path, found: ForeignFolder, model: Model) -> None:
    extra: dict[str, Any] = {"pad_token_id": found.tokenizer.pad_id}
    if isinstance(model, Classifier):
        extra |= _label_names(found.classes)
    generation = generation_entries(found) if found.writes_text else None
    save_model(work, model, extra_config=extra, generation_config=generation)
    found.tokenizer.save_files(work)
    state_longest_input(work, found.shape.config.max_position_embeddings, is_trained_here=False)


def _objective(absent: tuple[str, ...]) -> dict[str, object]:
    if "MLM head" in absent:
        return {"objective": None}
    return {"objective": "mlm" if "NSP head" in absent else "mlm-nsp"}


def _task(found: ForeignFolder) -> dict[str, object]:
    """Return the manifest entries that `bertpre predict` needs, with default table options."""
    about = _TASKS[str(found.classifier)]
    # Names do not tell IOB1 from IOB2, so nothing that one of them allows may be forbidden.
    is_known = scheme_of_names(found.classes) not in (IOB1, IOB2)
    is_constrained = is_known or about["pooling"] is not None
    options = stored_options(Finetune()) | ({} if is_constrained else {"constrained": False})
    return {**about, "classes": list(found.classes), "options": options}
