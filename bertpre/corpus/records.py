"""Records on their way from lines to the sentences of documents, which are counted."""

from collections.abc import Iterable, Iterator, Sequence

from bertpre.config.fields import Kmer
from bertpre.config.schema import TextOptions
from bertpre.corpus.duplicates import remove_repeats
from bertpre.corpus.report import CorpusReport, LineCounter, SentenceCounter, Statistics
from bertpre.corpus.sentences import Record, cut_sentences

# Characters; a document is held in memory, so a file without blank lines is cut into several.
LONGEST_DOCUMENT = 8_000_000


def txt_records(lines: Iterable[str], source: str, unit: str) -> Iterator[Record]:
    """Turn the lines of a text file into records.

    Args:
        lines: with or without their newlines.
        source: the name of the file.
        unit: the option ``document``.
    """
    starts = True
    for number, line in enumerate(lines, start=1):
        if not line or line.isspace():
            starts = starts or unit != "file"
            continue
        yield Record(line.removesuffix("\n").removesuffix("\r"), source, number, starts)
        starts = unit == "line"


def count_and_cut(
    lines: Iterable[Record],
    first_reading: Iterable[Record] | None,
    statistics: Statistics,
    options: TextOptions,
    *,
    kmer: Kmer | None,
) -> Iterator[Record]:
    """Count lines, remove repeats, cut lines into sentences and long documents, and count these.

    Args:
        lines: the lines of all documents.
        first_reading: the same lines, if repeats are to be removed.
        statistics: where to count.
        options, kmer: how to cut.
    """
    counter = SentenceCounter(statistics)
    lines = _count_lines(lines, statistics)
    if first_reading is not None and options.dedup != "none":
        lines = remove_repeats(lines, first_reading, options.dedup, statistics.report)
    sentences = cut_sentences(lines, options.sentences, language=options.language, kmer=kmer)
    for record in _cut_long_documents(sentences, statistics.report):
        counter.add(record)
        yield record
    counter.finish()


def _count_lines(lines: Iterable[Record], statistics: Statistics) -> Iterator[Record]:
    counter = LineCounter(statistics)
    for line in lines:
        counter.add(line)
        yield line
    counter.finish()


def _cut_long_documents(records: Iterable[Record], report: CorpusReport) -> Iterator[Record]:
    characters = 0
    for record in records:
        characters = 0 if record.starts_document else characters
        if characters > LONGEST_DOCUMENT:
            report.cut_documents += 1
            record = record._replace(starts_document=True)
            characters = 0
        characters += len(record.text)
        yield record


def group_by_document(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Yield the records of each document."""
    document: list[Record] = []
    for record in records:
        if record.starts_document and document:
            yield document
            document = []
        document.append(record)
    if document:
        yield document


def sentences_of(document: Sequence[Record]) -> tuple[str, ...]:
    """Return the texts of the records of a document."""
    return tuple([record.text for record in document])
