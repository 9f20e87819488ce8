"""What the folder of an encoder and a decoder of another library says about writing text."""

import dataclasses
import json
from typing import Any, cast

from bertpre.config.schema import Finetune
from bertpre.finetuning.finetune import stored_options
from bertpre.interop.foreign_folder import ForeignFolder
from bertpre.model.folder import GENERATION_CONFIG

# The options of generation_config.json, with our names.
_OPTIONS: dict[str, tuple[str, type]] = {
    "num_beams": ("num_beams", int),
    "length_penalty": ("length_penalty", float),
    "no_repeat_ngram_size": ("no_repeat_ngram", int),
}


def writer_facts(found: ForeignFolder) -> dict[str, Any]:
    """Return the manifest entries that `bertpre predict` needs, with default table options."""
    stated = _stated(found)
    options = {
        own: kind(stated[name])
        for name, (own, kind) in _OPTIONS.items()
        if isinstance(stated.get(name), int | float)
    }
    shortest = stated.get("min_length")
    config = dataclasses.replace(
        cast(Any, Finetune()),
        task="generation",
        # [CLS] is counted there.
        min_target_length=max(0, shortest - 1) if isinstance(shortest, int) else 0,
        num_decoder_layers=found.shape.raw["decoder"]["num_hidden_layers"],
        **options,
    )
    return {
        "task": "generation",
        "classes": [],
        "pooling": None,
        "options": stored_options(config),
        "max_target_length": _longest(found),
    }


def generation_entries(found: ForeignFolder) -> dict[str, Any]:
    """Return the content of generation_config.json, with the tokens of the tokenizer."""
    tokenizer = found.tokenizer
    return {
        **_stated(found),
        "decoder_start_token_id": tokenizer.cls_id,
        "eos_token_id": tokenizer.sep_id,
        "pad_token_id": tokenizer.pad_id,
        "max_length": _longest(found) + 2,
    }


def _longest(found: ForeignFolder) -> int:
    """Return the most tokens of a text: as stated, at most what there are positions for."""
    room = found.shape.config.max_position_embeddings - 1
    stated = _stated(found).get("max_length")
    return room if not isinstance(stated, int) or stated <= 2 else min(room, stated - 2)


def _stated(found: ForeignFolder) -> dict[str, Any]:
    path = found.folder / GENERATION_CONFIG
    if not path.is_file():
        return {}
    try:
        stated = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return stated if isinstance(stated, dict) else {}
