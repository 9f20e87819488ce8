"""The predictions of a pretrained model for ``[MASK]``."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bertpre.errors import CheckpointError, CorpusError
from bertpre.training.run_folder import find_checkpoint

MASK = "[MASK]"


class Filling(NamedTuple):
    """A token of the vocabulary for a mask, and its probability."""

    token: str
    probability: float


def fill_mask(
    checkpoint: str | Path, text: str, *, pair: str | None = None, top_k: int = 5
) -> list[list[Filling]]:
    """Predict the tokens at each ``[MASK]`` of a text with a pretrained model.

    Each mask is predicted independently: the best tokens of two masks may not fit together.

    Args:
        checkpoint: a checkpoint, a run folder or a Hugging Face BERT folder, with an MLM head.
        text: contains ``[MASK]``, unless ``pair`` does.
        pair: a second text; the model sees ``[CLS] text [SEP] pair [SEP]``.
        top_k: tokens to return for each mask, ≥ 1.

    Returns:
        For each mask, in order, its most likely tokens, best first.

    Raises:
        CorpusError: the text has no mask, or more tokens than the encoder has positions.
        DataFormatError: a file of the checkpoint differs from its manifest.
        CheckpointError: there is no checkpoint, it has no MLM head, its vocabulary does not match,
            or its weights are not finite.
    """
    texts = [text] if pair is None else [text, pair]
    if not any(MASK in part for part in texts):
        raise CorpusError(f"no {MASK} in the text {text!r:.80}", f"replace a word by {MASK}")
    for part in texts:
        if not part.isascii() and any("\ud800" <= character <= "\udfff" for character in part):
            raise CorpusError(f"the text is not UTF-8: {part!r:.80}", "set the terminal to UTF-8")
    folder = find_checkpoint(checkpoint)
    # Imports PyTorch.
    import torch

    from bertpre.finetuning.start import read_checkpoint
    from bertpre.model.flat import flatten
    from bertpre.model.heads import BertForPreTraining
    from bertpre.model.weights import load_hugging_face, read_weights

    found = read_checkpoint(folder)
    shape, tokenizer = found.shape, found.tokenizer
    ids, segments = [tokenizer.cls_id], [0]
    for number, part in enumerate(texts):
        mask = tokenizer.tokens[tokenizer.mask_id]  # may be spelled differently elsewhere
        ids += [*tokenizer.encode_with_mask(part.replace(MASK, mask)), tokenizer.sep_id]
        segments += [number] * (len(ids) - len(segments))
    most = shape.config.max_position_embeddings
    if len(ids) > most:
        raise CorpusError(
            f"the text has {len(ids):,} tokens with [CLS] and [SEP], "
            f"but the encoder of {folder} has only {most:,} positions",
            "shorten the text",
        )
    model = BertForPreTraining(shape.config, vocab_size=shape.vocab_size, with_nsp=False)
    report = load_hugging_face(model, read_weights(folder), source=folder)
    untrained = [name for name in report.new if name.startswith("cls.predictions")]
    if untrained:
        raise CheckpointError(
            f"{folder}: has no masked-language-model head (no {untrained[0]})",
            "use a folder from pretraining; fine-tuning drops that head",
        )
    model.eval()
    row = torch.tensor([ids])  # (1, T)
    masks = (row[0] == tokenizer.mask_id).nonzero().flatten()
    batch = flatten(row, torch.ones_like(row), torch.tensor([segments]))
    with torch.inference_mode():
        logits = model(batch, masks).mlm
        if not bool(logits.isfinite().all()):
            raise CheckpointError(
                f"{folder}: its weights give no finite scores", "use an earlier checkpoint"
            )
        # Some models have more rows than the vocabulary has entries.
        shares = torch.softmax(logits.float(), dim=1)[:, : tokenizer.vocab_size]
        best = shares.topk(min(top_k, tokenizer.vocab_size))
    return [
        [
            Filling(tokenizer.tokens[number], probability)
            for number, probability in zip(numbers, probabilities, strict=True)
        ]
        for numbers, probabilities in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def filled_text(text: str, fillings: Sequence[Sequence[Filling]]) -> str:
    """Replace each mask by its best token; a piece that continues a word is joined to it."""
    best = iter(candidates[0].token for candidates in fillings)

    def replace(match: re.Match[str]) -> str:
        space, token = match.group(1), next(best)
        return token[2:] if token.startswith("##") else space + token

    return re.sub(rf"(\s*){re.escape(MASK)}", replace, text)
