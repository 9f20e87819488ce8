"""Words are found in a row of bytes, and told by their hashes."""

import numpy as np
import pytest

from bertpre.tokenizer.chunks import find_words

IS_SPACE = np.zeros(256, bool)
IS_SPACE[[ord(" "), ord("\n")]] = True


def words_of(text: str) -> list[str]:
    data = text.encode()
    found = find_words(np.frombuffer(data, np.uint8), IS_SPACE)
    pairs = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
    return [data[start:end].decode() for start, end in pairs]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("  ", []),
        (" a  bc\n", ["a", "bc"]),
        (" don't, (x) ", ["don", "'", "t", ",", "(", "x", ")"]),
        (" ... ", [".", ".", "."]),
        (" naïve “word” ", ["naïve", "“word”"]),
        # A border before a mark beyond ASCII could part what normalising puts together.
        (" a<\u0338b ", ["a<\u0338b"]),
        (" ”, ", ["”", ","]),
    ],
)
def test_words_end_at_spaces_and_ascii_punctuation(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_equal_words_have_equal_hashes_wherever_they_stand() -> None:
    text = " ".join(["", "a", "ab", "ba", "a", "abc", "aa", "ab", "b", "x" * 64, "x" * 63, "a", ""])

    found = find_words(np.frombuffer(text.encode(), np.uint8), IS_SPACE)

    words = words_of(text)
    for i, word in enumerate(words):
        for j, other in enumerate(words):
            assert (found.hashes[i] == found.hashes[j]) == (word == other)


def test_hashes_of_many_words_differ_and_fill_their_bits() -> None:
    text = "".join(f" w{number}" for number in range(100_000)) + " "

    hashes = find_words(np.frombuffer(text.encode(), np.uint8), IS_SPACE).hashes

    assert len(np.unique(hashes)) == 100_000
    ones = np.unpackbits(hashes.view(np.uint8).reshape(-1, 8), axis=1).mean(axis=0)
    # Six standard deviations of a fair coin.
    np.testing.assert_allclose(ones, 0.5, atol=6 * 0.5 / 100_000**0.5)
