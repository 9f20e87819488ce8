"""build-vocab as a stage: the same bytes each time, an honest report, nothing silently lost."""

import gzip
import json
import os
import random
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from bertpre.artefacts import read_manifest
from bertpre.config.schema import BuildVocab, TextOptions
from bertpre.errors import ConfigError, CorpusError, TokenizerError
from bertpre.tokenizer import word_counts
from bertpre.tokenizer.normalizing import SPECIAL_TOKENS
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.tokenizer.vocabulary import VocabReport, build_vocab


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def build(folder: Path, content: str | bytes, *, name: str = "a.txt", **options) -> VocabReport:
    """Build folder/tokenizer from one file; look at it through `vocabulary` and `encode`."""
    path = write(folder / name, content)
    config = BuildVocab(**{"max_unknown_share": 1.0, **options})  # many are tiny on purpose
    return build_vocab([path], folder / "tokenizer", config, overwrite=True)


def vocabulary(folder: Path) -> list[str]:
    return (folder / "tokenizer" / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]


def encode(folder: Path, text: str) -> list[str]:
    tokenizer = Tokenizer.load(folder / "tokenizer")
    return [tokenizer.tokens[id] for id in tokenizer.encode(text).ids]


def invented_text(documents: int = 60) -> list[str]:
    """Sentences of invented words, of which many are equally frequent."""
    draw = random.Random(1)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(2500)]
    return [
        "\n".join(" ".join(draw.choices(words, k=12)).capitalize() + "." for _ in range(8))
        for _ in range(documents)
    ]


def test_special_tokens_come_first_and_the_size_is_a_cap(tmp_path):
    report = build(tmp_path, "\n\n".join(invented_text()), vocab_size=300)

    entries = vocabulary(tmp_path)
    assert entries[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert len(entries) == len(set(entries)) == report.vocab_size == 300
    assert report.unk_rate == 0


def test_fewer_entries_than_asked_for_are_reported_not_padded(tmp_path):
    report = build(tmp_path, "hug hug pug", vocab_size=5000)

    assert vocabulary(tmp_path)[5:] == ["##g", "##u", "g", "h", "p", "u", "##ug", "hug"]
    assert (report.vocab_size, report.vocab_size_asked) == (13, 5000)


def test_the_report_says_what_was_read_and_how_it_fits(tmp_path):
    report = build(tmp_path, "A cat, a cat.\nCats\n\nno.\n", vocab_size=50)

    assert (report.corpus.documents, report.corpus.sentences, report.corpus.characters) == (
        2,
        3,
        20,
    )
    assert (report.words, report.distinct_words) == (9, 7)
    entries = vocabulary(tmp_path)
    assert "cat" in entries
    # A cat , a cat . C##at##s n##o .: "at" is frequent enough to merge, the rest is not.
    assert "##at" in entries
    assert report.pieces_per_word == pytest.approx((6 + 3 + 3) / 9)
    assert report.unk_rate == 0


def test_the_manifest_holds_options_and_report_but_no_path(tmp_path):
    report = build(tmp_path, "a cat, a cat", vocab_size=50, lowercase=True)

    manifest = read_manifest(tmp_path / "tokenizer", "tokenizer")
    assert manifest["options"]["lowercase"] is True
    assert manifest["vocab_size"] == report.vocab_size
    assert manifest["report"]["words"] == 5
    assert manifest["report"]["corpus"]["documents"] == 1
    assert str(tmp_path) not in (tmp_path / "tokenizer" / "manifest.json").read_text()
    assert sorted(manifest["files"]) == ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]


def test_equal_runs_in_separate_processes_give_equal_bytes(tmp_path):
    write(tmp_path / "a.txt", "\n\n".join(invented_text()))
    script = (
        "import sys; from bertpre.tokenizer.vocabulary import build_vocab;"
        "from bertpre.config.schema import BuildVocab;"
        "build_vocab(['a.txt'], sys.argv[1], BuildVocab(vocab_size=1500))"
    )
    contents = []
    for seed, threads in (("0", "1"), ("1", "2"), ("2", "2")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads}
        subprocess.run(
            [sys.executable, "-c", script, seed], cwd=tmp_path, env=environment, check=True
        )
        files = sorted((tmp_path / seed).iterdir())
        contents.append([(path.name, path.read_bytes()) for path in files])

    assert contents[0] == contents[1] == contents[2]
    assert len((tmp_path / "0" / "vocab.txt").read_text().splitlines()) == 1500


def test_files_renamed_reordered_and_packed_give_the_same_vocabulary(tmp_path):
    documents = invented_text(20)
    config = BuildVocab(vocab_size=600, max_unknown_share=1.0)
    build(tmp_path, "\n\n".join(documents), vocab_size=600)
    for i, document in enumerate(reversed(documents)):
        write(tmp_path / "many" / f"{i % 3}" / f"{i * 7919 % 20:02}.txt.gz",
              gzip.compress(document.encode()))  # fmt: skip

    build_vocab([tmp_path / "many"], tmp_path / "other", config)

    for name in ("vocab.txt", "tokenizer.json", "manifest.json"):
        assert (tmp_path / "other" / name).read_bytes() == (
            tmp_path / "tokenizer" / name
        ).read_bytes()


def test_a_byte_order_mark_and_crlf_give_the_same_bytes(tmp_path):
    text = "one two\nthree two\n\nfour two\n\nfive"
    build(tmp_path / "unix", text)
    build(tmp_path / "dos", b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())

    for name in ("vocab.txt", "tokenizer.json", "manifest.json"):
        first, second = (tmp_path / twin / "tokenizer" / name for twin in ("unix", "dos"))
        assert first.read_bytes() == second.read_bytes()


def test_control_characters_never_enter_the_vocabulary(tmp_path):
    odd = "\x00\x85\u2028\u2029\x0b\x0c\x1c\u200b\u200f\xad\ufeff\ufffd\ue000"
    text = "".join(f"abc{character}def abc{character} {character}\n" for character in odd) * 3

    build(tmp_path, text)

    entries = "".join(vocabulary(tmp_path)[5:])
    assert {unicodedata.category(c)[0] for c in entries} <= {"L", "P"}
    assert "\ufffd" not in entries
    assert "\ue000" not in entries
    assert encode(tmp_path, "abc\x0bdef") == ["abc", "def"]


def test_1500_han_characters_seen_three_times_leave_nothing_unknown(tmp_path):
    characters = "".join(chr(0x4E00 + i) for i in range(1500))
    text = "\n".join(characters[i : i + 30] for i in range(0, 1500, 30)) + "\n"

    report = build(tmp_path, text * 3)

    assert (report.unk_rate, report.left_out) == (0, 0)
    assert vocabulary(tmp_path)[5:] == sorted(characters)
    assert encode(tmp_path, characters) == list(characters)


def test_han_beyond_the_cap_is_refused_unless_it_is_allowed(tmp_path):
    characters = "".join(chr(0x4E00 + i) for i in range(300))
    text = characters + characters[:40] * 2

    with pytest.raises(
        CorpusError, match=r"^67\.1% of the 380 words would become \[UNK\]"
    ) as refused:
        build(tmp_path, text, vocab_size=50, max_unknown_share=0.05)
    assert not (tmp_path / "tokenizer").exists()
    report = build(tmp_path, text, vocab_size=50, max_unknown_share=0.7)

    assert (
        f"255 characters have no entry, most frequently {characters[45]!r} 1, "
        in refused.value.message
    )
    assert refused.value.hint == "raise --vocab-size; or allow it with --max-unknown-share"

    assert report.vocab_size == 50
    assert report.left_out == 255
    assert report.left_out_most_frequent[0] == (characters[45], 1)
    assert len(report.left_out_most_frequent) == 10
    assert report.unk_rate == pytest.approx(255 / 380)


def test_lowercasing_alone_keeps_letters_apart(tmp_path):
    text = "hacía hacia Möchte mochte में 한국어 ガ カ й и كِتاب İ ß \u00e1 a\u0301 " * 5

    build(tmp_path, text, lowercase=True)

    entries = vocabulary(tmp_path)
    assert {"hacía", "hacia", "möchte", "mochte", "में", "한국어", "ガ", "カ", "й", "и", "ß"} < set(
        entries
    )
    assert "á" in entries
    assert not any(0x1100 <= ord(character) <= 0x11FF for character in "".join(entries))
    assert encode(tmp_path, "\u00e1 a\u0301 HACÍA İ") == ["á", "á", "hacía", "i\u0307"]


def test_stripping_accents_merges_letters(tmp_path):
    text = "hacía hacia möchte mochte ガ カ й и 한국어 Á a\u0301 " * 5

    build(tmp_path, text, lowercase=True, strip_accents=True)

    entries = vocabulary(tmp_path)
    assert {"hacia", "mochte", "カ", "и", "a", "한국어"} < set(entries)
    assert not {"í", "ö", "ガ", "й", "á"} & set("".join(entries))


def test_special_strings_in_text_are_text(tmp_path):
    text = "[CLS] [SEP] [PAD] [MASK] [UNK] [sep] ##ing ## word ##a a" + "\n"

    build(tmp_path, text * 5, lowercase=True)

    entries = vocabulary(tmp_path)
    assert entries[:5] == list(SPECIAL_TOKENS)
    assert not [entry for entry in entries[5:] if "[" in entry and len(entry) > 1]
    assert not [entry for entry in entries if entry.startswith("###")]
    assert encode(tmp_path, "[SEP] ##ing") == ["[", "sep", "]", "#", "#", "ing"]


def test_whole_tokens_keep_numbers_as_text(tmp_path):
    rows = ["5900 900 9001 0 007"] * 200 + ["0 007"]
    rows += [" ".join(["5900"] * 3000), " ".join(["900 77"] * 30_000)]
    table = "label\ttext\n" + "".join(f"1\t{row}\n" for row in rows)

    report = build(tmp_path, table, name="a.tsv", token_mode="whole", vocab_size=100)

    # 900: 200 + 30,000; 77: 30,000; 5900: 200 + 3,000; 0 and 007: 201 each; 9001: 200.
    assert vocabulary(tmp_path)[5:] == ["900", "77", "5900", "0", "007", "9001"]
    assert (report.corpus.documents, report.words) == (203, 64_002)
    assert encode(tmp_path, "5900 59 007 7 0") == ["5900", "[UNK]", "007", "[UNK]", "0"]
    assert report.pieces_per_word == 1


def test_whole_tokens_below_the_minimum_frequency_are_unknown(tmp_path):
    options = {"token_mode": "whole", "min_frequency": 3}

    with pytest.raises(
        CorpusError, match=r"2 tokens have no entry, most frequently 'b' 2, 'c' 1"
    ) as no:
        build(tmp_path, "a a a b b [MASK] c", max_unknown_share=0.05, **options)
    report = build(tmp_path, "a a a b b [MASK] c", **options)

    assert "raise --vocab-size or lower --min-frequency, or use --token-mode" in no.value.hint

    assert vocabulary(tmp_path)[5:] == ["a"]
    assert report.unk_rate == pytest.approx(4 / 7)
    assert report.left_out_most_frequent == (("b", 2), ("c", 1))


def test_whole_tokens_may_be_lowercased(tmp_path):
    build(tmp_path, "AbC abc É é [SEP]", token_mode="whole", lowercase=True, min_frequency=1)

    assert vocabulary(tmp_path)[5:] == ["abc", "é", "[sep]"]
    assert encode(tmp_path, "ABC É") == ["abc", "é"]


def test_words_over_100_characters_are_cut_and_counted(tmp_path):
    report = build(tmp_path, "acgt" * 100 + " " + "acgt" * 100)

    assert report.cut_words == 2
    assert report.unk_rate == 0


def test_words_forgotten_to_bound_memory_are_said(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(word_counts, "_MOST_WORDS", 3)

    report = build(tmp_path, "aa aa bb bb cc dd ee ff gg", vocab_size=6)

    assert (report.forgotten_words, report.distinct_words) == (1, 7)
    assert "1 occurrences of rare words (11.11 %) were dropped to save memory" in caplog.text


def test_gzip_and_jsonl_give_the_vocabulary_of_the_plain_text(tmp_path):
    lines = ["one two three", "two three", "three one\u2028two"]
    build(tmp_path / "plain", "\n\n".join(lines))
    build(tmp_path / "packed", gzip.compress("\n\n".join(lines).encode()), name="a.txt.gz")
    records = [json.dumps({"text": line}, ensure_ascii=False) for line in lines]
    bad = ["{oops", '{"id": 1}']
    report = build(tmp_path / "jsonl", "\n".join([*bad, *records]), name="a.jsonl")

    assert vocabulary(tmp_path / "packed") == vocabulary(tmp_path / "plain")
    assert vocabulary(tmp_path / "jsonl") == vocabulary(tmp_path / "plain")
    assert (report.corpus.documents, report.corpus.bad_records) == (3, 2)


def test_progress_covers_reading_and_training_in_percent(tmp_path):
    path = write(tmp_path / "a.txt", "a cat\n" * 50_000)
    seen: list[tuple[int, int | None]] = []

    build_vocab(
        [path],
        tmp_path / "tokenizer",
        BuildVocab(),
        on_progress=lambda done, total: seen.append((done, total)),
    )

    done = [percent for percent, total in seen]
    assert {total for _, total in seen} == {100}
    assert done == sorted(done)
    assert done[-1] == 100
    assert 55 in done


def test_a_ready_vocabulary_is_taken_as_it_is(tmp_path):
    entries = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "e", "##e", "b", "ab"]
    file = write(tmp_path / "v.txt", "\r\n".join(entries) + "\r\n")
    config = BuildVocab(vocab_file=str(file), lowercase=True, strip_accents=True)

    report = build_vocab([], tmp_path / "tokenizer", config)

    assert vocabulary(tmp_path) == entries
    assert (report.vocab_size, report.words, report.unk_rate) == (10, 0, None)
    assert encode(tmp_path, "ÉE AB [SEP]") == ["e", "##e", "ab", "[UNK]", "[UNK]", "[UNK]"]
    tokenizer = Tokenizer.load(tmp_path / "tokenizer")
    assert (tokenizer.unk_id, tokenizer.mask_id) == (2, 5)
    assert 1 not in tokenizer.ordinary_ids
    stored = (tmp_path / "tokenizer" / "manifest.json").read_text()
    assert str(tmp_path) not in stored
    assert "v.txt" not in stored


def test_text_given_with_a_ready_vocabulary_is_measured(tmp_path):
    file = write(tmp_path / "v.txt", "\n".join([*SPECIAL_TOKENS, "a", "##b", "b"]))

    with pytest.raises(CorpusError) as refused:
        build(tmp_path, "ab ab b cd c", vocab_file=str(file), max_unknown_share=0.39)
    report = build(tmp_path, "ab ab b cd c", vocab_file=str(file), max_unknown_share=0.4)

    assert "use a vocabulary for this kind of text, with the right casing" in refused.value.hint
    assert vocabulary(tmp_path)[5:] == ["a", "##b", "b"]
    assert (report.unk_rate, report.pieces_per_word) == (2 / 5, (2 + 2 + 1 + 1 + 1) / 5)
    assert report.left_out_most_frequent == (("c", 2), ("d", 1))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("\ufeff[PAD]\n", "line 1: found a byte order mark"),
        ("[PAD]\n\n[UNK]\n", "line 2: blank"),
        ("[PAD]\na\n[UNK]\na\n", "line 4: 'a' repeats line 2"),
        ("[PAD]\n[UNK]\n[CLS]\n[SEP]\n", r"\[MASK\] missing among its 4 lines"),
        ('{"model": {}}\n', "line 1: expected one entry per line, found JSON"),
    ],
)
def test_a_bad_ready_vocabulary_is_refused_with_its_line(tmp_path, content, message):
    file = write(tmp_path / "v.txt", content)

    with pytest.raises(TokenizerError, match=f"v.txt: {message}"):
        build_vocab([], tmp_path / "tokenizer", BuildVocab(vocab_file=str(file)))

    assert [path.name for path in tmp_path.iterdir()] == ["v.txt"]


def test_a_missing_ready_vocabulary_and_no_input_at_all_are_refused(tmp_path):
    with pytest.raises(TokenizerError, match="cannot be read"):
        build_vocab([], tmp_path / "t", BuildVocab(vocab_file=str(tmp_path / "none.txt")))
    with pytest.raises(ConfigError, match="no text to build a vocabulary from"):
        build_vocab([], tmp_path / "t", BuildVocab())


def test_kmers_are_entries_by_their_count(tmp_path):
    report = build(tmp_path, "ACGTACG\nacgNN\n", token_mode="kmer:3", lowercase=True)

    assert vocabulary(tmp_path)[5:] == ["acg"]
    assert (report.words, report.distinct_words) == (8, 6)
    assert encode(tmp_path, "ACGT acg") == ["acg", "[UNK]", "acg"]


def test_extra_tokens_are_entries_and_stay_whole(tmp_path):
    extra = write(tmp_path / "e.txt", "C++\nCOVID-19\n新冠\nโควิด\nzzz\n")
    text = "the c++ code of covid-19, 感染新冠了 และโควิดก็ 19 covid\n" * 3

    build(tmp_path, text, extra_tokens=str(extra), lowercase=True)

    entries = vocabulary(tmp_path)
    assert entries[5:10] == ["c++", "covid-19", "新冠", "โควิด", "zzz"]
    assert len(entries) == len(set(entries))
    found = encode(tmp_path, "The C++, xc++ covid-19 zzz 感染新冠了 และโควิดก็")
    assert found[:3] == ["the", "c++", ","]
    assert found[found.index("+") : found.index("zzz") + 1] == ["+", "+", "covid-19", "zzz"]
    assert found[found.index("感") : found.index("感") + 4] == ["感", "染", "新冠", "了"]
    assert "โควิด" in found
    assert str(tmp_path) not in (tmp_path / "tokenizer" / "manifest.json").read_text()


def test_extra_whole_tokens_count_towards_the_cap(tmp_path):
    extra = write(tmp_path / "e.txt", "7\n[x]\n")

    build(tmp_path, "1 1 1 2 2 7 3", token_mode="whole", vocab_size=8, extra_tokens=str(extra))

    assert vocabulary(tmp_path)[5:] == ["7", "[x]", "1"]
    with pytest.raises(ConfigError, match="2 extra tokens leave no room in a vocabulary of 7"):
        build(tmp_path, "1", vocab_size=7, extra_tokens=str(extra))


@pytest.mark.parametrize("content", ["", " \t\n\u3000\n\n  \n"])
def test_empty_input_is_refused_and_leaves_nothing(tmp_path, content):
    with pytest.raises(CorpusError, match="no text in the input"):
        build(tmp_path, content)

    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_text_of_nothing_but_control_characters_is_refused(tmp_path):
    with pytest.raises(CorpusError) as caught:
        build(tmp_path, "\x00\x00\n\ufeff\x07\n")

    assert caught.value.message.startswith(
        "no words in the input: normalising removes all of its 4 characters"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_an_existing_output_is_refused_before_the_text_is_read(tmp_path):
    build(tmp_path, "a cat")
    before = (tmp_path / "tokenizer" / "manifest.json").read_bytes()

    with pytest.raises(ConfigError, match="already exists — choose another --output"):
        build_vocab([tmp_path / "none.txt"], tmp_path / "tokenizer", BuildVocab())

    assert (tmp_path / "tokenizer" / "manifest.json").read_bytes() == before


def test_a_column_and_no_header_are_obeyed(tmp_path):
    build(tmp_path, "x,hello hello\ny,hello\n", name="a.csv",
          text=TextOptions(header=False, text_column=2))  # fmt: skip

    assert "hello" in vocabulary(tmp_path)
    assert not {"x", "y"} & set(vocabulary(tmp_path))


@pytest.mark.parametrize("name", ["a.conll", "a.bio.gz"])
def test_a_column_file_gives_the_vocabulary_of_its_sentences(tmp_path, name):
    sentences = [line.split() for text in invented_text() for line in text.split("\n")]
    columns = "\n\n".join("\n".join(f"{word}\tO" for word in words) for words in sentences)
    content = gzip.compress(columns.encode()) if name.endswith(".gz") else columns

    build(tmp_path / "columns", content, name=name, vocab_size=300)
    build(tmp_path / "text", "\n".join(map(" ".join, sentences)), vocab_size=300)

    assert vocabulary(tmp_path / "columns") == vocabulary(tmp_path / "text")
    assert len(vocabulary(tmp_path / "text")) == 300
