"""The error of an unusable row, whatever the form of its file."""

from pathlib import Path

from bertpre.errors import CorpusError


class RowError(CorpusError):
    """A row is unusable.

    Attributes:
        line: the first line of the row, from 1; in parquet, its number.
        problem: what is wrong, without the location.
    """

    line: int
    problem: str

    @classmethod
    def at(
        cls, path: Path, line: int, problem: str, hint: str | None = None, *, unit: str = "line"
    ) -> "RowError":
        """Create an error with the file and line of a problem."""
        # Not in __init__: errors are pickled with the arguments of the base class.
        error = cls(f"{path}: {unit} {line}: {problem}", hint)
        error.line, error.problem = line, problem
        return error
