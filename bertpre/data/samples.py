"""Masked examples as pieces: for people to read, and for other trainers."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bertpre.artefacts import whole_file
from bertpre.data.dataset import PretrainingData

_MOST_SHOWN = 512  # tokens of an example
_TOKENS_AT_ONCE = 1 << 17
LABEL_NAMES = {"mlm-nsp": ("is next", "random"), "mlm-sop": ("in order", "swapped")}


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodedExample:
    """A masked training example as pieces.

    Attributes:
        tokens: what the model sees.
        token_type_ids: the segment of each.
        predicted: place to what stood there, in order.
        label: "is next", "random", "in order" or "swapped"; None without pairs that are told apart.
    """

    tokens: tuple[str, ...]
    token_type_ids: tuple[int, ...]
    predicted: dict[int, str]
    label: str | None

    def __str__(self) -> str:
        """The example in one line; a predicted token is shown as ``{seen→was}``.

        Of one that is longer than people read, only the first tokens are shown.
        """
        shown = [
            f"{{{token}→{self.predicted[place]}}}" if place in self.predicted else token
            for place, token in enumerate(self.tokens[:_MOST_SHOWN])
        ]
        if left := len(self.tokens) - len(shown):
            shown.append(f"… and {left:,} more")
        return " ".join(shown) if self.label is None else f"{self.label}: {' '.join(shown)}"


def decode_examples(data: PretrainingData, count: int) -> list[DecodedExample]:
    """Decode the first examples of an epoch, masked.

    Args:
        data: a data folder.
        count: most examples.
    """
    names = LABEL_NAMES.get(data.objective)
    epochs, numbers = data.order(0, min(count, len(data.records)), seed=data.seed)
    found = []
    for epoch, number in zip(epochs, numbers, strict=True):
        examples = data.training_examples(
            np.array([number]), epochs=np.array([epoch]), seed=data.seed
        )
        was = [data.tokenizer.tokens[i] for i in examples.mlm_labels]
        labels = examples.nsp_labels
        found.append(
            DecodedExample(
                tokens=tuple(data.tokenizer.tokens[i] for i in examples.input_ids),
                token_type_ids=tuple(examples.token_type_ids.tolist()),
                predicted=dict(zip(examples.predicted.tolist(), was, strict=True)),
                label=None if names is None or labels is None else names[int(labels[0])],
            )
        )
    return found


def export_jsonl(data: PretrainingData, path: Path) -> None:
    """Write every training example with its masks: of its pass, or of epoch 0 if dynamic.

    Each line has ``tokens`` (after masking), ``token_type_ids``, ``masked_positions``,
    ``masked_tokens`` (what stood there), ``pass`` and, with pairs, ``nsp_label`` or ``sop_label``.

    Args:
        data: a finished data folder.
        path: the file to write; an existing one is replaced once the new one is whole.
    """
    tokens = data.tokenizer.tokens
    with whole_file(path) as file:
        for row in _rows(data, tokens):
            file.write((json.dumps(row, ensure_ascii=False) + "\n").encode())


def _rows(data: PretrainingData, tokens: Sequence[str]) -> Iterator[dict[str, object]]:
    label = "sop_label" if data.objective == "mlm-sop" else "nsp_label"
    at_once = max(1, _TOKENS_AT_ONCE // data.max_seq_length)
    for start in range(0, len(data.records), at_once):
        numbers = np.arange(start, min(start + at_once, len(data.records)))
        batch = data.training_examples(numbers, epochs=np.zeros_like(numbers), seed=data.seed)
        ends = np.cumsum(batch.lengths)
        passes = np.searchsorted(data.pass_ends, numbers, side="right")
        first = 0
        for i, end in enumerate(ends):
            here = slice(*np.searchsorted(batch.predicted, [first, end]))
            row: dict[str, object] = {
                "tokens": [tokens[j] for j in batch.input_ids[first:end]],
                "token_type_ids": batch.token_type_ids[first:end].tolist(),
                "masked_positions": (batch.predicted[here] - first).tolist(),
                "masked_tokens": [tokens[j] for j in batch.mlm_labels[here]],
                "pass": int(passes[i]),
            }
            if batch.nsp_labels is not None:
                row[label] = int(batch.nsp_labels[i])
            yield row
            first = end
