"""Tokenizer folders: what is accepted, and the errors that name the file and line."""

import json
from pathlib import Path

import pytest
import tokenizers

from bertpre.artefacts import write_manifest
from bertpre.errors import TokenizerError
from bertpre.tokenizer.folder import (
    read_vocab,
    state_longest_input,
    write_tokenizer_folder,
)
from bertpre.tokenizer.normalizing import SPECIAL_TOKENS, Rules
from bertpre.tokenizer.tokenizer import Tokenizer

SPECIAL_LINES = "".join(f"{token}\n" for token in SPECIAL_TOKENS)
CASED = '{"do_lower_case": false}'


def refusal(folder: Path) -> str:
    with pytest.raises(TokenizerError) as caught:
        Tokenizer.load(folder)
    return str(caught.value)


def write_vocab(folder: Path, content: str | bytes) -> Path:
    path = folder / "vocab.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    (folder / "tokenizer_config.json").write_text(CASED)
    return path


@pytest.fixture
def ours(tmp_path) -> Path:
    rules = Rules(whole=False, lowercase=True, strip_accents=False)
    write_tokenizer_folder(tmp_path, [*SPECIAL_TOKENS, "a", "##a"], rules)
    return tmp_path


def test_settings_name_the_class_and_inputs_that_transformers_needs(ours):
    stored = json.loads((ours / "tokenizer_config.json").read_text())

    assert stored == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "model_max_length": 512,
        "do_lower_case": True,
        "strip_accents": False,
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    assert (ours / "vocab.txt").read_bytes() == (SPECIAL_LINES + "a\n##a\n").encode()


def test_a_missing_folder_is_an_error(tmp_path):
    assert refusal(tmp_path / "none") == (
        f"{tmp_path / 'none'}: there is no such folder; expected a tokenizer folder — "
        "make one with `bertpre build-vocab`"
    )


def test_a_folder_without_a_vocabulary_is_an_error(tmp_path):
    assert "but it has neither tokenizer.json nor vocab.txt — make one" in refusal(tmp_path)


def test_crlf_lines_and_a_missing_last_newline_are_fine(tmp_path):
    write_vocab(tmp_path, SPECIAL_LINES.replace("\n", "\r\n") + "a\r\n##b")

    assert Tokenizer.load(tmp_path).tokens[5:] == ("a", "##b")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"\ufeff{SPECIAL_LINES}", "line 1: found a byte order mark"),
        (f"{SPECIAL_LINES}a\n\nb\n", "line 7: blank; expected one entry per line"),
        (f"{SPECIAL_LINES}a\n\n", "line 7: blank"),
        (f"{SPECIAL_LINES}a\n \t\n", "line 7: blank"),
        ("", "line 1: blank"),
        (f"{SPECIAL_LINES}a\nb\na\n", "line 8: 'a' repeats line 6"),
        ("[PAD]\n[UNK]\n[CLS]\na\n", "[SEP], [MASK] missing among its 4 lines — add each"),
        ('{"version": "1.0", "model": 1}', "line 1: expected one entry per line, found JSON: "),
        (SPECIAL_LINES.encode() + b"a\n\xff\n", "line 7: expected UTF-8, found byte 0xFF"),
    ],
)
def test_a_faulty_vocab_file_is_refused_with_its_line(tmp_path, content, message):
    path = write_vocab(tmp_path, content)

    assert f"{path}: {message}" in refusal(tmp_path)


def test_an_entry_of_wide_white_space_or_a_brace_is_no_fault(tmp_path):
    path = write_vocab(tmp_path, f"{{\n{SPECIAL_LINES}\u3000\n\u2028\n")

    assert read_vocab(path)[6:] == ["\u3000", "\u2028"]


def test_without_settings_text_is_lowercased_and_this_is_said(tmp_path, caplog):
    write_vocab(tmp_path, SPECIAL_LINES + "a\n")
    (tmp_path / "tokenizer_config.json").unlink()

    assert Tokenizer.load(tmp_path).encode("Á").ids.tolist() == [5]
    assert "no do_lower_case in tokenizer_config.json; text is lowercased" in caplog.text


def test_special_tokens_may_have_other_names(tmp_path):
    names = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
    write_vocab(tmp_path, "".join(f"{name}\n" for name in names.values()) + "a\n")
    stated = {f"{name}_token": {"content": token} for name, token in names.items()}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True} | stated))

    tokenizer = Tokenizer.load(tmp_path)

    assert tokenizer.encode("A z").ids.tolist() == [5, 1]
    assert (tokenizer.mask_id, tokenizer.special_ids) == (4, {0, 1, 2, 3, 4})


def test_bert_settings_override_the_stored_normalizer(tmp_path):
    vocab = {token: id for id, token in enumerate([*SPECIAL_TOKENS, "a", "A"])}
    backend = tokenizers.BertWordPieceTokenizer(vocab, lowercase=True)
    backend.save(str(tmp_path / "tokenizer.json"))

    assert Tokenizer.load(tmp_path).encode("A").ids.tolist() == [5]
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert Tokenizer.load(tmp_path).encode("A").ids.tolist() == [6]


def test_files_of_two_tokenizers_are_refused(ours):
    (ours / "vocab.txt").write_text(SPECIAL_LINES + "a\n##b\n")

    assert "vocab.txt: line 7: found '##b', but tokenizer.json has '##a' for" in refusal(ours)


def test_a_vocab_file_with_more_rows_is_refused(ours):
    (ours / "vocab.txt").write_text(SPECIAL_LINES + "a\n##a\nb\n")

    assert "vocab.txt: line 8: found 'b', but tokenizer.json has None for this id" in refusal(ours)


def test_a_row_count_that_differs_from_the_manifest_is_refused(ours):
    write_manifest(ours, "tokenizer", {"vocab_size": 8})

    assert "7 entries, but manifest.json says 8 — recreate it" in refusal(ours)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{oops", "tokenizer.json: not valid JSON ("),
        ("[]", "tokenizer.json: expected a JSON object, found list"),
        ("{}", "tokenizer.json: expected a BERT tokenizer (WordPiece or WordLevel), "
         "found no model"),
        ('{"model": {"type": "BPE"}}', "(WordPiece or WordLevel), found BPE"),
        ('{"model": {"type": "WordPiece"}}', "rejected by the tokenizers library ("),
    ],
)  # fmt: skip
def test_a_damaged_or_foreign_tokenizer_file_is_refused(ours, content, message):
    (ours / "tokenizer.json").write_text(content)

    assert message in refusal(ours)


def test_damaged_settings_are_refused(ours):
    (ours / "tokenizer_config.json").write_text("{")

    assert "tokenizer_config.json: not valid JSON (" in refusal(ours)


def test_a_tokenizer_file_without_a_special_token_is_refused(tmp_path):
    vocab = {token: id for id, token in enumerate([*SPECIAL_TOKENS[:4], "a"])}
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab, unk_token="[UNK]"))
    backend.save(str(tmp_path / "tokenizer.json"))

    assert "[MASK] missing in the vocabulary of 5 entries" in refusal(tmp_path)


def test_ids_with_a_hole_are_refused(tmp_path):
    vocab = {token: id for id, token in enumerate(SPECIAL_TOKENS)} | {"a": 7}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="[UNK]"))
    backend.save(str(tmp_path / "tokenizer.json"))

    assert "tokenizer.json: expected ids from 0 to 5 for the 6 entries" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("stated", "is_trained_here", "expected"),
    [(256, False, 256), (1024, False, 512), (None, False, 512), (128, True, 512)],
)
def test_the_longest_input_is_what_the_model_has_seen(tmp_path, stated, is_trained_here, expected):
    path = tmp_path / "tokenizer_config.json"
    if stated is not None:
        path.write_text(json.dumps({"model_max_length": stated, "do_lower_case": True}))

    state_longest_input(tmp_path, 512, is_trained_here=is_trained_here)

    found = json.loads(path.read_text())
    assert found.pop("model_max_length") == expected
    assert found == ({} if stated is None else {"do_lower_case": True})


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_is_a_fault_of_the_system_that_is_reported_as_one(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").symlink_to("/dev/full")
    rules = Rules(whole=False, lowercase=False, strip_accents=False)

    with pytest.raises(OSError, match="No space left on device"):
        write_tokenizer_folder(tmp_path, [*SPECIAL_TOKENS, "a"], rules)
