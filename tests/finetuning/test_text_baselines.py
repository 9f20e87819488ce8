from bertpre.finetuning.text_baselines import commonest_target, nearest_targets


def test_the_target_of_the_most_similar_source_is_taken() -> None:
    sources = ["red fish swims", "blue bird sings", "red bird sings", "red fish swims"]
    targets = ["one", "two", "three", "four"]
    queries = ["a red fish", "blue bird sings loud", "sings", "red fish swims", "unseen"]
    # "sings" weighs more where the other words are common; the first of equals counts.
    assert nearest_targets(sources, targets, queries) == ["one", "two", "three", "one", "one"]


def test_the_order_of_single_letters_counts() -> None:
    assert nearest_targets(["t a c", "c a t"], ["tac", "cat"], ["c a t s"]) == ["cat"]


def test_texts_without_spaces_are_compared_by_characters() -> None:
    sources = ["双肺纹理增多结节", "皇后传令给李继岌"]
    assert nearest_targets(sources, ["lung", "queen"], ["皇后便传令", "见结节影"]) == [
        "queen",
        "lung",
    ]


def test_the_commonest_target_is_the_first_of_equals() -> None:
    assert commonest_target(["b", "a", "a", "b", "c"]) == "b"
