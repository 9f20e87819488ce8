"""How defaults, YAML, --set and flags become one Config, and what each mistake says."""

import re
from pathlib import Path

import pytest

from bertpre.config.load import (
    config_to_dict,
    describe,
    identity_differences,
    load_config,
    parse_config,
    value_types,
)
from bertpre.config.schema import Config, Pretrain
from bertpre.errors import ConfigError


@pytest.fixture
def write(tmp_path):
    def write_yaml(text: str) -> Path:
        path = tmp_path / "experiment.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_yaml


def message(*args, **kwargs) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(*args, **kwargs)
    return str(caught.value)


def test_without_a_file_all_options_have_their_defaults():
    assert load_config() == Config()


@pytest.mark.parametrize(
    "text", ["", "# nothing yet\n", "pretrain:\n", "pretrain: {optimizer: }\n"]
)
def test_an_empty_file_or_section_means_the_defaults(write, text):
    assert load_config(write(text)) == Config()


def test_a_flag_wins_over_set_over_the_file_over_the_default(write):
    path = write("make_data: {max_seq_length: 64, dupe_factor: 2, mlm_probability: 0.2}\n")

    config = load_config(
        path,
        sets=["make_data.dupe_factor=3", "make_data.mlm_probability=0.3"],
        flags={"make_data.mlm_probability": 0.4, "make_data.max_seq_length": None},
    )

    data = config.make_data
    assert (data.eval_fraction, data.max_seq_length) == (0.02, 64)
    assert (data.dupe_factor, data.mlm_probability) == (3, 0.4)


def test_a_later_file_goes_before_an_earlier_one_and_leaves_the_rest(tmp_path):
    recipe, mine = tmp_path / "recipe.yaml", tmp_path / "mine.yaml"
    recipe.write_text(
        "model:\n  hidden_size: 64\n  num_hidden_layers: 3\n"
        "pretrain:\n  optimizer:\n    name: muon\n    beta2: 0.9\nfinetune:\n  ema_decay: 0.5\n"
    )
    mine.write_text(
        "model:\n  hidden_size: 128\npretrain:\n  optimizer:\n    beta2: 0.95\nfinetune:\n"
    )

    config = load_config([recipe, mine])

    assert (config.model.hidden_size, config.model.num_hidden_layers) == (128, 3)
    assert (config.pretrain.optimizer.name, config.pretrain.optimizer.beta2) == ("muon", 0.95)
    assert config.finetune.ema_decay == 0.5
    assert load_config([mine, recipe]).model.hidden_size == 64
    assert load_config([recipe]) == load_config(recipe)


def test_a_fault_in_one_of_several_files_names_it(tmp_path):
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("model:\n  hidden_size: 64\n")
    bad.write_text("model:\n  hidden_sise: 64\n")

    with pytest.raises(ConfigError, match=r"bad\.yaml: .*hidden_sise"):
        load_config([good, bad])


def test_the_last_set_of_an_option_wins():
    assert load_config(sets=["seed=1", "seed=2"]).seed == 2


def test_set_reaches_a_nested_section_and_an_empty_one(write):
    config = load_config(write("pretrain:\n"), sets=["pretrain.optimizer.learning_rate=1e-3"])

    assert config.pretrain.optimizer.learning_rate == 0.001


def test_set_reads_the_value_as_yaml():
    config = load_config(
        sets=["build_vocab.lowercase=true", "make_data.dupe_factor=null", "finetune.label_column=2"]
    )

    assert config.build_vocab.lowercase is True
    assert config.make_data.dupe_factor is None
    assert config.finetune.label_column == 2


@pytest.mark.parametrize("text", ["1e-4", "1E-4", "1.0e-4", "0.0001", "1_0e-5", "+1e-4"])
def test_a_number_with_an_exponent_is_a_number(write, text):
    path = write(f"pretrain: {{optimizer: {{learning_rate: {text}}}}}\n")

    assert load_config(path).pretrain.optimizer.learning_rate == pytest.approx(1e-4)
    assert load_config(sets=[f"pretrain.optimizer.learning_rate={text}"]) == load_config(path)


def test_an_integer_serves_as_a_float_but_not_the_other_way(write):
    assert load_config(sets=["pretrain.optimizer.max_grad_norm=2"])

    text = message(sets=["pretrain.max_steps=1e3"])

    assert text == "pretrain.max_steps: input should be a valid integer, found 1000.0"


def test_an_unknown_option_names_the_near_one(write):
    text = message(write("pretrain: {optimizer: {lr: 1e-4, learning_rat: 1e-4}}\n"))

    assert "pretrain.optimizer.lr: there is no such option" in text
    assert (
        "pretrain.optimizer.learning_rat: there is no such option; "
        "did you mean pretrain.optimizer.learning_rate?" in text
    )


def test_an_unknown_section_is_named(write):
    path = write("pretraining: {max_steps: 10}\n")

    assert message(path) == f"{path}: pretraining: there is no such option; did you mean pretrain?"


def test_an_option_in_the_wrong_section_names_the_right_place(write):
    path = write("pretrain: {vocab_size: 100}\n")

    assert message(path) == (
        f"{path}: pretrain.vocab_size: there is no such option; did you mean "
        "build_vocab.vocab_size?"
    )


def test_a_near_name_is_sought_in_the_same_section_first(write):
    text = message(write("finetune: {weight_decy: 0}\nmake_data: {formt: txt}\n"))

    assert "did you mean finetune.weight_decay?" in text
    assert "did you mean make_data.text.format?" in text


def test_all_problems_are_reported_at_once(write):
    path = write(
        "seed: -1\nmake_data: {objective: nsp, max_seq_length: '64'}\n"
        "model: {hidden_dropout_prob: 1.0, hiden_size: 3}\nfinetune: {pooling: max}\n"
    )

    lines = message(path).split("\n  ")

    assert lines[0] == f"{path}: 6 invalid options:"
    assert sorted(lines[1:]) == [
        "finetune.pooling: input should be 'auto', 'cls', 'mean' or 'compare', found 'max'",
        "make_data.max_seq_length: input should be a valid integer, found '64'",
        "make_data.objective: input should be 'mlm-nsp', 'mlm-sop' or 'mlm', found 'nsp'",
        "model.hidden_dropout_prob: input should be less than 1, found 1.0",
        "model.hiden_size: there is no such option; did you mean model.hidden_size?",
        "seed: input should be greater than or equal to 0, found -1",
    ]


@pytest.mark.parametrize(
    ("item", "complaint"),
    [
        ("pretrain.max_steps=true", "pretrain.max_steps: input should be a valid integer"),
        ("build_vocab.lowercase=1", "build_vocab.lowercase: input should be a valid boolean"),
        ("build_vocab.lowercase=maybe", "build_vocab.lowercase: input should be a valid boolean"),
        ("model.layer_norm_eps=.inf", "model.layer_norm_eps: input should be a finite number"),
        ("model.layer_norm_eps=.nan", "model.layer_norm_eps: input should be a finite number"),
        ("model.norm=[pre]", "model.norm: input should be 'post' or 'pre'"),
        ("make_data.dupe_factor=x", "make_data.dupe_factor: input should be a valid integer"),
        (
            "pretrain.micro_batch_size=0",
            "pretrain.micro_batch_size: input should be greater than or equal to 1, or input "
            "should be 'auto', found 0",
        ),
        (
            "finetune.text_column=1.5",
            "finetune.text_column: input should be a valid string, or input should be a valid "
            "integer, found 1.5",
        ),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(item, complaint):
    text = message(sets=[item])

    assert text.startswith(complaint)
    assert ", found " in text


@pytest.mark.parametrize(
    ("option", "most"),
    [
        ("make_data.max_seq_length", 32_768),
        ("make_data.dupe_factor", 10_000),
        ("make_data.span_max_words", 100),
        ("model.hidden_size", 65_536),
        ("pretrain.global_batch_size", 10_000_000),
        ("finetune.seeds", 100),
    ],
)
def test_a_number_above_the_most_that_its_option_takes_is_refused(option, most):
    load_config(sets=[f"{option}={most}"])

    assert message(sets=[f"{option}={most + 1}"]) == (
        f"{option}: input should be less than or equal to {most}, found {most + 1}"
    )


def test_an_option_in_place_of_a_section_is_refused(write):
    path = write("pretrain: 3\n")

    assert message(path) == f"{path}: pretrain: expected a section with options, found 3"
    assert message(sets=["pretrain=3", "pretrain.max_steps=1"]) == (
        "pretrain.max_steps: expected pretrain to be a section, found 3"
    )


@pytest.mark.parametrize("item", ["pretrain.max_steps", "=5", " =5"])
def test_a_set_without_key_or_value_is_refused(item):
    assert message(sets=[item]) == f"--set {item}: expected SECTION.KEY=VALUE"


def test_a_set_whose_value_is_not_yaml_is_refused():
    assert message(sets=["seed=[1"]).startswith("--set seed=[1: the value is not valid YAML (")


def test_what_only_looks_like_a_date_is_refused(write):
    path = write("seed: 2026-13-45\n")

    assert message(path) == f"{path}: not valid YAML: month must be in 1..12"
    assert message(sets=["seed=2026-13-45"]) == (
        "--set seed=2026-13-45: the value is not valid YAML (month must be in 1..12)"
    )


def test_a_missing_file_is_named(tmp_path):
    path = tmp_path / "none.yaml"

    assert message(path) == f"{path}: there is no such config file"


def test_a_folder_or_a_binary_file_is_refused(tmp_path):
    binary = tmp_path / "model.yaml"
    binary.write_bytes(b"\xff\xfe\x00")

    assert message(tmp_path) == f"{tmp_path}: cannot be read (Is a directory)"
    assert message(binary).startswith(f"{binary}: cannot be read as UTF-8 text (")


def test_broken_yaml_is_named_with_its_line(write):
    path = write("seed: 1\nmodel: {hidden_size: 3\n")

    assert re.match(f"{re.escape(str(path))}: not valid YAML: .*line 3", message(path), re.DOTALL)


@pytest.mark.parametrize("text", ["- seed\n", "seed\n", "3\n"])
def test_a_file_without_sections_is_refused(write, text):
    path = write(text)

    assert message(path).startswith(f"{path}: expected sections with options, found ")


def test_a_key_given_twice_is_refused(write):
    text = message(write("seed: 1\nmodel:\n  hidden_size: 3\n  hidden_size: 4\n"))

    assert "not valid YAML" in text
    assert "line 4: 'hidden_size' is given twice" in text


def test_a_key_that_is_not_a_name_is_refused(write):
    path = write("1: 2\n")

    assert message(path) == f"{path}: 1: keys should be strings, found 1"
    assert "not valid YAML" in message(write("? [a]\n: 2\n"))


def test_a_merge_key_is_no_repeated_key(write):
    path = write("model: &size {hidden_size: 64}\n")

    assert load_config(path).model.hidden_size == 64


def test_yaml_cannot_run_code(write):
    assert "not valid YAML" in message(write("seed: !!python/object/apply:os.getpid []\n"))


def test_what_is_written_as_a_dict_is_read_as_the_same_config():
    config = load_config(sets=["pretrain.optimizer.learning_rate=3e-4", "finetune.text_column=2"])

    assert parse_config(config_to_dict(config)) == config


def test_describe_gives_the_text_and_the_default_of_an_option():
    assert describe("pretrain.optimizer.learning_rate") == ("Peak learning rate.", 1e-4, ())
    assert describe("make_data.objective")[1:] == ("mlm-nsp", ("mlm-nsp", "mlm-sop", "mlm"))


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("seed", {int}),
        ("finetune.learning_rate", {float}),  # or derived
        ("finetune.baseline", {bool}),  # likewise
        ("finetune.long_texts", {str}),  # one of four
        ("finetune.label_separator", {str}),  # with a check
        ("build_vocab.token_mode", {str}),
        ("make_data.text.text_column", {int, str}),
        ("make_data.text.pair_column", {int, str}),
        ("pretrain.micro_batch_size", {int, str}),
        ("pretrain.optimizer.name", {str}),
    ],
)
def test_the_types_of_a_value_are_plain_and_without_none(name, types):
    assert value_types(name) == types


def test_a_resume_names_the_identity_options_that_differ_and_no_others():
    before = config_to_dict(load_config(sets=["pretrain.max_steps=10"]).pretrain)
    now = config_to_dict(
        load_config(
            sets=[
                "pretrain.max_steps=20",
                "pretrain.optimizer.beta2=0.98",
                "pretrain.log_every_steps=1",
                "pretrain.device=cpu",
            ]
        ).pretrain
    )

    lines = identity_differences(before, now, section=Pretrain, prefix="pretrain.")

    assert sorted(lines) == [
        "pretrain.max_steps: was 10, now 20",
        "pretrain.optimizer.beta2: was 0.999, now 0.98",
    ]
    assert identity_differences(now, now, section=Pretrain, prefix="pretrain.") == []


def test_what_an_earlier_stage_decided_gives_way_to_what_is_stated(tmp_path):
    path = tmp_path / "experiment.yaml"
    path.write_text("finetune: {text_column: stated}\n")
    derived = {"finetune.text_column": "stored", "finetune.label_column": "stored"}

    config = load_config(path, sets=["finetune.header=false"], derived=derived)

    assert (config.finetune.text_column, config.finetune.label_column) == ("stated", "stored")
    assert config.finetune.header is False


@pytest.mark.parametrize("code", ["English", "EN", "zh_CN", "", "e"])
def test_a_language_that_is_no_code_is_refused(code):
    assert message(flags={"make_data.text.language": code}) == (
        "make_data.text.language: expected a language code in lower case, such as en, zh or "
        f"zh-hant, found {code!r}"
    )


def test_a_fault_of_the_file_names_it_and_one_of_the_command_line_does_not(write):
    path = write("pretrain: {max_step: 5}\n")

    assert message(path).startswith(f"{path}: pretrain.max_step: there is no such option")
    assert message(sets=["pretrain.max_step=5"]).startswith("pretrain.max_step: there is no")


def test_a_merged_mapping_gives_way_to_what_stands_beside_it(write):
    path = write(
        "build_vocab: {text: &text {format: tsv, text_column: body}}\n"
        "make_data: {text: {<<: *text, text_column: title}}\n"
    )

    text = load_config(path).make_data.text

    assert (text.format, text.text_column) == ("tsv", "title")


def test_an_integer_beyond_32_bits_is_refused():
    load_config(sets=["pretrain.max_steps=2147483647"])

    assert message(sets=["pretrain.max_steps=2147483648"]) == (
        "pretrain.max_steps: input should be less than 2147483648, found 2147483648"
    )


@pytest.mark.parametrize("value", ["window:0", "window:", "window:1000000000", "word"])
def test_sentences_in_an_unknown_notation_are_refused(value):
    load_config(flags={"make_data.text.sentences": "window:999999999"})

    assert message(flags={"make_data.text.sentences": value}) == (
        "make_data.text.sentences: expected line, split or window:N, where N is a number of words, "
        f"found {value!r}"
    )


@pytest.mark.parametrize("separator", ["", "  ", ", and", "a\tb", "\n"])
def test_a_label_separator_that_cannot_separate_is_refused(separator):
    load_config(flags={"finetune.label_separator": " ; "})

    assert message(flags={"finetune.label_separator": separator}) == (
        "finetune.label_separator: expected one to four characters, not only white space, "
        f"found {separator!r}"
    )
