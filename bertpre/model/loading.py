"""A model folder as the model that it holds, ready to compute."""

from pathlib import Path

from bertpre.errors import CheckpointError
from bertpre.model.bert import BertModel
from bertpre.model.heads import BertForPreTraining, BertForSequenceClassification
from bertpre.model.weights import CONFIG, load_hugging_face, read_model_config, read_weights

Model = BertModel | BertForPreTraining | BertForSequenceClassification


def load_model(folder: str | Path, *, encoder_only: bool = False) -> Model:
    """Load what config.json says that a folder holds, without dropout, on the CPU.

    Args:
        folder: a checkpoint, a fine-tuned or an imported model.
        encoder_only: leave heads out; the pooler stays if the file has one.

    Raises:
        CheckpointError: the folder holds no such model, or not all of it.
    """
    folder = Path(folder)
    config, vocab_size, raw = read_model_config(folder)
    tensors = read_weights(folder)
    kind = (raw.get("architectures") or ["BertModel"])[0].removeprefix("Bertpre")
    kind = kind.removeprefix("Bert")
    model: Model
    if encoder_only or kind == "Model":
        has_pooler = any("pooler.dense" in name for name in tensors)
        model = BertModel(config, vocab_size=vocab_size, with_pooler=has_pooler)
    elif kind in ("ForPreTraining", "ForMaskedLM"):
        model = BertForPreTraining(config, vocab_size=vocab_size, with_nsp=kind == "ForPreTraining")
    elif kind == "ForSequenceClassification":
        model = BertForSequenceClassification(
            config,
            vocab_size=vocab_size,
            num_labels=len(raw["id2label"]),
            pooling=raw.get("pooling", "cls"),
        )
    else:
        raise CheckpointError(
            f"{folder / CONFIG}: architectures: {kind!r} is none that bertpre has",
            "bring the folder in with `bertpre import`, which keeps the encoder",
        )
    report = load_hugging_face(model, tensors, source=folder)
    if report.new:
        raise CheckpointError(
            f"{folder}: {CONFIG} says {kind}, but the weights lack {', '.join(report.new[:3])}",
            "the file is not whole: copy it again",
        )
    return model.eval()
