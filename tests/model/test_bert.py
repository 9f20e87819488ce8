import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from bertpre.config import schema
from bertpre.errors import ConfigError
from bertpre.model.bert import (
    BertEmbeddings,
    BertModel,
    LayerNorm,
    initialize,
    sinusoidal_positions,
)
from bertpre.model.flat import FlatTokens, flatten

MakeConfig = Callable[..., schema.Model]
VARIANTS = [
    {},
    {"norm": "pre", "position_embeddings": "sinusoidal", "hidden_act": "relu"},
]


@pytest.fixture(params=VARIANTS, ids=["bert", "tutorial"])
def model(
    request: pytest.FixtureRequest, make_config: MakeConfig, randomize: Callable[[nn.Module], None]
) -> BertModel:
    model = BertModel(make_config(**request.param), vocab_size=50)
    randomize(model)
    return model


def test_sinusoidal_positions_equal_the_formula() -> None:
    table = sinusoidal_positions(20, 8)

    assert table.shape == (20, 8)
    for position in (0, 1, 3, 19):
        for i in range(4):  # Vaswani et al. 2017, section 3.5
            angle = position / 10_000 ** (2 * i / 8)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_sinusoidal_positions_of_an_odd_width_end_with_a_sine() -> None:
    assert sinusoidal_positions(4, 5)[3, 4].item() == pytest.approx(math.sin(3 / 10_000**0.8))


def test_sinusoidal_positions_are_no_weights(make_config: MakeConfig) -> None:
    embeddings = BertEmbeddings(make_config(position_embeddings="sinusoidal"), vocab_size=50)

    assert embeddings.position is None
    assert sorted(embeddings.state_dict()) == [
        "norm.bias",
        "norm.weight",
        "token_type.weight",
        "word.weight",
    ]


@pytest.mark.parametrize("kind", ["learned", "sinusoidal"])
def test_embeddings_are_the_normalised_sum_of_token_segment_and_position(
    kind: str, make_config: MakeConfig, randomize: Callable[[nn.Module], None]
) -> None:
    embeddings = BertEmbeddings(
        make_config(position_embeddings=kind, initializer_range=0.05), vocab_size=50
    )
    randomize(embeddings)
    ids, segments = torch.tensor([[7, 7, 9]]), torch.tensor([[0, 1, 1]])

    hidden = embeddings(flatten(ids, torch.ones(1, 3), segments))

    word, segment = embeddings.word.weight, embeddings.token_type.weight
    if kind == "learned":
        position = embeddings.position.weight
    else:
        position = 0.05 * sinusoidal_positions(16, 24)  # of the size of fresh token embeddings
    for row, (token, kind_of_segment) in enumerate([(7, 0), (7, 1), (9, 1)]):
        total = word[token] + segment[kind_of_segment] + position[row]
        scaled = (total - total.mean()) / total.std(correction=0)
        expected = scaled * embeddings.norm.weight + embeddings.norm.bias
        torch.testing.assert_close(hidden[row], expected, atol=1e-5, rtol=1e-5)


def test_flat_padded_and_single_rows_agree(model: BertModel, pairs) -> None:
    flat = model(pairs.flat)

    padded = model.forward_padded(pairs.input_ids, pairs.attention_mask, pairs.token_type_ids)

    assert torch.equal(padded[pairs.attention_mask], flat.hidden_states)
    assert not padded[~pairs.attention_mask].any()
    for row, keep in enumerate(pairs.attention_mask):
        single = flatten(
            pairs.input_ids[row : row + 1, keep],
            torch.ones(1, int(keep.sum())),
            pairs.token_type_ids[row : row + 1, keep],
        )
        alone = model(single)
        # Not bit for bit: matrix products of other sizes sum in another order.
        torch.testing.assert_close(alone.hidden_states, padded[row, keep], atol=2e-6, rtol=1e-5)
        torch.testing.assert_close(
            alone.pooled_output[0], flat.pooled_output[row], atol=2e-6, rtol=1e-5
        )


def test_what_stands_in_the_padding_never_matters(model: BertModel, pairs) -> None:
    other = pairs.input_ids.masked_fill(~pairs.attention_mask, 3)

    before = model.forward_padded(pairs.input_ids, pairs.attention_mask)
    after = model.forward_padded(other, pairs.attention_mask)

    assert torch.equal(before, after)


def test_a_token_sees_the_whole_of_its_own_sequence_only(model: BertModel, pairs) -> None:
    changed = pairs.input_ids.clone()
    changed[0, 11] = (changed[0, 11] + 1) % 50

    difference = model.forward_padded(pairs.input_ids, pairs.attention_mask)
    difference = difference - model.forward_padded(changed, pairs.attention_mask)

    assert (difference[0].abs().amax(dim=1) > 1e-5).all()
    assert not difference[1:].any()


@pytest.mark.parametrize("name", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_each_rate_of_dropout_acts_alone(make_config: MakeConfig, pairs, name: str) -> None:
    without = BertModel(make_config(), vocab_size=50).train()
    dropping = BertModel(make_config(**{name: 0.5}), vocab_size=50).train()

    for model, is_same in ((without, True), (dropping, False)):
        first, second = (model(pairs.flat).hidden_states for _ in range(2))
        assert torch.equal(first, second) == is_same


def test_dropout_is_active_in_training_only(make_config: MakeConfig, pairs) -> None:
    config = make_config(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    model = BertModel(config, vocab_size=50)

    model.train()
    assert not torch.equal(model(pairs.flat).hidden_states, model(pairs.flat).hidden_states)
    model.eval()
    assert torch.equal(model(pairs.flat).hidden_states, model(pairs.flat).hidden_states)


def test_a_pre_norm_stack_ends_with_a_layer_norm(make_config: MakeConfig, pairs) -> None:
    model = BertModel(make_config(norm="pre"), vocab_size=50)
    initialize(model, 0.2, torch.Generator().manual_seed(0))

    hidden = model(pairs.flat).hidden_states

    # Layer norms start with scale 1 and shift 0.
    torch.testing.assert_close(hidden.mean(dim=1), torch.zeros(41), atol=1e-5, rtol=0)
    torch.testing.assert_close(hidden.std(dim=1, correction=0), torch.ones(41), atol=1e-4, rtol=0)


def gradient(model: BertModel, batch: FlatTokens, weights: Tensor) -> Tensor:
    model.zero_grad()
    (model(batch).hidden_states * weights).sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def test_the_backward_pass_repeats_bit_for_bit_on_two_threads(model: BertModel) -> None:
    generator = torch.Generator().manual_seed(0)
    # Few distinct ids in many tokens: sums over repeated ids are where the order could change.
    ids = torch.randint(1, 4, (256, 16), generator=generator)
    batch = flatten(ids, torch.arange(16) < torch.randint(4, 17, (256, 1), generator=generator))
    weights = torch.randn(len(batch.input_ids), 24, generator=generator)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)

    results = [gradient(model, batch, weights) for _ in range(4)]

    torch.set_num_threads(threads)
    assert all(torch.equal(results[0], other) for other in results[1:])


def test_bf16_autocast_keeps_hidden_states_in_fp32_and_gradients_close(
    model: BertModel, pairs
) -> None:
    weights = torch.randn(41, 24, generator=torch.Generator().manual_seed(0))

    exact = gradient(model, pairs.flat, weights)
    with torch.autocast("cpu", torch.bfloat16):
        dtype = model(pairs.flat).hidden_states.dtype
        rounded = gradient(model, pairs.flat, weights)

    assert dtype == torch.float32
    assert torch.cosine_similarity(exact, rounded, dim=0) > 0.999


def test_layer_norm_of_bf16_is_computed_and_returned_in_fp32() -> None:
    values = torch.randn(4, 512, generator=torch.Generator().manual_seed(0)).bfloat16()

    with torch.autocast("cpu", torch.bfloat16):
        result = LayerNorm(512, eps=1e-12)(values)

    exact = values.double()
    exact = (exact - exact.mean(1, keepdim=True)) / exact.std(1, keepdim=True, correction=0)
    torch.testing.assert_close(result, exact.float(), atol=1e-5, rtol=1e-5)


def test_initialize_draws_truncated_normals_from_its_generator_only(
    make_config: MakeConfig,
) -> None:
    models = [BertModel(make_config(hidden_size=96), vocab_size=2000) for _ in range(2)]
    for model in models:
        torch.rand(3)  # the default generator moves on and does not matter
        initialize(model, 0.02, torch.Generator().manual_seed(8))

    weight = models[0].embeddings.word.weight
    assert weight.abs().max() <= 0.04
    # The standard deviation of a normal cut at two sigma is 0.87963 of the uncut one.
    assert weight.std().item() == pytest.approx(0.87963 * 0.02, rel=0.01)
    layer = models[0].encoder.layers[0]
    assert not layer.feed_forward.up.bias.any()
    assert (layer.attention_norm.weight == 1).all()
    assert not layer.attention_norm.bias.any()
    for name, parameter in models[0].named_parameters():
        assert torch.equal(parameter, models[1].get_parameter(name)), name


def test_bert_base_has_as_many_parameters_as_published() -> None:
    with torch.device("meta"):
        model = BertModel(schema.Model(), vocab_size=30_522)

    count = sum(parameter.numel() for parameter in model.parameters())

    # transformers: BertModel(BertConfig()).num_parameters(); "110M" in Devlin et al. 2018
    assert count == 109_482_240
    assert count == (30_522 + 512 + 2 + 2) * 768 + 12 * (
        4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 2 * 2 * 768
    ) + (768 * 768 + 768)


def test_heads_that_do_not_divide_the_width_are_refused(make_config: MakeConfig) -> None:
    message = r"model.hidden_size: 24 does not divide into model.num_attention_heads: 5 .* multiple"
    with pytest.raises(ConfigError, match=message):
        BertModel(make_config(num_attention_heads=5), vocab_size=50)


def test_a_sequence_longer_than_the_positions_is_refused(model: BertModel) -> None:
    with pytest.raises(ValueError, match="a sequence of 17 tokens, but the model has 16 positions"):
        model.forward_padded(torch.ones(1, 17, dtype=torch.long), torch.ones(1, 17))
