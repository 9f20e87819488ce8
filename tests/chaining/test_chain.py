"""The whole chain in one call: the same artefacts, and what a second call does."""

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import bertpre as bp
from bertpre.chaining.chain import ChainEvent, ChainResult
from bertpre.config.load import config_to_dict, load_config, parse_config
from bertpre.config.schema import Config
from bertpre.errors import BertpreError, ConfigError

STAGES = ["tokenizer", "data", "run", "model"]
# They hold times, are drawn from what does, or list what does.
WITH_TIMES = ("metrics.jsonl", "curves.png", "state.json")


class Place(NamedTuple):
    """A folder with inputs and, in ``work``, what a chain made of them."""

    folder: Path

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def chain(self, config: Config, **changes: Any) -> tuple[ChainResult, list[tuple[str, str]]]:
        """Call the chain; return its result and what it told of each stage, but for progress."""
        events: list[ChainEvent] = []
        arguments = {
            "train": self.folder / "train.tsv",
            "dev": self.folder / "dev.tsv",
            "test": self.folder / "test.tsv",
        }
        arguments |= changes
        texts = arguments.pop("texts", [self.folder / "corpus.txt"])
        result = bp.chain(
            texts, output=self.work, config=config, on_event=events.append, **arguments
        )
        return result, [(event.stage, event.what) for event in events if event.what != "told"]


def kept(*stages: str) -> list[tuple[str, str]]:
    return [(stage, "kept") for stage in stages]


def made(*stages: str) -> list[tuple[str, str]]:
    return [(stage, what) for stage in stages for what in ("begun", "made")]


def files(folder: Path) -> dict[str, bytes]:
    """Read what must be the same each time."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.name not in WITH_TIMES
        and not path.name.startswith(".")
        and not path.match("checkpoints/*/manifest.json")
    }


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def config(tiny_config: Config) -> Config:
    values = config_to_dict(tiny_config)
    values["build_vocab"]["vocab_size"] = 90
    values["make_data"] |= {"max_seq_length": 48, "dupe_factor": 2, "workers": 1}
    values["make_data"]["eval_fraction"] = 0.1
    values["pretrain"] |= {"eval_every_steps": 12, "save_every_steps": 6}
    values["finetune"] |= {"num_epochs": 1, "device": "cpu", "precision": "fp32"}
    values["finetune"]["baseline"] = False
    return parse_config(values)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, tiny_corpus: Path, tables: Path) -> Path:
    folder = tmp_path_factory.mktemp("inputs") / "place"
    shutil.copytree(tables, folder)
    shutil.copy(tiny_corpus, folder / "corpus.txt")
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, inputs: Path, config: Config) -> Place:
    """A chain that was done to its end; not to be written to."""
    place = Place(shutil.copytree(inputs, tmp_path_factory.mktemp("chain") / "place"))
    place.chain(config)
    return place


@pytest.fixture
def place(tmp_path: Path, finished: Place) -> Place:
    """A copy of the finished chain with its inputs, their times included."""
    return Place(shutil.copytree(finished.folder, tmp_path / "elsewhere"))


@pytest.fixture
def fresh(tmp_path: Path, inputs: Path) -> Place:
    """The inputs alone."""
    return Place(shutil.copytree(inputs, tmp_path / "place"))


def test_the_chain_makes_the_bytes_of_the_four_stages(
    tmp_path: Path, finished: Place, config: Config
) -> None:
    text, tables = finished.folder / "corpus.txt", finished.folder
    bp.build_vocab([text], tmp_path / "tokenizer", config.build_vocab, seed=config.seed)
    bp.make_data(
        [text], tokenizer=tmp_path / "tokenizer", output=tmp_path / "data",
        config=config.make_data, seed=config.seed,
    )  # fmt: skip
    bp.pretrain(tmp_path / "data", output=tmp_path / "run", config=config)
    bp.finetune(
        tmp_path / "run", train=tables / "train.tsv", dev=tables / "dev.tsv",
        test=tables / "test.tsv", output=tmp_path / "model", config=config.finetune,
        seed=config.seed,
    )  # fmt: skip

    for stage in STAGES:
        assert files(finished.work / stage) == files(tmp_path / stage)
        assert files(finished.work / stage)


def test_the_result_is_what_each_stage_returned(fresh: Place, config: Config) -> None:
    result, told = fresh.chain(config)

    assert told == made(*STAGES)
    assert result.is_finished
    assert result.tokenizer.vocab_size == 90
    assert result.data.documents == 80
    assert (result.run.step, result.run.model) == (12, fresh.work / "run/final")
    assert result.model.output == fresh.work / "model"
    assert sorted(result.model.scores) == ["dev", "test"]


def test_a_second_call_does_nothing_and_says_so(place: Place, config: Config) -> None:
    before = times(place.work)

    result, told = place.chain(config)

    assert told == kept(*STAGES)
    assert result == ChainResult(is_finished=True)
    after = times(place.work)
    assert {path: after[path] for path in before} == before


def test_nothing_to_do_is_nothing_to_overwrite(place: Place, config: Config) -> None:
    _, told = place.chain(config, overwrite=True)

    assert told == kept(*STAGES)


def test_inputs_are_the_same_by_a_relative_and_by_an_absolute_name(
    place: Place, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.folder)
    events: list[ChainEvent] = []

    bp.chain(
        ["corpus.txt"], output="work", config=config, train="train.tsv", dev="dev.tsv",
        test="../elsewhere/test.tsv", on_event=events.append,
    )  # fmt: skip

    assert [(event.stage, event.what) for event in events] == kept(*STAGES)


def test_the_record_has_relative_names_and_is_no_manifest(finished: Place) -> None:
    text = (finished.work / "chain.json").read_text()

    stages = json.loads(text)["stages"]
    assert sorted(stages) == sorted(STAGES)
    assert str(finished.folder) not in text
    status = (finished.folder / "corpus.txt").stat()
    assert stages["data"]["inputs"] == {
        "../corpus.txt": {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns}
    }
    assert stages["model"]["options"]["train"] == "../train.tsv"
    manifest = json.loads((finished.work / "tokenizer/manifest.json").read_text())
    assert stages["tokenizer"]["made"] == stages["data"]["made_from"] == manifest["fingerprint"]
    assert not (finished.work / "manifest.json").exists()
    assert not (finished.work / ".chain.json.partial").exists()


def test_without_a_training_table_the_run_is_the_last_stage(fresh: Place, config: Config) -> None:
    result, told = fresh.chain(config, train=None, dev=None, test=None)

    assert told == made("tokenizer", "data", "run")
    assert result.is_finished
    assert result.model is None
    assert not (fresh.work / "model").exists()


def test_a_training_table_later_adds_the_last_stage(fresh: Place, config: Config) -> None:
    fresh.chain(config, train=None, dev=None, test=None)

    _, told = fresh.chain(config)

    assert told == kept("tokenizer", "data", "run") + made("model")


class Killed(BaseException):
    """As a process ends that is killed: nothing on the way can make it good."""


@pytest.mark.parametrize(
    "stage", ["tokenizer", pytest.param("data", marks=pytest.mark.slow), "run", "model"]
)
def test_a_chain_that_was_killed_goes_on(
    fresh: Place, finished: Place, config: Config, stage: str
) -> None:
    def kill(event: ChainEvent) -> None:
        step = getattr(event.value, "step", None)
        if event.stage == stage and event.what == "told" and (stage != "run" or step == 6):
            raise Killed

    with pytest.raises(Killed):
        bp.chain(
            [fresh.folder / "corpus.txt"], output=fresh.work, config=config, on_event=kill,
            train=fresh.folder / "train.tsv", dev=fresh.folder / "dev.tsv",
            test=fresh.folder / "test.tsv",
        )  # fmt: skip
    _, told = fresh.chain(config)

    place = STAGES.index(stage)
    assert told == kept(*STAGES[:place]) + made(*STAGES[place:])
    for name in STAGES:
        assert files(fresh.work / name) == files(finished.work / name)


def test_a_stopped_run_ends_the_call_and_the_next_goes_on(
    fresh: Place, finished: Place, config: Config
) -> None:
    steps: list[int] = []

    def count(event: ChainEvent) -> None:
        steps.extend([event.value.step] if hasattr(event.value, "max_steps") else [])

    first = bp.chain(
        [fresh.folder / "corpus.txt"], output=fresh.work, config=config, on_event=count,
        should_stop=lambda: 5 in steps,
    )  # fmt: skip
    _, told = fresh.chain(config)

    assert not first.is_finished
    assert first.run is not None
    assert first.run.step == 5
    assert told == kept("tokenizer", "data") + made("run", "model")
    assert files(fresh.work / "model") == files(finished.work / "model")


def touch(path: Path) -> None:
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))


def change_text(place: Place) -> None:
    with (place.folder / "corpus.txt").open("a") as file:
        file.write("\nthe cat sees the moon once again.\nthe cat likes the moon.\n")


def changed_seed(config: Config) -> Config:
    return dataclasses.replace(config, seed=2)


def with_options(**changes: object) -> Callable[[Config], Config]:
    sets = [f"{name.replace('__', '.')}={value}" for name, value in changes.items()]

    def change(config: Config) -> Config:
        values, new = config_to_dict(config), config_to_dict(load_config(sets=sets))
        for name in changes:
            section, option = name.split("__")
            values[section][option] = new[section][option]
        return parse_config(values)

    return change


CHANGES = {
    "text": (change_text, None, "tokenizer", r"corpus\.txt has another size or time\n"),
    "time of the text": (
        lambda place: touch(place.folder / "corpus.txt"), None,
        "tokenizer", r"tokenizer: .*corpus\.txt has another size or time\n",
    ),
    "seed": (None, changed_seed, "tokenizer", "tokenizer: seed was 1, now 2\n"),
    "an option of the vocabulary": (
        None, with_options(build_vocab__min_frequency=3),
        "tokenizer", "tokenizer: build_vocab.min_frequency was 2, now 3\n",
    ),
    "an option of the examples": (
        None, with_options(make_data__dupe_factor=1),
        "data", "data: make_data.dupe_factor was 2, now 1\n",
    ),
    "an option of the run": (
        None, with_options(pretrain__max_steps=10),
        "run", "run: pretrain.max_steps was 12, now 10\n",
    ),
    "the shape": (
        None, with_options(model__num_hidden_layers=1),
        "run", "run: model.num_hidden_layers was 2, now 1\n",
    ),
    "an option of fine-tuning": (
        None, with_options(finetune__num_epochs=2),
        "model", "model: finetune.num_epochs was 1, now 2",
    ),
    "a table": (
        lambda place: touch(place.folder / "test.tsv"), None,
        "model", r"model: .*test\.tsv has another size or time",
    ),
    "a folder that is gone": (
        lambda place: shutil.rmtree(place.work / "data"), None,
        "data", "run: depends on data, which must be made again\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_has_changed_is_named_with_the_stages_after_it(
    place: Place, config: Config, change: str
) -> None:
    change_place, change_config, first, reason = CHANGES[change]
    if change_place is not None:
        change_place(place)
    asked = config if change_config is None else change_config(config)
    at, before = STAGES.index(first), times(place.work)

    with pytest.raises(ConfigError, match=reason) as caught:
        place.chain(asked)

    for stage, follows in zip(STAGES[at:], STAGES[at + 1 :], strict=False):
        assert (
            f"\n  {follows}: depends on {stage}, which must be made again" in caught.value.message
        )
    assert not any(f"\n  {stage}: " in caught.value.message for stage in STAGES[:at])
    assert caught.value.hint is not None
    assert "--overwrite" in caught.value.hint
    assert times(place.work) == before


@pytest.mark.parametrize("change", ["an option of the examples", "a table"])
def test_what_has_changed_is_made_again_with_the_stages_after_it_if_that_is_allowed(
    place: Place, config: Config, change: str
) -> None:
    change_place, change_config, first, _ = CHANGES[change]
    if change_place is not None:
        change_place(place)
    asked = config if change_config is None else change_config(config)
    at = STAGES.index(first)

    _, told = place.chain(asked, overwrite=True)
    _, again = place.chain(asked)

    assert told == kept(*STAGES[:at]) + made(*STAGES[at:])
    assert again == kept(*STAGES)


def test_another_table_is_named(place: Place, config: Config) -> None:
    with pytest.raises(ConfigError) as caught:
        place.chain(config, test=None)

    assert "test.tsv was an input, and no longer is" in caught.value.message


def test_options_that_change_no_result_may_change(place: Place, config: Config) -> None:
    asked = with_options(make_data__workers=2, pretrain__log_every_steps=3)(config)

    _, told = place.chain(asked)

    assert told == kept(*STAGES)


def test_a_stage_that_something_else_made_is_not_taken_for_the_chains(
    place: Place, config: Config
) -> None:
    bp.build_vocab(
        [place.folder / "corpus.txt"], place.work / "tokenizer", overwrite=True,
        config=dataclasses.replace(config.build_vocab, vocab_size=80),
    )  # fmt: skip

    with pytest.raises(ConfigError, match="tokenizer has been replaced\n"):
        place.chain(config)


def test_a_damaged_stage_is_not_finished_and_is_made_again_on_request(
    place: Place, config: Config
) -> None:
    (place.work / "run/final/model.safetensors").write_bytes(b"")

    with pytest.raises(ConfigError, match="run is damaged or incomplete\n  model: depends on run"):
        place.chain(config)

    _, told = place.chain(config, overwrite=True)
    assert told[:2] == kept("tokenizer", "data")
    assert (place.work / "run/final/model.safetensors").stat().st_size > 0


def test_folders_that_are_there_before_the_first_call_are_left_alone(
    fresh: Place, finished: Place, config: Config
) -> None:
    shutil.copytree(finished.work / "tokenizer", fresh.work / "tokenizer")

    with pytest.raises(
        ConfigError, match=r"chain\.json does not list what .*tokenizer was made from"
    ):
        fresh.chain(config)

    assert not (fresh.work / "chain.json").exists()


@pytest.mark.parametrize("stage", STAGES)
def test_overwrite_replaces_nothing_that_bertpre_did_not_make(
    fresh: Place, config: Config, stage: str
) -> None:
    (fresh.work / stage).mkdir(parents=True)
    (fresh.work / stage / "thesis.txt").write_text("years of work\n")

    with pytest.raises(BertpreError):
        fresh.chain(config, overwrite=True)

    assert [path.name for path in fresh.work.rglob("*")] == [stage, "thesis.txt"]


def test_a_damaged_record_is_an_error(place: Place, config: Config) -> None:
    (place.work / "chain.json").write_text('{"stages": {"data": {}}}')

    with pytest.raises(BertpreError, match=r"chain\.json: not a record of `bertpre chain`"):
        place.chain(config)
