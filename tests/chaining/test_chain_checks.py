"""What is found to be wrong with a chain before its first stage starts."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertpre.chaining.checks import check_chain
from bertpre.config.load import load_config
from bertpre.config.schema import Config
from bertpre.errors import BertpreError


@pytest.fixture
def check(tmp_path: Path, tiny_corpus: Path, tables: Path) -> Callable[..., str]:
    """Check a chain that must be refused; return the message and the hint."""

    def check(
        *sets: str,
        texts: list[Any] | None = None,
        given: dict[str, Path] | None = None,
        output: Path = tmp_path / "work",
    ) -> str:
        given = (
            {part: tables / f"{part}.tsv" for part in ("train", "dev")} if given is None else given
        )
        with pytest.raises(BertpreError) as caught:
            check_chain(
                [tiny_corpus] if texts is None else texts,
                output=output, config=load_config(sets=sets), tables=given,
            )  # fmt: skip
        assert not output.is_dir()
        return f"{caught.value.message}\n{caught.value.hint}"

    return check


def test_a_chain_without_faults_passes(tmp_path: Path, tiny_corpus: Path, tables: Path) -> None:
    check_chain(
        [tiny_corpus], output=tmp_path / "work", config=Config(),
        tables={"train": tables / "train.tsv"},
    )  # fmt: skip

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("finetune.label_column=lable", "train.tsv: line 1: no column 'lable'"),
        ("finetune.label_column=lable", "--set finetune.text_column=VALUE"),
        ("finetune.pooling=compare", "name its column with --set finetune.pair_column=VALUE"),
        ("finetune.folds=3", "--folds and --dev exclude each other: with folds, each training"),
        ("finetune.metric=spearman", "metric"),
        ("finetune.max_seq_length=600", "max_seq_length: 600, but the encoder has 512 positions"),
        ("make_data.balance_nsp=true", ""),
        ("model.num_attention_heads=7", "num_attention_heads: 7 does not divide"),
        ("model.max_position_embeddings=64", "have up to 128 tokens"),
        ("pretrain.init_from=nowhere", "nowhere: there is no such"),
        ("pretrain.initial_global_batch_size=999", "larger than pretrain.global_batch_size: 256"),
        ("pretrain.reset_embeddings=true", "needs the embeddings of a pretrain.init_from"),
        ("build_vocab.extra_tokens=nowhere", "nowhere: there is no such file"),
        ("build_vocab.text.encoding=klingon", "klingon: there is no such text encoding"),
        ("make_data.text.encoding=klingon", "klingon: there is no such text encoding"),
        ("make_data.text.format=csv", "no column 'text'"),
    ],
)
def test_a_fault_of_any_stage_is_found(
    check: Callable[..., str], option: str, message: str
) -> None:
    sets = ["make_data.objective=mlm"] if "balance" in option else []

    assert message in check(option, *sets)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["pretrain.max_steps=9", "pretrain.max_epochs=1"], "a run has one length, found"),
        (
            ["make_data.masking=static", "pretrain.mlm_probability=0.2"],
            "are static, drawn at 0.15",
        ),
        (
            ["make_data.eval_fraction=0", "pretrain.early_stopping_evals=2"],
            "has no held-out examples",
        ),
    ],
)
def test_options_of_two_stages_that_contradict_each_other_are_found(
    check: Callable[..., str], sets: list[str], message: str
) -> None:
    assert message in check(*sets)


def test_text_that_can_be_read_once_only_is_refused_with_the_reason(
    check: Callable[..., str], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert check(texts=["-"]).startswith("-: can be read once only, but the chain reads the text")
    assert check(texts=[tmp_path / "pipe"]).startswith(f"{tmp_path}/pipe: can be read once only")


def test_text_and_tables_that_are_not_there_are_named(
    check: Callable[..., str], tmp_path: Path
) -> None:
    assert "none.txt: there is no such file or folder" in check(texts=[tmp_path / "none.txt"])
    assert "none.tsv: there is no such file" in check(given={"train": tmp_path / "none.tsv"})
    assert "no TEXT" in check(texts=[])


def test_a_dev_table_without_a_training_table_is_refused(
    check: Callable[..., str], tables: Path
) -> None:
    message = check(given={"dev": tables / "dev.tsv"})

    assert message.startswith("--dev without --train: there is nothing to fine-tune on")


def test_an_output_inside_the_text_is_refused(
    check: Callable[..., str], tiny_corpus: Path, tmp_path: Path
) -> None:
    output = tiny_corpus.parent / "deep" / "work"

    assert f"{output}: is inside {tiny_corpus.parent}" in check(
        texts=[tiny_corpus.parent], output=output
    )


def test_an_output_that_is_a_file_is_refused(check: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    assert "file: is a file; expected a folder" in check(output=tmp_path / "file")


@pytest.mark.parametrize(("name", "value"), [("WORLD_SIZE", "2"), ("RANK", "1")])
def test_under_torchrun_the_chain_is_refused(
    check: Callable[..., str], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)

    assert check().startswith(
        f"the chain runs in one process, and torchrun started several ({name}={value})"
    )


def test_one_process_of_torchrun_is_none_too_many(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_corpus: Path
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")

    check_chain([tiny_corpus], output=tmp_path / "work", config=Config(), tables={})


def test_a_disk_that_is_too_small_is_a_warning(
    tmp_path: Path, tiny_corpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = dataclasses.replace(Config().model, hidden_size=65_520, num_hidden_layers=999)
    config = dataclasses.replace(Config(), model=model)

    check_chain([tiny_corpus], output=tmp_path / "work", config=config, tables={})

    assert "MB are free, but the chain takes up to about" in caplog.text
