"""Defaults are the paper's, or those of its code; where they are not, a comment says why."""

import pytest

from bertpre.config.schema import Config


def at(config, name):
    for part in name.split("."):
        config = getattr(config, part)
    return config


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Source: Devlin et al. 2018, section 3.1, task 1: 15 % of the tokens, of which 80 % become
        # [MASK] and 10 % a random token.
        ("make_data.mlm_probability", 0.15),
        ("make_data.mask_token_share", 0.8),
        ("make_data.random_token_share", 0.1),
        # Source: google-research/bert create_pretraining_data.py, flags and
        # create_instances_from_document. A random next segment is drawn with 0.5, and taken where
        # none follows, so more than half are random; balance_nsp mends that, and is off.
        ("make_data.short_seq_prob", 0.1),
        ("make_data.max_seq_length", 128),
        ("make_data.balance_nsp", False),
        ("make_data.whole_word_masking", False),
        ("make_data.mask_spans", "none"),
        # Source: Joshi et al. 2020 (SpanBERT), section 3.1: lengths from Geo(0.2), cut at 10.
        ("make_data.span_stop_prob", 0.2),
        ("make_data.span_max_words", 10),
        # Source: google-research/bert modeling.py, BertConfig; layer norm of tf.contrib.layers.
        ("model.hidden_size", 768),
        ("model.num_hidden_layers", 12),
        ("model.num_attention_heads", 12),
        ("model.intermediate_size", 3072),
        ("model.hidden_act", "gelu"),
        ("model.hidden_dropout_prob", 0.1),
        ("model.attention_probs_dropout_prob", 0.1),
        ("model.max_position_embeddings", 512),
        ("model.initializer_range", 0.02),
        ("model.layer_norm_eps", 1e-12),
        ("model.norm", "post"),
        ("model.position_embeddings", "learned"),
        # Source: Devlin et al. 2018, appendix A.2: Adam with 1e-4, 0.9, 0.999, decay 0.01, batches
        # of 256, linear decay. The rest: google-research/bert optimization.py.
        ("pretrain.optimizer.name", "adamw"),
        ("pretrain.optimizer.learning_rate", 1e-4),
        ("pretrain.optimizer.beta1", 0.9),
        ("pretrain.optimizer.beta2", 0.999),
        ("pretrain.optimizer.weight_decay", 0.01),
        ("pretrain.optimizer.eps", 1e-6),
        ("pretrain.optimizer.max_grad_norm", 1.0),
        ("pretrain.schedule.name", "linear"),
        ("pretrain.global_batch_size", 256),
        # Source: Devlin et al. 2018, section 4.1 (batches of 32) and appendix A.3 (dropout 0.1);
        # google-research/bert run_classifier.py, flag warmup_proportion, and optimization.py.
        ("finetune.batch_size", 32),
        ("finetune.hidden_dropout_prob", 0.1),
        ("finetune.warmup_ratio", 0.1),
        ("finetune.weight_decay", 0.01),
        ("finetune.max_grad_norm", 1.0),
    ],
)
def test_a_default_is_that_of_the_paper_or_of_its_code(name, expected):
    assert at(Config(), name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # The paper warms up for 10,000 of 1,000,000 updates. Runs here are far shorter, and 1 % of
        # them is too few. Source: Liu et al. 2019 (RoBERTa), table 9: 30,000 of 500,000.
        ("pretrain.schedule.warmup_ratio", 0.06),
        # The flag of create_pretraining_data.py is 10, its example 5. Passes over the corpus only
        # pay with new pairs, so None stands for 5 with pairs and 1 without.
        ("make_data.dupe_factor", None),
        # The flag is 20 at a length of 128, which is 15 % of it; None follows length and share.
        ("make_data.max_predictions_per_seq", None),
        # Masks are drawn anew each epoch, as Liu et al. 2019, section 4.1, found as good or better.
        ("make_data.masking", "dynamic"),
        # Google's flag lowercases by default. Many scripts lose by it, so it must be asked for.
        ("build_vocab.lowercase", False),
        ("build_vocab.strip_accents", False),
        # The paper's vocabulary of 30,000 (section 3), not the 30,522 of the released files.
        ("build_vocab.vocab_size", 30_000),
        # The paper tries 5e-5, 3e-5 and 2e-5 for width 768 (appendix A.3) and 2 to 4 epochs; None
        # goes by the width and the number of rows.
        ("finetune.learning_rate", None),
        ("finetune.num_epochs", None),
    ],
)
def test_a_default_that_differs_from_the_paper_does_so_on_purpose(name, expected):
    assert at(Config(), name) == expected


@pytest.mark.parametrize(
    ("name", "off"),
    [
        ("layer_decay", 1.0),
        ("mask_probability", 0.0),
        ("label_smoothing", 0.0),
        ("class_weights", "none"),
        ("focal_gamma", 0.0),
        ("adversarial_epsilon", 0.0),
        ("ema_decay", 0.0),
        ("early_stopping", None),
        ("folds", None),
        ("seeds", 1),
        ("long_texts", "head"),
    ],
)
def test_what_the_paper_does_not_do_in_fine_tuning_is_off(name, off):
    assert getattr(Config().finetune, name) == off
