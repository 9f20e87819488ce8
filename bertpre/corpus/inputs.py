"""Find the input files of a command, and their formats by name."""

import glob
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from bertpre.artefacts import MANIFEST, is_artefact
from bertpre.corpus.files import STDIN
from bertpre.errors import CorpusError

log = logging.getLogger(__name__)

TableFormat = Literal["jsonl", "csv", "tsv", "parquet", "conll"]
FileFormat = Literal["txt", "jsonl", "csv", "tsv", "parquet", "conll"]

_FORMATS: dict[str, FileFormat] = {
    ".txt": "txt",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".conll": "conll",
    ".bio": "conll",
    ".iob": "conll",
}
COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
_EXPECTED_NAMES = (
    "names that end in .txt, .jsonl, .csv, .tsv, .parquet or .conll (optionally followed by .gz, "
    ".bz2, .xz or .zst)"
)


class InputFile(NamedTuple):
    """A file to read."""

    path: Path
    format: FileFormat

    def size(self) -> int | None:
        """Return the bytes on disk; None for a pipe."""
        # Standard input may be a file, but it cannot be rewound.
        return self.path.stat().st_size if self.path != STDIN and self.path.is_file() else None


def format_by_name(path: Path) -> FileFormat | None:
    """Return a file's format by its suffix, ignoring ``.gz`` and the like; None if unknown."""
    return _FORMATS.get(_suffix(path))


def table_format(path: Path, asked: Literal["auto"] | TableFormat) -> TableFormat:
    """Return the format of a table.

    Raises:
        CorpusError: ``asked`` is "auto" and the file name does not show the format.
    """
    if path != STDIN and path.is_dir():
        raise CorpusError(f"{path}: is a folder; expected a file", "name a file in it")
    if asked != "auto":
        return asked
    found = format_by_name(path)
    if found is None or found == "txt":
        raise CorpusError(
            f"{path}: the name does not show the format of the table; expected a name that ends in "
            ".tsv, .csv, .jsonl, .conll or .parquet (.gz may follow all but the last)",
            "rename it, or set the format",
        )
    return found


def _suffix(path: Path) -> str:
    name = Path(path.name.lower())
    return Path(name.stem if name.suffix in COMPRESSIONS else name).suffix


def find_files(
    inputs: Sequence[str | Path],
    format: Literal["auto"] | FileFormat = "auto",
    *,
    is_quiet: bool = False,
) -> list[InputFile]:
    """Find all input files, in the order of the inputs.

    Args:
        inputs: files; folders, searched recursively in sorted order, except artefacts inside them;
            patterns such as ``part-*.txt``, in sorted order; or "-", standard input.
        format: the format of all files; auto: by name, txt if unknown.
        is_quiet: do not log warnings, as on a second pass.

    Raises:
        TypeError: ``inputs`` is a single name instead of a list.
        CorpusError: an input is missing, a folder has no file of a known format, or a name ends in
            .json, which is ambiguous.
    """
    if isinstance(inputs, str | Path):
        raise TypeError(
            f"inputs: expected a list of files and folders, found the single name {inputs!r}"
        )
    files = [file for given in inputs for file in _find_input(given, format, is_quiet=is_quiet)]
    seen: set[Path] = set()
    for file in files:
        if file.path == STDIN:
            if STDIN in seen:
                raise CorpusError("-: standard input can only be read once", "name it once")
            seen.add(STDIN)
            continue
        real = file.path.resolve()
        if real in seen and not is_quiet:
            log.warning("%s: given twice as input, so it is read twice", file.path)
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
            f"{path}: .json may mean one object per line or one large value",
            "pass --format jsonl if each line is an object; otherwise convert it to such lines",
        )
    return InputFile(path, format_by_name(path) or "txt")


def _find_in_folder(
    folder: Path, format: Literal["auto"] | FileFormat, *, is_quiet: bool
) -> list[InputFile]:
    found, unknown, hidden = [], [], []
    paths = sorted(folder.rglob("*"))
    # A tokenizer folder beside the text has a vocab.txt, which is not part of the text.
    own = {
        path.parent
        for path in paths
        if path.name == MANIFEST and not _is_hidden(path, folder) and is_artefact(path.parent)
    }
    if folder in own:
        raise CorpusError(
            f"{folder}: a folder made by bertpre, not text",
            "name the text; for parts of a corpus pass --merge, for a data folder --tokens",
        )
    warn = log.debug if is_quiet else log.warning
    for path in paths:
        if path.is_symlink() and not path.is_file():
            # Following links could lead to a cycle.
            warn("%s: skipped, a link to a folder or to nothing; name its target as input", path)
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
        (outermost, "folders made by bertpre", ""),
        (hidden, "hidden files", ""),
        (
            unknown,
            "files of unknown format",
            "; --format txt reads every file as text",
        ),
    ):
        if passed_over:
            count, example = len(passed_over), passed_over[0]
            warn("%s: skipped %s: %d, such as %s%s", folder, what, count, example, hint)
    if not found:
        raise CorpusError(
            f"{folder}: no text files in this folder; expected {_EXPECTED_NAMES}",
            "set --format to read every file",
        )
    return found


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)
