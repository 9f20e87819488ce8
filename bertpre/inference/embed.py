"""Sentence vectors: a table of texts in, one row of numbers for each out.

Tables may be larger than memory; the output appears when it is whole.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from bertpre.artefacts import check_output_file, whole_file
from bertpre.config.schema import Embed
from bertpre.corpus.files import STDIN
from bertpre.errors import ConfigError, CorpusError
from bertpre.finetuning.labelled import read_texts
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.training.run_folder import find_checkpoint

if TYPE_CHECKING:
    from bertpre.finetuning.batches import EncodedTexts

_CHUNK_ROWS = 4096  # sorted by length together
_FIRST_ROWS = 1000  # read before anything is loaded, since most faults show there
_MOST_TOKENS = 16_384  # in one forward pass
_PLAIN_LENGTH = 512  # what BERT was trained to, for folders that do not say
_SUFFIXES = (".npy", ".tsv")

Vectors = npt.NDArray[np.float32]
Texts = Sequence[str]  # of a row: one, or a pair


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbedReport:
    """What was written.

    Args:
        num_rows: rows of the table, and of the output.
        size: numbers of a vector.
        num_truncated: rows that lost tokens at the end of a text.
    """

    num_rows: int
    size: int
    num_truncated: int


def embed(
    model: str | Path,
    table: str | Path,
    *,
    output: str | Path,
    config: Embed | None = None,
    overwrite: bool = False,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> EmbedReport:
    """Write a vector for every row of a table.

    Args:
        model: a checkpoint, a run folder, a fine-tuned or imported model, or a Hugging Face BERT.
        table: TSV, CSV, JSON lines or parquet, or "-" for standard input; only the columns of text
            are read.
        output: ``.npy``: an array (rows, D) of fp32; ``.tsv``: a line of numbers a row.
        config: how the table is read, and what a vector is.
        overwrite: replace an existing file.
        on_rows: called with the rows done.

    Raises:
        BertpreError: the output exists, or the model or the table is at fault. Nothing is written
            then.
    """
    config, output = config or Embed(), Path(output)
    table = STDIN if str(table) == "-" else Path(table)
    folder = find_checkpoint(model)
    _check_suffix(output)
    check_output_file(output, reads=None if table == STDIN else table, overwrite=overwrite)
    texts = (row.cells for row in read_texts(table, config))
    first = list(itertools.islice(texts, _FIRST_ROWS))
    if not first:
        raise CorpusError(f"{table}: has no rows; expected at least one with a text")
    # From here on with PyTorch.
    from bertpre.finetuning.batches import Encoder
    from bertpre.finetuning.classifier import check_vocabulary, read_facts
    from bertpre.model.folder import load_model, read_model_config
    from bertpre.training.device import pick_device, pick_precision

    facts, shape = read_facts(folder), read_model_config(folder)
    tokenizer = Tokenizer.load(folder)
    check_vocabulary(folder, tokenizer, shape.vocab_size)
    positions = shape.config.max_position_embeddings
    longest = config.max_seq_length or facts.get("max_seq_length", _PLAIN_LENGTH)
    if (config.max_seq_length or 0) > positions:
        raise ConfigError(
            f"embed.max_seq_length: {config.max_seq_length:,}, but the encoder has "
            f"{positions:,} positions",
            f"pass --max-seq-length {positions} or less",
        )
    device = pick_device(config.device)
    precision = pick_precision(config.precision, device)
    encoder = load_model(folder, encoder_only=True).to(device)
    reader = Encoder(tokenizer=tokenizer, max_seq_length=min(longest, positions))
    num_rows = num_truncated = 0
    with whole_file(output) as file:
        writer = _NpyWriter(file) if output.suffix == ".npy" else _TsvWriter(file)
        for chunk in _chunks(itertools.chain(first, texts)):
            rows = reader.texts(*zip(*chunk, strict=True))
            writer.write(_compute(encoder, rows, config, device=device, precision=precision))
            num_truncated += rows.num_truncated
            num_rows += len(rows)
            on_rows(num_rows)
        writer.finish()
    return EmbedReport(
        num_rows=num_rows, size=shape.config.hidden_size, num_truncated=num_truncated
    )


def _compute(
    encoder: Any, texts: "EncodedTexts", config: Embed, *, device: Any, precision: Any
) -> Vectors:
    """Compute the vectors of some rows, (rows, D), in their order."""
    import torch

    from bertpre.finetuning.batches import batches_by_length
    from bertpre.model.heads import mean_pool
    from bertpre.training.device import autocast

    result = np.zeros((len(texts), encoder.config.hidden_size), np.float32)
    for group in batches_by_length(texts.lengths, most_tokens=_MOST_TOKENS):
        batch = texts.batch(group, device)
        with torch.inference_mode(), autocast(device, precision):
            hidden = encoder(batch).hidden_states.float()
            if config.pooling == "cls":
                vectors = hidden.index_select(0, batch.cu_seqlens[:-1])  # (N, D) -> (B, D)
            else:
                vectors = mean_pool(hidden, batch.cu_seqlens, batch.max_length)
            if config.normalize:
                vectors = torch.nn.functional.normalize(vectors, dim=1)
        result[group] = vectors.cpu().numpy()
    return result


def _chunks(texts: Iterator[Texts]) -> Iterator[list[Texts]]:
    while chunk := list(itertools.islice(texts, _CHUNK_ROWS)):
        yield chunk


class _NpyWriter:
    """An ``.npy`` file whose number of rows is only known at the end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._shape = file, (0, 0)

    def write(self, vectors: Vectors) -> None:
        if self._shape == (0, 0):
            self._shape = (0, vectors.shape[1])
            self._write_header()
        self._file.write(np.ascontiguousarray(vectors, "<f4").tobytes())
        self._shape = (self._shape[0] + len(vectors), vectors.shape[1])

    def finish(self) -> None:
        self._file.seek(0)
        self._write_header()

    def _write_header(self) -> None:
        # The format leaves room for the first axis to grow, so the header keeps its size.
        header = {"descr": "<f4", "fortran_order": False, "shape": self._shape}
        np.lib.format.write_array_header_1_0(self._file, header)


class _TsvWriter:
    """A line of numbers a row; nine digits give every fp32 number back."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, vectors: Vectors) -> None:
        np.savetxt(self._file, vectors, fmt="%.9g", delimiter="\t")

    def finish(self) -> None:
        pass


def _check_suffix(output: Path) -> None:
    if output.suffix not in _SUFFIXES:
        raise ConfigError(
            f"{output}: expected a file name that ends with {' or '.join(_SUFFIXES)}",
            "choose another --output",
        )
