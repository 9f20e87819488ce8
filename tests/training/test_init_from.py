"""Runs that start from another checkpoint's weights."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from bertpre.config.schema import BuildVocab, Config, MakeData, Model
from bertpre.data.make_data import make_data
from bertpre.errors import CheckpointError, ConfigError, DataFormatError
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.tokenizer.vocabulary import build_vocab
from bertpre.training.init_from import checkpoint_shape
from bertpre.training.pretrain import pretrain

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

WORDS = "bert.embeddings.word_embeddings.weight"
POSITIONS = "bert.embeddings.position_embeddings.weight"


def frozen(config: Config, **options: Any) -> Config:
    """One update at a rate so small that no weight moves by much."""
    optimizer = replace(config.pretrain.optimizer, learning_rate=1e-12)
    return replace(
        config, pretrain=replace(config.pretrain, optimizer=optimizer, max_steps=1, **options)
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path, tiny_config: Config) -> Path:
    run = tmp_path_factory.mktemp("source") / "run"
    pretrain(tiny_data, output=run, config=tiny_config)
    return run


def test_the_weights_are_those_of_the_checkpoint(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, source: Path
) -> None:
    pretrain(tiny_data, output=tmp_path / "run", config=frozen(tiny_config, init_from=str(source)))

    found = load_file(tmp_path / "run/final/model.safetensors")
    expected = load_file(source / "final/model.safetensors")
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def make_other_data(corpus: Path, folder: Path) -> None:
    """A tokenizer of more entries than the source's, and data made with it."""
    build_vocab([corpus], folder / "tok", BuildVocab(vocab_size=300, min_frequency=1))
    make_data(
        [corpus], tokenizer=folder / "tok", output=folder / "data",
        config=MakeData(max_seq_length=48, workers=1),
    )  # fmt: skip


def test_tokens_that_both_vocabularies_have_keep_their_rows(
    tmp_path: Path, tiny_corpus: Path, tiny_config: Config, source: Path
) -> None:
    make_other_data(tiny_corpus, tmp_path)

    pretrain(
        tmp_path / "data",
        output=tmp_path / "run",
        config=frozen(tiny_config, init_from=str(source / "final")),
    )

    found = load_file(tmp_path / "run/final/model.safetensors")
    before = load_file(source / "final/model.safetensors")
    tokens, old = Tokenizer.load(tmp_path / "tok").tokens, Tokenizer.load(source / "final").tokens
    shared = sorted(set(tokens) & set(old))
    assert 5 < len(shared) < len(tokens)
    for token in shared:
        for name in (WORDS, "cls.predictions.bias"):
            here, there = found[name][tokens.index(token)], before[name][old.index(token)]
            torch.testing.assert_close(here, there, rtol=0, atol=1e-9)
    fresh = [tokens.index(token) for token in tokens if token not in old]
    assert 0.015 < found[WORDS][fresh].std() < 0.025
    name = "bert.encoder.layer.1.output.dense.weight"
    torch.testing.assert_close(found[name], before[name], rtol=0, atol=1e-9)


def test_embeddings_may_start_afresh(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, source: Path
) -> None:
    other_draws = replace(tiny_config, seed=7)
    config = frozen(other_draws, init_from=str(source), reset_embeddings=True)

    pretrain(tiny_data, output=tmp_path / "run", config=config)

    found = load_file(tmp_path / "run/final/model.safetensors")
    before = load_file(source / "final/model.safetensors")
    assert (found[WORDS] - before[WORDS]).abs().mean() > 0.01
    torch.testing.assert_close(found[POSITIONS], before[POSITIONS], rtol=0, atol=1e-9)


def test_a_longer_model_keeps_the_positions_that_are_there(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, source: Path
) -> None:
    longer = replace(tiny_config, model=replace(tiny_config.model, max_position_embeddings=64))

    pretrain(tiny_data, output=tmp_path / "run", config=frozen(longer, init_from=str(source)))

    found = load_file(tmp_path / "run/final/model.safetensors")[POSITIONS]
    before = load_file(source / "final/model.safetensors")[POSITIONS]
    assert found.shape == (64, 32)
    torch.testing.assert_close(found[:48], before, rtol=0, atol=1e-9)
    assert 0.015 < found[48:].std() < 0.025


def test_a_run_starts_from_a_hugging_face_bert(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, tiny_tokenizer: Path
) -> None:
    config = transformers.BertConfig(
        vocab_size=len(Tokenizer.load(tiny_tokenizer).tokens), hidden_size=16,
        num_hidden_layers=1, num_attention_heads=2, intermediate_size=20,
        max_position_embeddings=48,
    )  # fmt: skip
    theirs = transformers.BertForMaskedLM(config)
    theirs.save_pretrained(tmp_path / "theirs")
    for path in tiny_tokenizer.glob("*"):
        if path.name != "manifest.json":
            shutil.copy(path, tmp_path / "theirs")
    shape = checkpoint_shape(tmp_path / "theirs")

    pretrain(
        tiny_data,
        output=tmp_path / "run",
        config=frozen(
            replace(tiny_config, model=Model(**shape)), init_from=str(tmp_path / "theirs")
        ),
    )

    found = load_file(tmp_path / "run/final/model.safetensors")
    for name, value in theirs.state_dict().items():
        if name in found:
            torch.testing.assert_close(found[name], value, rtol=0, atol=1e-9)
    assert len(found.keys() & theirs.state_dict().keys()) > 20


def test_another_shape_is_refused_with_both_values(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, source: Path
) -> None:
    wider = replace(tiny_config, model=replace(tiny_config.model, hidden_size=64))

    with pytest.raises(ConfigError, match=r"model\.hidden_size: 64, but .*final has 32"):
        pretrain(tiny_data, output=tmp_path / "run", config=frozen(wider, init_from=str(source)))

    assert not (tmp_path / "run").exists()


def test_the_checkpoint_is_not_overwritten_by_the_run_that_starts_from_it(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, source: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(source, run)
    config = frozen(tiny_config, init_from=str(run))

    with pytest.raises(ConfigError, match=r"run: --overwrite would remove .*run/final, from which"):
        pretrain(tiny_data, output=run, config=config, overwrite=True)

    assert load_file(run / "final/model.safetensors")


def test_damaged_weights_are_not_started_from(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, source: Path
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(source / "final", damaged)
    content = bytearray((damaged / "model.safetensors").read_bytes())
    content[-100] ^= 64
    (damaged / "model.safetensors").write_bytes(content)

    with pytest.raises(DataFormatError, match=r"model\.safetensors: damaged: its sha256 is"):
        pretrain(
            tiny_data, output=tmp_path / "run", config=frozen(tiny_config, init_from=str(damaged))
        )


def test_resetting_without_a_checkpoint_is_refused(
    tmp_path: Path, tiny_data: Path, tiny_config: Config
) -> None:
    with pytest.raises(
        ConfigError, match=r"reset_embeddings: needs the embeddings of a pretrain\.init_from"
    ):
        pretrain(
            tiny_data, output=tmp_path / "run", config=frozen(tiny_config, reset_embeddings=True)
        )


def test_a_vocabulary_without_a_common_entry_is_refused(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, source: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(source / "final", other)
    tokens = (other / "vocab.txt").read_text().split("\n")[:-1]
    special = {"pad": "<p>", "unk": "<u>", "cls": "<c>", "sep": "<s>", "mask": "<m>"}
    renamed = [*special.values(), *(f"x{i}" for i in range(5, len(tokens)))]
    (other / "vocab.txt").write_text("".join(f"{token}\n" for token in renamed))
    (other / "tokenizer.json").unlink()
    (other / "manifest.json").unlink()
    settings = {f"{name}_token": token for name, token in special.items()}
    (other / "tokenizer_config.json").write_text(json.dumps({**settings, "do_lower_case": False}))

    with pytest.raises(CheckpointError, match="its vocabulary shares no entry with that of"):
        pretrain(
            tiny_data, output=tmp_path / "run", config=frozen(tiny_config, init_from=str(other))
        )


def test_a_resumed_run_must_start_from_the_same_weights(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, source: Path
) -> None:
    config = frozen(tiny_config, init_from=str(source))
    pretrain(tiny_data, output=tmp_path / "run", config=config)
    moved = tmp_path / "moved"
    shutil.copytree(source, moved)

    again = pretrain(
        tiny_data, output=tmp_path / "run", config=frozen(tiny_config, init_from=str(moved))
    )
    assert again.was_finished
    with pytest.raises(ConfigError, match=r"init_from: was '[0-9a-f]+.*now None"):
        pretrain(tiny_data, output=tmp_path / "run", config=frozen(tiny_config))


def test_a_run_goes_on_without_the_weights_that_it_began_with(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, source: Path
) -> None:
    first = tmp_path / "first"
    shutil.copytree(source, first)
    config = replace(tiny_config, pretrain=replace(tiny_config.pretrain, init_from=str(first)))
    pretrain(tiny_data, output=tmp_path / "twin", config=config)
    seen: list[Any] = []
    pretrain(
        tiny_data, output=tmp_path / "run", config=config, should_stop=lambda: len(seen) > 4,
        on_event=seen.append,
    )  # fmt: skip
    shutil.rmtree(first)

    shape = checkpoint_shape(first, run=tmp_path / "run")
    result = pretrain(tiny_data, output=tmp_path / "run", config=config)

    assert shape["hidden_size"] == tiny_config.model.hidden_size
    assert result.is_finished
    name = "final/model.safetensors"
    assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "twin" / name).read_bytes()
    with pytest.raises(CheckpointError, match="first: there is no such folder"):
        pretrain(tiny_data, output=tmp_path / "new", config=config)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(CheckpointError, match="first: there is no such folder"):
        pretrain(tiny_data, output=tmp_path / "run", config=config)


def test_the_shape_of_what_is_no_checkpoint_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(CheckpointError, match=r"config\.json: expected a JSON object, found \[1\]"):
        checkpoint_shape(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json: cannot be read as JSON"):
        checkpoint_shape(tmp_path)


def test_a_prefix_that_another_library_put_before_the_names_does_not_matter(
    tmp_path: Path, tiny_corpus: Path, tiny_config: Config, source: Path
) -> None:
    wrapped = tmp_path / "wrapped"
    shutil.copytree(source / "final", wrapped)
    (wrapped / "manifest.json").unlink()
    tensors = load_file(wrapped / "model.safetensors")
    save_file({f"module.{name}": value for name, value in tensors.items()},
              wrapped / "model.safetensors", metadata={"format": "pt"})  # fmt: skip
    make_other_data(tiny_corpus, tmp_path)

    pretrain(
        tmp_path / "data",
        output=tmp_path / "run",
        config=frozen(tiny_config, init_from=str(wrapped)),
    )

    found = load_file(tmp_path / "run/final/model.safetensors")
    here, there = Tokenizer.load(tmp_path / "tok").tokens, Tokenizer.load(wrapped).tokens
    row, old_row = found[WORDS][here.index("[MASK]")], tensors[WORDS][there.index("[MASK]")]
    torch.testing.assert_close(row, old_row, rtol=0, atol=1e-9)
