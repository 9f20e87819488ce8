"""Describes tokenizer and data folders."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bertpre.data.dataset import PretrainingData, decode_examples
from bertpre.data.examples import example_lengths
from bertpre.inspection.sections import Bars, Examples, Folder, Grid, Section
from bertpre.interop.facts import Facts, describe, short
from bertpre.tokenizer.tokenizer import Tokenizer

# Shown unless texts are given; those that are mostly [UNK] are left out.
_SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "敏捷的棕色狐狸跳过懒狗。",
    "Быстрая лиса прыгает через ленивую собаку.",
)
_TOKENS = ("5900 900 9001",)
_SEQUENCES = ("ACGTTGCAACGT",)
_MOST_UNKNOWN = 0.5
_ENTRIES_SHOWN = 24
_LONGEST_PIECE = 16  # longer ones share a bar
_MOST_MEASURED = 1_000_000  # examples; of more, an evenly spaced sample
_NUM_BARS = 16
_COUNTED_SHOWN = 12


def tokenizer_sections(folder: Folder) -> list[Section]:
    """Describe a tokenizer folder, also from other libraries.

    Raises:
        TokenizerError: it cannot be loaded.
    """
    tokenizer = Tokenizer.load(folder.path)
    return [
        Facts("tokenizer", _rules(tokenizer, folder.manifest)),
        *describe("its text", folder.manifest.get("report", {})),
        *_pieces(tokenizer),
    ]


def encodings(tokenizer: Tokenizer, texts: Sequence[str] = ()) -> Grid:
    """Show how a tokenizer splits texts; by default, samples that suit its kind."""
    samples = _TOKENS if tokenizer.is_whole else _SENTENCES
    rows = []
    for text in texts or (samples if tokenizer.kmer is None else _SEQUENCES):
        ids = tokenizer.encode(text).ids.tolist()
        unknown = ids.count(tokenizer.unk_id)
        if texts or (ids and unknown <= _MOST_UNKNOWN * len(ids)):
            pieces = " ".join(tokenizer.tokens[id] for id in ids)
            rows.append([text, pieces, str(len(ids)), str(unknown)])
    return Grid("sample encodings", ["text", "pieces", "number", "[UNK]"], rows)


def _rules(tokenizer: Tokenizer, manifest: Mapping[str, Any]) -> dict[str, str]:
    kind = "whole tokens" if tokenizer.is_whole else "WordPiece"
    if tokenizer.kmer is not None:
        kind = f"{tokenizer.kmer.length}-mers with stride {tokenizer.kmer.stride}"
    named = ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id")
    control = [getattr(tokenizer, name) for name in named]
    options = manifest.get("options", {})
    rows = {
        "kind": kind,
        "entries": f"{tokenizer.vocab_size:,}",
        "control tokens": ", ".join(f"{tokenizer.tokens[id]} {id}" for id in control),
        "fingerprint": short(tokenizer.fingerprint),
    }
    for name in ("lowercase", "strip_accents"):
        if name in options:
            rows[name.replace("_", " ")] = "yes" if options[name] else "no"
    if not manifest:
        rows["made by"] = "another library, or a later stage of bertpre (there is no report)"
    return rows


def _pieces(tokenizer: Tokenizer) -> list[Section]:
    """Show typical entries; a vocabulary is roughly sorted by frequency."""
    ordinary = [tokenizer.tokens[id] for id in tokenizer.ordinary_ids]
    continuing = 0 if tokenizer.is_whole else sum(token.startswith("##") for token in ordinary)
    long = [token for token in ordinary if len(token.removeprefix("##")) > 1]
    rows = {
        "start a word": f"{len(ordinary) - continuing:,}",
        "continue a word": f"{continuing:,}",
        "frequent, of several characters": " ".join(long[:_ENTRIES_SHOWN]),
        "rare": " ".join(ordinary[-_ENTRIES_SHOWN:]),
    }
    lengths = Counter(
        len(token if tokenizer.is_whole else token.removeprefix("##")) for token in ordinary
    )
    most = min(max(lengths, default=0), _LONGEST_PIECE)
    bars = [(str(length), lengths[length]) for length in range(1, most + 1)]
    over = sum(count for length, count in lengths.items() if length > most)
    if over:
        bars.append((f"{most + 1}+", over))
    return [Facts("pieces", rows), Bars("characters per piece", bars)]


def data_sections(folder: Folder, num_examples: int) -> list[Section]:
    """Describe a data folder, with the first examples of training, decoded.

    Raises:
        DataFormatError: the folder is unfinished or damaged.
    """
    data = PretrainingData(folder.path)
    files = (path for path in folder.path.rglob("*") if path.is_file())
    made = {
        "objective": data.objective,
        "training examples": f"{len(data.records):,}",
        "held out": f"{len(data.held_out):,}",
        "max_seq_length": str(data.max_seq_length),
        "masks": "static, one set per pass" if data.static_masks else "new ones each epoch",
        "vocabulary": f"{data.tokenizer.vocab_size:,} entries",
        "tokenizer": short(data.tokenizer.fingerprint),
        "bytes on disk": f"{sum(path.stat().st_size for path in files):,}",
        "fingerprint": short(data.manifest["fingerprint"]),
    }
    return [
        Facts("data", made),
        *describe("what make-data found", data.manifest.get("report", {})),
        *describe("options", data.index_manifest.get("options", {})),
        _lengths(data),
        _frequencies(data),
        Examples(
            "examples, as {what the model sees→what it must predict}",
            [str(example) for example in decode_examples(data, num_examples)],
        ),
    ]


def _lengths(data: PretrainingData) -> Bars:
    step = -(-len(data.records) // _MOST_MEASURED)
    lengths = example_lengths(data.records[::step])
    edges = np.unique(np.linspace(0, data.max_seq_length, _NUM_BARS + 1).astype(int))
    counts, _ = np.histogram(lengths, bins=edges + 1)
    names = [f"{low + 1}-{high}" for low, high in itertools.pairwise(edges)]
    bars = list(zip(names, counts.tolist(), strict=True))
    return Bars("tokens per example" + (f" (every {step:,}th)" if step > 1 else ""), bars)


def _frequencies(data: PretrainingData) -> Grid:
    ids = data.tokenizer.ordinary_ids
    counts = data.unigrams[ids]
    order = np.argsort(-counts, kind="stable")
    seen = order[counts[order] > 0]
    rows = []
    for name, chosen in (
        ("most frequent", seen[:_COUNTED_SHOWN]),
        ("median", seen[len(seen) // 2 :][:_COUNTED_SHOWN]),
        ("rarest", seen[-_COUNTED_SHOWN:]),
    ):
        pieces = [f"{data.tokenizer.tokens[ids[i]]} ({counts[i]:,})" for i in chosen]
        rows.append([name, "  ".join(pieces)])
    never = f"{len(order) - len(seen):,} of {len(order):,} entries"
    rows.append(["never in the training text", never])
    return Grid("pieces in the training text", ["", "pieces and their counts"], rows)
