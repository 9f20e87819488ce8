"""A data folder read back: examples assembled from the token store and masked, as arrays."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertpre.artefacts import check_files, read_manifest
from bertpre.config.fields import parse_weights
from bertpre.config.load import config_to_dict
from bertpre.config.schema import MakeData
from bertpre.data.masking import (
    MaskSpec,
    Vocabulary,
    example_keys,
    geometric_shares,
    mask_tokens,
)
from bertpre.data.random64 import derive, permute
from bertpre.data.records import Records, map_records
from bertpre.data.tokens import TokenStore
from bertpre.tokenizer.tokenizer import Tokenizer

Array = npt.NDArray[Any]

# Beyond this much of token ids, which then may not stay in memory, examples are shuffled in blocks:
# neighbours in the index lie side by side on disk. The machine's memory must not decide, or another
# machine would train in another order.
SHUFFLED_WHOLE_BYTES = 16 * 2**30
_BLOCK = 4096  # examples that are neighbours in the index
_WINDOW = 256  # blocks that are shuffled together: some 300 MB of ids at length 128


def epoch_order(places: Array, size: int, *, key: int, ids_bytes: int) -> Array:
    """Return which examples come at places of an epoch.

    In blocks, these are permuted first, then the examples of so many consecutive blocks; what does
    not fill a block comes last in the epoch.

    Args:
        places: int64, in [0, size).
        size: examples in an epoch.
        key: a number from `derive`; another key, another order.
        ids_bytes: what the token ids take.
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


HELD_OUT_MASKS = MaskSpec(probability=0.15)  # whatever training uses, so that runs compare


class Assembled(NamedTuple):
    """Examples as flat arrays, before masking. N tokens in B examples.

    Attributes:
        ids, token_type_ids, position_ids: int64, (N,).
        lengths: int64, (B,).
        maskable: bool, (N,): False for [CLS] and [SEP].
        word_starts: bool, (N,).
        nsp_labels: int64, (B,): 0 = B follows A, 1 = random (or 0 = in order, 1 = swapped); None
            without such pairs.
    """

    ids: Array
    token_type_ids: Array
    position_ids: Array
    lengths: Array
    maskable: Array
    word_starts: Array
    nsp_labels: Array | None


class Examples(NamedTuple):
    """Masked examples, ready to become a batch. N tokens, B examples, P predicted tokens.

    Attributes:
        input_ids, token_type_ids, position_ids: int64, (N,).
        lengths: int64, (B,).
        predicted: int64, (P,): positions of predicted tokens.
        mlm_labels: int64, (P,): what stood there.
        nsp_labels: int64, (B,), or None without NSP.
    """

    input_ids: Array
    token_type_ids: Array
    position_ids: Array
    lengths: Array
    predicted: Array
    mlm_labels: Array
    nsp_labels: Array | None


class PretrainingData:
    """Everything that training needs of a data folder; only what is touched is read.

    Args:
        folder: written by make-data.

    Raises:
        DataFormatError: the folder is missing, unfinished, damaged or of another kind.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder, "data")
        check_files(self.folder, self.manifest, content=True)
        index = self.folder / self.manifest["index"]
        self.index_manifest = read_manifest(index, "index")
        self.tokenizer = Tokenizer.load(self.folder / "tokenizer")
        self.store = TokenStore(self.folder / "tokens")
        self.records: Records = map_records(index / "examples.bin")
        self.held_out: Records = map_records(index / "held-out.bin")
        # Occurrences of each id in the training documents, int64, (vocab_size,).
        self.unigrams: npt.NDArray[np.int64] = np.fromfile(index / "unigrams.bin", "<i8")
        self.seed: int = self.index_manifest["seed"]
        # An option that came after the folder was made has its default.
        options = {**config_to_dict(MakeData()), **self.index_manifest["options"]}
        self.objective: str = options["objective"]
        self.max_seq_length: int = options["max_seq_length"]
        self.static_masks: bool = options["masking"] == "static"
        self.pass_ends: Array = np.array(self.index_manifest["pass_ends"])
        self.mask_spec = mask_spec_of(options)
        self.vocabulary = Vocabulary(self.tokenizer.mask_id, self.tokenizer.ordinary_ids)

    @property
    def with_nsp(self) -> bool:
        """Whether the examples are pairs with a label, of next sentences or of their order."""
        return self.objective in ("mlm-nsp", "mlm-sop")

    def order(self, start: int, count: int, *, seed: int) -> tuple[Array, Array]:
        """Return which examples come at places start to start + count - 1 of endless training.

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
    ) -> Examples:
        """Assemble and mask training examples.

        Args:
            examples: int64, (B,): their numbers.
            epochs: int64, (B,): the epoch each is seen in; ignored with static masks.
            seed: decides dynamic masks; static ones go by the data folder's own seed.
            spec: how dynamic masks are drawn; by default as the data folder says.
        """
        if self.static_masks:
            seed = self.seed
            epochs = np.searchsorted(self.pass_ends, examples, side="right")
        keys = example_keys(seed, epochs, examples)
        return self._mask(self.records[examples], keys, spec or self.mask_spec)

    def held_out_examples(self, start: int, count: int) -> Examples:
        """Assemble and mask held-out examples, always with the same masks."""
        numbers = np.arange(start, min(start + count, len(self.held_out)))
        keys = example_keys(derive(self.seed, "held-out masks"), np.zeros_like(numbers), numbers)
        return self._mask(self.held_out[numbers], keys, HELD_OUT_MASKS)

    def _mask(self, records: Records, keys: npt.NDArray[np.uint64], spec: MaskSpec) -> Examples:
        assembled = assemble(records, self.store, self.tokenizer, with_nsp=self.with_nsp)
        masked = mask_tokens(
            assembled.ids,
            lengths=assembled.lengths,
            maskable=assembled.maskable,
            word_starts=assembled.word_starts,
            keys=keys,
            spec=spec,
            vocabulary=self.vocabulary,
        )
        return Examples(
            masked.input_ids,
            assembled.token_type_ids,
            assembled.position_ids,
            assembled.lengths,
            masked.predicted,
            masked.labels,
            assembled.nsp_labels,
        )


def assemble(
    records: Records, store: TokenStore, tokenizer: Tokenizer, *, with_nsp: bool
) -> Assembled:
    """Read examples from the token store: [CLS] A [SEP] B [SEP], or [CLS] A [SEP].

    Args:
        records: (B,) of `RECORD`.
        store: where their tokens are.
        tokenizer: whose [CLS] and [SEP] are put around them.
        with_nsp: whether the records have labels.
    """
    a_length = records["a_length"].astype(np.int64)
    b_length = records["b_length"].astype(np.int64)
    has_b = b_length > 0
    lengths = a_length + b_length + 2 + has_b
    ends = np.cumsum(lengths)
    starts = ends - lengths
    # Read A, B, A, B, ... in one go, and put the tokens where the special ones leave room.
    runs = np.stack([a_length, b_length], axis=1).ravel()
    sources = np.stack([records["a_start"], records["b_start"]], axis=1).ravel()
    text, words = store.gather(sources.astype(np.int64), runs)
    total = int(ends[-1])
    maskable = np.ones(total, bool)
    first_sep = starts + 1 + a_length
    maskable[starts] = maskable[first_sep] = maskable[ends - 1] = False
    ids = np.full(total, tokenizer.sep_id, np.int64)
    ids[starts] = tokenizer.cls_id
    ids[maskable] = text
    word_starts = np.ones(total, bool)
    word_starts[maskable] = words
    position_ids = np.arange(total) - np.repeat(starts, lengths)
    token_type_ids = (position_ids > np.repeat(a_length + 1, lengths)).astype(np.int64)
    labels = records["label"].astype(np.int64) if with_nsp else None
    return Assembled(ids, token_type_ids, position_ids, lengths, maskable, word_starts, labels)


def mask_spec_of(options: Mapping[str, Any]) -> MaskSpec:
    """Return how the make_data section, as plain values, says that masks are drawn."""
    return MaskSpec(
        probability=options["mlm_probability"],
        whole_word=options["whole_word_masking"] or options["mask_spans"] == "geometric",
        max_predictions=options["max_predictions_per_seq"],
        span_shares=_span_shares(options),
        spans_share_fate=options["mask_spans"] == "geometric",
        mask_share=options["mask_token_share"],
        random_share=options["random_token_share"],
    )


def _span_shares(options: Mapping[str, Any]) -> tuple[float, ...]:
    if options["mask_spans"] == "geometric":
        return geometric_shares(options["span_stop_prob"], options["span_max_words"])
    if options["mask_spans"] == "ngrams":
        return parse_weights(options["ngram_weights"])
    return ()
