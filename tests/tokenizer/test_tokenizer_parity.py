"""Ids equal those of the transformers library for our folders, and of stored outputs for theirs."""

import gzip
import itertools
import json
import os
from pathlib import Path

import pytest
import tokenizers

from bertpre.config.schema import BuildVocab
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.tokenizer.vocabulary import build_vocab

pytestmark = pytest.mark.parity

transformers = pytest.importorskip("transformers", reason="the transformers library is not there")

TEXT = [
    "The quick brown Fox jumps over the lazy dog, doesn't it?",
    "Hacía frío; möchte Straße ÉTÉ e\u0301te\u0301 İstanbul ΣΊΣΥΦΟΣ",
    "中国的汉字, 日本語のテキスト ガ 한국어 텍스트 में हिन्दी и й",
    "a\x0bb\x85c\u200bd\u200fe\u2028f\u3000g\x00h\xadi " + "x" * 250,
    "##ing ## 007 5900,900 __init__(self) -> None: #1 @user $5.00 €",
]


@pytest.fixture(scope="module")
def test_data() -> Path:
    folder = os.environ.get("BERTPRE_TEST_DATA")
    if folder is None:
        pytest.skip("BERTPRE_TEST_DATA names no folder with stored outputs")
    return Path(folder)


@pytest.fixture(
    params=[
        BuildVocab(vocab_size=200, min_frequency=1),
        BuildVocab(vocab_size=200, min_frequency=1, lowercase=True),
        BuildVocab(vocab_size=200, min_frequency=1, lowercase=True, strip_accents=True),
        BuildVocab(vocab_size=30, min_frequency=1, max_unknown_share=1.0),
        BuildVocab(token_mode="whole", min_frequency=1),
        BuildVocab(token_mode="whole", min_frequency=1, lowercase=True, strip_accents=True),
        BuildVocab(token_mode="whole", vocab_size=10, min_frequency=1, max_unknown_share=1.0),
    ],
    ids=["cased", "lowercase", "uncased", "small", "whole", "whole-uncased", "whole-small"],
)
def folder(request, tmp_path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("\n".join(TEXT), encoding="utf-8", newline="\n")
    build_vocab([path], tmp_path / "tokenizer", request.param)
    return tmp_path / "tokenizer"


def test_transformers_gives_equal_ids_for_our_folder(folder):
    ours, theirs = Tokenizer.load(folder), transformers.AutoTokenizer.from_pretrained(folder)

    for text in TEXT:
        expected = [ours.cls_id, *ours.encode(text).ids.tolist(), ours.sep_id]
        assert theirs(text)["input_ids"] == expected
    assert [theirs.pad_token_id, theirs.unk_token_id, theirs.mask_token_id] == [0, 1, 4]
    assert (len(theirs), theirs.model_max_length) == (ours.vocab_size, 512)


def test_transformers_gives_pairs_their_segments(folder):
    ours, theirs = Tokenizer.load(folder), transformers.AutoTokenizer.from_pretrained(folder)

    found = theirs(TEXT[0], TEXT[1])

    first, second = (ours.encode(text).ids.tolist() for text in TEXT[:2])
    assert found["input_ids"] == [2, *first, 3, *second, 3]
    assert found["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert set(found["attention_mask"]) == {1}


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("saved", [True, False], ids=["saved", "vocab-only"])
def test_a_hugging_face_folder_gives_the_ids_that_transformers_gives(tmp_path, lowercase, saved):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyzTHF中国é,"]
    tokens += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyzé"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": lowercase}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    if saved:
        theirs.save_pretrained(tmp_path / "saved")

    ours = Tokenizer.load(tmp_path / "saved" if saved else tmp_path)

    for text in TEXT:
        expected = theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.encode(text).ids.tolist() == expected


def test_ids_equal_stored_outputs_of_the_uncased_english_vocabulary(tmp_path, test_data):
    vocab = test_data / "parity" / "bert-base-uncased-vocab.txt"
    (tmp_path / "vocab.txt").write_bytes(vocab.read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    tokenizer = Tokenizer.load(tmp_path)

    with gzip.open(test_data / "parity" / "wordpiece_uncased_golden.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]

    assert len(rows) == 840
    for row in rows:
        assert tokenizer.encode(row["text"]).ids.tolist() == row["ids"]


CORPORA = [
    *(f"corpus/multi/dh_{name}" for name in (
        "ar-MA", "de-DE", "es-ES", "fa-IR", "fr-FR", "ja-JP", "pt-BR", "ru-RU", "tr-TR", "vi-VN",
        "zh-CN", "zh-TW")),
    "corpus/multi/lohelp_hi", "corpus/en_novels", "corpus/zh_wiki_traditional_drcd",
    "cls/wisesight_th/dev", "cls/anon_books14/dev", "cls/dna_promoter_6mer/dev",
    "domain/code_python_stdlib", "domain/logs_a", "domain/smiles_nci",
]  # fmt: skip


def read_lines(test_data: Path, name: str, number: int) -> list[str]:
    """The first lines of a file of that name, without its ending."""
    (path,) = (test_data / name).parent.glob(f"{(test_data / name).name}.*")
    open_file = gzip.open if path.suffix == ".gz" else open
    with open_file(path, "rt", encoding="utf-8", newline="\n") as file:
        return list(itertools.islice(file, number))


@pytest.mark.parametrize("name", CORPORA)
def test_ids_equal_the_tokenizers_library_in_every_language(tmp_path, test_data, name):
    lines = read_lines(test_data, name, 400)
    (tmp_path / "a.txt").write_text("".join(lines), encoding="utf-8", newline="\n")
    uncased = len(name) % 2 == 0  # each pipeline on about half of the languages
    config = BuildVocab(vocab_size=1500, lowercase=uncased, strip_accents=uncased)
    build_vocab([tmp_path / "a.txt"], tmp_path / "tokenizer", config)
    ours = Tokenizer.load(tmp_path / "tokenizer")
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer" / "tokenizer.json"))
    bert = tokenizers.BertWordPieceTokenizer(
        {token: id for id, token in enumerate(ours.tokens)}, lowercase=uncased
    )
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "vocab.txt").write_bytes(
        (tmp_path / "tokenizer" / "vocab.txt").read_bytes()
    )
    settings = {"do_lower_case": uncased}
    (tmp_path / "bert" / "tokenizer_config.json").write_text(json.dumps(settings))
    foreign = Tokenizer.load(tmp_path / "bert")
    for backend in (library, bert._tokenizer):
        backend.encode_special_tokens = True

    for line in lines:
        assert ours.encode(line).ids.tolist() == library.encode(line, add_special_tokens=False).ids
        assert foreign.encode(line).ids.tolist() == bert.encode(line, add_special_tokens=False).ids


def test_transformers_keeps_extra_tokens_whole_too(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(TEXT), encoding="utf-8", newline="\n")
    (tmp_path / "e.txt").write_text("C++\n新冠\nCOVID-19\nfox\nโควิด\n", encoding="utf-8")
    config = BuildVocab(
        vocab_size=300, min_frequency=1, lowercase=True, extra_tokens=str(tmp_path / "e.txt")
    )
    build_vocab([tmp_path / "a.txt"], tmp_path / "tokenizer", config)
    folder = tmp_path / "tokenizer"
    ours, theirs = Tokenizer.load(folder), transformers.AutoTokenizer.from_pretrained(folder)

    for text in [
        *TEXT,
        "c++, xC++ 得新冠了 Covid-19! foxes ก็โควิดนะ [SEP]",
        "新 冠 新\u200b冠 c+ +",
    ]:
        # A control token in text is one to transformers, unless it is told to split it.
        expected = theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        assert ours.encode(text).ids.tolist() == expected
