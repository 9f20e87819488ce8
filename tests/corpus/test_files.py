"""Files to lines: compression by content, encodings, and bad bytes that are named or counted."""

import bz2
import gzip
import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bertpre.corpus.decoding import Decoding
from bertpre.corpus.files import STDIN, read_lines
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


def test_only_a_newline_ends_a_line(tmp_path):
    text = "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\rh\ni\r\nj"
    path = write(tmp_path / "lines.txt", text)

    lines = list(read_lines(path))

    assert lines == ["a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\rh\n", "i\r\n", "j"]


def test_a_byte_order_mark_is_removed_at_the_start_only(tmp_path):
    path = write(tmp_path / "bom.txt", "\ufeffa\n\ufeffb\n")

    assert list(read_lines(path)) == ["a\n", "\ufeffb\n"]


@pytest.mark.parametrize("name", ["text.txt", "text.txt.gz", "text"])
def test_gzip_is_known_by_its_content_whatever_the_name(tmp_path, name):
    path = write(tmp_path / name, gzip.compress(b"one\n") + gzip.compress("zwei é\n".encode()))

    assert list(read_lines(path)) == ["one\n", "zwei é\n"]


def test_a_plain_file_with_a_gzip_name_is_read_as_it_is(tmp_path):
    assert list(read_lines(write(tmp_path / "text.txt.gz", "plain\n"))) == ["plain\n"]


def test_bytes_on_disk_are_counted_for_gzip_too(tmp_path):
    path = write(tmp_path / "text.gz", gzip.compress(b"a line of text\n" * 10_000))
    counts: list[int] = []

    list(read_lines(path, on_bytes=counts.append))

    assert sum(counts) == path.stat().st_size


def test_bytes_that_are_not_utf8_are_located(tmp_path):
    path = write(tmp_path / "bad.txt", b"good\nab\xed\xa0\x80\xff\ngood\n")

    with pytest.raises(CorpusError) as caught:
        list(read_lines(path))

    assert caught.value.message == (
        f"{path}: line 2, byte 3 of the line: expected UTF-8, found 0xED"
    )
    assert caught.value.hint == (
        "state the --encoding that the text is in; or count and drop what is wrong with "
        "--on-bad-bytes replace"
    )


def test_a_truncated_gzip_file_is_an_error(tmp_path):
    whole = gzip.compress("\n".join(str(i) for i in range(100_000)).encode())
    path = write(tmp_path / "cut.txt.gz", whole[: len(whole) // 2])

    with pytest.raises(
        CorpusError, match=r"cut\.txt\.gz: damaged compressed file after line \d+ \("
    ):
        list(read_lines(path))


def test_a_corrupted_gzip_file_is_an_error(tmp_path):
    whole = bytearray(gzip.compress(b"some text, some more text\n" * 1000))
    whole[15] ^= 0xFF

    with pytest.raises(CorpusError, match="damaged compressed file after line"):
        list(read_lines(write(tmp_path / "bad.gz", bytes(whole))))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CorpusError, match=r"none\.txt: there is no such file — check the path"):
        list(read_lines(tmp_path / "none.txt"))


def test_a_folder_in_place_of_a_file_is_an_error(tmp_path):
    with pytest.raises(CorpusError, match=r"cannot be read \(Is a directory\)"):
        list(read_lines(tmp_path))


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compression_is_known_by_its_first_bytes(tmp_path, pack):
    path = write(tmp_path / "text", pack(b"one\n") + pack("zwei é\n".encode()))

    assert read(path) == ["one\n", "zwei é\n"]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_file_that_is_cut_is_an_error(tmp_path, pack):
    whole = pack(os.urandom(300_000).hex().encode() + b"\n")

    error = refused(write(tmp_path / "cut", whole[: len(whole) // 2]))

    assert "cut: damaged compressed file after line 0 (" in error.message
    assert error.hint == "copy the file again"


def test_a_damaged_bzip2_or_xz_file_is_an_error(tmp_path):
    for name, pack in (("a.bz2", bz2.compress), ("a.xz", lzma.compress)):
        whole = bytearray(pack(os.urandom(1000)))
        whole[500] ^= 0xFF

        assert "damaged compressed file" in refused(write(tmp_path / name, bytes(whole))).message


def test_text_that_starts_like_a_bzip2_file_is_text(tmp_path):
    assert read(write(tmp_path / "a.txt", "BZh9 is a name\n")) == ["BZh9 is a name\n"]


def test_zstd_is_read_across_frames(tmp_path):
    zstandard = pytest.importorskip("zstandard", reason="needs the extra zstd")
    pack = zstandard.ZstdCompressor().compress
    long = "".join(f"line {i}\n" for i in range(50_000))
    path = write(tmp_path / "text", pack(b"one\n") + pack(long.encode()) + pack(b"end"))

    assert read(path) == ["one\n", *long.splitlines(keepends=True), "end"]
    assert "damaged" in refused(write(tmp_path / "cut", path.read_bytes()[:-9])).message


def test_zstd_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)

    error = refused(write(tmp_path / "a.zst", b"\x28\xb5\x2f\xfd\x00"))

    assert error.message.endswith("compressed with zstd, which needs the package zstandard")
    assert error.hint == "pip install 'bertpre[zstd]'"


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
        ConfigError, match="--encoding gb2000: there is no such text encoding — name"
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


def test_standard_input_is_read_like_a_file():
    code = "from bertpre.corpus.files import *; print(list(read_lines(STDIN)), STDIN)"
    pipe = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    packed = gzip.compress("a\né\n".encode())
    for byte in packed[:4]:  # a pipe may give a byte at a time
        pipe.stdin.write(bytes([byte]))
        pipe.stdin.flush()
    out, _ = pipe.communicate(packed[4:], timeout=120)

    assert out.decode() == f"['a\\n', 'é\\n'] {STDIN}\n"


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
