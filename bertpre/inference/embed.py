"""Sentence vectors: a table of texts in, one row of numbers for each out."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from bertpre.artefacts import whole_file
from bertpre.config.schema import Embed
from bertpre.errors import ConfigError
from bertpre.finetuning.tables import read_texts
from bertpre.inference.tables import TableReader, TableReport, check_table_output, table_path
from bertpre.training.run_folder import find_checkpoint

if TYPE_CHECKING:
    from bertpre.finetuning.batches import EncodedTexts
    from bertpre.finetuning.running import Placement
    from bertpre.model.bert import BertModel

_SUFFIXES = (".npy", ".tsv")

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbedReport(TableReport):
    """What was written.

    Args:
        size: length of a vector.
    """

    size: int


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
        table: TSV, CSV, JSON lines or parquet, or "-" for standard input; only the text columns
            are read.
        output: ``.npy``: an array (rows, D) of fp32; ``.tsv``: a line of numbers per row. A bad
            row that is skipped has nan.
        config: how to read the table and compute a vector.
        overwrite: replace an existing file.
        on_rows: called with the rows done.

    Raises:
        BertpreError: the output exists, or the model or the table is invalid. Nothing is written
            then.
    """
    config, output = config or Embed(), Path(output)
    folder = find_checkpoint(model)
    _check_suffix(output)
    check_table_output(output, table, overwrite=overwrite)
    path = table_path(table)
    rows = read_texts(
        path,
        config,
        skips_bad_rows=config.on_bad_rows == "skip",
        way_out="or give them a vector of nan with --on-bad-rows skip",
    )
    reader = TableReader(path, rows)
    # Imports PyTorch.
    from bertpre.finetuning.batches import Encoder
    from bertpre.finetuning.running import place_inference
    from bertpre.finetuning.start import PLAIN_LENGTH, read_checkpoint
    from bertpre.model.folder import load_model

    found = read_checkpoint(folder)
    size, positions = found.shape.config.hidden_size, found.shape.config.max_position_embeddings
    if (config.max_seq_length or 0) > positions:
        raise ConfigError(
            f"embed.max_seq_length: {config.max_seq_length:,}, but the encoder has "
            f"{positions:,} positions",
            f"pass --max-seq-length {positions} or less",
        )
    longest = config.max_seq_length or found.facts.get("max_seq_length", PLAIN_LENGTH)
    placement = place_inference(config.device, config.precision)
    encoder = cast("BertModel", load_model(folder, encoder_only=True)).to(placement.device)
    texts_of = Encoder(tokenizer=found.tokenizer, max_seq_length=min(longest, positions)).texts
    with whole_file(output) as file:
        writer = (_NpyWriter if output.suffix == ".npy" else _TsvWriter)(file, size)
        for chunk in reader.chunks():
            vectors = np.full((len(chunk), size), np.nan, dtype=np.float32)
            texts = None
            if readable := [row.cells for row in chunk if row.cells is not None]:
                texts = texts_of(*zip(*readable, strict=True))
                is_readable = [row.cells is not None for row in chunk]
                vectors[is_readable] = _compute(encoder, texts, config, placement)
            writer.write(vectors)
            on_rows(reader.count(chunk, texts))
        writer.finish()
    return EmbedReport(size=size, **asdict(reader.finish()))


def _compute(
    encoder: "BertModel", texts: "EncodedTexts", config: Embed, placement: "Placement"
) -> Vectors:
    """Compute the vectors of some rows, (rows, D)."""
    import torch

    from bertpre.finetuning.batches import batches_by_length
    from bertpre.finetuning.running import MOST_TOKENS
    from bertpre.model.flat import Wanted
    from bertpre.model.heads import mean_pool
    from bertpre.training.device import autocast

    result = np.zeros((len(texts), encoder.config.hidden_size), np.float32)
    for group in batches_by_length(texts.lengths, most_tokens=MOST_TOKENS):
        batch = texts.batch(group, placement.device)
        with torch.inference_mode(), autocast(*placement):
            if config.pooling == "cls":
                vectors = encoder(batch, Wanted.first(batch)).hidden_states.float()  # (B, D)
            else:
                hidden = encoder(batch).hidden_states.float()
                vectors = mean_pool(hidden, batch.cu_seqlens, batch.max_length)
            if config.normalize:
                vectors = torch.nn.functional.normalize(vectors, dim=1)
        result[group] = vectors.cpu().numpy()
    return result


class _NpyWriter:
    """Writes an ``.npy`` file whose number of rows is only known at the end."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size, self._num_rows = file, size, 0
        self.finish()

    def write(self, vectors: Vectors) -> None:
        self._file.write(np.ascontiguousarray(vectors, "<f4").tobytes())
        self._num_rows += len(vectors)

    def finish(self) -> None:
        # The format leaves room for the first axis to grow, so the header keeps its size.
        self._file.seek(0)
        shape = (self._num_rows, self._size)
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)


class _TsvWriter:
    """Writes a line of numbers per row; nine digits preserve every fp32 number."""

    def __init__(self, file: BinaryIO, size: int) -> None:
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
