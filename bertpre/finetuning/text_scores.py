"""Scores of written texts: BLEU, chrF, ROUGE-L, CIDEr-D, exact match.

sacrebleu is imported where it is called: it is an extra.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal

from bertpre.errors import ConfigError
from bertpre.finetuning.baselines import has_no_spaces
from bertpre.finetuning.cider import cider_d

TokenRule = Literal["13a", "intl", "zh", "char", "none"]
"""How a text is split for scores, as sacrebleu calls it."""

_SAMPLE_ROWS = 1000
_HAN = re.compile("[\u3400-\u9fff\U00020000-\U0003ffff]")
_KANA = re.compile("[\u3040-\u30ff]")
_MANY_HAN, _MANY_KANA = 0.3, 0.05  # of the characters
_FEW_TEXTS = 0.02


def check_sacrebleu() -> None:
    """Check that sacrebleu is there.

    Raises:
        ConfigError: it is not.
    """
    try:
        import sacrebleu
    except ImportError as error:
        raise ConfigError(
            "task generation: the package sacrebleu, which scores texts, is not installed",
            "pip install 'bertpre[generation]'",
        ) from error
    del sacrebleu


def choose_tokens(references: Sequence[str]) -> TokenRule:
    """Choose how scores split texts like these.

    Returns:
        "zh" for Chinese, "char" for other scripts without spaces, "13a" for prose, "intl" if its
        marks are not those of ASCII, and "none" for tokens that spaces already separate, such as
        anonymized ones.
    """
    sample = references[:_SAMPLE_ROWS]
    joined = "".join("".join(text.split()) for text in sample)
    if len(_KANA.findall(joined)) > _MANY_KANA * len(joined):
        return "char"
    if len(_HAN.findall(joined)) > _MANY_HAN * len(joined):
        return "zh"
    if has_no_spaces(sample) and not joined.isascii():
        return "char"
    marks = [mark for text in sample if (mark := _mark_of_a_sentence(text))]
    if len(marks) <= _FEW_TEXTS * len(sample):
        return "none"
    return "13a" if 2 * sum(map(str.isascii, marks)) > len(marks) else "intl"


def _mark_of_a_sentence(text: str) -> str:
    """Return the first mark at the end of a word that starts with a letter; "" if none.

    Words with their marks show prose; between separated tokens there are none.
    """
    for word in text.split():
        if word[:1].isalpha():
            bare = word.rstrip("\"'’”»)]}")
            if unicodedata.category(bare[-1]) == "Po" and bare[-1] not in "'’":
                return bare[-1]
    return ""


def score_texts(
    found: Sequence[str],
    references: Sequence[str],
    *,
    tokens: TokenRule,
    cider_sigma: float = 6.0,
) -> dict[str, float]:
    """Score texts against one reference each.

    Args:
        found: the texts.
        references: the true ones.
        tokens: how BLEU, ROUGE-L and CIDEr-D split them.
        cider_sigma: see `bertpre.finetuning.cider.cider_d`.

    Returns:
        "bleu" and "chrf", 0 to 100; "rouge_l", 0 to 1; "cider_d", 0 to 10; "exact_match", the share
        of rows that are equal but for runs of white space.

    Source: Papineni et al. 2002; Popović 2015; Lin 2004 (the F1 of ROUGE-L); Vedantam et al. 2015;
        Post 2018, "A call for clarity in reporting BLEU scores", for sacrebleu.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    # Trained texts are split already, so no warning about that.
    bleu = BLEU(tokenize=tokens, force=True)
    chrf = CHRF()
    split = [[bleu.tokenizer(text).split() for text in texts] for texts in (found, references)]
    pairs = list(zip(*split, strict=True))
    same = sum(text.split() == true.split() for text, true in zip(found, references, strict=True))
    return {
        "bleu": float(bleu.corpus_score(list(found), [list(references)]).score),
        "chrf": float(chrf.corpus_score(list(found), [list(references)]).score),
        "rouge_l": sum(rouge_l(*pair) for pair in pairs) / len(pairs),
        "cider_d": cider_d(*split, sigma=cider_sigma),
        "exact_match": same / len(pairs),
    }


def rouge_l(found: Sequence[str], reference: Sequence[str]) -> float:
    """Return the F1 of the longest common subsequence of two token sequences; 1 if both are empty.

    Source: Lin 2004, "ROUGE: a package for automatic evaluation of summaries", section 3.1.
    """
    if not found or not reference:
        return float(not found and not reference)
    return 2 * _longest_common(found, reference) / (len(found) + len(reference))


def _longest_common(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence.

    Source: Hyyrö 2004, "Bit-parallel LCS-length computation revisited", section 3.
    """
    places: dict[str, int] = {}
    for place, token in enumerate(first):
        places[token] = places.get(token, 0) | 1 << place
    everywhere = (1 << len(first)) - 1
    row = everywhere
    for token in second:
        shared = row & places.get(token, 0)
        row = ((row + shared) | (row - shared)) & everywhere
    return len(first) - row.bit_count()
