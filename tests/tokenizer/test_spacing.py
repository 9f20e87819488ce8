import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertpre.config.schema import BuildVocab
from bertpre.tokenizer.spacing import Spacing, round_trip_share, to_text
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.tokenizer.vocabulary import build_vocab

ENGLISH = [
    'He said "hello, world" (twice) and left.',
    "It's 5.7 metres; well-known, isn't it?",
    "The U.S. team won: 3-1!",
    "On May 4, 1997, some 1,000 came at 9:30.",
]
CHINESE = ["皇后便自作主张,传令给李继岌。", "他在2019年买了iPhone手机。", "“好!”他说。"]
GERMAN = ["Er sagte: „Ja“, und ging (sofort).", "Der 3. Mai; 10 % mehr."]
KOREAN = ["나는 학교에 갔다. 그는 안 갔다!"]
JAPANESE = ["東京タワーに行った。", "カタ カナ（テスト）dpkgの使い方。"]
THAI = ["ฉันไปโรงเรียน แล้วก็กลับ", "น้ำ 5 ขวด (ใหญ่)"]
HINDI = ["यह एक किताब है, और वह घर है।"]


def tokenizer_of(folder: Path, texts: list[str], **options: object) -> Tokenizer:
    source = folder / "text.txt"
    source.write_text("\n".join(texts * 3) + "\n", encoding="utf-8")
    config = BuildVocab(vocab_size=1000, min_frequency=1, **options)  # type: ignore[arg-type]
    build_vocab([source], folder / "tokenizer", config=config)
    return Tokenizer.load(folder / "tokenizer")


def back(tokenizer: Tokenizer, spacing: Spacing, text: str) -> str:
    return to_text(tokenizer, spacing, tokenizer.encode(text).ids.tolist())


@pytest.mark.parametrize(
    "texts",
    [ENGLISH, CHINESE, JAPANESE, KOREAN, THAI, HINDI],
    ids=["English", "Chinese", "Japanese", "Korean", "Thai", "Hindi"],
)
def test_common_rules_bring_back_how_people_write(tmp_path: Path, texts: list[str]) -> None:
    tokenizer = tokenizer_of(tmp_path, texts)
    for text in texts:
        assert back(tokenizer, Spacing.default(), text) == text


def test_what_the_common_rules_do_not_know_is_learnt(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, GERMAN)
    assert round_trip_share(tokenizer, Spacing.default(), GERMAN) < 1
    learnt = Spacing.learn(tokenizer, GERMAN)
    assert [back(tokenizer, learnt, text) for text in GERMAN] == GERMAN
    assert Spacing.from_json(learnt.to_json()) == learnt


# Each line is where one mark has a space on another side than usual.
AROUND = {
    "a space before the mark": (["go in -no", "go up- to"], "we in -it up- so"),
    "the word beside the mark": (["does n't go", "it 's so", "is n't it"], "it 's n't"),
    "the mark before": (
        ["'No,' he said.", "'Yes,' we said.", "He said it 'is'."],
        "'It,' he said.",
    ),
    "the mark after": (["run -- go on", "well-known man", "up-to no"], "go -- on so-so"),
}


@pytest.mark.parametrize(("texts", "expected"), AROUND.values(), ids=AROUND.keys())
def test_what_is_around_a_gap_decides(tmp_path: Path, texts: list[str], expected: str) -> None:
    tokenizer = tokenizer_of(tmp_path, [*texts, expected])
    assert back(tokenizer, Spacing.default(), expected) != expected
    assert back(tokenizer, Spacing.learn(tokenizer, texts * 3), expected) == expected


def test_a_few_examples_teach_pairs_but_not_words(tmp_path: Path) -> None:
    texts = ["a ;b", "a ;b", "c; d", "c; d", "e; f"]
    tokenizer = tokenizer_of(tmp_path, texts)
    # Most have a space after the semicolon; twice "a ;b" is too little to know better.
    assert Spacing.learn(tokenizer, texts).exceptions == {}
    assert back(tokenizer, Spacing.learn(tokenizer, ["a ;b"]), "c ;d") == "c ;d"


def test_only_exceptions_are_stored(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, [*ENGLISH, "Ja ; so"])
    assert Spacing.learn(tokenizer, ENGLISH * 5).to_json() == {}
    stored = Spacing.learn(tokenizer, ["Ja ; so"] * 5).to_json()
    assert stored == {"spaced": [[" letter", ";"]]}


def test_lowercased_and_composed_texts_are_aligned(tmp_path: Path) -> None:
    # The accent is a character of its own; the tokenizer composes it and lowercases.
    text = "CAFE\u0301 ; Th\u00e9"
    tokenizer = tokenizer_of(tmp_path, [text], lowercase=True)
    assert back(tokenizer, Spacing.learn(tokenizer, [text]), text) == "caf\u00e9 ; th\u00e9"


def test_texts_with_unknown_words_teach_nothing(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, ["a ; b"])
    assert Spacing.learn(tokenizer, ["a ; \u2603"]).exceptions == {}
    assert round_trip_share(tokenizer, Spacing.default(), ["a; \u2603", "a; b"]) == 0.5


def test_tokens_that_spaces_separate_stay_so(tmp_path: Path) -> None:
    texts = ["the cat sat , and left .", "it 's 5 . 7 metres"]
    tokenizer = tokenizer_of(tmp_path, texts)
    learnt = Spacing.learn(tokenizer, texts)
    assert round_trip_share(tokenizer, learnt, texts) == 1.0


def test_lost_capitals_count_as_changed(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, ["the cat sat.", "The dog sat."], lowercase=True)
    learnt = Spacing.learn(tokenizer, ["the cat sat.", "The dog sat."])
    assert round_trip_share(tokenizer, learnt, ["the cat sat.", "The dog sat."]) == 0.5
    assert back(tokenizer, learnt, "The dog sat.") == "the dog sat."


def test_whole_tokens_come_back_exactly(tmp_path: Path) -> None:
    texts = ["12 , 7 .. ##5 a-b", "I_TURN I_WALK ( x )"]
    tokenizer = tokenizer_of(tmp_path, texts, token_mode="whole")
    assert [back(tokenizer, Spacing.default(), text) for text in texts] == texts


def test_separate_kmers_come_back_as_a_sequence(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, ["ACGTACGGTCAG"], token_mode="kmer:3:3")
    assert back(tokenizer, Spacing.default(), "ACGTACGGTCAG") == "ACGTACGGTCAG"


def test_special_tokens_are_left_out_but_unknown_ones_shown(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, ["the cat"])
    ids = tokenizer.encode("the cat").ids.tolist()
    shown = [tokenizer.cls_id, *ids, tokenizer.unk_id, tokenizer.sep_id, tokenizer.pad_id]
    assert to_text(tokenizer, Spacing.default(), shown) == "the cat [UNK]"


@pytest.fixture(scope="module")
def ascii_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    characters = [*map(chr, range(33, 127)), "字"]
    return tokenizer_of(
        tmp_path_factory.mktemp("ascii"),
        [" ".join(characters), "".join(characters), "ab15ba51aa11bb55"],
    )


@given(texts=st.lists(st.text(alphabet="ab1.,\"'()-5 字", max_size=30), min_size=1, max_size=4))
def test_texts_that_are_joined_have_the_same_ids(
    ascii_tokenizer: Tokenizer, texts: list[str]
) -> None:
    spacing = Spacing.learn(ascii_tokenizer, texts)
    assert Spacing.from_json(json.loads(json.dumps(spacing.to_json()))) == spacing
    for text in texts:
        ids = ascii_tokenizer.encode(text).ids.tolist()
        if ascii_tokenizer.unk_id in ids:
            continue
        joined = to_text(ascii_tokenizer, spacing, ids)
        assert "".join(joined.split()) == "".join(ascii_tokenizer.words(ids))
        assert ascii_tokenizer.encode(joined).ids.tolist() == ids
