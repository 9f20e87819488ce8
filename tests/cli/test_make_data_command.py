"""``bertpre make-data`` as a command."""

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bertpre.cli.main import app
from bertpre.errors import BertpreError


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["make-data", *map(str, arguments)])


def test_the_report_and_some_examples_are_printed(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    output = tmp_path / "data"

    result = run(
        tiny_corpus, "--tokenizer", tiny_tokenizer, "--output", output, "--max-seq-length", 48
    )

    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"{output}:"
    assert lines[1] == "  documents: 80, 0% of them with only one sentence"
    assert any(line.startswith("  random next sentences: ") for line in lines)
    assert lines[-4] == "examples, as {what the model sees→what it must predict}:"
    assert all(line.startswith(("  is next: [CLS]", "  random: [CLS]")) for line in lines[-3:])


def test_every_option_reaches_the_stage(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    table = tmp_path / "rows.data"
    sentences = [line for line in tiny_corpus.read_text().splitlines() if line]
    table.write_text("".join(f"{i},{line}\n" for i, line in enumerate(sentences[:60])))
    output, export = tmp_path / "data", tmp_path / "examples.jsonl"

    result = run(
        table, "--tokenizer", tiny_tokenizer, "--output", output, "--max-seq-length", 24,
        "--objective", "mlm", "--dupe-factor", 2, "--short-seq-prob", 0.2, "--masking", "static",
        "--mlm-probability", 0.3, "--whole-word-masking", "--eval-fraction", 0.2, "--workers", 1,
        "--export-jsonl", export, "--format", "csv", "--text-column", 2, "--no-header",
        "--document", "line", "--quoting", "none", "--encoding", "cp1252",
        "--on-bad-bytes", "skip", "--sentences", "split", "--language", "de", "--dedup", "lines",
        "--mask-spans", "ngrams", "--set", "make_data.ngram_weights=2 1",
        "--set", "make_data.mask_token_share=0.7", "--word-segmenter", "none",
        "--no-balance-nsp", "--max-unknown-share", 0.5, "--seed", 7,
        "--set", "make_data.max_predictions_per_seq=3",
    )  # fmt: skip

    assert result.exit_code == 0
    (index,) = output.glob("index-mlm-24")
    manifest = json.loads((index / "manifest.json").read_text())
    assert manifest["seed"] == 7
    assert manifest["options"] == {
        "balance_nsp": False,
        "dupe_factor": 2,
        "eval_fraction": 0.2,
        "mask_spans": "ngrams",
        "mask_token_share": 0.7,
        "masking": "static",
        "max_predictions_per_seq": 3,
        "max_seq_length": 24,
        "max_unknown_share": 0.5,
        "mlm_probability": 0.3,
        "ngram_weights": "2 1",
        "objective": "mlm",
        "random_token_share": 0.1,
        "short_seq_prob": 0.2,
        "span_max_words": 10,
        "span_stop_prob": 0.2,
        "text": {
            "dedup": "lines",
            "document": "line",
            "encoding": "cp1252",
            "format": "csv",
            "header": False,
            "language": "de",
            "on_bad_bytes": "skip",
            "pair_column": None,
            "quoting": "none",
            "sentences": "split",
            "text_column": 2,
        },
        "whole_word_masking": True,
        "word_segmenter": "none",
    }
    rows = [json.loads(line) for line in export.read_text().splitlines()]
    assert {row["pass"] for row in rows} == {0, 1}
    assert "nsp_label" not in rows[0]
    assert max(len(row["masked_positions"]) for row in rows) == 3


def test_a_config_file_gives_the_options_and_a_flag_goes_before_it(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("seed: 3\nmake_data: {objective: mlm, max_seq_length: 32}\n")

    result = run(
        tiny_corpus, "--tokenizer", tiny_tokenizer, "--output", tmp_path / "data",
        "--config", config, "--max-seq-length", 16,
    )  # fmt: skip

    assert result.exit_code == 0
    assert (tmp_path / "data/index-mlm-16").is_dir()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--max-seq-length", 4],
            "make_data.max_seq_length: .* greater than or equal to 8, found 4",
        ),
        (
            ["--objective", "nsp"],
            "make_data.objective: input should be 'mlm-nsp', 'mlm-sop' or 'mlm'",
        ),
        (["--set", "make_data.dupe_facto=3"], "no such option; did you mean make_data.dupe_factor"),
        (["--text-column", "body", "--format", "csv"], "no column 'body'"),
        (
            ["--set", "make_data.ngram_weights=6,3"],
            "ngram_weights: .* 1 to 10 non-negative numbers .* found '6,3'",
        ),
        (["--balance-nsp", "--objective", "mlm"], "has nothing to balance with --objective mlm"),
        (
            ["--set", "make_data.mask_token_share=0.9", "--set", "make_data.random_token_share=.2"],
            "mask_token_share 0.9 and random_token_share 0.2 add up to more than 1",
        ),
        (
            ["--mask-spans", "geometric", "--whole-word-masking"],
            "--mask-spans geometric already masks whole words",
        ),
        (["--part", "0/4"], "--part 0/4: expected I/N, part I of N parts, with I from 1 to N"),
        (["--part", "x"], "--part x: expected I/N"),
        (["--part", "1/2", "--merge"], "--part and --merge exclude each other"),
        (["--tokens", "x"], "--tokens x already has a text and a tokenizer, but found INPUT"),
        (["--merge"], "--merge uses the tokenizer of the parts, but found --tokenizer"),
        (["--part", "1/2", "--export-jsonl", "x"], "--part makes no examples to export"),
    ],
)
def test_bad_options_leave_nothing_behind(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, arguments: list[object], message: str
) -> None:
    output = tmp_path / "new/data"

    result = run(tiny_corpus, "--tokenizer", tiny_tokenizer, "--output", output, *arguments)

    assert isinstance(result.exception, BertpreError)
    with pytest.raises(BertpreError, match=message):
        raise result.exception
    assert not list(tmp_path.iterdir())


def test_an_output_that_exists_is_kept_unless_it_may_be_overwritten(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    command = [tiny_corpus, "--tokenizer", tiny_tokenizer, "--output", tmp_path / "data"]
    run(*command, "--objective", "mlm")
    before = (tmp_path / "data/manifest.json").read_bytes()

    refused = run(*command)
    kept = (tmp_path / "data/manifest.json").read_bytes()
    replaced = run(*command, "--overwrite")

    assert "already exists — choose another --output, or pass --overwrite" in str(refused.exception)
    assert kept == before
    assert replaced.exit_code == 0
    assert (tmp_path / "data/manifest.json").read_bytes() != before


@pytest.mark.slow
def test_workers_end_with_a_parent_that_was_killed(tmp_path: Path, tiny_tokenizer: Path) -> None:
    text = tmp_path / "large.txt"
    text.write_text("the cat sees the moon.\nthe end.\n\n" * 400_000)
    output = tmp_path / "data-of-the-orphans"
    command = [
        sys.executable, "-m", "bertpre", "make-data", text, "--tokenizer", tiny_tokenizer,
        "--output", output, "--workers", "3",
    ]  # fmt: skip

    def descendants(parent: int) -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[1]) == parent:
                    child = int(path.parent.name)
                    found += [child, *descendants(child)]
        return found

    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL)
    # Three, the process that they are forked from, and multiprocessing's own.
    while len(workers := descendants(process.pid)) < 5:
        time.sleep(0.05)
        assert process.poll() is None
    process.kill()
    process.wait()

    deadline = time.monotonic() + 120
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_table_of_pairs_becomes_examples_of_two_segments(
    tmp_path: Path, tiny_tokenizer: Path
) -> None:
    table, export = tmp_path / "pairs.tsv", tmp_path / "examples.jsonl"
    table.write_text("label\tthe cat\tthe moon sees\n" * 30)

    result = run(
        table, "--tokenizer", tiny_tokenizer, "--output", tmp_path / "data", "--no-header",
        "--text-column", 2, "--pair-column", 3, "--objective", "mlm", "--export-jsonl", export,
    )  # fmt: skip

    assert result.exit_code == 0
    rows = [json.loads(line) for line in export.read_text().splitlines()]
    assert rows[0]["tokens"].count("[SEP]") == 2
    first = rows[0]["tokens"].index("[SEP]") + 1
    assert rows[0]["token_type_ids"] == [0] * first + [1] * (len(rows[0]["tokens"]) - first)


def test_parts_and_another_index_are_made_without_text(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    parts = [tmp_path / "part1", tmp_path / "part2"]
    for number, part in enumerate(parts, start=1):
        made = run(
            tiny_corpus, "--tokenizer", tiny_tokenizer, "--output", part, "--part", f"{number}/2"
        )
        assert made.exit_code == 0
        assert f"part {number} of 2" in made.stdout

    merged = run(*parts, "--merge", "--output", tmp_path / "data")
    other = run(
        "--tokens", tmp_path / "data", "--output", tmp_path / "sop", "--objective", "mlm-sop"
    )

    assert merged.exit_code == other.exit_code == 0
    assert "  random next sentences: " in merged.stdout
    assert "  swapped: " in other.stdout
    assert other.stdout.splitlines()[-1].startswith(("  in order: [CLS]", "  swapped: [CLS]"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no INPUT: expected files or folders of text — pass them before the options"),
        (["--merge"], "no INPUT: expected the folders of all parts"),
        (["text.txt"], "--tokenizer is missing: text needs one — create one with"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = run(*arguments, "--output", tmp_path / "data")

    assert message in str(result.exception)
    assert not (tmp_path / "data").exists()


def test_an_option_of_examples_is_of_no_use_to_a_part(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    result = run(
        tiny_corpus, "--tokenizer", tiny_tokenizer, "--output", tmp_path / "part",
        "--part", "1/1", "--objective", "mlm", "--max-seq-length", 64,
    )  # fmt: skip

    assert result.exit_code == 0
    shown = " ".join(result.stderr.split())
    assert "no effect here, pass them with --merge: --max-seq-length, --objective" in shown
