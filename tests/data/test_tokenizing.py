"""Documents to tokens: what has no token is left out of every column alike."""

from pathlib import Path

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
