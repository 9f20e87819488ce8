"""Predictions of tags: the file that came in, with its tags, and columns for conlleval."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bertpre.config.schema import Finetune
from bertpre.corpus.rows import RowError
from bertpre.errors import shorten
from bertpre.finetuning.outputs import Outputs, PredictionFile
from bertpre.finetuning.tables import InputRow, LabelledTable, pass_good_rows
from bertpre.finetuning.tagged_rows import TaggedFile, TaggedRow

# What files to be tagged have in place of tags.
_NO_TAGS = {"", "O", "_", "-", "?"}


class TaggedPredictions(PredictionFile):
    """A file of sentences, and the same file with predicted tags.

    Args:
        path: for messages.
        file: the same, open.
        config: whether to leave bad sentences as they are.
        tags_of: returns the tags in the outputs for some sentences.
        is_tag: whether a text can be a tag.
    """

    def __init__(
        self,
        path: Path,
        file: TaggedFile,
        config: Finetune,
        *,
        tags_of: Callable[[Outputs], list[list[str]]],
        is_tag: Callable[[str], bool],
    ) -> None:
        self._path, self._file, self._tags_of = path, file, tags_of
        self._is_tag = is_tag
        self._skips = config.on_bad_rows == "skip"

    @property
    def form(self) -> str:
        return self._file.form

    def header(self) -> str:
        return self._file.header()

    def rows(self) -> Iterator[InputRow]:
        bad: list[RowError] = []
        for row in self._file.rows():
            fault = row.fault or self._check_old_tags(row)
            if fault is None:
                if not bad:
                    yield InputRow((row.tokens,), row)
            elif self._skips:
                yield InputRow(None, row)
            else:
                bad.append(fault)
        way_out = "or leave them as they are with --on-bad-rows skip"
        yield from pass_good_rows(self._path, (), bad, skips=False, way_out=way_out)

    def _check_old_tags(self, row: TaggedRow) -> RowError | None:
        """Return a fault if what the tags would replace are no tags, but text, say."""
        odd = [tag for tag in row.tags or () if tag not in _NO_TAGS and not self._is_tag(tag)]
        if not odd:
            return None
        return RowError.at(
            self._path,
            row.line,
            f"the predicted tags would replace {shorten(odd[0])}, which is no tag of this model",
            "leave the column of tags out; columns are separated as in the first line, by tabs if "
            "it has one",
        )

    def write(self, rows: Sequence[InputRow], outputs: Outputs | None) -> Iterator[str]:
        tags = iter([] if outputs is None else self._tags_of(outputs))
        for row in rows:
            yield self._file.write(row.source, None if row.cells is None else next(tags))


def write_columns(path: Path, table: LabelledTable, found: Sequence[Sequence[str]]) -> None:
    """Write columns of token, true and predicted tag, as conlleval reads them."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for sentence in zip(table.texts, table.labels, found, strict=True):
            columns = zip(*sentence, strict=True)
            file.writelines("\t".join(cells) + "\n" for cells in columns)
            file.write("\n")
