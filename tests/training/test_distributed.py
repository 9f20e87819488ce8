"""Several processes on a CPU, over gloo: the same order, masks and gradients as one."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from bertpre.config.load import config_to_dict
from bertpre.config.schema import Config
from bertpre.errors import ConfigError
from bertpre.training.metrics import read_metrics
from bertpre.training.pretrain import pretrain

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture
def no_dropout(tmp_path: Path, tiny_config: Config) -> Path:
    values = config_to_dict(tiny_config)
    values["model"] |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def start(num_ranks: int, *arguments: object) -> subprocess.Popen[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", num_ranks,
        "--master-port", port, "-m", "bertpre", "pretrain", *arguments,
    ]  # fmt: skip
    return subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
    )  # fmt: skip


def run(num_ranks: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    process = start(num_ranks, *arguments)
    stdout, stderr = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def children(parent: int) -> list[int]:
    """The processes that torchrun started, each in a session of its own."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent:
                found.append(int(path.parent.name))
    return found


def test_two_processes_train_as_one_does(tmp_path: Path, tiny_data: Path, no_dropout: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for num_ranks, output in ((1, one), (2, two)):
        result = run(
            num_ranks, "--data", tiny_data, "--output", output, "--config", no_dropout,
            "--set", "pretrain.max_steps=4",
        )  # fmt: skip
        assert result.returncode == 0, result.stderr

    assert "2 processes" in result.stdout
    # Only the first one speaks.
    assert result.stdout.count("done: 4 steps") == 1
    first, second = read_metrics(one), read_metrics(two)
    assert [row["tokens_seen"] for row in first] == [row["tokens_seen"] for row in second]
    for before, after in zip(first, second, strict=True):
        assert after["mlm_loss"] == pytest.approx(before["mlm_loss"], rel=1e-4)
        assert after["nsp_accuracy"] == pytest.approx(before["nsp_accuracy"], abs=0.02)
    # The first update has the same gradient: fp32 sums in another order.
    assert second[0]["grad_norm"] == pytest.approx(first[0]["grad_norm"], rel=1e-5)


def test_killed_processes_go_on_to_the_same_bits(
    tmp_path: Path, tiny_data: Path, tiny_config: Config
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(config_to_dict(tiny_config)))
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    sets = ("--set", "pretrain.max_steps=300", "--set", "pretrain.save_every_steps=8")
    arguments = ("--data", tiny_data, "--config", config, *sets)
    assert run(2, *arguments, "--output", unbroken).returncode == 0
    process = start(2, *arguments, "--output", broken)
    while not list((broken / "checkpoints").glob("step-*/manifest.json")):
        assert process.poll() is None
        time.sleep(0.05)
    for pid in [process.pid, *children(process.pid)]:
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    assert not (broken / "final").exists()

    result = run(2, *arguments, "--output", broken)

    assert result.returncode == 0, result.stderr
    weights = [load_file(run / "final" / "model.safetensors") for run in (unbroken, broken)]
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name]), name


def test_a_process_that_is_killed_ends_the_others_with_a_message(
    tmp_path: Path, tiny_data: Path, no_dropout: Path
) -> None:
    output = tmp_path / "run"
    process = start(
        2, "--data", tiny_data, "--config", no_dropout, "--output", output,
        "--set", "pretrain.max_steps=100000",
    )  # fmt: skip
    while not list((output / "checkpoints").glob("step-*/manifest.json")):
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(children(process.pid)[-1], signal.SIGKILL)
    _, stderr = process.communicate(timeout=120)

    assert process.returncode != 0
    assert "lost the others: " in stderr
    assert "the same command resumes from the last checkpoint" in " ".join(stderr.split())
    assert "[rank0]: Traceback" not in stderr
    assert "[rank1]: Traceback" not in stderr


def test_a_signal_stops_all_processes_after_one_checkpoint(
    tmp_path: Path, tiny_data: Path, no_dropout: Path
) -> None:
    output = tmp_path / "run"
    process = start(
        2, "--data", tiny_data, "--config", no_dropout, "--output", output,
        "--set", "pretrain.max_steps=100000", "--set", "pretrain.save_every_steps=100000",
    )  # fmt: skip
    while len(read_metrics(output)) < 3:
        assert process.poll() is None
        time.sleep(0.05)

    os.kill(process.pid, signal.SIGTERM)  # torchrun passes it on
    process.communicate(timeout=120)

    (folder,) = (output / "checkpoints").iterdir()
    assert (folder / "manifest.json").is_file()


def test_a_rank_that_fails_ends_all(tmp_path: Path, tiny_data: Path, no_dropout: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(tiny_data, broken)
    (broken / "manifest.json").write_text(json.dumps({"kind": "data"}))

    result = run(2, "--data", broken, "--config", no_dropout, "--output", tmp_path / "run")

    assert result.returncode != 0
    assert not (tmp_path / "run").exists()


def test_more_processes_than_examples_are_refused(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bertpre.training import setup
    from bertpre.training.distributed import Ranks

    monkeypatch.setattr(setup, "join_ranks", lambda device: Ranks(0, 9))

    with pytest.raises(ConfigError, match="9 processes, but a global batch of only 8 examples"):
        pretrain(tiny_data, output=tmp_path / "run", config=tiny_config)
