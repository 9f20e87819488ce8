"""``bertpre pretrain`` as a command."""

import json
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
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config_to_dict(tiny_config)))
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["pretrain", *map(str, arguments)])


def test_a_run_prints_its_summary_its_metrics_and_where_the_model_is(
    tmp_path: Path, tiny_data: Path, config_file: Path
) -> None:
    command = ["--data", tiny_data, "--output", tmp_path / "run", "--config", config_file]

    first, again = run(*command), run(*command)

    assert first.exit_code == again.exit_code == 0
    assert "  objective: mlm-nsp, 15% predicted, dynamic masks\n" in first.stdout
    assert first.stdout.endswith(f"done: 12 steps; model in {tmp_path}/run/final\n")
    assert "step      1  training  MLM loss 4." in first.stderr
    assert "step     12  held out  MLM loss " in first.stderr
    assert "(word frequencies alone: " in first.stderr
    assert again.stdout == (
        f"{tmp_path}/run is already finished: 12 steps; model in {tmp_path}/run/final\n"
    )


def test_every_option_reaches_the_stage(tmp_path: Path, tiny_data: Path, config_file: Path) -> None:
    result = run(
        "--data", tiny_data, "--output", tmp_path / "run", "--config", config_file,
        "--max-steps", 5, "--save-every-steps", 2, "--device", "cpu", "--precision", "bf16",
        "--seed", 4, "--set", "pretrain.optimizer.weight_decay=0.1",
    )  # fmt: skip

    assert result.exit_code == 0
    stored = yaml.safe_load((tmp_path / "run/config.yaml").read_text())
    assert stored["seed"] == 4
    assert stored["pretrain"]["max_steps"] == 5
    assert stored["pretrain"]["save_every_steps"] == 2
    assert stored["pretrain"]["optimizer"]["weight_decay"] == 0.1
    assert "device: cpu, bf16" in result.stdout


def test_a_dry_run_writes_nothing(tmp_path: Path, tiny_data: Path, config_file: Path) -> None:
    result = run(
        "--data", tiny_data, "--output", tmp_path / "run", "--config", config_file, "--dry-run"
    )

    assert result.exit_code == 0
    assert "updates: 12 of 8 examples" in result.stdout
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_the_same_command_goes_on(
    tmp_path: Path, tiny_data: Path, config_file: Path, number: int, code: int
) -> None:
    output = tmp_path / "run"
    command = [
        sys.executable, "-m", "bertpre", "pretrain", "--data", tiny_data, "--output", output,
        "--config", config_file, "--max-steps", "100000", "--save-every-steps", "100000",
        "--set", "pretrain.eval_every_steps=100000",
    ]  # fmt: skip
    with subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True) as process:
        metrics = output / "metrics.jsonl"
        while not metrics.is_file() or metrics.read_text().count("\n") < 3:
            time.sleep(0.05)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=120)

    assert process.returncode == code
    (checkpoint,) = (output / "checkpoints").iterdir()
    step = json.loads((checkpoint / "trainer/state.json").read_text())["cursor"]["step"]
    assert "stopping after this update, with a checkpoint; a second signal stops at once" in stderr
    assert f"stopped after step {step}; saved {checkpoint}; run the same command again" in stderr


def test_a_signal_while_the_speed_is_measured_stops_before_the_first_update(
    tmp_path: Path, tiny_data: Path, config_file: Path
) -> None:
    command = [
        sys.executable, "-m", "bertpre", "pretrain", "--data", tiny_data,
        "--output", tmp_path / "run", "--config", config_file, "--max-hours", "1",
        "--set", "pretrain.global_batch_size=4096",
    ]  # fmt: skip
    with subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=120)

    assert first == "measuring the speed with up to 23 updates, which are then discarded\n"
    assert process.returncode == 143
    assert rest.endswith("stopped before the first update: nothing was written\n")
    assert not (tmp_path / "run").exists()


def test_faults_are_found_before_pytorch_is_imported(
    tmp_path: Path, tiny_data: Path, config_file: Path
) -> None:
    code = (
        "import sys; from bertpre.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code, 'torch' in sys.modules)"
    )
    command = [
        sys.executable, "-c", code, "pretrain", "--data", tiny_data, "--output", tmp_path / "run",
        "--config", config_file, "--set", "model.max_position_embeddings=16",
    ]  # fmt: skip

    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)

    assert result.stdout == "1 False\n"
    assert "model.max_position_embeddings: 16, but the examples of" in result.stderr
    assert "have up to 48 tokens" in result.stderr
    assert "what to do: change the model section" in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_length_by_a_flag_goes_before_another_in_the_file(
    tmp_path: Path, tiny_data: Path, config_file: Path
) -> None:
    command = ["--data", tiny_data, "--output", tmp_path / "run", "--config", config_file]

    result = run(*command, "--max-epochs", 100, "--stop-after-hours", 1e-9)

    assert result.exit_code == 0
    assert "stopped after step 1; saved" in result.stderr
    stored = yaml.safe_load((tmp_path / "run/config.yaml").read_text())
    assert stored["pretrain"]["max_steps"] is None
    assert stored["decided"]["max_steps"] > 100


def test_a_run_takes_its_shape_from_the_checkpoint_that_it_starts_from(
    tmp_path: Path, tiny_data: Path, config_file: Path
) -> None:
    first = tmp_path / "first"
    run("--data", tiny_data, "--output", first, "--config", config_file, "--max-steps", 1)

    result = run(
        "--data", tiny_data, "--output", tmp_path / "second", "--init-from", first,
        "--max-steps", 1, "--set", "pretrain.global_batch_size=8",
    )  # fmt: skip

    assert result.exit_code == 0
    assert "model: 2 layers x 32, 2 heads" in result.stdout
    assert f"starts from: {first}" in result.stdout
    assert "weights loaded; randomly initialized: none; not used: none" in result.stderr


def test_a_finished_run_is_extended(tmp_path: Path, tiny_data: Path, config_file: Path) -> None:
    command = [
        "--data", tiny_data, "--output", tmp_path / "run", "--config", config_file,
        "--set", "pretrain.schedule.name=constant",
    ]  # fmt: skip

    run(*command)
    result = run(*command, "--extend-to", 14)

    assert result.exit_code == 0
    assert "done: 14 steps" in result.stdout
