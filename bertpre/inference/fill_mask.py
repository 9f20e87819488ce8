"""What a pretrained model expects at ``[MASK]``: the quickest look at what it has learnt."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bertpre.errors import CheckpointError, CorpusError
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.training.run_folder import find_checkpoint

MASK = "[MASK]"


class Filling(NamedTuple):
    """A token for a mask.

    Attributes:
        token: a piece of the vocabulary.
        probability: the model's, of all pieces.
    """

    token: str
    probability: float


def fill_mask(
    checkpoint: str | Path, text: str, *, pair: str | None = None, top_k: int = 5
) -> list[list[Filling]]:
    """Ask a pretrained model for what each ``[MASK]`` of a text stands for.

    Each mask is judged by itself: the likeliest tokens of two masks need not go together.

    Args:
        checkpoint: a checkpoint, a run folder or a Hugging Face BERT folder, with an MLM head.
        text: has at least one ``[MASK]``, or ``pair`` has.
        pair: a second text; the model sees ``[CLS] text [SEP] pair [SEP]``.
        top_k: tokens to give for each mask, ≥ 1.

    Returns:
        For each mask, those of the text first, its likeliest tokens, the first the likeliest.

    Raises:
        CorpusError: the text has no mask, or more tokens than the encoder has positions.
        DataFormatError: a file of the checkpoint is not what its manifest says.
        CheckpointError: there is no checkpoint, it has no MLM head, its vocabulary is another
            model's, or its weights are not finite.
    """
    texts = [text] if pair is None else [text, pair]
    if not any(MASK in part for part in texts):
        raise CorpusError(f"no {MASK} in the text {text!r:.80}", f"write {MASK} where a word is")
    for part in texts:
        if not part.isascii() and any("\ud800" <= character <= "\udfff" for character in part):
            raise CorpusError(f"the text is not UTF-8: {part!r:.80}", "set the terminal to UTF-8")
    folder = find_checkpoint(checkpoint)
    # From here on with PyTorch.
    import torch

    from bertpre.finetuning.classifier import check_vocabulary, read_facts
    from bertpre.model.flat import flatten
    from bertpre.model.folder import read_model_config
    from bertpre.model.heads import BertForPreTraining
    from bertpre.model.weights import load_hugging_face, read_weights

    read_facts(folder)  # which checks the files
    shape = read_model_config(folder)
    tokenizer = Tokenizer.load(folder)
    check_vocabulary(folder, tokenizer, shape.vocab_size)
    ids, segments = [tokenizer.cls_id], [0]
    for number, part in enumerate(texts):
        mask = tokenizer.tokens[tokenizer.mask_id]  # other people's may have another spelling
        ids += [*tokenizer.encode_with_mask(part.replace(MASK, mask)), tokenizer.sep_id]
        segments += [number] * (len(ids) - len(segments))
    most = shape.config.max_position_embeddings
    if len(ids) > most:
        raise CorpusError(
            f"the text has {len(ids):,} tokens with [CLS] and [SEP], "
            f"but the encoder of {folder} only {most:,} positions",
            "shorten the text",
        )
    model = BertForPreTraining(shape.config, vocab_size=shape.vocab_size, with_nsp=False)
    report = load_hugging_face(model, read_weights(folder), source=folder)
    untrained = [name for name in report.new if name.startswith("cls.predictions")]
    if untrained:
        raise CheckpointError(
            f"{folder}: has no masked-language-model head (no {untrained[0]})",
            "name a folder that pretraining wrote; fine-tuning drops that head",
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
        # Some models have more rows than there are entries.
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
    """Put the likeliest token in the place of each mask; a piece that continues a word joins it."""
    best = iter(candidates[0].token for candidates in fillings)

    def replace(match: re.Match[str]) -> str:
        space, token = match.group(1), next(best)
        return token[2:] if token.startswith("##") else space + token

    return re.sub(rf"(\s*){re.escape(MASK)}", replace, text)
