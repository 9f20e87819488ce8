"""Finished masked examples as JSON lines, for reading and for other trainers."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bertpre.artefacts import whole_file
from bertpre.data.dataset import PretrainingData

_TOKENS_AT_ONCE = 1 << 17


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
