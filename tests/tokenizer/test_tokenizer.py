"""Text to ids: equal to the tokenizers library, and never a control id."""

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bertpre.tokenizer import piece_cache
from bertpre.tokenizer.folder import write_tokenizer_folder
from bertpre.tokenizer.normalizing import SPECIAL_TOKENS, Rules
from bertpre.tokenizer.tokenizer import Tokenizer

LETTERS = "abcdeéàİßΣσς5가한국어ガカйи中國।मेंกข"
PIECES = [*LETTERS, *(f"##{letter}" for letter in LETTERS), *"#[].,!-", "sep", "##ing", "abc"]
WHOLE = ["5900", "900", "007", "##ing", "a", "b", "ab", "é", "中國", "[sep]", "a,b"]

# Everything that is special to some step: spaces of all kinds, controls, combining marks, Han of
# several Unicode versions, punctuation, unassigned and private characters.
ODD = (
    " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x00\x85\xa0\xad\u1680\u180e\u2003\u200b\u200c\u200d\u200e"
    "\u200f\u2028\u2029\u202f\u2060\u3000\ufeff\ufffd\ue000\u0378\u0301\u0307\u0308\u093f\ufe0f"
    "\U000e0100\u3400\u4e00\u9fa5\u9fa6\u9fff\uf900\U00020000\U0002b920\U000323af、。“”’–€"
)
texts = st.text(st.sampled_from([*LETTERS, *ODD]) | st.characters(codec="utf-8"))


def make(folder: Path, rules: Rules) -> Tokenizer:
    tokens = WHOLE if rules.whole else list(dict.fromkeys(PIECES))
    write_tokenizer_folder(folder, [*SPECIAL_TOKENS, *tokens], rules)
    return Tokenizer.load(folder)


def library(folder: Path) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.encode_special_tokens = True
    return backend


def tokens_of(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.tokens[id] for id in tokenizer.encode(text).ids]


@pytest.fixture(scope="module")
def cased(tmp_path_factory) -> Tokenizer:
    rules = Rules(whole=False, lowercase=False, strip_accents=False)
    return make(tmp_path_factory.mktemp("cased"), rules)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Tokenizer:
    rules = Rules(whole=True, lowercase=False, strip_accents=False)
    return make(tmp_path_factory.mktemp("whole"), rules)


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("strip_accents", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_ids_are_those_of_the_library_for_the_whole_text(
    tmp_path_factory, lowercase, strip_accents, whole
):
    folder = tmp_path_factory.mktemp("tokenizer")
    rules = Rules(whole=whole, lowercase=lowercase, strip_accents=strip_accents)
    tokenizer, backend = make(folder, rules), library(folder)

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(texts)
    @example("a" * 250 + "中" + "b" * 101)
    @example("中\u0301国 \u0301a\x85b\u200fc")
    def check(text: str) -> None:
        expected = [
            tokenizer.unk_id if id in {0, 2, 3, 4} else id
            for id in backend.encode(text, add_special_tokens=False).ids
        ]
        assert tokenizer.encode(text).ids.tolist() == expected

    check()


@pytest.mark.parametrize("chinese", [False, True])
@pytest.mark.parametrize("lowercase", [False, True])
def test_ids_of_a_foreign_vocabulary_are_those_of_its_own_pipeline(
    tmp_path_factory, chinese, lowercase
):
    folder = tmp_path_factory.mktemp("foreign")
    tokens = [*SPECIAL_TOKENS, *dict.fromkeys(PIECES)]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    stated = {"do_lower_case": lowercase, "tokenize_chinese_chars": chinese}
    (folder / "tokenizer_config.json").write_text(json.dumps(stated))
    tokenizer = Tokenizer.load(folder)
    backend = tokenizers.BertWordPieceTokenizer(
        {token: id for id, token in enumerate(tokens)},
        lowercase=lowercase,
        handle_chinese_chars=chinese,
    )._tokenizer
    backend.encode_special_tokens = True

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(texts)
    def check(text: str) -> None:
        expected = backend.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text).ids.tolist() == expected

    check()


def test_an_unknown_foreign_pipeline_gets_the_whole_text(tmp_path):
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordLevel(
            {**{token: i for i, token in enumerate(SPECIAL_TOKENS)}, "a b": 5}, unk_token="[UNK]"
        )
    )
    backend.save(str(tmp_path / "tokenizer.json"))

    assert tokens_of(Tokenizer.load(tmp_path), "a b") == ["a b"]


def test_an_added_token_with_a_space_is_found(tmp_path):
    vocab = {token: id for id, token in enumerate([*SPECIAL_TOKENS, "a", "b"])}
    backend = tokenizers.BertWordPieceTokenizer(vocab)._tokenizer
    backend.add_tokens(["a b"])
    backend.save(str(tmp_path / "tokenizer.json"))

    tokenizer = Tokenizer.load(tmp_path)

    assert tokens_of(tokenizer, "b a b a") == ["b", "a b", "a"]


@pytest.mark.parametrize("text", ["a\x0bb", "a\x0cb", "a\x1cb", "a\x85b", "a\u200bb", "a\u200eb",
                                  "a\u200fb", "a\u2028b", "a\u3000b"])  # fmt: skip
def test_no_white_space_or_direction_mark_glues_two_words(cased, text):
    # Deviates from the library, which removes most of these: it would give "a", "##b".
    assert tokens_of(cased, text) == ["a", "b"]


@pytest.mark.parametrize("text", ["a\x00b", "a\xadb", "a\u200db", "a\ufeffb", "a\ufffdb"])
def test_invisible_characters_within_a_word_are_removed(cased, text):
    assert tokens_of(cased, text) == ["a", "##b"]


def test_a_run_over_100_characters_is_cut_not_unknown(cased):
    encoding = cased.encode("a" * 250)

    assert cased.unk_id not in encoding.ids
    assert np.flatnonzero(encoding.word_starts).tolist() == [0, 100, 200]


def test_a_run_of_any_length_is_cut_as_the_library_cuts_it(cased):
    backend = library(cased.files[0].parent)

    for text in ("abcde" * 25_000 + "a", "é" + "abcde" * 25_000, "abcde," * 25_000):
        expected = backend.encode(text, add_special_tokens=False).ids
        assert cased.encode(text).ids.tolist() == expected


@pytest.mark.parametrize("special", SPECIAL_TOKENS)
def test_a_control_token_in_text_is_text(cased, whole, special):
    assert not {0, 2, 3, 4} & set(cased.encode(f"a {special}{special} b").ids.tolist())
    assert whole.encode(f"a {special} b").ids.tolist() == [9, whole.unk_id, 10]


def test_hashes_in_text_are_not_continuations(cased, whole):
    assert tokens_of(cased, "##ing ##") == ["#", "#", "[UNK]", "#", "#"]
    assert tokens_of(whole, "##ing ##") == ["##ing", "[UNK]"]
    assert whole.encode("a ##ing").word_starts.tolist() == [True, True]


def test_words_start_where_no_continuation_is(cased):
    encoding = cased.encode("abc, abcing 中國")

    assert [cased.tokens[id] for id in encoding.ids] == ["abc", ",", "abc", "##ing", "中", "國"]
    assert encoding.word_starts.tolist() == [True, True, True, False, True, True]
    assert (encoding.ids.dtype, encoding.word_starts.dtype) == (np.int64, np.bool_)


@pytest.mark.parametrize("text", ["", "  ", "\x00\ufeff"])
def test_text_without_a_word_has_no_ids(cased, text):
    encoding = cased.encode(text)

    assert encoding.ids.shape == encoding.word_starts.shape == (0,)


@pytest.mark.parametrize(
    ("lowercase", "strip_accents", "same"),
    [
        # Cased: nothing merges but the two ways of typing one character.
        (False, False, ["á a\u0301", "한국어 \u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165"]),
        (True, False, ["É é", "É e\u0301", "Й й", "İ i\u0307", "Å å"]),
        (True, True, ["Hacía hacia", "möchte mochte", "й и", "ガ カ", "में म", "Việt viet"]),
        (False, True, ["hacía hacia", "É E"]),
    ],
)
def test_case_and_accents_merge_as_asked(tmp_path, lowercase, strip_accents, same):
    rules = Rules(whole=True, lowercase=lowercase, strip_accents=strip_accents)
    letters = ["hacia", "mochte", "viet", *"áéEeйиaаåカガम", "한국어", "i\u0307", "में"]
    write_tokenizer_folder(tmp_path, [*SPECIAL_TOKENS, *dict.fromkeys(letters)], rules)
    tokenizer = Tokenizer.load(tmp_path)

    for pair in same:
        first, second = tokenizer.encode(pair).ids
        assert first == second != tokenizer.unk_id


@pytest.mark.parametrize(
    "pair", ["hacía hacia", "möchte mochte", "й и", "ガ カ", "में म", "각 가", "ё е", "كِتاب كتاب"]
)
def test_lowercasing_alone_keeps_what_accents_tell_apart(tmp_path, pair):
    rules = Rules(whole=True, lowercase=True, strip_accents=False)
    write_tokenizer_folder(tmp_path, [*SPECIAL_TOKENS, *pair.split()], rules)

    assert Tokenizer.load(tmp_path).encode(pair).ids.tolist() == [5, 6]


def test_stripping_accents_leaves_korean_syllables_whole(tmp_path):
    rules = Rules(whole=False, lowercase=True, strip_accents=True)
    write_tokenizer_folder(tmp_path, [*SPECIAL_TOKENS, "한", "##국", "##어"], rules)

    assert Tokenizer.load(tmp_path).encode("한국어").ids.tolist() == [5, 6, 7]


def test_a_literal_mask_is_the_mask_only_where_asked(cased):
    ids = cased.encode_with_mask("a [MASK]b [mask]")

    assert [cased.tokens[id] for id in ids] == ["a", "[MASK]", "b", "[", "[UNK]", "]"]
    assert cased.encode_with_mask("[MASK]") == [cased.mask_id]


def test_decoding_joins_pieces_and_shows_special_tokens(cased, whole):
    ids = [cased.cls_id, *cased.encode("abcing a, ab").ids, cased.mask_id, cased.sep_id]

    assert cased.decode(ids) == "[CLS] abcing a , ab [MASK] [SEP]"
    assert whole.decode(whole.encode("5900 ##ing zzz").ids) == "5900 ##ing [UNK]"
    assert cased.decode([cased.tokens.index("##ing")]) == "##ing"


def test_the_cache_is_bounded_and_changes_nothing(cased, monkeypatch):
    monkeypatch.setattr(piece_cache, "_MOST_CHUNKS", 3)
    text = "a b c abc ab ba " + "a" * 40

    first = [cased.encode(text).ids.tolist() for _ in range(4)]

    assert first[1:] == first[:-1]
    assert len(cased._cache) <= 3 + len(text.split())


def test_ordinary_ids_leave_out_special_and_unused_rows(tmp_path):
    tokens = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[unused99]", "[SEP]", "[MASK]", "a", "##b"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens))
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')

    tokenizer = Tokenizer.load(tmp_path)

    assert tokenizer.ordinary_ids.tolist() == [7, 8]
    assert tokenizer.special_ids == {0, 2, 3, 5, 6}
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id) == (0, 2, 3)
    assert (tokenizer.sep_id, tokenizer.mask_id, tokenizer.vocab_size) == (5, 6, 9)


def test_further_special_tokens_of_a_foreign_folder_are_special(tmp_path):
    vocab = {token: id for id, token in enumerate([*SPECIAL_TOKENS, "a"])}
    backend = tokenizers.BertWordPieceTokenizer(vocab)._tokenizer
    backend.add_special_tokens(["[EOT]"])
    backend.save(str(tmp_path / "tokenizer.json"))

    tokenizer = Tokenizer.load(tmp_path)

    assert tokenizer.special_ids == {0, 1, 2, 3, 4, 6}
    assert tokenizer.ordinary_ids.tolist() == [5]


def test_the_fingerprint_follows_vocabulary_and_rules(tmp_path):
    def fingerprint(name: str, tokens: list[str], **rules: bool) -> str:
        folder = tmp_path / name
        folder.mkdir()
        all_rules = {"whole": False, "lowercase": False, "strip_accents": False, **rules}
        write_tokenizer_folder(folder, [*SPECIAL_TOKENS, *tokens], Rules(**all_rules))
        return Tokenizer.load(folder).fingerprint

    first = fingerprint("1", ["a", "b"])

    assert fingerprint("2", ["a", "b"]) == first
    others = {fingerprint("3", ["b", "a"]), fingerprint("4", ["a", "b"], lowercase=True)}
    assert len(others | {first}) == 3


def test_saved_files_load_as_the_same_tokenizer(cased, tmp_path):
    cased.save_files(tmp_path)

    copy = Tokenizer.load(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "tokenizer.json", "tokenizer_config.json", "vocab.txt",
    ]  # fmt: skip
    assert copy.fingerprint == cased.fingerprint
    assert copy.tokens == cased.tokens
