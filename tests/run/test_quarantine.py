"""A range's list of unusable documents: what was added comes back, and never all of it at once."""

from __future__ import annotations

import tracemalloc
from hashlib import sha256
from pathlib import Path

import pytest

from tokenization_worker.errors import DataError, TemporaryError
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_bytes
from tokenization_worker.output.ledger.quarantine import (
    QuarantineList,
    find_corrupt_lists,
    read_range_list,
    read_range_lists,
)
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.readers.document_batch import FileSlice, Reason, Rejected
from tokenization_worker.storage.local.store import LocalStore

pytestmark = pytest.mark.slow

SOURCE = FileSlice(0, "a.jsonl", 1, "")
BOUND_BYTES = 16 << 20  # 8 MiB in memory before the list goes to a disk, and some chunks


def item(number: int, detail: str = "") -> Rejected:
    detail = f"line break \u2028 and \n in a detail{detail}"
    return Rejected(9 * number, number, Reason.INVALID_JSON, detail, f"not JSON {number}", 9)


def test_a_list_longer_than_memory_is_written_and_read_in_chunks(tmp_path: Path) -> None:
    store, count = LocalStore(tmp_path), 50_000
    tracemalloc.start()
    try:
        with QuarantineList() as quarantine:
            for number in range(count):
                quarantine.add(0, SOURCE, item(number, " of 400 characters" * 20))
            digest = quarantine.store(store, 0, 0)
            assert quarantine.store(store, 0, 0) == digest  # another writer's: the same
        rows = 0
        for number, row in enumerate(read_range_list(store, 0, 0, digest)):
            assert (row["record"], row["excerpt"]) == (number, f"not JSON {number}")
            rows += 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == count
    assert peak < BOUND_BYTES < count * 400


def stored_list(store: LocalStore, range_id: int, digest: str) -> bytes:
    return store.read(layout.quarantine_path(0, range_id, digest))


@pytest.mark.parametrize(("name", "most"), [("one after the other", 4), ("among others", 8)], ids=str)
def test_a_list_takes_a_few_bytes_for_each_bad_line(name: str, most: int, tmp_path: Path) -> None:
    """A line of 2 bytes took 190 on the list: 8 Mi of them, 16 MB of source, were 1.6 GB."""
    store, count = LocalStore(tmp_path), 100_000
    step = 2 if name == "one after the other" else 101
    with QuarantineList() as quarantine:
        for number in range(count):
            detail = "unexpected character at character 1 of the line"
            quarantine.add(0, SOURCE, Rejected(step * number, number, Reason.INVALID_JSON, detail, "x", 2))
        digest = quarantine.store(store, 0, 0)
    assert len(stored_list(store, 0, digest)) < most * count
    assert [row["position"] for row in read_range_list(store, 0, 0, digest)] == list(range(0, step * count, step))


@pytest.mark.parametrize("count", [3, 20_000], ids=str)
def test_a_list_of_an_older_version_is_read_as_it_is(count: int, tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with QuarantineList() as quarantine:
        for number in range(count):
            quarantine.add(0, SOURCE, item(number))
        digest = quarantine.store(store, 0, 5)
    path = layout.quarantine_path(0, 5, digest)
    plain = zstd.decompress(store.read(path))
    store.delete(path)
    assert sha256(plain).hexdigest()[:32] == digest  # so that a list which was lost is made again under its name
    create_bytes(store, layout.plain_quarantine_path(0, 5, digest), plain)
    rows = list(read_range_list(store, 0, 5, digest))
    assert [row["record"] for row in rows] == list(range(count))
    assert list(read_range_lists(store, 0, [(5, digest)])) == [(5, row) for row in rows]
    assert list(find_corrupt_lists(store, 0, [(5, digest)])) == []
    (tmp_path / layout.plain_quarantine_path(0, 5, digest)).write_bytes(plain[:-1])
    [(range_id, entry)] = find_corrupt_lists(store, 0, [(5, digest)])
    assert (range_id, entry.path) == (5, layout.plain_quarantine_path(0, 5, digest))


def test_a_list_of_a_few_bytes_with_many_rows_is_not_held(tmp_path: Path) -> None:
    store, count = LocalStore(tmp_path), 60_000
    with QuarantineList() as quarantine:
        for number in range(count):
            quarantine.add(0, SOURCE, Rejected(2 * number, number, Reason.INVALID_JSON, "d" * 400, "x", 2))
        digest = quarantine.store(store, 0, 0)
    assert len(stored_list(store, 0, digest)) < 256 << 10
    tracemalloc.start()
    try:
        rows = sum(1 for _ in read_range_lists(store, 0, [(0, digest)]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == count
    assert peak < BOUND_BYTES < count * 400


def test_a_list_that_goes_away_while_it_is_read_is_temporary(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with QuarantineList() as quarantine:
        for number in range(20_000):
            quarantine.add(0, SOURCE, item(number, noise(number)))
        digest = quarantine.store(store, 0, 7)
    rows = read_range_list(store, 0, 7, digest)
    next(rows)
    store.delete(layout.quarantine_path(0, 7, digest))
    for found in (rows, read_range_list(store, 0, 7, digest)):
        with pytest.raises(TemporaryError, match=r"QuarantineLost: .*00000007-.* of range 7\n.*start the same command"):
            list(found)


def test_what_was_dropped_is_not_on_the_list(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with QuarantineList() as quarantine:
        assert quarantine.store(store, 0, 0) == ""
        quarantine.add(0, SOURCE, item(1))
        mark = quarantine.mark()
        quarantine.add(1, SOURCE, item(2))
        quarantine.drop_from(mark)
        quarantine.add(2, SOURCE, item(3))
        digest = quarantine.store(store, 0, 0)
    assert [row["record"] for row in read_range_list(store, 0, 0, digest)] == [1, 3]
    assert list(read_range_list(store, 0, 0, "")) == []


@pytest.mark.parametrize("content", [b'{"file":7}\n', b"{}\n", b"[]", b"not JSON", b""])
def test_no_row_of_a_list_that_was_changed_is_given_out(content: bytes, tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with QuarantineList() as quarantine:
        quarantine.add(0, SOURCE, item(1))
        digest = quarantine.store(store, 0, 0)
    (tmp_path / layout.quarantine_path(0, 0, digest)).write_bytes(content)
    with pytest.raises(DataError, match=r"QuarantineCorrupt: .*00000000-.*\n.*deletes this file"):
        next(read_range_list(store, 0, 0, digest))


def test_a_long_list_without_a_folder_for_it_is_temporary_and_names_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with (
        pytest.raises(TemporaryError, match=rf"StorageFailed: .* in {tmp_path}/gone: No such file.*\n.*TMPDIR"),
        QuarantineList() as quarantine,
    ):
        for number in range(20_000):
            quarantine.add(0, SOURCE, item(number, noise(number)))


def noise(number: int) -> str:
    """Text that does not get smaller."""
    return "".join(sha256(b"%d %d" % (number, part)).hexdigest() for part in range(16))
