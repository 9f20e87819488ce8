"""A large corpus is sampled by the hash of its documents, and the report says so."""

from pathlib import Path

import pytest

from bertpre.artefacts import read_manifest
from bertpre.config.schema import BuildVocab
from bertpre.errors import CorpusError
from bertpre.tokenizer.vocabulary import VocabReport, build_vocab

DOCUMENTS = [f"word{i} and word{i % 7}\nagain word{i}" for i in range(400)]
SIZE = sum(len(document) - 1 for document in DOCUMENTS)


def sample(folder: Path, documents: list[str], name: str, **options) -> VocabReport:
    (folder / f"{name}.txt").write_text("\n\n".join(documents))
    seed = options.pop("seed", 0)
    config = BuildVocab(min_frequency=1, token_mode="whole", **options)
    return build_vocab([folder / f"{name}.txt"], folder / name, config, seed=seed)


def words(folder: Path) -> set[str]:
    return set((folder / "vocab.txt").read_text().split())


def test_a_small_corpus_is_counted_whole(tmp_path):
    report = sample(tmp_path, DOCUMENTS, "all", sample_bytes=SIZE * 2)

    assert (report.sample.share, report.sample.documents) == (1, 400)
    assert report.sample.bytes == report.sample.corpus_bytes == SIZE


def test_a_large_corpus_is_sampled_and_the_manifest_says_so(tmp_path):
    report = sample(tmp_path, DOCUMENTS, "some", sample_bytes=SIZE // 4)

    assert report.sample.share == pytest.approx(0.25, abs=1e-3)
    assert 70 <= report.sample.documents <= 130  # 100 expected, standard deviation 9
    assert report.sample.bytes == pytest.approx(SIZE / 4, rel=0.3)
    assert report.corpus.documents == 400
    stored = read_manifest(tmp_path / "some", "tokenizer")
    assert stored["report"]["sample"]["documents"] == report.sample.documents
    assert stored["options"]["sample_bytes"] == SIZE // 4


def test_the_sample_depends_on_text_and_seed_not_on_order(tmp_path):
    limit = SIZE // 4
    sample(tmp_path, DOCUMENTS, "one", sample_bytes=limit)
    sample(tmp_path, DOCUMENTS[::-1], "two", sample_bytes=limit)
    sample(tmp_path, DOCUMENTS, "other", sample_bytes=limit, seed=1)

    for name in ("vocab.txt", "tokenizer.json", "manifest.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert words(tmp_path / "one") != words(tmp_path / "other")


def test_a_sample_without_a_document_is_refused(tmp_path):
    with pytest.raises(CorpusError, match="no document was drawn: a sample of 1 bytes is too"):
        sample(tmp_path, DOCUMENTS[:3], "none", sample_bytes=1)
