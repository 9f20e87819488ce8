"""The tagging task: each token has a tag, by which entities are marked or which stands alone."""

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, cast

import numpy as np
import numpy.typing as npt

from bertpre.config.schema import Finetune
from bertpre.errors import ConfigError, CorpusError
from bertpre.finetuning import entity_scores, tagged_files
from bertpre.finetuning.classification import make_cross_entropy
from bertpre.finetuning.labels import group_by_rarest, name_some_quoted
from bertpre.finetuning.outputs import (
    Baseline,
    ClassRow,
    Outputs,
    PredictionFile,
    Scores,
    TaggedSentence,
    Targets,
    as_rows,
)
from bertpre.finetuning.scheme_recognition import (
    recognize_table,
    scheme_of_names,
)
from bertpre.finetuning.schemes import IOB2, OUTSIDE_TAG, SCHEMES, Scheme
from bertpre.finetuning.scores import SMALLEST_PROBABILITY
from bertpre.finetuning.tables import (
    Fault,
    LabelledTable,
    Rows,
)
from bertpre.finetuning.tagged_predictions import TaggedPredictions, write_columns
from bertpre.finetuning.tagged_tables import (
    check_same_scheme,
    read_tagged_table,
    warn_of_long_sentences,
)
from bertpre.finetuning.task import Task
from bertpre.finetuning.token_baselines import commonest_tags, longest_matches

if TYPE_CHECKING:
    import torch

    from bertpre.config.schema import Model
    from bertpre.finetuning.batches import EncodedTexts, Encoder
    from bertpre.finetuning.running import Placement, Run
    from bertpre.finetuning.tag_loss import TagLoss
    from bertpre.model.crf import AllowedTags
    from bertpre.model.heads import BertForTokenClassification, Pooling

log = logging.getLogger(__name__)

Tags = Sequence[str]
_UNKNOWN = -1  # target of a tag that the model cannot predict


class TrueTags(NamedTuple):
    """The target of a sentence.

    Attributes:
        numbers: (T,) int64, to learn from: with ill-formed entities repaired.
        tags: as they are, to score.
    """

    numbers: npt.NDArray[np.int64]
    tags: Tags


@dataclass(frozen=True, kw_only=True, slots=True)
class Tagging(Task):
    """A tag per token. Outputs are `TaggedSentence`, targets `TrueTags`; both (rows,) objects.

    Args:
        names: all tags of the scheme, also those that training lacks.
        scheme: how tags mark entities.
        crf: whether there is a conditional random field.
        constrained: whether only sequences that the scheme allows are predicted.
    """

    scheme: Scheme = IOB2
    crf: bool = False
    constrained: bool = True

    name: ClassVar[str] = "tagging"
    baseline_names: ClassVar[Mapping[str, str]] = {
        "commonest_tag": "most common tag of each token",
        "longest_match": "dictionary of entities",
    }
    unused_options: ClassVar[Mapping[str, object]] = {
        "label_separator": ",",
        "pooling": "auto",
    }
    unused_reason: ClassVar[tuple[str, str]] = (
        "has no effect on tagging, in which each token has a tag",
        "leave it out",
    )
    pools: ClassVar[bool] = False
    scores_unknown_labels: ClassVar[bool] = True

    @property
    def metrics(self) -> tuple[str, ...]:
        if not self.scheme.is_plain:
            return ("f1", "lenient_f1", "accuracy", "loss")
        first = ("micro_f1", "accuracy") if self._has_outside else ("accuracy", "micro_f1")
        return (*first, "macro_f1", "loss")

    @property
    def columns(self) -> Mapping[str, str]:
        if not self.scheme.is_plain:
            return {
                "precision": "precision",
                "recall": "recall",
                "f1": "F1",
                "lenient_f1": "lenient F1",
                "accuracy": "accuracy",
            }
        first = {"accuracy": "accuracy"}
        if self._has_outside:
            first["accuracy_without_o"] = "accuracy without O"
        return {**first, "micro_f1": "micro-F1", "macro_f1": "macro-F1"}

    @property
    def class_unit(self) -> str:  # type: ignore[override]
        return "tokens" if self.scheme.is_plain else "entities"

    @property
    def _has_outside(self) -> bool:
        return OUTSIDE_TAG in self.names

    # Files and labels

    @classmethod
    def claims_file(cls, path: Path, config: Finetune) -> str | None:
        return tagged_files.claim(path, config)

    @classmethod
    def read(cls, path: str | Path, config: Finetune) -> tuple[LabelledTable, list[Fault]]:
        """Read sentences with their tags; see `bertpre.finetuning.tagged_files`."""
        return read_tagged_table(path, config)

    @classmethod
    def row_faults(cls, table: LabelledTable, row: int, config: Finetune) -> list[str]:
        if not table.texts[row]:
            return ["the sentence has no tokens"]
        return ["a token is empty"] if "" in table.texts[row] else []

    @classmethod
    def learn(cls, table: LabelledTable, *, config: Finetune) -> Self:
        """Recognize the scheme, and collect the types.

        Raises:
            CorpusError: the tags follow no scheme, or all are the same.
        """
        counts = Counter(tag for tags in table.labels for tag in tags)
        if len(counts) < 2:
            raise CorpusError(
                f"{table.name}: all {counts.total():,} tokens have the tag {next(iter(counts))!r}; "
                "expected different tags",
                "choose the right column with --label-column",
            )
        warn_of_long_sentences(table)
        scheme = recognize_table(table)
        names = scheme.names(scheme.types_in(table.labels), outside=OUTSIDE_TAG in counts)
        return cls(names=names, scheme=scheme, crf=config.crf, constrained=config.constrained)

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Self:
        names, options = tuple(manifest["classes"]), manifest["options"]
        known = manifest.get("scheme")
        scheme = scheme_of_names(names) if known is None else SCHEMES[known]
        return cls(
            names=names,
            scheme=scheme,
            crf=options.get("crf", False),
            constrained=options.get("constrained", True),
        )

    def own_facts(self) -> dict[str, Any]:
        return {"scheme": self.scheme.name}

    def check_scored(self, table: LabelledTable, *, train_name: str) -> None:
        """Refuse tags of another scheme, which would all count as wrong."""
        check_same_scheme(table, self.scheme, train_name=train_name)

    def unknown(self, cells: Sequence[Tags]) -> list[list[str]]:
        types = set(self.known_labels())
        name_of: dict[str, str | None] = {}
        for tag in {tag for tags in cells for tag in tags}:
            cell = self.scheme.read(tag)
            shown: str = tag if cell is None else cell.type
            is_known = shown in types or (tag == OUTSIDE_TAG and self._has_outside)
            name_of[tag] = None if is_known else shown or tag
        return [
            sorted({name for tag in tags if (name := name_of[tag]) is not None}) for tags in cells
        ]

    def known_labels(self) -> tuple[str, ...]:
        return self.scheme.types_in([self.names])

    def targets(self, cells: Sequence[Tags]) -> Targets:
        numbers = {name: number for number, name in enumerate(self.names)}
        targets = []
        for tags in cells:
            proper = tags if self.scheme.is_plain else self.scheme.repaired(tags)
            found = [numbers.get(tag, _UNKNOWN) for tag in proper]
            targets.append(TrueTags(np.array(found, dtype=np.int64), tags))
        return as_rows(targets)

    def _types(self, tags: Tags) -> set[str]:
        if self.scheme.is_plain:
            return set(tags) - {OUTSIDE_TAG}
        return {span.type for span in self.scheme.lenient_spans(tags)}

    def strata(self, cells: Sequence[Tags]) -> Rows:
        """Group sentences by their rarest type; with parts of speech there is one group."""
        if self.scheme.is_plain and not self._has_outside:
            return np.zeros(len(cells), dtype=np.int64)
        return group_by_rarest([self._types(tags) for tags in cells], self.known_labels())

    def rare_labels(self, cells: Sequence[Tags], *, fewest: int) -> tuple[str, ...]:
        counts = Counter(name for tags in cells for name in self._types(tags))
        return tuple(sorted(name for name, count in counts.items() if count < fewest))

    def count_labels(self, cells: Sequence[Tags]) -> dict[str, int]:
        """Count the entities of each type, or the tokens with each tag."""
        if self.scheme.is_plain:
            return dict(Counter(tag for tags in cells for tag in tags))
        spans = (span for tags in cells for span in self.scheme.lenient_spans(tags))
        return dict(Counter(span.type for span in spans))

    # Model and learning

    def settle(self, config: Finetune) -> Finetune:
        if config.long_texts not in ("head", "windows"):
            raise ConfigError(
                f"long_texts: {config.long_texts} would leave tokens without a tag",
                "leave it out: tagging reads long sentences in windows",
            )
        config = dataclasses.replace(cast(Any, config), long_texts="windows")
        config = super(Tagging, self).settle(config)
        if self.scheme.is_plain and not config.constrained:
            raise ConfigError(
                "constrained: has no effect on plain tags, which may be in any order",
                "leave it out",
            )
        idle = {"label_smoothing": 0.0, "class_weights": "none", "focal_gamma": 0.0}
        for name, value in idle.items():
            if config.crf and getattr(config, name) != value:
                raise ConfigError(
                    f"{name}: has no effect with --crf, whose loss is that of whole sentences",
                    "leave one of them out",
                )
        return config

    def encode(
        self,
        encoder: "Encoder",
        texts: Iterable[Sequence[str]],
        pairs: Iterable[str] | None = None,
        *,
        on_rows: Callable[[int], None] = lambda rows: None,
    ) -> "EncodedTexts":
        from bertpre.finetuning.words import encode_sentences

        return encode_sentences(encoder, texts, on_rows=on_rows)

    def build_model(
        self, shape: "Model", *, vocab_size: int, pooling: "Pooling | None"
    ) -> "BertForTokenClassification":
        from bertpre.model.heads import BertForTokenClassification

        return BertForTokenClassification(
            shape, vocab_size=vocab_size, num_labels=len(self.names), has_crf=self.crf
        )

    def _allowed(self, device: "torch.device | str") -> "AllowedTags | None":
        from bertpre.model.crf import AllowedTags

        if not self.constrained or self.scheme.is_plain:
            return None
        return AllowedTags.from_numpy(*self.scheme.allowed(self.names), device=device)

    def objective(self, targets: Targets, *, config: Finetune, device: "torch.device") -> "TagLoss":
        from bertpre.finetuning.tag_loss import TagLoss

        numbers = np.concatenate([target.numbers for target in targets])
        num_tags = len(self.names)
        return TagLoss(
            of_tokens=make_cross_entropy(numbers, num_tags, config=config, device=device),
            allowed=self._allowed(device),
        )

    # Outputs

    def predict(
        self, runs: Sequence["Run"], rows: Rows | None = None, *, placement: "Placement"
    ) -> Outputs:
        """Tag sentences; of several models, the probabilities are averaged before decoding."""
        from bertpre.finetuning.tag_decoding import predict_tags

        allowed = self._allowed(placement.device)
        return predict_tags(runs, rows, allowed=allowed, placement=placement)

    def for_prediction(self, config: Finetune) -> Self:
        task = super(Tagging, self).for_prediction(config)
        return dataclasses.replace(task, constrained=config.constrained)

    def _tags(self, outputs: Outputs) -> list[list[str]]:
        return [[self.names[number] for number in output.decided] for output in outputs]

    def scores(self, outputs: Outputs, targets: Targets) -> Scores:
        """Score entities, or plain tags; see `bertpre.finetuning.entity_scores`."""
        true = [target.tags for target in targets]
        return entity_scores.score_entities(true, self._tags(outputs), self.scheme)

    def loss(self, outputs: Outputs, targets: Targets) -> float:
        """Return the mean negative log probability of the true tags, in nats."""
        numbers = np.concatenate([target.numbers for target in targets])
        probabilities = np.concatenate([output.probabilities for output in outputs])
        is_known = numbers != _UNKNOWN
        share = probabilities[is_known, numbers[is_known]].astype(np.float64)
        return float(-np.log(np.maximum(share, SMALLEST_PROBABILITY)).mean()) if len(share) else 0.0

    def class_rows(self, outputs: Outputs, targets: Targets) -> list[ClassRow]:
        true = [target.tags for target in targets]
        return entity_scores.class_rows(true, self._tags(outputs), self.scheme)

    def remarks(self, outputs: Outputs) -> list[str]:
        if self.scheme.is_plain or any(self._types(tags) for tags in self._tags(outputs)):
            return []
        return [
            "the model finds no entity in the dev rows; more epochs, a higher learning rate or "
            "more training rows may help"
        ]

    def baselines(self, train: LabelledTable, config: Finetune) -> dict[str, Baseline]:
        def baseline(find: Callable[..., Sequence[Tags]]) -> Baseline:
            return lambda train, scored: [
                self._certain(find(train.texts, train.labels, table.texts)) for table in scored
            ]

        found = {"commonest_tag": baseline(commonest_tags)}
        if not self.scheme.is_plain and config.baseline is not False:
            found["longest_match"] = baseline(partial(longest_matches, scheme=self.scheme))
        return found

    def _certain(self, rows: Sequence[Tags]) -> Outputs:
        """Return outputs for predicted tags, without probabilities."""
        numbers = {name: number for number, name in enumerate(self.names)}
        none = np.zeros((0, len(self.names)), dtype=np.float32)
        return as_rows(
            [TaggedSentence(np.array([numbers[tag] for tag in tags]), none) for tags in rows]
        )

    # Predictions and display

    def open(
        self, path: Path, config: Finetune, *, layout: Mapping[str, Any], way_out: str
    ) -> PredictionFile:
        file = tagged_files.open_tagged(path, config, with_tags=False, layout=layout or None)
        return TaggedPredictions(
            path,
            file,
            config,
            tags_of=self._tags,
            is_tag=lambda tag: self.scheme.read(tag) is not None,
        )

    def write_predictions(
        self, folder: Path, part: str, table: LabelledTable, outputs: Outputs
    ) -> None:
        write_columns(folder / f"{part}_predictions.conll", table, self._tags(outputs))

    def draw_mistakes(
        self, folder: Path, table: LabelledTable, outputs: Outputs, scores: Scores
    ) -> None:
        from bertpre.finetuning.mistakes import mistake_lines
        from bertpre.finetuning.pictures import draw_confusions

        found = self._tags(outputs)
        confusions = entity_scores.count_type_confusions(table.labels, found, self.scheme)
        what = "tokens" if self.scheme.is_plain else "entities with the right borders"
        metric = self.metrics[0]
        draw_confusions(
            folder / "confusion_matrix.png",
            confusions.counts,
            confusions.names,
            title=f"dev rows, {what}: {self.columns[metric]} {scores[metric]:.3f}",
        )
        lines = mistake_lines(table.lines, table.texts, table.labels, found, self.scheme)
        with (folder / "dev_mistakes.tsv").open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)

    def describe(self) -> str:
        num_types = len(self.known_labels())
        if self.scheme.is_plain:
            return f"{num_types:,} plain tag" + ("s" if num_types != 1 else "")
        what = "entity type" + ("s" if num_types != 1 else "")
        return f"{num_types:,} {what} in {self.scheme.name} ({len(self.names):,} tags)"

    def label_facts(self) -> dict[str, str]:
        return {"labels": self.describe(), "CRF": "yes" if self.crf else ""}

    def card_text(self, texts: str) -> str:
        named = name_some_quoted(self.known_labels())
        if self.scheme.is_plain:
            return f"Tagging each token of {texts}, with {named}."
        how = f" The tags follow the scheme {self.scheme.name}."
        return f"Finding entities in {texts}, of the types {named}.{how}"
