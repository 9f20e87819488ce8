import numpy as np
import pytest

from bertpre.data import dataset as order
from bertpre.data.dataset import epoch_order
from bertpre.data.random64 import permute


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 10 examples, 5 of them in a window."""
    monkeypatch.setattr(order, "_BLOCK", 10)
    monkeypatch.setattr(order, "_WINDOW", 5)


def in_blocks(places: np.ndarray, size: int, key: int = 1) -> np.ndarray:
    return epoch_order(places, size, key=key, ids_bytes=order.SHUFFLED_WHOLE_BYTES + 1)


def test_what_fits_in_memory_is_shuffled_as_a_whole() -> None:
    found = epoch_order(np.arange(1000), 1000, key=1, ids_bytes=order.SHUFFLED_WHOLE_BYTES)

    assert found.tolist() == permute(np.arange(1000), 1000, 1).tolist()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("size", [1, 9, 10, 11, 49, 50, 51, 203, 1000])
def test_an_epoch_in_blocks_has_every_example_once(size: int) -> None:
    assert sorted(in_blocks(np.arange(size), size)) == list(range(size))


@pytest.mark.usefixtures("small_blocks")
def test_a_window_reads_few_blocks_in_mixed_order() -> None:
    found = in_blocks(np.arange(1000), 1000)

    windows = found.reshape(20, 50)
    assert all(len(np.unique(window // 10)) == 5 for window in windows)
    assert len(np.unique(found[:50] // 50)) > 1  # blocks that are no neighbours
    assert (np.diff(found) == 1).mean() < 0.1
    assert found.tolist() != in_blocks(np.arange(1000), 1000, key=2).tolist()


@pytest.mark.usefixtures("small_blocks")
def test_each_window_is_mixed_in_its_own_way() -> None:
    found = in_blocks(np.arange(1000), 1000)

    # The places within their blocks, in the order in which a window reads them.
    places = found.reshape(20, 50) % 10
    assert len(np.unique(places, axis=0)) == 20


@pytest.mark.usefixtures("small_blocks")
def test_a_place_asked_for_alone_has_the_same_example() -> None:
    found = in_blocks(np.arange(203), 203)

    assert in_blocks(np.array([200, 7, 51]), 203).tolist() == found[[200, 7, 51]].tolist()
