"""Documents to tokens: what has no token is left out of every column alike."""

from pathlib import Path

import pytest

from bertpre.data.tokenizing import tokenize_documents
from bertpre.tokenizer.tokenizer import Tokenizer


def test_documents_without_a_token_leave_the_others_as_they_are(tiny_tokenizer: Path) -> None:
    tokenizer = Tokenizer.load(tiny_tokenizer)
    texts = [("the cat sees the river.", "a dog"), ("our teacher",), ("the cat",)]
    nothing = ("\x01", "\u200b")

    plain = tokenize_documents(texts, tokenizer)
    mixed = tokenize_documents([nothing, texts[0], nothing, *texts[1:], nothing], tokenizer)

    assert (mixed.empty_documents, mixed.empty_sentences) == (3, 6)
    assert mixed.hashes.tolist() == plain.hashes.tolist()
    assert len(set(plain.hashes.tolist())) == 3
    assert mixed.document_lengths.tolist() == plain.document_lengths.tolist() == [2, 1, 1]
    assert mixed.sentence_lengths.tolist() == plain.sentence_lengths.tolist()
    assert mixed.ids.tolist() == plain.ids.tolist()


def test_unknown_characters_are_counted_wherever_they_are(tiny_tokenizer: Path) -> None:
    tokenizer = Tokenizer.load(tiny_tokenizer)
    texts = [("the 😀 cat", "😀🎤 and dog🎤"), ("a" + "\u0301" * 5 + " river 😀😀",)]

    found = tokenize_documents(texts, tokenizer).unknown

    assert found == {"😀": 4, "🎤": 2, "\u0301": 5}


def test_unknown_characters_take_no_call_of_the_library_each(
    tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, calls = Tokenizer.load(tiny_tokenizer), []
    encode = tokenizer._encode_new
    monkeypatch.setattr(tokenizer._cache, "_encode", lambda new: calls.append(1) or encode(new))
    text = " ".join(f"{chr(0x1F300 + i)}{chr(0x1F301 + i)}" for i in range(500)) + " a"
    text += "\u0301" * 100_000

    found = tokenize_documents([(text,)], tokenizer).unknown

    assert len(found) == 502
    assert found["\u0301"] == 100_000
    assert len(calls) < 10
