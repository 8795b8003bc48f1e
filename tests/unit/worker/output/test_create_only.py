"""Who may write what: the first writer, and those who come later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from support.stores.gcs_fake import FakeGcs, Fault
from tokenization_worker.errors import TemporaryError
from tokenization_worker.output.create_only import Disagreement, create_or_read, create_receipt, create_record, place
from tokenization_worker.storage.base import Entry, Store, Upload
from tokenization_worker.storage.gcs.store import GcsStore
from tokenization_worker.storage.local.store import LocalStore


def test_place_creates_again_where_the_other_writer_took_its_own_back(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    theirs = tmp_path / "a"
    attempts = count(1)

    def write(upload: Upload) -> None:
        """The other writer is there first, and has gone before this one replaces what it made."""
        attempt = next(attempts)
        assert attempt <= 3
        if attempt == 1:
            theirs.write_bytes(b"theirs")
        else:
            theirs.unlink(missing_ok=True)
        upload.write(b"ours")

    place(store, "a", write, is_same=lambda found: False, allow_replace=lambda: None)
    assert store.read("a") == b"ours"


def test_place_leaves_an_equal_object_where_it_is(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)

    def leave(equal: bool) -> Entry:
        def refuse() -> None:
            raise PermissionError

        return place(store, "a", lambda upload: upload.write(b"ours"), is_same=lambda _: equal, allow_replace=refuse)

    first = leave(True)
    assert leave(True) == first
    with pytest.raises(PermissionError):
        leave(False)


@dataclass(frozen=True)
class Said:
    """A receipt of one word, on which two writers must agree."""

    word: str

    @property
    def plan_id(self) -> str:
        return "plan"

    def to_dict(self) -> dict[str, str]:
        return {"word": self.word}

    @classmethod
    def from_dict(cls, value: dict[str, str]) -> Said:
        return cls(value["word"])

    def disagreement(self, other: Said) -> str | None:
        return None if self == other else f"{self.word} here, {other.word} there"


def test_receipts_that_disagree_stop_the_later_writer(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert create_receipt(store, "a", Said("yes")) == Said("yes")
    assert create_receipt(store, "a", Said("yes")) == Said("yes")
    with pytest.raises(Disagreement, match="no here, yes there") as raised:
        create_receipt(store, "a", Said("no"))
    assert raised.value.reason == "NotDeterministic"


WRITERS: dict[str, Callable[[Store], object]] = {
    "bytes": lambda store: create_or_read(store, "a", b"ours"),
    "record": lambda store: create_record(store, "a", {"ours": 1}),
    "place": lambda store: place(
        store, "a", lambda upload: upload.write(b"ours"), is_same=lambda found: False, allow_replace=lambda: None
    ),
}


REFUSAL = Fault("POST", "/upload/", 412, "conditionNotMet")
"""What a service answers to a creation where something is there; here nothing is."""


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_refusal_without_a_reason_is_tried_again(fake: FakeGcs, write: Callable[[Store], object]) -> None:
    fake.faults += [REFUSAL] * 2
    write(GcsStore("gs://bucket/out"))
    assert b"ours" in fake.objects["out/a"].data


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_refusals_without_end_are_an_error_in_the_end(fake: FakeGcs, write: Callable[[Store], object]) -> None:
    fake.faults += [REFUSAL] * 100
    with pytest.raises(TemporaryError, match="the object does not exist") as raised:
        write(GcsStore("gs://bucket/out"))
    assert raised.value.reason == "StorageFailed"
    assert "gs://bucket/out/a" in raised.value.message
    assert not fake.objects
