from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bertpre.data.tokenizing import id_dtype
from bertpre.data.tokens import ShardWriter, TokenizedDocuments, TokenStore, finished_shards
from bertpre.errors import DataFormatError

# Three documents: sentences of 2, 1 | 3 | 1, 1, 2 tokens.
LENGTHS = [[2, 1], [3], [1, 1, 2]]


def part(first_id: int, sentences: list[int]) -> TokenizedDocuments:
    count = sum(sentences)
    return TokenizedDocuments(
        ids=np.arange(first_id, first_id + count, dtype=np.uint16),
        starts=np.arange(first_id, first_id + count) % 3 == 0,
        sentence_lengths=np.array(sentences),
        document_lengths=np.array([len(sentences)]),
        hashes=np.array([first_id], np.uint64),
        text_bytes=100,
        empty_sentences=1,
        empty_documents=0,
        unknown=Counter(),
    )


@pytest.fixture(params=[[0, 0, 0], [0, 1, 2], [0, 0, 1], [0, 2, 2]], ids=str)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> TokenStore:
    """The documents in the shards of these numbers; shard 1 may have none of them."""
    first_id = 0
    with ShardWriter(tmp_path) as writer:
        for shard, sentences in zip(request.param, LENGTHS, strict=True):
            if shard == 2 and not (tmp_path / "00001.json").exists():
                writer.add(nothing(), shard=1)
            writer.add(part(first_id, sentences), shard=shard)
            first_id += sum(sentences)
    return TokenStore(tmp_path)


def nothing() -> TokenizedDocuments:
    return part(0, [])._replace(
        document_lengths=np.array([], int), hashes=np.array([], np.uint64), empty_sentences=0
    )


def test_store_counts_what_was_written(store: TokenStore) -> None:
    assert (store.num_tokens, store.num_sentences, store.num_documents) == (10, 6, 3)
    assert store.empty_sentences == 3
    starts, hashes = zip(*store.documents(), strict=True)
    assert sorted({int(start) for block in starts for start in block}) == [0, 2, 3, 6]
    assert np.concatenate(hashes).tolist() == [0, 3, 6]
    assert np.concatenate(list(store.sentence_length_blocks())).tolist() == [2, 1, 3, 1, 1, 2]
    assert store.count_words() == 4  # tokens 0, 3, 6 and 9


def test_sentence_offsets_are_global_in_every_shard(store: TokenStore) -> None:
    assert store.token_offsets(np.arange(7)).tolist() == [0, 2, 3, 6, 7, 8, 10]
    assert store.token_offsets(np.array([5, 0, 6, 2])).tolist() == [8, 0, 10, 3]


def test_sentences_are_found_by_their_tokens(store: TokenStore) -> None:
    tokens = np.arange(12)

    before = store.sentences_at(tokens, side="left")
    not_after = store.sentences_at(tokens, side="right")

    # Sentences start at 0, 2, 3, 6, 7 and 8; 10 is where the last one ends.
    assert before.tolist() == [0, 1, 1, 2, 3, 3, 3, 4, 5, 6, 6, 7]
    assert not_after[:10].tolist() == [1, 1, 2, 3, 3, 3, 4, 5, 6, 6]
    assert not_after[11] == 7


def test_gather_reads_runs_across_shards_in_order(store: TokenStore) -> None:
    ids, starts = store.gather(np.array([8, 0, 4, 3]), np.array([2, 3, 0, 5]))

    assert ids.tolist() == [8, 9, 0, 1, 2, 3, 4, 5, 6, 7]
    assert starts.tolist() == [i % 3 == 0 for i in ids.tolist()]


def test_id_blocks_are_all_tokens_in_order(store: TokenStore) -> None:
    assert np.concatenate(list(store.id_blocks())).tolist() == list(range(10))


def test_a_shard_of_the_wrong_size_is_named_with_both_sizes(store: TokenStore, tmp_path: Path):
    path = tmp_path / "00000.ids.bin"
    path.write_bytes(path.read_bytes() + b"\0\0")

    with pytest.raises(DataFormatError, match=r"00000\.ids\.bin: expected \d+ bytes, found \d+"):
        TokenStore(tmp_path)


def test_a_folder_without_shards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataFormatError, match="holds no finished shard — rerun make-data"):
        TokenStore(tmp_path)


def test_a_shard_without_its_counts_is_not_finished(store: TokenStore, tmp_path: Path) -> None:
    before = len(finished_shards(tmp_path))

    (tmp_path / f"{before - 1:05d}.json").unlink()

    assert len(finished_shards(tmp_path)) == before - 1


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65_536, np.uint16), (65_537, np.uint32)])
def test_ids_take_two_bytes_while_the_vocabulary_fits(vocab_size: int, dtype: type) -> None:
    assert id_dtype(vocab_size) is dtype
