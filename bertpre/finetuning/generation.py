"""The generation task: each source has a target, a text that the model learns to write."""

import dataclasses
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from bertpre.config.schema import Finetune
from bertpre.errors import ConfigError, CorpusError, shorten
from bertpre.finetuning.generated_files import (
    WrittenTexts,
    remarks_on_texts,
    write_mistakes,
    write_outputs,
)
from bertpre.finetuning.labels import count_rows
from bertpre.finetuning.outputs import (
    Baseline,
    GeneratedText,
    Outputs,
    PredictionFile,
    Scores,
    Targets,
    as_rows,
)
from bertpre.finetuning.tables import LabelledTable, Rows
from bertpre.finetuning.target_checks import check_target_length, examine_targets, has_repeats
from bertpre.finetuning.task import Task
from bertpre.finetuning.text_baselines import copy_sources, write_commonest, write_nearest
from bertpre.finetuning.text_scores import (
    TokenRule,
    check_sacrebleu,
    choose_tokens,
    score_texts,
)
from bertpre.tokenizer.spacing import Spacing, to_text

if TYPE_CHECKING:
    import torch

    from bertpre.config.schema import Model
    from bertpre.finetuning.batches import EncodedTexts, Encoder
    from bertpre.finetuning.beam_search import SearchOptions
    from bertpre.finetuning.encoded_pairs import NextTokenLoss
    from bertpre.finetuning.running import Placement, Run
    from bertpre.model.decoder import TextGenerator
    from bertpre.model.heads import Pooling
    from bertpre.model.names import Finetuned
    from bertpre.tokenizer.tokenizer import Tokenizer

log = logging.getLogger(__name__)

_SEARCH = ("num_beams", "length_penalty", "min_target_length", "no_repeat_ngram", "num_best")
_COLUMNS = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "rouge_l": "ROUGE-L",
    "cider_d": "CIDEr-D",
    "exact_match": "exact match",
}


class Reference(NamedTuple):
    """A true target.

    Attributes:
        text: as in the table.
        num_tokens: the tokens to learn, [SEP] included.
    """

    text: str
    num_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation(Task):
    """A text per source. Outputs are `GeneratedText`, targets `Reference`; both (rows,) objects.

    Args:
        names: none.
        tokens: how the scores split texts, as sacrebleu calls it.
        options: of the decoder and of the search.
        max_target_length: most tokens of a text, [SEP] not counted; 0 if not yet known.
        max_learnt_length: most tokens of a training target; longer ones are cut.
        spacing: where spaces are between words.
        repeating: the share of training targets that have the same three tokens twice.
        found: what `prepared` found, for display.
        writes: whether texts are written, or only true targets scored.
    """

    tokens: TokenRule
    options: Finetune = field(default_factory=Finetune)
    max_target_length: int = 0
    max_learnt_length: int = 0
    spacing: Spacing = field(default_factory=Spacing.default)
    repeating: float = 1.0
    found: Mapping[str, str] = field(default_factory=dict)
    writes: bool = True

    name: ClassVar[str] = "generation"
    baseline_names: ClassVar[Mapping[str, str]] = {
        "nearest": "target of the nearest source",
        "commonest": "most common target",
        "copy": "the source itself",
    }
    unused_options: ClassVar[Mapping[str, object]] = {
        "label_separator": ",",
        "class_weights": "none",
        "focal_gamma": 0.0,
        "pooling": "auto",
        "window_overlap": 0.25,
    }
    unused_reason: ClassVar[tuple[str, str]] = (
        "has no effect on generation, in which each label is a text to write",
        "leave it out",
    )
    pools: ClassVar[bool] = False
    # Measured at width 256 on reports, Chinese and letters to sounds.
    rate_factor: ClassVar[float] = 4.0
    fewest_epochs: ClassVar[int] = 8
    fewest_updates: ClassVar[int] = 500

    @property
    def metrics(self) -> tuple[str, ...]:
        return (*_COLUMNS, "loss")

    @property
    def columns(self) -> Mapping[str, str]:
        return _COLUMNS

    # Files and labels

    @classmethod
    def row_faults(cls, table: LabelledTable, row: int, config: Finetune) -> list[str]:
        faults = [] if table.labels[row].strip() else ["the target is empty"]
        sources = [table.texts[row], "" if table.pairs is None else table.pairs[row]]
        return faults if any(map(str.strip, sources)) else [*faults, "the source is empty"]

    @classmethod
    def learn(cls, table: LabelledTable, *, config: Finetune) -> Self:
        """Find out how scores split the targets.

        Raises:
            ConfigError: sacrebleu is not installed.
            CorpusError: all targets are the same.
        """
        check_sacrebleu()
        if len(set(table.labels)) < 2:
            raise CorpusError(
                f"{table.name}: {count_rows(table.labels)} the target {shorten(table.labels[0])}; "
                "expected different ones",
                "choose the right column with --label-column",
            )
        return cls(names=(), tokens=choose_tokens(table.labels), options=config)

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Self:
        known = {f.name for f in dataclasses.fields(Finetune)}  # type: ignore[arg-type]
        options = {name: value for name, value in manifest["options"].items() if name in known}
        return cls(
            names=(),
            tokens=manifest.get("score_tokens", "13a"),
            options=Finetune(**options),
            max_target_length=manifest["max_target_length"],
            spacing=Spacing.from_json(manifest.get("spacing", {})),
            repeating=manifest.get("repeating", 1.0),
        )

    def own_facts(self) -> dict[str, Any]:
        return {
            "score_tokens": self.tokens,
            "max_target_length": self.max_target_length,
            "spacing": self.spacing.to_json(),
            "repeating": self.repeating,
        }

    def unknown(self, cells: Sequence[str]) -> list[list[str]]:
        return [[] for _ in cells]

    def targets(self, cells: Sequence[str]) -> Targets:
        return as_rows([Reference(cell, 0) for cell in cells])

    def strata(self, cells: Sequence[str]) -> Rows:
        return np.zeros(len(cells), dtype=np.int64)

    # Model and learning

    def settle(self, config: Finetune) -> Finetune:
        config = super(Generation, self).settle(config)
        if config.long_texts == "windows":
            raise ConfigError(
                "long_texts: windows do not work for generation, which reads a source as a whole",
                "use head, tail or head-tail",
            )
        if config.num_decoder_layers is not None and config.decoder in ("shared", "prefix"):
            raise ConfigError(
                f"num_decoder_layers: has no effect with the decoder {config.decoder!r}, which has "
                "the encoder's layers",
                "leave it out, or pass --decoder copied",
            )
        _check_search(config, config.max_target_length)
        return config

    def prepared(self, encoder: "Encoder", shape: "Model", train: LabelledTable) -> Self:
        """Learn the lengths and the spacing of the targets, and how many tokens are unknown.

        Raises:
            ConfigError: ``max_target_length`` exceeds the positions.
            CorpusError: the targets cannot be written with this vocabulary.
        """
        found = examine_targets(
            encoder.tokenizer, shape, train, asked=self.options.max_target_length
        )
        _check_search(self.options, found.max_target_length)
        return dataclasses.replace(
            self,
            max_target_length=found.max_target_length,
            max_learnt_length=found.max_learnt_length,
            spacing=found.spacing,
            repeating=found.repeating,
            found={**found.shown, "scores split texts by": f"sacrebleu's {self.tokens!r}"},
        )

    def facts(self) -> dict[str, str]:
        return dict(self.found)

    def encode(
        self,
        encoder: "Encoder",
        texts: Iterable[str],
        pairs: Iterable[str] | None = None,
        *,
        on_rows: Callable[[int], None] = lambda rows: None,
    ) -> "EncodedTexts":
        from bertpre.finetuning.encoded_pairs import encode_sources

        return encode_sources(encoder, texts, pairs, on_rows=on_rows)

    def encode_table(
        self, encoder: "Encoder", table: LabelledTable, *, on_rows: Callable[[int], None]
    ) -> tuple["EncodedTexts", Targets]:
        from bertpre.finetuning.encoded_pairs import encode_sources

        found = encode_sources(
            encoder,
            table.texts,
            table.pairs,
            targets=table.labels,
            max_target_length=self.max_learnt_length,
            on_rows=on_rows,
        )
        lengths = found.label_lengths.tolist()
        return found, as_rows(list(map(Reference, table.labels, lengths)))

    def build_model(
        self, shape: "Model", *, vocab_size: int, pooling: "Pooling | None"
    ) -> "TextGenerator":
        from bertpre.model.decoder import EncoderDecoder
        from bertpre.model.prefix import PrefixGenerator

        if self.options.decoder == "prefix":
            return PrefixGenerator(shape, vocab_size=vocab_size)
        return EncoderDecoder(
            shape,
            vocab_size=vocab_size,
            num_decoder_layers=self.options.num_decoder_layers or shape.num_hidden_layers,
            is_shared=self.options.decoder == "shared",
        )

    def complete(self, model: "Finetuned", new: Sequence[str]) -> Sequence[str]:
        """Copy the encoder into a decoder that the checkpoint lacks."""
        from bertpre.model.decoder import EncoderDecoder
        from bertpre.model.weights import copy_encoder

        lacks_decoder = any(name.startswith("decoder.bert.") for name in new)
        if not isinstance(model, EncoderDecoder) or not lacks_decoder:
            return new
        with_layers = self.options.decoder != "random"
        copy_encoder(model, with_layers=with_layers)
        copied = "decoder.bert." if with_layers else "decoder.bert.embeddings."
        return [name for name in new if not name.startswith(copied)]

    def config_entries(self) -> dict[str, Any]:
        return {}

    def generation_config(self, tokenizer: "Tokenizer") -> dict[str, Any]:
        options = self.options
        longest = options.max_target_length or self.max_target_length
        return {
            "decoder_start_token_id": tokenizer.cls_id,
            "eos_token_id": tokenizer.sep_id,
            "forced_eos_token_id": tokenizer.sep_id,
            "pad_token_id": tokenizer.pad_id,
            "num_beams": options.num_beams,
            "length_penalty": options.length_penalty,
            "early_stopping": False,
            "max_length": longest + 2,  # [CLS] and [SEP] are counted
            "min_length": options.min_target_length + 1 if options.min_target_length else 0,
            "no_repeat_ngram_size": options.no_repeat_ngram,
        }

    def objective(
        self, targets: Targets, *, config: Finetune, device: "torch.device"
    ) -> "NextTokenLoss":
        from bertpre.finetuning.encoded_pairs import NextTokenLoss

        return NextTokenLoss(label_smoothing=config.label_smoothing)

    # Outputs

    def _search_options(self) -> "SearchOptions":
        from bertpre.finetuning.beam_search import SearchOptions

        return SearchOptions(
            max_length=self.options.max_target_length or self.max_target_length,
            num_beams=self.options.num_beams,
            length_penalty=self.options.length_penalty,
            min_length=self.options.min_target_length,
            no_repeat_ngram=self.options.no_repeat_ngram,
            num_best=self.options.num_best,
        )

    def predict(
        self, runs: Sequence["Run"], rows: Rows | None = None, *, placement: "Placement"
    ) -> Outputs:
        """Write targets, and score the true ones where they are known."""
        from bertpre.finetuning.encoded_pairs import EncodedSources
        from bertpre.finetuning.writing import score_targets, write_targets

        first = runs[0].texts
        assert isinstance(first, EncodedSources)
        for run in runs:
            check_target_length(run.model.bert.config, self.options.max_target_length)
        for run in runs[1:]:
            assert isinstance(run.texts, EncodedSources)
            if run.texts.tokenizer.fingerprint != first.tokenizer.fingerprint:
                raise ConfigError(
                    "the models have different vocabularies, so their tokens cannot be averaged",
                    "average models that were fine-tuned with the same tokenizer",
                )
        wanted = np.arange(len(first)) if rows is None else rows
        known = np.zeros(len(wanted))
        if first.label_starts is not None:
            known = score_targets(runs, wanted, placement=placement)
        lengths = first.label_lengths[wanted]
        texts: list[list[tuple[str, float]]] = [[("", math.nan)]] * len(wanted)
        full = repeats = np.zeros(len(wanted), dtype=bool)
        if self.writes:
            found = write_targets(runs, wanted, options=self._search_options(), placement=placement)
            texts = [
                [(to_text(first.tokenizer, self.spacing, one.ids), one.mean) for one in row]
                for row in found
            ]
            most = self._search_options().max_length
            full = np.array([len(row[0].ids) == most for row in found])
            repeats = np.array([has_repeats(row[0].ids) for row in found])
        return as_rows(
            [
                GeneratedText(*row[0], tuple(row[1:]), float(one), int(length), *map(bool, facts))
                for row, one, length, *facts in zip(
                    texts, known, lengths, full, repeats, strict=True
                )
            ]
        )

    def for_prediction(self, config: Finetune) -> Self:
        task = super(Generation, self).for_prediction(config)
        _check_search(config, config.max_target_length or self.max_target_length)
        names = ("max_target_length", *_SEARCH)
        options = dataclasses.replace(
            self.options,  # type: ignore[type-var]
            **{name: getattr(config, name) for name in names},
        )
        return dataclasses.replace(task, options=options)

    def during_training(self, metric: str) -> Self:
        """Score epochs by greedy search, or only the loss if no other score chooses the epoch."""
        options = dataclasses.replace(self.options, num_beams=1, num_best=1)  # type: ignore[type-var]
        return dataclasses.replace(self, options=options, writes=metric != "loss")

    def scores(self, outputs: Outputs, targets: Targets) -> Scores:
        """Compare texts with the true ones; see `bertpre.finetuning.text_scores`."""
        if not self.writes:
            return {}
        return score_texts(
            [output.text for output in outputs],
            [target.text for target in targets],
            tokens=self.tokens,
            cider_sigma=self.options.cider_sigma,
        )

    def loss(self, outputs: Outputs, targets: Targets) -> float:
        """Return the mean negative log probability of the true tokens, in nats."""
        total: int = sum(output.num_target_tokens for output in outputs)
        gained: float = sum(output.target_log_probability for output in outputs)
        return -gained / max(1, total)

    def is_perfect(self, scores: Scores, metric: str) -> bool:
        return scores["exact_match"] == 1.0

    def remarks(self, outputs: Outputs) -> list[str]:
        found = remarks_on_texts(
            sum(output.is_full for output in outputs),
            sum(output.repeats for output in outputs),
            len(outputs),
            usual_repeats=self.repeating,
        )
        if len({output.text for output in outputs}) > 1 or len(outputs) == 1:
            return found
        return [
            *found,
            "the model writes the same text for all dev rows; more epochs, a higher learning rate "
            "or more training rows may help",
        ]

    def baselines(self, train: LabelledTable, config: Finetune) -> dict[str, Baseline]:
        found: dict[str, Baseline] = {"commonest": write_commonest, "copy": copy_sources}
        return found if config.baseline is False else {"nearest": write_nearest, **found}

    # Predictions and display

    def open(
        self, path: Path, config: Finetune, *, layout: Mapping[str, Any], way_out: str
    ) -> PredictionFile:
        return WrittenTexts(
            path,
            config,
            num_best=self.options.num_best,
            usual_repeats=self.repeating,
            way_out=way_out,
        )

    def write_predictions(
        self, folder: Path, part: str, table: LabelledTable, outputs: Outputs
    ) -> None:
        write_outputs(folder, part, table, outputs, num_best=self.options.num_best)

    def draw_mistakes(
        self, folder: Path, table: LabelledTable, outputs: Outputs, scores: Scores
    ) -> None:
        """List the dev rows whose text is not the true one."""
        write_mistakes(folder / "dev_mistakes.tsv", table, outputs)

    def describe(self) -> str:
        return f"texts to write, with the decoder {self.options.decoder!r}"

    def label_facts(self) -> dict[str, str]:
        return {
            "decoder": self.options.decoder,
            "longest text": f"{self.max_target_length:,} tokens",
        }

    def card_text(self, texts: str) -> str:
        return f"Writing texts for {texts}."


def _check_search(config: Finetune, longest: int | None) -> None:
    if config.num_best > config.num_beams:
        raise ConfigError(
            f"num_best: {config.num_best} texts need as many beams, but num_beams is "
            f"{config.num_beams}",
            f"pass --num-beams {config.num_best}",
        )
    if longest is not None and config.min_target_length > longest:
        raise ConfigError(
            f"min_target_length: {config.min_target_length}, but texts have at most {longest:,} "
            "tokens",
            f"pass --max-target-length {config.min_target_length} or more",
        )
