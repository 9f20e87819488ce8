"""Files to lines: compression is known by the content."""

import bz2
import gzip
import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bertpre.corpus.files import STDIN, read_lines
from bertpre.errors import CorpusError

CHINESE = "小镇的图书馆在河边。\n每天早上八点开门。\n"


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path: Path) -> list[str]:
    return list(read_lines(path))


def refused(path: Path) -> CorpusError:
    with pytest.raises(CorpusError) as caught:
        read(path)
    return caught.value


def test_only_a_newline_ends_a_line(tmp_path):
    text = "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\rh\ni\r\nj"
    path = write(tmp_path / "lines.txt", text)

    lines = list(read_lines(path))

    assert lines == ["a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\rh\n", "i\r\n", "j"]


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

    assert error.message.endswith("reading zstd needs the package zstandard")
    assert error.hint == "pip install 'bertpre[zstd]'"


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
