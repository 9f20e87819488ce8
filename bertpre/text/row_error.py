"""What is wrong with one row of a table, in a form that many of them can be told together."""

from pathlib import Path

from bertpre.errors import CorpusError


class RowError(CorpusError):
    """A row that cannot be used.

    Attributes:
        line: where it starts, from 1; in parquet, its number.
        problem: what is wrong with it, without saying where.
    """

    line: int
    problem: str

    @classmethod
    def at(
        cls, path: Path, line: int, problem: str, hint: str | None = None, *, unit: str = "line"
    ) -> "RowError":
        """Say where in which file a problem is."""
        # No __init__ of its own: errors cross process borders by the arguments of their base.
        error = cls(f"{path}: {unit} {line}: {problem}", hint)
        error.line, error.problem = line, problem
        return error
