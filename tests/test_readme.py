"""What the five pages of documentation show is run, and what they name exists."""

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
PAGES = (
    "README.md",
    *(f"{folder}/README.md" for folder in ("bertpre", "configs", "data", "tests")),
)
FOLDERS = ("bertpre/", "configs/", "data/", "tests/")
# What the pages call a user's own files, and what the commands on them write.
YOUR_FILES = {
    *("corpus.txt", "train.tsv", "unlabelled.tsv", "words.txt", "pytorch_model.bin"),
    *("chinese.tsv", "rows.tsv", "dna.tsv"),
}
OUTPUT_FILES = {
    *("vocab.txt", "config.json", "config.yaml", "manifest.json", "metrics.jsonl", "metrics.json"),
    *("curves.png", "classes.tsv", "dev_predictions.tsv", "model.safetensors", "tokenizer.json"),
    "chain.json",
}
NOT_MADE_HERE = {"model.onnx", "data/demo/", "dev_mistakes.tsv"}
FILE_NAME = re.compile(r"[\w./-]+\.(?:py|yaml|toml|md|txt|tsv|csv|jsonl?|bin|safetensors|onnx|png)")
# Cuts the training short: options of every command that trains, and of some in addition.
SMALL = {
    "model.hidden_size": 32,
    "model.num_hidden_layers": 1,
    "model.num_attention_heads": 2,
    "model.intermediate_size": 64,
    "make_data.max_unknown_share": 1.0,
    "build_vocab.max_unknown_share": 1.0,
    "pretrain.max_hours": "null",
    "pretrain.max_steps": 3,
    "pretrain.initial_global_batch_size": "null",
    "pretrain.global_batch_size": 4,
    "finetune.num_epochs": 1,
}
SETS = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
EXTRA = {
    "build-vocab": SETS,
    "make-data": SETS,
    "pretrain": SETS,
    "chain": SETS,
    "finetune": ["--num-epochs", "1"],
}


def read_page(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", read_page(page), re.MULTILINE | re.DOTALL)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the recipes, the samples, and the files that the pages call the user's own."""
    samples = ROOT / "data/samples"
    shutil.copytree(samples, tmp_path / "data/samples")
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    for sample, name in {
        "sentences.txt": "corpus.txt",
        "labelled.tsv": "train.tsv",
        "chinese.txt": "chinese.txt",
        "anonymised.tsv": "rows.tsv",
        "dna.txt": "dna.txt",
    }.items():
        shutil.copy(samples / sample, tmp_path / name)
    for name in ("unlabelled.tsv", "chinese.tsv", "dna.tsv"):
        shutil.copy(samples / "labelled.tsv", tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_someones_bert(folder: Path) -> None:
    """A BERT as the transformers library saves one, with a vocabulary for the sample sentences."""
    transformers = pytest.importorskip("transformers")
    run("build-vocab", "corpus.txt", "--output", "their-tokenizer")
    vocabulary = Path("their-tokenizer/vocab.txt")
    config = transformers.BertConfig(
        vocab_size=len(vocabulary.read_text(encoding="utf-8").splitlines()),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
    )
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    shutil.copy(vocabulary, folder)


def run(command: str, *arguments: str) -> str:
    """Run a command of bertpre and return what it prints."""
    result = subprocess.run(
        [sys.executable, "-m", "bertpre", command, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert result.returncode == 0, f"{command} {shlex.join(arguments)}\n{result.stderr}"
    return result.stdout


def run_block(block: str) -> str:
    """Run each line as it stands, but for options that cut the training short."""
    output = ""
    for line in block.splitlines():
        program, command, *arguments = shlex.split(line)
        assert program == "bertpre"
        output += run(command, *arguments, *EXTRA.get(command, []))
    return output


@pytest.mark.slow
def test_the_commands_of_the_front_page_run(workplace: Path) -> None:
    write_someones_bert(workplace / "someones-bert")

    output = "".join(run_block(block) for block in blocks("README.md", "bash"))

    assert "done: 3 steps; model in steps/run/final" in output
    rows = (workplace / "predictions.tsv").read_text().splitlines()
    assert rows[0] == "prediction\tbad\tgood"
    assert len(rows) == len((workplace / "unlabelled.tsv").read_text().splitlines())
    page = (workplace / "report.html").read_text(encoding="utf-8")
    assert all(f">{name} <small>" in page for name in ("Tokenizer", "Data", "Run", "Model"))
    assert (workplace / "exported/README.md").is_file()
    written = {path.name for path in workplace.rglob("*") if path.is_file()}
    assert written >= OUTPUT_FILES


@pytest.mark.slow
def test_the_commands_for_each_recipe_run(workplace: Path) -> None:
    write_someones_bert(workplace / "someones-bert")

    for block in blocks("configs/README.md", "bash"):
        run_block(block)

    assert (workplace / "dna/model/metrics.json").is_file()
    assert (workplace / "field/model/metrics.json").is_file()
    assert (workplace / "task/model/metrics.json").is_file()
    assert (workplace / "phase-512/run/final/config.json").is_file()


def test_the_forms_of_text_are_read(workplace: Path) -> None:
    for block in blocks("data/README.md", "bash"):
        if "finetune" not in block:
            run_block(block)

    merged, whole = (workplace / "try/merged/tokens", workplace / "try/data/tokens")
    assert {path.name: path.read_bytes() for path in merged.iterdir()} == {
        path.name: path.read_bytes() for path in whole.iterdir()
    }
    assert '"masked_positions"' in (workplace / "try/examples.jsonl").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_forms_of_labelled_tables_are_learnt(workplace: Path, chain: Path) -> None:
    shutil.copytree(chain, workplace / "work")

    for block in blocks("data/README.md", "bash"):
        if "finetune" in block:
            run_block(block)

    rows = (workplace / "try/averaged.tsv").read_text(encoding="utf-8").splitlines()
    assert rows[0] == "prediction\tbad\tgood"
    assert (workplace / "try/folds/dev_predictions.tsv").is_file()


def test_every_other_page_has_no_commands_that_are_not_run() -> None:
    assert len(blocks("bertpre/README.md", "bash")) == 1
    assert blocks("tests/README.md", "bash") == []
    for page in PAGES:
        assert page == "bertpre/README.md" or blocks(page, "python") == []


@pytest.mark.slow
def test_the_stages_run_from_a_notebook(workplace: Path) -> None:
    notebook, *_ = blocks("bertpre/README.md", "python")
    names: dict[str, Any] = {}

    exec(compile(notebook, "README.md", "exec"), names)

    assert len(names["fillings"][0]) == 3
    assert 0 <= names["result"].dev["accuracy"] <= 1
    assert (workplace / "nb/report.html").is_file()
    assert names["encoder"].config.hidden_size == 128
    assert len(notebook.splitlines()) < 20


def test_one_sentence_can_be_followed_from_text_to_update(workplace: Path) -> None:
    _, block, second = blocks("bertpre/README.md", "python")
    (build_vocab,) = blocks("bertpre/README.md", "bash")
    run_block(build_vocab)
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

    exec(compile(second, "README.md", "exec"), names)

    pairs = names["pairs"]
    target = tokenizer.encode(names["sentences"][1]).ids.tolist()
    assert pairs.target.input_ids.tolist() == [tokenizer.cls_id, *target]
    assert pairs.labels.tolist() == [*target, tokenizer.sep_id]
    assert all(part.grad is not None for part in names["transformer"].decoder.parameters())
    assert 0 < len(names["best"].ids) <= 20


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    places = [ROOT, (ROOT / page).parent]
    places += [ROOT / folder for folder in ("bertpre", "bertpre/config", "tests")]
    made = YOUR_FILES | OUTPUT_FILES | NOT_MADE_HERE
    prose = re.sub(r"^```.*?^```", "", read_page(page), flags=re.MULTILINE | re.DOTALL)

    for name in set(re.findall(r"`([^`]+)`", prose)) - made:
        if FILE_NAME.fullmatch(name) or name.startswith(FOLDERS):
            assert any((place / name).exists() for place in places), name


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", read_page(page)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", name).lower().replace(" ", "-") for name in headings]
            assert anchor in slugs, link


def test_every_promise_has_its_test() -> None:
    table = re.compile(r"^\| (.*) \| (`test_.*) \| (.*) \|$", re.MULTILINE)
    rows = table.findall(read_page("tests/README.md"))

    assert len(rows) >= 20
    for promise, tests, files in rows:
        source = "".join(
            (ROOT / "tests" / name).read_text(encoding="utf-8")
            for name in re.findall(r"`([^`]+)`", files)
        )
        for name in re.findall(r"`([^`]+)`", tests):
            assert f"def {name}(" in source, f"{promise}: {name}"


def test_the_map_has_every_file_of_the_package() -> None:
    page = read_page("bertpre/README.md")

    for path in sorted((ROOT / "bertpre").rglob("*.py")):
        if not path.name.startswith("__"):
            assert f"`{path.relative_to(ROOT / 'bertpre')}`" in page, path


def test_the_front_page_is_short() -> None:
    assert len(read_page("README.md").splitlines()) <= 180


def test_every_dependency_has_its_reason() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text()
    (listed,) = re.findall(r"^dependencies = \[\n(.*?)\]", pyproject, re.MULTILINE | re.DOTALL)
    section = read_page("README.md").partition("## Dependencies")[2].lower()
    section = section.replace("pytorch", "torch")
    for name in re.findall(r'"([\w-]+)', listed):
        assert name in section, name
