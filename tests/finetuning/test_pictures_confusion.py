"""The picture of a confusion matrix; pytest turns a warning about a glyph into a failure."""

import numpy as np
import pytest

from bertpre.finetuning.pictures import axis_names, draw_confusions


@pytest.mark.parametrize(
    "classes",
    [
        ["0", "1"],
        ["costs $5 and $6", "a^2_b", "x" * 90, "ä é ß", "й"],
        ["正面", "负面"],
        ["ดี", "ไม่ดี", "เฉย"],
        ["👍", "👎"],
        [f"class {number}" for number in range(32)],
        [str(number) for number in range(60)],
    ],
    ids=["two", "odd", "chinese", "thai", "emoji", "many", "very-many"],
)
def test_any_labels_can_be_drawn(tmp_path, classes):
    counts = np.diag(np.arange(len(classes)))
    path = tmp_path / "picture.png"

    draw_confusions(path, counts, classes, title="dev")

    assert path.read_bytes().startswith(b"\x89PNG")


def test_equal_counts_give_equal_bytes(tmp_path):
    for name in ("a.png", "b.png"):
        draw_confusions(tmp_path / name, np.eye(2, dtype=int), ["no", "yes"], title="dev")

    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_labels_that_the_font_cannot_write_are_numbered():
    assert axis_names(["good", "bad"]) == ["good", "bad"]
    assert axis_names(["good", "\U0010fffd"]) == ["0", "1"]
