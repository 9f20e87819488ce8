import errno
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bertpre.artefacts import read_manifest
from bertpre.config.schema import MakeData, TextOptions
from bertpre.corpus import spans
from bertpre.data import dataset as export
from bertpre.data import tokenizing
from bertpre.data.dataset import DecodedExample, PretrainingData, decode_examples
from bertpre.data.examples import RANDOM_NEXT, read_examples
from bertpre.data.make_data import make_data
from bertpre.data.report import DataReport
from bertpre.errors import BertpreError, ConfigError, CorpusError, TokenizerError
from bertpre.tokenizer.tokenizer import Tokenizer

Make = Callable[..., DataReport]


@pytest.fixture
def make(tmp_path: Path, tiny_tokenizer: Path) -> Make:
    def make(text: str | Path, name: str = "data", /, **options: object) -> DataReport:
        path = text
        if isinstance(text, str):
            path = tmp_path / f"{name}.txt"
            path.write_text(text, encoding="utf-8")
        # The tiny vocabulary has no digits, which these texts are full of.
        defaults = {"max_seq_length": 48, "workers": 1, "max_unknown_share": 1.0}
        config = MakeData(**{**defaults, **options})  # type: ignore[arg-type]
        return make_data([path], tokenizer=tiny_tokenizer, output=tmp_path / name, config=config)

    return make


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_equal_runs_give_equal_bytes_whatever_the_workers(
    make: Make, tiny_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (spans, tokenizing):
        monkeypatch.setattr(module, "SPAN_BYTES", 2_000)  # several blocks in a small text
    monkeypatch.setattr(tokenizing, "_FEWEST_FOR_WORKERS", 4_000)
    monkeypatch.setattr(tokenizing, "SHARD_SIZE", 5_000)

    for workers in (1, 2, 3, 7):
        make(tiny_corpus, f"data{workers}", workers=workers)

    one, *others = (files(tmp_path / f"data{workers}") for workers in (1, 2, 3, 7))
    assert all(other == one for other in others)
    assert "tokens/00002.ids.bin" in one


def test_make_data_never_imports_torch(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    arguments = [str(tiny_corpus), "--tokenizer", str(tiny_tokenizer), "--workers", "1"]
    arguments += ["--max-seq-length", "48", "--output", str(tmp_path / "data")]
    arguments += ["--export-jsonl", str(tmp_path / "examples.jsonl")]
    program = (
        "import sys; from bertpre.cli.main import main\n"
        f"sys.argv = ['bertpre', 'make-data', *{arguments!r}]\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "print('imported:', *({'torch', 'bertpre.data.make_data'} & sys.modules.keys()))"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert ended.stdout.splitlines()[-1:] == ["imported: bertpre.data.make_data"], ended.stderr
    assert (tmp_path / "examples.jsonl").is_file()


def test_every_nsp_label_is_right_by_the_text(
    tiny_data: Path, tiny_documents: list[list[str]]
) -> None:
    data = PretrainingData(tiny_data)
    # The documents again, as one row of ids each, found in the store without its offsets.
    rows = [
        [int(i) for sentence in document for i in data.tokenizer.encode(sentence).ids]
        for document in tiny_documents
    ]
    ends = np.cumsum([len(row) for row in rows])
    examples = read_examples(data.records[:], data.store, data.tokenizer, with_nsp=data.with_nsp)
    starts = np.cumsum(examples.lengths) - examples.lengths
    num_true = num_random = 0
    for record, start, length in zip(data.records, starts, examples.lengths, strict=True):
        ids = examples.input_ids[start : start + length].tolist()
        segment = examples.token_type_ids[start : start + length].tolist()
        a_length, b_length = int(record["a_length"]), int(record["b_length"])
        a, b = ids[1 : 1 + a_length], ids[2 + a_length : -1]
        assert ids[0] == data.tokenizer.cls_id
        assert ids[1 + a_length] == ids[-1] == data.tokenizer.sep_id
        assert segment == [0] * (a_length + 2) + [1] * (b_length + 1)
        document_a = int(np.searchsorted(ends, record["a_start"], side="right"))
        document_b = int(np.searchsorted(ends, record["b_start"], side="right"))
        place_a = int(record["a_start"]) - int(ends[document_a] - len(rows[document_a]))
        place_b = int(record["b_start"]) - int(ends[document_b] - len(rows[document_b]))
        assert rows[document_a][place_a : place_a + a_length] == a
        assert rows[document_b][place_b : place_b + b_length] == b
        if record["label"] == RANDOM_NEXT:
            assert rows[document_a] != rows[document_b]
            num_random += 1
        else:
            assert document_a == document_b
            assert place_a + a_length <= place_b
            if length < data.max_seq_length:
                assert place_a + a_length == place_b
            num_true += 1
    assert min(num_true, num_random) > 50


def test_held_out_documents_are_in_no_training_example(tiny_data: Path) -> None:
    data = PretrainingData(tiny_data)

    ((starts, hashes),) = data.store.documents()

    def documents(records: np.ndarray) -> set[int]:
        places = np.concatenate([records["a_start"], records["b_start"]])
        offsets = data.store.token_offsets(starts[:-1])
        return {int(hashes[n]) for n in np.searchsorted(offsets, places, side="right") - 1}

    assert len(data.held_out) > 5
    assert documents(data.records[:]).isdisjoint(documents(data.held_out[:]))


def test_the_report_counts_what_is_there(
    make: Make, tiny_corpus: Path, tiny_documents: list[list[str]], tmp_path: Path
) -> None:
    report = make(tiny_corpus, dupe_factor=3, eval_fraction=0.1)

    assert report.documents == 80
    assert report.sentences == sum(map(len, tiny_documents))
    assert report.training_documents + report.held_out_documents == 80
    assert report.passes == 3
    data = PretrainingData(tmp_path / "data")
    examples = read_examples(data.records[:], data.store, data.tokenizer, with_nsp=data.with_nsp)
    assert report.training_examples == len(examples.lengths)
    assert report.tokens_per_epoch == examples.lengths.sum()
    assert report.longest == examples.lengths.max() <= 48
    assert report.random_next_share == pytest.approx(float(examples.nsp_labels.mean()))  # type: ignore[union-attr]
    assert 0.5 < report.random_next_share < 0.7
    batch = data.training_examples(
        np.arange(len(data.records)), epochs=np.zeros(len(data.records), int), seed=0
    )
    assert report.predictions_per_epoch == len(batch.predicted)
    assert read_manifest(tmp_path / "data", "data")["report"]["documents"] == 80


def test_unigrams_count_the_training_text_only(tiny_data: Path) -> None:
    data = PretrainingData(tiny_data)

    everything = np.bincount(np.concatenate(list(data.store.id_blocks())), minlength=90)

    share = data.unigrams.sum() / everything.sum()
    assert 0.8 < share < 0.97
    assert (data.unigrams <= everything[: len(data.unigrams)]).all()


def test_packed_text_keeps_every_token(make: Make, tiny_corpus: Path, tmp_path: Path) -> None:
    report = make(tiny_corpus, objective="mlm", eval_fraction=0.0)

    data = PretrainingData(tmp_path / "data")
    assert report.truncated_share == 0
    assert report.random_next_share is None
    assert report.passes == 1
    examples = read_examples(data.records[:], data.store, data.tokenizer, with_nsp=data.with_nsp)
    text = examples.input_ids[examples.maskable]
    assert text.tolist() == np.concatenate(list(data.store.id_blocks())).tolist()
    assert examples.nsp_labels is None
    assert examples.token_type_ids.max() == 0


def test_static_masks_go_by_the_pass_and_dynamic_ones_by_the_epoch(
    make: Make, tiny_corpus: Path, tmp_path: Path
) -> None:
    make(tiny_corpus, "static", masking="static", dupe_factor=2)
    make(tiny_corpus, "dynamic", dupe_factor=2)
    numbers = np.arange(20)

    def predicted(name: str, epoch: int, seed: int = 0) -> list[int]:
        data = PretrainingData(tmp_path / name)
        epochs = np.full(20, epoch)
        return data.training_examples(numbers, epochs=epochs, seed=seed).predicted.tolist()

    assert predicted("static", 0) == predicted("static", 1) == predicted("static", 1, seed=5)
    assert predicted("dynamic", 0) != predicted("dynamic", 1)
    assert predicted("dynamic", 0) != predicted("dynamic", 0, seed=5)


def test_static_masks_of_a_pass_are_the_dynamic_ones_of_that_epoch(
    make: Make, tiny_corpus: Path, tmp_path: Path
) -> None:
    make(tiny_corpus, "static", masking="static", dupe_factor=3)
    make(tiny_corpus, "dynamic", dupe_factor=3)
    static, dynamic = (PretrainingData(tmp_path / name) for name in ("static", "dynamic"))
    first, second, _ = static.pass_ends.tolist()
    # The last and the first example of each pass, and which pass it is.
    numbers = np.array([0, first - 1, first, second - 1, second, len(static.records) - 1])
    passes = np.array([0, 0, 1, 1, 2, 2])

    found = static.training_examples(numbers, epochs=np.zeros(6, int), seed=5)

    expected = dynamic.training_examples(numbers, epochs=passes, seed=static.seed)
    assert found.predicted.tolist() == expected.predicted.tolist()
    assert found.input_ids.tolist() == expected.input_ids.tolist()


def test_each_pass_draws_other_pairs(tiny_data: Path) -> None:
    data = PretrainingData(tiny_data)
    end = int(data.pass_ends[0])

    assert len(data.pass_ends) == 2
    assert data.records[:end].tolist() != data.records[end:].tolist()


def test_an_epoch_is_a_permutation_of_all_examples(tiny_data: Path) -> None:
    data = PretrainingData(tiny_data)
    size = len(data.records)

    epochs, numbers = data.order(0, 2 * size, seed=3)

    assert epochs.tolist() == [0] * size + [1] * size
    assert sorted(numbers[:size]) == sorted(numbers[size:]) == list(range(size))
    assert numbers[:size].tolist() != numbers[size:].tolist()
    assert data.order(size - 3, 6, seed=3)[1].tolist() == numbers[size - 3 : size + 3].tolist()


def test_export_writes_finished_examples(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    path = tmp_path / "examples.jsonl"
    config = MakeData(max_seq_length=48, dupe_factor=2, workers=1)
    report = make_data(
        [tiny_corpus],
        tokenizer=tiny_tokenizer,
        output=tmp_path / "data",
        config=config,
        export_jsonl_to=path,
    )

    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == report.training_examples
    for row in rows:
        assert row["tokens"][0] == "[CLS]"
        assert row["tokens"][-1] == "[SEP]"
        assert len(row["tokens"]) == len(row["token_type_ids"])
        # SEMANTICS of the reference: max(1, round(0.15 * length)), specials counted.
        assert len(row["masked_positions"]) == max(1, round(0.15 * len(row["tokens"])))
        assert len(row["masked_positions"]) == len(row["masked_tokens"])
        assert not {"[CLS]", "[SEP]", "[PAD]", "[MASK]"} & set(row["masked_tokens"])
        assert row["nsp_label"] in (0, 1)
    assert {row["pass"] for row in rows} == {0, 1}


def test_sample_examples_mark_what_is_predicted(tiny_data: Path) -> None:
    lines = [str(example) for example in decode_examples(PretrainingData(tiny_data), 4)]

    assert len(lines) == 4
    for line in lines:
        assert line.startswith(("is next: [CLS]", "random: [CLS]"))
        assert "→" in line


def test_t01_documents_of_one_sentence_cannot_teach_nsp(make: Make, tmp_path: Path) -> None:
    text = "".join(f"the cat sees number {i}.\n\n" for i in range(120))

    with pytest.raises(
        CorpusError, match=r"100 % of the 118 training documents have only one"
    ) as error:
        make(text)

    assert "--objective mlm" in str(error.value)
    assert not (tmp_path / "data").exists()
    assert not list(tmp_path.glob(".data*"))
    assert make(text, "mlm", objective="mlm", eval_fraction=0.0).training_examples == 120


def test_columns_teach_nsp_only_with_marks_between_documents(make: Make, tmp_path: Path) -> None:
    columns = tmp_path / "text.conll"
    sentences = [f"the O\ncat O\nsees O\nnumber O\n{i} O\n" for i in range(40)]
    columns.write_text("\n".join(sentences))

    with pytest.raises(CorpusError, match="documents have only one") as error:
        make(columns)
    assert "turn next-sentence prediction off with --objective mlm" in str(error.value)
    assert "blank lines" not in str(error.value)

    make(columns, "mlm", objective="mlm")
    columns.write_text("-DOCSTART- O\n\n" + "\n".join(sentences))
    with pytest.raises(CorpusError, match="two different documents") as error:
        make(columns)
    assert "-DOCSTART-" in str(error.value)
    columns.write_text("".join(f"-DOCSTART- O\n\n{one}\n{one}\n" for one in sentences))
    report = make(columns, eval_fraction=0.0)
    assert (report.corpus.documents, report.corpus.sentences) == (40, 80)


def test_mostly_one_sentence_documents_are_a_warning(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    one = "".join(f"a dog {i}.\n\n" for i in range(30))
    two = "".join(f"the cat {i}.\nthe moon.\n\n" for i in range(10))

    make(one + two, eval_fraction=0.0)

    assert "30 of 40 training documents (75 %) have only one sentence" in caplog.text


def test_t02_one_document_cannot_teach_nsp(make: Make) -> None:
    text = "".join(f"the dog likes number {i}.\n" for i in range(40))

    with pytest.raises(CorpusError, match="two different documents") as error:
        make(text)

    assert "found documents: 1, different ones: 1, sentences: 40" in str(error.value)


def test_equal_documents_count_once(make: Make) -> None:
    with pytest.raises(CorpusError, match="found documents: 30, different ones: 1, "):
        make("the cat.\na dog.\n\n" * 30)


def test_t03_two_documents_give_both_labels(make: Make, tmp_path: Path) -> None:
    text = "a dog.\nthe cat.\nthe moon.\n\nmy sister.\nsome bread.\nan empty house.\n"

    make(text, dupe_factor=10, eval_fraction=0.0)

    data = PretrainingData(tmp_path / "data")
    (border,) = data.store.token_offsets(np.array([3]))
    assert set(data.records["label"]) == {0, 1}
    for record in data.records:
        same = (record["a_start"] < border) == (record["b_start"] < border)
        assert same == (record["label"] == 0)


def test_the_tails_of_few_documents_are_held_out(make: Make) -> None:
    report = make(
        "".join(f"the cat sees the moon {'again ' * i}.\n" for i in range(30)),
        objective="mlm",
        eval_fraction=0.1,
    )

    assert (report.training_documents, report.held_out_documents) == (1, 1)
    assert report.held_out_examples >= 1


def test_when_nothing_can_be_held_out_it_is_said(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    report = make("the cat sees the moon.\n", objective="mlm")

    assert report.held_out_examples == 0
    assert "no document has a third sentence to hold out, so" in caplog.text


def test_one_held_out_document_has_no_pairs(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    make("a dog.\nthe cat.\nthe moon.\n\nsome bread.\n\nthe harbour.\n", eval_fraction=0.2)

    assert (
        "the held-out text is one document, but NSP needs two: there are no held-out examples"
        in caplog.text
    )


def test_t20_sentences_of_one_token_keep_a_prediction(make: Make, tmp_path: Path) -> None:
    make("a\nthe\n\na dog\n\x01\n\nthe\nthe cat sees\na\n", eval_fraction=0.0, max_seq_length=8)

    data = PretrainingData(tmp_path / "data")
    examples = data.training_examples(
        np.arange(len(data.records)), epochs=np.zeros(len(data.records), int), seed=0
    )
    ends = np.cumsum(examples.lengths)
    counts = np.diff(np.searchsorted(examples.predicted, [0, *ends]))
    assert counts.min() >= 1
    assert set(examples.mlm_labels.tolist()) <= set(data.tokenizer.ordinary_ids.tolist()) | {
        data.tokenizer.unk_id
    }


def test_text_that_normalises_to_nothing_is_an_error(make: Make, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no token is left after normalising 1 documents"):
        make("\x01\x02\n\x03\n")

    assert not (tmp_path / "data").exists()


def test_an_interrupted_run_keeps_its_finished_shards(
    make: Make,
    tiny_corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for module in (spans, tokenizing):
        monkeypatch.setattr(module, "SPAN_BYTES", 1_000)
    monkeypatch.setattr(tokenizing, "_FEWEST_FOR_WORKERS", 4_000)
    monkeypatch.setattr(tokenizing, "SHARD_SIZE", 3_000)
    make(tiny_corpus, "whole")

    class Killed(BaseException):
        """Like a signal: not an error of the input."""

    encode, calls = Tokenizer.encode_all, 0

    def encode_some(self: Tokenizer, texts: list[str], *, segment: None) -> object:
        nonlocal calls
        calls += 1
        if calls == 8:
            raise Killed
        return encode(self, texts, segment=segment)

    with monkeypatch.context() as context:
        context.setattr(Tokenizer, "encode_all", encode_some)
        with pytest.raises(Killed):
            make(tiny_corpus, "broken")
    finished = len(list((tmp_path / ".broken.partial/tokens").glob("*.json")))
    assert finished >= 1
    caplog.set_level("INFO")
    make(tiny_corpus, "broken")

    assert f"kept from an earlier run: {finished} of " in caplog.text
    assert files(tmp_path / "broken") == files(tmp_path / "whole")


def test_a_missing_tokenizer_is_named(tmp_path: Path, tiny_corpus: Path) -> None:
    with pytest.raises((TokenizerError, BertpreError), match="nowhere"):
        make_data([tiny_corpus], tokenizer=tmp_path / "nowhere", output=tmp_path / "data")

    assert not (tmp_path / "data").exists()


def test_of_a_very_long_example_only_the_first_tokens_are_shown() -> None:
    example = DecodedExample(
        tokens=("a",) * 600, token_type_ids=(0,) * 600, predicted={1: "b", 590: "c"}, label=None
    )

    assert str(example) == "a {a→b} " + "a " * 510 + "… and 88 more"


def test_an_export_that_exists_is_refused(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    path = tmp_path / "examples.jsonl"
    path.write_text("mine")

    with pytest.raises(ConfigError, match=r"examples\.jsonl: exists already"):
        make_data(
            [tiny_corpus], tokenizer=tiny_tokenizer, output=tmp_path / "data", export_jsonl_to=path
        )

    assert path.read_text() == "mine"


def test_records_of_a_table_are_documents(tmp_path: Path, tiny_tokenizer: Path) -> None:
    table = tmp_path / "rows.tsv"
    table.write_text("label\ttext\n" + "".join(f"x\tthe cat likes {i}\n" for i in range(40)))
    options = replace(TextOptions(), text_column="text")

    report = make_data(
        [table],
        tokenizer=tiny_tokenizer,
        output=tmp_path / "data",
        config=MakeData(
            text=options, objective="mlm", max_seq_length=16, workers=1, max_unknown_share=1.0
        ),
    )

    assert report.documents == 40


def test_text_that_is_mostly_cut_off_is_a_warning(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    long = "\n".join("the cat sees " * 30 + f"{i}." for i in range(6))

    report = make(f"{long}\n\n{long}\nmore.\n", eval_fraction=0.0, max_seq_length=16)

    assert report.truncated_share > 0.5
    assert "of the text is cut off in each pass" in caplog.text
    assert "--objective mlm, which cuts nothing off" in caplog.text


def test_what_reading_skipped_is_in_the_report(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text('{"text": "the cat."}\nnot json\n{"text": ""}\n{"text": "a dog."}\n')

    report = make(path, objective="mlm")

    assert (report.documents, report.corpus.bad_records, report.corpus.empty_documents) == (2, 1, 1)


def test_t04_too_many_unknown_tokens_are_refused_with_the_characters(
    make: Make, tmp_path: Path
) -> None:
    text = "the cat 中文 sees 文.\na dog.\n\nthe moon.\n"

    with pytest.raises(CorpusError) as error:
        make(text, objective="mlm", max_seq_length=16, max_unknown_share=0.05)

    assert "tokens are [UNK], which a model cannot learn from; expected at most 5%; " in str(
        error.value
    )
    assert "most often for '文' 2, '中' 1" in error.value.message
    assert "--max-unknown-share" in str(error.value.hint)
    assert not (tmp_path / "data").exists()
    report = make(text, objective="mlm", max_unknown_share=0.5, eval_fraction=0.0)
    assert report.unknown_most_frequent == (("文", 2), ("中", 1))
    assert read_manifest(tmp_path / "data", "data")["report"]["unknown_most_frequent"][0][1] == 2


def test_the_report_has_the_lengths_and_pieces_of_the_store(make: Make, tmp_path: Path) -> None:
    report = make("a dog.\nthe cat.\n\nthe moon.\n", objective="mlm", eval_fraction=0.0)

    tokenizer = Tokenizer.load(tmp_path / "data/tokenizer")
    encodings = [tokenizer.encode(text) for text in ("a dog.", "the cat.", "the moon.")]
    lengths = sorted(len(encoding.ids) for encoding in encodings)
    words = sum(int(encoding.word_starts.sum()) for encoding in encodings)
    assert report.sentence_length_quantiles[::5] == (lengths[0], lengths[-1])
    assert report.pieces_per_word == sum(lengths) / words
    assert report.unknown_most_frequent == ()


@pytest.mark.parametrize("workers", [1, 2])
def test_the_first_error_in_the_text_is_named_whatever_the_workers(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(tokenizing, "_FEWEST_FOR_WORKERS", 100)
    folder = tmp_path / "texts"
    folder.mkdir()
    good, bad = b"the cat sees a dog.\n\n", b"the \xff cat\n\n"
    for name, content in (("a", good * 50), ("b", good + bad), ("c", bad)):
        (folder / f"{name}.txt").write_bytes(content)
    (folder / "d.tsv").write_text("other\nthe cat\n")

    with pytest.raises(CorpusError, match=r"b\.txt: line 3, byte 5 of the line"):
        make(folder, "data", workers=workers)


def test_duplicates_are_removed_alike_whatever_the_workers(
    make: Make, tiny_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (spans, tokenizing):
        monkeypatch.setattr(module, "SPAN_BYTES", 2_000)
    monkeypatch.setattr(tokenizing, "_FEWEST_FOR_WORKERS", 4_000)
    text = tmp_path / "twice.txt"
    text.write_text(f"{tiny_corpus.read_text()}\n" * 2)
    options = TextOptions(dedup="documents")

    for workers in (1, 2):
        report = make(text, f"data{workers}", workers=workers, text=options)

    assert report.documents == 80
    assert report.corpus.removed_documents == 80
    assert files(tmp_path / "data1") == files(tmp_path / "data2")


def test_an_export_never_replaces_the_input(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes(tiny_corpus.read_bytes())

    for given in (corpus, tmp_path):
        with pytest.raises(ConfigError, match=r"corpus\.txt: is part of the input"):
            make_data(
                [given],
                tokenizer=tiny_tokenizer,
                output=tmp_path / "data",
                overwrite=True,
                export_jsonl_to=corpus,
            )

    assert corpus.read_bytes() == tiny_corpus.read_bytes()


@pytest.mark.parametrize("name", ["data", "data/examples.jsonl"])
def test_an_export_into_the_output_is_refused(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, name: str
) -> None:
    with pytest.raises(ConfigError, match=rf"{name}: would be in the data folder"):
        make_data(
            [tiny_corpus],
            tokenizer=tiny_tokenizer,
            output=tmp_path / "data",
            export_jsonl_to=tmp_path / name,
        )

    assert list(tmp_path.iterdir()) == []


def test_an_export_without_room_says_that_the_data_folder_is_finished(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*_: object) -> Iterator[dict[str, object]]:
        yield {"tokens": []}
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(export, "_rows", fill)
    data, examples = tmp_path / "data", tmp_path / "examples.jsonl"

    with pytest.raises(ConfigError) as error:
        make_data([tiny_corpus], tokenizer=tiny_tokenizer, output=data, export_jsonl_to=examples)

    assert error.value.message == (
        f"{examples}: cannot be written (No space left on device); {data} is finished without it"
    )
    assert f"by --tokens {data} and choose another --output" in str(error.value.hint)
    assert list(tmp_path.iterdir()) == [data]
    assert len(PretrainingData(data).records) > 0


def test_an_export_without_a_folder_is_refused_before_the_work(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    with pytest.raises(ConfigError, match=r"there is no folder .*nowhere — create it first"):
        make_data(
            [tiny_corpus],
            tokenizer=tiny_tokenizer,
            output=tmp_path / "data",
            export_jsonl_to=tmp_path / "nowhere/examples.jsonl",
        )

    assert not (tmp_path / "data").exists()


def test_t24_rows_of_a_table_of_pairs_become_examples_as_they_are(
    make: Make, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    rows = [("the cat sees", "the moon"), ("a dog", ""), ("the end", "the cat")]
    table = tmp_path / "pairs.tsv"
    table.write_text("a\tb\n" + "".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    tokenizer = Tokenizer.load(tiny_tokenizer)

    report = make(
        table, objective="mlm", eval_fraction=0, text=TextOptions(text_column="a", pair_column="b")
    )

    data = PretrainingData(tmp_path / "data")
    found = read_examples(data.records, data.store, data.tokenizer, with_nsp=False)
    expected = [[a, b] if b else [a] for a, b in rows]
    ids, segments = [], []
    for texts in expected:
        for segment, text in enumerate(texts):
            part = [*([] if segment else [tokenizer.cls_id]), *tokenizer.encode(text).ids]
            ids += [*part, tokenizer.sep_id]
            segments += [segment] * (len(part) + 1)
    assert found.input_ids.tolist() == ids
    assert found.token_type_ids.tolist() == segments
    assert (report.training_examples, report.random_next_share) == (3, None)
    assert report.truncated_share == 0


def test_long_rows_of_a_table_of_pairs_are_not_sent_to_the_objective_that_they_have(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = tmp_path / "pairs.tsv"
    table.write_text("a\tb\n" + "the the the the the\tthe the the the the\n" * 3)

    make(table, objective="mlm", eval_fraction=0, max_seq_length=8,
         text=TextOptions(text_column="a", pair_column="b"))  # fmt: skip

    assert (
        "50 % of the text is cut off in each pass, as its rows are long for pairs of 8 tokens: "
        "10 on average; raise --max-seq-length"
    ) in caplog.messages


def test_pairs_of_a_table_have_no_next_sentence(make: Make, tmp_path: Path) -> None:
    table = tmp_path / "pairs.tsv"
    table.write_text("text\tb\nthe cat\tthe moon\n", encoding="utf-8")

    with pytest.raises(ConfigError, match="examples directly, without the next-sentence") as no:
        make(table, text=TextOptions(pair_column="b"))

    assert no.value.hint == "pass --objective mlm with --pair-column"
