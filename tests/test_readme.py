"""What the README shows is run, as it stands, on the samples."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the README speaks of."""
    samples = ROOT / "data/samples"
    shutil.copy(samples / "sentences.txt", tmp_path / "corpus.txt")
    shutil.copy(samples / "labelled.tsv", tmp_path / "train.tsv")
    shutil.copy(samples / "labelled.tsv", tmp_path / "unlabelled.tsv")
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_someones_bert(folder: Path, vocabulary: Path) -> None:
    """A BERT as the transformers library saves one."""
    transformers = pytest.importorskip("transformers")
    entries = vocabulary.read_text(encoding="utf-8").splitlines()
    config = transformers.BertConfig(
        vocab_size=len(entries),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
    )
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    shutil.copy(vocabulary, folder)


def run_block(block: str, extra: dict[str, str]) -> str:
    """Run each line as it stands, but for options that cut the training short."""
    output = ""
    for line in block.splitlines():
        program, command, *arguments = shlex.split(line)
        assert program == "bertpre"
        arguments += shlex.split(extra.get(command, ""))
        result = subprocess.run(
            [sys.executable, "-m", "bertpre", command, *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "NO_COLOR": "1"},
        )
        assert result.returncode == 0, f"{line}\n{result.stderr}"
        output += result.stdout
    return output


def test_the_commands_of_the_readme_run(workplace: Path) -> None:
    shorter = {"pretrain": "--max-steps 3", "finetune": "--num-epochs 1"}
    own_text, seeing, in_and_out, own_labels = blocks("bash")

    output = run_block(own_text, shorter)
    run_block(seeing, {})
    write_someones_bert(workplace / "someones-bert", workplace / "tokenizer/vocab.txt")
    run_block(in_and_out, shorter)
    run_block(own_labels, shorter)

    assert "done: 3 steps; model in run/final" in output
    rows = (workplace / "predictions.tsv").read_text().splitlines()
    assert rows[0] == "prediction\tbad\tgood"
    assert len(rows) == len((workplace / "unlabelled.tsv").read_text().splitlines())
    page = (workplace / "report.html").read_text(encoding="utf-8")
    assert all(f">{name} <small>" in page for name in ("Tokenizer", "Data", "Run", "Model"))
    assert (workplace / "exported/README.md").is_file()


def test_the_stages_run_from_a_notebook(workplace: Path) -> None:
    notebook, _ = blocks("python")
    names: dict[str, Any] = {}

    exec(compile(notebook, "README.md", "exec"), names)

    assert len(names["fillings"][0]) == 3
    assert 0 <= names["result"].dev["accuracy"] <= 1
    assert (workplace / "nb/report.html").is_file()
    assert names["encoder"].config.hidden_size == 128
    assert len(notebook.splitlines()) < 20


def test_one_sentence_can_be_followed_from_text_to_update(workplace: Path) -> None:
    _, block = blocks("python")
    build_vocab = blocks("bash")[0].splitlines()[0]
    run_block(build_vocab, {})
    names: dict[str, Any] = {}

    exec(compile(block, "README.md", "exec"), names)

    first = (workplace / "corpus.txt").read_text(encoding="utf-8").splitlines()[0]
    tokenizer, examples, batch = names["tokenizer"], names["examples"], names["batch"]
    assert names["documents"][0].sentences[0] == first
    assert tokenizer.decode(names["ids"]).replace(" ", "") == first.lower().replace(" ", "")
    # The sentence stands in the store, and in the first example after [CLS].
    store_ids, _ = names["store"].gather(
        *(torch.tensor([n]).numpy() for n in (0, len(names["ids"])))
    )
    assert store_ids.tolist() == names["ids"].tolist()
    assert examples.input_ids[0] == tokenizer.cls_id
    assert examples.input_ids[1] in names["ids"]
    # Where nothing is predicted, the model sees the text.
    changed = (batch.tokens.input_ids.numpy() != examples.input_ids).nonzero()[0]
    assert set(changed) <= set(batch.predicted.tolist())
    assert batch.mlm_labels.tolist() == examples.input_ids[batch.predicted.numpy()].tolist()
    # Devlin et al. 2018 and arithmetic: hidden (N, D), pooled (B, D), first loss about ln V + ln 2.
    assert names["hidden_states"].shape == (len(examples.input_ids), 128)
    assert names["pooled_output"].shape == (len(examples.lengths), 128)
    guess = torch.log(torch.tensor(float(tokenizer.vocab_size))).item()
    mean = names["loss"].mlm_loss_sum.item() / len(batch.mlm_labels)
    assert abs(mean - guess) < 0.05 * guess
    assert names["result"].grad_norm > 0


def test_every_file_the_readme_names_is_there() -> None:
    for name in re.findall(r"`((?:bertpre|configs|data)/[\w./-]+)", README):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`((?:model|training)/\w+\.py)", README):
        assert (ROOT / "bertpre" / name).exists(), name


def test_every_dependency_has_its_reason() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text()
    (listed,) = re.findall(r"^dependencies = \[\n(.*?)\]", pyproject, re.MULTILINE | re.DOTALL)
    section = README.partition("## Dependencies")[2].lower().replace("pytorch", "torch")
    for name in re.findall(r'"([\w-]+)', listed):
        assert name in section, name
