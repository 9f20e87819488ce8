"""Encoder-decoder models into and out of the transformers library."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, EncoderDecoderConfig, EncoderDecoderModel

from bertpre.config.schema import Finetune
from bertpre.errors import CheckpointError, ConfigError, InteropError
from bertpre.finetuning.beam_search import SearchOptions, search
from bertpre.finetuning.finetune import finetune
from bertpre.inference.predict import predict
from bertpre.interop.export import export
from bertpre.interop.import_checkpoint import import_checkpoint
from bertpre.model.decoder import EncoderDecoder
from bertpre.model.flat import flatten
from bertpre.model.folder import load_model
from bertpre.model.stepping import Steps
from bertpre.tokenizer.tokenizer import Tokenizer

ROWS = [
    ("the cat sees the river.", "a dog likes the moon."),
    ("a dog paints some bread.", "the cat follows a small boat."),
    ("my sister remembers the garden.", "every child sees an empty house."),
    ("the old sailor likes the moon.", "my sister paints."),
] * 6


def write(path: Path) -> Path:
    lines = ["text\tlabel", *("\t".join(row) for row in ROWS)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Callable[..., Path]:
    """A function: a decoder to a model that has learnt a little."""
    made: dict[str, Path] = {}

    def make(decoder: str, **options: Any) -> Path:
        if decoder not in made:
            folder = tmp_path_factory.mktemp(decoder)
            config = Finetune(
                task="generation",
                decoder=decoder,
                num_epochs=8,
                batch_size=4,
                learning_rate=3e-3,
                baseline=False,
                precision="fp32",
                **options,
            )
            table = write(folder / "t.tsv")
            finetune(tiny_checkpoint, train=table, dev=table, output=folder / "m", config=config)
            made[decoder] = folder / "m"
        return made[decoder]

    return make


@pytest.mark.parametrize("decoder", ["copied", "shared"])
def test_exported_models_have_equal_logits_and_write_equal_texts(
    tmp_path: Path, trained: Callable[..., Path], decoder: str
) -> None:
    folder = tmp_path / "exported"
    export(trained(decoder), folder, to="huggingface")
    theirs, ours = EncoderDecoderModel.from_pretrained(folder).eval(), load_model(folder)
    assert isinstance(ours, EncoderDecoder)
    assert ours.is_shared == (decoder == "shared")
    tokenizer, tokens = AutoTokenizer.from_pretrained(folder), Tokenizer.load(folder)
    source = tokenizer([source for source, _ in ROWS[:4]], return_tensors="pt", padding=True)
    target = tokenizer([target for _, target in ROWS[:4]], return_tensors="pt", padding=True)
    ids, mask = target.input_ids[:, :-1], target.attention_mask[:, 1:]
    sources = flatten(source.input_ids, source.attention_mask)
    with torch.no_grad():
        expected = theirs(
            input_ids=source.input_ids,
            attention_mask=source.attention_mask,
            decoder_input_ids=ids,
            decoder_attention_mask=mask,
        ).logits[mask.bool()]
        torch.testing.assert_close(
            ours(sources, flatten(ids, mask)), expected, atol=2e-5, rtol=1e-4
        )
        for num_beams, penalty in ((1, 1.0), (4, 1.0), (4, 0.5), (3, 2.0)):
            length = theirs.generation_config.max_length - 2
            written = theirs.generate(
                **source,
                num_beams=num_beams,
                length_penalty=penalty,
                forced_eos_token_id=None,
            )
            texts = search(
                Steps(ours, sources),
                4,
                options=SearchOptions(
                    max_length=length, num_beams=num_beams, length_penalty=penalty
                ),
                start_id=tokens.cls_id,
                end_id=tokens.sep_id,
                device=torch.device("cpu"),
            )
            for row, (best, *_) in zip(written.tolist(), texts, strict=True):
                row = row[1 : row.index(tokens.sep_id)] if tokens.sep_id in row else row[1:]
                assert list(best.ids) == row[:length]


def test_the_folder_says_how_to_write_and_the_model_card_works(
    tmp_path: Path, trained: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "exported"
    export(trained("copied"), folder, to="huggingface")
    tokens = Tokenizer.load(folder)
    for name in ("config.json", "generation_config.json"):
        stated = json.loads((folder / name).read_text())
        assert stated["decoder_start_token_id"] == tokens.cls_id
        assert stated["eos_token_id"] == tokens.sep_id
        assert stated["pad_token_id"] == tokens.pad_id
    card = (folder / "README.md").read_text()
    code = card.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(folder)
    scope: dict[str, Any] = {}
    exec(code, scope)
    assert scope["text"]


def test_a_model_of_the_library_is_imported_and_predicts(
    tmp_path: Path, tiny_tokenizer: Path
) -> None:
    theirs = save_theirs(tmp_path / "theirs", tiny_tokenizer, num_decoder_layers=1)
    report = import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    assert (report.kind, report.architecture) == ("model", "EncoderDecoder")
    ours = load_model(tmp_path / "ours")
    source = torch.randint(5, 80, (3, 7), generator=torch.Generator().manual_seed(1))
    target = torch.randint(5, 80, (3, 4), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected = theirs(input_ids=source, decoder_input_ids=target).logits.flatten(0, 1)
        ones = torch.ones_like
        found = ours(flatten(source, ones(source)), flatten(target, ones(target)))
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)
    table = write(tmp_path / "t.tsv")
    predict(tmp_path / "ours", table, output=tmp_path / "out.tsv")
    assert len((tmp_path / "out.tsv").read_text().splitlines()) == len(ROWS) + 1


def save_theirs(folder: Path, tokenizer: Path, **changes: Any) -> EncoderDecoderModel:
    shape = {
        "vocab_size": Tokenizer.load(tokenizer).vocab_size,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
    }
    decoder = {**shape, "num_hidden_layers": changes.pop("num_decoder_layers", 2), **changes}
    config = EncoderDecoderConfig.from_encoder_decoder_configs(
        BertConfig(**shape), BertConfig(**decoder)
    )
    torch.manual_seed(0)
    model = EncoderDecoderModel(config).eval()
    tokens = Tokenizer.load(tokenizer)
    model.config.decoder_start_token_id = tokens.cls_id
    model.config.eos_token_id, model.config.pad_token_id = tokens.sep_id, tokens.pad_id
    model.save_pretrained(folder)
    tokens.save_files(folder)
    return model


def test_a_decoder_of_another_shape_is_refused(tmp_path: Path, tiny_tokenizer: Path) -> None:
    save_theirs(tmp_path / "theirs", tiny_tokenizer, intermediate_size=32)
    with pytest.raises(CheckpointError, match="intermediate_size is 64 in the encoder and 32 in"):
        import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    config = tmp_path / "theirs" / "config.json"
    stated = json.loads(config.read_text())
    stated["decoder"]["model_type"] = "gpt2"
    config.write_text(json.dumps(stated))
    with pytest.raises(CheckpointError, match='model_type is "bert" in the encoder and "gpt2" in'):
        import_checkpoint(tmp_path / "theirs", tmp_path / "ours")


def test_forms_that_the_library_lacks_are_refused(
    tmp_path: Path, trained: Callable[..., Path]
) -> None:
    with pytest.raises(InteropError, match=r"no encoder that writes text.*prefix.*copied"):
        export(trained("prefix"), tmp_path / "out", to="huggingface")
    with pytest.raises(InteropError, match="cannot be one ONNX graph"):
        export(trained("copied"), tmp_path / "out", to="onnx")


def test_different_tensors_for_a_shared_layer_are_an_error(
    tmp_path: Path, trained: Callable[..., Path]
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(trained("copied"), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "is_shared": True}))
    with pytest.raises(CheckpointError, match="differs from the encoder's"):
        load_model(folder)


def test_longer_texts_than_there_are_positions_are_refused(
    tmp_path: Path, trained: Callable[..., Path]
) -> None:
    config = Finetune(max_target_length=64)
    table = write(tmp_path / "t.tsv")
    with pytest.raises(ConfigError, match=r"max_target_length: 64, but .* has room for 63 tokens"):
        predict(trained("copied"), table, output=tmp_path / "out.tsv", config=config)
