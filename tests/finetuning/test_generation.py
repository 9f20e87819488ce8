"""Generation from end to end: training, texts, several models, folders, and what is refused."""

import dataclasses
import json
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertpre.artefacts import check_files, read_manifest, write_manifest
from bertpre.config.load import load_config
from bertpre.config.schema import BuildVocab, Finetune, Model
from bertpre.errors import BertpreError, ConfigError, CorpusError
from bertpre.finetuning.batches import Encoder
from bertpre.finetuning.encoded_pairs import EncodedSources
from bertpre.finetuning.finetune import finetune
from bertpre.finetuning.generated_files import remarks_on_texts
from bertpre.finetuning.generation import Generation
from bertpre.finetuning.registry import task_of
from bertpre.finetuning.results import FinetuneResult
from bertpre.finetuning.running import Placement, Run, load_finetuned
from bertpre.finetuning.tables import LabelledTable
from bertpre.finetuning.target_checks import examine_targets, has_repeats
from bertpre.inference.predict import predict
from bertpre.inspection.inspection import inspect
from bertpre.model.bert import initialize
from bertpre.model.folder import save_model
from bertpre.model.heads import BertForPreTraining
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.tokenizer.vocabulary import build_vocab

CPU = Placement(torch.device("cpu"), "fp32")
TUTORIAL = Path(__file__).parents[2] / "configs" / "transformer-tutorial.yaml"
DECODERS = ["copied", "random", "shared", "prefix"]


def reversals(number: int, seed: int) -> list[tuple[str, str]]:
    """Numbers of two to six digits, and the same backwards."""
    generator = random.Random(seed)
    rows = []
    for _ in range(number):
        digits = [str(generator.randrange(10)) for _ in range(generator.randint(2, 6))]
        rows.append((" ".join(digits), " ".join(reversed(digits))))
    return rows


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    lines = ["text\tlabel", *("\t".join(row) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def read(path: Path) -> list[dict[str, str]]:
    header, *rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return [dict(zip(header, row, strict=True)) for row in rows]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    write(folder / "train.tsv", reversals(3000, 0))
    write(folder / "small.tsv", reversals(64, 2))
    write(folder / "dev.tsv", reversals(100, 1))
    return folder


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Path:
    folder = tmp_path_factory.mktemp("digits") / "tokenizer"
    build_vocab([files / "train.tsv"], folder, config=digit_config())
    return folder


def digit_config() -> BuildVocab:
    text = dataclasses.replace(BuildVocab().text, format="tsv", text_column="text")
    return BuildVocab(text=text, token_mode="whole", min_frequency=1)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, digits: Path) -> Callable[..., Path]:
    """A function: a shape to a checkpoint of random weights."""

    def make(**shape: Any) -> Path:
        folder = tmp_path_factory.mktemp("start")
        tokenizer = Tokenizer.load(digits)
        options = {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 64,
            "max_position_embeddings": 16,
        }
        model = BertForPreTraining(
            Model(**{**options, **shape}), vocab_size=tokenizer.vocab_size, with_nsp=False
        )
        initialize(model, 0.05, torch.Generator().manual_seed(0))
        save_model(folder, model, extra_config={"pad_token_id": tokenizer.pad_id})
        tokenizer.save_files(folder)
        facts = {"max_seq_length": 16, "objective": "mlm", "step": 0}
        write_manifest(folder, "checkpoint", facts)
        return folder

    return make


def quick(**options: Any) -> Finetune:
    """One epoch over few rows."""
    return Finetune(
        **{
            "task": "generation",
            "num_epochs": 1,
            "batch_size": 8,
            "learning_rate": 3e-3,
            "precision": "fp32",
            "baseline": False,
            **options,
        }
    )


def train(
    checkpoint: Path, files: Path, output: Path, config: Finetune, **options: Any
) -> FinetuneResult:
    paths = {"train": files / "small.tsv", "dev": files / "dev.tsv", **options}
    return finetune(checkpoint, output=output, config=config, **paths)


@pytest.fixture(scope="module")
def reverser(
    tmp_path_factory: pytest.TempPathFactory, start: Callable[..., Path], files: Path
) -> FinetuneResult:
    """The whole Transformer of the tutorials, but small."""
    shape = load_config([TUTORIAL]).model
    checkpoint = start(
        norm=shape.norm,
        hidden_act=shape.hidden_act,
        position_embeddings=shape.position_embeddings,
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=256,
    )
    config = quick(
        decoder="random",
        num_epochs=10,
        batch_size=32,
        learning_rate=4e-3,
        hidden_dropout_prob=0.0,
        metric="exact_match",
        baseline=None,
    )
    output = tmp_path_factory.mktemp("reverser") / "model"
    return train(checkpoint, files, output, config, train=files / "train.tsv")


@pytest.fixture(scope="module")
def models(
    tmp_path_factory: pytest.TempPathFactory, start: Callable[..., Path], files: Path
) -> dict[str, Path]:
    """A hardly trained model of each form."""
    folder, checkpoint = tmp_path_factory.mktemp("forms"), start()
    for decoder in DECODERS:
        train(checkpoint, files, folder / decoder, quick(decoder=decoder))
    return {decoder: folder / decoder for decoder in DECODERS}


def test_the_transformer_of_the_tutorials_learns_to_reverse_digits(
    reverser: FinetuneResult,
) -> None:
    assert reverser.dev["exact_match"] >= 0.99
    assert reverser.dev["bleu"] > 95
    assert list(reverser.baselines) == ["nearest", "commonest", "copy"]
    palindromes = sum(source == target for source, target in reversals(100, 1))
    assert reverser.baselines["copy"]["dev"]["exact_match"] == palindromes / 100


@pytest.mark.parametrize("num_beams", [1, 4])
def test_predictions_are_in_the_order_of_the_rows_and_the_same_alone(
    tmp_path: Path, reverser: FinetuneResult, num_beams: int
) -> None:
    rows = [*reversals(40, 5), ("7", "7"), ("1 2 3", "3 2 1")]
    config = dataclasses.replace(Finetune(), num_beams=num_beams)
    predict(
        reverser.output, write(tmp_path / "in.tsv", rows), output=tmp_path / "out.tsv",
        config=config,
    )  # fmt: skip
    together = read(tmp_path / "out.tsv")
    right = [row["prediction"] == target for row, (_, target) in zip(together, rows, strict=True)]
    assert sum(right) >= 40
    for number in (0, 17, 41):
        table = write(tmp_path / "one.tsv", [rows[number]])
        predict(reverser.output, table, output=tmp_path / "one_out.tsv", config=config,
                overwrite=True)  # fmt: skip
        (alone,) = read(tmp_path / "one_out.tsv")
        assert alone["prediction"] == together[number]["prediction"]
        assert float(alone["score"]) == pytest.approx(float(together[number]["score"]), abs=1e-5)


def test_the_score_is_the_mean_log_probability_of_the_text(
    tmp_path: Path, reverser: FinetuneResult
) -> None:
    model = load_finetuned(reverser.output, CPU.device)
    ((source, _),) = reversals(1, 6)
    task = task_of(reverser.output, read_manifest(reverser.output, "model"))
    outputs = task.predict([Run(model.model, task.encode(model.encoder, [source]))], placement=CPU)
    table = LabelledTable(name="", texts=(source,), labels=(outputs[0].text,), lines=(2,))
    texts, _ = dataclasses.replace(task, max_learnt_length=15).encode_table(
        model.encoder, table, on_rows=lambda rows: None
    )
    again = task.predict([Run(model.model, texts)], placement=CPU)[0]
    num_tokens = len(outputs[0].text.split()) + 1
    assert again.num_target_tokens == num_tokens
    assert again.target_log_probability / num_tokens == pytest.approx(outputs[0].score, abs=1e-5)


@pytest.mark.parametrize("decoder", DECODERS)
def test_each_form_is_read_back_and_predicts_as_at_the_end_of_training(
    tmp_path: Path, models: dict[str, Path], files: Path, decoder: str
) -> None:
    folder = models[decoder]
    manifest = read_manifest(folder, "model")
    check_files(folder, manifest, content=True)
    assert (manifest["task"], manifest["options"]["decoder"]) == ("generation", decoder)
    assert manifest["max_target_length"] == 12  # twice six digits
    predict(folder, files / "dev.tsv", output=tmp_path / "out.tsv")
    at_the_end = read(folder / "dev_predictions.tsv")
    again = read(tmp_path / "out.tsv")
    assert [row["prediction"] for row in again] == [row["prediction"] for row in at_the_end]
    assert [row["label"] for row in at_the_end] == [target for _, target in reversals(100, 1)]


def test_several_best_texts_are_written_on_request(
    tmp_path: Path, reverser: FinetuneResult
) -> None:
    table = write(tmp_path / "in.tsv", reversals(5, 7))
    config = dataclasses.replace(Finetune(), num_beams=3, num_best=2, length_penalty=0.0)
    predict(reverser.output, table, output=tmp_path / "out.tsv", config=config)
    for row in read(tmp_path / "out.tsv"):
        assert list(row) == ["prediction", "score", "prediction_2", "score_2"]
        assert row["prediction"] != row["prediction_2"]


def test_rows_that_cannot_be_read_have_an_empty_prediction(
    tmp_path: Path, reverser: FinetuneResult
) -> None:
    table = tmp_path / "in.tsv"
    table.write_text("text\tlabel\n1 2\tx\n1\t2\t3\n4 5\ty\n")
    config = Finetune(on_bad_rows="skip")
    predict(reverser.output, table, output=tmp_path / "out.tsv", config=config)
    assert [row["prediction"] for row in read(tmp_path / "out.tsv")] == ["2 1", "", "5 4"]


@pytest.mark.parametrize("decoder", ["copied", "prefix"])
def test_one_batch_and_several_micro_batches_learn_the_same(
    tmp_path: Path, start: Callable[..., Path], files: Path, decoder: str
) -> None:
    whole, parts = (
        train(
            start(),
            files,
            tmp_path / f"{size}",
            quick(
                decoder=decoder,
                batch_size=32,
                micro_batch_size=size,
                hidden_dropout_prob=0.0,
                mask_probability=0.2,
                label_smoothing=0.1,
            ),
        )
        for size in (32, 4)
    )
    assert whole.dev["loss"] == pytest.approx(parts.dev["loss"], rel=1e-5)
    first, second = (load_finetuned(one.output, CPU.device).model for one in (whole, parts))
    for mine, theirs in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-4, rtol=1e-3)


def test_equal_runs_give_equal_bytes(
    tmp_path: Path, start: Callable[..., Path], files: Path
) -> None:
    for name in ("one", "two"):
        config = quick(mask_probability=0.1, ema_decay=0.9, adversarial_epsilon=0.5, num_beams=2)
        train(start(), files, tmp_path / name, config)
    for path in sorted((tmp_path / "one").iterdir()):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def test_several_models_average_the_probabilities_of_each_token(
    tmp_path: Path, start: Callable[..., Path], files: Path
) -> None:
    result = train(start(), files, tmp_path / "models", quick(seeds=2, decoder="prefix"))
    members = [load_finetuned(tmp_path / "models" / m.name, CPU.device) for m in result.members]
    task = task_of(tmp_path / "models", read_manifest(tmp_path / "models", "model"))
    assert isinstance(task, Generation)
    table = LabelledTable(name="", texts=("1 2 3",), labels=("3 2 1",), lines=(2,))
    task = dataclasses.replace(task, max_learnt_length=15)
    runs = []
    for member in members:
        texts, _ = task.encode_table(member.encoder, table, on_rows=lambda rows: None)
        assert isinstance(texts, EncodedSources)
        runs.append(Run(member.model.eval(), texts))
    pairs = texts.pairs(np.array([0]), CPU.device)
    with torch.no_grad():
        each = [
            run.model(pairs.source, pairs.target).softmax(dim=1)[range(4), pairs.labels]
            for run in runs
        ]
    expected = ((each[0] + each[1]) / 2).log().sum()
    (output,) = task.predict(runs, placement=CPU)
    assert output.target_log_probability == pytest.approx(float(expected), abs=1e-4)
    predict([tmp_path / "models"], files / "dev.tsv", output=tmp_path / "out.tsv")
    at_the_end = read(tmp_path / "models" / "dev_predictions.tsv")
    assert [row["prediction"] for row in read(tmp_path / "out.tsv")] == [
        row["prediction"] for row in at_the_end
    ]


def test_folds_score_each_row_once(tmp_path: Path, start: Callable[..., Path], files: Path) -> None:
    result = train(start(), files, tmp_path / "model", quick(folds=2), dev=None)
    rows = read(tmp_path / "model" / "dev_predictions.tsv")
    assert [row["label"] for row in rows] == [target for _, target in reversals(64, 2)]
    assert len(result.members) == 2


def test_training_goes_on_from_a_model_of_the_same_form(
    tmp_path: Path, models: dict[str, Path], files: Path
) -> None:
    first = train(models["copied"], files, tmp_path / "one", quick(learning_rate=1e-9))
    stored = json.loads((models["copied"] / "metrics.json").read_text())
    assert first.dev["loss"] == pytest.approx(stored["dev"]["loss"], rel=1e-4)


def test_a_classifier_starts_from_the_encoder_of_such_a_model(
    tmp_path: Path, models: dict[str, Path], files: Path
) -> None:
    table = write(
        tmp_path / "t.tsv", [(source, str(len(source) > 8)) for source, _ in reversals(40, 3)]
    )
    for decoder in DECODERS:
        config = Finetune(num_epochs=1, batch_size=8, baseline=False)
        finetune(models[decoder], train=table, output=tmp_path / decoder, config=config)


def test_longer_training_targets_are_cut_counted_and_teach_no_end(
    tmp_path: Path, start: Callable[..., Path], files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[Any] = []
    config = quick(max_target_length=4)
    with caplog.at_level(logging.WARNING):
        train(start(), files, tmp_path / "model", config, on_event=events.append)
    long = sum(len(target.split()) > 4 for _, target in reversals(64, 2))
    summary = next(event for event in events if isinstance(event, dict))
    assert summary["targets cut at 4 tokens"] == f"{long} ({long / 64:.1%})"
    assert f"{long} of 64 training targets have more than 4 tokens and are cut" in caplog.text
    assert "--max-target-length up to 15 would keep more" in caplog.text
    rows = read(tmp_path / "model" / "dev_predictions.tsv")
    assert max(len(row["prediction"].split()) for row in rows) <= 4


def test_texts_of_the_maximum_length_are_counted_if_they_are_many(
    tmp_path: Path, reverser: FinetuneResult, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [("1 2", ""), ("3 4 5", ""), ("6 7 8 9", ""), ("1 2 3 4 5", "")]
    table = write(tmp_path / "t.tsv", rows)
    with caplog.at_level(logging.WARNING):
        for most in (6, 3):
            config = Finetune(max_target_length=most)
            predict(reverser.output, table, output=tmp_path / f"{most}.tsv", config=config)
    remark = "3 of 4 texts have the maximum length, so their ends may be missing"
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [remark]


def test_dev_loss_may_choose_the_epoch_without_writing_texts(
    tmp_path: Path, start: Callable[..., Path], files: Path
) -> None:
    result = train(start(), files, tmp_path / "model", quick(metric="loss", num_epochs=2))
    assert [list(report.dev) for report in result.members[0].history] == [["loss"], ["loss"]]
    assert result.dev["bleu"] >= 0


@pytest.mark.parametrize(
    ("num_repeating", "usual", "is_said"),
    [(8, 0.0, True), (5, 0.0, False), (24, 0.1, False), (26, 0.1, True)],
)
def test_texts_that_repeat_themselves_more_than_the_targets_are_counted(
    num_repeating: int, usual: float, is_said: bool
) -> None:
    remarks = remarks_on_texts(0, num_repeating, 100, usual_repeats=usual)
    said = [
        f"{num_repeating} of 100 texts have the same three tokens twice, as only {usual:.1%} of "
        "the training targets do; --no-repeat-ngram 3 prevents it"
    ]
    assert remarks == (said if is_said else [])


def test_three_tokens_that_come_twice_are_a_repeat() -> None:
    assert has_repeats([1, 2, 3, 9, 1, 2, 3])
    assert has_repeats([4, 4, 4, 4])
    assert not has_repeats([4, 4, 4])
    assert not has_repeats([1, 2, 9, 1, 2, 8])
    assert not has_repeats([])


def test_many_new_weights_are_named_by_their_modules(
    tmp_path: Path, start: Callable[..., Path], files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        train(start(), files, tmp_path / "model", quick(decoder="random"))
    new = caplog.text.partition("randomly initialized: ")[2].partition(";")[0]
    assert new == "decoder.bert.encoder.layer.0, decoder.bert.encoder.layer.1"


def test_fewer_layers_in_the_decoder(
    tmp_path: Path, start: Callable[..., Path], files: Path
) -> None:
    train(start(), files, tmp_path / "model", quick(num_decoder_layers=1))
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["encoder"]["num_hidden_layers"] == 2
    assert config["decoder"]["num_hidden_layers"] == 1
    predict(tmp_path / "model", files / "dev.tsv", output=tmp_path / "out.tsv")


def test_a_network_that_does_not_beat_the_baselines_is_named(
    tmp_path: Path, start: Callable[..., Path], files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        train(start(), files, tmp_path / "model", quick(learning_rate=1e-9, baseline=None))
    assert "the model is no better than a baseline" in caplog.text
    assert "the model writes the same text for all dev rows" in caplog.text


def test_inspect_shows_scores_and_texts(reverser: FinetuneResult) -> None:
    titles = [section.title for section in inspect(reverser.output).sections]
    assert "scores" in titles
    assert not any("labels" in title for title in titles)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_weights": "balanced"}, "class_weights: has no effect on generation"),
        ({"pooling": "mean"}, "pooling: has no effect on generation"),
        ({"crf": True}, "crf: is for labels on tokens, but this is generation"),
        ({"long_texts": "windows"}, "long_texts: windows do not work for generation"),
        ({"num_decoder_layers": 1, "decoder": "prefix"}, "num_decoder_layers: has no effect"),
        ({"num_best": 2}, "num_best: 2 texts need as many beams, but num_beams is 1"),
        (
            {"max_target_length": 2, "min_target_length": 3},
            "min_target_length: 3, but texts have at",
        ),
        ({"min_target_length": 16}, "min_target_length: 16, but texts have at most 12 tokens"),
        ({"window_overlap": 0.5}, "window_overlap: has no effect on generation"),
        ({"max_target_length": 16}, "max_target_length: 16, but .* has room for 15 tokens"),
        ({"metric": "accuracy"}, "metric: generation has no accuracy"),
    ],
)
def test_options_that_do_nothing_or_contradict_are_refused(
    tmp_path: Path,
    start: Callable[..., Path],
    files: Path,
    options: dict[str, Any],
    message: str,
) -> None:
    with pytest.raises(ConfigError, match=message):
        train(start(), files, tmp_path / "model", quick(**options))
    assert not (tmp_path / "model").exists()


def test_a_minimum_above_the_maximum_of_the_model_is_refused(
    tmp_path: Path, reverser: FinetuneResult, files: Path
) -> None:
    config = Finetune(min_target_length=13)
    with pytest.raises(ConfigError, match="min_target_length: 13, but texts have at most 12 tok"):
        predict(reverser.output, files / "dev.tsv", output=tmp_path / "out.tsv", config=config)


def test_options_of_generation_are_refused_elsewhere(
    tmp_path: Path, start: Callable[..., Path]
) -> None:
    table = write(tmp_path / "t.tsv", [("1 2", "a"), ("3", "b")] * 10)
    with pytest.raises(ConfigError, match="num_beams: is for texts to write, but this is classif"):
        finetune(start(), train=table, output=tmp_path / "m", config=Finetune(num_beams=2))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("1", "2"), ("3", "2")], "all 2 rows have the target '2'; expected different ones"),
        ([("1", "2"), ("3", " ")], "the target is empty on line 3"),
        ([(" ", "2"), ("3", "4")], "the source is empty on line 2"),
        ([("1", "x y"), ("3", "4")] * 9, "% of the tokens of the targets are .UNK., which cannot"),
    ],
)
def test_targets_that_cannot_be_learnt_are_named(
    tmp_path: Path,
    start: Callable[..., Path],
    files: Path,
    rows: list[tuple[str, str]],
    message: str,
) -> None:
    table = write(tmp_path / "bad.tsv", rows)
    with pytest.raises(CorpusError, match=message):
        train(start(), files, tmp_path / "model", quick(), train=table)


def test_overlapping_kmers_cannot_be_written(tmp_path: Path, files: Path) -> None:
    text = tmp_path / "dna.txt"
    text.write_text("ACGTACGGTCA\n" * 20)
    build_vocab(
        [text],
        tmp_path / "tokenizer",
        config=BuildVocab(token_mode="kmer:3", min_frequency=1),
    )
    task = Generation(names=(), tokens="none")
    table = LabelledTable(name="t.tsv", texts=("ACG",), labels=("CGT",), lines=(2,))
    encoder = Encoder(tokenizer=Tokenizer.load(tmp_path / "tokenizer"), max_seq_length=16)
    with pytest.raises(CorpusError, match="targets cannot be written as overlapping 3-mers"):
        task.prepared(encoder, Model(), table)


def test_models_of_different_vocabularies_are_not_averaged(
    tmp_path: Path, models: dict[str, Path], tiny_checkpoint: Path, files: Path
) -> None:
    words = write(tmp_path / "w.tsv", [("the cat", "a dog"), ("a dog", "the cat")] * 8)
    finetune(tiny_checkpoint, train=words, output=tmp_path / "words", config=quick())
    with pytest.raises(ConfigError, match="the models have different vocabularies"):
        predict(
            [models["copied"], tmp_path / "words"], files / "dev.tsv", output=tmp_path / "o.tsv"
        )
    assert not (tmp_path / "o.tsv").exists()


def test_targets_of_pieces_come_back_as_text(tmp_path: Path, tiny_checkpoint: Path) -> None:
    rows = [("the cat", "a dog sees the river."), ("a dog", "the cat likes some bread.")] * 8
    words = write(tmp_path / "w.tsv", rows)
    events: list[Any] = []
    config = quick(num_epochs=60, learning_rate=5e-3, metric="loss")
    finetune(tiny_checkpoint, train=words, dev=words, output=tmp_path / "m", config=config,
             on_event=events.append)  # fmt: skip
    summary = next(event for event in events if isinstance(event, dict))
    assert summary["targets that can be written exactly"] == "100.0%"
    found = read(tmp_path / "m" / "dev_predictions.tsv")
    assert [row["prediction"] for row in found] == [target for _, target in rows]


def test_targets_that_lose_capitals_or_accents_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    targets = ["A dog sees the river.", "the cat likes some bread."] * 8
    table = write(tmp_path / "t.tsv", [("the cat", target) for target in targets])
    text = dataclasses.replace(BuildVocab().text, format="tsv", text_column="label")
    config = BuildVocab(text=text, lowercase=True, min_frequency=1)
    build_vocab([table], tmp_path / "tokenizer", config=config)
    sources, lines = ("the cat",) * 16, tuple(range(2, 18))
    train = LabelledTable(name="t.tsv", texts=sources, labels=tuple(targets), lines=lines)
    with caplog.at_level(logging.WARNING):
        examine_targets(Tokenizer.load(tmp_path / "tokenizer"), Model(), train, asked=None)
    assert "the tokenizer changes 8 of 16 training targets" in caplog.text
    assert "'A dog sees the river.' becomes 'a dog sees the river.'" in caplog.text
    assert "--no-lowercase keeps case" in caplog.text


def test_labels_that_are_nearly_all_different_name_the_task(
    tmp_path: Path, start: Callable[..., Path]
) -> None:
    table = write(
        tmp_path / "t.tsv", [(source, f"x {target}") for source, target in reversals(60, 4)]
    )
    with pytest.raises(BertpreError, match="--task generation"):
        finetune(start(), train=table, output=tmp_path / "m", config=Finetune())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("decoder", DECODERS)
def test_generation_on_a_gpu_equals_that_on_a_cpu(
    tmp_path: Path, models: dict[str, Path], files: Path, decoder: str
) -> None:
    for device in ("cpu", "cuda"):
        config = Finetune(device=device, precision="fp32", num_beams=2)
        predict(models[decoder], files / "dev.tsv", output=tmp_path / device, config=config)
    here, there = read(tmp_path / "cpu"), read(tmp_path / "cuda")
    for mine, theirs in zip(here, there, strict=True):
        assert float(mine["score"]) == pytest.approx(float(theirs["score"]), abs=1e-3)
