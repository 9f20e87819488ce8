"""The whole chain in one call: text to tokenizer, data, run and, from labelled rows, a model.

Each stage is the function that its own command calls, so its artefact and messages are the same.
A record beside them says which options and inputs each stage used, so repeating the call runs only
the stages that remain.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bertpre.artefacts import locked
from bertpre.chaining.checks import check_chain, check_replaceable, hints_for_chain
from bertpre.chaining.record import (
    KINDS,
    SECTIONS,
    Entry,
    Name,
    compare,
    is_there,
    made_in,
    read_record,
    state_of,
    write_record,
)
from bertpre.config.load import identity_options
from bertpre.config.schema import Config
from bertpre.corpus.inputs import find_files
from bertpre.data.make_data import make_data
from bertpre.errors import ConfigError
from bertpre.finetuning.finetune import finetune
from bertpre.tokenizer.vocabulary import build_vocab
from bertpre.training.checks import check_pretraining

if TYPE_CHECKING:
    from bertpre.data.report import DataReport
    from bertpre.finetuning.results import FinetuneResult
    from bertpre.tokenizer.vocabulary import VocabReport
    from bertpre.training.pretrain import PretrainResult


class ChainEvent(NamedTuple):
    """What happens in a stage of the chain.

    Attributes:
        stage: its name, which is that of its folder too.
        what: "kept": it was finished before, and nothing has changed. "begun" and "made": this call
            has started or finished it. "told": an event of the stage itself.
        value: for "told", that event, or (done, total) while text is read; for "made", what the
            stage's function returned.
    """

    stage: Name
    what: Literal["kept", "begun", "told", "made"]
    value: Any = None


class ChainResult(NamedTuple):
    """The result of each stage; None if it was finished before, or was not reached.

    Attributes:
        is_finished: whether every stage is done.
    """

    tokenizer: "VocabReport | None" = None
    data: "DataReport | None" = None
    run: "PretrainResult | None" = None
    model: "FinetuneResult | None" = None
    is_finished: bool = False


def chain(
    texts: Sequence[str | Path],
    *,
    output: str | Path,
    config: Config | None = None,
    train: str | Path | None = None,
    dev: str | Path | None = None,
    test: str | Path | None = None,
    overwrite: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
    on_event: Callable[[ChainEvent], None] = lambda event: None,
) -> ChainResult:
    """Make a tokenizer, data, a pretrained run and a fine-tuned model, or those still missing.

    Args:
        texts: files and folders of text.
        output: the folder of the four results: ``tokenizer``, ``data``, ``run`` and ``model``.
        config: the experiment; all of its sections but embed are used.
        train: table to fine-tune on; without it the chain ends with the run.
        dev, test: as in `bertpre.finetuning.finetune.finetune`.
        overwrite: make the stages again whose options or inputs have changed, and those after them.
        should_stop: asked while pretraining, as in `bertpre.training.pretrain.pretrain`.
        on_event: called with each `ChainEvent`.

    Raises:
        BertpreError: a fault found before the first stage starts; finished stages no longer match;
            or an error of a stage.
    """
    config, output = config or Config(), Path(output)
    given = {"train": train, "dev": dev, "test": test}
    tables = {part: Path(path) for part, path in given.items() if path is not None}
    check_chain(texts, output=output, config=config, tables=tables)
    wanted = dict(_entries(texts, output, config, tables))
    record = read_record(output)
    left, changed = compare(output, wanted, record)
    if changed and not overwrite:
        reasons = "\n  ".join(f"{name}: {reason}" for name, reason in changed.items())
        raise ConfigError(
            f"{output}: these stages no longer match their options, inputs or files:\n  {reasons}",
            "restore them, choose another --output, or make these stages again with --overwrite",
        )
    check_replaceable(output, left)
    makers = _makers(texts, output, config, tables, should_stop)
    output.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    with locked(output / ".lock", str(output)):
        for name, before in zip(wanted, [None, *wanted], strict=False):
            if name not in left:
                on_event(ChainEvent(name, "kept"))
                continue
            made_from = None if before is None else record[before].made
            record[name] = dataclasses.replace(wanted[name], made_from=made_from)
            write_record(output, record)
            on_event(ChainEvent(name, "begun"))
            with hints_for_chain(SECTIONS[name]):
                results[name] = makers[name](
                    overwrite=is_there(output / name), **_told(name, on_event)
                )
            on_event(ChainEvent(name, "made", results[name]))
            if name == "run" and not results[name].is_finished:
                return ChainResult(**results)
            record[name] = dataclasses.replace(record[name], made=made_in(output / name, name))
            write_record(output, record)
    return ChainResult(**results, is_finished=True)


def _entries(
    texts: Sequence[str | Path], output: Path, config: Config, tables: Mapping[str, Path]
) -> Iterator[tuple[Name, Entry]]:
    """Yield the options and inputs that each stage is to be made with."""

    def seen(path: str | Path | None) -> str | None:
        return None if path is None else os.path.relpath(path, output)

    def entry(options: Mapping[str, Any], *inputs: Path) -> Entry:
        return Entry(
            options={"seed": config.seed, **_dotted(options)},
            inputs=state_of(inputs, seen_from=output),
        )

    vocabulary, data = config.build_vocab, config.make_data
    lists = {"extra_tokens": vocabulary.extra_tokens, "vocab_file": vocabulary.vocab_file}
    yield (
        "tokenizer",
        entry(
            {
                "build_vocab": identity_options(vocabulary)
                | {name: seen(path) for name, path in lists.items()}
            },
            *(file.path for file in find_files(texts, vocabulary.text.format, is_quiet=True)),
            *(Path(path) for path in lists.values() if path is not None),
        ),
    )
    yield (
        "data",
        entry(
            {"make_data": identity_options(data)},
            *(file.path for file in find_files(texts, data.text.format, is_quiet=True)),
        ),
    )
    yield (
        "run",
        entry(
            {
                "model": identity_options(config.model),
                "pretrain": identity_options(config.pretrain)
                | {"init_from": seen(config.pretrain.init_from)},
            }
        ),
    )
    if tables:
        yield (
            "model",
            entry(
                {"finetune": identity_options(config.finetune)}
                | {part: seen(path) for part, path in tables.items()},
                *tables.values(),
            ),
        )


def _dotted(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in options.items():
        is_section = isinstance(value, Mapping)
        found |= _dotted(value, f"{prefix}{name}.") if is_section else {prefix + name: value}
    return found


def _makers(
    texts: Sequence[str | Path],
    output: Path,
    config: Config,
    tables: Mapping[str, Path],
    should_stop: Callable[[], bool],
) -> dict[Name, Callable[..., Any]]:
    """Return a function for each stage; it takes ``overwrite`` and a progress callback."""
    tokenizer, data, run, model = (output / name for name in KINDS)
    seed, named = config.seed, dict[str, Any](tables)
    return {
        "tokenizer": partial(build_vocab, texts, tokenizer, config.build_vocab, seed=seed),
        "data": partial(
            make_data, texts, tokenizer=tokenizer, output=data, config=config.make_data, seed=seed
        ),
        "run": partial(_pretrain, data, output=run, config=config, should_stop=should_stop),
        "model": partial(finetune, run, **named, output=model, config=config.finetune, seed=seed),
    }


def _pretrain(
    data: Path, *, output: Path, config: Config, overwrite: bool, **how: Any
) -> "PretrainResult":
    try:
        plan = check_pretraining(data, output=output, config=config)
        is_damaged = plan.is_finished and made_in(output, "run") is None
        overwrite = overwrite and is_damaged  # else it is this run, which was stopped
    except ConfigError:
        check_pretraining(data, output=output, config=config, overwrite=overwrite)
    from bertpre.training.pretrain import pretrain  # only now, for PyTorch takes seconds

    return pretrain(data, output=output, config=config, overwrite=overwrite, **how)


def _told(name: Name, on_event: Callable[[ChainEvent], None]) -> dict[str, Callable[..., None]]:
    """Return the keyword argument by which a stage reports its progress."""
    if name in ("tokenizer", "data"):
        return {"on_progress": lambda *counts: on_event(ChainEvent(name, "told", counts))}
    return {"on_event": lambda event: on_event(ChainEvent(name, "told", event))}
