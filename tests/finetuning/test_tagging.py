"""Tagging from end to end: files, scores, predictions, several models, and what is refused."""

import dataclasses
import json
import logging

import numpy as np
import pytest
import torch
from seqeval.metrics import f1_score
from seqeval.scheme import IOB2

from bertpre.artefacts import check_files, read_manifest
from bertpre.config.schema import Finetune
from bertpre.errors import ConfigError, CorpusError
from bertpre.finetuning.finetune import finetune
from bertpre.finetuning.plan import read_plan
from bertpre.finetuning.registry import task_of
from bertpre.finetuning.running import Placement, Run, load_finetuned
from bertpre.inference.predict import predict
from bertpre.inspection.inspection import inspect
from bertpre.interop.export import export

CPU = Placement(torch.device("cpu"), "fp32")
NAMES = {"cat": ["B-ANIMAL"], "dog": ["B-ANIMAL"], "old sailor": ["B-MAN", "I-MAN"]}
VERBS = ["sees", "follows", "likes", "paints"]


def sentences(number):
    """Sentences with entities that their words give away."""
    rows = []
    names = list(NAMES)
    for i in range(number):
        first, second = names[i % 3], names[i // 3 % 3]
        tokens = ["the", *first.split(), VERBS[i % 4], "the", *second.split(), "."]
        tags = ["O", *NAMES[first], "O", "O", *NAMES[second], "O"]
        rows.append((tokens, tags))
    return rows


def columns(rows, *, separator="\t"):
    lines = [
        "\n".join(separator.join(pair) for pair in zip(tokens, tags, strict=True))
        for tokens, tags in rows
    ]
    return "\n\n".join(lines) + "\n"


def write(path, content):
    path.write_bytes(content.encode())
    return path


def read_columns(path):
    blocks = path.read_text(encoding="utf-8").strip("\n").split("\n\n")
    return [[line.split("\t") for line in block.split("\n")] for block in blocks]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagged")
    write(folder / "train.conll", columns(sentences(48)))
    write(folder / "dev.conll", columns(sentences(9)))
    write(folder / "plain.conll", columns([(t, ["DET" if w == "the" else "X" for w in t])
                                           for t, _ in sentences(24)]))  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def tag_recipe(recipe):
    return dataclasses.replace(recipe, num_epochs=6, learning_rate=5e-3)


def train(checkpoint, files, output, config, **tables):
    tables = {"train": "train.conll", "dev": "dev.conll", **tables}
    paths = {part: files / name for part, name in tables.items() if name is not None}
    return finetune(checkpoint, output=output, config=config, **paths)


@pytest.fixture(scope="module")
def tagger(tmp_path_factory, tiny_checkpoint, files, tag_recipe):
    folder = tmp_path_factory.mktemp("tagger") / "model"
    return train(tiny_checkpoint, files, folder, tag_recipe, test="dev.conll")


def test_a_column_file_becomes_a_tagger_and_its_scores_are_those_of_seqeval(tagger):
    assert tagger.task.name == "tagging"
    assert tagger.dev["f1"] > 0.9
    rows = [
        [line.split("\t") for line in block.split("\n")]
        for block in (tagger.output / "dev_predictions.conll").read_text().strip().split("\n\n")
    ]
    true = [[line[1] for line in row] for row in rows]
    found = [[line[2] for line in row] for row in rows]
    assert [[line[0] for line in row] for row in rows] == [tokens for tokens, _ in sentences(9)]
    strict = f1_score(true, found, mode="strict", scheme=IOB2)
    assert tagger.dev["f1"] == pytest.approx(strict)
    assert tagger.dev["lenient_f1"] == pytest.approx(f1_score(true, found))


def test_the_folder_is_whole_and_says_what_the_tags_are(tagger):
    manifest = read_manifest(tagger.output, "model")
    check_files(tagger.output, manifest, content=True)

    assert manifest["task"] == "tagging"
    assert manifest["scheme"] == "IOB2"
    assert manifest["classes"] == ["O", "B-ANIMAL", "I-ANIMAL", "B-MAN", "I-MAN"]
    # The man is the first of two names in 16 of 48 sentences, the second in 15.
    assert manifest["class_counts"]["train"] == {"ANIMAL": 65, "MAN": 31}
    config = json.loads((tagger.output / "config.json").read_text())
    assert config["architectures"] == ["BertForTokenClassification"]
    assert config["id2label"]["1"] == "B-ANIMAL"
    assert (tagger.output / "confusion_matrix.png").stat().st_size > 5000
    header = (tagger.output / "dev_mistakes.tsv").read_text().splitlines()[0]
    assert header == "line\ttrue\tfound"
    assert set(tagger.baselines) == {"commonest_tag", "longest_match"}
    # Every token has one tag in training, so both baselines know everything.
    assert tagger.baselines["longest_match"]["dev"]["f1"] == 1.0


def test_tokens_that_came_in_go_out(tmp_path, tagger):
    content = (
        "-DOCSTART- O\n\n# id 7\nthe\tO\n\u00ad\tO\n \tI-MAN\ncat\tO\r\n\t\n# text = a b\n"
        "#\tO\nid\tO\n\n\n" + "sees\tO\n" * 300
    )
    given = write(tmp_path / "new.conll", content.replace("-DOCSTART- O", "-DOCSTART-\tO"))

    report = predict(tagger.output, given, output=tmp_path / "out.conll")

    before = given.read_bytes().decode().split("\n")
    after = (tmp_path / "out.conll").read_bytes().decode().split("\n")
    assert len(before) == len(after)
    assert report.num_rows == 3
    assert report.num_windowed == 1  # 300 tokens, at most 30 in a sequence
    known = set(tagger.task.names)
    for one, other in zip(before, after, strict=True):
        if "\t" in one and not one.startswith("-") and one.strip():
            assert other.split("\t")[0] == one.split("\t")[0]
            assert other.rstrip("\r").split("\t")[1] in known
        else:
            assert one == other


def test_a_file_without_tags_gets_a_column(tmp_path, tagger):
    given = write(tmp_path / "new.conll", "the\ncat\nsees\n\nthe\ndog\n")

    predict(tagger.output, given, output=tmp_path / "out.conll")

    rows = read_columns(tmp_path / "out.conll")
    assert [[line[0] for line in row] for row in rows] == [["the", "cat", "sees"], ["the", "dog"]]
    assert rows[0][1][1] == rows[1][1][1] == "B-ANIMAL"


def test_other_columns_than_in_training_are_an_error(tmp_path, tagger):
    given = write(tmp_path / "new.conll", "1\tthe\tDT\tO\n")

    with pytest.raises(CorpusError, match="line 1: found 4 columns, expected 2, or 1 without"):
        predict(tagger.output, given, output=tmp_path / "out.conll")
    assert not (tmp_path / "out.conll").exists()


@pytest.mark.parametrize("crf", [False, True])
def test_impossible_sequences_are_never_predicted(
    tmp_path, tiny_checkpoint, files, tag_recipe, crf
):
    config = dataclasses.replace(tag_recipe, num_epochs=1, crf=crf, learning_rate=1e-2)

    result = train(tiny_checkpoint, files, tmp_path / "model", config)

    for output in result.outputs["dev"]:
        tags = [result.task.names[number] for number in output.decided]
        for before, tag in zip(["O", *tags], tags, strict=False):
            assert not tag.startswith("I-") or before[2:] == tag[2:], tags
        np.testing.assert_allclose(output.probabilities.sum(axis=1), 1, atol=1e-4)


def test_a_crf_learns_and_is_read_back(tmp_path, tiny_checkpoint, files, tag_recipe):
    config = dataclasses.replace(tag_recipe, crf=True)
    result = train(tiny_checkpoint, files, tmp_path / "model", config)

    assert result.dev["f1"] > 0.9
    model = load_finetuned(result.output, CPU.device).model
    assert model.crf.transitions.abs().max() > 0
    predict(result.output, files / "dev.conll", output=tmp_path / "out.conll")
    again = [[line[1] for line in row] for row in read_columns(tmp_path / "out.conll")]
    shown = read_columns(result.output / "dev_predictions.conll")
    assert again == [[line[2] for line in row] for row in shown]


@pytest.mark.parametrize("crf", [False, True])
def test_sentences_without_tokens_stay_so(tmp_path, tiny_checkpoint, files, tag_recipe, crf):
    config = dataclasses.replace(tag_recipe, num_epochs=1, crf=crf)
    result = train(tiny_checkpoint, files, tmp_path / "model", config)
    rows = ['{"tokens": []}', '{"tokens": ["the", "cat"]}', '{"tokens": [], "id": 3}']
    for name, chosen in (("some", rows), ("none", rows[::2])):
        given = write(tmp_path / f"{name}.jsonl", "\n".join(chosen) + "\n")

        predict(result.output, given, output=tmp_path / "out.jsonl", overwrite=True)

        found = [json.loads(row) for row in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert [len(row["labels"]) for row in found] == [len(row["tokens"]) for row in found]
        assert found[-1] == {"tokens": [], "id": 3, "labels": []}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("crf", [False, True])
def test_a_tagger_learns_and_predicts_on_a_gpu(tmp_path, tiny_checkpoint, files, tag_recipe, crf):
    config = dataclasses.replace(tag_recipe, crf=crf, device="cuda", precision="auto")
    result = train(tiny_checkpoint, files, tmp_path / "model", config)

    assert result.dev["f1"] > 0.9
    predict(result.output, files / "dev.conll", output=tmp_path / "gpu.conll", config=config)
    config = dataclasses.replace(config, device="cpu", precision="fp32")
    predict(result.output, files / "dev.conll", output=tmp_path / "cpu.conll", config=config)
    assert read_columns(tmp_path / "gpu.conll") == read_columns(tmp_path / "cpu.conll")


def test_several_models_average_probabilities_before_decoding(
    tmp_path, tiny_checkpoint, files, tag_recipe
):
    config = dataclasses.replace(tag_recipe, seeds=2, num_epochs=2)
    result = train(tiny_checkpoint, files, tmp_path / "model", config)

    parts = [load_finetuned(result.output / f"seed-{seed}", CPU.device) for seed in (0, 1)]
    texts = [tokens for tokens, _ in sentences(9)]
    runs = [Run(part.model, result.task.encode(part.encoder, texts)) for part in parts]
    single = [result.task.predict([run], placement=CPU) for run in runs]
    for row, output in enumerate(result.outputs["dev"]):
        mean = np.mean([found[row].probabilities for found in single], axis=0)
        np.testing.assert_allclose(output.probabilities, mean, atol=1e-5)
    assert np.isfinite(result.dev["loss"])


def test_folds_score_every_sentence_once(tmp_path, tiny_checkpoint, files, tag_recipe):
    config = dataclasses.replace(tag_recipe, folds=3)

    result = train(tiny_checkpoint, files, tmp_path / "model", config, dev=None)

    assert len(result.outputs["dev"]) == 48
    assert result.dev["f1"] > 0.9
    tokens = [[line[0] for line in row]
              for row in read_columns(result.output / "dev_predictions.conll")]  # fmt: skip
    assert tokens == [tokens for tokens, _ in sentences(48)]


@pytest.mark.parametrize("size", [1, 3, None])
def test_the_loss_is_the_mean_over_the_tokens_of_the_whole_batch(
    tmp_path, tiny_checkpoint, tag_recipe, size
):
    rows = [*sentences(7), (["the"] * 40, ["O"] * 40), (["cat"], ["B-ANIMAL"])]
    write(tmp_path / "t.conll", columns(rows))
    config = dataclasses.replace(
        tag_recipe, num_epochs=2, batch_size=9, micro_batch_size=size, hidden_dropout_prob=0.0
    )

    result = train(
        tiny_checkpoint, tmp_path, tmp_path / "model", config, train="t.conll", dev="t.conll"
    )

    # Two updates with the warm-up at 0: the first loss is that of the untrained head, whatever
    # the division of the batch.
    losses = [epoch.train_loss for epoch in result.members[0].history]
    whole = dataclasses.replace(config, micro_batch_size=None)
    other = train(
        tiny_checkpoint, tmp_path, tmp_path / "whole", whole, train="t.conll", dev="t.conll"
    )
    expected = [epoch.train_loss for epoch in other.members[0].history]
    np.testing.assert_allclose(losses, expected, rtol=2e-4)


def test_all_parts_of_the_recipe_work_together(tmp_path, tiny_checkpoint, files, tag_recipe):
    config = dataclasses.replace(
        tag_recipe,
        num_epochs=2,
        mask_probability=0.2,
        adversarial_epsilon=1.0,
        ema_decay=0.9,
        layer_decay=0.8,
        label_smoothing=0.1,
        class_weights="balanced",
        focal_gamma=1.0,
        max_seq_length=6,
    )

    result = train(tiny_checkpoint, files, tmp_path / "model", config)

    assert np.isfinite(result.dev["loss"])
    counts = read_manifest(result.output, "model")["counts"]["train"]
    assert counts["windowed_rows"] > 0
    assert counts["truncated_rows"] == 0


def test_plain_tags_have_accuracy(tmp_path, tiny_checkpoint, files, tag_recipe):
    result = train(tiny_checkpoint, files, tmp_path / "model", tag_recipe,
                   train="plain.conll", dev="plain.conll")  # fmt: skip

    assert result.task.scheme.is_plain
    assert result.dev["accuracy"] > 0.95
    assert set(result.baselines) == {"commonest_tag"}
    assert read_manifest(result.output, "model")["options"]["metric"] == "accuracy"


def test_json_lines_of_entities_come_back_as_entities(tmp_path, tiny_checkpoint, tag_recipe):
    rows = []
    for tokens, tags in sentences(24):
        text, entities = " ".join(tokens), []
        for place, tag in enumerate(tags):
            start = len(" ".join(tokens[:place])) + (place > 0)
            end = start + len(tokens[place])
            if tag.startswith("B-"):
                entities.append({"start": start, "end": end, "label": tag[2:]})
            elif tag.startswith("I-"):
                entities[-1]["end"] = end
        rows.append(json.dumps({"id": len(rows), "text": text, "entities": entities}))
    write(tmp_path / "t.jsonl", "\n".join(rows) + "\n")
    config = dataclasses.replace(tag_recipe, num_epochs=12)

    result = train(tiny_checkpoint, tmp_path, tmp_path / "model", config,
                   train="t.jsonl", dev="t.jsonl")  # fmt: skip
    predict(result.output, tmp_path / "t.jsonl", output=tmp_path / "out.jsonl")

    assert result.dev["f1"] == 1.0
    found = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(row) for row in found] == [json.loads(row) for row in rows]


def test_the_transformers_library_has_equal_logits_and_equal_tags(tmp_path, tagger):
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    export(tagger.output, tmp_path / "hf", to="huggingface")
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "hf").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    rows = [tokens for tokens, _ in sentences(9)]
    batch = tokenizer(rows, is_split_into_words=True, padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**batch).logits
    theirs = []
    for row, tokens in enumerate(rows):
        words = batch.word_ids(row)
        firsts = [words.index(number) for number in range(len(tokens))]
        theirs.append([model.config.id2label[int(logits[row, place].argmax())] for place in firsts])

    task = dataclasses.replace(tagger.task, constrained=False)
    loaded = load_finetuned(tagger.output, CPU.device)
    runs = [Run(loaded.model, task.encode(loaded.encoder, rows))]
    ours = task.predict(runs, placement=CPU)

    assert [[task.names[tag] for tag in output.decided] for output in ours] == theirs
    chances = torch.softmax(logits, dim=2)
    for row, tokens in enumerate(rows):
        words = batch.word_ids(row)
        firsts = [words.index(number) for number in range(len(tokens))]
        np.testing.assert_allclose(ours[row].probabilities, chances[row, firsts], atol=1e-4)


def test_the_task_is_rebuilt_from_the_manifest(tagger):
    found = task_of(tagger.output, read_manifest(tagger.output, "model"))

    assert found == tagger.task


def test_inspect_shows_types_scores_and_mistakes(tagger):
    shown = str(inspect(tagger.output))

    assert "2 entity types in IOB2 (5 tags)" in shown
    assert "longest" not in shown  # the baseline has a name for people
    assert "dictionary of entities" in shown


def test_a_tagger_that_finds_nothing_is_said_to_be_no_better_than_the_baselines(
    tmp_path, tiny_checkpoint, files, tag_recipe, caplog
):
    config = dataclasses.replace(tag_recipe, num_epochs=1, learning_rate=1e-7)

    with caplog.at_level(logging.WARNING):
        result = train(tiny_checkpoint, files, tmp_path / "model", config)

    assert result.dev["f1"] < 0.2
    assert "the model is no better than a baseline: its dev f1 is" in caplog.text
    assert "that of 'most common tag of each token' is 1.000" in caplog.text


# Bad input


def plan(path, *, dev=None, test=None, **options):
    return read_plan(path, dev=dev, test=test, config=Finetune(**options), seed=0)


def test_a_type_that_only_dev_has_is_an_error_and_in_test_counts_as_wrong(
    tmp_path, files, tiny_checkpoint, tag_recipe, caplog
):
    other = write(tmp_path / "o.conll", columns([(["a", "boat"], ["O", "B-SHIP"])]))

    with pytest.raises(
        CorpusError, match=r"o\.conll: labels that .*train\.conll does not have: 'SHIP' on line 1; "
        "expected one of 'ANIMAL', 'MAN'"
    ):  # fmt: skip
        plan(files / "train.conll", dev=other)
    with caplog.at_level(logging.WARNING):
        found = plan(files / "train.conll", dev=files / "dev.conll", test=other)
    assert "'SHIP' on line 1; the model cannot predict them, so they count as wrong" in caplog.text
    targets = found.task.targets(found.test.labels)
    outputs = found.task.baselines(found.train, found.config)["longest_match"](
        found.train, [found.test]
    )[0]
    assert found.task.scores(outputs, targets)["recall"] == 0.0


def test_a_rare_tag_of_a_known_type_is_no_error(tmp_path):
    train = columns([(["a", "b", "c"], ["B-X", "I-X", "E-X"]), (["d"], ["S-Y"])] * 4)
    dev = columns([(["d"], ["S-X"]), (["a", "b"], ["B-Y", "E-Y"])])

    found = plan(write(tmp_path / "t.conll", train), dev=write(tmp_path / "d.conll", dev))

    assert found.task.scheme.name == "IOBES"
    assert {"S-X", "E-Y"} <= set(found.task.names)


def test_mixed_schemes_are_an_error_that_shows_where(tmp_path):
    rows = [(["a", "b"], ["B-X", "I-X"]), (["c", "d"], ["O", "I-X"])] * 5
    path = write(tmp_path / "t.conll", columns(rows))

    with pytest.raises(
        CorpusError, match=r"the tags of its 10 entities follow no scheme: 5 break \w+, first the "
        r"tag '\S+' of '\w' in the sentence on line \d+; .*expected fewer than one in 100"
    ):  # fmt: skip
        plan(path)


def test_a_few_broken_starts_are_repaired_for_training_and_counted(tmp_path, caplog):
    rows = [(["a", "b"], ["B-X", "I-X"])] * 200 + [(["c", "d"], ["O", "I-X"])]
    path = write(tmp_path / "t.conll", columns(rows))

    with caplog.at_level(logging.WARNING):
        found = plan(path, dev=path)

    assert "1 of 201 entities break IOB2, first the tag 'I-X' of 'd'" in caplog.text
    target = found.task.targets(found.train.labels)[-1]
    assert [found.task.names[number] for number in target.numbers] == ["O", "B-X"]
    assert list(target.tags) == ["O", "I-X"]


def test_lost_prefixes_are_an_error(tmp_path):
    rows = [(["a", "b"], ["B-X", "I-X"])] * 20 + [(["c", "d"], ["O", "X"])]
    path = write(tmp_path / "t.conll", columns(rows))

    with pytest.raises(
        CorpusError, match=r"40 of 42 tags have a prefix such as B-, but the tag 'X' of 'd' in the "
        "sentence on line 61 has none"
    ):  # fmt: skip
        plan(path)


def test_one_tag_everywhere_is_an_error(tmp_path):
    path = write(tmp_path / "t.conll", columns([(["a", "b"], ["O", "O"])] * 3))

    with pytest.raises(CorpusError, match="all 6 tokens have the tag 'O'; expected different tags"):
        plan(path)


def test_a_file_without_tags_is_an_error(tmp_path):
    path = write(tmp_path / "t.conll", "a\nb\n\nc\n")

    with pytest.raises(CorpusError, match="line 1: found 1 column, expected a token and its tag"):
        plan(path)


def test_an_empty_file_is_an_error(tmp_path):
    path = write(tmp_path / "t.conll", "\n\n# id 1\n")

    with pytest.raises(CorpusError, match="has no sentences; expected at least one token with"):
        plan(path)


def test_a_file_without_blank_lines_is_noticed(tmp_path, caplog):
    path = write(tmp_path / "t.conll", columns([(["a", "b"] * 3000, ["B-X", "O"] * 3000)]))

    with caplog.at_level(logging.WARNING):
        plan(path, dev=path)

    assert "the sentence on line 1 has 6,000 tokens; are blank lines" in caplog.text


def test_dev_in_another_scheme_is_an_error(tmp_path):
    train = columns([(["a", "b", "c"], ["B-X", "I-X", "E-X"]), (["d"], ["S-X"])] * 4)
    dev = columns([(["d", "e"], ["B-X", "I-X"])] * 3)

    with pytest.raises(CorpusError, match=r"its tags are IOB2, but those of .*t\.conll are IOBES"):
        plan(write(tmp_path / "t.conll", train), dev=write(tmp_path / "d.conll", dev))


@pytest.mark.parametrize(
    ("train", "dev", "message"),
    [
        ("B-X I-X", "B-X E-X", "its tags are IOBES, but those of .* are IOB2"),
        ("B-X I-X", "NOUN VERB", "its tags are plain, but those of .* are IOB2"),
    ],
)
def test_dev_tags_of_another_kind_are_an_error(tmp_path, train, dev, message):
    paths = [
        write(tmp_path / f"{name}.conll", columns([(["a", "b"], tags.split()), (["c"], ["O"])] * 3))
        for name, tags in (("t", train), ("d", dev))
    ]

    with pytest.raises(CorpusError, match=message):
        plan(paths[0], dev=paths[1])


def test_dev_without_entities_or_with_broken_ones_is_said(tmp_path, files, caplog):
    bare = write(tmp_path / "d.conll", columns([(["a", "b"], ["O", "O"])]))
    broken = write(
        tmp_path / "b.conll",
        columns([(["a", "b"], ["O", "I-MAN"]), (["a", "b"], ["B-MAN", "I-MAN"])]),
    )

    with caplog.at_level(logging.WARNING):
        plan(files / "train.conll", dev=bare, test=broken)

    assert "d.conll: has no entity, so F1 is 0 whatever is predicted" in caplog.text
    assert "1 of 2 entities break IOB2; the strict scores do not count them" in caplog.text


def test_a_slip_in_a_small_file_is_repaired(tmp_path):
    rows = [*([(["a", "b"], ["B-X", "I-X"])] * 20), (["c", "d"], ["O", "I-X"])]

    found = plan(write(tmp_path / "t.conll", columns(rows)))

    assert found.task.scheme.name == "IOB2"


def test_text_is_never_replaced_by_tags(tmp_path, tagger):
    given = write(tmp_path / "new.conll", "new york\nsan jose\n")

    with pytest.raises(
        CorpusError, match="the predicted tags would replace 'york', which is no tag of this model"
    ):
        predict(tagger.output, given, output=tmp_path / "out.conll")
    assert not (tmp_path / "out.conll").exists()


@pytest.mark.parametrize("name", ["out.parquet", "out.csv", "out.conll.gz", "out.jsonl"])
def test_a_name_that_says_something_else_than_the_output_is_refused(tmp_path, tagger, files, name):
    with pytest.raises(ConfigError, match="the predictions are written as plain columns, which"):
        predict(tagger.output, files / "dev.conll", output=tmp_path / name)


def test_a_tagger_of_nothing_but_outside_says_so(
    tmp_path, tiny_checkpoint, files, tag_recipe, caplog
):
    rare = columns([(["the"] * 60, ["O"] * 60), (["a", "boat"], ["O", "B-X"])] * 4)
    write(tmp_path / "rare.conll", rare)
    config = dataclasses.replace(tag_recipe, num_epochs=1, learning_rate=1e-2, batch_size=2)

    with caplog.at_level(logging.WARNING):
        result = train(
            tiny_checkpoint, tmp_path, tmp_path / "m", config, train="rare.conll", dev="rare.conll"
        )

    assert result.dev["recall"] == 0.0
    assert "the model finds no entity in the dev rows; more epochs" in caplog.text


def test_empty_tokens_are_named(tmp_path):
    path = write(tmp_path / "t.jsonl", '{"tokens": ["a", ""], "labels": ["B-X", "O"]}\n')

    with pytest.raises(CorpusError, match="a token is empty on line 1"):
        plan(path)


def test_a_file_of_columns_is_no_table_of_labels(files):
    with pytest.raises(ConfigError, match="a file of columns has a tag for each token"):
        plan(files / "train.conll", task="classification")


def test_plain_tags_have_nothing_to_constrain(files):
    with pytest.raises(ConfigError, match="constrained: has no effect on plain tags"):
        plan(files / "plain.conll", constrained=False)


def test_skipping_all_rows_is_an_error(tmp_path, files):
    other = write(tmp_path / "o.conll", columns([(["a", "boat"], ["O", "B-SHIP"])]))

    with pytest.raises(CorpusError, match="'SHIP' on line 1; no other rows are left"):
        plan(files / "train.conll", dev=other, on_bad_rows="skip")


def test_bad_rows_are_named_at_once_or_skipped(tmp_path):
    path = write(tmp_path / "t.conll", columns(sentences(6)) + "\nthe\tO\nboat\n\ncat\tO\tO\n")

    with pytest.raises(CorpusError) as caught:
        plan(path)
    assert "found 1 column, expected 2 as in line 1" in str(caught.value)
    assert "found 3 columns, expected 2 as in line 1" in str(caught.value)
    assert len(plan(path, dev=path, on_bad_rows="skip").train) == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "mean"}, "pooling: has no effect on tagging"),
        ({"label_separator": "|"}, "label_separator: has no effect on tagging"),
        ({"long_texts": "tail"}, "long_texts: tail would leave tokens without a tag"),
        ({"crf": True, "label_smoothing": 0.1}, "label_smoothing: has no effect with --crf"),
        ({"crf": True, "class_weights": "balanced"}, "class_weights: has no effect with --crf"),
        ({"pair_column": "b"}, "pair_column: 'b': tokens with tags have no second text"),
        ({"metric": "spearman"}, "metric: tagging has no spearman; expected one of f1"),
        ({"text_column": "token"}, "text_column: 'token': expected a number"),
    ],
)
def test_options_that_do_nothing_are_refused(files, options, message):
    with pytest.raises(ConfigError, match=message):
        plan(files / "train.conll", **options)


@pytest.mark.parametrize(("option", "value"), [("crf", True), ("constrained", False)])
def test_options_of_tagging_are_refused_elsewhere(tables, option, value):
    with pytest.raises(
        ConfigError, match=f"{option}: is for labels on tokens, but this is classification"
    ):
        plan(tables / "train.tsv", **{option: value})


def test_a_classifier_cannot_be_asked_for_constraints(tmp_path, tiny_model, tables):
    with pytest.raises(ConfigError, match="constrained: is for labels on tokens"):
        predict(tiny_model, tables / "test.tsv", output=tmp_path / "p.tsv",
                config=Finetune(constrained=False))  # fmt: skip
