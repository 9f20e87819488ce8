"""``bertpre chain`` as a command."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from bertpre.cli.main import app
from bertpre.config.load import config_to_dict
from bertpre.config.schema import Config


@pytest.fixture
def config_file(tmp_path: Path, tiny_config: Config) -> Path:
    values = config_to_dict(tiny_config)
    values["build_vocab"]["vocab_size"] = 90
    values["make_data"] |= {"max_seq_length": 48, "dupe_factor": 2, "workers": 1}
    values["pretrain"] |= {"eval_every_steps": 12, "save_every_steps": 100_000}
    values["finetune"] |= {"num_epochs": 1, "device": "cpu", "baseline": False}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["chain", *map(str, arguments)])


def test_the_tables_and_lines_are_those_of_the_four_commands(
    tmp_path: Path, tiny_corpus: Path, tables: Path, config_file: Path
) -> None:
    work = tmp_path / "work"
    command = [tiny_corpus, "--train", tables / "train.tsv", "--test", tables / "test.tsv",
               "--output", work, "--config", config_file]  # fmt: skip

    first, again = run(*command), run(*command)

    assert (first.exit_code, again.exit_code) == (0, 0)
    titles = [f"{work}/tokenizer:\n", f"{work}/data:\n", "\nrun:\n", "\nfine-tuning:\n"]
    places = [first.stdout.find(title) for title in titles]
    assert places == sorted(places)
    assert places[0] == 0
    assert "  vocabulary: 90 entries of 90 requested\n" in first.stdout
    assert "examples, as {what the model sees→what it must predict}:\n" in first.stdout
    assert f"done: 12 steps; model in {work}/run/final\n" in first.stdout
    assert "\tpart\taccuracy\tmacro-F1\tMatthews\tloss\nbest epoch (1)\tdev\t" in first.stdout
    assert f"build-vocab: {work}/tokenizer\nmake-data: {work}/data\npretrain: " in first.stderr
    assert again.stdout == "".join(
        f"{work}/{stage} is finished and unchanged: skipped\n"
        for stage in ("tokenizer", "data", "run", "model")
    )


def test_every_flag_reaches_its_stages(
    tmp_path: Path, tiny_corpus: Path, config_file: Path
) -> None:
    sentences = [line for line in tiny_corpus.read_text().splitlines() if line]
    table = tmp_path / "rows.data"
    table.write_text("".join(f"{number},{line}\n" for number, line in enumerate(sentences)))

    result = run(
        table, "--output", tmp_path / "work", "--config", config_file, "--format", "csv",
        "--text-column", 2, "--no-header", "--quoting", "none", "--encoding", "cp1252",
        "--dedup", "lines", "--max-steps", 3, "--seed", 4,
        "--set", "make_data.objective=mlm", "--set", "finetune.seeds=2",
    )  # fmt: skip

    assert result.exit_code == 0, result.output
    record = yaml.safe_load((tmp_path / "work/chain.json").read_text())["stages"]
    for stage, section in (("tokenizer", "build_vocab"), ("data", "make_data")):
        options = record[stage]["options"]
        read = {name: options[f"{section}.text.{name}"] for name in ("format", "text_column")}
        assert read == {"format": "csv", "text_column": 2}
        assert options[f"{section}.text.header"] is False
        assert options[f"{section}.text.dedup"] == "lines"
        assert options["seed"] == 4
    stored = yaml.safe_load((tmp_path / "work/run/config.yaml").read_text())
    assert (stored["seed"], stored["pretrain"]["max_steps"]) == (4, 3)
    assert "model" not in record


def test_a_wrong_label_column_is_found_before_anything_is_made(
    tmp_path: Path, tiny_corpus: Path, tables: Path, config_file: Path
) -> None:
    code = (
        "import sys; from bertpre.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code, 'torch' in sys.modules)"
    )
    command = [
        sys.executable, "-c", code, "chain", tiny_corpus, "--train", tables / "train.tsv",
        "--output", tmp_path / "work", "--config", config_file, "--label-column", "subject",
    ]  # fmt: skip

    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)

    assert result.stdout == "1 False\n"
    assert "train.tsv: line 1: no column 'subject'; found 2 columns" in result.stderr
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_pretraining_saves_and_the_same_command_goes_on(
    tmp_path: Path, tiny_corpus: Path, config_file: Path, number: int, code: int
) -> None:
    work = tmp_path / "work"
    command = [
        sys.executable, "-m", "bertpre", "chain", tiny_corpus, "--output", work,
        "--config", config_file, "--max-steps", "100000",
    ]  # fmt: skip
    with subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True) as process:
        metrics = work / "run/metrics.jsonl"
        while not metrics.is_file() or metrics.read_text().count("\n") < 3:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=300)
    again = run(
        tiny_corpus, "--output", work, "--config", config_file, "--max-steps", 100000,
        "--set", "pretrain.stop_after_hours=1e-9",
    )  # fmt: skip

    assert process.returncode == code
    assert "stopping after this update, with a checkpoint; a second signal stops at once" in stderr
    (step,) = [line for line in stderr.splitlines() if line.startswith("stopped after step ")]
    assert step.endswith("; run the same command again to resume")
    assert again.exit_code == 0
    assert again.stdout.startswith(f"{work}/tokenizer is finished and unchanged")
    before, after = (
        int(line.split(";")[0].rpartition(" ")[2].replace(",", ""))
        for line in (step, again.stderr[again.stderr.index("stopped after step ") :])
    )
    assert after == before + 1


def test_a_signal_in_an_earlier_stage_says_that_the_chain_goes_on(
    tmp_path: Path, tiny_corpus: Path, config_file: Path
) -> None:
    large = tmp_path / "large.txt"
    large.write_text(tiny_corpus.read_text() * 2000)
    command = [
        sys.executable, "-m", "bertpre", "chain", large, "--output", tmp_path / "work",
        "--config", config_file,
    ]  # fmt: skip
    with subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "work/.tokenizer.partial").exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=300)

    assert process.returncode == 130
    assert stderr.endswith(
        "stopped by SIGINT: finished stages are kept; run the same command again to continue\n"
    )


@pytest.mark.parametrize(("rank", "message"), [("0", "error: the chain runs in one"), ("1", "")])
def test_under_torchrun_one_process_says_why_not(
    tmp_path: Path, tiny_corpus: Path, rank: str, message: str
) -> None:
    command = [sys.executable, "-m", "bertpre", "chain", tiny_corpus, "--output", tmp_path / "w"]

    result = subprocess.run(
        ["env", f"RANK={rank}", "WORLD_SIZE=2", *map(str, command)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip

    assert result.returncode == 1
    assert result.stderr.startswith(message)
    assert bool(result.stderr) == bool(message)
    assert not (tmp_path / "w").exists()
