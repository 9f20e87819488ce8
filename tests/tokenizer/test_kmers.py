"""Sequences cut to k-mers, and the same cutting in every stage and library."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertpre.config.fields import Kmer, parse_kmer
from bertpre.config.load import parse_config
from bertpre.config.schema import BuildVocab
from bertpre.corpus.sentences import cut_sequence
from bertpre.errors import ConfigError, TokenizerError
from bertpre.tokenizer.normalizing import cut_text
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.tokenizer.vocabulary import build_vocab

TEXT = "ACGTACGTNNACGTTTGA acgtnnacgt\nGGGTTTACA AC A\n"
texts = st.text(
    st.sampled_from("ACGTacgt \t\x0b\x00\u200bÉe\u0301İ中\n가.") | st.characters(codec="utf-8")
)


@pytest.fixture(params=["kmer:3", "kmer:3:2", "kmer:3:3", "kmer:1", "kmer:4:4"])
def mode(request) -> str:
    return request.param


@pytest.fixture(params=[True, False], ids=["lowercase", "cased"])
def folder(request, mode, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(TEXT * 3)
    config = BuildVocab(token_mode=mode, min_frequency=1, lowercase=request.param)
    build_vocab([path], tmp_path / "tokenizer", config)
    return tmp_path / "tokenizer"


@pytest.mark.parametrize(
    ("sequence", "kmer", "expected"),
    [
        ("ACGTA", Kmer(3), "ACG CGT GTA"),
        ("ACGTACGT", Kmer(3, 3), "ACG TAC GT"),
        ("ACGTA", Kmer(3, 2), "ACG GTA"),
        ("ACGT", Kmer(3, 2), "ACG GT"),
        ("ACG", Kmer(3), "ACG"),
        ("AC", Kmer(3, 3), "AC"),
        ("ACG", Kmer(1), "A C G"),
    ],
)
def test_the_last_piece_reaches_the_end(sequence, kmer, expected):
    # The first line is the form of DNABERT (Ji et al. 2021, section 2.1).
    assert list(cut_sequence(sequence, kmer)) == expected.split()


@given(st.text("ACGT", min_size=1, max_size=60), st.integers(1, 9), st.integers(1, 9))
@settings(deadline=None, derandomize=True)
def test_pieces_cover_the_sequence_and_cut_text_stays_as_it_is(sequence, length, stride):
    kmer = Kmer(length, min(stride, length))

    pieces = list(cut_sequence(sequence, kmer))

    rebuilt = "".join(piece[: kmer.stride] for piece in pieces[:-1]) + pieces[-1]
    assert rebuilt == sequence
    assert [piece for part in pieces for piece in cut_sequence(part, kmer)] == pieces


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("kmer", "expected wordpiece, whole, kmer:K or kmer:K:STRIDE"),
        ("kmer:x", "expected wordpiece, whole, kmer:K or kmer:K:STRIDE"),
        ("words", "expected wordpiece, whole, kmer:K or kmer:K:STRIDE"),
        ("kmer:0", "expected K of 1 to 100"),
        ("kmer:101", "expected K of 1 to 100"),
        (
            "kmer:3:4",
            "expected a STRIDE of 1 to K in kmer:K:STRIDE, as a larger one would drop text",
        ),
        ("kmer:3:0", "expected a STRIDE of 1 to K"),
    ],
)
def test_a_mode_that_cannot_be_is_refused(mode, message):
    with pytest.raises(ConfigError, match=f"build_vocab.token_mode: {message}"):
        parse_config({"build_vocab": {"token_mode": mode}})


def test_ids_are_those_of_the_cut_text(folder, mode):
    tokenizer, kmer = Tokenizer.load(folder), parse_kmer(mode)
    backend = tokenizer._backend
    lowercase = 'lowercase": true' in (folder / "manifest.json").read_text()

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(texts)
    def check(text: str) -> None:
        cut = " ".join(cut_text(text, kmer, backend.normalizer, lowercase=lowercase))
        expected = backend.encode(cut, add_special_tokens=False).ids
        assert tokenizer.encode(text).ids.tolist() == expected
        assert tokenizer.encode(text).word_starts.all()
        if kmer.stride == kmer.length:  # the library cuts these itself
            plain = backend.encode(text, add_special_tokens=False).ids
            assert tokenizer.encode(text).ids.tolist() == plain

    check()


@pytest.mark.parity
def test_transformers_needs_overlapping_kmers_cut_and_cuts_others_itself(folder, mode):
    transformers = pytest.importorskip("transformers", reason="the transformers library is missing")
    ours, theirs = Tokenizer.load(folder), transformers.AutoTokenizer.from_pretrained(folder)
    kmer = parse_kmer(mode)
    sequence = "ACGTACGTNNACGTTTGA"
    cut = " ".join(cut_sequence(sequence, kmer))

    ids = ours.encode(sequence).ids.tolist()

    assert theirs(cut, add_special_tokens=False)["input_ids"] == ids
    uncut = theirs(sequence, add_special_tokens=False)["input_ids"]
    assert (uncut == ids) is (kmer.stride == kmer.length)


def test_a_copy_of_the_files_cuts_equally(folder, tmp_path):
    tokenizer = Tokenizer.load(folder)
    (tmp_path / "copy").mkdir()

    tokenizer.save_files(tmp_path / "copy")

    copy = Tokenizer.load(tmp_path / "copy")
    assert copy.fingerprint == tokenizer.fingerprint
    assert copy.encode("ACGTACGT").ids.tolist() == tokenizer.encode("ACGTACGT").ids.tolist()


def test_a_mask_stands_between_sequences(folder):
    tokenizer = Tokenizer.load(folder)

    ids = tokenizer.encode_with_mask("ACGT [MASK] ACG")

    first, second = (tokenizer.encode(text).ids.tolist() for text in ("ACGT", "ACG"))
    assert ids == [*first, tokenizer.mask_id, *second]


def test_a_damaged_setting_is_refused(folder):
    path = folder / "tokenizer_config.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "kmer": {"length": 3}}))

    with pytest.raises(TokenizerError, match="kmer: expected a length and a stride, found"):
        Tokenizer.load(folder)
