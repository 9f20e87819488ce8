"""``bertpre build-vocab`` as a command."""

import subprocess
import sys
from pathlib import Path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bertpre", "build-vocab", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_report_is_printed_on_stdout(tmp_path):
    (tmp_path / "a.txt").write_text("A cat, a cat.\n\nno dog.\n" * 20)

    result = run(tmp_path, "a.txt", "--output", "tok", "--vocab-size", "100", "--lowercase")

    assert result.returncode == 0
    assert result.stderr == (
        "warning: 86 % of the documents exactly repeat an earlier one, which a model "
        "memorises; --dedup documents removes them\n"
    )
    assert result.stdout == (
        "tok:\n"
        "  documents: 21, 10% of them with only one sentence\n"
        "  sentences: 40\n"
        "  characters: 400\n"
        "  characters per sentence: 7 (5 %), 7 (25 %), 7 (50 %), 13 (75 %), 13 (95 %), 13 (99 %)\n"
        "  sentences per document: 1 (5 %), 2 (25 %), 2 (50 %), 2 (75 %), 2 (95 %), 2 (99 %)\n"
        "  longest line: 13 characters\n"
        "  exact duplicates: 95.0% of the lines, 85.7% of the documents\n"
        "  words: 180 (6 distinct)\n"
        "  vocabulary: 23 entries of 100 requested\n"
        "  characters left out: 0\n"
        "  words that become [UNK]: 0.000 %\n"
        "  pieces per word: 1.000\n"
    )
    assert sorted(path.name for path in (tmp_path / "tok").iterdir()) == [
        "manifest.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt",
    ]  # fmt: skip


def test_every_option_reaches_the_stage(tmp_path):
    (tmp_path / "a.data").write_text("1,É b b\n2,É e\n,\n")

    result = run(
        tmp_path, "a.data", "--output", "tok", "--vocab-size", "7", "--min-frequency", "1",
        "--token-mode", "whole", "--lowercase", "--strip-accents", "--format", "csv",
        "--text-column", "2", "--no-header", "--document", "line", "--seed", "3",
    )  # fmt: skip

    assert result.returncode == 0
    assert (tmp_path / "tok" / "vocab.txt").read_text().split() == [
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "e", "b",
    ]  # fmt: skip
    assert "  tokens left out: 0\n" in result.stdout
    assert "  empty documents skipped: 1\n" in result.stdout


def test_a_ready_vocabulary_needs_no_text(tmp_path):
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
    (tmp_path / "v.txt").write_text("\n".join(entries))
    (tmp_path / "e.txt").write_text("B-1\n")

    result = run(
        tmp_path, "--output", "tok", "--vocab-file", "v.txt", "--extra-tokens", "e.txt",
        "--lowercase",
    )  # fmt: skip

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "tok:\n  vocabulary: 7 entries, as given\n"
    assert (tmp_path / "tok" / "vocab.txt").read_text().split() == [*entries, "b-1"]


def test_a_sample_is_said(tmp_path):
    (tmp_path / "a.txt").write_text("\n\n".join(f"word{i} aa bb" for i in range(300)))

    result = run(tmp_path, "a.txt", "--output", "tok", "--sample-bytes", "2000", "--seed", "1")

    assert result.returncode == 0
    assert "  sample: " in result.stdout
    assert " of 3,790 bytes\n" in result.stdout


def test_what_was_left_out_is_named(tmp_path):
    (tmp_path / "a.txt").write_text("a a a b b c", encoding="utf-8")

    result = run(
        tmp_path, "a.txt", "--output", "tok", "--set", "build_vocab.vocab_size=6",
        "--max-unknown-share", "0.5",
    )  # fmt: skip

    assert "  characters left out: 2, most frequently 'b' 2, 'c' 1\n" in result.stdout
    assert "  words that become [UNK]: 50.000 %\n" in result.stdout
    assert (result.returncode, result.stderr) == (0, "")


def test_options_come_from_a_config_file_too(tmp_path):
    (tmp_path / "a.txt").write_text("Cat cat\n")
    (tmp_path / "c.yaml").write_text("build_vocab: {token_mode: whole, lowercase: true}\n")

    result = run(tmp_path, "a.txt", "--output", "tok", "--config", "c.yaml")

    assert result.returncode == 0
    assert (tmp_path / "tok" / "vocab.txt").read_text().split()[5:] == ["cat"]


def test_an_input_error_leaves_nothing(tmp_path):
    (tmp_path / "a.tsv").write_text("label\tbody\n1\ttext\n")

    result = run(tmp_path, "a.tsv", "--output", "new/tok")

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "error: a.tsv: line 1: no column 'text'; found 2 columns: 'label', 'body'\n"
        "what to do: choose one of these with --text-column or the like; or, if line 1 is not "
        "a header, pass --no-header and the column's number\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["a.tsv"]


def test_overwriting_needs_the_flag(tmp_path):
    (tmp_path / "a.txt").write_text("a cat\n")
    run(tmp_path, "a.txt", "--output", "tok")

    refused = run(tmp_path, "a.txt", "--output", "tok", "--lowercase")
    allowed = run(tmp_path, "a.txt", "--output", "tok", "--lowercase", "--overwrite")

    assert refused.returncode == 1
    assert "tok: already exists" in refused.stderr
    assert allowed.returncode == 0
    assert '"lowercase": true' in (tmp_path / "tok" / "manifest.json").read_text()
