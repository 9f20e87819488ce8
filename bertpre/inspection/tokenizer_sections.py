"""A tokenizer folder described: rules, fit to its text, pieces, and how it cuts some text."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertpre.artefacts import MANIFEST, read_manifest
from bertpre.inspection.sections import Bars, Grid, Section
from bertpre.interop.facts import Facts, describe, short
from bertpre.tokenizer.tokenizer import Tokenizer

# Shown unless texts are given; those that the vocabulary was evidently not made for are left out.
_SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "敏捷的棕色狐狸跳过懒狗。",
    "Быстрая лиса прыгает через ленивую собаку.",
)
_TOKENS = ("5900 900 9001",)
_SEQUENCES = ("ACGTTGCAACGT",)
_PIECES_SHOWN = 24
_MOST_UNKNOWN = 0.5


def tokenizer_sections(folder: Path, texts: Sequence[str] = ()) -> list[Section]:
    """Describe a tokenizer folder of ours, or of other libraries.

    Args:
        folder: holds a tokenizer.
        texts: to show the pieces of; without any, samples in some languages.

    Raises:
        TokenizerError: it cannot be loaded.
    """
    tokenizer = Tokenizer.load(folder)
    manifest: dict[str, Any] = {}
    if (folder / MANIFEST).is_file():
        manifest = read_manifest(folder, "tokenizer")
    sections: list[Section] = [Facts("tokenizer", _rules(tokenizer, manifest))]
    sections += describe("its text", manifest.get("report", {}))
    return [*sections, *_pieces(tokenizer), encodings(tokenizer, texts)]


def encodings(tokenizer: Tokenizer, texts: Sequence[str] = ()) -> Grid:
    """Show how a tokenizer cuts texts."""
    rows = []
    samples = _TOKENS if tokenizer.is_whole else _SENTENCES
    for text in texts or (samples if tokenizer.kmer is None else _SEQUENCES):
        ids = tokenizer.encode(text).ids.tolist()
        unknown = ids.count(tokenizer.unk_id)
        if texts or (ids and unknown <= _MOST_UNKNOWN * len(ids)):
            pieces = " ".join(tokenizer.tokens[id] for id in ids)
            rows.append([text, pieces, str(len(ids)), str(unknown)])
    return Grid("sample encodings", ["text", "pieces", "number", "[UNK]"], rows)


def _rules(tokenizer: Tokenizer, manifest: dict[str, Any]) -> dict[str, str]:
    kind = "whole tokens" if tokenizer.is_whole else "WordPiece"
    if tokenizer.kmer is not None:
        kind = f"k-mers of {tokenizer.kmer.length}, one at every {tokenizer.kmer.stride}"
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
        rows["made by"] = "another library, or a later stage of bertpre: it has no report"
    return rows


def _pieces(tokenizer: Tokenizer) -> list[Section]:
    """Show what the entries are like. A vocabulary is in order of frequency, more or less."""
    ordinary = [tokenizer.tokens[id] for id in tokenizer.ordinary_ids]
    continuing = 0 if tokenizer.is_whole else sum(token.startswith("##") for token in ordinary)
    long = [token for token in ordinary if len(token.removeprefix("##")) > 1]
    rows = {
        "start a word": f"{len(ordinary) - continuing:,}",
        "continue one": f"{continuing:,}",
        "frequent, of several characters": " ".join(long[:_PIECES_SHOWN]),
        "rare": " ".join(ordinary[-_PIECES_SHOWN:]),
    }
    lengths = Counter(
        len(token if tokenizer.is_whole else token.removeprefix("##")) for token in ordinary
    )
    most = min(max(lengths, default=0), 16)
    bars = [(str(length), lengths[length]) for length in range(1, most + 1)]
    over = sum(count for length, count in lengths.items() if length > most)
    if over:
        bars.append((f"{most + 1}+", over))
    return [Facts("pieces", rows), Bars("characters of a piece", bars)]
