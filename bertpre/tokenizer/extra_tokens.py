"""Entries that a user brings: words to keep whole, and what a ready vocabulary lacks."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bertpre.errors import TokenizerError
from bertpre.tokenizer.normalizing import (
    CONTINUATION,
    LONGEST_WORD,
    SPECIAL_TOKENS,
    UNSPACED,
    Rules,
    make_normalizer,
    make_pre_tokenizer,
)


class ExtraTokens(NamedTuple):
    """Words that are entries whatever their frequency.

    Attributes:
        entries: all of them as the tokenizer sees them (lowercased and so on), in their order.
        kept_whole: those that would be cut, at punctuation or between Han characters, or that
            stand in text without spaces: the tokenizer must look for them before it cuts.
    """

    entries: tuple[str, ...] = ()
    kept_whole: tuple[str, ...] = ()


def read_extra_tokens(path: Path, rules: Rules) -> ExtraTokens:
    """Read words to keep whole, one a line.

    Args:
        path: a UTF-8 file.
        rules: how the tokenizer treats text.

    Raises:
        TokenizerError: names the line that is blank, a duplicate, special, too long or no word.
    """
    if rules.kmer is not None:
        raise TokenizerError(
            f"{path}: extra tokens cannot be kept whole where sequences are cut to k-mers",
            "leave out --extra-tokens, or use another --token-mode",
        )
    normalizer, pre_tokenizer = make_normalizer(rules), make_pre_tokenizer(rules)
    first_line: dict[str, int] = {}
    kept_whole = []
    for number, word in _lines(path):
        # Normalising puts spaces around Han characters.
        normalized = normalizer.normalize_str(word)
        entry = "".join(normalized.split())
        problem = _problem(word, entry, whole=rules.whole)
        if problem is None and entry in first_line:
            same = "" if entry == word else f" (as {entry!r})"
            problem = f"is there already{same}, in line {first_line[entry]}"
        if problem is not None:
            raise TokenizerError(f"{path}: line {number}: {word[:50]!r} {problem}")
        first_line[entry] = number
        pieces = [piece for piece, _ in pre_tokenizer.pre_tokenize_str(normalized)]
        if not rules.whole and (pieces != [entry] or UNSPACED.search(entry)):
            kept_whole.append(entry)
    if not first_line:
        raise TokenizerError(f"{path}: empty; expected words, one a line")
    return ExtraTokens(tuple(first_line), tuple(kept_whole))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise TokenizerError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise TokenizerError(
            f"{path}: line {line}: expected UTF-8, found byte 0x{error.object[error.start]:02X}"
        ) from error
    if not text:
        return
    for number, word in enumerate(text.removesuffix("\n").split("\n"), start=1):
        yield number, word.removesuffix("\r")


def _problem(word: str, entry: str, *, whole: bool) -> str | None:
    if not word.strip():
        return "is blank; expected one word a line"
    if re.search(r"\s", word):
        return "holds white space; expected one word a line"
    if word in SPECIAL_TOKENS:
        return "is a special token, which every vocabulary has"
    if not entry:
        return "is nothing but characters that normalising removes"
    if len(entry) > LONGEST_WORD:
        return f"has {len(entry):,} characters; expected {LONGEST_WORD} at most"
    if entry.startswith(CONTINUATION) and not whole:
        return f"starts with {CONTINUATION}, which marks the inside of a word"
    return None
