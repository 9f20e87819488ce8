"""Tables of tagged sentences: reading, and checks of a table as a whole."""

import logging
from pathlib import Path

from bertpre.config.schema import Finetune
from bertpre.errors import CorpusError
from bertpre.finetuning import tagged_files
from bertpre.finetuning.scheme_recognition import MixedSchemes, recognize
from bertpre.finetuning.schemes import PLAIN, Scheme
from bertpre.finetuning.tables import Fault, LabelledTable, check_is_on_disk

log = logging.getLogger(__name__)

_LONG_SENTENCE = 5000  # tokens


def read_tagged_table(path: str | Path, config: Finetune) -> tuple[LabelledTable, list[Fault]]:
    """Read sentences with their tags; see `bertpre.finetuning.tagged_files`.

    Returns:
        The sentences that can be read, and the others' faults.

    Raises:
        ConfigError: options contradict each other.
        CorpusError: the file cannot be read, or has no sentences.
    """
    check_is_on_disk(Path(path))
    file = tagged_files.open_tagged(Path(path), config, with_tags=True, layout=None)
    good, faults = [], []
    for row in file.rows():
        if row.fault is None:
            good.append(row)
        else:
            faults.append(Fault(row.fault.line, row.fault.problem))
    if not good and not faults:
        raise CorpusError(
            f"{path}: has no sentences; expected at least one token with a tag",
            "check the file and --format",
        )
    table = LabelledTable(
        name=str(path),
        texts=tuple(row.tokens for row in good),
        labels=tuple(row.tags or () for row in good),
        lines=tuple(row.line for row in good),
        layout=file.layout,
    )
    return table, faults


def check_same_scheme(table: LabelledTable, scheme: Scheme, *, train_name: str) -> None:
    """Refuse tags of another scheme, which would all count as wrong; say what breaks this one.

    Args:
        table: to score.
        scheme: that of the training table.
        train_name: the training table, for messages.

    Raises:
        CorpusError: its tags follow another scheme.
    """
    if scheme.is_plain:
        return
    found = recognize(table.labels)
    num_entities = num_whole = 0
    for tags in table.labels:
        num_entities += len(scheme.lenient_spans(tags))
        num_whole += len(scheme.spans(tags))
    if not isinstance(found, MixedSchemes) and found.scheme is not scheme:
        is_foreign = any(scheme.read(tag) is None for tags in table.labels for tag in tags)
        # A single tag without a prefix among others is named as an unknown label instead.
        is_other = not found.num_prefixed if found.scheme is PLAIN else is_foreign
        if is_other or num_whole < num_entities / 2:
            raise CorpusError(
                f"{table.name}: its tags are {found.scheme.name}, but those of {train_name} "
                f"are {scheme.name}",
                "convert one of the files to the tags of the other",
            )
    if num_entities == 0:
        log.warning("%s: has no entity, so F1 is 0 whatever is predicted", table.name)
    elif num_whole < num_entities:
        log.warning(
            "%s: %s of %s entities break %s; the strict scores do not count them",
            table.name,
            f"{num_entities - num_whole:,}",
            f"{num_entities:,}",
            scheme.name,
        )


def warn_of_long_sentences(table: LabelledTable) -> None:
    """Warn of a sentence so long that the blank lines are probably missing."""
    lengths = [len(tokens) for tokens in table.texts]
    longest = max(range(len(lengths)), key=lengths.__getitem__)
    if lengths[longest] > _LONG_SENTENCE:
        log.warning(
            "%s: the sentence on line %d has %s tokens; are blank lines between sentences missing? "
            "Each sentence is learned as a whole, which takes memory",
            table.name,
            table.lines[longest],
            f"{lengths[longest]:,}",
        )
