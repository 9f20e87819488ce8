"""A BERT folder of another library, read whatever the names of its weights."""

from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from bertpre.artefacts import fingerprint, fingerprint_file, is_artefact
from bertpre.errors import CheckpointError, InteropError
from bertpre.model import names
from bertpre.model.folder import CONFIG, ModelFolder, read_model_config
from bertpre.model.names import canonical_name, plain_names
from bertpre.model.weights import read_weights
from bertpre.tokenizer.folder import BACKEND, VOCAB
from bertpre.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignFolder:
    """A folder of another library: its tensors, and their Hugging Face names by given name."""

    folder: Path
    shape: ModelFolder
    tokenizer: Tokenizer
    tensors: dict[str, Tensor]
    canonical: dict[str, str]

    def has(self, part: Set[str]) -> bool:
        """Return whether all tensors of a part are there."""
        return part <= set(self.canonical.values())

    def length(self, name: str) -> int:
        """Return the length of a tensor, by its Hugging Face name; 0 if absent."""
        given = (given for given, known in self.canonical.items() if known == name)
        return next((len(self.tensors[found]) for found in given), 0)

    @property
    def num_rows(self) -> int:
        """The rows of the word embedding; if it is absent, vocab_size of config.json."""
        return self.length(names.WORDS) or self.shape.vocab_size

    @property
    def num_classes(self) -> int:
        """The outputs of the classifier; 0 without one."""
        return self.length(names.CLASSIFIER_BIAS)

    @property
    def classifier(self) -> str | None:
        """The class of a model with one label per text, or one per token; None without one."""
        raw = self.shape.raw
        architecture = (raw.get("architectures") or ["BertForSequenceClassification"])[0]
        if architecture == "BertForTokenClassification":
            is_whole = self.has(names.CLASSIFIER)
        else:
            problem = raw.get("problem_type") or "single_label_classification"
            is_whole = (
                architecture == "BertForSequenceClassification"
                and self.has(names.CLASSIFIER | names.POOLER)
                and problem == "single_label_classification"
                and self.num_classes > 1
            )
        return architecture if is_whole else None

    @property
    def writes_text(self) -> bool:
        """Whether it has a decoder besides the encoder."""
        return names.is_encoder_decoder(self.canonical)

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels in the order of the outputs; LABEL_0 and so on if config.json lacks them."""
        numbers, stated = range(self.num_classes), self.shape.raw.get("id2label")
        if isinstance(stated, dict) and {str(number) for number in numbers} == set(stated):
            labels = tuple(str(stated[str(number)]) for number in numbers)
            if len(set(labels)) == len(labels):
                return labels
        return tuple(f"LABEL_{number}" for number in numbers)  # as in that library

    def fingerprint(self) -> str:
        """Compute a fingerprint of all files in the folder."""
        files = sorted(path for path in self.folder.iterdir() if path.is_file())
        return fingerprint({path.name: fingerprint_file(path) for path in files})


def read_foreign_folder(folder: Path) -> ForeignFolder:
    """Read the weights, the vocabulary and config.json of a folder.

    Raises:
        CheckpointError: there is no such folder, or it contains no BERT.
        TokenizerError: its vocabulary cannot be read.
        InteropError: bertpre wrote it, or it has no vocabulary.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "there is no such folder"
        raise CheckpointError(
            f"{folder}: {what}; expected a folder with {CONFIG}, a vocabulary and weights",
            "download the model first: bertpre fetches nothing",
        )
    if is_artefact(folder):
        raise InteropError(
            f"{folder}: bertpre wrote it, so there is nothing to import",
            "pass it directly to the other commands",
        )
    shape = read_model_config(folder)
    if not any((folder / name).is_file() for name in (VOCAB, BACKEND)):
        raise InteropError(
            f"{folder}: has neither {VOCAB} nor {BACKEND}, so the meaning of its rows is unknown",
            "copy the tokenizer files that the model was trained with into the folder",
        )
    tokenizer = Tokenizer.load(folder)
    tensors = read_weights(folder)
    # Naming the MLM head lets a stored decoder be recognized as a copy of the word embedding.
    plain = plain_names(tensors)
    canonical = {given: canonical_name(plain[given], (names.MLM_BIAS,)) for given in tensors}
    if names.is_encoder_decoder(tensors):
        canonical = {given: names.of_encoder(given) for given in tensors}
    return ForeignFolder(
        folder=folder, shape=shape, tokenizer=tokenizer, tensors=tensors, canonical=canonical
    )
