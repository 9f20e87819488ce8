"""Fine-tuning: checkpoint and tables in, scored model out.

The tables are checked before PyTorch is imported, so that errors in them show at once.
"""

import dataclasses
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from bertpre.artefacts import check_output, fingerprint, fingerprint_file, stage_folder
from bertpre.config.finetuning import TASK_OPTIONS
from bertpre.config.load import config_to_dict
from bertpre.config.schema import Finetune
from bertpre.finetuning.baselines import score_baselines
from bertpre.finetuning.outputs import Outputs, Scores
from bertpre.finetuning.plan import Member, Plan, read_plan
from bertpre.finetuning.results import Event, FinetuneResult, MemberResult, MemberStart, Progress
from bertpre.finetuning.summary import summarize
from bertpre.finetuning.tables import Rows
from bertpre.finetuning.task import score
from bertpre.training.run_folder import find_checkpoint

if TYPE_CHECKING:
    from bertpre.finetuning.batches import EncodedTable
    from bertpre.finetuning.running import Placement
    from bertpre.finetuning.start import Start
    from bertpre.model.names import Finetuned

log = logging.getLogger(__name__)

# Left out of a manifest at these values, since models from before they were options lack them too.
_LATER_OPTIONS: dict[str, Any] = {"micro_batch_size": None, "crf": False, "constrained": True}


def finetune(
    checkpoint: str | Path,
    *,
    train: str | Path,
    output: str | Path,
    dev: str | Path | None = None,
    test: str | Path | None = None,
    config: Finetune | None = None,
    seed: int = 0,
    overwrite: bool = False,
    on_event: Callable[[Event], None] = lambda event: None,
) -> FinetuneResult:
    """Fine-tune a checkpoint on a labelled table and write the model with its scores.

    Args:
        checkpoint: a checkpoint, a run folder, a fine-tuned model or a Hugging Face BERT folder.
        train: table to learn from; its labels are the classes.
        output: the model folder to write.
        dev: table that chooses the epoch; default: a share of the training rows.
        test: table that is only scored.
        config: the recipe; missing values are derived from the checkpoint and the tables.
        seed: decides the split, the order, the new weights and the dropout.
        overwrite: replace an existing model.
        on_event: called with the summary, the progress, and the start and epochs of each run.

    Raises:
        BertpreError: the output exists, a table or the checkpoint is invalid, or the loss is not
            finite. Nothing is written to ``output`` then.
    """
    config, output = config or Finetune(), Path(output)
    check_output(output, kind="model", overwrite=overwrite)
    folder = find_checkpoint(checkpoint)
    plan = read_plan(train, dev=dev, test=test, config=config, seed=seed)
    # Imports PyTorch.
    from bertpre.finetuning.model_folder import ModelWriter
    from bertpre.finetuning.start import place_training, read_start

    config = plan.config
    placement = place_training(config)
    start = read_start(folder, config=config, pools=plan.task.pools)
    plan = dataclasses.replace(
        plan, task=plan.task.prepared(start.encoder, start.shape, plan.train)
    )
    config = start.resolve(config, plan)
    facts = {
        "options": stored_options(config),
        "seed": seed,
        "precision": placement.precision,
        "from": start.fingerprint,
        "tables": {
            part: fingerprint_file(Path(path))
            for part, path in (("train", train), ("dev", dev), ("test", test))
            if path is not None
        },
    }
    with stage_folder(
        output, kind="model", overwrite=overwrite, identity=fingerprint(facts)
    ) as work:
        encoded = _encode(plan, start, on_event)
        on_event(summarize(plan, config, encoded, placement))
        counts = {part: table.counts() for part, table in encoded.items()}
        writer = ModelWriter(work, plan=plan, start=start, facts={**facts, "counts": counts})
        baselines = score_baselines(plan, config)
        members = []
        for number, member in enumerate(plan.members, start=1):
            if len(plan.members) > 1:
                on_event(MemberStart(member.name, number, len(plan.members)))
            level = logging.INFO if number == 1 else logging.DEBUG
            model = start.build(plan.task, seed=member.seed, level=level).to(placement.device)
            recipe = _Recipe(plan, config, encoded, start, placement)
            members.append(_train(model, member, recipe, on_event))
            writer.write_model(model, members[-1])
        outputs = members[0].outputs
        if len(members) > 1:
            outputs = _predict_together(plan, work, encoded, placement)
        result = _judge(output, plan, outputs, tuple(members), baselines)
        for remark in plan.task.remarks(outputs["dev"]):
            log.warning("%s", remark)
        _warn_if_not_worth_it(result, plan, config)
        writer.finish(result)
    return result


def stored_options(config: Finetune) -> dict[str, Any]:
    """Return the options as the manifest keeps them."""
    options = config_to_dict(config)
    for name, idle in _LATER_OPTIONS.items():
        if options[name] == idle:
            del options[name]
    if config.task != "generation":
        for name in TASK_OPTIONS["generation"]:
            del options[name]
    return options


class _Recipe(NamedTuple):
    """What all training runs share."""

    plan: Plan
    config: Finetune
    encoded: dict[str, "EncodedTable"]
    start: "Start"
    placement: "Placement"


def _encode(
    plan: Plan, start: "Start", on_event: Callable[[Event], None]
) -> dict[str, "EncodedTable"]:
    from bertpre.finetuning.batches import warn_of_unknown

    encoded = {}
    for part, table in plan.tables().items():
        on_rows = partial(_tell, on_event, "tokenising", "rows", total=len(table))
        encoded[part] = start.encoder.table(table, plan.task, on_rows=on_rows)
    for rows in encoded.values():
        warn_of_unknown(rows.texts.num_unknown, rows.texts.num_tokens)
    return encoded


def _train(
    model: "Finetuned",
    member: Member,
    recipe: _Recipe,
    on_event: Callable[[Event], None],
) -> MemberResult:
    """Train one model, which keeps the weights of its best epoch."""
    from bertpre.finetuning.loop import Part, Training, best_epoch, fit

    plan, config, encoded, start, placement = recipe
    assert config.learning_rate is not None
    assert config.num_epochs is not None
    train = Part(encoded["train"], member.train_rows)
    parts = {}
    if member.dev_rows is not None:
        parts["dev"] = Part(encoded["train"], member.dev_rows)
    for part in ("dev", "test"):
        if part in encoded:
            parts[part] = Part(encoded[part], np.arange(len(encoded[part].texts)))
    training = Training(
        task=plan.task,
        model=model,
        objective=plan.task.objective(train.targets, config=config, device=placement.device),
        train=train,
        dev=parts["dev"],
        tokenizer=start.encoder.tokenizer,
        config=config,
        learning_rate=config.learning_rate,
        num_epochs=config.num_epochs,
        metric=plan.metric,
        placement=placement,
        seed=member.seed,
    )
    on_update = partial(_tell, on_event, "training", "updates")
    history = fit(training, on_update=on_update, on_epoch=on_event)
    training.objective.finish(model)
    outputs = {part: training.predict(parts[part]) for part in plan.scored_tables()}
    task = plan.task.calibrated(outputs["dev"], parts["dev"].targets)
    return MemberResult(
        name=member.name,
        seed=member.seed,
        best_epoch=best_epoch(history, plan.metric),
        history=history,
        task=task,
        outputs=outputs,
        scores={part: score(task, outputs[part], parts[part].targets) for part in outputs},
    )


def _predict_together(
    plan: Plan, work: Path, encoded: dict[str, "EncodedTable"], placement: "Placement"
) -> dict[str, Outputs]:
    """Predict with all models together, as `predict` does; each fold with those that held it out.

    Not every task can average the outputs of single models afterwards.
    """
    from bertpre.finetuning.running import Run, load_finetuned

    models = {
        member.name: load_finetuned(work / member.name, placement.device).model
        for member in plan.members
    }

    def predict(members: Sequence[Member], part: str, rows: Rows | None = None) -> Outputs:
        runs = [Run(models[member.name], encoded[part].texts) for member in members]
        return plan.task.predict(runs, rows, placement=placement)

    outputs = {}
    if plan.dev is not None:
        outputs["dev"] = predict(plan.members, "dev")
    else:
        groups = [(fold, cast(Rows, fold[0].dev_rows)) for fold in plan.folds()]
        found = np.concatenate([predict(fold, "train", rows) for fold, rows in groups])
        outputs["dev"] = found[np.argsort(np.concatenate([rows for _, rows in groups]))]
    if plan.test is not None:
        outputs["test"] = predict(plan.members, "test")
    return outputs


def _judge(
    output: Path,
    plan: Plan,
    outputs: dict[str, Outputs],
    members: tuple[MemberResult, ...],
    baselines: dict[str, dict[str, Scores]],
) -> FinetuneResult:
    """Score the joint predictions of the models."""
    targets = {
        part: plan.task.targets(table.labels) for part, table in plan.scored_tables().items()
    }
    task = plan.task.calibrated(outputs["dev"], targets["dev"])
    scores = {part: score(task, outputs[part], targets[part]) for part in outputs}
    return FinetuneResult(
        output=output,
        task=task,
        dev=scores["dev"],
        test=scores.get("test"),
        outputs=outputs,
        class_rows={part: task.class_rows(outputs[part], targets[part]) for part in outputs},
        members=members,
        baselines=baselines,
    )


def _warn_if_not_worth_it(result: FinetuneResult, plan: Plan, config: Finetune) -> None:
    metric = plan.task.metrics[0] if plan.metric == "loss" else plan.metric
    without = {name: scores["dev"][metric] for name, scores in result.baselines.items()}
    best = max(without, key=lambda name: without[name])
    if result.dev[metric] > without[best] or plan.task.is_perfect(result.dev, metric):
        return
    ways_out = "more pretraining on similar text, more epochs or another learning rate may help"
    if plan.train.pairs is not None and config.pooling != "compare":
        ways_out += "; for pairs, --pooling compare often does"
    log.warning(
        "the model is no better than a baseline: its dev %s is %.3f, that of %r is %.3f; %s",
        metric,
        result.dev[metric],
        plan.task.baseline_names[best],
        without[best],
        ways_out,
    )


def _tell(on_event: Callable[[Event], None], stage: str, unit: str, done: int, total: int) -> None:
    on_event(Progress(stage, unit, done, total))
