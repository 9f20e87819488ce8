"""Words to keep whole: checked line by line, as the tokenizer will see them."""

import pytest

from bertpre.config.fields import Kmer
from bertpre.errors import TokenizerError
from bertpre.tokenizer.extra_tokens import read_extra_tokens
from bertpre.tokenizer.normalizing import Rules

LOWERCASE = Rules(whole=False, lowercase=True, strip_accents=False)
WHOLE = Rules(whole=True, lowercase=False, strip_accents=False)


def test_words_are_normalised_and_those_that_would_be_cut_are_told(tmp_path):
    path = tmp_path / "e.txt"
    path.write_bytes("\ufeffAspirin\r\nc++\r\n新冠\r\ne\u0301t\u00e9\r\n".encode())

    extra = read_extra_tokens(path, LOWERCASE)

    assert extra.tokens == ("aspirin", "c++", "新冠", "été")
    assert extra.kept_whole == ("c++", "新冠")
    assert read_extra_tokens(path, WHOLE).kept_whole == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\n\nb\n", "line 2: '' is blank"),
        ("a\n \t\n", "line 2: .* is blank"),
        ("a\nb\na\n", "line 3: 'a' repeats line 1"),
        ("Ab\naB\n", r"line 2: 'aB' repeats line 1 \(as 'ab'\)"),
        ("[MASK]\n", r"line 1: '\[MASK\]' is a special token"),
        ("two words\n", "line 1: 'two words' contains white space"),
        ("a\n" + "b" * 101, "line 2: 'b{50}' has 101 characters; expected at most 100"),
        ("\x00\n", "only has characters that normalising removes"),
        ("##ing\n", "line 1: '##ing' starts with ##"),
        ("", "empty; expected one word per line"),
    ],
)
def test_a_word_of_no_use_is_refused_with_its_line(tmp_path, content, message):
    path = tmp_path / "e.txt"
    path.write_bytes(content.encode())

    with pytest.raises(TokenizerError, match=f"e.txt: {message}|e.txt: line 1: .* {message}"):
        read_extra_tokens(path, LOWERCASE)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "e.txt").write_bytes(b"a\n\xff\n")

    with pytest.raises(TokenizerError, match=r"line 2: expected UTF-8, found byte 0xFF"):
        read_extra_tokens(tmp_path / "e.txt", LOWERCASE)
    with pytest.raises(TokenizerError, match="cannot be read"):
        read_extra_tokens(tmp_path / "none.txt", LOWERCASE)


def test_kmers_cannot_keep_words_whole(tmp_path):
    rules = Rules(whole=True, lowercase=False, strip_accents=False, kmer=Kmer(3))

    with pytest.raises(TokenizerError, match="cannot be kept whole if sequences are cut"):
        read_extra_tokens(tmp_path / "e.txt", rules)
