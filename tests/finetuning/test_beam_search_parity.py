"""Searches equal the transformers library's ``generate`` with the same model."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    BertConfig,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    LogitsProcessor,
    LogitsProcessorList,
)

from bertpre.finetuning.beam_search import Hypothesis, SearchOptions, search

pytestmark = pytest.mark.parity

PAD, START, END = 0, 2, 3
VOCAB_SIZE, NUM_SOURCES, LONGEST = 60, 64, 12


class Uncached:
    """Reads all tokens of each hypothesis at each step."""

    def __init__(self, model: EncoderDecoderModel, ids: Tensor, mask: Tensor) -> None:
        self.decoder = model.decoder
        self.encoded, self.mask = model.encoder(ids, attention_mask=mask)[0], mask
        self.sources = torch.arange(len(ids))  # of each hypothesis
        self.texts = torch.empty(len(ids), 0, dtype=torch.int64)

    def step(self, tokens: Tensor) -> Tensor:
        self.texts = torch.cat([self.texts, tokens[:, None]], dim=1)
        logits = self.decoder(
            self.texts,
            encoder_hidden_states=self.encoded[self.sources],
            encoder_attention_mask=self.mask[self.sources],
        ).logits
        return logits[:, -1].log_softmax(dim=1)

    def keep(self, sources: Tensor | None, parents: Tensor) -> None:
        before = self.sources.unique_consecutive()
        self.sources, self.texts = self.sources[parents], self.texts[parents]
        stay = before if sources is None else before[sources]
        assert torch.equal(self.sources.unique_consecutive(), stay)


class EndAtLimit(LogitsProcessor):
    """Allow [SEP] alone as the last token, as ``forced_eos_token_id``, but for what it costs."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if input_ids.shape[1] <= LONGEST:
            return scores
        only_end = torch.full_like(scores, -torch.inf)
        only_end[:, END] = scores[:, END]
        return only_end


@pytest.fixture(scope="module")
def model() -> EncoderDecoderModel:
    """A model with random weights, large enough that some tokens are much likelier than others."""
    shape: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 32,
        "initializer_range": 0.3,
    }
    torch.manual_seed(0)
    model = EncoderDecoderModel(
        EncoderDecoderConfig.from_encoder_decoder_configs(BertConfig(**shape), BertConfig(**shape))
    ).eval()
    with torch.no_grad():
        model.decoder.cls.predictions.bias[END] += 5.0
        # There the start token counts among those that no n-gram may repeat, so it is not written.
        model.decoder.cls.predictions.bias[START] -= 100.0
    return model


@pytest.fixture(scope="module")
def sources() -> tuple[Tensor, Tensor]:
    """Sources of 3 to 9 tokens and their mask."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, VOCAB_SIZE, (NUM_SOURCES, 9), generator=generator)
    lengths = torch.randint(3, 10, (NUM_SOURCES, 1), generator=generator)
    mask = (torch.arange(9) < lengths).long()
    return ids * mask, mask


def find(
    model: EncoderDecoderModel, sources: tuple[Tensor, Tensor], **options: Any
) -> list[list[Hypothesis]]:
    with torch.no_grad():
        return search(
            Uncached(model, *sources),
            NUM_SOURCES,
            options=SearchOptions(max_length=LONGEST, **options),
            start_id=START,
            end_id=END,
            device=torch.device("cpu"),
        )


def generate(
    model: EncoderDecoderModel, sources: tuple[Tensor, Tensor], **options: Any
) -> tuple[list[list[tuple[int, ...]]], Tensor]:
    """The library's texts of each source, and their scores (B, K) if there are beams."""
    ids, mask = sources
    num_best = options.get("num_return_sequences", 1)
    found = model.generate(
        ids,
        attention_mask=mask,
        decoder_start_token_id=START,
        eos_token_id=END,
        pad_token_id=PAD,
        max_new_tokens=LONGEST + 1,
        early_stopping=False,
        output_scores=True,
        return_dict_in_generate=True,
        **options,
    )
    texts = [tuple(row[1 : row.index(END, 1)]) for row in found.sequences.tolist()]
    nested = [texts[first : first + num_best] for first in range(0, len(texts), num_best)]
    scores = getattr(found, "sequences_scores", torch.zeros(len(texts)))
    return nested, scores.view(NUM_SOURCES, num_best)


@pytest.mark.parametrize(
    "options",
    [{}, {"min_new_tokens": 6}, {"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 2}],
    ids=str,
)
def test_greedy_search_writes_the_texts_of_the_library(
    model: EncoderDecoderModel, sources: tuple[Tensor, Tensor], options: dict[str, int]
) -> None:
    expected, _ = generate(model, sources, forced_eos_token_id=END, **options)

    found = find(model, sources, **ours(options))

    assert [[one.ids for one in row] for row in found] == expected
    assert len({len(row[0]) for row in expected}) > 1  # they end at different steps


@pytest.mark.parametrize(
    "options",
    [
        *({"length_penalty": penalty} for penalty in (-1.0, 0.0, 0.5, 1.0, 2.0)),
        {"length_penalty": 1.0, "min_new_tokens": 6},
        {"length_penalty": 1.0, "no_repeat_ngram_size": 1},
        {"length_penalty": 0.5, "no_repeat_ngram_size": 2, "min_new_tokens": 4},
    ],
    ids=str,
)
def test_beams_find_all_texts_of_the_library_with_their_scores(
    model: EncoderDecoderModel, sources: tuple[Tensor, Tensor], options: dict[str, Any]
) -> None:
    expected, scores = generate(
        model,
        sources,
        num_beams=4,
        num_return_sequences=4,
        logits_processor=LogitsProcessorList([EndAtLimit()]),
        **options,
    )

    found = find(model, sources, num_beams=4, num_best=4, **ours(options))

    for row, texts, row_scores in zip(found, expected, scores, strict=True):
        lengths = torch.tensor([len(one.ids) + 1 for one in row])
        sums = torch.tensor([one.log_probability for one in row])
        torch.testing.assert_close(
            sums / lengths ** options["length_penalty"], row_scores, atol=1e-5, rtol=1e-6
        )
        # Neighbors with the same score may change places.
        gaps = row_scores.diff().abs()
        if len(gaps) == 0 or gaps.min() > 1e-5:
            assert [one.ids for one in row] == texts


def test_a_forced_end_costs_nothing_in_the_library_alone(
    model: EncoderDecoderModel, sources: tuple[Tensor, Tensor]
) -> None:
    expected, _ = generate(model, sources, num_beams=4, forced_eos_token_id=END)

    found = find(model, sources, num_beams=4)

    # A text of theirs below the limit beats those at the limit although they end for nothing.
    pairs = [(row[0].ids, texts[0]) for row, texts in zip(found, expected, strict=True)]
    below = [(text, other) for text, other in pairs if len(other) < LONGEST]
    assert len(below) > NUM_SOURCES / 4
    assert all(text == other for text, other in below)
    assert any(text != other for text, other in pairs)


def ours(options: dict[str, Any]) -> dict[str, Any]:
    names = {"min_new_tokens": "min_length", "no_repeat_ngram_size": "no_repeat_ngram"}
    return {names.get(name, name): value for name, value in options.items()}
