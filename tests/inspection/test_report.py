"""The page of a chain: complete, in one file, and only of what belongs together."""

import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest

import bertpre
from bertpre.errors import BertpreError, ConfigError, DataFormatError
from bertpre.inspection.lineage import find_chain
from bertpre.inspection.report import Chapter, draw_curves_svg, render_page, report
from bertpre.inspection.sections import Curves, Examples, Grid
from bertpre.interop.facts import Facts


def test_the_page_shows_the_whole_chain_found_beside_the_run(chain, tmp_path):
    result = report(chain / "run", tmp_path / "r.html")

    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert result.missing == ()
    assert result.chain.data == chain / "data"
    assert result.chain.tokenizer == chain / "tokenizer"
    assert result.chain.models == (chain / "model",)
    for heading in ("Tokenizer", "Data", "Run", "Model"):
        assert re.search(rf'<h2 id="c\d">{heading} ', page)
    metrics = json.loads((chain / "model/metrics.json").read_text())
    commonest = metrics["baselines"]["majority"]["dev"]["accuracy"]
    assert (
        f"{metrics['dev']['accuracy']:.4f} (the model), {commonest:.4f} (most common label)" in page
    )
    assert page.count("data:image/svg+xml;base64,") >= 4  # loss, two accuracies, rate
    assert page.count("data:image/png;base64,") == 1  # the confusion matrix


def test_the_page_needs_no_other_file_and_no_script(chain, tmp_path):
    report(chain / "run", tmp_path / "r.html")

    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert re.findall(r'(?:src|href)="(?!data:|#)', page) == []
    assert "<script" not in page
    assert "url(" not in page
    assert str(chain) not in page  # a page that is sent on tells nothing of the machine


def test_equal_folders_give_equal_bytes(chain, tmp_path):
    for name in ("a.html", "b.html"):
        report(chain / "run", tmp_path / name)

    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_run_alone_is_shown_and_the_rest_is_said_to_be_missing(chain, tmp_path):
    shutil.copytree(chain / "run", tmp_path / "elsewhere/run")

    alone = report(tmp_path / "elsewhere/run", tmp_path / "a.html")
    named = report(
        tmp_path / "elsewhere/run",
        tmp_path / "b.html",
        data=chain / "data",
        tokenizer=chain / "tokenizer",
        models=[chain / "model"],
    )

    assert alone.missing == ("tokenizer", "data", "model")
    assert named.missing == ()


def test_a_model_of_an_earlier_checkpoint_belongs_to_the_run(chain, tmp_path):
    place = tmp_path / "place"
    shutil.copytree(chain, place)
    newest, earlier = (
        json.loads((place / "run" / name / "manifest.json").read_text())["fingerprint"]
        for name in ("final", "checkpoints/step-00000004")
    )
    manifest = json.loads((place / "model/manifest.json").read_text())
    (place / "model/manifest.json").write_text(json.dumps({**manifest, "from": earlier}))

    found = find_chain(place / "run")

    assert manifest["from"] == newest != earlier
    assert found.models == (place / "model",)


def test_folders_of_another_run_are_refused(chain, tutorial_checkpoint, tmp_path):
    with pytest.raises(ConfigError) as caught:
        report(tutorial_checkpoint, tmp_path / "r.html", models=[chain / "model"])

    assert str(caught.value) == (
        f"{chain / 'model'}: does not belong to this run: it was fine-tuned from other weights — "
        "pass another folder, or leave the option out"
    )
    with pytest.raises(DataFormatError, match="expected a data folder, found 'tokenizer'"):
        report(chain / "run", tmp_path / "r.html", data=chain / "tokenizer")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_run_or_no_place_for_a_page_is_an_error(chain, tmp_path):
    (tmp_path / "there.html").touch()

    with pytest.raises(DataFormatError, match=r"data: expected a run folder, with config.yaml"):
        report(chain / "data", tmp_path / "r.html")
    with pytest.raises(ConfigError, match=r"there.html: already exists"):
        report(chain / "run", tmp_path / "there.html")
    with pytest.raises(ConfigError, match=r": is a folder; expected a file"):
        report(chain / "run", tmp_path)
    with pytest.raises(ConfigError, match=r"no/r.html: there is no folder"):
        report(chain / "run", tmp_path / "no/r.html")
    report(chain / "run", tmp_path / "there.html", overwrite=True)


def test_text_is_never_markup():
    sections = [
        Facts("<i>", {"<b>": "a & b"}),
        Grid("g", ["<u>"], [["</td>"]]),
        Examples("e", ["[CLS] {[MASK]→<s>} <p> {a→a}"]),
    ]

    page = render_page("t<", [("<name", "<value")], [Chapter("C", "<folder", sections)])

    body = page.partition("</style>")[2]
    for raw in ("<i>", "<b>a", "<u>", "</td></td>", "<s>", "<p> ", "<name", "<value", "<folder"):
        assert raw not in body.replace("<i style", "")
    assert "<em>[CLS]</em> <b>{[MASK]→&lt;s&gt;}</b> &lt;p&gt; <b>{a→a}</b>" in body


def test_a_damaged_model_beside_the_run_is_left_out_and_said(chain, tmp_path, caplog):
    around = tmp_path / "around"
    shutil.copytree(chain, around)
    shutil.copytree(around / "model", around / "damaged")
    (around / "damaged/config.json").write_text("{")

    found = report(around / "run", tmp_path / "r.html")

    assert around / "damaged" in found.chain.models
    assert "damaged: left out of the page: " in caplog.text
    assert (tmp_path / "r.html").is_file()
    with pytest.raises(BertpreError):
        report(around / "run", tmp_path / "s.html", models=[around / "damaged"])


def test_steps_and_epochs_are_whole_numbers_on_the_axis():
    svg = draw_curves_svg(Curves("loss", "epoch", {"dev": [(1, 9.0), (2, 8.0), (3, 7.0)]})).decode()

    ticks = re.findall(r">([\d.]+)</text>", svg)
    assert {"1", "2", "3"} <= set(ticks)
    assert "1.5" not in ticks


def test_every_template_is_shipped_with_the_package():
    package = Path(bertpre.__file__).parent
    project = tomllib.loads((package.parent / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["bertpre"]

    shipped = {path for pattern in patterns for path in package.glob(pattern)}

    assert {path.name for path in shipped} >= {"page.html.jinja", "card.md.jinja"}
    assert set(package.rglob("*.jinja")) <= shipped
