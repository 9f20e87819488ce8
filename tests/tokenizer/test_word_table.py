import numpy as np
import pytest

from bertpre.tokenizer import word_table
from bertpre.tokenizer.word_table import NOT_FOUND, WordTable, find_words

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


def test_a_table_finds_what_was_added_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_table, "_SLOT_BITS", 8)  # 256 slots, so that words collide
    table = WordTable()
    generator = np.random.default_rng(1)
    hashes = np.unique(generator.integers(1, 2**64 - 1, 220, dtype=np.uint64))
    known, unknown = hashes[:200], hashes[200:]

    for part in np.array_split(np.arange(200), 7):
        table.add(known[part], part.astype(np.int32))

    assert table.find(known).tolist() == list(range(200))
    assert table.find(np.repeat(known[:3], 2)).tolist() == [0, 0, 1, 1, 2, 2]
    assert table.find(unknown).tolist() == [NOT_FOUND] * 20
