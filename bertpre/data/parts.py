"""Parts of a corpus, each tokenised by itself, for instance on different machines."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertpre.artefacts import (
    check_files,
    fingerprint,
    read_manifest,
    stage_folder,
    write_json,
    write_manifest,
)
from bertpre.config.schema import MakeData
from bertpre.corpus.report import CorpusReport, Statistics
from bertpre.corpus.spans import identify
from bertpre.data.sources import Progress, StoredTokens, Text, check_options, stored_options
from bertpre.data.tokenizing import Part
from bertpre.errors import ConfigError, CorpusError, DataFormatError

# What all parts of a corpus have in common, and what another value means.
_COMMON_FACTS = {
    "of": "the number of parts differs",
    "shards": "it was made from another text",
    "text": "its text was read with other options",
    "word_segmenter": "it has another word_segmenter",
    "tokenizer": "it has another tokenizer",
    "text_digest": "it was made from another text",
}
_FACTS = _COMMON_FACTS.keys() | {"part", "options"}
_STATISTICS = "statistics.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class PartReport:
    """What `make_part` made.

    Attributes:
        part: which share of the corpus.
        shards: that the whole corpus has.
        own_shards: that are in this part.
        corpus: the report on what was read, which is this share of plain text, and all of what
            cannot be read in shares.
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
    on_progress: Progress | None = None,
) -> PartReport:
    """Tokenise one share of a corpus.

    `bertpre.data.make_data.merge_parts` turns all of them into a data folder. Each part reads its
    own share of plain text files; it reads all of compressed files and tables, which is much faster
    than tokenising them.

    Args:
        inputs: files or folders of text, the same for each part.
        tokenizer: a tokenizer folder.
        output: the folder to make.
        part: which share.
        config: how text is read; options for examples are ignored.
        overwrite: replace a finished folder.
        on_progress: called with the bytes read from disk so far, and the total.

    Raises:
        BertpreError: the input, the tokenizer or an option is unusable; nothing is left behind.
    """
    config = config or MakeData()
    check_options(config)
    source = Text.find(inputs, tokenizer, config, on_progress)
    options = stored_options(config)
    identity = fingerprint(
        [options["text"], config.word_segmenter, *part, *source.identity(config)]
    )

    with stage_folder(Path(output), kind="part", overwrite=overwrite, identity=identity) as work:
        corpus, num_shards = source.tokenize(work, config, part=part)
        corpus.check_records()
        read = [corpus.in_order.state(), corpus.in_spans.state()]
        write_json(work / _STATISTICS, {"in_order": read[0], "in_spans": read[1]})
        files = [identify(file, config.text) for file in corpus.files]
        content = {
            "part": part.number,
            "of": part.of,
            "shards": num_shards,
            "text_digest": fingerprint([corpus.in_order.text_hash.hex(), files]),
            "text": options["text"],
            "word_segmenter": config.word_segmenter,
            "tokenizer": source.tokenizer.fingerprint,
            # Stored so that --merge can name options for examples that differ.
            "options": options,
        }
        write_manifest(work, "part", content)
    own = sum(part.has(shard) for shard in range(num_shards))
    report = _add_statistics(read[0], [read[1]])
    return PartReport(part=part, shards=num_shards, own_shards=own, corpus=report)


def read_parts(parts: Sequence[str | Path]) -> StoredTokens:
    """Find the tokens in the parts of a corpus, and check that no part is damaged or missing.

    Args:
        parts: folders of `make_part`, in any order.

    Raises:
        BertpreError: a part is missing, damaged, of another corpus or of another version.
    """
    manifests = {Path(part): read_manifest(Path(part), "part") for part in parts}
    for path, manifest in manifests.items():
        if lacking := sorted(_FACTS - manifest.keys()):
            raise DataFormatError(
                f"{path}: another version of bertpre made this part, without {', '.join(lacking)}",
                "make all parts again with `bertpre make-data --part`",
            )
    first, *rest = manifests
    for path in rest:
        for name, difference in _COMMON_FACTS.items():
            if manifests[path][name] != manifests[first][name]:
                raise ConfigError(
                    f"{path}: is not a part of the same corpus as {first}: {difference}",
                    "make all parts from the same text with the same options",
                )
    numbers = [manifest["part"] for manifest in manifests.values()]
    count = manifests[first]["of"]
    wrong = [number for number in range(1, count + 1) if numbers.count(number) != 1]
    if wrong:
        found = ", ".join(f"{number}/{count}" for number in sorted(numbers))
        missing = ", ".join(f"{number}/{count}" for number in wrong)
        raise ConfigError(
            f"--merge needs each part once; found {found}; missing or given twice: {missing}",
            f"name the folders of all {count} parts",
        )
    for path, manifest in manifests.items():
        check_files(path, manifest, content=True)
    facts = manifests[first]
    in_number_order = sorted(manifests, key=lambda path: int(manifests[path]["part"]))
    read = [json.loads((path / _STATISTICS).read_text()) for path in in_number_order]
    try:
        report = _add_statistics(read[0]["in_order"], [of_part["in_spans"] for of_part in read])
    except (KeyError, TypeError) as error:
        raise DataFormatError(
            f"{first}: another version of bertpre wrote its statistics ({error})",
            "make all parts again with `bertpre make-data --part`",
        ) from error
    if report.documents == 0:
        raise CorpusError("no text in the parts", "check the files that they were made from")
    return StoredTokens(
        paths=list(manifests),
        corpus=asdict(report),
        options={
            **facts["options"],
            "text": facts["text"],
            "word_segmenter": facts["word_segmenter"],
        },
        fingerprints=sorted(manifest["fingerprint"] for manifest in manifests.values()),
    )


def _add_statistics(
    in_order: Mapping[str, Any], in_spans: Sequence[Mapping[str, Any]]
) -> CorpusReport:
    """Return the report on text that each part has read, and on spans that one part each has."""
    total = Statistics.restore(in_order)
    for state in in_spans:
        total.add(Statistics.restore(state))
    total.finish()
    return total.report
