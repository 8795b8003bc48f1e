"""Connections to Cloud Storage are used again: to open one takes as long as a call."""

from __future__ import annotations

import threading

from support.stores.gcs_fake import FakeGcs
from tokenization_worker.host.parallel import map_at_once
from tokenization_worker.storage.gcs.client import CONNECTIONS, gcs_client
from tokenization_worker.storage.gcs.store import GcsStore
from tokenization_worker.storage.gcs.upload import CHUNK_BYTES


def write(store: GcsStore, path: str, data: bytes) -> None:
    with store.upload(path) as upload:
        upload.write(data)
        upload.commit()


def test_calls_one_after_the_other_share_a_connection(fake: FakeGcs) -> None:
    store = GcsStore("gs://bucket/out")
    for number in range(5):
        write(store, f"{number}", b"data")
        assert store.read(f"{number}") == b"data"
        assert store.read_range(f"{number}", 1, 3) == b"at"
        assert store.stat(f"{number}") is not None
        assert len(list(store.list())) == 1
        store.delete(f"{number}")
    assert len(fake.connections) == 1


def test_the_chunks_of_uploads_share_a_connection(fake: FakeGcs) -> None:
    store = GcsStore("gs://bucket/out")
    for number in range(3):
        write(store, f"{number}", bytes(2 * CHUNK_BYTES + 1))
    assert sum(request.startswith("PUT") for request in fake.requests) == 9
    assert len(fake.connections) == 2  # that of the client begins the uploads


def test_as_many_connections_are_kept_as_there_are_calls_at_once(fake: FakeGcs) -> None:
    store = GcsStore("gs://bucket/out")
    gcs_client()  # or several of the threads make one at once, and all but the last one are used once
    everybody = threading.Barrier(CONNECTIONS)
    fake.hold = lambda _: everybody.wait(120)
    for _ in range(2):
        found = map_at_once(store.stat, map(str, range(CONNECTIONS)), CONNECTIONS)
        assert list(found) == [None] * CONNECTIONS
    assert len(fake.connections) == CONNECTIONS
