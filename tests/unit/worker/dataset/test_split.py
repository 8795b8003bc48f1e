"""A split is an array of tokens across shards, whatever is asked of it; the oracle is one array in memory."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tokenization_worker.api.data import Delimiters
from tokenization_worker.dataset.shard import Shard
from tokenization_worker.dataset.split import Split
from tokenization_worker.dataset.token_stream import Stream
from tokenization_worker.storage.local.store import LocalStore

BORDERS = (0, 7, 8, 20, 24)
"""Of the shards of a stream: the first one is another split's."""

TOKENS = np.arange(100, 100 + BORDERS[-1], dtype="<u2")
OWN = TOKENS[BORDERS[1] :]


class Remote(LocalStore):
    """Has no paths on this machine, so that nothing is mapped."""

    def local_path(self, path: str) -> Path | None:
        del path
        return None


@pytest.fixture(params=[LocalStore, Remote])
def split(request: pytest.FixtureRequest, tmp_path: Path) -> Split:
    for number, (start, end) in enumerate(pairwise(BORDERS)):
        np.save(tmp_path / f"{number}.npy", TOKENS[start:end])
    return open_split(request.param, tmp_path)


def open_split(kind: type[LocalStore], folder: Path) -> Split:
    store = kind(folder)
    shards = []
    for number, (start, end) in enumerate(pairwise(BORDERS)):
        files = ((f"{number}.npy", 128 + 2 * (end - start)),)
        shards.append(Shard(store, "Npy", files, TOKENS.dtype, "train", number, end - start, 1, start, ""))
    stream = Stream(0, tuple(shards), TOKENS.dtype)
    return Split("train", 3, stream, tuple(shards[1:]), Delimiters(9, None), (open_split, (kind, folder)), 0)


def test_what_is_no_number_is_named(split: Split) -> None:
    for ask, words in {
        lambda: split.tokens("a", 3): "start: expected a whole number, found 'a'",  # type: ignore[arg-type]
        lambda: split.tokens(0, 1.5): "end: expected a whole number, found 1.5",  # type: ignore[arg-type]
        lambda: split[True]: "split 'train': expected a whole number or a slice, found True",
    }.items():
        with pytest.raises(TypeError, match=words):
            ask()
    assert split.tokens(np.int64(1), np.int32(4)).tolist() == OWN[1:4].tolist()


@pytest.mark.parametrize("step", [None, 1, 3, -1, -4])
def test_slices_are_those_of_one_array(step: int | None, split: Split) -> None:
    assert len(split) == len(OWN)
    for start in (None, -30, -5, 0, 1, 12, 17, 40):
        for end in (None, -30, -1, 0, 1, 13, 17, 40):
            found = split[start:end:step]
            assert found.tolist() == OWN[start:end:step].tolist()
            assert found.dtype == TOKENS.dtype
    assert [int(split[number]) for number in range(-17, 17)] == [*OWN.tolist(), *OWN.tolist()]


def test_every_run_of_tokens_is_read_across_shards(split: Split) -> None:
    for start in range(len(OWN) + 1):
        for end in range(start, len(OWN) + 1):
            assert split.tokens(start, end).tolist() == OWN[start:end].tolist()


@pytest.mark.parametrize(
    "ask",
    [
        lambda split: split[17],
        lambda split: split[-18],
        lambda split: split.tokens(-1, 3),
        lambda split: split.tokens(3, 18),
        lambda split: split.tokens(4, 3),
    ],
    ids=["behind", "before", "negative", "too far", "backwards"],
)
def test_tokens_of_another_split_are_out_of_reach(ask: Callable[[Split], object], split: Split) -> None:
    with pytest.raises(IndexError, match="the length of split 'train'"):
        ask(split)


def test_what_is_read_is_a_copy(split: Split) -> None:
    split.tokens(0, 5)[:] = 0
    split[:][:] = 0
    assert np.asarray(split).tolist() == OWN.tolist()


def test_numpy_gets_the_type_that_it_asks_for_and_no_view_of_several_shards(split: Split) -> None:
    assert np.asarray(split, dtype=np.int64).tolist() == OWN.tolist()
    assert np.asarray(split, dtype=np.int64).dtype == np.int64
    with pytest.raises(ValueError, match="only as a copy"):
        np.array(split, copy=False)


def test_a_split_can_be_sent_to_another_process(split: Split) -> None:
    assert pickle.loads(pickle.dumps(split))[:].tolist() == OWN.tolist()
