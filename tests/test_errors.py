"""The errors that users see."""

import pickle

import pytest

from bertpre import errors
from bertpre.errors import BertpreError, CorpusError


def test_an_error_shows_its_message_and_then_its_hint():
    error = CorpusError("train.tsv: line 3 has no label", "remove it, or give it one")

    assert str(error) == "train.tsv: line 3 has no label — remove it, or give it one"
    assert (error.message, error.hint) == (
        "train.tsv: line 3 has no label",
        "remove it, or give it one",
    )


def test_an_error_without_a_hint_is_its_message():
    assert str(BertpreError("out of paper")) == "out of paper"


@pytest.mark.parametrize(
    "name",
    ["Config", "Corpus", "Tokenizer", "DataFormat", "Checkpoint", "Training", "Interop"],
)
def test_every_kind_of_error_is_caught_as_the_base(name):
    kind = getattr(errors, f"{name}Error")

    with pytest.raises(BertpreError, match="what happened — what to do"):
        raise kind("what happened", "what to do")


def test_an_error_crosses_a_process_border_whole():
    error = CorpusError("a.txt: line 2, byte 5", "convert it")

    copy = pickle.loads(pickle.dumps(error))

    assert (type(copy), copy.message, copy.hint) == (CorpusError, error.message, error.hint)
