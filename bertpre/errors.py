"""Errors that users see: what went wrong, where, and what to do about it.

The command line prints them without a traceback and exits with status 1.
"""


class BertpreError(Exception):
    """Base class of errors that are caused by the input, not by a bug.

    Args:
        message: what was found, where, and what was expected.
        hint: what the user can do, as an imperative sentence.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} — {self.hint}"


class ConfigError(BertpreError):
    """An option is unknown, of the wrong type, out of range, or contradicts a manifest."""


class CorpusError(BertpreError):
    """Text or a table cannot be read, or does not fit the options."""


class TokenizerError(BertpreError):
    """A vocabulary or tokenizer folder is incomplete or does not fit."""


class DataFormatError(BertpreError):
    """A folder written by an earlier stage is incomplete, damaged or of the wrong kind."""


class CheckpointError(BertpreError):
    """A checkpoint or run folder is incomplete or damaged, or does not fit the options."""


class TrainingError(BertpreError):
    """Training cannot continue: a non-finite loss, or a device that lacks a feature."""


class InteropError(BertpreError):
    """A checkpoint cannot be converted from or to another format."""


def shorten(text: str) -> str:
    """Quote a text for a message, cut to its first 40 characters."""
    return repr(text) if len(text) <= 40 else f"{text[:40]!r}…"
