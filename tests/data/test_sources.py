"""Another index over tokens that exist, and parts that were tokenised apart."""

import errno
import gzip
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bertpre.artefacts import read_manifest, write_json, write_manifest
from bertpre.config.schema import MakeData, TextOptions
from bertpre.corpus import spans
from bertpre.data import sources, tokenizing
from bertpre.data.dataset import PretrainingData
from bertpre.data.make_data import index_tokens, make_data, merge_parts
from bertpre.data.parts import PartReport, make_part
from bertpre.data.tokenizing import Part
from bertpre.errors import ConfigError, CorpusError, DataFormatError
from bertpre.tokenizer.tokenizer import Tokenizer

CONFIG = MakeData(max_seq_length=48, dupe_factor=2, eval_fraction=0.1, workers=1)


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of some 3,000 characters, of which the tiny corpus has several."""
    for module in (spans, tokenizing):
        monkeypatch.setattr(module, "SPAN_BYTES", 1_000)
    monkeypatch.setattr(tokenizing, "_FEWEST_FOR_WORKERS", 4_000)
    monkeypatch.setattr(tokenizing, "SHARD_SIZE", 3_000)


# Written by `write_manifest` itself.
KEPT = {"kind", "format", "bertpre", "files", "fingerprint"}


def make_parts(
    folder: Path, corpus: Path, tokenizer: Path, of: int, config: MakeData = CONFIG
) -> list[Path]:
    parts = [folder / f"part{number}" for number in range(1, of + 1)]
    for number, part in enumerate(parts, start=1):
        make_part([corpus], tokenizer=tokenizer, output=part, part=Part(number, of), config=config)
    return parts


def test_text_that_has_changed_is_another_whatever_its_size(
    tmp_path: Path, tiny_tokenizer: Path
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    source = sources.Text(inputs=[path], tokenizer=Tokenizer.load(tiny_tokenizer))
    before, again = source.identity(CONFIG), source.identity(CONFIG)
    status = path.stat()
    path.write_text("two\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))  # two writes may be as near

    assert before == again
    assert source.identity(CONFIG) != before


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("of", [1, 3, 30])
def test_merged_parts_are_the_bytes_of_one_run(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, of: int
) -> None:
    make_data([tiny_corpus], tokenizer=tiny_tokenizer, output=tmp_path / "one", config=CONFIG)
    parts = make_parts(tmp_path, tiny_corpus, tiny_tokenizer, of)

    merge_parts(parts[::-1], output=tmp_path / "merged", config=CONFIG)

    assert files(tmp_path / "merged") == files(tmp_path / "one")
    assert len(list((tmp_path / "one/tokens").glob("*.json"))) > 3
    if of == 3:
        assert all(list((part / "tokens").glob("*.json")) for part in parts)


@pytest.mark.usefixtures("small_shards")
def test_files_that_cannot_be_read_in_shares_are_in_the_merged_parts_once(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    folder, text = tmp_path / "texts", tiny_corpus.read_text()
    folder.mkdir()
    for name in ("a.txt", "d.txt"):
        (folder / name).write_text(text)
    (folder / "b.txt.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "c.jsonl").write_text('{"text": "the cat sees a dog.\\na river."}\n' * 200)
    make_data([folder], tokenizer=tiny_tokenizer, output=tmp_path / "one", config=CONFIG)

    parts = make_parts(tmp_path, folder, tiny_tokenizer, 3)
    report = merge_parts(parts, output=tmp_path / "merged", config=CONFIG)

    assert files(tmp_path / "merged") == files(tmp_path / "one")
    assert report.corpus.documents == 3 * 80 + 200


@pytest.mark.usefixtures("small_shards")
def test_a_part_says_what_it_has(tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path) -> None:
    output = tmp_path / "part"

    report = make_part(
        [tiny_corpus], tokenizer=tiny_tokenizer, output=output, part=Part(2, 2), config=CONFIG
    )

    assert report.own_shards == len(list((output / "tokens").glob("*.json"))) == report.shards // 2
    assert report.corpus.documents == 36  # of 80
    assert read_manifest(output, "part")["part"] == 2


def test_another_index_has_the_bytes_that_the_text_would_give(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, tiny_data: Path
) -> None:
    config = replace(CONFIG, objective="mlm-sop", max_seq_length=32, dupe_factor=3)
    make_data([tiny_corpus], tokenizer=tiny_tokenizer, output=tmp_path / "text", config=config)

    report = index_tokens(tiny_data, output=tmp_path / "tokens", config=config)

    assert files(tmp_path / "tokens") == files(tmp_path / "text")
    assert report.swapped_share is not None
    assert report.corpus.documents == 80


def test_the_same_documents_are_held_out_by_another_index(tmp_path: Path, tiny_data: Path) -> None:
    config = replace(CONFIG, objective="mlm", max_seq_length=16)

    index_tokens(tiny_data, output=tmp_path / "data", config=config)

    first, second = PretrainingData(tiny_data), PretrainingData(tmp_path / "data")
    assert first.unigrams.tolist() == second.unigrams.tolist()


def test_another_split_over_the_same_tokens_is_a_warning(
    tmp_path: Path, tiny_data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = read_manifest(tiny_data / "index-mlm-nsp-48", "index")
    seed, fraction = manifest["seed"], manifest["options"]["eval_fraction"]
    config = replace(CONFIG, eval_fraction=fraction)

    index_tokens(tiny_data, output=tmp_path / "same", config=config, seed=seed)
    assert "held out" not in caplog.text

    index_tokens(tiny_data, output=tmp_path / "other", config=config, seed=seed + 1)
    assert f"those of {tiny_data} (seed {seed} there, {seed + 1} here), so do not" in caplog.text

    caplog.clear()
    index_tokens(tiny_data, output=tmp_path / "more", config=replace(config, eval_fraction=0.25))
    assert f"(eval_fraction {fraction:g} there, 0.25 here), so do not" in caplog.text


def test_a_folder_stays_whole_when_that_of_its_tokens_is_deleted(
    tmp_path: Path, tiny_data: Path
) -> None:
    first = tmp_path / "first"
    shutil.copytree(tiny_data, first)
    index_tokens(first, output=tmp_path / "second", config=CONFIG)
    linked = os.path.samefile(
        first / "tokens/00000.ids.bin", tmp_path / "second/tokens/00000.ids.bin"
    )

    shutil.rmtree(first)

    assert linked  # no second copy on disk
    assert (
        len(
            PretrainingData(tmp_path / "second")
            .training_examples(np.arange(3), epochs=np.zeros(3, int), seed=0)
            .lengths
        )
        == 3
    )


def test_without_links_the_tokens_are_copied(
    tmp_path: Path, tiny_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError("another disk")

    monkeypatch.setattr(sources.os, "link", refuse)

    index_tokens(tiny_data, output=tmp_path / "data", config=CONFIG)

    assert files(tmp_path / "data") == files(tiny_data)


def test_a_disk_that_fills_while_tokens_are_copied_is_not_the_fault_of_their_folder(
    tmp_path: Path, tiny_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(shutil, "copyfileobj", fill)

    with pytest.raises(ConfigError) as error:
        index_tokens(tiny_data, output=tmp_path / "more", config=CONFIG)

    assert (
        error.value.message == f"{tmp_path / 'more'}: cannot be written (No space left on device)"
    )
    assert list(tmp_path.iterdir()) == []


def test_the_text_was_read_as_the_tokens_say(tmp_path: Path, tiny_data: Path) -> None:
    config = replace(CONFIG, text=TextOptions(encoding="gb18030"))

    with pytest.raises(ConfigError) as error:
        index_tokens(tiny_data, output=tmp_path / "data", config=config)

    assert error.value.message == (
        "make_data.text.encoding: 'gb18030', but the tokens were made with 'utf-8'"
    )
    with pytest.raises(ConfigError, match=r"make_data\.word_segmenter: 'jieba', but the tokens"):
        index_tokens(
            tiny_data, output=tmp_path / "data", config=replace(CONFIG, word_segmenter="jieba")
        )
    assert list(tmp_path.iterdir()) == []


def test_tokens_are_not_taken_from_the_folder_that_is_written(tiny_data: Path) -> None:
    before = files(tiny_data)

    with pytest.raises(ConfigError, match="is the folder that the tokens are taken from"):
        index_tokens(tiny_data, output=tiny_data, config=CONFIG, overwrite=True)

    assert files(tiny_data) == before


def test_each_part_must_be_there_once(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    first, second, _ = make_parts(tmp_path, tiny_corpus, tiny_tokenizer, 3)
    shutil.copytree(second, tmp_path / "again")

    with pytest.raises(ConfigError) as error:
        merge_parts([first, second, tmp_path / "again"], output=tmp_path / "data", config=CONFIG)

    assert error.value.message == (
        "--merge needs each part once; found 1/3, 2/3, 2/3; missing or given twice: 2/3, 3/3"
    )
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"text": TextOptions(document="line")}, "its text was read with other options"),
        ({"corpus": "another\ntext here\n"}, "it was made from another text"),
        ({"of": 3}, "the number of parts differs"),
    ],
)
def test_parts_of_two_corpora_are_not_merged(
    tmp_path: Path,
    tiny_corpus: Path,
    tiny_tokenizer: Path,
    change: dict[str, object],
    why: str,
) -> None:
    other = tmp_path / "text.txt"
    other.write_text(str(change.get("corpus", tiny_corpus.read_text())))
    config = replace(CONFIG, text=change.get("text", CONFIG.text))  # type: ignore[arg-type]
    of = int(change.get("of", 2))  # type: ignore[call-overload]
    make_part(
        [tiny_corpus],
        tokenizer=tiny_tokenizer,
        output=tmp_path / "one",
        part=Part(1, 2),
        config=CONFIG,
    )
    make_part(
        [other], tokenizer=tiny_tokenizer, output=tmp_path / "two", part=Part(2, of), config=config
    )

    with pytest.raises(ConfigError) as error:
        merge_parts([tmp_path / "one", tmp_path / "two"], output=tmp_path / "data", config=CONFIG)

    assert error.value.message == (
        f"{tmp_path / 'two'}: is not a part of the same corpus as {tmp_path / 'one'}: {why}"
    )


def test_a_damaged_part_is_named(tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path) -> None:
    (part,) = make_parts(tmp_path, tiny_corpus, tiny_tokenizer, 1)
    ids = part / "tokens/00000.ids.bin"
    ids.write_bytes(bytes(len(ids.read_bytes())))

    with pytest.raises(DataFormatError, match=r"00000\.ids\.bin: damaged"):
        merge_parts([part], output=tmp_path / "data", config=CONFIG)


def damage(folder: Path, name: str) -> Path:
    """Change a file and leave its size."""
    content = bytearray((folder / name).read_bytes())
    content[-1] ^= 1
    (folder / name).unlink()  # links to it stay as they were
    (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("name", ["tokens/00000.ids.bin", "index-mlm-nsp-48/examples.bin"])
def test_a_damaged_data_folder_is_named(tmp_path: Path, tiny_data: Path, name: str) -> None:
    data = damage(shutil.copytree(tiny_data, tmp_path / "damaged"), name)

    with pytest.raises(DataFormatError, match=rf"{name}: damaged: its sha256 is "):
        index_tokens(data, output=tmp_path / "more", config=CONFIG)

    assert list(tmp_path.iterdir()) == [data]


def test_content_is_compared_only_where_it_is_asked_for(tmp_path: Path, tiny_data: Path) -> None:
    data = damage(shutil.copytree(tiny_data, tmp_path / "damaged"), "tokens/00000.ids.bin")

    assert len(PretrainingData(data, check_content=False).records) > 0
    with pytest.raises(DataFormatError, match="damaged"):
        PretrainingData(data)


def test_a_data_folder_is_no_part(tmp_path: Path, tiny_data: Path) -> None:
    with pytest.raises(DataFormatError, match="expected a part folder, found 'data'"):
        merge_parts([tiny_data], output=tmp_path / "data", config=CONFIG)


def test_a_part_of_an_older_version_is_refused(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    (part,) = make_parts(tmp_path, tiny_corpus, tiny_tokenizer, 1)
    manifest = read_manifest(part, "part")
    for name in ("options", "text_digest"):
        del manifest[name]
    write_json(part / "manifest.json", manifest)

    with pytest.raises(DataFormatError) as caught:
        merge_parts([part], output=tmp_path / "merged", config=CONFIG)

    assert str(caught.value) == (
        f"{part}: another version of bertpre made this part, without options, text_digest — make "
        "all parts again with `bertpre make-data --part`"
    )


def test_options_of_another_version_are_refused(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    (part,) = make_parts(tmp_path, tiny_corpus, tiny_tokenizer, 1)
    manifest = read_manifest(part, "part")
    manifest["text"]["accents"] = "keep"
    write_json(part / "manifest.json", manifest)

    with pytest.raises(DataFormatError, match=r"another version .* read its text, with accents —"):
        merge_parts([part], output=tmp_path / "merged", config=CONFIG)


def test_a_report_of_another_version_is_refused(tmp_path: Path, tiny_data: Path) -> None:
    manifest = shutil.copytree(tiny_data, tmp_path / "old") / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"bad_bytes"', '"worse_bytes"'))

    with pytest.raises(DataFormatError, match="another version of bertpre wrote the manifest's"):
        index_tokens(tmp_path / "old", output=tmp_path / "data", config=CONFIG)


def test_statistics_of_another_version_are_refused(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    (part,) = make_parts(tmp_path, tiny_corpus, tiny_tokenizer, 1)
    statistics = part / "statistics.json"
    statistics.write_text(statistics.read_text().replace('"bad_bytes"', '"worse_bytes"'))
    manifest = read_manifest(part, "part")
    write_manifest(part, "part", {name: manifest[name] for name in manifest.keys() - KEPT})

    with pytest.raises(DataFormatError, match="another version of bertpre wrote its statistics"):
        merge_parts([part], output=tmp_path / "data", config=CONFIG)


@pytest.mark.usefixtures("small_shards")
def test_a_part_reads_only_its_share_of_plain_text(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path
) -> None:
    content = bytearray(tiny_corpus.read_bytes())
    content[-2] = 0xFF  # not UTF-8, in the last shard
    (tmp_path / "text.txt").write_bytes(content)
    parts = [Part(number, 6) for number in range(1, 7)]

    def make(part: Part) -> PartReport:
        output = tmp_path / f"part-{part.number}"
        text = [tmp_path / "text.txt"]
        return make_part(text, tokenizer=tiny_tokenizer, output=output, part=part, config=CONFIG)

    reports = [make(part) for part in parts[:5]]
    with pytest.raises(CorpusError, match="expected UTF-8, found 0xFF"):
        make(parts[5])
    assert [report.shards for report in reports] == [6] * 5
    assert 60 < sum(report.corpus.documents for report in reports) < 80


def test_parts_without_text_are_refused(tmp_path: Path, tiny_tokenizer: Path) -> None:
    (tmp_path / "blank.txt").write_text("\n\n")
    parts = make_parts(tmp_path, tmp_path / "blank.txt", tiny_tokenizer, 2)

    with pytest.raises(CorpusError, match="no text in the parts — check the files"):
        merge_parts(parts, output=tmp_path / "data", config=CONFIG)


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/0", "a/b", "-1/2", "1/2/3", "１/2"])
def test_a_part_is_written_as_one_number_of_another(text: str) -> None:
    with pytest.raises(ConfigError, match=f"--part {text}: expected I/N, part I of N parts"):
        Part.parse(text)


def test_a_part_has_every_nth_shard() -> None:
    part = Part.parse("2/3")

    assert [shard for shard in range(8) if part.has(shard)] == [1, 4, 7]


def test_other_options_at_the_merge_are_a_warning(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parts = make_parts(tmp_path, tiny_corpus, tiny_tokenizer, 2)

    merge_parts(parts, output=tmp_path / "same", config=CONFIG)
    assert "made with other options" not in caplog.text
    merge_parts(parts, output=tmp_path / "other", config=replace(CONFIG, max_seq_length=40))

    assert "the parts were made with other options for examples" in caplog.text
    assert f"max_seq_length (then {CONFIG.max_seq_length}, now 40)" in caplog.text
