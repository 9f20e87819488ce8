"""Export of our encoder and heads as model.onnx, with a check that the outputs agree."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertpre.errors import InteropError
from bertpre.model.attention import attention
from bertpre.model.flat import FlatTokens, Layout, flatten
from bertpre.model.folder import load_model
from bertpre.model.heads import (
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
    compare_segments,
)
from bertpre.model.names import Model, encoder_of

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
ONNX_MODEL = "model.onnx"

_SHAPES = ((1, 5), (2, 16), (3, 40))  # batch and length; the rows of a batch differ in length
_TOLERANCE = 1e-4  # of the largest output: two runtimes round sums of hundreds of terms differently
# Bytes; beyond 2 GB the format needs a separate file for the weights.
_LARGEST_FILE = 1_500_000_000


def write_onnx(folder: Path, output: Path, *, encoder_only: bool) -> float:
    """Write a model as model.onnx and compare its outputs with ours for three shapes.

    The inputs are ``input_ids``, ``attention_mask`` and ``token_type_ids``, each (batch, length)
    int64. The outputs, as far as the model has them, are ``logits`` (of a classifier: (batch,
    classes); of a tagger: (batch, length, tags); of an MLM head: (batch, length, vocabulary)),
    ``seq_relationship_logits`` (batch, 2), ``last_hidden_state`` (batch, length, width) and
    ``pooler_output`` (batch, width). A CRF adds outputs that are the same for all inputs:
    ``transitions`` (tags, tags), [from, to], ``start_transitions`` and ``end_transitions`` (tags).

    Args:
        folder: a checkpoint or a fine-tuned model.
        output: the folder for model.onnx.
        encoder_only: leave the heads out.

    Returns:
        The largest absolute difference.

    Raises:
        InteropError: a library is missing, or the outputs differ.
    """
    try:
        import onnx
        import onnxruntime
        import onnxscript
    except ImportError as error:
        raise InteropError(
            f"ONNX needs the packages onnx, onnxruntime and onnxscript ({error})",
            "pip install 'bertpre[onnx]'",
        ) from error
    del onnx, onnxscript  # used by PyTorch's exporter
    model = load_model(folder, encoder_only=encoder_only)
    padded, path = PaddedModel(model), output / ONNX_MODEL
    size = sum(parameter.nbytes for parameter in model.parameters())
    example = _example(model, batch_size=2, length=7)
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    with _quiet(), torch.no_grad():
        names = list(padded.outputs(*example))
        torch.onnx.export(
            padded,
            example,
            path,
            input_names=list(INPUTS),
            output_names=names,
            dynamic_shapes={name: free for name in INPUTS},
            external_data=size > _LARGEST_FILE,
            verbose=False,
        )
    _forget_sources(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return _compare(session, model, names)


def _forget_sources(path: Path) -> None:
    """Remove the stack traces that PyTorch adds, with the paths of this machine's files."""
    import onnx

    graph = onnx.load(path, load_external_data=False)
    parts = [graph.graph, *graph.functions]
    for part in parts:
        for holder in (part, *part.node, *part.value_info):
            holder.ClearField("metadata_props")
    onnx.save(graph, path)


class PaddedModel(nn.Module):
    """Our model for padded batches, traceable with dynamic sizes.

    Args:
        model: shares its parameters.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self.bert = encoder_of(model)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor, ...]:
        """Compute all outputs for (B, T) ids, masks of 0 and 1, and segments."""
        return tuple(self.outputs(input_ids, attention_mask, token_type_ids).values())

    def outputs(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> dict[str, Tensor]:
        """Compute the outputs of `forward` by name, in the same order."""
        batch_size, length = input_ids.shape
        num_rows = batch_size * length
        keep = attention_mask.bool()
        # Padding is computed too, so that no size depends on a value.
        starts = torch.arange(batch_size + 1, device=input_ids.device) * length
        layout = Layout(
            cu_seqlens=starts,
            longest=length,
            num_tokens=num_rows,
            num_rows=num_rows,
            batch_size=batch_size,
            max_length=length,
            rows=None,
            keep=keep,
            has_flash=False,
        )
        positions = torch.arange(length, device=input_ids.device).expand(batch_size, length)
        batch = FlatTokens(
            input_ids=input_ids.flatten(),  # (B, T) -> (N,)
            token_type_ids=token_type_ids.flatten(),
            position_ids=positions.flatten(),
            cu_seqlens=starts,
            max_length=length,
        )
        attend = partial(attention, queries=layout, keys=layout)
        hidden = self.bert.encoder(self.bert.embeddings(batch), attend)
        pooled = None if self.bert.pooler is None else self.bert.pooler(hidden, starts)
        last_hidden_state = hidden.unflatten(0, (batch_size, length))  # (N, D) -> (B, T, D)
        if isinstance(self.model, BertForSequenceClassification):
            logits = _classify(
                self.model, input_ids, last_hidden_state, pooled, keep=keep, second=token_type_ids
            )
            return {"logits": logits}
        if isinstance(self.model, BertForTokenClassification):
            return {"logits": self.model.classifier(last_hidden_state), **_crf_outputs(self.model)}
        outputs = {}
        if isinstance(self.model, BertForPreTraining):
            outputs["logits"] = self.model.mlm(last_hidden_state, self.bert.embeddings.word.weight)
            if self.model.nsp is not None:
                outputs["seq_relationship_logits"] = self.model.nsp(pooled)
        outputs["last_hidden_state"] = last_hidden_state
        return outputs if pooled is None else {**outputs, "pooler_output": pooled}


def _classify(
    model: BertForSequenceClassification,
    input_ids: Tensor,
    hidden: Tensor,
    pooled: Tensor | None,
    *,
    keep: Tensor,
    second: Tensor,
) -> Tensor:
    """Compute a classifier's logits from padded hidden states; ``second`` is 1 in segment B."""
    if model.pooling == "compare":
        real, second = keep.to(hidden.dtype), second.to(hidden.dtype)
        pooled = compare_segments(hidden, input_ids, real * (1 - second), real * second)
    elif pooled is None:
        weights = keep[:, :, None].to(hidden.dtype)
        pooled = (hidden * weights).sum(dim=1) / weights.sum(dim=1)
    logits: Tensor = model.classifier(pooled)
    return logits


def _crf_outputs(model: BertForTokenClassification) -> dict[str, Tensor]:
    """Return the scores of a tagger's CRF, if it has one, which decoding needs."""
    # Copies, as a graph computes its outputs.
    return {} if model.crf is None else {n: p.clone() for n, p in model.crf.named_parameters()}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    # The exporter prints, and its libraries issue warnings.
    logs = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [log.level for log in logs]
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for log in logs:
            log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for log, level in zip(logs, levels, strict=True):
                log.setLevel(level)


def _example(model: Model, *, batch_size: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw a padded batch: row i is i tokens shorter; the second half is segment B."""
    bert = encoder_of(model)
    generator = torch.Generator().manual_seed(length)
    shape = (batch_size, length)
    ids = torch.randint(bert.vocab_size, shape, generator=generator)
    columns = torch.arange(length).expand(shape)
    lengths = length - torch.arange(batch_size)[:, None]
    return ids, (columns < lengths).long(), (columns >= length // 2).long()


def _compare(session: Any, model: Model, output_names: list[str]) -> float:
    bert = encoder_of(model)
    largest = 0.0
    for batch_size, length in _SHAPES:
        length = min(length, bert.config.max_position_embeddings)
        inputs = _example(model, batch_size=batch_size, length=length)
        keep = inputs[1].bool()
        with torch.no_grad():
            ours = _our_outputs(model, *inputs)
        given = dict(zip(INPUTS, (part.numpy() for part in inputs), strict=True))
        for name, found in zip(output_names, session.run(output_names, given), strict=True):
            theirs = torch.from_numpy(np.asarray(found))
            theirs = theirs[keep] if theirs.dim() == 3 else theirs  # (B, T, ...) -> (N, ...)
            difference = (theirs - ours[name]).abs().max().item()
            allowed = _TOLERANCE * max(1.0, ours[name].abs().max().item())
            if not difference <= allowed:
                raise InteropError(
                    f"the ONNX model's {name} of shape {list(theirs.shape)} differs by "
                    f"{difference:.2g} from that of bertpre; expected at most {allowed:.2g}",
                    "nothing was written; try other versions of onnxscript and onnxruntime",
                )
            largest = max(largest, difference)
    return largest


def _our_outputs(
    model: Model, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
) -> dict[str, Tensor]:
    """Compute the outputs by name with our model, without padding; tokens are (N, ...)."""
    batch = flatten(input_ids, attention_mask, token_type_ids)
    if isinstance(model, BertForSequenceClassification):
        return {"logits": model(batch)}
    if isinstance(model, BertForTokenClassification):
        return {"logits": model(batch), **_crf_outputs(model)}
    hidden, pooled = encoder_of(model)(batch)
    outputs = {"last_hidden_state": hidden}
    if pooled is not None:
        outputs["pooler_output"] = pooled
    if isinstance(model, BertForPreTraining):
        found = model(batch, torch.arange(len(hidden)))
        outputs["logits"] = found.mlm
        if found.nsp is not None:
            outputs["seq_relationship_logits"] = found.nsp
    return outputs
