"""Write and load tokenizer folders, ours and those of the transformers library."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers

from bertpre.artefacts import MANIFEST, write_json
from bertpre.config.fields import Kmer, parse_kmer
from bertpre.errors import TokenizerError
from bertpre.tokenizer.normalizing import (
    SPECIAL_TOKENS,
    Rules,
    make_backend,
    make_bert_backend,
    make_bert_normalizer,
)

log = logging.getLogger(__name__)

VOCAB, BACKEND, SETTINGS = "vocab.txt", "tokenizer.json", "tokenizer_config.json"
TOKENIZER_FILES = (VOCAB, BACKEND, SETTINGS)

_KMER = "kmer"
_KINDS = ("WordPiece", "WordLevel")
_MODEL_MAX_LENGTH = 512  # the transformers library truncates to this length; as in BERT


class SpecialTokens(NamedTuple):
    """The five special tokens."""

    pad: str
    unk: str
    cls: str
    sep: str
    mask: str


class TokenizerFolder(NamedTuple):
    """The contents of a tokenizer folder."""

    backend: tokenizers.Tokenizer
    tokens: tuple[str, ...]  # by id
    special: SpecialTokens
    kmer: Kmer | None  # how to cut sequences, if at all
    files: tuple[Path, ...]


def write_tokenizer_folder(folder: Path, tokens: Sequence[str], rules: Rules) -> None:
    """Write a vocabulary as files that `read_tokenizer_folder` and AutoTokenizer can load."""
    text = "".join(f"{token}\n" for token in tokens)
    (folder / VOCAB).write_text(text, encoding="utf-8", newline="\n")
    # save() of the library raises a bare Exception if the disk is full.
    (folder / BACKEND).write_text(make_backend(tokens, rules).to_str(pretty=True), encoding="utf-8")
    # tokenizer.json cannot express overlapping k-mers, so later stages read this.
    kmer = {} if rules.kmer is None else {_KMER: rules.kmer._asdict()}
    write_json(
        folder / SETTINGS,
        {
            **kmer,
            # With BertTokenizer, transformers would ignore tokenizer.json.
            "tokenizer_class": "PreTrainedTokenizerFast",
            # Otherwise pairs would silently lose their segments.
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            "model_max_length": _MODEL_MAX_LENGTH,
            # For users who load it with a class such as BertTokenizer; also in tokenizer.json.
            "do_lower_case": rules.lowercase,
            "strip_accents": rules.strip_accents,
            **{
                f"{name}_token": token
                for name, token in zip(SpecialTokens._fields, SPECIAL_TOKENS, strict=True)
            },
        },
    )


def read_tokenizer_folder(folder: Path) -> TokenizerFolder:
    """Load a tokenizer folder; see `Tokenizer.load`.

    tokenizer.json takes precedence over vocab.txt. For the class BertTokenizer, the settings in
    tokenizer_config.json override its normalizer, as in the transformers library.

    Raises:
        TokenizerError: see `Tokenizer.load`.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "there is no such folder"
        raise TokenizerError(
            f"{folder}: {what}; expected a tokenizer folder",
            "make one with `bertpre build-vocab`",
        )
    files = tuple(folder / name for name in TOKENIZER_FILES if (folder / name).is_file())
    settings = _read_json(folder / SETTINGS) if folder / SETTINGS in files else {}
    special = _read_special_tokens(settings)
    if folder / BACKEND in files:
        backend = _read_backend(folder / BACKEND)
        if str(settings.get("tokenizer_class", "")).startswith("BertTokenizer"):
            backend.normalizer = make_bert_normalizer(settings)
    elif folder / VOCAB in files:
        tokens = read_vocab(folder / VOCAB, special)
        if "do_lower_case" not in settings:
            log.warning(
                "%s: no do_lower_case in %s; text is lowercased and accents are stripped, as the "
                "transformers library does",
                folder,
                SETTINGS,
            )
        backend = make_bert_backend(tokens, settings, unk_token=special.unk)
    else:
        raise TokenizerError(
            f"{folder}: expected a tokenizer folder, but it has neither {BACKEND} nor {VOCAB}",
            "make one with `bertpre build-vocab`",
        )
    vocab = backend.get_vocab(with_added_tokens=True)
    if folder / BACKEND in files and folder / VOCAB in files:
        _check_same_entries(folder, vocab, read_vocab(folder / VOCAB, special))
    missing = [token for token in special if token not in vocab]
    if missing:
        raise TokenizerError(
            f"{folder}: {', '.join(missing)} missing in the vocabulary of {len(vocab):,} entries"
        )
    by_id = tuple(sorted(vocab, key=vocab.__getitem__))
    if any(vocab[token] != id for id, token in enumerate(by_id)):
        raise TokenizerError(
            f"{folder / BACKEND}: expected ids from 0 to {len(vocab) - 1:,} for the {len(vocab):,} "
            "entries, found others"
        )
    _check_size(folder, len(vocab))
    kmer = _read_kmer(folder, settings, backend)
    return TokenizerFolder(backend, by_id, special, kmer, files)


def state_longest_input(folder: Path, longest: int, *, is_trained_here: bool) -> None:
    """Set the length to which the transformers library truncates texts for a model.

    Args:
        folder: the folder of model and tokenizer.
        longest: the maximum tokens in the model's input.
        is_trained_here: if not, a smaller length in the folder is kept.
    """
    settings = _read_json(folder / SETTINGS) if (folder / SETTINGS).is_file() else {}
    if not is_trained_here:
        longest = min(int(settings.get("model_max_length") or longest), longest)
    write_json(folder / SETTINGS, {**settings, "model_max_length": longest})


def read_vocab(path: Path, special: Sequence[str] = SPECIAL_TOKENS) -> list[str]:
    """Read a vocab.txt with one entry per line, the first with id 0.

    Args:
        path: the file; lines may end with CR LF.
        special: required entries.

    Raises:
        TokenizerError: a line is blank, a duplicate or not an entry, or a special token is missing.
    """
    text = read_utf8(path)
    if text.startswith("\ufeff"):
        raise TokenizerError(
            f"{path}: line 1: found a byte order mark, which would become part of the entry",
            "save the file as UTF-8 without it",
        )
    tokens = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    if tokens[0].startswith("{") and tokens[0] != "{":
        raise TokenizerError(
            f"{path}: line 1: expected one entry per line, found JSON: {tokens[0][:40]!r}",
            f"name a JSON tokenizer {BACKEND}",
        )
    first_line: dict[str, int] = {}
    for number, token in enumerate(tokens, start=1):
        if not token.strip(" \t"):
            raise TokenizerError(f"{path}: line {number}: blank; expected one entry per line")
        if token in first_line:
            raise TokenizerError(
                f"{path}: line {number}: {token!r} repeats line {first_line[token]}"
            )
        first_line[token] = number
    missing = [token for token in special if token not in first_line]
    if missing:
        raise TokenizerError(
            f"{path}: {', '.join(missing)} missing among its {len(tokens):,} lines",
            "add each on its own line",
        )
    return tokens


def read_utf8(path: Path) -> str:
    """Read a small text file.

    Raises:
        TokenizerError: the file cannot be read, or a line is not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise TokenizerError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise TokenizerError(
            f"{path}: line {line}: expected UTF-8, found byte 0x{error.object[error.start]:02X}"
        ) from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TokenizerError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def _read_special_tokens(settings: Mapping[str, Any]) -> SpecialTokens:
    names = []
    for name, default in zip(SpecialTokens._fields, SPECIAL_TOKENS, strict=True):
        token = settings.get(f"{name}_token") or default
        names.append(token["content"] if isinstance(token, dict) else str(token))
    return SpecialTokens(*names)


def _read_kmer(
    folder: Path, settings: Mapping[str, Any], backend: tokenizers.Tokenizer
) -> Kmer | None:
    stored = settings.get(_KMER)
    if stored is None:
        return None
    try:
        kmer = parse_kmer(f"kmer:{stored['length']}:{stored['stride']}")
    except (KeyError, TypeError, ValueError) as error:
        raise TokenizerError(
            f"{folder / SETTINGS}: kmer: expected a length and a stride, found {stored!r}",
            "recreate it with `bertpre build-vocab --token-mode kmer:K`",
        ) from error
    if not isinstance(backend.model, tokenizers.models.WordLevel):
        raise TokenizerError(
            f"{folder}: {SETTINGS} is for k-mers, but {BACKEND} has no vocabulary of whole tokens",
            "take both files from the same tokenizer",
        )
    return kmer


def _read_backend(path: Path) -> tokenizers.Tokenizer:
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
        kind: object = type(backend.model).__name__
    except Exception as error:  # the library raises nothing narrower
        model = _read_json(path).get("model")
        kind = model.get("type") if isinstance(model, dict) else None
        if kind in _KINDS:
            message = f"{path}: rejected by the tokenizers library ({error})"
            raise TokenizerError(message) from error
    if kind not in _KINDS:
        raise TokenizerError(
            f"{path}: expected a BERT tokenizer (WordPiece or WordLevel), "
            f"found {kind or 'no model'}"
        )
    return backend


def _check_size(folder: Path, rows: int) -> None:
    manifest = _read_json(folder / MANIFEST) if (folder / MANIFEST).is_file() else {}
    if manifest.get("kind") == "tokenizer" and manifest["vocab_size"] != rows:
        raise TokenizerError(
            f"{folder}: found {rows:,} entries, but {MANIFEST} says {manifest['vocab_size']:,}",
            "recreate it with `bertpre build-vocab`",
        )


def _check_same_entries(folder: Path, vocab: Mapping[str, int], tokens: Sequence[str]) -> None:
    by_id = {id: token for token, id in vocab.items()}
    for id, token in enumerate(tokens):
        if by_id.get(id) != token:
            raise TokenizerError(
                f"{folder / VOCAB}: line {id + 1}: found {token!r}, but {BACKEND} has "
                f"{by_id.get(id)!r} for this id",
                "take both files from the same tokenizer",
            )
