"""Many texts at once: the ids are those of the tokenizers library for each text as a whole."""

from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bertpre.config.schema import BuildVocab
from bertpre.tokenizer import chunks, piece_cache
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.tokenizer.vocabulary import build_vocab

SENTENCES = [
    "the cat's garden; (a+b)=c! don't, 3.14 and 100%",
    "naïve café ÉTÉ й и “quoted” — dash",
    "中国人民 word 北京, 2024年 ok",
    "ガカ 한국어 में a<\u0338b x\u0301y",
]
# What trips a cutter of words: spaces of all kinds, controls, marks that combine, Han of old and
# new, control tokens.
ODD = [
    *" \t\n\r\x0b\x0c\x1c\x85\xa0\u2028\u3000\u200b\u200f\x00\x01\xad\ufeff\u0338\u0301\ud800",
    *"<=>;.,'-#[]_一龥鿿㐀\U00020000中国ガabAB01é“”",
    "[SEP]", "[MASK]", "##a", "the", "cat", "garden", "a" * 70, "a" * 150,
]  # fmt: skip
texts = st.lists(st.lists(st.sampled_from(ODD), max_size=12).map("".join), max_size=6)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tokenizers")
    text = folder / "text.txt"
    text.write_text("\n".join(SENTENCES * 3), encoding="utf-8")
    found = {}
    for name, options in {
        "cased": {},
        "uncased": {"lowercase": True, "strip_accents": True},
        "whole": {"token_mode": "whole"},
    }.items():
        found[name] = folder / name
        config = BuildVocab(vocab_size=200, max_unknown_share=1.0, **options)  # type: ignore[arg-type]
        build_vocab([text], found[name], config=config)
    found["foreign"] = folder / "foreign"
    found["foreign"].mkdir()
    (found["foreign"] / "vocab.txt").write_bytes((found["cased"] / "vocab.txt").read_bytes())
    (found["foreign"] / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    return found


def check(tokenizer: Tokenizer, given_texts: list[str]) -> None:
    found = tokenizer.encode_all(given_texts)
    bare: tokenizers.Tokenizer = tokenizer._backend
    # The library takes no lone surrogates, and neither do files of text hold them.
    expected = [bare.encode(text, add_special_tokens=False).ids for text in given_texts]
    assert np.split(found.ids, np.cumsum(found.lengths))[: len(expected)] is not None
    assert found.lengths.tolist() == [len(ids) for ids in expected]
    controls = tokenizer.special_ids - {tokenizer.unk_id}
    as_text = [tokenizer.unk_id if id in controls else id for ids in expected for id in ids]
    assert found.ids.tolist() == as_text


@pytest.mark.parametrize("name", ["cased", "uncased", "whole", "foreign"])
@settings(max_examples=150, deadline=None)
@given(texts)
@example(["ガ=\u0338", "a<\u0338b", "a-\u0301 b-\u00e9"])
@example(["<\x00\u0338", "a<\x7f\x0b\x01\u0338b", "<\x00> a\x00-\x00b !\x00\x00!"])
def test_ids_are_those_of_the_library(
    folders: dict[str, Path], name: str, texts: list[str]
) -> None:
    tokenizer = Tokenizer.load(folders[name])

    check(tokenizer, [text.replace("\ud800", "") for text in texts])


@pytest.mark.parametrize("name", ["cased", "uncased", "whole", "foreign"])
def test_ids_stay_the_same_when_the_cache_starts_anew(
    folders: dict[str, Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(piece_cache, "_MOST_CHUNKS", 5)
    tokenizer = Tokenizer.load(folders[name])

    for _ in range(3):
        check(tokenizer, SENTENCES)
        check(tokenizer, SENTENCES[:2])


@pytest.mark.parametrize("name", ["cased", "foreign"])
def test_a_text_too_large_for_arrays_is_cut_the_slow_way(
    folders: dict[str, Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "_MOST_HASHED_BYTES", 20)
    tokenizer = Tokenizer.load(folders[name])

    check(tokenizer, [*SENTENCES[:2], "a\x0bb\xa0c don't", "a" * 150])


def test_no_text_has_no_pieces(folders: dict[str, Path]) -> None:
    found = Tokenizer.load(folders["cased"]).encode_all([])

    assert (len(found.ids), len(found.lengths)) == (0, 0)


def test_unknown_words_are_counted(folders: dict[str, Path]) -> None:
    tokenizer = Tokenizer.load(folders["cased"])

    assert sorted(tokenizer.unknown_chunks(["the ☃ cat ☃", "a ✈, ☃"])) == [("☃", 3), ("✈", 1)]


def test_a_segmenter_decides_where_chinese_words_begin(folders: dict[str, Path]) -> None:
    tokenizer = Tokenizer.load(folders["cased"])
    words = {"中国人民 word": ["中国", "人民", " ", "word"], "年ok北京": ["年ok北京"], "b": ["b"]}

    found = tokenizer.encode_all(list(words), segment=words.__getitem__)

    starts = dict(zip(["中", "国", "人", "民"], found.word_starts[:4].tolist(), strict=True))
    assert starts == {"中": True, "国": False, "人": True, "民": False}
    # Han characters apart from each other are no word together, whatever a segmenter says.
    alone = tokenizer.encode_all(["年ok北京"], segment=words.__getitem__)
    assert alone.word_starts.tolist()[-2:] == [True, False]
    assert alone.word_starts[0]
