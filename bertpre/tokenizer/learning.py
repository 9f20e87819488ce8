"""Choose the entries of a vocabulary: whole tokens by count, or characters and merged pieces."""

from collections.abc import Callable, Iterable, Iterator, Set
from typing import NamedTuple

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from bertpre.tokenizer.normalizing import CONTINUATION, LONGEST_WORD, SPECIAL_TOKENS
from bertpre.tokenizer.word_counts import SortedCounts, WordCounts

# Characters may fill half of the vocabulary. Beyond that, only as many are added as are needed to
# cover this share of the text, so that rare characters do not displace words.
_ALPHABET_SHARE = 0.5
_COVERAGE = 0.9999
_WORDS_IN_A_LINE = 500
# The trainer takes about 700 bytes per word, and rare words hardly matter: with 50,000 of the
# 65,000 distinct words in 16 MB of novels, 8,000 entries gave 0.01 % more pieces than with all.
_MOST_TRAINED_ON = 50_000
_TRAINED_ON_PER_ENTRY = 4


class ChosenTokens(NamedTuple):
    """The entries of a vocabulary after the special tokens, and what was left out."""

    tokens: list[str]
    left_out: list[tuple[str, int]]  # characters or whole tokens with counts, most frequent first


def choose_whole_tokens(
    words: SortedCounts, *, room: int, min_frequency: int, already: Set[str] = frozenset()
) -> ChosenTokens:
    """Choose the most frequent tokens, with ties in code point order.

    Args:
        words: tokens with counts.
        room: maximum number of entries.
        min_frequency: minimum occurrences of an entry.
        already: tokens that are already entries.
    """
    # A literal "[MASK]" in text must not get the id of the special token.
    taken = {*SPECIAL_TOKENS, *already}
    counted = [(word, count) for word, count in words if word not in taken]
    counted.sort(key=lambda item: -item[1])  # stable, so ties stay in code point order
    tokens = [word for word, count in counted[:room] if count >= min_frequency]
    return ChosenTokens(tokens, counted[len(tokens) :])


def choose_pieces(
    words: SortedCounts,
    totals: WordCounts,
    *,
    room: int,
    min_frequency: int,
    on_progress: Callable[[float], None] | None = None,
) -> ChosenTokens:
    """Choose characters by coverage, then merge pieces with the tokenizers library's trainer.

    The trainer breaks ties by id, but numbers "##" characters in hash order. Passing them as sorted
    special tokens fixes the ids and makes the result deterministic.

    Args:
        words: words with counts.
        totals: counts of characters.
        room: maximum number of entries.
        min_frequency: minimum occurrences of a merged pair.
        on_progress: called with the share of the text passed to the trainer.
    """
    ranked = sorted(totals.characters.items(), key=lambda item: (-item[1], item[0]))
    kept = _choose_alphabet(ranked, totals.inside, room)
    most = max(_MOST_TRAINED_ON, _TRAINED_ON_PER_ENTRY * room)
    counted = words.most_frequent(most)
    if on_progress is not None:
        counted = _report_share(counted, totals.total, on_progress)
    lines = _write_text(counted, kept)
    pieces = _train(lines, kept, totals.inside, room=room, min_frequency=min_frequency)
    left_out = []
    for character, count in ranked:
        if character in kept:
            continue
        forms = _forms_of(character, totals.inside)
        # Fill up the room with characters, after the merges so as not to affect them.
        if len(pieces) + len(forms) <= room:
            pieces += forms
        else:
            left_out.append((character, count))
    return ChosenTokens(pieces, left_out)


def measure(words: SortedCounts, tokens: list[str]) -> tuple[int, int]:
    """Encode all words with a WordPiece vocabulary.

    Returns:
        The number of words in the text that become [UNK], and the total number of pieces.
    """
    vocab = {token: id for id, token in enumerate(tokens)}
    model = models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD)
    unknown_id = vocab["[UNK]"]
    unknown = pieces = 0
    for word, count in words:
        found = model.tokenize(word)
        unknown += count * (found[0].id == unknown_id)
        pieces += count * len(found)
    return unknown, pieces


def _forms_of(character: str, inside: Set[str]) -> list[str]:
    return [character, CONTINUATION + character] if character in inside else [character]


def _choose_alphabet(ranked: list[tuple[str, int]], inside: Set[str], room: int) -> set[str]:
    wanted = _COVERAGE * sum(count for _, count in ranked)
    kept: set[str] = set()
    size = covered = 0
    for character, count in ranked:
        size += len(_forms_of(character, inside))
        if size > room or (size > room * _ALPHABET_SHARE and covered >= wanted):
            break
        kept.add(character)
        covered += count
    return kept


def _train(
    lines: Iterator[str], alphabet: set[str], inside: Set[str], *, room: int, min_frequency: int
) -> list[str]:
    trainer = trainers.WordPieceTrainer(
        vocab_size=room,
        min_frequency=min_frequency,
        special_tokens=[CONTINUATION + character for character in sorted(alphabet & inside)],
        initial_alphabet=sorted(alphabet),
        limit_alphabet=len(alphabet),
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.train_from_iterator(lines, trainer)
    by_id = sorted(backend.get_vocab(with_added_tokens=False).items(), key=lambda item: item[1])
    return [piece for piece, _ in by_id]


def _report_share(
    words: Iterator[tuple[str, int]], total: int, on_progress: Callable[[float], None]
) -> Iterator[tuple[str, int]]:
    done = 0
    for number, (word, count) in enumerate(words):
        done += count
        if number % 1000 == 0:
            on_progress(done / total)
        yield word, count


def _write_text(words: Iterable[tuple[str, int]], alphabet: set[str]) -> Iterator[str]:
    """Repeat each word as often as it occurs, since the trainer does its own counting.

    Single characters are skipped, as they have nothing to merge, and words with a character outside
    the alphabet, as they become [UNK] anyway.
    """
    line: list[str] = []
    for word, count in words:
        if len(word) == 1 or not alphabet.issuperset(word):
            continue
        while count > 0:
            times = min(count, _WORDS_IN_A_LINE - len(line))
            line += [word] * times
            count -= times
            if len(line) == _WORDS_IN_A_LINE:
                yield " ".join(line)
                line = []
    if line:
        yield " ".join(line)
