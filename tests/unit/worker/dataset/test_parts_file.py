"""The parts of some rows, out of a file that may be far away."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenization_worker.dataset.parts_file import PartsFile
from tokenization_worker.formats.base import ShardUnreadable, StoredFile
from tokenization_worker.sequences.parts import PART, PartArray
from tokenization_worker.storage.local.store import LocalStore


class Far(LocalStore):
    """A folder that is read as a store elsewhere is: by ranges."""

    reads = 0

    def local_path(self, path: str) -> None:  # type: ignore[override]
        return None

    def read_range(self, path: str, start: int, end: int) -> bytes:
        self.reads += 1
        return super().read_range(path, start, end)


def parts_of(counts: list[int]) -> PartArray:
    """So many parts in each row."""
    parts = np.zeros(sum(counts), dtype=PART)
    parts["row"] = np.repeat(np.arange(len(counts)), counts)
    parts["position"] = np.arange(len(parts))
    return parts


def stored(folder: Path, parts: PartArray, *, far: bool) -> StoredFile:
    content = io.BytesIO()
    np.save(content, parts)
    (folder / "a.npy").write_bytes(content.getvalue())
    return StoredFile(Far(folder) if far else LocalStore(folder), "a.npy", len(content.getvalue()))


@settings(deadline=None, max_examples=40)
@given(
    counts=st.lists(st.sampled_from([1, 1, 2, 3, 40, 3000]), min_size=1, max_size=60), far=st.booleans(), data=st.data()
)
def test_rows_have_their_parts(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], far: bool, data: st.DataObject
) -> None:
    parts = parts_of(counts)
    file = PartsFile(stored(tmp_path_factory.mktemp("parts"), parts, far=far), len(counts))
    for _ in range(5):
        first = data.draw(st.integers(0, len(counts) - 1))
        end = data.draw(st.integers(first + 1, len(counts)))
        expected = parts[(parts["row"] >= first) & (parts["row"] < end)]
        assert np.array_equal(file.read(first, end), expected)


def test_a_far_row_is_a_few_small_reads(tmp_path: Path) -> None:
    """Of rows that hold one to five parts, in a file of 8 MB."""
    chance = np.random.default_rng(5)
    counts = chance.integers(1, 6, size=100_000).tolist()
    stored_file = stored(tmp_path, parts_of(counts), far=True)
    store = stored_file.store
    assert isinstance(store, Far)
    file = PartsFile(stored_file, len(counts))
    file.read(0, 1)
    store.reads = 0
    rows = chance.integers(0, len(counts), size=50).tolist()
    for row in rows:
        assert len(file.read(row, row + 1)) == counts[row]
    assert store.reads <= 4 * len(rows)


@pytest.mark.parametrize("far", [True, False])
def test_a_file_that_is_not_of_these_parts_is_named(tmp_path: Path, far: bool) -> None:
    good = stored(tmp_path, parts_of([2, 1]), far=far)
    cases = {
        "is missing": lambda data: None,
        "has another header than that of 3 parts": lambda data: data.replace(b"(3,)", b"(4,)"),
        "ends at byte" if far else "mmap length": lambda data: data[:-28],
    }
    content = (tmp_path / "a.npy").read_bytes()
    for words, change in cases.items():
        (tmp_path / "a.npy").unlink(missing_ok=True)
        changed = change(content)
        if changed is not None:
            (tmp_path / "a.npy").write_bytes(changed)
        with pytest.raises(ShardUnreadable, match=words.replace("(", r"\(")):
            PartsFile(good, 2).read(0, 2)
