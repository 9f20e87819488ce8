"""The README.md of an exported folder: what the model is, from its manifest alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from bertpre.interop.facts import Facts, describe, short

CARD = "README.md"

_LOADING = {
    "mlm-nsp": "BertForPreTraining",
    "mlm-sop": "BertForPreTraining",
    "mlm": "AutoModelForMaskedLM",
    "classifier": "AutoModelForSequenceClassification",
    None: "AutoModel",
}


def write_card(
    path: Path,
    manifest: Mapping[str, Any],
    config: Mapping[str, Any],
    *,
    to: Literal["huggingface", "onnx"],
) -> None:
    """Write a model card in Markdown; equal manifests give equal bytes.

    Args:
        path: the file.
        manifest: the checkpoint's or the fine-tuned model's.
        config: its config.json.
        to: what the folder is for.
    """
    is_fine_tuned = manifest["kind"] == "model"
    parts = [
        "---\nlibrary_name: transformers\ntags:\n- bert\n- bertpre\n---\n",
        "# " + ("Fine-tuned BERT" if is_fine_tuned else "BERT") + f", {_size(config)}\n",
        _origin(manifest),
        _intended_use(manifest),
        _loading(manifest, to),
        *(_table(facts) for facts in _facts(manifest)),
        _limits(manifest),
    ]
    path.write_text("\n".join(part for part in parts if part), encoding="utf-8", newline="\n")


def _size(config: Mapping[str, Any]) -> str:
    return f"{config['num_hidden_layers']} layers of {config['hidden_size']}"


def _origin(manifest: Mapping[str, Any]) -> str:
    imported = manifest.get("imported")
    if manifest["kind"] == "model" and imported is None:
        made = (
            f"Fine-tuned with bertpre {manifest['bertpre']} from a checkpoint whose fingerprint "
            f"is `{short(manifest.get('from', 'unknown'))}`."
        )
    elif imported is not None:
        made = (
            "Trained by others and imported with bertpre "
            f"{manifest['bertpre']}; fingerprint of the files it came from: "
            f"`{short(imported['from'])}`. Their licence and their model card apply."
        )
    else:
        made = (
            f"Pretrained with bertpre {manifest['bertpre']}: {manifest.get('step', 0):,} updates "
            f"with the objective {manifest.get('objective')}, seed {manifest.get('seed')}."
        )
    return made + "\n"


def _intended_use(manifest: Mapping[str, Any]) -> str:
    longest = manifest.get("max_seq_length")
    if manifest["kind"] == "model":
        use = _classifier_use(manifest)
    elif manifest.get("objective") is None:
        use = "An encoder without heads: vectors of texts, or a start for fine-tuning."
    else:
        use = "A start for fine-tuning on texts like those it was trained on; filling masks."
    seen = ""
    if longest and "imported" not in manifest:
        seen = f" It saw texts of up to {longest} tokens."
    return f"## Intended use\n\n{use}{seen}\n"


def _classifier_use(manifest: Mapping[str, Any]) -> str:
    classes = [str(name) for name in manifest.get("classes", [])]
    named = ", ".join(f"`{name}`" for name in classes[:20])
    named += f" and {len(classes) - 20} more" if len(classes) > 20 else ""
    is_paired = manifest.get("options", {}).get("pair_column") is not None
    texts = f"{'pairs of texts' if is_paired else 'texts'} like those it was fine-tuned on"
    if manifest.get("task") == "regression":
        return f"Predicting the number {named} of {texts}."
    if manifest.get("task") == "multi-label":
        return f"Saying which of these labels apply to {texts}, any number of them: {named}."
    return f"Classifying {texts}, into {named}."


def _loading(manifest: Mapping[str, Any], to: str) -> str:
    if to == "onnx":
        is_paired = manifest.get("options", {}).get("pair_column") is not None
        texts = '["a text"]' + (', ["a second one"]' if is_paired else "")
        return (
            "## Loading\n\n```python\nimport onnxruntime\nfrom transformers import AutoTokenizer\n"
            '\ntokenize = AutoTokenizer.from_pretrained(".")\n'
            'session = onnxruntime.InferenceSession("model.onnx")\n'
            f'outputs = session.run(None, dict(tokenize({texts}, return_tensors="np")))\n```\n'
        )
    kind = "classifier" if manifest["kind"] == "model" else manifest.get("objective")
    name = _LOADING.get(kind, "AutoModel")
    return (
        f"## Loading\n\n```python\nfrom transformers import AutoTokenizer, {name}\n\n"
        f'tokenizer = AutoTokenizer.from_pretrained(".")\n'
        f'model = {name}.from_pretrained(".")\n```\n'
    )


def _facts(manifest: Mapping[str, Any]) -> list[Facts]:
    found = [
        *describe("Held-out figures", manifest.get("held_out", {})),
        *describe("Recipe", manifest.get("pretrain", {})),
        *describe("Examples", manifest.get("data_options", {})),
        *describe("Training text", manifest.get("data_report", {})),
    ]
    if manifest["kind"] == "model":
        best = manifest.get("best_epoch")
        scores = [e["dev"] for e in manifest.get("history", []) if e.get("epoch") == best]
        found += describe("Scores on the dev rows", scores[0]) if scores else []
        found += describe("Fine-tuning recipe", manifest.get("options", {}))
        found += describe("Rows", manifest.get("counts", {}))
        found += describe("Labels", manifest.get("class_counts", {}))
    return found


def _table(facts: Facts) -> str:
    lines = [f"## {facts.title[0].upper()}{facts.title[1:]}\n", "| | |", "| --- | --- |"]
    lines += [f"| {_cell(name)} | {_cell(value)} |" for name, value in facts.rows.items()]
    return "\n".join(lines) + "\n"


def _cell(value: str) -> str:
    # A bar or a line break would end the cell.
    return value.replace("|", "\\|").replace("\n", " ")


def _limits(manifest: Mapping[str, Any]) -> str:
    what = "labels" if manifest["kind"] == "model" else "text"
    return (
        "## Limits\n\nThe model knows what its training "
        f"{what} knew, its errors and slants included; figures above are for text of that kind. "
        "Check it on your own before relying on it.\n"
    )
