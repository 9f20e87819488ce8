"""make-data takes tokenizers of every origin, and later stages tokenise as it did."""

import json
from pathlib import Path

import pytest

from bertpre.config.schema import BuildVocab, MakeData
from bertpre.data.dataset import PretrainingData
from bertpre.data.make_data import make_data
from bertpre.tokenizer.normalizing import SPECIAL_TOKENS
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.tokenizer.vocabulary import build_vocab

SENTENCES = ["Hacía frío, doesn't it?", "ÉTÉ й и [SEP] [MASK]", "中国 word words", "a b"]
TEXT = "\n\n".join("\n".join(SENTENCES) for _ in range(4))


def stored_ids(folder: Path, text: str, tokenizer: Path) -> tuple[PretrainingData, list[int]]:
    path = folder / "text.txt"
    path.write_text(text, encoding="utf-8")
    config = MakeData(max_seq_length=48, workers=1, objective="mlm", eval_fraction=0)
    make_data([path], tokenizer=tokenizer, output=folder / "data", config=config)
    data = PretrainingData(folder / "data")
    return data, [int(id) for block in data.store.id_blocks() for id in block]


@pytest.mark.parity
@pytest.mark.parametrize(
    "stated",
    [
        {"do_lower_case": True},
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"do_lower_case": False, "strip_accents": True},
    ],
    ids=["uncased", "cased", "accents-kept", "accents-stripped"],
)
def test_a_hugging_face_folder_gives_the_ids_that_transformers_gives(tmp_path, stated):
    transformers = pytest.importorskip("transformers", reason="the transformers library is missing")
    folder = tmp_path / "hf"
    folder.mkdir()
    letters = [*"abcdefghijklmnopqrstuvwxyzHÉTéíий中国,?'[]SEPMAK"]
    entries = [*SPECIAL_TOKENS, *letters, *(f"##{letter}" for letter in letters), "word", "##s"]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(entries)) + "\n", encoding="utf-8")
    settings = {"tokenizer_class": "BertTokenizer", **stated}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))

    data, ids = stored_ids(tmp_path, TEXT, folder)

    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    expected = theirs(
        SENTENCES * 4, add_special_tokens=False, split_special_tokens=True
    )["input_ids"]  # fmt: skip
    assert ids == [id for row in expected for id in row]
    # What checkpoints and fine-tuned models get is a copy of these files.
    assert data.tokenizer.fingerprint == Tokenizer.load(folder).fingerprint


@pytest.mark.parametrize("mode", ["kmer:3", "kmer:3:3"])
def test_kmers_are_cut_alike_in_the_data_folder(tmp_path, mode):
    lines = ["ACGTACGTTGCA", "GGGTTTACACGT"] * 20
    (tmp_path / "a.txt").write_text("\n".join(lines))
    config = BuildVocab(token_mode=mode, min_frequency=1)
    build_vocab([tmp_path / "a.txt"], tmp_path / "tokenizer", config)

    data, ids = stored_ids(tmp_path, "\n".join(lines), tmp_path / "tokenizer")

    tokenizer = Tokenizer.load(tmp_path / "tokenizer")
    assert ids == [id for line in lines for id in tokenizer.encode(line).ids.tolist()]
    assert [data.tokenizer.tokens[id] for id in ids[:2]] == (
        ["ACG", "CGT"] if mode == "kmer:3" else ["ACG", "TAC"]
    )


def test_a_ready_vocabulary_and_extra_tokens_reach_the_data_folder(tmp_path):
    (tmp_path / "v.txt").write_text("\n".join([*SPECIAL_TOKENS, "a", "b", "word", "##s"]))
    (tmp_path / "e.txt").write_text("c++\n")
    config = BuildVocab(
        vocab_file=str(tmp_path / "v.txt"), extra_tokens=str(tmp_path / "e.txt"), lowercase=True
    )
    build_vocab([], tmp_path / "tokenizer", config)

    data, ids = stored_ids(tmp_path, "Words C++ a\nb word\n" * 10, tmp_path / "tokenizer")

    assert [data.tokenizer.tokens[id] for id in ids[:6]] == [
        "word", "##s", "c++", "a", "b", "word",
    ]  # fmt: skip
