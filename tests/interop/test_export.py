"""What leaves bertpre computes the same elsewhere, or is refused."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bertpre.artefacts import write_manifest
from bertpre.config.schema import BuildVocab, Finetune, Model
from bertpre.errors import ConfigError, InteropError
from bertpre.finetuning.finetune import finetune
from bertpre.inference.fill_mask import fill_mask
from bertpre.interop.export import export
from bertpre.interop.model_card import write_card
from bertpre.model.bert import initialize
from bertpre.model.flat import flatten
from bertpre.model.folder import load_model, save_model
from bertpre.model.heads import BertForPreTraining
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.tokenizer.vocabulary import build_vocab

ENGLISH = "The river is wide. Boats cross the wide river every Morning, don't they?\n"
CHINESE = "小镇的图书馆在河边，每天早上八点开门。\n管理员认识每一个孩子。\n"
NUMBERS = "5900 900 9001 77 5900\n900 77 [x] 9001\n"
DNA = "ACGTTGCAACGTACG ACGTTG\nTTGACA ACGT\n"


@pytest.fixture
def make_exported(tmp_path) -> Callable[..., tuple[Path, Path]]:
    """A function: text and options of a vocabulary to a random checkpoint and its export."""

    def make(text: str, options: BuildVocab) -> tuple[Path, Path]:
        (tmp_path / "a.txt").write_text(text * 3, encoding="utf-8")
        build_vocab([tmp_path / "a.txt"], tmp_path / "tokenizer", options)
        tokenizer = Tokenizer.load(tmp_path / "tokenizer")
        shape = Model(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=64,
        )
        model = BertForPreTraining(shape, vocab_size=tokenizer.vocab_size, with_nsp=True)
        initialize(model, 0.2, torch.Generator().manual_seed(5))
        folder = tmp_path / "checkpoint"
        folder.mkdir()
        save_model(folder, model, extra_config={"pad_token_id": tokenizer.pad_id})
        tokenizer.save_files(folder)
        write_manifest(folder, "checkpoint", {"objective": "mlm-nsp", "step": 0, "seed": 0})
        export(folder, tmp_path / "out", to="huggingface")
        return folder, tmp_path / "out"

    return make


@pytest.mark.parity
@pytest.mark.parametrize(
    ("text", "options"),
    [
        (ENGLISH, BuildVocab(vocab_size=60, min_frequency=1)),
        (
            ENGLISH,
            BuildVocab(vocab_size=60, min_frequency=1, lowercase=True, strip_accents=True),
        ),
        (CHINESE, BuildVocab(min_frequency=1)),
        (NUMBERS, BuildVocab(token_mode="whole", min_frequency=1)),
        (DNA, BuildVocab(token_mode="kmer:6:6", min_frequency=1)),
    ],
    ids=["cased", "uncased", "chinese", "whole", "kmer"],
)
def test_the_transformers_library_gives_the_same_ids_and_logits(make_exported, text, options):
    transformers = pytest.importorskip("transformers")
    folder, exported = make_exported(text, options)
    first, second = text.splitlines()[0], text.splitlines()[-1]
    tokenizer, ours = Tokenizer.load(folder), load_model(folder)

    tokenize = transformers.AutoTokenizer.from_pretrained(exported)
    theirs = transformers.BertForPreTraining.from_pretrained(exported).eval()
    given = tokenize(first, second, return_tensors="pt")

    parts = [tokenizer.encode(part).ids.tolist() for part in (first, second)]
    ids = [tokenizer.cls_id, *parts[0], tokenizer.sep_id, *parts[1], tokenizer.sep_id]
    assert given["input_ids"][0].tolist() == ids
    segments = [0] * (len(parts[0]) + 2) + [1] * (len(parts[1]) + 1)
    assert given["token_type_ids"][0].tolist() == segments
    batch = flatten(given["input_ids"], given["attention_mask"], given["token_type_ids"])
    with torch.no_grad():
        assert isinstance(ours, BertForPreTraining)
        found, expected = ours(batch, torch.arange(len(ids))), theirs(**given)
    close = {"atol": 1e-5, "rtol": 0.0}  # fp32 sums in another order
    torch.testing.assert_close(found.mlm, expected.prediction_logits[0], **close)
    torch.testing.assert_close(found.nsp, expected.seq_relationship_logits, **close)


@pytest.mark.parity
def test_its_fill_mask_pipeline_gives_our_fillings(chain, tmp_path):
    transformers = pytest.importorskip("transformers")
    export(chain / "run", tmp_path / "out", to="huggingface")
    text = "the cat [MASK] the river."

    pipeline = transformers.pipeline("fill-mask", model=str(tmp_path / "out"), device="cpu")
    theirs = pipeline(text, top_k=4)

    (ours,) = fill_mask(tmp_path / "out", text, top_k=4)
    tokens = pipeline.tokenizer.convert_ids_to_tokens([found["token"] for found in theirs])
    assert [filling.token for filling in ours] == tokens
    assert [filling.probability for filling in ours] == pytest.approx(
        [found["score"] for found in theirs], abs=1e-5
    )
    assert pipeline.tokenizer.model_max_length == 48  # as in training, not 512


@pytest.mark.parity
def test_a_fine_tuned_model_keeps_its_labels_and_scores(chain, tmp_path):
    transformers = pytest.importorskip("transformers")

    report = export(chain / "model", tmp_path / "out", to="huggingface")

    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert theirs.config.id2label == {0: "cat", 1: "dog"}
    assert {"README.md", "metrics.json", "confusion_matrix.png"} <= report.files.keys()


def test_what_the_library_has_no_words_for_is_refused(chain, tutorial_checkpoint, tmp_path):
    recipe = Finetune(num_epochs=1, device="cpu", precision="fp32", pooling="mean")
    finetune(chain / "run", train=chain / "train.tsv", output=tmp_path / "mean", config=recipe)
    rows = (chain / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("other\ttext\tlabel\n" + "".join(f"the cat\t{row}\n" for row in rows))
    compared = dataclasses.replace(recipe, pooling="compare", pair_column="other")
    finetune(chain / "run", train=pairs, output=tmp_path / "compare", config=compared)

    with pytest.raises(InteropError) as caught:
        export(tutorial_checkpoint, tmp_path / "out", to="huggingface")
    with pytest.raises(InteropError, match="has no classifier with mean pooling"):
        export(tmp_path / "mean", tmp_path / "out", to="huggingface")
    with pytest.raises(InteropError, match="has no classifier that compares two texts"):
        export(tmp_path / "compare", tmp_path / "out", to="huggingface")

    assert str(caught.value) == (
        f"{tutorial_checkpoint}/final: BERT in the transformers library has no pre-norm layers, "
        "sinusoidal positions, so its outputs would differ — use it with bertpre, or export "
        "it with --to onnx; a model pretrained with model.norm=post and "
        "model.position_embeddings=learned can be exported"
    )
    assert not (tmp_path / "out").exists()


def test_a_crf_is_refused_by_its_name(make_tagger, tmp_path):
    folder = make_tagger(has_crf=True)

    with pytest.raises(InteropError) as caught:
        export(folder, tmp_path / "out", to="huggingface")

    assert str(caught.value) == (
        f"{folder}: BERT in the transformers library has no conditional random field, so its "
        "outputs would differ — use it with bertpre, or export it with --to onnx; a model "
        "fine-tuned without --crf can be exported"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parity
def test_the_card_of_a_tagger_shows_how_to_get_a_tag_for_each_token(
    make_tagger, tmp_path, monkeypatch
):
    pytest.importorskip("transformers")
    folder = make_tagger(has_crf=False)

    export(folder, tmp_path / "out", to="huggingface")

    card = (tmp_path / "out/README.md").read_text(encoding="utf-8")
    assert "import AutoTokenizer, AutoModelForTokenClassification\n" in card
    assert "The highest score of each token can give a sequence that the scheme" in card
    monkeypatch.chdir(tmp_path / "out")
    found: dict[str, Any] = {}
    exec(card.split("```python\n")[1].split("```")[0], found)
    tokenizer, ours = Tokenizer.load(folder), load_model(folder)
    parts = [tokenizer.encode(token).ids.tolist() for token in ("The", "text", "as", "tokens")]
    ids = [tokenizer.cls_id, *(piece for part in parts for piece in part), tokenizer.sep_id]
    firsts = [1 + sum(map(len, parts[:number])) for number in range(4)]
    with torch.no_grad():
        expected = ours(flatten(torch.tensor([ids]), torch.ones(1, len(ids))))[firsts]
    torch.testing.assert_close(found["scores"], expected, atol=1e-5, rtol=0)
    assert found["tags"] == [["O", "B-LOC", "I-LOC"][i] for i in expected.argmax(dim=1)]


def test_a_folder_of_another_library_has_to_be_imported_first(make_foreign, tmp_path):
    with pytest.raises(InteropError, match=r"bertpre did not write it — import it with `bertpre"):
        export(make_foreign(), tmp_path / "out", to="huggingface")


def test_overlapping_kmers_are_said_to_be_cut_nowhere_else(make_exported, caplog):
    make_exported(DNA, BuildVocab(token_mode="kmer:3", min_frequency=1))

    assert "do not split sequences into overlapping 3-mers: pass this" in caplog.text


def test_the_folder_is_clean_whole_and_made_once(chain, tmp_path):
    newest = chain / "run/checkpoints/step-00000012"
    assert (newest / "trainer").is_dir()

    report = export(newest, tmp_path / "out", to="huggingface")

    assert sorted(report.files) == [
        "README.md", "config.json", "manifest.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json", "vocab.txt",
    ]  # fmt: skip
    weights = "model.safetensors"
    assert (tmp_path / "out" / weights).read_bytes() == (newest / weights).read_bytes()
    assert report.files[weights] == (newest / weights).stat().st_size
    with pytest.raises(ConfigError, match="out: already exists"):
        export(newest, tmp_path / "out", to="huggingface")
    export(newest, tmp_path / "out", to="huggingface", overwrite=True)
    assert len(fill_mask(tmp_path / "out", "[MASK]")) == 1


def test_the_model_card_states_text_recipe_and_held_out_figures(chain, tmp_path):
    export(chain / "run", tmp_path / "out", to="huggingface")

    card = (tmp_path / "out/README.md").read_text(encoding="utf-8")

    manifest = json.loads((chain / "run/final/manifest.json").read_text())
    data = json.loads((chain / "data/manifest.json").read_text())
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "12 updates with the objective mlm-nsp, seed 1." in card
    assert "BertForPreTraining.from_pretrained" in card
    assert f"| documents | {data['report']['documents']} |" in card
    assert f"| mlm loss | {manifest['held_out']['mlm_loss']:.4g} |" in card
    assert "| max steps | 12 |" in card
    assert "## Intended use" in card
    assert "It saw texts of up to 48 tokens." in card


def test_the_model_card_of_a_classifier_states_labels_and_scores(chain, tmp_path):
    export(chain / "model", tmp_path / "out", to="huggingface")

    card = (tmp_path / "out/README.md").read_text(encoding="utf-8")

    assert "into `cat`, `dog`." in card
    assert "## Scores on the dev rows" in card
    assert "AutoModelForSequenceClassification" in card


@pytest.mark.parametrize(
    ("task", "pair_column", "use"),
    [
        ("regression", "b", "Predicting the number `x` of pairs of texts like those it was fine-"),
        ("multi-label", None, "Saying which of these labels apply to texts like those it was"),
        ("classification", "b", "Classifying pairs of texts like those it was fine-tuned on, into"),
    ],
)
def test_the_model_card_says_what_the_model_is_for(chain, tmp_path, task, pair_column, use):
    manifest = json.loads((chain / "model/manifest.json").read_text())
    options = manifest["options"] | {"pair_column": pair_column}
    manifest |= {"task": task, "classes": ["x"], "options": options}
    config = json.loads((chain / "model/config.json").read_text())

    write_card(tmp_path / "c.md", manifest, config, to="huggingface")

    assert f"\n{use}" in (tmp_path / "c.md").read_text(encoding="utf-8")
    write_card(tmp_path / "o.md", manifest, config, to="onnx")
    asks_for_two = 'tokenize(["a text"], ["a second one"],' in (tmp_path / "o.md").read_text()
    assert asks_for_two == (pair_column is not None)


def test_the_model_card_of_an_import_points_to_its_makers(make_foreign, tmp_path):
    from bertpre.interop.import_checkpoint import import_checkpoint

    import_checkpoint(make_foreign("BertModel"), tmp_path / "in")
    export(tmp_path / "in", tmp_path / "out", to="huggingface")

    card = (tmp_path / "out/README.md").read_text(encoding="utf-8")

    assert "Trained by others and imported with bertpre" in card
    assert "Their licence and their model card apply." in card
    assert "AutoModel.from_pretrained" in card


def test_a_bar_in_a_label_does_not_break_the_cards_table(chain, tmp_path):
    manifest = json.loads((chain / "model/manifest.json").read_text())
    manifest["class_counts"] = {"train": {"a|b": 1, **{str(i): 1 for i in range(7)}}}
    config = json.loads((chain / "model/config.json").read_text())

    write_card(tmp_path / "c.md", manifest, config, to="huggingface")

    assert "| a\\|b | 1 |" in (tmp_path / "c.md").read_text(encoding="utf-8")


def test_a_damaged_checkpoint_is_not_exported(chain, tmp_path):
    shutil.copytree(chain / "run/final", tmp_path / "in")
    with (tmp_path / "in/vocab.txt").open("a") as file:
        file.write("x")

    with pytest.raises(Exception, match=r"vocab.txt: expected .* bytes, found"):
        export(tmp_path / "in", tmp_path / "out", to="huggingface")
