"""Real text for the benches: the corpora of ``BERTPRE_TEST_DATA``, or Python's documentation.

A folder that the variable names has a folder ``corpus`` of text files, plain or gzipped, whose
names start with the code of a language: ``en_novels.txt.gz``. Those in folders inside it are small
ones of many languages.
"""

import gzip
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_LANGUAGES = {"en": "English", "zh": "Chinese"}


def write_real_texts(folder: Path) -> dict[str, list[Path]]:
    """Write plain text files to a folder, and return them by language; all of them last."""
    root = os.environ.get("BERTPRE_TEST_DATA")
    if not root:
        gather = ROOT / "data" / "gather_demo_text.py"
        subprocess.run([sys.executable, gather, folder], check=True, stdout=subprocess.DEVNULL)
        return {"Python's documentation": [folder / "corpus.txt"]}
    corpus = Path(root) / "corpus"
    texts: dict[str, list[Path]] = {}
    for path in sorted(corpus.rglob("*.txt*")):
        code = path.name.partition("_")[0]
        language = _LANGUAGES.get(code) if path.parent == corpus else None
        content = path.read_bytes()
        plain = folder / path.name.removesuffix(".gz")
        plain.write_bytes(gzip.decompress(content) if path.suffix == ".gz" else content)
        texts.setdefault(language or "other languages", []).append(plain)
    return {**texts, "all languages": [path for paths in texts.values() for path in paths]}


def megabytes_of(paths: list[Path]) -> float:
    """Return the size of files in millions of bytes."""
    return sum(path.stat().st_size for path in paths) / 1e6
