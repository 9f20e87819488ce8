"""What fill-mask shows, against the transformers library, and what it refuses."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertpre.errors import CheckpointError, CorpusError, DataFormatError
from bertpre.inference.fill_mask import Filling, fill_mask, filled_text

TEXT = "the cat [MASK] the [MASK]."


@pytest.mark.parity
@pytest.mark.parametrize("objective", ["mlm-nsp", "mlm"])
def test_the_fillings_are_those_of_transformers(make_checkpoint, objective):
    transformers = pytest.importorskip("transformers")
    folder = make_checkpoint(objective=objective)
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    tokenize = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenize(TEXT, return_tensors="pt")

    found = fill_mask(folder, TEXT, top_k=3)

    with torch.no_grad():
        shares = model(**inputs).logits[0].softmax(dim=1)
    places = (inputs["input_ids"][0] == tokenize.mask_token_id).nonzero().flatten()
    assert len(found) == len(places) == 2
    for fillings, place in zip(found, places, strict=True):
        best = shares[place].topk(3)
        assert [filling.token for filling in fillings] == tokenize.convert_ids_to_tokens(
            best.indices.tolist()
        )
        torch.testing.assert_close(
            torch.tensor([filling.probability for filling in fillings]),
            best.values,
            atol=1e-5,  # fp32 sums in another order
            rtol=0,
        )


@pytest.mark.parity
def test_rows_without_an_entry_have_their_share_but_fill_nothing(make_foreign):
    transformers = pytest.importorskip("transformers")
    folder = make_foreign(vocab_size=96)  # six more than there are entries
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    inputs = transformers.AutoTokenizer.from_pretrained(folder)("[MASK]", return_tensors="pt")

    (fillings,) = fill_mask(folder, "[MASK]", top_k=96)

    with torch.no_grad():
        shares = model(**inputs).logits[0, 1].softmax(dim=0)[:90].sort(descending=True).values
    assert shares.sum() < 0.99
    found = torch.tensor([filling.probability for filling in fillings])
    torch.testing.assert_close(found, shares, atol=1e-5, rtol=0)  # fp32 sums in another order


def test_as_many_tokens_as_asked_for_are_given_likeliest_first(tiny_checkpoint):
    (fillings,) = fill_mask(tiny_checkpoint, "[MASK]", top_k=4)

    assert len({filling.token for filling in fillings}) == 4
    assert fillings == sorted(fillings, key=lambda filling: -filling.probability)


def test_more_tokens_than_there_are_give_all(tiny_checkpoint):
    (fillings,) = fill_mask(tiny_checkpoint, "[MASK]", top_k=10**6)

    assert sum(filling.probability for filling in fillings) == pytest.approx(1, abs=1e-4)


def test_a_run_folder_and_a_plain_folder_will_do(tmp_path, make_checkpoint):
    plain = make_checkpoint(manifest=False)
    run = tmp_path / "run"
    run.mkdir()
    (run / "final").symlink_to(make_checkpoint())

    assert fill_mask(plain, TEXT) == fill_mask(run, TEXT)


def test_a_text_without_a_mask_is_an_error(tiny_checkpoint):
    with pytest.raises(CorpusError, match=r"no \[MASK\] in the text 'the cat \[mask\]' — replace"):
        fill_mask(tiny_checkpoint, "the cat [mask]")


def test_a_text_over_the_positions_is_an_error(tiny_checkpoint):
    fill_mask(tiny_checkpoint, "[MASK]" * 62)

    with pytest.raises(CorpusError, match=r"has 65 tokens .* only 64 positions — shorten"):
        fill_mask(tiny_checkpoint, "[MASK]" * 63)


def test_a_model_without_that_head_is_an_error(tiny_model):
    with pytest.raises(
        CheckpointError, match=r"has no masked-language-model head .*cls.predictions"
    ):
        fill_mask(tiny_model, TEXT)


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        (TEXT, ["sees", "river"], "the cat sees the river."),
        ("play [MASK] well", ["##ing"], "playing well"),
        ("[MASK][MASK]", ["a", "b"], "ab"),
        ("  [MASK]\n[MASK]", [r"\1", "##x"], "  \\1x"),
    ],
)
def test_the_likeliest_tokens_fill_the_text(text, tokens, expected):
    fillings = [[Filling(token, 0.5), Filling("other", 0.1)] for token in tokens]

    assert filled_text(text, fillings) == expected


def test_dropout_plays_no_part(make_checkpoint, tiny_checkpoint):
    dropped = make_checkpoint(dropout=0.5)

    assert fill_mask(dropped, TEXT) == fill_mask(tiny_checkpoint, TEXT)


def test_a_larger_vocabulary_than_the_model_has_rows_is_refused(tiny_checkpoint, tmp_path):
    folder = tmp_path / "checkpoint"
    shutil.copytree(tiny_checkpoint, folder)
    (folder / "manifest.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    rows = config["vocab_size"] - 3
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        tensors[name] = tensors[name][:rows].contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": rows}))

    with pytest.raises(CheckpointError, match=r"its vocabulary has .* entries, its model only"):
        fill_mask(folder, "a [MASK]")


def test_a_damaged_checkpoint_is_refused(tiny_checkpoint, tmp_path):
    folder = tmp_path / "checkpoint"
    shutil.copytree(tiny_checkpoint, folder)
    path = folder / "tokenizer.json"
    path.write_bytes(path.read_bytes().replace(b"[PAD]", b"[PAT]", 1))

    with pytest.raises(DataFormatError, match=r"tokenizer\.json: damaged: its sha256 is"):
        fill_mask(folder, "a [MASK]")


def test_weights_without_finite_scores_are_refused(tiny_checkpoint, tmp_path):
    folder = tmp_path / "checkpoint"
    shutil.copytree(tiny_checkpoint, folder)
    (folder / "manifest.json").unlink()
    tensors = load_file(folder / "model.safetensors")
    tensors["cls.predictions.bias"][:] = torch.nan
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(CheckpointError, match="its weights give no finite scores"):
        fill_mask(folder, "a [MASK]")


def test_a_text_that_is_no_utf_8_is_refused(tiny_checkpoint):
    with pytest.raises(CorpusError, match="the text is not UTF-8"):
        fill_mask(tiny_checkpoint, "caf\udce9 [MASK]")


@pytest.mark.parity
def test_the_fillings_of_a_pair_are_those_of_transformers(tiny_checkpoint):
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForMaskedLM.from_pretrained(tiny_checkpoint).eval()
    tokenize = transformers.AutoTokenizer.from_pretrained(tiny_checkpoint)
    inputs = tokenize("the cat [MASK] the river.", "a [MASK] dog", return_tensors="pt")
    assert inputs["token_type_ids"].max() == 1

    found = fill_mask(tiny_checkpoint, "the cat [MASK] the river.", pair="a [MASK] dog", top_k=2)

    with torch.no_grad():
        shares = model(**inputs).logits[0].softmax(dim=1)
    places = (inputs["input_ids"][0] == tokenize.mask_token_id).nonzero().flatten()
    assert len(found) == 2
    for fillings, place in zip(found, places, strict=True):
        best = shares[place].topk(2)
        tokens = tokenize.convert_ids_to_tokens(best.indices.tolist())
        assert [filling.token for filling in fillings] == tokens
        assert [filling.probability for filling in fillings] == pytest.approx(
            best.values.tolist(), abs=1e-5
        )


def test_a_mask_in_the_second_text_alone_will_do(tiny_checkpoint):
    assert len(fill_mask(tiny_checkpoint, "the cat", pair="[MASK]")) == 1


def test_a_mask_of_another_spelling_is_written_as_ours(tiny_checkpoint, tmp_path):
    folder = tmp_path / "checkpoint"
    shutil.copytree(tiny_checkpoint, folder)
    (folder / "manifest.json").unlink()
    for name in ("tokenizer.json", "vocab.txt"):
        path = folder / name
        path.write_text(path.read_text(encoding="utf-8").replace("[MASK]", "<mask>"), "utf-8")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "mask_token": "<mask>"}))

    assert fill_mask(folder, TEXT) == fill_mask(tiny_checkpoint, TEXT)
