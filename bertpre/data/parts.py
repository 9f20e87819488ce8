"""Parts of a corpus, tokenised each by itself, on machines that need not know of one another."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertpre.artefacts import (
    check_files,
    fingerprint,
    read_manifest,
    stage_folder,
    write_manifest,
)
from bertpre.config.schema import MakeData
from bertpre.corpus.documents import read_documents
from bertpre.corpus.report import CorpusReport
from bertpre.data.make_data import check_options, input_state, make_folder, stored_options
from bertpre.data.tokenizing import Part, tokenize_corpus
from bertpre.errors import ConfigError, DataFormatError
from bertpre.tokenizer.tokenizer import Tokenizer

_PART_FACTS = {
    *("part", "of", "shards", "text_sha256", "text", "word_segmenter", "tokenizer", "corpus"),
    "options",
}
_DIFFERENCES = {
    "of": "it is one of another number of parts",
    "shards": "it was made from another text",
    "text": "its text was read with other options",
    "word_segmenter": "it has another word_segmenter",
    "tokenizer": "it has another tokenizer",
    "text_sha256": "it was made from another text",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PartReport:
    """What `make_part` made.

    Attributes:
        part: which share of the corpus.
        shards: that the whole corpus has.
        own_shards: that are in this part.
        corpus: what was read, which is all of it.
    """

    part: Part
    shards: int
    own_shards: int
    corpus: CorpusReport


def make_part(
    inputs: Sequence[str | Path],
    *,
    tokenizer: str | Path,
    output: str | Path,
    part: Part,
    config: MakeData | None = None,
    overwrite: bool = False,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> PartReport:
    """Tokenise one share of a corpus.

    `bertpre.data.reuse.merge_parts` makes a data folder of all of them. Each part reads
    the whole text, which takes a fraction of the time of tokenising it.

    Args:
        inputs: files or folders of text, the same for each part.
        tokenizer: a tokenizer folder.
        output: the folder to make.
        part: which share.
        config: how text is read; what concerns examples is not looked at.
        overwrite: replace a finished folder.
        on_progress: told the bytes read on disk so far, and in all.

    Raises:
        BertpreError: the input, the tokenizer or an option is unusable; nothing is left behind.
    """
    config = config or MakeData()
    check_options(config)
    loaded = Tokenizer.load(tokenizer)
    text = stored_options(config)["text"]
    state = [text, config.word_segmenter, *part, loaded.fingerprint, input_state(inputs, config)]
    identity = fingerprint(state)
    with stage_folder(Path(output), kind="part", overwrite=overwrite, identity=identity) as work:
        loaded.save_files(make_folder(work / "tokenizer"))
        corpus, digest = CorpusReport(), hashlib.sha256()
        documents = read_documents(
            inputs, config.text, kmer=loaded.kmer, report=corpus, on_progress=on_progress
        )
        num_shards = tokenize_corpus(
            _watched((document.sentences for document in documents), digest.update),
            loaded,
            tokenizer_folder=work / "tokenizer",
            folder=make_folder(work / "tokens"),
            workers=config.workers or os.cpu_count() or 1,
            segmenter=config.word_segmenter,
            part=part,
        )
        content = {
            "part": part.number,
            "of": part.of,
            "shards": num_shards,
            "text_sha256": digest.hexdigest(),
            "text": text,
            "word_segmenter": config.word_segmenter,
            "tokenizer": loaded.fingerprint,
            "corpus": asdict(corpus),
            # Of examples, which --merge makes: so that it can say what differs there.
            "options": stored_options(config),
        }
        write_manifest(work, "part", content)
    own = sum(part.has(shard) for shard in range(num_shards))
    return PartReport(part=part, shards=num_shards, own_shards=own, corpus=corpus)


def read_parts(parts: Sequence[str | Path]) -> dict[Path, dict[str, Any]]:
    """Read the manifests of the parts of a corpus, and check that they are whole and all there.

    Args:
        parts: folders of `make_part`, in any order.

    Raises:
        BertpreError: a part is missing, damaged, of another corpus or of another version.
    """
    manifests = {Path(part): read_manifest(Path(part), "part") for part in parts}
    for path, manifest in manifests.items():
        if lacking := sorted(_PART_FACTS - manifest.keys()):
            raise DataFormatError(
                f"{path}: another version of bertpre made this part, without {', '.join(lacking)}",
                "make all parts again with `bertpre make-data --part`",
            )
    first, *rest = manifests
    for path in rest:
        for name in ("of", "shards", "text", "word_segmenter", "tokenizer", "text_sha256"):
            if manifests[path][name] != manifests[first][name]:
                raise ConfigError(
                    f"{path}: is not a part of the corpus that {first} is a part of: "
                    f"{_DIFFERENCES[name]}",
                    "make all parts from the same text with the same options",
                )
    numbers = [manifest["part"] for manifest in manifests.values()]
    count = manifests[first]["of"]
    wrong = [number for number in range(1, count + 1) if numbers.count(number) != 1]
    if wrong:
        found = ", ".join(f"{number}/{count}" for number in sorted(numbers))
        missing = ", ".join(f"{number}/{count}" for number in wrong)
        raise ConfigError(
            f"--merge needs each part once; found {found}; missing or there twice: {missing}",
            f"name the folders of all {count} parts",
        )
    for path, manifest in manifests.items():
        check_files(path, manifest, content=True)
    return manifests


def _watched(
    documents: Iterable[tuple[str, ...]], see: Callable[[bytes], object]
) -> Iterator[tuple[str, ...]]:
    for sentences in documents:
        see("\n".join([*sentences, "\n"]).encode("utf-8", "surrogatepass"))
        yield sentences
