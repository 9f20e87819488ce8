"""Mistakes on tags shown in their sentences, as lines of a table."""

import re
from collections.abc import Iterable, Iterator, Sequence

from bertpre.finetuning.schemes import BARE_TYPE, Scheme, Span

MOST_SENTENCES = 200
CONTEXT_TOKENS = 12  # shown on each side of a mistake

_BREAKS = re.compile(r"[\t\n\r]")
_HAN_OR_KANA = re.compile("[\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]")


def mistake_lines(
    lines: Sequence[int],
    sentences: Sequence[Sequence[str]],
    true: Sequence[Sequence[str]],
    found: Sequence[Sequence[str]],
    scheme: Scheme,
) -> Iterator[str]:
    """Yield a header and a line for each of the first sentences with a mistake, without line ends.

    The columns are ``line``, ``true`` and ``found``. A sentence is shown with its entities, as in
    ``… in [LOC New York] …``, strictly read. Plain tags are shown at the wrong tokens alone, as in
    ``word/TAG``. Both columns show the same tokens: those around the mistakes.

    Args:
        lines: the line of the file on which each sentence starts, from 1.
        sentences: the tokens of each.
        true: the tag of each token.
        found: likewise.
        scheme: of the tags.
    """
    space = "" if are_characters(sentences) else " "
    yield "line\ttrue\tfound"
    num_shown = 0
    for line, tokens, *tags in zip(lines, sentences, true, found, strict=True):
        if num_shown == MOST_SENTENCES:
            return
        truly, given = _wrong_tags(*tags) if scheme.is_plain else map(scheme.spans, tags)
        wrong = set(truly) ^ set(given)
        if not wrong:
            continue
        num_shown += 1
        shown = _choose_tokens(wrong, [*truly, *given], len(tokens))
        texts = (_show(tokens, spans, shown, space, scheme) for spans in (truly, given))
        yield "\t".join([str(line), *texts])


def are_characters(sentences: Iterable[Sequence[str]]) -> bool:
    """Return whether most tokens are a single Han or kana character, so that no space is needed."""
    num_tokens = num_characters = 0
    for tokens in sentences:
        num_tokens += len(tokens)
        num_characters += sum(_HAN_OR_KANA.fullmatch(token) is not None for token in tokens)
    return 2 * num_characters > num_tokens


def _wrong_tags(true: Sequence[str], found: Sequence[str]) -> list[list[Span]]:
    """Return the tags of both sides where they differ, "O" among them."""
    places = [place for place, pair in enumerate(zip(true, found, strict=True)) if len({*pair}) > 1]
    return [[Span(tags[place], place, place + 1) for place in places] for tags in (true, found)]


def _choose_tokens(wrong: Iterable[Span], spans: Iterable[Span], length: int) -> list[bool]:
    """Return for each token whether it is shown; entities are shown whole."""
    shown = [False] * length
    for span in wrong:
        start, end = max(span.start - CONTEXT_TOKENS, 0), min(span.end + CONTEXT_TOKENS, length)
        shown[start:end] = [True] * (end - start)
    for span in spans:
        if any(shown[span.start : span.end]):
            shown[span.start : span.end] = [True] * (span.end - span.start)
    return shown


def _show(
    tokens: Sequence[str], spans: Iterable[Span], shown: Sequence[bool], space: str, scheme: Scheme
) -> str:
    starts = {span.start: span for span in spans}
    parts: list[str] = []
    place = 0
    while place < len(tokens):
        span = starts.get(place)
        end = place + 1 if span is None else span.end
        text = space.join(tokens[place:end])
        if not shown[place]:
            if parts[-1:] != ["…"]:
                parts.append("…")
        elif span is None:
            parts.append(text)
        elif scheme.is_plain:
            parts.append(f"{text}/{span.type}")
        else:
            type_ = "" if span.type == BARE_TYPE else f"{span.type} "
            parts.append(f"[{type_}{text}]")
        place = end
    return _BREAKS.sub(" ", space.join(parts))
