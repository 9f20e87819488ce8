"""``bertpre finetune``, ``predict`` and ``fill-mask`` from the outside: lines, status, errors."""

import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from bertpre.artefacts import read_manifest, write_manifest
from bertpre.cli.main import main
from bertpre.config.schema import Finetune, Model
from bertpre.model.bert import initialize
from bertpre.model.folder import save_model
from bertpre.model.heads import BertForPreTraining
from bertpre.tokenizer.tokenizer import Tokenizer

QUICK = ("--num-epochs", "12", "--learning-rate", "3e-3", "--batch-size", "4",
         "--device", "cpu", "--precision", "fp32")  # fmt: skip


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
    save_model(folder, model)
    tokenizer.save_files(folder)
    write_manifest(folder, "checkpoint", {"max_seq_length": 32, "objective": "mlm", "step": 0})
    return folder


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("table") / "train.csv"
    rows = [
        f"{'yes' if subject == 'the cat' else 'no'},{subject} {verb} the river."
        for subject in ("the cat", "a dog")
        for verb in ("sees", "follows", "likes", "remembers", "paints", "describes")
    ]
    path.write_text("\n".join(["is it a cat,sentence", *rows * 2]) + "\n")
    return path


@pytest.fixture(scope="module")
def columns() -> tuple[str, ...]:
    return "--text-column", "sentence", "--label-column", "1"


@pytest.fixture
def model(run, tmp_path, checkpoint, table, columns) -> Path:
    folder = tmp_path / "model"
    ended = run("finetune", checkpoint, "--train", table, "--output", folder, *columns, *QUICK)
    assert ended.code == 0, ended.err
    return folder


def test_finetune_prints_the_summary_and_the_scores(run, tmp_path, checkpoint, table, columns):
    output = tmp_path / "model"

    ended = run("finetune", checkpoint, "--train", table, "--dev", table, "--test", table,
                "--output", output, *columns, *QUICK)  # fmt: skip

    lines = ended.out.splitlines()
    assert ended.code == 0, ended.err
    assert lines[0] == "fine-tuning:"
    assert "  train rows: 24" in lines
    assert "  pooling: mean" in lines
    start = lines.index("\tpart\taccuracy\tmacro-F1\tMatthews\tloss")
    rows = [line.split("\t") for line in lines[start + 1 : start + 7]]
    assert [row[:2] for row in rows] == [
        [rows[0][0], "dev"], ["most common label", "dev"], ["TF-IDF + linear", "dev"],
        [rows[0][0], "test"], ["most common label", "test"], ["TF-IDF + linear", "test"],
    ]  # fmt: skip
    assert rows[0][0] == f"best epoch ({read_manifest(output, 'model')['best_epoch']})"
    assert rows[1][2:] == ["0.5000", "0.3333", "0.0000", ""]
    assert rows[2][2:] == ["1.0000", "1.0000", "1.0000", ""]
    assert lines[start + 7] == "class\tprecision\trecall\tF1\trows"
    assert [line.split("\t")[0] for line in lines[start + 8 :]] == ["no", "yes"]
    assert [line.split("\t")[4] for line in lines[start + 8 :]] == ["12", "12"]
    assert "epoch 12: training loss" in ended.err
    assert f"{checkpoint}: " in ended.err


def test_flags_beat_set_which_beats_the_config_file(run, tmp_path, checkpoint, table, columns):
    config = tmp_path / "experiment.yaml"
    config.write_text("seed: 7\nfinetune: {num_epochs: 5, batch_size: 6, learning_rate: 1e-2}\n")
    output = tmp_path / "model"

    ended = run("finetune", checkpoint, "--train", table, "--output", output, *columns,
                "--config", config, "--set", "finetune.num_epochs=2", "--num-epochs", "1",
                "--set", "finetune.batch_size=4", "--device", "cpu", "--pooling", "cls",
                "--max-seq-length", "16", "--from-scratch")  # fmt: skip

    manifest = read_manifest(output, "model")
    options = manifest["options"]
    assert ended.code == 0, ended.err
    assert (options["num_epochs"], options["batch_size"], options["learning_rate"]) == (1, 4, 0.01)
    assert (options["pooling"], options["max_seq_length"], options["from_scratch"]) == (
        "cls",
        16,
        True,
    )
    assert manifest["seed"] == 7


def test_a_table_without_header_is_read_by_numbers(run, tmp_path, checkpoint, table):
    bare = tmp_path / "bare.data"
    bare.write_text("".join(table.read_text().splitlines(keepends=True)[1:]))

    ended = run("finetune", checkpoint, "--train", bare, "--output", tmp_path / "model",
                "--no-header", "--format", "csv", "--text-column", "2", "--label-column", "1",
                *QUICK)  # fmt: skip

    assert ended.code == 0, ended.err
    assert read_manifest(tmp_path / "model", "model")["classes"] == ["no", "yes"]


def test_predict_reads_the_column_that_training_read(run, tmp_path, model, table):
    output = tmp_path / "out.tsv"

    ended = run("predict", model, table, "--output", output, "--device", "cpu")

    assert ended.code == 0, ended.err
    assert ended.out == (
        f"{output}:\n  rows: 24\n  texts truncated: 0\n  texts without tokens: 0\n"
    )
    assert output.read_text().splitlines()[0] == "prediction\tno\tyes"
    assert len(output.read_text().splitlines()) == 25


def test_predict_reads_another_column_on_request(run, tmp_path, model):
    table = tmp_path / "in.jsonl"
    table.write_text('{"body": "the cat"}\n{"body": ""}\n')
    config = tmp_path / "experiment.yaml"
    config.write_text("finetune: {text_column: body, precision: fp32}\n")

    by_flag = run("predict", model, table, "--output", tmp_path / "a.tsv", "--text-column", "body",
                  "--precision", "fp32")  # fmt: skip
    by_file = run("predict", model, table, "--output", tmp_path / "b.tsv", "--config", config)

    assert (by_flag.code, by_file.code) == (0, 0), by_file.err
    assert (tmp_path / "a.tsv").read_text() == (tmp_path / "b.tsv").read_text()
    assert len((tmp_path / "a.tsv").read_text().splitlines()) == 3


def test_predict_reads_standard_input_and_writes_standard_output(tmp_path, model):
    text = 'id,sentence\n1,the cat\n2,"a dog, likes"\n'

    arguments = ["predict", model, "-", "--output", "-", "--format", "csv"]
    ended = subprocess.run(
        [sys.executable, "-m", "bertpre", *arguments],
        input=text, capture_output=True, text=True, timeout=120, cwd=tmp_path,
    )  # fmt: skip

    lines = ended.stdout.splitlines()
    assert ended.returncode == 0, ended.stderr
    assert lines[0] == "prediction\tno\tyes"
    assert len(lines) == 3


def test_predict_averages_models_and_says_so(run, tmp_path, model, table):
    output, copy = tmp_path / "out.tsv", tmp_path / "copy"
    shutil.copytree(model, copy)

    ended = run("predict", model, copy, table, "--output", output, "--device", "cpu")

    assert ended.code == 0, ended.err
    assert "  models averaged: 2\n" in ended.out


def test_predict_says_how_many_rows_could_not_be_read(run, tmp_path, model):
    table = tmp_path / "in.csv"
    table.write_text("id,sentence\n1,the cat\n2\n")

    refused = run("predict", model, table, "--output", tmp_path / "a.tsv")
    skipped = run("predict", model, table, "--output", tmp_path / "a.tsv", "--on-bad-rows", "skip")

    assert "in.csv: found 1 column, expected at least 2: '2' on line 3" in refused.err
    assert "or give them an empty prediction with --on-bad-rows skip" in refused.err
    assert skipped.code == 0, skipped.err
    assert "  rows without a prediction: 1\n" in skipped.out


def test_finetune_on_pairs_and_numbers_in_folds(run, tmp_path, checkpoint):
    table = tmp_path / "pairs.tsv"
    rows = [f"the cat {'sees ' * (n % 3)}\ta dog\t{0.5 + n % 3}" for n in range(24)]
    table.write_text("\n".join(["a\tb\tscore", *rows]) + "\n")

    ended = run("finetune", checkpoint, "--train", table, "--output", tmp_path / "model",
                "--text-column", "a", "--pair-column", "b", "--label-column", "score",
                "--task", "regression", "--folds", "2", "--seeds", "2", "--no-baseline",
                "--num-epochs", "1", "--learning-rate", "3e-3", "--device", "cpu")  # fmt: skip
    predicted = run("predict", tmp_path / "model", table, "--output", tmp_path / "out.tsv")

    lines = ended.out.splitlines()
    assert ended.code == 0, ended.err
    assert "  task: regression: a number (set by --task)" in lines
    assert "  train rows: 24, in 2 folds, each scored once" in lines
    assert "  models: 4, averaged for predictions" in lines
    start = lines.index("\tpart\tSpearman\tPearson\tRMSE\tloss")
    assert [line.split("\t")[0] for line in lines[start + 1 :]] == [
        "mean prediction of 4", "single models, mean ±sd", "mean label",
    ]  # fmt: skip
    assert "fold-2-seed-1: model 4 of 4" in ended.err
    assert predicted.code == 0, predicted.err
    assert "  models averaged: 4\n" in predicted.out


def test_every_option_is_a_flag_with_its_default(run):
    help_text = " ".join(run("finetune", "--help").out.split())

    for name in Finetune.__pydantic_fields__:
        flag = "no-header" if name == "header" else name.replace("_", "-")
        assert f"--{flag} " in help_text
    for flag, default in [
        ("--folds", ""), ("--seeds", "1"), ("--long-texts", "head"), ("--label-separator", ","),
        ("--class-weights", "none"), ("--focal-gamma", "0.0"), ("--layer-decay", "1.0"),
        ("--early-stopping", ""), ("--adversarial-epsilon", "0.0"), ("--ema-decay", "0.0"),
        ("--baseline / --no-baseline", ""), ("--on-bad-rows", "error"), ("--task", "auto"),
        ("--dev-fraction", "0.1"), ("--metric", "auto"), ("--label-smoothing", "0.0"),
        ("--mask-probability", "0.0"),
    ]:  # fmt: skip
        rest = help_text.partition(f"{flag} ")[2]
        assert rest, flag
        assert not default or f"default: {default}]" in rest[:400], flag
    assert "[one of: auto, accuracy, macro_f1, micro_f1, matthews, " in help_text


def test_predict_refuses_an_existing_output_and_replaces_it_on_request(run, tmp_path, model, table):
    output = tmp_path / "out.tsv"
    output.write_text("precious")

    refused = run("predict", model, table, "--output", output)
    replaced = run("predict", model, table, "--output", output, "--overwrite")

    assert (refused.code, replaced.code) == (1, 0)
    assert f"error: {output}: already exists" in refused.err
    assert output.read_text().startswith("prediction\t")


def test_fill_mask_prints_the_tokens_and_the_filled_text(run, checkpoint):
    ended = run("fill-mask", checkpoint, "the [MASK] sees [MASK].", "--top-k", "2")

    lines = ended.out.splitlines()
    assert ended.code == 0, ended.err
    assert lines[0] == "mask\ttoken\tprobability"
    assert [line.split("\t")[0] for line in lines[1:5]] == ["1", "1", "2", "2"]
    first = lines[1].split("\t")[1]
    assert lines[5].startswith("the" + (first[2:] if first.startswith("##") else f" {first}"))
    assert len(lines) == 6


def test_fill_mask_without_a_mask_says_so(run, checkpoint):
    ended = run("fill-mask", checkpoint, "the cat")

    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        "error: no [MASK] in the text 'the cat'\nwhat to do: replace a word by [MASK]\n"
    )


def test_top_k_below_one_is_wrong_usage(run, checkpoint):
    assert run("fill-mask", checkpoint, "[MASK]", "--top-k", "0").code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["finetune", "CHECKPOINT", "--train", "none.tsv", "--output", "out"],
         "none.tsv: there is no such file"),
        (["finetune", "CHECKPOINT", "--train", "TABLE", "--output", "out"],
         "no column 'text'; found 2 columns: 'is it a cat', 'sentence'"),
        (["finetune", "CHECKPOINT", "--train", "TABLE", "--output", "out",
          "--text-column", "sentence", "--label-column", "sentence"],
         "text_column and label_column are both 'sentence'"),
        (["finetune", "CHECKPOINT", "--train", "TABLE", "--output", "full"], "already exists"),
        (["finetune", "CHECKPOINT", "--train", "TABLE", "--output", "out", "--batch-size", "0"],
         "finetune.batch_size: input should be greater than or equal to 1, found 0"),
        (["predict", "CHECKPOINT", "TABLE", "--output", "out"], "expected a model folder, found"),
        (["predict", "none", "TABLE", "--output", "out"], "none: there is no such folder"),
        (["embed", "none", "TABLE", "--output", "v.npy"], "none: there is no such folder"),
        (["fill-mask", "none", "a [MASK]"], "none: there is no such folder"),
        (["fill-mask", "CHECKPOINT", "a cat"], "no [MASK] in the text 'a cat'"),
        (["export", "none", "--to", "onnx", "--output", "out"], "none: there is no such folder"),
        (["report", "none", "--output", "out"], "none: expected a run folder"),
        (["inspect", "none"], "none: there is no such folder"),
    ],
)  # fmt: skip
def test_faults_are_named_before_torch_is_imported(tmp_path, checkpoint, table, arguments, message):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    named = {"CHECKPOINT": str(checkpoint), "TABLE": str(table)}
    arguments = [named.get(argument, argument) for argument in arguments]
    code = (
        "import atexit, sys\n"
        "heavy = {'torch', 'sklearn', 'matplotlib'}\n"
        "atexit.register(lambda: print('heavy:', sorted(heavy & set(sys.modules))))\n"
        f"sys.argv = ['bertpre', *{arguments!r}]\n"
        "from bertpre.cli.main import main\n"
        "main()\n"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )

    assert result.returncode == 1
    assert message in result.stderr
    assert "what to do: " in result.stderr or "batch_size" in message
    assert result.stdout == "heavy: []\n"
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
