import dataclasses
import math
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertpre.config import schema
from bertpre.model.attention import attention, causal_mask
from bertpre.model.decoder import EncoderDecoder, TextGenerator, TextPairs
from bertpre.model.flat import FlatTokens, make_layout
from bertpre.model.kernels import linear_cross_entropy
from bertpre.model.prefix import PrefixGenerator
from bertpre.model.stepping import JointSteps, Steps

VOCAB = 40
SOURCES = [[2, 7, 8, 9, 3], [2, 11, 3], [2, 30, 31, 32, 33, 34, 3]]
TARGETS = [[2, 15, 16], [2, 17, 18, 19, 20, 21], [2]]
FORMS = ["separate", "shared", "prefix"]


def flat(rows: Sequence[Sequence[int]]) -> FlatTokens:
    lengths = [len(row) for row in rows]
    ids = torch.tensor([token for row in rows for token in row])
    return FlatTokens(
        input_ids=ids,
        token_type_ids=torch.zeros_like(ids),
        position_ids=torch.cat([torch.arange(length) for length in lengths]),
        cu_seqlens=torch.tensor([0, *lengths]).cumsum(0).int(),
        max_length=max(lengths),
    )


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["post", "pre"])
def model(
    request: pytest.FixtureRequest,
    form: str,
    make_config: Callable[..., schema.Model],
    randomize: Callable[[nn.Module], None],
) -> TextGenerator:
    return build(make_config(norm=request.param, max_position_embeddings=32), form, randomize)


def build(config: schema.Model, form: str, randomize: Callable[[nn.Module], None]) -> TextGenerator:
    found: TextGenerator
    if form == "prefix":
        found = PrefixGenerator(config, vocab_size=VOCAB)
    else:
        found = EncoderDecoder(
            config, vocab_size=VOCAB, num_decoder_layers=2, is_shared=form == "shared"
        )
    randomize(found)
    return found.eval()


def by_formula(query: Tensor, key: Tensor, value: Tensor, num_before: int) -> Tensor:
    """One head of one sequence: query i sees the keys up to ``num_before + i``."""
    rows = []
    for i, one in enumerate(query):
        seen = num_before + i + 1
        scores = [float(one @ other) / math.sqrt(len(one)) for other in key[:seen]]
        total = sum(math.exp(score) for score in scores)
        rows.append(sum(math.exp(s) / total * v for s, v in zip(scores, value[:seen], strict=True)))
    return torch.stack(rows)  # type: ignore[arg-type]


@pytest.mark.parametrize("num_before", [0, 3])
def test_causal_attention_equals_a_loop_in_which_each_query_sees_the_keys_before_it(
    num_before: int,
) -> None:
    generator = torch.Generator().manual_seed(0)
    query_ends, key_ends = torch.tensor([0, 4, 5, 8]), torch.tensor([0, 4, 5, 8])
    key_ends = key_ends + num_before * torch.arange(4)
    queries = make_layout(query_ends.int(), num_tokens=8, max_length=4)
    keys = make_layout(key_ends.int(), num_tokens=int(key_ends[-1]), max_length=4 + num_before)
    query = torch.randn(8, 2, 3, generator=generator)
    key, value = (torch.randn(int(key_ends[-1]), 2, 3, generator=generator) for _ in range(2))

    found = attention(
        query,
        key,
        value,
        queries=queries,
        keys=keys,
        causal=causal_mask(queries, keys),
        dropout_p=0.0,
    )

    for row in range(3):
        mine, theirs = (slice(*ends[row : row + 2].tolist()) for ends in (query_ends, key_ends))
        for head in range(2):
            expected = by_formula(
                query[mine, head], key[theirs, head], value[theirs, head], num_before
            )
            torch.testing.assert_close(found[mine, head], expected, atol=1e-6, rtol=1e-5)


def test_a_target_token_depends_on_its_whole_source_and_on_no_later_target_token(
    model: TextGenerator,
) -> None:
    with torch.no_grad():
        before = model(flat(SOURCES), flat(TARGETS))
        other_source = model(flat([SOURCES[0], [2, 12, 3], SOURCES[2]]), flat(TARGETS))
        other_end = model(flat(SOURCES), flat([TARGETS[0], [2, 17, 18, 19, 20, 22], TARGETS[2]]))

    # Targets start at 0, 3 and 9.
    changed = (before != other_source).any(dim=1)
    assert changed.tolist() == [False] * 3 + [True] * 6 + [False]
    changed = (before != other_end).any(dim=1)
    assert changed.tolist() == [False] * 8 + [True] + [False]


def test_rows_in_a_batch_equal_rows_alone(model: TextGenerator) -> None:
    with torch.no_grad():
        together = model(flat(SOURCES), flat(TARGETS)).split([3, 6, 1])
        for source, target, expected in zip(SOURCES, TARGETS, together, strict=True):
            torch.testing.assert_close(model(flat([source]), flat([target])), expected)


def test_one_stack_equals_an_encoder_with_a_mask_over_source_and_target(
    make_config: Callable[..., schema.Model], randomize: Callable[[nn.Module], None]
) -> None:
    model = build(make_config(norm="post"), "prefix", randomize)
    source, target = [2, 7, 8, 9, 3], [2, 15, 16]
    keep = torch.zeros(8, 8, dtype=torch.bool)
    keep[:5, :5] = True
    keep[5:, :5] = True
    keep[5:, 5:] = torch.ones(3, 3).tril().bool()

    def attend(query: Tensor, key: Tensor, value: Tensor, *, dropout_p: float) -> Tensor:
        parts = (part.transpose(0, 1) for part in (query, key, value))
        return F.scaled_dot_product_attention(*parts, attn_mask=keep).transpose(0, 1)

    joined = dataclasses.replace(
        flat([[*source, *target]]),
        token_type_ids=torch.tensor([0] * 5 + [1] * 3),
        position_ids=torch.tensor([0, 1, 2, 3, 4, 0, 1, 2]),
    )
    with torch.no_grad():
        hidden = model.bert.encoder(model.bert.embeddings(joined), attend)
        expected = model.mlm(hidden[5:], model.bert.embeddings.word.weight)
        torch.testing.assert_close(model(flat([source]), flat([target])), expected)


def test_steps_equal_the_whole_pass(model: TextGenerator) -> None:
    targets = [[2, 15, 16, 17], [2, 18, 19, 20], [2, 21, 22, 23]]
    with torch.no_grad():
        expected = model(flat(SOURCES), flat(targets)).log_softmax(dim=1).unflatten(0, (3, 4))
        steps = Steps(model, flat(SOURCES))
        for place in range(4):
            found = steps.step(torch.tensor([target[place] for target in targets]))
            torch.testing.assert_close(found, expected[:, place], atol=2e-6, rtol=1e-5)


def test_steps_continue_with_chosen_sources_and_hypotheses(model: TextGenerator) -> None:
    # Two hypotheses each of the sources 2 and 0, after one step of one hypothesis a source.
    targets = {2: ([2, 15, 18], [2, 16, 19]), 0: ([2, 17, 20], [2, 18, 21])}
    rows = [(source, target) for source, pair in targets.items() for target in pair]
    with torch.no_grad():
        expected = model(
            flat([SOURCES[source] for source, _ in rows]), flat([target for _, target in rows])
        )
        steps = Steps(model, flat(SOURCES))
        steps.step(torch.tensor([2, 2, 2]))
        steps.keep(torch.tensor([2, 0]), torch.tensor([2, 2, 0, 0]))
        steps.step(torch.tensor([target[1] for _, target in rows]))
        steps.keep(None, torch.tensor([1, 0, 2, 3]))
        found = steps.step(torch.tensor([rows[row][1][2] for row in (1, 0, 2, 3)]))
    last = expected.log_softmax(dim=1)[2::3]
    torch.testing.assert_close(found, last[[1, 0, 2, 3]], atol=2e-6, rtol=1e-5)


def test_room_for_tokens_grows(model: TextGenerator) -> None:
    target = [2, *(5 + place % 30 for place in range(19))]
    with torch.no_grad():
        expected = model(flat(SOURCES[:1]), flat([target])).log_softmax(dim=1)
        steps = Steps(model, flat(SOURCES[:1]))
        found = torch.cat([steps.step(torch.tensor([token])) for token in target])
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-5)


def test_several_models_average_their_probabilities(
    make_config: Callable[..., schema.Model], randomize: Callable[[nn.Module], None]
) -> None:
    models = [build(make_config(norm="post"), form, randomize) for form in ("separate", "prefix")]
    with torch.no_grad():
        each = [model(flat(SOURCES[:1]), flat([[2]])).softmax(dim=1) for model in models]
        joint = JointSteps([Steps(model, flat(SOURCES[:1])) for model in models])
        found = joint.step(torch.tensor([2]))
    torch.testing.assert_close(found.exp(), (each[0] + each[1]) / 2)


def test_the_loss_is_that_of_every_next_token(model: TextGenerator) -> None:
    labels = torch.tensor([15, 16, 3, 17, 18, 19, 20, 21, 3, 3])
    pairs = TextPairs(source=flat(SOURCES), target=flat(TARGETS), labels=labels)

    for smoothing in (0.0, 0.1):
        found = model.loss(pairs, label_smoothing=smoothing)
        expected = F.cross_entropy(
            model(pairs.source, pairs.target), labels, reduction="sum", label_smoothing=smoothing
        )
        parameters = list(model.parameters())
        torch.testing.assert_close(found, expected)
        ours = torch.autograd.grad(found, parameters, allow_unused=True)
        theirs = torch.autograd.grad(expected, parameters, allow_unused=True)
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("rows", [1, 64, 70])
def test_label_smoothing_of_the_fused_loss_equals_the_librarys(rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(5, 8, generator=generator, requires_grad=True)
    weight = torch.randn(rows, 8, generator=generator, requires_grad=True)
    bias = torch.randn(rows, generator=generator, requires_grad=True)
    labels = torch.randint(rows, (5,), generator=generator)

    ours, _ = linear_cross_entropy(hidden, weight, bias, labels, label_smoothing=0.3)
    theirs = F.cross_entropy(
        F.linear(hidden, weight, bias), labels, label_smoothing=0.3, reduction="sum"
    )

    torch.testing.assert_close(ours, theirs)
    inputs = (hidden, weight, bias)
    torch.testing.assert_close(
        torch.autograd.grad(ours, inputs), torch.autograd.grad(theirs, inputs)
    )


def test_a_shared_decoder_has_only_its_cross_attention_for_itself(
    make_config: Callable[..., schema.Model], randomize: Callable[[nn.Module], None]
) -> None:
    config = make_config(norm="post")
    model = build(config, "shared", randomize)
    width = config.hidden_size
    alone = sum(p.numel() for p in model.bert.parameters())
    alone += sum(p.numel() for p in model.mlm.parameters())
    # query, key, value and output with biases; scale and shift of the norm
    cross_attention = 4 * (width * width + width) + 2 * width
    assert sum(p.numel() for p in model.parameters()) == alone + 2 * cross_attention


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_flash_attention_on_a_gpu_equals_the_padded_form(
    form: str, make_config: Callable[..., schema.Model], randomize: Callable[[nn.Module], None]
) -> None:
    config = make_config(hidden_size=64, num_attention_heads=1, max_position_embeddings=32)
    model = build(config, form, randomize)
    labels = torch.tensor([15, 16, 3, 17, 18, 19, 20, 21, 3, 3])
    pairs = TextPairs(source=flat(SOURCES), target=flat(TARGETS), labels=labels)
    expected = model.loss(pairs)
    on_gpu = TextPairs(
        source=to_gpu(pairs.source), target=to_gpu(pairs.target), labels=labels.cuda()
    )
    model.cuda()
    with torch.autocast("cuda", torch.bfloat16):
        found = model.loss(on_gpu)
    found.backward()
    torch.testing.assert_close(found.cpu(), expected, rtol=2e-2, atol=0.2)
    gradients = [part.grad for part in model.parameters() if part.grad is not None]
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def to_gpu(batch: FlatTokens) -> FlatTokens:
    parts = ("input_ids", "token_type_ids", "position_ids", "cu_seqlens")
    return dataclasses.replace(batch, **{name: getattr(batch, name).cuda() for name in parts})
