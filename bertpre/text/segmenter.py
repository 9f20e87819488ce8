"""Words of text that is written without spaces, found by an optional package."""

import logging
from collections.abc import Callable

from bertpre.errors import ConfigError

# Cuts a text into words; one after another they are the text again.
Segmenter = Callable[[str], list[str]]


def load_segmenter(name: str) -> Segmenter | None:
    """Load a segmenter; "none" is none.

    Raises:
        ConfigError: its package is missing.
    """
    if name == "none":
        return None
    try:
        import jieba
    except ImportError as error:
        raise ConfigError(
            "make_data.word_segmenter jieba: the package jieba is not installed",
            "pip install 'bertpre[zh]'",
        ) from error
    jieba.setLogLevel(logging.WARNING)  # or it tells on stderr how long its dictionary took
    words: Segmenter = jieba.lcut
    return words
