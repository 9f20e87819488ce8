"""The options: every one described and bounded; names and kinds are a contract, so pinned here."""

import dataclasses
import typing
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from bertpre.config.load import load_config
from bertpre.config.schema import Config

CONFIGS = Path(__file__).parents[2] / "configs"

# Scripts and stored config.yaml files rely on these names: change them knowingly.
FREE_NAMES = """
make_data.workers
pretrain.gradient_checkpointing
pretrain.micro_batch_size pretrain.stop_after_hours pretrain.init_from
pretrain.device pretrain.precision pretrain.compile pretrain.deterministic pretrain.tensorboard
pretrain.log_every_steps pretrain.eval_every_steps pretrain.save_every_steps
pretrain.keep_checkpoints
"""

IDENTITY_NAMES = """
seed
build_vocab.text.format build_vocab.text.text_column build_vocab.text.pair_column
build_vocab.text.header
build_vocab.text.quoting build_vocab.text.encoding
build_vocab.text.on_bad_bytes
build_vocab.text.document
build_vocab.text.sentences build_vocab.text.language build_vocab.text.dedup
build_vocab.vocab_size build_vocab.min_frequency build_vocab.token_mode
build_vocab.lowercase build_vocab.strip_accents build_vocab.max_unknown_share
build_vocab.extra_tokens build_vocab.vocab_file build_vocab.sample_bytes
make_data.text.format make_data.text.text_column make_data.text.pair_column
make_data.text.header
make_data.text.quoting make_data.text.encoding
make_data.text.on_bad_bytes make_data.text.document
make_data.text.sentences make_data.text.language make_data.text.dedup
make_data.max_seq_length make_data.objective make_data.dupe_factor make_data.short_seq_prob
make_data.balance_nsp
make_data.masking make_data.mlm_probability make_data.whole_word_masking
make_data.mask_spans make_data.span_stop_prob make_data.span_max_words make_data.ngram_weights
make_data.mask_token_share make_data.random_token_share make_data.word_segmenter
make_data.max_predictions_per_seq make_data.max_unknown_share
make_data.eval_fraction
model.vocab_size model.hidden_size model.num_hidden_layers model.num_attention_heads
model.intermediate_size model.hidden_act model.hidden_dropout_prob
model.attention_probs_dropout_prob model.max_position_embeddings model.type_vocab_size
model.layer_norm_eps model.initializer_range model.norm model.position_embeddings
pretrain.optimizer.learning_rate pretrain.optimizer.weight_decay pretrain.optimizer.beta1
pretrain.optimizer.beta2 pretrain.optimizer.eps pretrain.optimizer.max_grad_norm
pretrain.optimizer.name pretrain.optimizer.momentum
pretrain.schedule.name pretrain.schedule.warmup_ratio pretrain.schedule.decay_ratio
pretrain.max_epochs pretrain.max_tokens pretrain.max_hours pretrain.early_stopping_evals
pretrain.initial_global_batch_size pretrain.batch_ramp_ratio pretrain.final_mlm_probability
pretrain.reset_embeddings
pretrain.max_steps pretrain.global_batch_size pretrain.mlm_probability
finetune.task finetune.format finetune.text_column finetune.pair_column finetune.label_column
finetune.label_separator finetune.header finetune.quoting finetune.encoding
finetune.on_bad_bytes finetune.on_bad_rows
finetune.dev_fraction finetune.folds finetune.seeds
finetune.max_seq_length finetune.long_texts finetune.window_overlap
finetune.learning_rate finetune.layer_decay finetune.num_epochs
finetune.batch_size finetune.micro_batch_size finetune.crf finetune.constrained
finetune.decoder finetune.num_decoder_layers finetune.num_beams finetune.length_penalty
finetune.max_target_length finetune.min_target_length finetune.no_repeat_ngram finetune.num_best
finetune.cider_sigma
finetune.warmup_ratio finetune.weight_decay finetune.max_grad_norm
finetune.hidden_dropout_prob finetune.mask_probability
finetune.label_smoothing finetune.class_weights finetune.focal_gamma
finetune.adversarial_epsilon finetune.ema_decay finetune.metric finetune.early_stopping
finetune.pooling finetune.from_scratch finetune.baseline finetune.device
finetune.precision
embed.format embed.text_column embed.pair_column embed.header embed.quoting embed.encoding
embed.on_bad_bytes embed.on_bad_rows
embed.pooling embed.normalize embed.max_seq_length embed.device embed.precision
"""


FREE = FREE_NAMES.split()
IDENTITY = IDENTITY_NAMES.split()


def options(section=Config, prefix=""):
    """Return each option's dotted name and its pydantic field."""
    found = {}
    for name, field in section.__pydantic_fields__.items():
        if dataclasses.is_dataclass(field.annotation):
            found |= options(field.annotation, f"{prefix}{name}.")
        else:
            found[prefix + name] = field
    return found


def kinds(annotation):
    """Return the plain types inside an annotation such as ``Annotated[int, ...] | None``."""
    if typing.get_origin(annotation) is typing.Literal:
        return set()
    inner = [kind for part in typing.get_args(annotation) for kind in kinds(part)]
    return set(inner) or ({annotation} if isinstance(annotation, type) else set())


def test_the_names_of_the_options_are_the_pinned_ones():
    assert sorted(options()) == sorted(FREE + IDENTITY)


def test_the_options_that_a_resumed_run_may_change_are_the_pinned_ones():
    free = [name for name, field in options().items() if not field.json_schema_extra["identity"]]

    assert sorted(free) == sorted(FREE)


@pytest.mark.parametrize("name", options())
def test_an_option_has_a_description_that_is_a_sentence(name):
    description = options()[name].description

    assert description[0].isupper() or description.partition(":")[0] in description.lower()
    assert description.endswith(".")


@pytest.mark.parametrize("name", options())
def test_a_number_has_a_range(name):
    field = options()[name]
    is_number = {int, float} & kinds(field.annotation) and not name.endswith("_column")
    if name == "pretrain.micro_batch_size":  # its number has one, as it may be a word too
        return

    limits = [limit for limit in field.metadata if hasattr(limit, "ge") or hasattr(limit, "gt")]

    assert bool(limits) == bool(is_number)


@pytest.mark.parametrize("name", options())
def test_a_default_passes_its_own_check(name):
    *parents, last = name.split(".")
    values = inner = {}
    for parent in parents:
        inner = inner.setdefault(parent, {})
    inner[last] = options()[name].default

    assert TypeAdapter(Config).validate_python(values) == Config()


def test_options_cannot_be_changed_afterwards():
    with pytest.raises((dataclasses.FrozenInstanceError, ValidationError)):
        Config().seed = 1


@pytest.mark.parametrize(
    "path", sorted(CONFIGS.rglob("*.yaml")), ids=lambda path: path.relative_to(CONFIGS).as_posix()
)
def test_config_file_loads(path):
    config = load_config(path)

    assert config.model.hidden_size % config.model.num_attention_heads == 0
    assert config != Config()


@pytest.mark.parametrize(
    ("name", "layers", "width"),
    # Source: Turc et al. 2019 (tiny to medium); Devlin et al. 2018 (base, large).
    [
        ("tiny", 2, 128),
        ("mini", 4, 256),
        ("small", 4, 512),
        ("medium", 8, 512),
        ("base", 12, 768),
        ("large", 24, 1024),
    ],
)
def test_a_size_preset_has_the_size_of_that_name(name, layers, width):
    model = load_config(CONFIGS / f"{name}.yaml").model

    assert (model.num_hidden_layers, model.hidden_size) == (layers, width)
    assert (model.num_attention_heads, model.intermediate_size) == (width // 64, 4 * width)
