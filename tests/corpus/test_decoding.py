"""Encodings, and bad bytes that are named or counted."""

from pathlib import Path

import pytest

from bertpre.corpus.decoding import Decoding
from bertpre.corpus.files import read_lines
from bertpre.errors import ConfigError, CorpusError

CHINESE = "小镇的图书馆在河边。\n每天早上八点开门。\n"


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path: Path, encoding="utf-8", policy="error", **options) -> list[str]:
    decoding = Decoding(encoding=encoding, on_bad_bytes=policy)
    return list(read_lines(path, decoding=decoding, **options))


def refused(path: Path, **options) -> CorpusError:
    with pytest.raises(CorpusError) as caught:
        read(path, **options)
    return caught.value


def test_a_byte_order_mark_is_removed_at_the_start_only(tmp_path):
    path = write(tmp_path / "bom.txt", "\ufeffa\n\ufeffb\n")

    assert list(read_lines(path)) == ["a\n", "\ufeffb\n"]


def test_bytes_that_are_not_utf8_are_located(tmp_path):
    path = write(tmp_path / "bad.txt", b"good\nab\xed\xa0\x80\xff\ngood\n")

    with pytest.raises(CorpusError) as caught:
        list(read_lines(path))

    assert caught.value.message == (
        f"{path}: line 2, byte 3 of the line: expected UTF-8, found 0xED"
    )
    assert caught.value.hint == (
        "set --encoding to that of the text; or replace and count invalid bytes with "
        "--on-bad-bytes replace"
    )


@pytest.mark.parametrize(
    "encoding", ["gb18030", "utf-16", "utf-16-be", "utf-32", "big5", "utf-8-sig", "GBK"]
)
def test_any_encoding_gives_the_lines_of_the_utf8_twin(tmp_path, encoding):
    text = "小河在左\r\nU+0A0A: end\n\n三" * 9
    path = write(tmp_path / "a.txt", text.encode(encoding))

    assert read(path, encoding) == text.split("\n") or "".join(read(path, encoding)) == text
    assert len(read(path, encoding)) == text.count("\n") + 1


def test_utf16_is_cut_at_newlines_not_at_their_bytes(tmp_path):
    path = write(tmp_path / "a.txt", "\u0a0a\u0a00\n\u000a\u010ab".encode("utf-16-le"))

    assert read(path, "utf-16-le") == ["\u0a0a\u0a00\n", "\n", "\u010ab"]


def test_utf16_that_is_cut_or_wrong_is_located_or_mended(tmp_path):
    path = write(tmp_path / "a.txt", "ab\n".encode("utf-16-le") + b"\x00\xdcc\x00\n\x00x")
    bad: list[int] = []

    assert (
        ": byte 7 of the text: expected UTF-16-LE, found 0x00"
        in refused(path, encoding="utf-16-le").message
    )
    assert read(path, "utf-16-le", "replace", on_bad_bytes=bad.append) == [
        "ab\n",
        "\ufffdc\n",
        "\ufffd",
    ]
    assert read(path, "utf-16-le", "skip") == ["ab\n", "c\n"]
    assert sum(bad) == 2


def test_an_encoding_that_does_not_exist_is_refused_at_once():
    with pytest.raises(
        ConfigError, match="--encoding gb2000: there is no such text encoding — use"
    ):
        Decoding(encoding="gb2000")


@pytest.mark.parametrize(("policy", "line"), [("replace", "ab\ufffdc\ufffd\n"), ("skip", "abc\n")])
def test_t07_bad_bytes_are_replaced_or_skipped_and_counted(tmp_path, policy, line):
    path = write(tmp_path / "bad.txt", b"good\nab\xed\xa0\x80c\xff\ngood \xef\xbf\xbd\n")
    bad: list[int] = []

    lines = read(path, policy=policy, on_bad_bytes=bad.append)

    assert lines == ["good\n", line, "good \ufffd\n"]
    assert bad == [2]


def test_bad_bytes_of_another_encoding_are_mended_too(tmp_path):
    path = write(tmp_path / "a.txt", "好".encode("gb18030") + b"\xff\n")

    assert read(path, "gb18030", "replace") == ["好\ufffd\n"]
    assert read(path, "gb18030", "skip") == ["好\n"]
    assert "expected GB18030, found 0xFF" in refused(path, encoding="gb18030").message


def test_t08_chinese_in_gb18030_is_recognised_in_the_error(tmp_path):
    path = write(tmp_path / "gbk.txt", CHINESE.encode("gb18030"))

    error = refused(path)

    assert "line 1, byte 3 of the line: expected UTF-8, found 0xD5" in error.message
    assert "most likely --encoding gb18030;" in error.hint
    assert "".join(read(path, "gb18030")) == CHINESE


@pytest.mark.parametrize("text", ["été à Genève", "naïve café", "Größe und Maß"])
def test_western_text_is_not_taken_for_chinese(tmp_path, text):
    assert "gb18030" not in refused(write(tmp_path / "a.txt", text.encode("cp1252"))).hint


def test_utf16_is_recognised_by_its_mark(tmp_path):
    path = write(tmp_path / "a.txt", "abc\n".encode("utf-16"))

    assert "most likely --encoding utf-16;" in refused(path).hint


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_a_mark_is_noticed(tmp_path, encoding):
    path = tmp_path / "a.txt"
    path.write_bytes("Plain letters, a line of them.\n".encode(encoding))

    with pytest.raises(CorpusError, match="expected UTF-8, found 31 NUL bytes among") as error:
        list(read_lines(path))
    assert error.value.hint.endswith(f"most likely --encoding {encoding}")
    with pytest.raises(CorpusError, match="expected UTF-16: UTF-16 stream does not start with BOM"):
        list(read_lines(path, decoding=Decoding(encoding="utf-16")))

    assert list(read_lines(path, decoding=Decoding(encoding=encoding))) == [
        "Plain letters, a line of them.\n"
    ]


def test_utf32_is_told_from_utf16_by_its_mark(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("letters\n".encode("utf-32"))

    with pytest.raises(CorpusError) as error:
        list(read_lines(path))

    assert "most likely --encoding utf-32" in error.value.hint


@pytest.mark.parametrize("name", ["punycode", "undefined", "idna", "rot13", "klingon"])
def test_what_is_no_encoding_of_texts_is_refused(name):
    with pytest.raises(ConfigError, match=f"--encoding {name}: there is no such text encoding"):
        Decoding(encoding=name)
