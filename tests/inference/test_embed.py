"""Sentence vectors, against the hidden states of the transformers library."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from bertpre.config.schema import Embed
from bertpre.errors import ConfigError, CorpusError
from bertpre.inference.embed import embed

CPU = Embed(device="cpu", precision="fp32")
TEXTS = ["the cat sees the river.", "a dog", "our teacher likes some bread near the harbour."]
PAIRS = ["once again", "the old sailor paints the moon", "a"]


@pytest.fixture
def table(tmp_path) -> Path:
    path = tmp_path / "t.tsv"
    rows = [f"{text}\t{pair}" for text, pair in zip(TEXTS, PAIRS, strict=True)]
    path.write_text("\n".join(["text\tother", *rows]) + "\n", encoding="utf-8")
    return path


def expected(folder: Path, pooling: str, *, pairs: bool) -> np.ndarray:
    """The same by the transformers library, a text at a time."""
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenize = transformers.AutoTokenizer.from_pretrained(folder)
    rows = []
    for text, pair in zip(TEXTS, PAIRS, strict=True):
        given = tokenize(text, pair if pairs else None, return_tensors="pt")
        with torch.no_grad():
            hidden = model(**given).last_hidden_state[0]
        rows.append(hidden[0] if pooling == "cls" else hidden.mean(dim=0))
    return torch.stack(rows).numpy()


@pytest.mark.parity
@pytest.mark.parametrize("pairs", [False, True], ids=["texts", "pairs"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_those_of_transformers(tiny_checkpoint, table, tmp_path, pooling, pairs):
    pair_column = "other" if pairs else None
    config = dataclasses.replace(CPU, pooling=pooling, pair_column=pair_column)

    report = embed(tiny_checkpoint, table, output=tmp_path / "v.npy", config=config)

    found = np.load(tmp_path / "v.npy")
    assert (report.num_rows, report.size, report.num_truncated) == (3, 32, 0)
    np.testing.assert_allclose(
        found, expected(tiny_checkpoint, pooling, pairs=pairs), atol=1e-5, rtol=0
    )


def test_both_forms_of_file_hold_the_same_numbers(tiny_checkpoint, table, tmp_path):
    for name in ("v.npy", "v.tsv"):
        embed(tiny_checkpoint, table, output=tmp_path / name, config=CPU)

    lines = (tmp_path / "v.tsv").read_text().splitlines()
    written = np.array([[float(cell) for cell in line.split("\t")] for line in lines], np.float32)
    assert (written == np.load(tmp_path / "v.npy")).all()


def test_vectors_of_length_one_keep_their_direction(tiny_checkpoint, table, tmp_path):
    embed(tiny_checkpoint, table, output=tmp_path / "a.npy", config=CPU)
    scaled = dataclasses.replace(CPU, normalize=True)
    embed(tiny_checkpoint, table, output=tmp_path / "b.npy", config=scaled)

    plain, unit = np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy")
    lengths = np.linalg.norm(plain, axis=1, keepdims=True)
    np.testing.assert_allclose(unit, plain / lengths, atol=1e-6)


def test_a_table_of_many_rows_keeps_its_order(tiny_checkpoint, table, tmp_path):
    rows = [TEXTS[i % 3] for i in range(5000)]
    (tmp_path / "many.tsv").write_text("\n".join(["text", *rows]) + "\n", encoding="utf-8")
    done: list[int] = []

    embed(tiny_checkpoint, table, output=tmp_path / "few.npy", config=CPU)
    embed(
        tiny_checkpoint,
        tmp_path / "many.tsv",
        output=tmp_path / "v.npy",
        config=CPU,
        on_rows=done.append,
    )

    few, many = np.load(tmp_path / "few.npy"), np.load(tmp_path / "v.npy")
    assert many.shape == (5000, 32)
    assert done == [4096, 5000]
    np.testing.assert_allclose(many, few[np.arange(5000) % 3], atol=1e-6)


def test_long_texts_are_cut_the_longer_one_first(tiny_checkpoint, tmp_path):
    (tmp_path / "t.tsv").write_text(f"text\tother\n{'a dog ' * 40}\ta dog\na dog\ta dog\n")
    config = dataclasses.replace(CPU, pair_column="other")

    report = embed(tiny_checkpoint, tmp_path / "t.tsv", output=tmp_path / "v.npy", config=config)

    assert report.num_truncated == 1
    # The same as a first text that was cut by hand: 32 tokens, of them 3 control tokens and the
    # tokens of the second text.
    from bertpre.finetuning.batches import Encoder
    from bertpre.tokenizer.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(tiny_checkpoint)
    encoder = Encoder(tokenizer=tokenizer, max_seq_length=32)
    second = tokenizer.encode("a dog").ids.tolist()
    first = tokenizer.encode("a dog " * 40).ids.tolist()[: 32 - 3 - len(second)]
    cut = [tokenizer.cls_id, *first, tokenizer.sep_id, *second, tokenizer.sep_id]
    assert encoder.texts(["a dog " * 40], ["a dog"]).input_ids.tolist() == cut


@pytest.mark.parametrize(("asked", "room"), [(None, 30), (12, 10), (50, 48)])
def test_as_much_is_read_as_pretraining_saw_or_as_is_asked_for(
    tiny_checkpoint, tmp_path, asked, room
):
    # "the" is one token; the checkpoint saw 32, and has positions for 64.
    rows = ["the " * 60, "the " * room, "the " * (room - 1)]
    (tmp_path / "t.tsv").write_text("text\n" + "\n".join(map(str.strip, rows)) + "\n")
    config = dataclasses.replace(CPU, max_seq_length=asked)

    report = embed(tiny_checkpoint, tmp_path / "t.tsv", output=tmp_path / "v.npy", config=config)

    cut, whole, shorter = np.load(tmp_path / "v.npy")
    np.testing.assert_allclose(cut, whole, atol=1e-6)
    assert np.abs(cut - shorter).max() > 1e-4
    assert report.num_truncated == 1


def test_equal_long_texts_are_cut_in_turn(tiny_checkpoint):
    from bertpre.finetuning.batches import Encoder
    from bertpre.tokenizer.tokenizer import Tokenizer

    encoder = Encoder(tokenizer=Tokenizer.load(tiny_checkpoint), max_seq_length=23)

    row = encoder.texts(["a " * 30], ["a " * 30])

    assert row.lengths.tolist() == [23]
    assert row.second_starts.tolist() == [2 + 10]
    assert row.num_truncated == 1


def test_runs_and_models_will_do_and_rows_without_words_too(tiny_model, tmp_path):
    (tmp_path / "t.tsv").write_text("1\n\n \n", encoding="utf-8")
    config = dataclasses.replace(CPU, header=False, text_column=1)

    report = embed(tiny_model, tmp_path / "t.tsv", output=tmp_path / "v.tsv", config=config)

    lines = (tmp_path / "v.tsv").read_text().splitlines()
    assert len(lines) == report.num_rows
    assert all(len(line.split("\t")) == 32 for line in lines)


def test_faults_are_errors_that_leave_nothing(tiny_checkpoint, table, tmp_path):
    before = sorted(tmp_path.iterdir())
    (tmp_path / "empty.tsv").write_text("text\n")

    for output, config, given, error, message in [
        ("v.txt", CPU, table, ConfigError, r"v.txt: expected a file name that ends with .npy or"),
        ("no/v.npy", CPU, table, ConfigError, r"no/v.npy: there is no folder .*/no — make it"),
        ("t.tsv", CPU, table, ConfigError, r"t.tsv: is also the input"),
        ("v.npy", CPU, tmp_path / "empty.tsv", CorpusError, r"empty.tsv: has no rows; expected"),
        (
            "v.npy",
            dataclasses.replace(CPU, max_seq_length=65),
            table,
            ConfigError,
            r"embed.max_seq_length: 65, but the encoder has 64 positions — pass --max-seq-length",
        ),
        (
            "v.npy",
            dataclasses.replace(CPU, text_column="no"),
            table,
            CorpusError,
            r"'no'",
        ),
    ]:
        with pytest.raises(error, match=message):
            embed(tiny_checkpoint, given, output=tmp_path / output, config=config)
    (tmp_path / "empty.tsv").unlink()
    assert sorted(tmp_path.iterdir()) == before


def test_an_existing_file_is_kept_unless_told_otherwise(tiny_checkpoint, table, tmp_path):
    (tmp_path / "v.npy").write_text("x")
    (tmp_path / "d.npy").mkdir()

    with pytest.raises(ConfigError, match=r"v.npy: already exists — choose another"):
        embed(tiny_checkpoint, table, output=tmp_path / "v.npy", config=CPU)
    with pytest.raises(ConfigError, match=r"d.npy: is a folder; expected a file"):
        embed(tiny_checkpoint, table, output=tmp_path / "d.npy", config=CPU)
    embed(tiny_checkpoint, table, output=tmp_path / "v.npy", config=CPU, overwrite=True)

    assert np.load(tmp_path / "v.npy").shape == (3, 32)


def test_sentences_of_a_column_file_have_the_vectors_of_their_joined_tokens(
    tiny_checkpoint, tmp_path
):
    columns, table = tmp_path / "t.conll", tmp_path / "t.tsv"
    sentences = [text.split() for text in TEXTS]
    columns.write_text("\n\n".join("\n".join(f"{w} O" for w in words) for words in sentences))
    table.write_text("\n".join(["text", *TEXTS]))

    for path in (columns, table):
        embed(tiny_checkpoint, path, output=path.with_suffix(path.suffix + ".npy"), config=CPU)

    found, expected = (np.load(tmp_path / name) for name in ("t.conll.npy", "t.tsv.npy"))
    assert len(found) == 3
    assert (found == expected).all()
