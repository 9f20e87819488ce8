"""The recipes run: each on a sample of its kind of text, with the sizes and steps cut down."""

import re
import shutil
from pathlib import Path

import pytest

from bertpre import build_vocab, finetune, import_checkpoint, load_config, make_data, pretrain
from bertpre.config.schema import Config

ROOT = Path(__file__).resolve().parent.parent
CONFIGS, SAMPLES = ROOT / "configs", ROOT / "data/samples"
SMALL = [
    "model.hidden_size=32", "model.num_hidden_layers=1", "model.num_attention_heads=2",
    "model.intermediate_size=64", "pretrain.max_steps=2", "pretrain.max_hours=null",
    "pretrain.initial_global_batch_size=null", "pretrain.global_batch_size=4",
    "pretrain.device=cpu", "pretrain.precision=fp32", "finetune.num_epochs=1",
    "finetune.device=cpu", "finetune.precision=fp32", "make_data.workers=1",
    "make_data.max_unknown_share=1.0", "build_vocab.max_unknown_share=1.0",
]  # fmt: skip


def load(name: str, *sets: str) -> Config:
    return load_config(CONFIGS / f"{name}.yaml", sets=[*SMALL, *sets])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "sample"),
    [
        ("dna", "dna.txt"),
        ("laptop", "sentences.txt"),
        ("low-resource", "sentences.txt"),
        ("chinese", "chinese.txt"),
        ("anonymised", "anonymised.tsv"),
        ("one-gpu-day", "sentences.txt"),
    ],
)
def test_a_recipe_goes_from_text_to_classifier(recipe, sample, tmp_path):
    config = load(recipe)
    text = [SAMPLES / sample]

    build_vocab(text, tmp_path / "tokenizer", config.build_vocab)
    make_data(
        text, tokenizer=tmp_path / "tokenizer", output=tmp_path / "data", config=config.make_data
    )
    pretrain(tmp_path / "data", output=tmp_path / "run", config=config)
    table = SAMPLES / ("anonymised.tsv" if recipe == "anonymised" else "labelled.tsv")
    result = finetune(
        tmp_path / "run", train=table, output=tmp_path / "model", config=config.finetune
    )

    assert 0 <= result.dev["accuracy"] <= 1


@pytest.mark.slow
def test_a_public_model_is_adapted_to_a_field(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = load("domain-adaptation")
    text = [SAMPLES / "sentences.txt"]
    build_vocab(text, tmp_path / "tokenizer", load("tiny").build_vocab)
    entries = (tmp_path / "tokenizer/vocab.txt").read_text(encoding="utf-8").splitlines()
    public = transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=len(entries),
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=64,
        )
    )
    public.save_pretrained(tmp_path / "foreign")
    shutil.copy(tmp_path / "tokenizer/vocab.txt", tmp_path / "foreign")

    import_checkpoint(tmp_path / "foreign", tmp_path / "public")
    make_data(
        text, tokenizer=tmp_path / "public", output=tmp_path / "data", config=config.make_data
    )
    started = load("domain-adaptation", f"pretrain.init_from={tmp_path / 'public'}")
    result = pretrain(tmp_path / "data", output=tmp_path / "run", config=started)

    assert result.is_finished


@pytest.mark.slow
def test_two_phases_are_chained(tmp_path):
    text = [SAMPLES / "sentences.txt"]
    build_vocab(text, tmp_path / "tokenizer", load("tiny").build_vocab)
    for name, start in (("128", None), ("512", tmp_path / "run-128")):
        config = load(
            f"two-phase-{name}", f"pretrain.init_from={'null' if start is None else start}"
        )
        data = tmp_path / f"data-{name}"
        make_data(text, tokenizer=tmp_path / "tokenizer", output=data, config=config.make_data)
        result = pretrain(data, output=tmp_path / f"run-{name}", config=config)
        assert result.is_finished


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_config_says_what_it_is_for_and_why(path):
    lines = path.read_text(encoding="utf-8").splitlines()

    assert lines[0].startswith("# ")
    assert max(map(len, lines)) <= 110
    assert sum("#" in line for line in lines) >= 3 or path.stem in ("small", "medium", "mini")
    for name in re.findall(r"configs/[\w.-]+\.yaml|[\w-]+-\d+\.yaml", "\n".join(lines)):
        assert (CONFIGS / Path(name).name).is_file(), name
