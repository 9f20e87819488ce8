"""The options of sentence vectors."""

from typing import Literal

from bertpre.config.fields import Bool, Int, option, section
from bertpre.config.reading import TableOptions


@section
class Embed(TableOptions):
    """Checkpoint and table to one vector a row."""

    pooling: Literal["mean", "cls"] = option(
        "mean", "mean of the hidden states of all tokens, or cls: the first one's, of [CLS]."
    )
    normalize: Bool = option(False, "Scale each vector to length 1, as cosines want it.")
    max_seq_length: Int | None = option(
        None, "Most tokens of a row; default: the longest that training saw.", ge=3
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = option("auto", "Where to compute.")
    precision: Literal["auto", "fp32", "bf16"] = option("fp32", "As in pretrain.")
