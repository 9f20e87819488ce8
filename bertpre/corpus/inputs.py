"""Which files the inputs of a command name, and what the name of each says about its format.

Inputs are files, folders, patterns, or standard input.
"""

import glob
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from bertpre.artefacts import MANIFEST, is_artefact
from bertpre.corpus.files import STDIN
from bertpre.errors import CorpusError

log = logging.getLogger(__name__)

TableFormat = Literal["jsonl", "csv", "tsv", "parquet"]
FileFormat = Literal["txt", "jsonl", "csv", "tsv", "parquet"]

_FORMATS: dict[str, FileFormat] = {
    ".txt": "txt",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
_COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
_EXPECTED_NAMES = (
    "names that end in .txt, .jsonl, .csv, .tsv or .parquet (or one of these and .gz, .bz2, "
    ".xz or .zst)"
)


class InputFile(NamedTuple):
    """One file to read."""

    path: Path
    format: FileFormat

    def size(self) -> int | None:
        """Return its bytes on disk; None for a pipe, which does not know."""
        # Standard input may be a file, but the place in it is not ours to go back to.
        return self.path.stat().st_size if self.path != STDIN and self.path.is_file() else None


def format_by_name(path: Path) -> FileFormat | None:
    """Tell a file's format by its suffix, the one before ``.gz``; None if it is unknown."""
    return _FORMATS.get(_suffix(path))


def table_format(path: Path, asked: Literal["auto"] | TableFormat) -> TableFormat:
    """Settle the format of a table.

    Raises:
        CorpusError: ``asked`` is "auto" and the file name does not tell.
    """
    if asked != "auto":
        return asked
    found = format_by_name(path)
    if found is None or found == "txt":
        raise CorpusError(
            f"{path}: the name does not say which kind of table it is; expected a name that ends "
            "in .tsv, .csv, .jsonl or .parquet (or one of the first three and .gz)",
            "rename it, or state the format",
        )
    return found


def _suffix(path: Path) -> str:
    name = Path(path.name.lower())
    return Path(name.stem if name.suffix in _COMPRESSIONS else name).suffix


def find_files(
    inputs: Sequence[str | Path],
    format: Literal["auto"] | FileFormat = "auto",
    *,
    is_quiet: bool = False,
) -> list[InputFile]:
    """Find the files that inputs name, in the order of the inputs.

    Args:
        inputs: files; folders, read recursively in sorted order, without what bertpre made there;
            patterns such as ``part-*.txt``, in sorted order; or "-", standard input.
        format: the form of all files; auto goes by their names, and is txt where they do not tell.
        is_quiet: do not warn, as for files that were looked for before.

    Raises:
        TypeError: one name was given, where a list of them belongs.
        CorpusError: an input is missing, a folder has no file whose name tells its format, or a
            name ends in .json, which may be one of two forms.
    """
    if isinstance(inputs, str | Path):
        raise TypeError(
            f"inputs: expected a list of files and folders, found the one name {inputs!r}"
        )
    files = [file for given in inputs for file in _find_input(given, format, is_quiet=is_quiet)]
    seen: set[Path] = set()
    for file in files:
        if file.path == STDIN:
            if STDIN in seen:
                raise CorpusError("-: standard input can be read once only", "name it once")
            seen.add(STDIN)
            continue
        real = file.path.resolve()
        if real in seen and not is_quiet:
            log.warning("%s: is named twice among the inputs, and is read twice", file.path)
        seen.add(real)
    return files


def _find_input(
    given: str | Path, format: Literal["auto"] | FileFormat, *, is_quiet: bool
) -> list[InputFile]:
    if given == "-":
        return [InputFile(STDIN, "txt" if format == "auto" else format)]
    path = Path(given)
    if path.is_dir():
        return _find_in_folder(path, format, is_quiet=is_quiet)
    if path.exists():
        return [_as_file(path, format)]
    if not glob.has_magic(str(given)):
        raise CorpusError(f"{given}: there is no such file or folder", "check the path")
    matches = sorted(glob.glob(str(given), recursive=True))
    files = [Path(match) for match in matches if not Path(match).is_dir()]
    if not files:
        raise CorpusError(f"{given}: no file matches this pattern", "check the path")
    return [_as_file(file, format) for file in files]


def _as_file(path: Path, format: Literal["auto"] | FileFormat) -> InputFile:
    if format != "auto":
        return InputFile(path, format)
    if _suffix(path) == ".json":
        raise CorpusError(
            f"{path}: is JSON by its name, which may be one object a line or one large value",
            "state --format jsonl if each line is an object; else turn it into such lines",
        )
    return InputFile(path, format_by_name(path) or "txt")


def _find_in_folder(
    folder: Path, format: Literal["auto"] | FileFormat, *, is_quiet: bool
) -> list[InputFile]:
    found, unknown, hidden = [], [], []
    paths = sorted(folder.rglob("*"))
    # A tokenizer made beside the text has a vocab.txt, which is none of the text.
    own = {
        path.parent
        for path in paths
        if path.name == MANIFEST and not _is_hidden(path, folder) and is_artefact(path.parent)
    }
    if folder in own:
        raise CorpusError(
            f"{folder}: is a folder that bertpre made, not text",
            "name the text; for parts of a corpus pass --merge, for a data folder --tokens",
        )
    warn = log.debug if is_quiet else log.warning
    for path in paths:
        if path.is_symlink() and not path.is_file():
            # Not followed, since a link may lead back to where it stands.
            warn("%s: passed over, a link to a folder or to nothing; name it itself", path)
        if not path.is_file() or not own.isdisjoint(path.parents):
            continue
        if _is_hidden(path, folder):
            is_unfinished = any(p.startswith(".") and p.endswith(".partial") for p in path.parts)
            if format_by_name(path) is not None and not is_unfinished:
                hidden.append(path)
        elif format == "auto" and format_by_name(path) is None:
            unknown.append(path)
        else:
            found.append(_as_file(path, format))
    outermost = [path for path in sorted(own) if own.isdisjoint(path.parents)]
    for passed_over, what, hint in (
        (outermost, "folders that bertpre made", ""),
        (hidden, "hidden files", ""),
        (
            unknown,
            "files whose names do not tell their format",
            "; --format txt reads every file as text",
        ),
    ):
        if passed_over:
            count, example = len(passed_over), passed_over[0]
            warn("%s: passed over %s: %d, such as %s%s", folder, what, count, example, hint)
    if not found:
        raise CorpusError(
            f"{folder}: no text files in this folder; expected {_EXPECTED_NAMES}",
            "state the --format, so that every file is read",
        )
    return found


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)
