"""Which entries a vocabulary gets: whole tokens by count, or characters and merged pieces."""

from collections.abc import Callable, Iterable, Iterator, Set
from typing import NamedTuple

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from bertpre.tokenizer.normalizing import CONTINUATION, LONGEST_WORD, SPECIAL_TOKENS
from bertpre.tokenizer.word_counts import SortedCounts, WordCounts

# Characters may fill half of the vocabulary; beyond that, only those that make up this share of the
# text, so that one-off characters of a large corpus do not crowd out its words.
_ALPHABET_SHARE = 0.5
_COVERAGE = 0.9999
_WORDS_IN_A_LINE = 500
# The trainer takes some 700 bytes a word, and the rare ones do not move it: of the 65,000 different
# words of 16 MB of novels, 50,000 gave 8,000 entries with 0.01 % more pieces than all.
_MOST_TRAINED_ON = 50_000
_TRAINED_ON_PER_ENTRY = 4


class ChosenTokens(NamedTuple):
    """What a vocabulary holds after the special tokens, and what it does not."""

    tokens: list[str]
    left_out: list[tuple[str, int]]  # characters or whole tokens with their counts, frequent first


def choose_whole_tokens(
    words: SortedCounts, *, room: int, min_frequency: int, already: Set[str] = frozenset()
) -> ChosenTokens:
    """Take the most frequent tokens, ties by code point.

    Args:
        words: tokens with their counts.
        room: most entries.
        min_frequency: fewest occurrences of an entry.
        already: tokens that are entries without this.
    """
    # A literal "[MASK]" in text is no entry: its id would be the control token's.
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
    """Take characters by coverage, then the merges of the tokenizers library's trainer.

    The trainer breaks ties by id, and gives "##" characters their ids in hash order. Handing it
    these as special tokens, sorted, fixes the ids and so the result. Only the list of pieces is
    taken from it.

    Args:
        words: words with their counts.
        totals: counts of characters.
        room: most entries.
        min_frequency: fewest occurrences of a merged pair.
        on_progress: told the share of the text that the trainer was given.
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
        # Nothing is left out while there is room; after the merges, so that it does not move them.
        if len(pieces) + len(forms) <= room:
            pieces += forms
        else:
            left_out.append((character, count))
    return ChosenTokens(pieces, left_out)


def measure(words: SortedCounts, tokens: list[str]) -> tuple[int, int]:
    """Encode each word with a finished WordPiece vocabulary.

    Returns:
        Running words that become [UNK], and pieces, over all running words.
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
    """Write each word as often as it occurs, since the trainer counts for itself.

    A single character has nothing to merge, and a word with a character that was left out is
    [UNK] whatever pieces there are.
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
