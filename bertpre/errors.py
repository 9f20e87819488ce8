"""The errors that users see: what went wrong, where, and what to do about it.

Every module may raise these; the command line prints them without a traceback and exits with 1.
"""


class BertpreError(Exception):
    """Base of all errors that are the input's fault rather than the program's.

    Args:
        message: what was found, where, and what was expected.
        hint: what the user can do now, as an imperative sentence.
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
    """Text or a table cannot be read, or has the wrong shape for what is asked of it."""


class TokenizerError(BertpreError):
    """A vocabulary or tokenizer folder is missing something or does not fit."""


class DataFormatError(BertpreError):
    """A folder written by an earlier stage is incomplete, damaged, or of another kind."""


class CheckpointError(BertpreError):
    """A checkpoint or run folder is incomplete, damaged, or does not fit the request."""


class TrainingError(BertpreError):
    """Training cannot go on: a non-finite loss, or a device that cannot do what is asked."""


class InteropError(BertpreError):
    """A foreign checkpoint cannot be read or written."""


def shorten(text: str) -> str:
    """Quote a text in a message, or its first 40 characters."""
    return repr(text) if len(text) <= 40 else f"{text[:40]!r}…"
