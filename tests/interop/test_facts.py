"""Reports become names and values that people read, whatever a stage puts into them."""

from bertpre.interop.facts import Facts, describe, write_value


def test_counts_shares_and_quantiles_are_written_as_what_they_are():
    report = {
        "documents": 1234567,
        "unk_rate": 0.0123,
        "random_next_share": 0.5,
        "learning_rate": 0.0002,
        "mean_length": 61.25,
        "lowercase": True,
        "seed": 20000,
        "sentence_length_quantiles": [1, 2, 3, 4, 5, 6000],
        "left_out_most_frequent": [["é", 12000], ["ü", 3]],
        "nothing": None,
        "no_list": [],
    }

    (facts,) = describe("text", report)

    assert facts == Facts(
        "text",
        {
            "documents": "1,234,567",
            "unk rate": "1.23 %",
            "random next share": "50 %",
            "learning rate": "0.0002",
            "mean length": "61.25",
            "lowercase": "yes",
            "seed": "20000",
            "sentence length quantiles": "1 (5%), 2 (25%), 3 (50%), 4 (75%), 5 (95%), 6,000 (99%)",
            "left out most frequent": "'é' 12,000, 'ü' 3",
        },
    )


def test_a_report_inside_a_report_is_one_of_its_own_unless_it_is_small():
    report = {
        "optimizer": {"learning_rate": 0.001, "beta1": 0.9},
        "corpus": {name: 1 for name in "abcdefg"},
    }

    found = describe("run", report)

    assert found == [
        Facts("run", {"optimizer": "learning rate 0.001, beta1 0.9"}),
        Facts("run: corpus", {name: "1" for name in "abcdefg"}),
    ]


def test_a_long_list_is_cut_and_says_so():
    assert write_value("names", list("abcdefghijklmn")).endswith("k, l, …")


def test_an_empty_report_is_nothing():
    assert describe("text", {}) == []
    assert describe("text", {"unigrams": None}) == []


def test_counts_of_zero_share_a_row():
    report = {"bad_bytes": 0, "documents": 3, "removed_lines": 0, "seed": 0, "header": False,
              "smoothing": 0.0}  # fmt: skip

    (facts,) = describe("text", report)

    assert facts.rows == {
        "documents": "3",
        "seed": "0",
        "header": "no",
        "smoothing": "0",
        "none of": "bad bytes, removed lines",
    }
