"""What every store must do. Each implementation's test module subclasses `StoreContract` with its own `store`."""

from __future__ import annotations

import multiprocessing
import pickle
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import google_crc32c
import numpy as np
import pytest

from tokenization_worker.storage.base import MARK_ABSENT, Entry, NotFound, PreconditionFailed, Store
from tokenization_worker.storage.open import open_store

RACERS = 8
RACES = 12


def put(store: Store, path: str, data: bytes, expect: str = MARK_ABSENT) -> Entry:
    with store.upload(path, expect=expect) as upload:
        upload.write(data)
        return upload.commit()


def paths(store: Store, prefix: str = "") -> list[str]:
    return sorted(entry.path for entry in store.list(prefix))


def race(attempts: list[Callable[[], object]]) -> int:
    """Run all at once; returns how many were not refused."""
    start = threading.Barrier(len(attempts))

    def attempt(run: Callable[[], object]) -> bool:
        start.wait()
        try:
            run()
        except PreconditionFailed:
            return False
        return True

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(len(attempts)) as pool:
            return sum(pool.map(attempt, attempts))
    finally:
        sys.setswitchinterval(usual)


def create_many(uri: str, name: str) -> set[str]:
    """In a process of its own: the paths that it was first to create."""
    won = set()
    for number in range(RACES):
        try:
            put(open_store(uri), f"race/{number}", name.encode())
        except PreconditionFailed:
            continue
        won.add(f"race/{number}")
    return won


class StoreContract:
    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError

    @pytest.mark.parametrize(
        "path",
        ["plain", "a/b/c.json", "with space/ü-名.npy", "odd #%?&+='", "_tokenization/plan"],
        ids=["plain", "nested", "unicode", "reserved-in-urls", "ours"],
    )
    def test_what_was_committed_is_what_is_read(self, store: Store, path: str) -> None:
        entry = put(store, path, b"hello")
        assert store.read(path) == b"hello"
        assert store.stat(path) == entry
        assert list(store.list()) == [entry]
        assert (entry.path, entry.size) == (path, 5)
        assert entry.crc32c in (None, google_crc32c.value(b"hello"))

    def test_an_empty_object_is_an_object(self, store: Store) -> None:
        assert put(store, "empty", b"").size == 0
        assert store.read("empty") == b""
        assert store.read_range("empty", 0, 10) == b""

    def test_writes_of_any_size_and_kind_are_joined_in_order(self, store: Store) -> None:
        tokens = np.arange(70_000, dtype=np.uint16)
        with store.upload("joined") as upload:
            for data in (b"", b"head", memoryview(tokens), b"x" * 3_000_000, b"tail"):
                upload.write(data)
            upload.commit()
        assert store.read("joined") == b"head" + tokens.tobytes() + b"x" * 3_000_000 + b"tail"

    def test_second_creation_is_refused_and_changes_nothing(self, store: Store) -> None:
        first = put(store, "a", b"first")
        with pytest.raises(PreconditionFailed):
            put(store, "a", b"second")
        assert store.read("a") == b"first"
        assert store.stat("a") == first
        assert paths(store) == ["a"]

    def test_replacing_names_the_version_it_replaces(self, store: Store) -> None:
        first = put(store, "a", b"one")
        second = put(store, "a", b"two", expect=first.version)
        assert second.version != first.version
        assert store.read("a") == b"two"

    def test_replacing_a_version_that_is_gone_is_refused(self, store: Store) -> None:
        first = put(store, "a", b"one")
        put(store, "a", b"two", expect=first.version)
        with pytest.raises(PreconditionFailed):
            put(store, "a", b"three", expect=first.version)
        assert store.read("a") == b"two"
        store.delete("a")
        with pytest.raises(PreconditionFailed):
            put(store, "a", b"four", expect=first.version)
        assert store.stat("a") is None

    def test_of_threads_that_create_one_path_exactly_one_wins(self, store: Store) -> None:
        for number in range(RACES):
            path = f"race/{number}"
            contents = [f"writer {racer}".encode() for racer in range(RACERS)]
            assert race([lambda c=c, p=path: put(store, p, c) for c in contents]) == 1  # type: ignore[misc]
            assert store.read(path) in contents
        assert len(paths(store)) == RACES

    def test_of_threads_that_replace_one_version_exactly_one_wins(self, store: Store) -> None:
        version = put(store, "a", b"before").version
        for number in range(RACES):
            contents = [f"round {number} writer {racer}".encode() for racer in range(RACERS)]
            assert race([lambda c=c, v=version: put(store, "a", c, v) for c in contents]) == 1  # type: ignore[misc]
            assert store.read("a") in contents
            entry = store.stat("a")
            assert entry is not None
            version = entry.version

    def test_of_processes_that_create_one_path_exactly_one_wins(self, store: Store) -> None:
        names = ["first", "second", "third"]
        with multiprocessing.get_context("spawn").Pool(len(names)) as pool:
            won = pool.starmap(create_many, [(store.uri, name) for name in names], chunksize=1)
        assert sum(len(paths) for paths in won) == RACES
        for name, winners in zip(names, won, strict=True):
            assert all(store.read(path) == name.encode() for path in winners)

    def test_nothing_is_visible_before_commit(self, store: Store) -> None:
        with store.upload("late") as upload:
            upload.write(b"x" * 1_000_000)
            assert store.stat("late") is None
            assert paths(store) == []
            with pytest.raises(NotFound):
                store.read("late")
            upload.commit()
            assert paths(store) == ["late"]

    def test_a_replaced_object_stays_whole_until_commit(self, store: Store) -> None:
        version = put(store, "a", b"old").version
        with store.upload("a", expect=version) as upload:
            upload.write(b"new")
            assert store.read("a") == b"old"
            upload.commit()
        assert store.read("a") == b"new"

    def test_leaving_without_commit_leaves_nothing(self, store: Store) -> None:
        with store.upload("gone") as upload:
            upload.write(b"data")
        with pytest.raises(KeyError), store.upload("gone") as upload:
            upload.write(b"data")
            raise KeyError("the writer failed")
        assert paths(store) == []
        put(store, "gone", b"now")
        assert store.read("gone") == b"now"

    def test_list_takes_any_prefix_of_a_path(self, store: Store) -> None:
        for path in ("a", "ab/c", "ab/d/e", "abc", "b"):
            put(store, path, path.encode())
        expected = {
            "": ["a", "ab/c", "ab/d/e", "abc", "b"],
            "a": ["a", "ab/c", "ab/d/e", "abc"],
            "ab": ["ab/c", "ab/d/e", "abc"],
            "ab/": ["ab/c", "ab/d/e"],
            "ab/d": ["ab/d/e"],
            "ab/d/e/": [],
            "none/such": [],
        }
        assert {prefix: paths(store, prefix) for prefix in expected} == expected

    @pytest.mark.parametrize(
        ("start", "end", "expected"),
        [
            (0, 10, b"0123456789"),
            (3, 5, b"34"),
            (8, 100, b"89"),
            (10, 20, b""),
            (99, 100, b""),
            (5, 5, b""),
            (7, 3, b""),
        ],
        ids=["whole", "inside", "over-the-end", "at-the-end", "beyond", "empty", "reversed"],
    )
    def test_read_range_is_half_open_and_ends_with_the_object(
        self, store: Store, start: int, end: int, expected: bytes
    ) -> None:
        put(store, "digits", b"0123456789")
        assert store.read_range("digits", start, end) == expected

    def test_deleted_objects_are_gone_and_may_be_deleted_again(self, store: Store) -> None:
        put(store, "a/b", b"x")
        store.delete("a/b")
        store.delete("a/b")
        assert store.stat("a/b") is None
        assert paths(store) == []
        put(store, "a/b", b"again")

    def test_a_retracted_upload_is_gone_and_may_be_retracted_again(self, store: Store) -> None:
        with store.upload("a") as upload:
            upload.write(b"x")
            upload.commit()
            upload.retract()
            upload.retract()
        assert store.stat("a") is None

    @pytest.mark.parametrize("path", ["missing", "a", "a/b/c"], ids=["nothing", "above-an-object", "below-an-object"])
    def test_what_is_not_an_object_is_not_found(self, store: Store, path: str) -> None:
        put(store, "a/b", b"x")
        assert store.stat(path) is None
        for read in (lambda: store.read(path), lambda: store.read_range(path, 0, 1)):
            if path != "a":  # the only one that a folder answers in its own way
                with pytest.raises(NotFound):
                    read()
        if path != "a":
            store.delete(path)

    def test_a_pickled_store_is_the_same_store(self, store: Store) -> None:
        put(store, "a", b"x")
        copy: Store = pickle.loads(pickle.dumps(store))
        assert copy.uri == store.uri
        assert copy.read("a") == b"x"

    def test_deleting_a_version_leaves_another_one(self, store: Store) -> None:
        first = put(store, "a", b"one")
        second = put(store, "a", b"two", expect=first.version)
        store.delete("a", version=first.version)
        assert store.read("a") == b"two"
        store.delete("a", version=second.version)
        assert store.stat("a") is None
        store.delete("a", version=second.version)

    def test_close_scratch_keeps_what_was_committed(self, store: Store) -> None:
        put(store, "a", b"x")
        with store.upload("b") as upload:
            upload.write(b"y")
        store.close_scratch()
        assert paths(store) == ["a"]
        put(store, "b", b"z")
        assert paths(store) == ["a", "b"]
