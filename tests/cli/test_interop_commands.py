"""``bertpre inspect``, ``report``, ``import``, ``export`` and ``embed`` from the outside."""

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from rich.console import Console

from bertpre.artefacts import write_manifest
from bertpre.cli import render, render_sections
from bertpre.cli.main import main
from bertpre.config.schema import Model
from bertpre.inspection.sections import Bars, Curves
from bertpre.model.bert import initialize
from bertpre.model.folder import save_model
from bertpre.model.heads import BertForPreTraining
from bertpre.tokenizer.tokenizer import Tokenizer


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(monkeypatch, capsys) -> Callable[..., Ended]:
    """Run a command in this process."""

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["bertpre", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Ended(int(ended.value.code or 0), captured.out, captured.err)

    yield run
    log = logging.getLogger("bertpre")  # as it was before the command set it up
    log.handlers, log.propagate = [], True
    log.setLevel(logging.NOTSET)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, tiny_tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    tokenizer = Tokenizer.load(tiny_tokenizer)
    shape = Model(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
    )
    model = BertForPreTraining(shape, vocab_size=tokenizer.vocab_size, with_nsp=False)
    initialize(model, 0.1, torch.Generator().manual_seed(5))
    save_model(folder, model, extra_config={"pad_token_id": tokenizer.pad_id})
    tokenizer.save_files(folder)
    write_manifest(folder, "checkpoint", {"objective": "mlm", "step": 7, "seed": 0})
    return folder


def test_inspect_says_what_a_folder_is_and_what_is_in_it(run, checkpoint, tiny_data):
    shown = run("inspect", checkpoint)
    data = run("inspect", tiny_data, "--examples", "1", "--text", "a dog")

    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(f"{checkpoint}: checkpoint\n")
    assert "  step: 7\n" in shown.out
    assert "\ntensors:\nname\tshape\ttimes\tparameters\n" in shown.out
    assert "bert.encoder.layer.*.attention.self.key.weight\t32 x 32\t1\t1,024\n" in shown.out
    assert data.out.count("→was") == 0
    assert data.out.count("[CLS]") == 1
    assert "\na dog\t" in data.out


def test_inspect_refuses_what_is_no_folder_of_ours(run, tmp_path):
    ended = run("inspect", tmp_path)

    assert ended.code == 1
    assert ended.err == (
        f"error: {tmp_path}: expected a tokenizer, data, run, checkpoint or model folder, found "
        "nothing\nwhat to do: name a folder that a bertpre command wrote; an unfinished one has no "
        "manifest yet\n"
    )


def test_export_and_import_go_round(run, checkpoint, tmp_path):
    exported = run("export", checkpoint, "--to", "huggingface", "--output", tmp_path / "out")
    (tmp_path / "out/manifest.json").unlink()  # as if others had made it
    imported = run("import", tmp_path / "out", "--output", tmp_path / "in")

    assert (exported.code, imported.code) == (0, 0), imported.err
    assert "  README.md: " in exported.out
    lines = imported.out.splitlines()
    assert "loaded\tbert.embeddings.word_embeddings.weight\t90 x 32" in lines
    assert "absent\tNSP head\t" in lines
    assert "  made: a checkpoint, BertForMaskedLM" in lines
    weights = "model.safetensors"
    assert (tmp_path / "in" / weights).read_bytes() == (checkpoint / weights).read_bytes()


def test_import_lists_what_it_does_not_use(run, checkpoint, tmp_path):
    from safetensors.torch import load_file, save_file

    run("export", checkpoint, "--to", "huggingface", "--output", tmp_path / "out")
    (tmp_path / "out/manifest.json").unlink()
    tensors = load_file(tmp_path / "out/model.safetensors")
    save_file({**tensors, "qa.weight": torch.zeros(2)}, tmp_path / "out/model.safetensors")
    with (tmp_path / "out/vocab.txt").open("a") as file:
        file.write("newword\n")
    (tmp_path / "out/tokenizer.json").unlink()

    refused = run("import", tmp_path / "out", "--output", tmp_path / "in")
    imported = run("import", tmp_path / "out", "--output", tmp_path / "in", "--add-rows")

    assert refused.code == 1
    assert "without a row: 'newword'" in refused.err
    assert "unused\tqa.weight\t\n" in imported.out
    assert "  entries with random rows: 1: 'newword'\n" in imported.out


def test_the_rows_that_import_adds_go_by_the_seed(run, checkpoint, tmp_path):
    from safetensors.torch import load_file

    run("export", checkpoint, "--to", "huggingface", "--output", tmp_path / "out")
    (tmp_path / "out/manifest.json").unlink()
    (tmp_path / "out/tokenizer.json").unlink()
    with (tmp_path / "out/vocab.txt").open("a") as file:
        file.write("newword\n")

    for name, seed in (("a", 4), ("b", 4), ("c", 5)):
        ended = run("import", tmp_path / "out", "--output", tmp_path / name, "--add-rows",
                    "--seed", seed)  # fmt: skip
        assert ended.code == 0, ended.err

    first, again, other = (
        load_file(tmp_path / name / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
        for name in "abc"
    )
    assert torch.equal(first, again)
    assert not torch.equal(first[-1], other[-1])


def test_another_target_is_wrong_usage(run, checkpoint, tmp_path):
    ended = run("export", checkpoint, "--to", "tflite", "--output", tmp_path / "out")

    assert ended.code == 2
    assert "expected huggingface or onnx, found 'tflite'" in ended.err


def test_embed_writes_a_vector_a_row(run, checkpoint, tmp_path):
    (tmp_path / "t.tsv").write_text("text\nthe cat\na dog\n")

    ended = run(
        "embed", checkpoint, tmp_path / "t.tsv", "--output", tmp_path / "v.npy", "--normalize",
        "--pooling", "cls", "--device", "cpu",
    )  # fmt: skip

    assert (ended.code, ended.err) == (0, "")
    assert ended.out == (
        f"{tmp_path / 'v.npy'}:\n  rows: 2\n  numbers per row: 32\n  texts truncated: 0\n"
    )
    np.testing.assert_allclose(np.linalg.norm(np.load(tmp_path / "v.npy"), axis=1), 1, atol=1e-6)


def test_embed_says_how_many_rows_have_no_vector(run, checkpoint, tmp_path):
    (tmp_path / "t.tsv").write_text("id\ttext\n1\tthe cat\n2\n3\ta dog\n")

    ended = run(
        "embed", checkpoint, tmp_path / "t.tsv", "--output", tmp_path / "v.npy",
        "--on-bad-rows", "skip", "--device", "cpu",
    )  # fmt: skip

    assert ended.code == 0
    assert ended.out.endswith("  rows without a vector: 1\n")
    assert np.isnan(np.load(tmp_path / "v.npy")).all(axis=1).tolist() == [False, True, False]


def test_embed_reads_tables_as_predict_does(run, checkpoint, tmp_path):
    plain, other = tmp_path / "plain.tsv", tmp_path / "other.txt"
    plain.write_text('text\na "dog"\na cat\n')
    other.write_bytes('text\n"a ""dog"""\na cat\n'.encode("utf-16") + b"\x00\xd8")
    options = ("--device", "cpu", "--quoting")

    first = run("embed", checkpoint, plain, "--output", tmp_path / "a.tsv", *options, "none")
    second = run(
        "embed", checkpoint, other, "--output", tmp_path / "b.tsv", *options, "csv",
        "--format", "tsv", "--encoding", "utf-16", "--on-bad-bytes", "skip",
    )  # fmt: skip
    with plain.open("rb") as file:
        piped = subprocess.run(
            [sys.executable, "-m", "bertpre", "embed", checkpoint, "-", "--format", "tsv",
             "--output", tmp_path / "c.tsv", *options, "none"],
            stdin=file, check=False,
        )  # fmt: skip

    assert (first.code, second.code, piped.returncode) == (0, 0, 0)
    vectors = (tmp_path / "a.tsv").read_bytes()
    assert (tmp_path / "b.tsv").read_bytes() == vectors
    assert (tmp_path / "c.tsv").read_bytes() == vectors


def test_fill_mask_takes_a_pair(run, checkpoint):
    ended = run("fill-mask", checkpoint, "the [MASK] cat", "--pair", "a [MASK]", "--top-k", "2")

    lines = ended.out.splitlines()
    assert lines[0] == "mask\ttoken\tprobability"
    assert [line[0] for line in lines[1:5]] == ["1", "1", "2", "2"]
    assert len(lines) == 7
    assert "[MASK]" not in lines[5] + lines[6]


def test_report_tells_what_it_found(run, chain_run, tmp_path):
    ended = run("report", chain_run, "--output", tmp_path / "r.html")

    assert ended.code == 0
    assert "  data: not beside the run; pass it with --data\n" in ended.out
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.fixture
def chain_run(tmp_path, tiny_data, tiny_config) -> Path:
    import dataclasses

    from bertpre.training.pretrain import pretrain

    pretraining = dataclasses.replace(tiny_config.pretrain, max_steps=2, save_every_steps=2)
    config = dataclasses.replace(tiny_config, pretrain=pretraining)
    pretrain(tiny_data, output=tmp_path / "alone/run", config=config)
    return tmp_path / "alone/run"


@pytest.fixture
def terminal(monkeypatch) -> Console:
    """What the sections are drawn on: a terminal of 100 columns."""
    console = Console(force_terminal=True, width=100, record=True, color_system=None)
    monkeypatch.setattr(render, "out", console)
    return console


def test_bars_are_as_long_as_their_counts_in_a_terminal(terminal):
    render_sections.sections([Bars("lengths", [("1-8", 10), ("9-16", 5), ("17-24", 0)])])

    lines = terminal.export_text().splitlines()
    assert [line.count("█") for line in lines] == [0, 40, 20, 0]
    assert lines[3].split() == ["17-24", "0"]


def test_curves_run_from_corner_to_corner_in_a_terminal(terminal):
    line = [(float(step), float(step)) for step in range(101)]

    render_sections.sections(
        [Curves("loss", "step", {"training": line, "flat": [(0, 0), (100, 0)]})]
    )

    lines = terminal.export_text().splitlines()
    assert lines[0] == "loss"
    assert lines[1].split()[0] == "100"  # the highest, and a dot in the last column
    assert lines[1].rstrip()[-1] > "⠀"
    assert lines[14].split()[0] == "0"
    assert lines[15].split() == ["0", "step", "100"]
    assert lines[16].split() == ["●", "training", "●", "flat"]
    # A rising diagonal: the first dot of each row is further left than that of the row above.
    firsts = [min(i for i, c in enumerate(row) if c > "⠀") for row in lines[1:14]]
    assert firsts == sorted(firsts, reverse=True)


def test_curves_without_a_terminal_are_a_few_points_and_the_last(capsys):
    line = [(step, step / 10) for step in range(100)]

    render_sections.sections([Curves("loss", "step", {"training": line})])

    rows = [row.split("\t") for row in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["step", "loss, training"]
    assert rows[1] == ["0", "0"]
    assert rows[-1] == ["99", "9.9"]
    assert len(rows) <= 14
