import sys

import pytest
from sacrebleu.metrics.bleu import BLEU

from bertpre.errors import ConfigError
from bertpre.finetuning.cider import cider_d
from bertpre.finetuning.text_scores import check_sacrebleu, choose_tokens, rouge_l, score_texts

PROSE = ["The cat sat, and then it ran.", "It's 5.7 metres high!", "A dog. A cat."]
CHINESE = ["双肺纹理稍增多，左肺下叶见结节影。", "皇后便自作主张传令给李继岌，要他杀郭崇韬。"]


@pytest.mark.parametrize(
    ("texts", "rule"),
    [
        (PROSE, "13a"),
        (CHINESE, "zh"),
        (["14 30 31 55 86 57", "35 12 74 10"], "none"),
        (["T EH1 K S T", "K AH0 N"], "none"),
        (["I_TURN_RIGHT I_JUMP", "I_WALK I_LOOK"], "none"),
        (["the cat sat , and then it ran ."], "none"),
        (["กรุงเทพมหานครเป็นเมืองหลวง", "ภาษาไทย"], "char"),
        (["昨日は本を読みました。とても面白かった。"], "char"),
        (['He said "hola".', "(So it is.)", "x"], "13a"),
        (["यह एक किताब है, और वह घर है।", "वह जाता है।"], "intl"),
        (["هل هذا كتاب؟", "نعم، هذا كتاب"], "intl"),
    ],
)
def test_scores_split_texts_by_their_kind(texts: list[str], rule: str) -> None:
    assert choose_tokens(texts) == rule


@pytest.mark.parametrize(
    ("texts", "rule"), [(PROSE, "13a"), (CHINESE, "zh"), (["1 2 3 4 5", "7 8 9 1 2"], "none")]
)
def test_bleu_equals_sacrebleu_with_the_tokenizer_of_that_kind(texts: list[str], rule: str) -> None:
    found = [text[: 2 * len(text) // 3] for text in texts]
    scores = score_texts(found, texts, tokens=choose_tokens(texts))
    assert scores["bleu"] == BLEU(tokenize=rule).corpus_score(found, [texts]).score
    assert score_texts(texts, texts, tokens=choose_tokens(texts)) == pytest.approx(
        {"bleu": 100.0, "chrf": 100.0, "rouge_l": 1.0, "cider_d": 10.0, "exact_match": 1.0}
    )


def test_rouge_l_is_the_f1_of_the_longest_common_subsequence() -> None:
    # Common: a c d; precision 3 / 4, recall 3 / 5.
    assert rouge_l(["a", "x", "c", "d"], ["a", "b", "c", "d", "e"]) == pytest.approx(2 / 3)
    assert rouge_l(["a", "b"], ["b", "a"]) == 0.5
    assert rouge_l(["a"], ["b"]) == 0.0
    assert rouge_l([], ["b"]) == 0.0
    assert rouge_l([], []) == 1.0
    long = [str(number) for number in range(100)]
    assert rouge_l(long, long[::2]) == pytest.approx(100 / 150)


def test_exact_match_ignores_runs_of_white_space_alone() -> None:
    scores = score_texts(["a  b ", "A b", "a b c"], ["a b", "a b", "a b"], tokens="none")
    assert scores["exact_match"] == pytest.approx(1 / 3)


def test_empty_texts_score_nothing() -> None:
    scores = score_texts(["", ""], ["a b c", "d"], tokens="none")
    assert set(scores.values()) == {0.0}


# Computed with the public implementation, pycocoevalcap 1.2.
CIDER_ROWS = [
    ("the cat sat on the mat", "the cat sat on a mat"),
    ("a dog", "a dog ran"),
    ("双 肺 纹 理 增 多", "双 肺 纹 理 稍 增 多"),
    ("14 30 31 55 86", "14 30 31 55 86 57 54"),
    ("", "a b c d"),
    ("x", "x"),
    ("the the the the", "the cat"),
]


@pytest.mark.parametrize(
    ("sigma", "expected"), [(6.0, 3.6258424525375808), (15.0, 3.695284220421435)]
)
def test_cider_d_equals_the_public_implementation(sigma: float, expected: float) -> None:
    found, true = ([row[side].split() for row in CIDER_ROWS] for side in (0, 1))
    assert cider_d(found, true, sigma=sigma) == pytest.approx(expected, rel=1e-9)


def test_a_missing_sacrebleu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(ConfigError, match=r"sacrebleu.*pip install 'bertpre\[generation\]'"):
        check_sacrebleu()
