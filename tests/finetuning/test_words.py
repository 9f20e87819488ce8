"""Sentences of given tokens: each has a label, from its first piece, also in long sentences."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertpre.config.schema import Model
from bertpre.finetuning.batches import Encoder, window_starts
from bertpre.finetuning.running import Placement, Run
from bertpre.finetuning.tag_decoding import decode, run_tagger
from bertpre.finetuning.words import choose_windows, encode_sentences
from bertpre.model.bert import initialize
from bertpre.model.crf import AllowedTags
from bertpre.model.heads import BertForTokenClassification
from bertpre.tokenizer.tokenizer import Tokenizer

CPU = torch.device("cpu")
PLACEMENT = Placement(CPU, "fp32")
WORDS = ["the", "cat", "sees", "harbour", "without", "bread", "zzz"]


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer):
    return Tokenizer.load(tiny_tokenizer)


@pytest.fixture(scope="module")
def model(tokenizer):
    shape = Model(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    model = BertForTokenClassification(
        shape, vocab_size=tokenizer.vocab_size, num_labels=5, has_crf=False
    )
    initialize(model, 0.2, torch.Generator().manual_seed(0))
    return model


def encode(tokenizer, sentences, *, most=64, overlap=0.25):
    encoder = Encoder(tokenizer=tokenizer, max_seq_length=most, window_overlap=overlap)
    return encode_sentences(encoder, sentences)


def first_ids(encoded, row):
    """The ids at the first pieces of a sentence, through the places that training uses."""
    batch = encoded.draw_batch(np.array([row]), 0, CPU)
    return batch.pieces.input_ids[batch.firsts.places].tolist()


def test_a_token_is_labelled_at_its_first_piece(tokenizer):
    sentence = ["harbourcats", "the", "withouts"]
    pieces = [tokenizer.encode(token).ids.tolist() for token in sentence]
    assert max(map(len, pieces)) > 1

    encoded = encode(tokenizer, [sentence])

    whole = [tokenizer.cls_id, *itertools.chain(*pieces), tokenizer.sep_id]
    assert encoded.input_ids.tolist() == whole
    assert first_ids(encoded, 0) == [part[0] for part in pieces]


@pytest.mark.parametrize("token", ["\u00ad", " ", "\u200b", "\x07", "\u3000", "\ufeff"])
def test_a_token_without_pieces_is_one_unknown(tokenizer, token):
    assert len(tokenizer.encode(token).ids) == 0

    encoded = encode(tokenizer, [["the", token, "cat"]])

    ids = first_ids(encoded, 0)
    assert len(ids) == 3
    assert ids[1] == tokenizer.unk_id
    assert encoded.num_unknown == 1


@given(
    sentences=st.lists(st.lists(st.sampled_from([*WORDS, "\u00ad"]), max_size=40), min_size=1),
    most=st.integers(3, 20),
    overlap=st.floats(0, 0.9),
)
@settings(max_examples=60, deadline=None)
def test_every_token_has_a_place_whatever_the_windows(tokenizer, sentences, most, overlap):
    encoded = encode(tokenizer, sentences, most=most, overlap=overlap)

    rows = np.arange(len(sentences))
    assert encoded.token_counts(rows).tolist() == [len(sentence) for sentence in sentences]
    assert max(encoded.lengths, default=0) <= most
    batch = encoded.draw_batch(rows[::-1], 0, CPU)
    found = batch.pieces.input_ids[batch.firsts.places].tolist()
    expected = []
    for sentence in sentences[::-1]:
        for token in sentence:
            ids = tokenizer.encode(token).ids
            expected.append(int(ids[0]) if len(ids) else tokenizer.unk_id)
    assert found == expected


def test_a_label_comes_from_the_window_where_it_is_farthest_from_an_edge():
    # Windows of 10 that start at 0, 6 and 12, in a sentence of 22.
    starts = np.array([0, 6, 12])

    chosen, places = choose_windows(np.arange(22), starts, 10)

    # 0 to 5 are in the first alone. 6 is 3 from the end of the first, and at the start of the
    # second; 7 is 2 from one, 1 from the other; 8 is 1 from one, 2 from the other.
    assert chosen.tolist() == [0] * 8 + [1] * 6 + [2] * 8
    assert places.tolist() == [*range(8), *range(2, 8), *range(2, 10)]


def test_the_ends_of_a_sentence_are_no_edges():
    # Both windows have token 2; in the first it is at the very end, but in the second as near.
    chosen, _ = choose_windows(np.array([0, 1, 2, 3]), np.array([0, 1]), 3)

    # 1 is one from the end of the first window, and at the start of the second.
    assert chosen.tolist() == [0, 0, 1, 1]


@given(length=st.integers(1, 200), room=st.integers(1, 30), overlap=st.floats(0, 0.95))
@settings(deadline=None)
def test_the_choice_of_windows_is_that_of_trying_them_all(length, room, overlap):
    starts = np.array(window_starts(length, room, overlap))

    chosen, places = choose_windows(np.arange(length), starts, room)

    for token in range(length):
        distances = []
        for number, start in enumerate(starts):
            before = room if number == 0 else token - start
            after = room if number == len(starts) - 1 else start + room - 1 - token
            is_inside = start <= token < start + room
            distances.append(min(before, after) if is_inside else -1)
        assert distances[chosen[token]] == max(distances)
        assert places[token] == token - starts[chosen[token]]


def test_short_sentences_have_one_window():
    assert window_starts(7, 7, 0.5) == [0]
    assert window_starts(8, 7, 0.5) == [0, 1]


def test_scores_do_not_depend_on_the_batch_or_the_other_sentences(tokenizer, model):
    sentences = [["the", "cat"], ["without"] * 30, ["harbour", "sees", "bread", "zzz"], ["cat"]]
    encoded = encode(tokenizer, sentences, most=20)

    together = run_tagger(Run(model, encoded), placement=PLACEMENT)
    single = [
        run_tagger(Run(model, encode(tokenizer, [sentence], most=20)), placement=PLACEMENT)
        for sentence in sentences
    ]
    some = run_tagger(Run(model, encoded), np.array([3, 1]), placement=PLACEMENT)

    np.testing.assert_allclose(together, np.concatenate(single), atol=1e-5)
    np.testing.assert_allclose(some, np.concatenate([single[3], single[1]]), atol=1e-5)


def test_scores_of_a_token_are_those_of_its_window_alone(tokenizer, model):
    sentence = ["the", "cat", "sees", "bread"] * 5
    encoded = encode(tokenizer, [sentence], most=8)
    assert len(encoded.lengths) > 2

    found = run_tagger(Run(model, encoded), placement=PLACEMENT)

    for token in range(len(sentence)):
        sequence = encoded.token_sequences[token]
        batch = encoded.batch(np.array([sequence]), CPU)
        logits = model.eval()(batch).detach().numpy()
        np.testing.assert_allclose(found[token], logits[encoded.token_places[token]], atol=1e-5)


def test_a_hidden_token_is_hidden_in_all_windows(tokenizer):
    encoded = encode(tokenizer, [["the"], ["the", "cat"] * 10], most=9)
    asked = []

    def hide(ids, rows):
        asked.append((ids.copy(), rows.copy()))
        return ids

    encoded.draw_batch(np.array([1, 0]), 0, CPU, hide)

    ((ids, rows),) = asked
    assert len(ids) == len(rows)
    assert set(rows.tolist()) == {0, 1}
    assert (rows == 1).sum() == 3  # [CLS] the [SEP], the second sentence of this batch


def brute_force(scores, allowed):
    best, chosen = -np.inf, None
    length, num = scores.shape
    for number in np.ndindex(*[num] * length):
        if not (allowed.start[number[0]] and allowed.end[number[-1]]):
            continue
        if not all(allowed.between[a, b] for a, b in itertools.pairwise(number)):
            continue
        total = sum(scores[place, tag] for place, tag in enumerate(number))
        if total > best:
            best, chosen = total, number
    return list(chosen)


def test_decoding_finds_the_best_allowed_sequence_of_each_sentence():
    generator = np.random.default_rng(0)
    between = np.array([[1, 1, 0], [1, 1, 1], [1, 1, 1]], dtype=bool)  # 2 only after 1 or 2
    arrays = np.array([1, 1, 0], dtype=bool), between, np.array([1, 1, 1], dtype=bool)
    allowed = AllowedTags.from_numpy(*arrays)
    lengths = np.array([1, 4, 0, 3, 5])
    scores = generator.normal(size=(13, 3)).astype(np.float32)

    found = decode(scores, lengths, crf=None, allowed=allowed)

    ends = np.cumsum(lengths)
    expected = [
        tag
        for end, length in zip(ends, lengths, strict=True)
        if length
        for tag in brute_force(scores[end - length : end], allowed)
    ]
    assert found.tolist() == expected
    assert found.tolist() != scores.argmax(axis=1).tolist()
    free = decode(scores, lengths, crf=None, allowed=None)
    assert free.tolist() == scores.argmax(axis=1).tolist()
