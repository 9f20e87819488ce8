"""A data folder read back: the order of its examples, their masks, and their tokens as text."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertpre.artefacts import check_files, read_manifest, whole_file
from bertpre.config.load import config_to_dict
from bertpre.config.schema import MakeData
from bertpre.data.examples import Records, map_records, read_examples
from bertpre.data.masking import (
    MaskedExamples,
    MaskSpec,
    example_keys,
    mask_examples,
    mask_spec,
)
from bertpre.data.random64 import U64, Array, derive, permute
from bertpre.data.tokens import TokenStore
from bertpre.tokenizer.tokenizer import Tokenizer

# As BERT masks, whatever training uses, so that runs can be compared.
HELD_OUT_MASKS = mask_spec(MakeData())

# Larger token ids may not fit in memory, so examples are shuffled in blocks, whose tokens are
# contiguous on disk. A constant, because the order must not depend on the machine's memory.
SHUFFLED_WHOLE_BYTES = 16 * 2**30
_BLOCK = 4096  # consecutive examples of the index
_WINDOW = 256  # blocks that are shuffled together: some 300 MB of ids at length 128

_MOST_SHOWN = 512  # tokens of an example
_TOKENS_AT_ONCE = 1 << 17
LABEL_NAMES = {"mlm-nsp": ("is next", "random"), "mlm-sop": ("in order", "swapped")}


def epoch_order(places: Array, size: int, *, key: int, ids_bytes: int) -> Array:
    """Return the examples at the given places of an epoch.

    In blocks, the blocks are permuted first, then the examples within each window of blocks;
    examples that do not fill a block come last in the epoch.

    Args:
        places: int64, in [0, size).
        size: examples in an epoch.
        key: a number from `derive` that decides the order.
        ids_bytes: size of the token ids.
    """
    if ids_bytes <= SHUFFLED_WHOLE_BYTES:
        return permute(places, size, key)
    num_blocks = size // _BLOCK
    blocks_end, window_size = num_blocks * _BLOCK, _WINDOW * _BLOCK
    examples = np.empty(len(places), np.int64)
    windows = np.where(places < blocks_end, places // window_size, -1)
    for window in np.unique(windows).tolist():
        here = windows == window
        if window < 0:
            tail = permute(places[here] - blocks_end, size - blocks_end, derive(key, "tail"))
            examples[here] = blocks_end + tail
            continue
        start = window * window_size
        inside = permute(
            places[here] - start,
            min(window_size, blocks_end - start),
            derive(key, "window", window),
        )
        blocks = permute(start // _BLOCK + inside // _BLOCK, num_blocks, key)
        examples[here] = blocks * _BLOCK + inside % _BLOCK
    return examples


class PretrainingData:
    """What training needs from a data folder, read on demand.

    Args:
        folder: written by make-data.
        check_content: compare every file with its fingerprint, not only its size.

    Raises:
        DataFormatError: the folder is missing, unfinished, damaged or of another kind.
    """

    def __init__(self, folder: str | Path, *, check_content: bool = True) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder, "data")
        check_files(self.folder, self.manifest, content=check_content)
        index = self.folder / self.manifest["index"]
        self.index_manifest = read_manifest(index, "index")
        self.tokenizer = Tokenizer.load(self.folder / "tokenizer")
        self.store = TokenStore(self.folder / "tokens")
        self.records: Records = map_records(index / "examples.bin")
        self.held_out: Records = map_records(index / "held-out.bin")
        # Occurrences of each id in the training documents, int64, (vocab_size,).
        self.unigrams: npt.NDArray[np.int64] = np.fromfile(index / "unigrams.bin", "<i8")
        self.seed: int = self.index_manifest["seed"]
        self.pass_ends: Array = np.array(self.index_manifest["pass_ends"])
        options = _read_options(self.index_manifest["options"])
        self.objective: str = options.objective
        self.max_seq_length = options.max_seq_length
        self.static_masks = options.masking == "static"
        self.mask_spec = mask_spec(options)

    @property
    def with_nsp(self) -> bool:
        """Whether the examples are pairs with a label for the next sentence or the order."""
        return self.objective in ("mlm-nsp", "mlm-sop")

    def order(self, start: int, count: int, *, seed: int) -> tuple[Array, Array]:
        """Return the examples at places start to start + count - 1 of training without end.

        Each epoch is another permutation of all examples of all passes.

        Returns:
            The epoch and the example number at each place, int64, (count,).
        """
        places = np.arange(start, start + count)
        size = len(self.records)
        epochs = places // size
        examples = np.empty(count, np.int64)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            key = derive(seed, "order", int(epoch))
            examples[here] = epoch_order(
                places[here] % size, size, key=key, ids_bytes=self.store.ids_bytes
            )
        return epochs, examples

    def training_examples(
        self, examples: Array, *, epochs: Array, seed: int, spec: MaskSpec | None = None
    ) -> MaskedExamples:
        """Read and mask training examples.

        Args:
            examples: int64, (B,): their numbers.
            epochs: int64, (B,): the epoch in which each is seen; ignored with static masks.
            seed: decides dynamic masks; static ones go by the data folder's own seed.
            spec: how dynamic masks are drawn; the data folder's by default.
        """
        if self.static_masks:
            seed = self.seed
            epochs = np.searchsorted(self.pass_ends, examples, side="right")
        keys = example_keys(seed, epochs, examples)
        return self._mask(self.records[examples], keys, spec or self.mask_spec)

    def held_out_examples(self, start: int, count: int) -> MaskedExamples:
        """Read and mask held-out examples, always with the same masks."""
        numbers = np.arange(start, min(start + count, len(self.held_out)))
        keys = example_keys(derive(self.seed, "held-out masks"), np.zeros_like(numbers), numbers)
        return self._mask(self.held_out[numbers], keys, HELD_OUT_MASKS)

    def _mask(self, records: Records, keys: U64, spec: MaskSpec) -> MaskedExamples:
        examples = read_examples(records, self.store, self.tokenizer, with_nsp=self.with_nsp)
        return mask_examples(examples, keys=keys, spec=spec, tokenizer=self.tokenizer)


def _read_options(stored: dict[str, Any]) -> MakeData:
    """Return the stored options for examples; options newer than the folder have their defaults.

    Those for reading text are left out, as another version may have had others.
    """
    known = config_to_dict(MakeData()).keys() - {"text"}
    return MakeData(**{name: stored[name] for name in known & stored.keys()})


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodedExample:
    """A masked training example as pieces.

    Attributes:
        tokens: what the model sees.
        token_type_ids: the segment of each.
        predicted: the original token at each predicted place, in order.
        label: "is next", "random", "in order" or "swapped"; None without labelled pairs.
    """

    tokens: tuple[str, ...]
    token_type_ids: tuple[int, ...]
    predicted: dict[int, str]
    label: str | None

    def __str__(self) -> str:
        """The example in one line; a predicted token is shown as ``{seen→was}``.

        Only the first tokens of a very long example are shown.
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
    """Write every training example, masked as in its pass, or as in epoch 0 if dynamic.

    Each line has ``tokens`` (after masking), ``token_type_ids``, ``masked_positions``,
    ``masked_tokens`` (the original ones), ``pass`` and, with pairs, ``nsp_label`` or ``sop_label``.

    Args:
        data: a finished data folder.
        path: the file to write; an existing one is replaced once the new one is complete.
    """
    with whole_file(path) as file:
        for row in _rows(data):
            file.write((json.dumps(row, ensure_ascii=False) + "\n").encode())


def _rows(data: PretrainingData) -> Iterator[dict[str, object]]:
    tokens = data.tokenizer.tokens
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
