"""The command line as a whole: what it lists, and how it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import bertpre
from bertpre.cli import main
from bertpre.errors import CorpusError

COMMANDS = [
    *("build-vocab", "make-data", "pretrain", "finetune", "chain", "predict"),
    *("fill-mask", "embed", "inspect", "report", "import", "export"),
]
# These make no choices that an experiment's file could hold.
WITHOUT_CONFIG = ("fill-mask", "inspect", "report", "import", "export")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bertpre", *arguments], capture_output=True, text=True, timeout=120
    )


def test_version_is_printed_on_stdout():
    result = run("--version")

    assert (result.returncode, result.stdout) == (0, f"bertpre {bertpre.__version__}\n")


def test_the_installed_script_is_the_same_command():
    script = Path(sys.executable).with_name("bertpre")

    result = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=120)

    assert result.stdout == f"bertpre {bertpre.__version__}\n"


def test_help_lists_the_commands_in_the_order_of_the_work():
    result = run("--help")

    places = [result.stdout.find(f"  {command} ") for command in COMMANDS]
    assert result.returncode == 0
    assert places == sorted(places)
    assert min(places) > 0


def test_without_arguments_the_help_is_shown():
    result = run()

    assert result.returncode == 2
    assert result.stderr.startswith("Usage: python -m bertpre [OPTIONS] COMMAND")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_ends_with_an_example(command):
    result = run(command, "--help")

    assert result.returncode == 0
    assert f"bertpre {command} " in result.stdout.partition("Options:")[0].partition("\n\n")[2]
    for option in ("--config", "--set", "--seed", "--overwrite"):
        assert (option in result.stdout) or command in WITHOUT_CONFIG


def test_an_unknown_command_is_wrong_usage():
    result = run("pre-train")

    assert result.returncode == 2
    assert "No such command 'pre-train'" in result.stderr


def test_an_unknown_option_is_wrong_usage():
    result = run("pretrain", "--stepps", "3")

    assert result.returncode == 2
    assert "No such option: --stepps" in result.stderr


def test_an_error_goes_to_stderr_with_what_to_do_and_nothing_to_stdout(tmp_path):
    result = run("make-data", str(tmp_path / "none.txt"), "--tokenizer", str(tmp_path / "tok"),
                 "--output", str(tmp_path / "out"))  # fmt: skip

    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert "what to do: " in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_error_is_shown_as_message_and_hint_with_its_brackets(monkeypatch, capsys):
    def fail() -> None:
        raise CorpusError("[MASK]: line 3 of a[1].txt is [bold]", "write [b]better[/b] text")

    monkeypatch.setattr(main, "app", fail)

    with pytest.raises(SystemExit) as caught:
        main.main()

    shown = capsys.readouterr()
    assert (caught.value.code, shown.out) == (1, "")
    assert shown.err == (
        "error: [MASK]: line 3 of a[1].txt is [bold]\nwhat to do: write [b]better[/b] text\n"
    )


def test_an_error_without_a_hint_is_one_line(monkeypatch, capsys):
    def fail() -> None:
        raise CorpusError("nothing to read")

    monkeypatch.setattr(main, "app", fail)

    with pytest.raises(SystemExit):
        main.main()

    assert capsys.readouterr().err == "error: nothing to read\n"


def test_a_wrong_option_in_a_config_file_is_an_error_of_every_command(tmp_path):
    config = tmp_path / "experiment.yaml"
    config.write_text("pretrain: {max_step: 3}\n")

    result = run("pretrain", "--data", "x", "--output", "y", "--config", str(config))

    assert result.returncode == 1
    assert "pretrain.max_step: there is no such option" in result.stderr
    assert "did you mean pretrain.max_steps?" in result.stderr


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_does_not_pay_for_heavy_libraries(arguments):
    code = (
        "import atexit, sys\n"
        "heavy = {'torch', 'numpy', 'tokenizers', 'sklearn', 'matplotlib', 'transformers'}\n"
        "atexit.register(lambda: print('heavy:', sorted(heavy & set(sys.modules))))\n"
        f"sys.argv = ['bertpre', *{arguments!r}]\n"
        "from bertpre.cli.main import main\n"
        "main()\n"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )

    assert result.stdout.endswith("heavy: []\n"), result.stderr


def test_a_fault_of_the_system_is_one_message_with_the_file(monkeypatch, capsys):
    def fail() -> None:
        raise OSError(28, "No space left on device", "data/00000.ids.bin")

    monkeypatch.setattr(main, "app", fail)

    with pytest.raises(SystemExit) as caught:
        main.main()

    assert caught.value.code == 1
    assert capsys.readouterr().err == (
        "error: data/00000.ids.bin: No space left on device\n"
        "what to do: check the path, its permissions and free space\n"
    )


def test_paths_with_brackets_are_printed_as_they_are(tmp_path):
    (tmp_path / "a.txt").write_text("a cat\na dog\n")
    output = tmp_path / "exp [new] :100: [" / "v"

    result = run("build-vocab", str(tmp_path / "a.txt"), "--output", str(output))

    assert result.returncode == 0
    assert result.stdout.startswith(f"{output}:\n")


def test_a_terminal_that_cannot_show_a_character_loses_no_result(tmp_path):
    (tmp_path / "a.txt").write_text("猫 と 犬\n" * 3, encoding="utf-8")
    output = tmp_path / "猫"

    result = subprocess.run(
        [sys.executable, "-m", "bertpre", "build-vocab", tmp_path / "a.txt", "--output", output],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )

    assert result.returncode == 0
    assert b"\\u732b:" in result.stdout
    assert (output / "vocab.txt").is_file()


@pytest.mark.parametrize(
    ("item", "limit"),
    [
        ("build_vocab.vocab_size", "less than 2147483648"),
        ("pretrain.max_steps", "less than 2147483648"),
        ("model.hidden_size", "less than or equal to 65536"),
    ],
)
def test_absurd_numbers_are_refused_with_the_limit(tmp_path, item, limit):
    (tmp_path / "a.txt").write_text("a cat\n")

    result = run("build-vocab", str(tmp_path / "a.txt"), "--output", str(tmp_path / "v"),
                 "--set", f"{item}=99999999999999999999999")  # fmt: skip

    assert result.returncode == 1
    assert f"error: {item}: input should be {limit}, found" in result.stderr
    assert not (tmp_path / "v").exists()


def test_a_column_of_strange_digits_is_a_name():
    from bertpre.cli.options import number_or_name

    assert [number_or_name(text) for text in ("2", "²", "２", "text")] == [2, "²", "２", "text"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_command_with_one_line_and_its_exit_code(tmp_path, number):
    command = [sys.executable, "-m", "bertpre", "build-vocab", "-", "--output", tmp_path / "tok"]
    with subprocess.Popen(
        list(map(str, command)), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        while not (tmp_path / ".tok.partial").exists():
            assert process.poll() is None
            time.sleep(0.02)

        process.send_signal(number)
        _, stderr = process.communicate(timeout=120)

    assert process.returncode == 128 + number
    assert stderr == (
        f"stopped by {number.name}: no output was finished; run the same command again\n"
    )
    assert not (tmp_path / "tok").exists()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"GOMP_SPINCOUNT": "3000"}),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
    ],
)
def test_threads_wait_briefly_unless_the_user_says_how(monkeypatch, given, expected):
    variables = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}
    others = {name: value for name, value in os.environ.items() if name not in variables}
    monkeypatch.setattr(os, "environ", {**others, **given})
    monkeypatch.setattr(sys, "argv", ["bertpre", "--version"])

    with pytest.raises(SystemExit):
        main.main()

    assert {name: os.environ[name] for name in variables & os.environ.keys()} == expected
