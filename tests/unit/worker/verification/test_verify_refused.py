"""What `verify` holds of the quarantine table does not grow with its rows."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tokenization_worker.errors import TemporaryError
from tokenization_worker.output import layout
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.storage.local.store import LocalStore
from tokenization_worker.verification.claims import FileClaim
from tokenization_worker.verification.facts import Unreadable
from tokenization_worker.verification.refused import (
    Refusal,
    add_up_refused,
    refused_by_file,
    refused_lines,
)

ROWS, FILES = 30_000, 20
BOUND_BYTES = 5 << 20


def row(number: int, file: int, reason: str = "InvalidJson") -> dict[str, object]:
    place = {"file": file, "uri": f"/{file}", "position": 2 * number, "record": number + 1}
    return place | {"reason": reason, "detail": "unexpected character", "excerpt": "x" * 200}


def claim(number: int) -> FileClaim:
    return FileClaim(number, f"/{number}", 1, "", "Read", (0,), (0,), (0,), 0)


def table(folder: Path, rows: Iterable[dict[str, object]]) -> LocalStore:
    path = folder / layout.QUARANTINE_TABLE
    path.parent.mkdir(parents=True)
    path.write_bytes(zstd.compress(b"".join(json.dumps(item, separators=(",", ":")).encode() + b"\n" for item in rows)))
    return LocalStore(folder)


@pytest.fixture(scope="module")
def long_table(tmp_path_factory: pytest.TempPathFactory) -> LocalStore:
    rows = (row(number, number * FILES // ROWS) for number in range(ROWS))
    return table(tmp_path_factory.mktemp("long"), rows)


@pytest.mark.parametrize(
    "read",
    [
        lambda store: add_up_refused(store).rows,
        lambda store: sum(1 for _ in refused_lines(store)),
        lambda store: sum(map(len, refused_by_file(store, list(map(claim, range(FILES)))))),
    ],
    ids=["sums", "digest", "files"],
)
def test_no_pass_over_the_table_holds_its_rows(read: Callable[[LocalStore], int], long_table: LocalStore) -> None:
    read(long_table)
    tracemalloc.start()
    try:
        assert read(long_table) == ROWS
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < BOUND_BYTES < ROWS * 200


def test_each_file_has_its_rows_in_order_and_none_that_are_out_of_place(tmp_path: Path) -> None:
    rows = [row(0, 1), row(1, 1, "NullText"), row(2, 3), row(9, 0), row(3, 3), row(4, 7), row(5, 4, "KillsWorker")]
    store = table(tmp_path, rows)
    found = [list(map(tuple, part)) for part in refused_by_file(store, list(map(claim, range(6))))]
    first, second = Refusal(0, 1, "InvalidJson"), Refusal(2, 2, "NullText")
    third = [(4, 3, "InvalidJson"), (6, 4, "InvalidJson")]
    assert found == [[], [first, second], [], third, [(10, 6, "KillsWorker")], []]
    sums = add_up_refused(store)
    assert (sums.rows, sums.by_uri["/3"], sums.killing) == (7, 2, {"/4": (10,)})
    assert sums.reasons == {"InvalidJson": 5, "NullText": 1, "KillsWorker": 1}


@pytest.mark.parametrize(
    "bad",
    [{"uri": "/0"}, row(1 << 70, 0), {**row(0, 0), "record": None}, [1]],
    ids=["no place", "a place beyond all files", "no record", "no object"],
)
def test_a_row_that_is_none_is_a_finding(bad: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="TableCorrupt"):
        add_up_refused(table(tmp_path, [row(0, 0), bad]))


def test_a_table_of_more_reasons_than_there_are_is_a_finding(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="TableCorrupt"):
        add_up_refused(table(tmp_path, [row(number, 0, f"reason {number}") for number in range(300)]))


def test_a_table_that_changes_between_two_passes_is_temporary(tmp_path: Path) -> None:
    store = table(tmp_path, [row(0, 0)])
    add_up_refused(store)
    (tmp_path / layout.QUARANTINE_TABLE).write_bytes(b"other")
    with pytest.raises(TemporaryError, match="changed while it was verified"):
        list(refused_lines(store))
