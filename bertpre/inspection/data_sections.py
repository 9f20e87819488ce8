"""A data folder described: what make-data counted, lengths, pieces, and decoded examples."""

import itertools
from pathlib import Path

import numpy as np

from bertpre.data.dataset import PretrainingData
from bertpre.data.examples import example_lengths
from bertpre.data.samples import decode_examples
from bertpre.inspection.sections import Bars, Examples, Grid, Section
from bertpre.interop.facts import Facts, describe, short

_MOST_MEASURED = 1_000_000  # examples; of more, evenly spaced ones
_NUM_BARS = 16
_PIECES_SHOWN = 12


def data_sections(folder: Path, num_examples: int = 5) -> list[Section]:
    """Describe a data folder.

    Args:
        folder: written by make-data.
        num_examples: decoded examples to show, the first that training sees.

    Raises:
        DataFormatError: the folder is unfinished or damaged.
    """
    data = PretrainingData(folder)
    made = {
        "objective": data.objective,
        "training examples": f"{len(data.records):,}",
        "held out": f"{len(data.held_out):,}",
        "most tokens": str(data.max_seq_length),
        "masks": "static, one for each pass" if data.static_masks else "new ones each epoch",
        "vocabulary": f"{data.tokenizer.vocab_size:,} entries",
        "tokenizer": short(data.tokenizer.fingerprint),
        "bytes on disk": f"{sum(p.stat().st_size for p in folder.rglob('*') if p.is_file()):,}",
        "fingerprint": short(data.manifest["fingerprint"]),
    }
    return [
        Facts("data", made),
        *describe("what make-data found", data.manifest.get("report", {})),
        *describe("options", data.index_manifest.get("options", {})),
        _lengths(data),
        _frequencies(data),
        Examples(
            "examples, as {what the model sees→what it must predict}",
            [str(example) for example in decode_examples(data, num_examples)],
        ),
    ]


def _lengths(data: PretrainingData) -> Bars:
    step = -(-len(data.records) // _MOST_MEASURED)
    lengths = example_lengths(data.records[::step])
    edges = np.unique(np.linspace(0, data.max_seq_length, _NUM_BARS + 1).astype(int))
    counts, _ = np.histogram(lengths, bins=edges + 1)
    names = [f"{low + 1}-{high}" for low, high in itertools.pairwise(edges)]
    bars = [(name, int(count)) for name, count in zip(names, counts, strict=True)]
    return Bars("tokens of an example" + (f" (every {step:,}th)" if step > 1 else ""), bars)


def _frequencies(data: PretrainingData) -> Grid:
    ids = data.tokenizer.ordinary_ids
    counts = data.unigrams[ids]
    order = np.argsort(-counts, kind="stable")
    seen = order[counts[order] > 0]
    rows = []
    for name, chosen in (
        ("most frequent", seen[:_PIECES_SHOWN]),
        ("median", seen[len(seen) // 2 :][:_PIECES_SHOWN]),
        ("rarest", seen[-_PIECES_SHOWN:]),
    ):
        pieces = [f"{data.tokenizer.tokens[ids[i]]} ({counts[i]:,})" for i in chosen]
        rows.append([name, "  ".join(pieces)])
    never = len(order) - len(seen)
    rows.append(["never in the training text", f"{never:,} of {len(order):,} entries"])
    return Grid("pieces in the training text", ["", "pieces and their counts"], rows)
