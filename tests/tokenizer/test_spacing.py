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
]
CHINESE = ["皇后便自作主张,传令给李继岌。", "他在2019年买了iPhone手机。", "“好!”他说。"]
GERMAN = ["Er sagte: „Ja“, und ging (sofort).", "Der 3. Mai; 10 % mehr."]
KOREAN = ["나는 학교에 갔다. 그는 안 갔다!"]
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
    "texts", [ENGLISH, CHINESE, KOREAN, HINDI], ids=["English", "Chinese", "Korean", "Hindi"]
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
    characters = [chr(point) for point in range(33, 127)]
    return tokenizer_of(
        tmp_path_factory.mktemp("ascii"), [" ".join(characters), "".join(characters)]
    )


@given(st.text(alphabet="ab1.,\"'()-5 字", max_size=30))
def test_a_text_that_is_joined_has_the_same_characters_in_order(
    ascii_tokenizer: Tokenizer, text: str
) -> None:
    ids = ascii_tokenizer.encode(text).ids.tolist()
    if ascii_tokenizer.unk_id not in ids:
        again = ascii_tokenizer.encode(to_text(ascii_tokenizer, Spacing.default(), ids))
        characters = "".join(ascii_tokenizer.words(ids))
        assert "".join(ascii_tokenizer.words(again.ids.tolist())) == characters
