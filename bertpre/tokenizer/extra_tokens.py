"""Extra tokens from a file: words to keep whole whatever their frequency."""

import re
from pathlib import Path
from typing import NamedTuple

from bertpre.errors import TokenizerError
from bertpre.tokenizer.folder import read_utf8
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
    """Words that enter the vocabulary whatever their frequency.

    Attributes:
        tokens: all words in order, normalised (lowercased and so on).
        kept_whole: those that would be split, or that occur in text without spaces: the tokenizer
            must find them before it splits the text.
    """

    tokens: tuple[str, ...] = ()
    kept_whole: tuple[str, ...] = ()


def read_extra_tokens(path: Path, rules: Rules) -> ExtraTokens:
    """Read words to keep whole, one per line.

    Args:
        path: a UTF-8 file.
        rules: how the tokenizer processes text.

    Raises:
        TokenizerError: a line is blank, a duplicate, a special token, too long or not a word.
    """
    if rules.kmer is not None:
        raise TokenizerError(
            f"{path}: extra tokens cannot be kept whole if sequences are cut to k-mers",
            "omit --extra-tokens, or use another --token-mode",
        )
    normalizer, pre_tokenizer = make_normalizer(rules), make_pre_tokenizer(rules)
    first_line: dict[str, int] = {}
    kept_whole = []
    text = read_utf8(path).removeprefix("\ufeff")
    if not text:
        raise TokenizerError(f"{path}: empty; expected one word per line")
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        word = line.removesuffix("\r")
        # Normalising inserts spaces around Han characters.
        normalized = normalizer.normalize_str(word)
        token = "".join(normalized.split())
        problem = _find_problem(word, token, whole=rules.whole)
        if problem is None and token in first_line:
            same = "" if token == word else f" (as {token!r})"
            problem = f"repeats line {first_line[token]}{same}"
        if problem is not None:
            raise TokenizerError(f"{path}: line {number}: {word[:50]!r} {problem}")
        first_line[token] = number
        pieces = [piece for piece, _ in pre_tokenizer.pre_tokenize_str(normalized)]
        if not rules.whole and (pieces != [token] or UNSPACED.search(token)):
            kept_whole.append(token)
    return ExtraTokens(tuple(first_line), tuple(kept_whole))


def _find_problem(word: str, token: str, *, whole: bool) -> str | None:
    if not word.strip():
        return "is blank; expected one word per line"
    if re.search(r"\s", word):
        return "contains white space; expected one word per line"
    if word in SPECIAL_TOKENS:
        return "is a special token, which every vocabulary has"
    if not token:
        return "only has characters that normalising removes"
    if len(token) > LONGEST_WORD:
        return f"has {len(token):,} characters; expected at most {LONGEST_WORD}"
    if token.startswith(CONTINUATION) and not whole:
        return f"starts with {CONTINUATION}, which marks the inside of a word"
    return None
