"""Examples over corpora of all shapes, through the whole stage."""

import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertpre.artefacts import read_manifest
from bertpre.config.schema import BuildVocab, MakeData
from bertpre.data.dataset import PretrainingData
from bertpre.data.examples import RANDOM_NEXT, SWAPPED
from bertpre.data.make_data import make_data
from bertpre.data.report import DataReport
from bertpre.errors import ConfigError, CorpusError, TokenizerError
from bertpre.tokenizer.vocabulary import build_vocab


def run(
    folder: Path, tokenizer: Path, documents: list[list[str]], **options: Any
) -> tuple[DataReport, PretrainingData]:
    path = folder / "text.txt"
    path.write_text("\n\n".join("\n".join(document) for document in documents) + "\n")
    config = MakeData(**{"workers": 1, "max_unknown_share": 1.0, "eval_fraction": 0.0, **options})
    report = make_data(
        [path], tokenizer=tokenizer, output=folder / "data", config=config, overwrite=True
    )
    return report, PretrainingData(folder / "data")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocabulary of the words w0 to w99, each one token."""
    folder = tmp_path_factory.mktemp("whole")
    text = folder / "text.txt"
    text.write_text(" ".join(f"w{number} w{number}" for number in range(100)))
    build_vocab([text], folder / "tokenizer", config=BuildVocab(token_mode="whole"))
    return folder / "tokenizer"


words = st.integers(0, 99).map("w{}".format)
sentences = st.one_of(
    st.lists(words, min_size=1, max_size=3), st.lists(words, min_size=1, max_size=90)
).map(" ".join)
corpora = st.lists(st.lists(sentences, min_size=1, max_size=6), min_size=1, max_size=3)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    corpora,
    st.sampled_from([8, 9, 16, 64, 128, 512]),
    st.sampled_from(["mlm-nsp", "mlm-sop", "mlm"]),
)
def test_every_example_is_in_the_documents_as_its_label_says(
    tmp_path: Path, whole: Path, corpus: list[list[str]], length: int, objective: str
) -> None:
    rows = [" ".join(document).split() for document in corpus]
    try:
        report, data = run(
            tmp_path, whole, corpus, max_seq_length=length, objective=objective, dupe_factor=2
        )
    except CorpusError:
        # Nothing else can stand in the way of so plain a text.
        if objective == "mlm-nsp":
            assert len({tuple(d) for d in corpus}) == 1 or all(len(d) == 1 for d in corpus)
        else:
            assert objective == "mlm-sop"
            assert all(len(row) == 1 for row in rows)
        return

    examples = data.training_examples(
        np.arange(len(data.records)), epochs=np.zeros(len(data.records), int), seed=0
    )
    original = examples.input_ids.copy()
    original[examples.predicted] = examples.mlm_labels
    ends = np.cumsum(examples.lengths)
    used = 0
    for number, (end, size) in enumerate(zip(ends, examples.lengths, strict=True)):
        assert size <= length
        here = slice(end - size, end)
        tokens = [data.tokenizer.tokens[i] for i in original[here]]
        segment = examples.token_type_ids[here]
        assert tokens[0] == "[CLS]"
        first = tokens[1 : int((segment == 0).sum()) - 1]
        second = tokens[int((segment == 0).sum()) : -1]
        label = None if examples.nsp_labels is None else int(examples.nsp_labels[number])
        is_random = objective == "mlm-nsp" and label == RANDOM_NEXT
        if label == SWAPPED and objective == "mlm-sop":
            first, second = second, first
        if is_random:
            assert any(is_in(first, row) for row in rows)
            assert any(is_in(second, row) for row in rows)
        else:
            assert any(follow(first, second, row, length) for row in rows)
        used += len(first) + (0 if is_random else len(second))
    counts = np.bincount(np.searchsorted(ends, examples.predicted, side="right"))
    expected = np.maximum(1, np.rint(0.15 * examples.lengths))
    text = examples.lengths - (2 if objective == "mlm" else 3)
    assert counts.tolist() == np.minimum(expected, text).astype(int).tolist()
    total = 2 * sum(map(len, rows))
    assert report.used_share == pytest.approx(used / total)
    assert report.used_share + report.truncated_share + report.unused_share == pytest.approx(1)
    if objective == "mlm":
        assert used == total


def is_in(part: list[str], row: list[str]) -> bool:
    return any(row[i : i + len(part)] == part for i in range(len(row) - len(part) + 1))


def follow(first: list[str], second: list[str], row: list[str], length: int) -> bool:
    """Whether ``second`` comes after ``first``: at once, unless both were cut to the budget."""
    if len(first) + len(second) < length - 3:
        return is_in(first + second, row)
    starts = [i for i in range(len(row)) if row[i : i + len(first)] == first]
    return any(is_in(second, row[i + len(first) :]) for i in starts)


def test_a_vocabulary_over_two_bytes_keeps_its_ids(tmp_path: Path) -> None:
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"x{i}" for i in range(70_000))]
    (tmp_path / "vocab.txt").write_text("\n".join(entries) + "\n")
    build_vocab(
        [], tmp_path / "tokenizer",
        config=BuildVocab(vocab_file=str(tmp_path / "vocab.txt"), token_mode="whole"),
    )  # fmt: skip

    _, data = run(
        tmp_path, tmp_path / "tokenizer", [["x69999 x0"], ["x65531 x65530"]], objective="mlm"
    )

    ids = [int(i) for block in data.store.id_blocks() for i in block]
    assert ids == [70_004, 5, 65_536, 65_535]
    assert (tmp_path / "data/tokens/00000.ids.bin").stat().st_size == 16


def test_text_that_no_example_can_take_is_counted(tmp_path: Path, whole: Path) -> None:
    report, _ = run(tmp_path, whole, [["w1"], ["w1 w2 w3"]], objective="mlm-sop")

    assert report.unused_share == pytest.approx(1 / 4)
    assert report.used_share == pytest.approx(3 / 4)
    assert report.truncated_share == 0


def test_text_of_lonely_tokens_gives_no_pair(tmp_path: Path, whole: Path) -> None:
    with pytest.raises(CorpusError, match="each of the 2 training documents is a single token"):
        run(tmp_path, whole, [["w1"], ["w2"]], objective="mlm-sop")


def test_balance_that_cannot_be_reached_is_said(
    tmp_path: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    documents = [[f"w{i} w2"] for i in range(50)] + [["w3", "w4"]]

    run(tmp_path, whole, documents, balance_nsp=True)

    assert "% of the pairs are random, though --balance-nsp asks for half: too many" in caplog.text


def test_what_chance_does_to_few_pairs_is_not_taken_for_a_fault_of_the_text(
    tmp_path: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for passes in range(1, 6):
        documents = [["w1", "w2"], ["w3", "w4"]]
        report, _ = run(tmp_path, whole, documents, balance_nsp=True, dupe_factor=passes)
        assert report.training_examples <= 4 * passes

    assert "of the pairs are random" not in caplog.text


def test_the_report_has_masks_as_they_are_drawn(
    tmp_path: Path, tiny_documents: list[list[str]], tiny_tokenizer: Path
) -> None:
    report, _ = run(
        tmp_path,
        tiny_tokenizer,
        tiny_documents,
        mask_token_share=0.5,
        random_token_share=0.25,
        mask_spans="ngrams",
        ngram_weights="0 1",
    )

    sample = report.mask_sample
    assert sample.examples == min(1000, report.training_examples)
    assert sample.predicted == pytest.approx(0.15, abs=0.01)
    assert sample.masked == pytest.approx(0.5, abs=0.05)
    assert sample.random == pytest.approx(0.25, abs=0.05)
    assert sample.masked + sample.random + sample.kept == pytest.approx(1)
    assert sample.run_length > 1.5
    stored = read_manifest(tmp_path / "data", "data")["report"]
    assert stored["mask_sample"] == asdict(sample)


def test_bytes_on_disk_are_those_of_the_files(
    tmp_path: Path, tiny_documents: list[list[str]], tiny_tokenizer: Path
) -> None:
    report, _ = run(tmp_path, tiny_tokenizer, tiny_documents)

    tokens = sum(path.stat().st_size for path in (tmp_path / "data/tokens").glob("*.bin"))
    (index,) = (tmp_path / "data").glob("index-*")
    assert report.tokens_bytes == tokens
    assert report.index_bytes == sum(path.stat().st_size for path in index.glob("*.bin"))
    sizes = [len("\n".join(document).encode()) for document in tiny_documents]
    assert report.text_bytes == sum(sizes)


def test_a_segmenter_needs_its_package(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jieba", None)

    with pytest.raises(ConfigError) as error:
        make_data(
            [tiny_corpus],
            tokenizer=tiny_tokenizer,
            output=tmp_path / "data",
            config=MakeData(word_segmenter="jieba"),
        )

    assert str(error.value) == (
        "make_data.word_segmenter jieba: the package jieba is not installed — "
        "pip install 'bertpre[zh]'"
    )
    assert not (tmp_path / "data").exists()


def test_a_segmenter_needs_a_tokenizer_that_cuts_han(
    tmp_path: Path, tiny_corpus: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = SimpleNamespace(lcut=str.split, setLogLevel=lambda level: None)
    monkeypatch.setitem(sys.modules, "jieba", package)

    with pytest.raises(TokenizerError, match="does not split text at each Han character"):
        make_data(
            [tiny_corpus],
            tokenizer=whole,
            output=tmp_path / "data",
            config=MakeData(word_segmenter="jieba"),
        )


def test_words_of_a_real_segmenter_are_masked_whole(tmp_path: Path) -> None:
    pytest.importorskip("jieba", reason="the package jieba is missing")
    text = "我来到北京清华大学。"
    (tmp_path / "zh.txt").write_text(text * 3, encoding="utf-8")
    build_vocab([tmp_path / "zh.txt"], tmp_path / "tokenizer", config=BuildVocab())

    _, data = run(
        tmp_path, tmp_path / "tokenizer", [[text]], objective="mlm", word_segmenter="jieba"
    )

    _, starts = data.store.gather(np.array([0]), np.array([len(text)]))
    # jieba's own example: 我 / 来到 / 北京 / 清华大学.
    expected = [True, True, False, True, False, True, False, False, False, True]
    assert starts.tolist() == expected
