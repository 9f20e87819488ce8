"""Ids equal those of the transformers library for our folders, and of stored outputs for theirs."""

import gzip
import json
import os
from pathlib import Path

import pytest

from bertpre.config.schema import BuildVocab
from bertpre.text.tokenizer import Tokenizer
from bertpre.text.vocabulary import build_vocab

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
        BuildVocab(vocab_size=30, min_frequency=1),
        BuildVocab(token_mode="whole", min_frequency=1),
        BuildVocab(token_mode="whole", min_frequency=1, lowercase=True, strip_accents=True),
        BuildVocab(token_mode="whole", vocab_size=10, min_frequency=1),
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
