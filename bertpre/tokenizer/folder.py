"""Tokenizer folders on disk, checked as they load: ours and those of the transformers library."""

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
    foreign_normalizer,
    make_backend,
    make_foreign_backend,
)

log = logging.getLogger(__name__)

VOCAB, BACKEND, SETTINGS = "vocab.txt", "tokenizer.json", "tokenizer_config.json"
TOKENIZER_FILES = (VOCAB, BACKEND, SETTINGS)

_KMER = "kmer"
_MODEL_MAX_LENGTH = 512  # what the transformers library cuts text to; as in BERT


class SpecialTokens(NamedTuple):
    """The five control tokens by their text."""

    pad: str
    unk: str
    cls: str
    sep: str
    mask: str


class TokenizerFolder(NamedTuple):
    """What a folder holds."""

    backend: tokenizers.Tokenizer
    special: SpecialTokens
    kmer: Kmer | None  # how sequences are cut, if they are
    files: tuple[Path, ...]


def write_tokenizer_folder(folder: Path, tokens: Sequence[str], rules: Rules) -> None:
    """Write a finished vocabulary as files that `read_tokenizer_folder` and AutoTokenizer load."""
    text = "".join(f"{token}\n" for token in tokens)
    (folder / VOCAB).write_text(text, encoding="utf-8", newline="\n")
    # Not its own save(), whose exception when the disk is full is of no kind.
    (folder / BACKEND).write_text(make_backend(tokens, rules).to_str(pretty=True), encoding="utf-8")
    # tokenizer.json has no place for k-mers that overlap, so every later stage reads this.
    kmer = {} if rules.kmer is None else {_KMER: rules.kmer._asdict()}
    write_json(
        folder / SETTINGS,
        {
            **kmer,
            # Under the name BertTokenizer, transformers would ignore tokenizer.json.
            "tokenizer_class": "PreTrainedTokenizerFast",
            # Without these, pairs would silently lose their segments.
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            "model_max_length": _MODEL_MAX_LENGTH,
            # Only for a class named outright, such as BertTokenizer; tokenizer.json has them too.
            "do_lower_case": rules.lowercase,
            "strip_accents": rules.strip_accents,
            **{
                f"{name}_token": token
                for name, token in zip(SpecialTokens._fields, SPECIAL_TOKENS, strict=True)
            },
        },
    )


def read_tokenizer_folder(folder: Path) -> TokenizerFolder:
    """Load the tokenizer of a folder; see `Tokenizer.load`.

    tokenizer.json decides where there is one. Under the class name BertTokenizer, the settings in
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
    special = _special_tokens(settings)
    if folder / BACKEND in files:
        backend = _read_backend(folder / BACKEND)
        if str(settings.get("tokenizer_class", "")).startswith("BertTokenizer"):
            backend.normalizer = foreign_normalizer(settings)
        if folder / VOCAB in files:
            _compare(folder, backend, read_vocab(folder / VOCAB, special))
    elif folder / VOCAB in files:
        tokens = read_vocab(folder / VOCAB, special)
        if "do_lower_case" not in settings:
            log.warning(
                "%s: %s does not state do_lower_case; text is lowercased and accents are stripped, "
                "as the transformers library does",
                folder,
                SETTINGS,
            )
        backend = make_foreign_backend(tokens, settings, unk_token=special.unk)
    else:
        raise TokenizerError(
            f"{folder}: expected a tokenizer folder, found neither {BACKEND} nor {VOCAB}",
            "make one with `bertpre build-vocab`",
        )
    vocab = backend.get_vocab(with_added_tokens=True)
    missing = [token for token in special if token not in vocab]
    if missing:
        raise TokenizerError(
            f"{folder}: the vocabulary of {len(vocab):,} entries lacks {', '.join(missing)}"
        )
    if sorted(vocab.values()) != list(range(len(vocab))):
        raise TokenizerError(
            f"{folder / BACKEND}: the ids of {len(vocab):,} entries are not 0 to {len(vocab) - 1:,}"
        )
    _check_size(folder, len(vocab))
    return TokenizerFolder(backend, special, _read_kmer(folder, settings, backend), files)


def state_longest_input(folder: Path, longest: int, *, is_trained_here: bool) -> None:
    """Let the transformers library cut texts to what the model beside a tokenizer has seen.

    Args:
        folder: holds both.
        longest: tokens of the model's longest input.
        is_trained_here: of another model, what its folder states is kept if it is less.
    """
    settings = _read_json(folder / SETTINGS) if (folder / SETTINGS).is_file() else {}
    if not is_trained_here:
        longest = min(int(settings.get("model_max_length") or longest), longest)
    write_json(folder / SETTINGS, {**settings, "model_max_length": longest})


def read_vocab(path: Path, special: Sequence[str] = SPECIAL_TOKENS) -> list[str]:
    """Read a vocab.txt, one entry a line, the first with id 0.

    Args:
        path: the file; lines may end with CR LF.
        special: entries that must be there.

    Raises:
        TokenizerError: names the line that is blank, a duplicate, or no entry at all.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise TokenizerError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise TokenizerError(
            f"{path}: line {line}: expected UTF-8, found byte 0x{error.object[error.start]:02X}"
        ) from error
    if text.startswith("\ufeff"):
        raise TokenizerError(
            f"{path}: line 1: starts with a byte order mark, which would become part of the entry",
            "save it as UTF-8 without one",
        )
    tokens = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    if tokens[0].startswith("{") and tokens[0] != "{":
        raise TokenizerError(
            f"{path}: line 1: expected one entry a line, found JSON: {tokens[0][:40]!r}",
            f"a tokenizer in JSON belongs in {BACKEND}",
        )
    first_line: dict[str, int] = {}
    for number, token in enumerate(tokens, start=1):
        if not token.strip(" \t"):
            raise TokenizerError(f"{path}: line {number}: blank; expected one entry a line")
        if token in first_line:
            raise TokenizerError(
                f"{path}: line {number}: {token!r} is there already, in line {first_line[token]}"
            )
        first_line[token] = number
    missing = [token for token in special if token not in first_line]
    if missing:
        raise TokenizerError(
            f"{path}: lacks {', '.join(missing)} among its {len(tokens):,} lines",
            "add each as a line of its own",
        )
    return tokens


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TokenizerError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def _special_tokens(settings: Mapping[str, Any]) -> SpecialTokens:
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
            "make it again with `bertpre build-vocab --token-mode kmer:K`",
        ) from error
    if not isinstance(backend.model, tokenizers.models.WordLevel):
        raise TokenizerError(
            f"{folder}: {SETTINGS} says that text is cut to k-mers, but {BACKEND} holds no "
            "vocabulary of whole tokens",
            "the two files must be of the same tokenizer",
        )
    return kmer


def _read_backend(path: Path) -> tokenizers.Tokenizer:
    model = _read_json(path).get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    if kind not in ("WordPiece", "WordLevel"):
        raise TokenizerError(
            f"{path}: expected a tokenizer of the BERT kind (WordPiece or WordLevel), "
            f"found {kind or 'no model'}"
        )
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise TokenizerError(f"{path}: the tokenizers library refuses it ({error})") from error


def _check_size(folder: Path, rows: int) -> None:
    manifest = _read_json(folder / MANIFEST) if (folder / MANIFEST).is_file() else {}
    if manifest.get("kind") == "tokenizer" and manifest["vocab_size"] != rows:
        raise TokenizerError(
            f"{folder}: {rows:,} entries, but {MANIFEST} says {manifest['vocab_size']:,}",
            "make it again with `bertpre build-vocab`",
        )


def _compare(folder: Path, backend: tokenizers.Tokenizer, tokens: Sequence[str]) -> None:
    vocab = backend.get_vocab(with_added_tokens=True)
    by_id = {id: token for token, id in vocab.items()}
    for id, token in enumerate(tokens):
        if by_id.get(id) != token:
            raise TokenizerError(
                f"{folder / VOCAB}: line {id + 1}: found {token!r}, but {BACKEND} has "
                f"{by_id.get(id)!r} for this id",
                "the two files must be of the same tokenizer",
            )
