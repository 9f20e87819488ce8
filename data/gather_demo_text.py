"""Gather the demo's text and labelled task from Python's own standard library, without a network.

Text: the docstrings and the prose comments of every module (a module is a document) and the topics
of ``help()`` (a topic is a document), one sentence a line. Task: which of eight packages a
docstring comes from, given few labelled rows. The same Python gives the same files each time;
modules are parsed, never imported.

    python data/gather_demo_text.py [FOLDER]
"""

import ast
import hashlib
import inspect
import io
import re
import sys
import sysconfig
import tokenize
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# Packages that every distribution of Python 3.11-3.13 has, each with over a hundred docstrings.
LABELS = ("asyncio", "email", "http", "importlib", "logging", "multiprocessing", "unittest", "xml")
TRAIN_ROWS, DEV_ROWS, TEST_ROWS = 25, 10, 65  # of each package, at most
MIN_WORDS = 8  # in a labelled row: fewer can hardly be told apart by anyone

# Not prose about Python: tests and their data, other people's packages, the 2to3 grammar fixtures.
SKIPPED = {"__pycache__", "dist-packages", "idle_test", "lib2to3", "pydoc_data", "site-packages"}
SKIPPED |= {"test", "tests"}

ABBREVIATIONS = ("e.g.", "i.e.", "etc.", "cf.", "vs.", "eg.", "ie.", "no.", "approx.", "resp.")
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[`*]*[A-Z])")
LIST_ITEM = re.compile(r"^\s*([-*+•]|\d+[.)]|[\w*, ]+ -- |[\w*]+:) ?")
WORD = re.compile(r"[A-Za-z']{2,}")
CODE = re.compile(r"\b(def|class) \w+[(:]|\w = |#|\):|->")


class Passage(NamedTuple):
    """A docstring or a block of comments."""

    line: int
    text: str
    is_docstring: bool


def main() -> None:
    """Write corpus.txt, train.tsv, dev.tsv and test.tsv."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    modules = {name: read_passages(path) for name, path in find_modules()}
    splits = draw_task(modules)
    for name, rows in splits.items():
        lines = ["text\tlabel", *(f"{text}\t{label}" for text, label in rows)]
        write(folder / f"{name}.tsv", lines)

    held_back = {normalise(text) for name in ("dev", "test") for text, _ in splits[name]}
    held_back |= {
        normalise(sentence)
        for name in ("dev", "test")
        for text, _ in splits[name]
        for sentence in split_sentences(text)
    }
    documents = list(find_documents(modules, held_back))
    write(folder / "corpus.txt", ["\n".join(sentences) + "\n" for sentences in documents])

    words = sum(len(line.split()) for sentences in documents for line in sentences)
    size = (folder / "corpus.txt").stat().st_size
    print(f"{folder / 'corpus.txt'}: {len(documents):,} documents, {words:,} words, {size:,} bytes")
    for name, rows in splits.items():
        counts = Counter(label for _, label in rows)
        shown = ", ".join(f"{label} {count}" for label, count in sorted(counts.items()))
        print(f"{folder / name}.tsv: {len(rows)} rows ({shown})")


def find_modules() -> Iterator[tuple[str, Path]]:
    """Yield the dotted name and the file of each module of the standard library, sorted."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).parts):
        parts = path.relative_to(root).with_suffix("").parts
        if not SKIPPED & set(parts) and all(part.isidentifier() for part in parts):
            yield ".".join(parts), path


def read_passages(path: Path) -> list[Passage]:
    """Read the docstrings and the comments of a module, in the order of the file."""
    source = path.read_bytes()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as for an invalid escape in somebody's docstring
            tree = ast.parse(source)
    except SyntaxError:  # a file for another version of Python
        return []
    passages = list(read_comments(source))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                passages.append(Passage(node.body[0].lineno, text, True))
    return sorted(passages)


def read_comments(source: bytes) -> Iterator[Passage]:
    """Yield each run of lines that hold a comment and nothing else."""
    block: list[str] = []
    start = previous = 0
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type != tokenize.COMMENT or token.line.strip() != token.string:
            continue
        if block and token.start[0] != previous + 1:
            yield Passage(start, "\n".join(block), False)
            block = []
        if not block:
            start = token.start[0]
        block.append(token.string.lstrip("#!:").removeprefix(" "))
        previous = token.start[0]
    if block:
        yield Passage(start, "\n".join(block), False)


def split_sentences(text: str) -> list[str]:
    """Cut a passage into sentences: joins wrapped lines, drops examples, tables and rules."""
    sentences: list[str] = []
    for paragraph in split_paragraphs(inspect.cleandoc(text)):
        for piece in SENTENCE_END.split(paragraph):
            if sentences and sentences[-1].lower().endswith(ABBREVIATIONS):
                sentences[-1] += " " + piece
            else:
                sentences.append(piece)
    return [sentence for sentence in sentences if is_prose(sentence)]


def split_paragraphs(text: str) -> Iterator[str]:
    """Yield paragraphs and list items, each on one line."""
    lines: list[str] = []
    is_example = False
    for line in [*text.split("\n"), ""]:
        stripped = line.strip()
        is_example = (is_example and bool(stripped)) or stripped.startswith((">>>", "$ "))
        is_break = is_example or not WORD.search(stripped)
        if lines and (is_break or LIST_ITEM.match(line)):
            yield " ".join(lines)
            lines = []
        if not is_break:
            lines.append(" ".join(stripped.split()))


def is_prose(sentence: str) -> bool:
    """Tell words from code, grammar rules and tables: mostly letters, three words or more."""
    words = len(WORD.findall(sentence))
    letters = sum(character.isalpha() or character == " " for character in sentence)
    return words >= 3 and letters >= 0.8 * len(sentence) and not CODE.search(sentence)


def normalise(text: str) -> str:
    """Reduce a text to its letters, so that copies with other spaces or numbers are seen."""
    return " ".join(re.findall(r"[a-z]+", text.lower()))


def draw_task(modules: dict[str, list[Passage]]) -> dict[str, list[tuple[str, str]]]:
    """Draw balanced rows of (docstring, package) for train, dev and test.

    A docstring that names any of the packages is left out, as it would give the answer away, and so
    is one that stands more than once.
    """
    names = re.compile("|".join(LABELS), re.IGNORECASE)
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)  # normalised -> (text, package)
    for module, passages in modules.items():
        package = module.partition(".")[0]
        for passage in passages:
            text = " ".join(split_sentences(passage.text)) if passage.is_docstring else ""
            if package in LABELS and len(text.split()) >= MIN_WORDS and not names.search(text):
                found[normalise(text)].append((text, package))
    rows = [copies[0] for copies in found.values() if len(copies) == 1]
    # An order that has nothing to do with the order of the files, and never changes.
    rows.sort(key=lambda row: hashlib.sha256(row[0].encode()).digest())

    splits: dict[str, list[tuple[str, str]]] = {"train": [], "dev": [], "test": []}
    used: Counter[str] = Counter()
    for row in rows:
        count = used[row[1]]
        used[row[1]] += 1
        if count < TRAIN_ROWS:
            splits["train"].append(row)
        elif count < TRAIN_ROWS + DEV_ROWS:
            splits["dev"].append(row)
        elif count < TRAIN_ROWS + DEV_ROWS + TEST_ROWS:
            splits["test"].append(row)
    return splits


def find_documents(
    modules: dict[str, list[Passage]], held_back: set[str]
) -> Iterator[tuple[str, ...]]:
    """Yield each module and each topic as sentences, each sentence of the corpus only once."""
    from pydoc_data.topics import topics

    texts = {name: [passage.text for passage in passages] for name, passages in modules.items()}
    texts |= {f"help {name}": [text] for name, text in topics.items()}
    seen = set(held_back)
    for _, passages in sorted(texts.items()):
        kept = []
        for text in passages:
            for sentence in split_sentences(text):
                key = normalise(sentence)
                if key not in seen:
                    seen.add(key)
                    kept.append(sentence)
        if len(kept) > 1:
            yield tuple(kept)


def write(path: Path, lines: list[str]) -> None:
    """Write lines as UTF-8 with "\\n" on every system."""
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
