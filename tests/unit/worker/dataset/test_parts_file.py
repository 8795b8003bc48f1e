"""The parts of some rows, out of a file that may be far away."""

from __future__ import annotations

import io
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.forks import exit_code_of_fork
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


@settings(max_examples=40)
@given(
    counts=st.lists(st.sampled_from([1, 1, 2, 3, 40, 3000]), min_size=1, max_size=60), far=st.booleans(), data=st.data()
)
def test_rows_have_their_parts(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], far: bool, data: st.DataObject
) -> None:
    parts = parts_of(counts)
    file = PartsFile(stored(tmp_path_factory.mktemp("parts"), parts, far=far), len(counts))
    for row in data.draw(st.lists(st.integers(0, len(counts) - 1), min_size=1, max_size=8)):
        assert np.array_equal(file.read(row), parts[parts["row"] == row])


def test_a_far_row_is_one_read_after_a_few(tmp_path: Path) -> None:
    """Also where the rows of one half have one part, and those of the other many, in a file of 9 MB."""
    chance = np.random.default_rng(5)
    counts = np.append(np.ones(60_000, dtype=int), chance.integers(1, 20, size=25_000)).tolist()
    stored_file = stored(tmp_path, parts_of(counts), far=True)
    store = stored_file.store
    assert isinstance(store, Far)
    file = PartsFile(stored_file, len(counts))
    reads = []
    for row in chance.integers(0, len(counts), size=300).tolist():
        store.reads = 0
        assert len(file.read(row)) == counts[row]
        reads.append(store.reads)
    assert max(reads) <= 12
    assert np.mean(reads[100:]) < 1.1


def test_rows_of_which_a_far_file_has_no_parts_are_named(tmp_path: Path) -> None:
    """No part may say that it is of another row, and no order may keep a read from its end."""
    parts = parts_of([1] * 9000)
    for row, rows in {
        4000: np.where(parts["row"] == 4000, 4001, parts["row"]),
        8999: np.minimum(parts["row"], 8998),
        0: parts["row"] + 1,
        17: parts["row"][::-1],
        6000: np.zeros_like(parts["row"]),
    }.items():
        changed = parts.copy()
        changed["row"] = rows
        with pytest.raises(ShardUnreadable, match=rf"has no parts of row {row:,}, or is not sorted"):
            PartsFile(stored(tmp_path, changed, far=True), 9000).read(row)


def test_threads_share_a_far_file(tmp_path: Path) -> None:
    counts = np.random.default_rng(1).integers(1, 5, size=30_000).tolist()
    parts = parts_of(counts)
    file = PartsFile(stored(tmp_path, parts, far=True), len(counts))
    starts = np.append(0, np.cumsum(counts))
    rows = np.random.default_rng(2).integers(0, len(counts), size=400).tolist()
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(file.read, rows)
        for row, each in zip(rows, found, strict=True):
            assert np.array_equal(each, parts[starts[row] : starts[row + 1]])


class Stalled(Far):
    """Reads when it is told to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.is_asked, self.may_answer = threading.Event(), threading.Event()

    def read_range(self, path: str, start: int, end: int) -> bytes:
        self.is_asked.set()
        assert self.may_answer.wait(60)
        return super().read_range(path, start, end)


def test_a_fork_reads_while_a_thread_of_its_parent_waits_for_the_store(tmp_path: Path) -> None:
    """No lock is held meanwhile, in which the fork would wait for ever: it has no such thread."""
    near = stored(tmp_path, parts_of([2, 1]), far=False)
    store = Stalled(tmp_path)

    def reads() -> bool:
        signal.alarm(30)
        return len(PartsFile(near, 2).read(0)) == 2

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(PartsFile(StoredFile(store, near.path, near.size), 2).read, 1)
        assert store.is_asked.wait(60)
        assert exit_code_of_fork(reads) == 0
        store.may_answer.set()
        assert len(waiting.result()) == 1


@pytest.mark.parametrize("far", [True, False])
@pytest.mark.parametrize("at", [0, 200, 256, 1 << 20, (1 << 20) + 256, -1])
def test_a_file_with_another_checksum_is_named(tmp_path: Path, far: bool, at: int) -> None:
    """Of several chunks; also where the store keeps no checksum, and by its header where that is another one."""
    file = stored(tmp_path, parts_of([1] * 90_000), far=far)
    data = bytearray((tmp_path / "a.npy").read_bytes())
    crc32c = google_crc32c.value(bytes(data))
    PartsFile(file, 90_000).check(crc32c)
    data[at] ^= 16
    (tmp_path / "a.npy").write_bytes(data)
    words = "has another header" if 0 <= at < 256 else f"is corrupt: its CRC32C is [0-9a-f]{{8}}, expected {crc32c:08x}"
    with pytest.raises(ShardUnreadable, match=words):
        PartsFile(file, 90_000).check(crc32c)


def test_a_far_file_that_grew_is_named(tmp_path: Path) -> None:
    file = stored(tmp_path, parts_of([1]), far=True)
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes() + b"xx")
    with pytest.raises(ShardUnreadable, match="has 286 bytes, expected 284"):
        PartsFile(file, 1).check(0)


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
            PartsFile(good, 2).read(1)
