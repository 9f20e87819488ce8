"""Spans: whichever bytes a text is cut at, its documents and statistics are those of the file."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertpre.config.schema import TextOptions
from bertpre.corpus import spans
from bertpre.corpus.documents import Corpus
from bertpre.corpus.report import CorpusReport
from bertpre.corpus.spans import Span, read_span
from bertpre.errors import CorpusError

LINES = st.lists(
    st.sampled_from(["", " ", "\t", "\x0c", "a", "bb \r", "中文。", "é\x01", "a\u3000", "\u3000"]),
    max_size=30,
)


@pytest.fixture
def small_spans(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def use(size: int) -> None:
        monkeypatch.setattr(spans, "SPAN_BYTES", size)

    return use


def read_whole(path: Path, options: TextOptions) -> tuple[list[tuple[str, ...]], CorpusReport]:
    report = CorpusReport()
    documents: list[list[str]] = []
    for record in Corpus([path], options, report=report).records():
        if record.starts_document:
            documents.append([])
        documents[-1].append(record.text)
    return list(map(tuple, documents)), report


def read_in_spans(
    path: Path, options: TextOptions
) -> tuple[list[tuple[str, ...]], CorpusReport, int]:
    corpus, found, count = Corpus([path], options), [], 0
    for part in corpus.parts():
        assert isinstance(part, Span)
        documents, statistics = read_span(part, options)
        corpus.add(part, statistics)
        found += documents
        count += 1
    corpus.finish()
    return found, corpus.report, count


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(lines=LINES, end=st.sampled_from(["\n", "\r\n"]), size=st.integers(1, 12), data=st.data())
def test_spans_have_the_documents_and_the_report_of_the_file(
    lines: list[str], end: str, size: int, data: st.DataObject, tmp_path: Path, small_spans: Any
) -> None:
    small_spans(size)
    options = TextOptions(
        document=data.draw(st.sampled_from(["auto", "blank-line", "line"])),
        sentences=data.draw(st.sampled_from(["line", "window:2"])),
        encoding=data.draw(st.sampled_from(["utf-8", "gb18030"])),
    )
    path = tmp_path / "text.txt"
    path.write_bytes(("x y z" + end + end.join(lines)).encode(options.encoding))

    documents, report = read_whole(path, options)

    found, of_spans, _ = read_in_spans(path, options)
    assert found == documents
    assert of_spans == report


def test_only_the_first_span_loses_a_byte_order_mark(tmp_path: Path, small_spans: Any) -> None:
    small_spans(1)
    path = tmp_path / "text.txt"
    path.write_bytes("\ufeffa\n\n\ufeffb\n".encode())
    found, _, count = read_in_spans(path, TextOptions())
    assert (found, count) == ([("a",), ("\ufeffb",)], 2)


@pytest.mark.parametrize("policy", ["replace", "skip"])
def test_bad_bytes_are_counted_in_any_span(policy: Any, tmp_path: Path, small_spans: Any) -> None:
    small_spans(1)
    path = tmp_path / "text.txt"
    path.write_bytes(b"a\xff\n\nb\n\n\xff\xfec\n")
    options = TextOptions(on_bad_bytes=policy)
    documents, report = read_whole(path, options)
    found, of_spans, count = read_in_spans(path, options)
    assert (found, of_spans, count) == (documents, report, 3)
    assert report.bad_bytes == 3


def test_an_error_names_the_line_of_the_file(tmp_path: Path, small_spans: Any) -> None:
    small_spans(1)
    path = tmp_path / "text.txt"
    path.write_bytes(b"a\nb\n\nc\n\nd\ne\xff\n")
    with pytest.raises(CorpusError, match=r"line 7, byte 2 of the line: expected UTF-8"):
        read_in_spans(path, TextOptions())


def test_utf_16_is_noticed_in_the_first_span(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("a line of text\n\nanother\n".encode("utf-16-le"))
    with pytest.raises(CorpusError, match="NUL bytes among the first"):
        read_in_spans(path, TextOptions())


def test_a_boundary_is_found_across_blocks(tmp_path: Path, small_spans: Any) -> None:
    small_spans(10)
    text = b"a" * (spans._BLOCK_BYTES - 1 + 10) + b"\n  \t\r\nb\n"
    (tmp_path / "text.txt").write_bytes(text)
    found, _, count = read_in_spans(tmp_path / "text.txt", TextOptions())
    assert (len(found), count) == (2, 2)


def test_documents_over_the_maximum_are_cut_alike(
    tmp_path: Path, small_spans: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("records", "spans"):
        monkeypatch.setattr(f"bertpre.corpus.{module}.LONGEST_DOCUMENT", 5)
    small_spans(1)
    path = tmp_path / "text.txt"
    path.write_text("abcdef\nb\nc\n\nd\nabcdefg\ne\n")
    documents, report = read_whole(path, TextOptions())
    found, of_spans, _ = read_in_spans(path, TextOptions())
    assert (found, of_spans) == (documents, report)
    assert report.cut_documents == 2


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("text.tsv", {}),
        ("text.txt", {"document": "file"}),
        ("text.txt", {"dedup": "lines"}),
        ("text.txt", {"encoding": "utf-16"}),
    ],
)
def test_what_cannot_be_cut_is_read_in_order(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    encoding = options.get("encoding", "utf-8")
    (tmp_path / name).write_text("text\nb\n\nc\n", encoding=encoding)
    corpus = Corpus([tmp_path / name], dataclasses.replace(TextOptions(), **options))
    assert not any(isinstance(part, Span) for part in corpus.parts())
