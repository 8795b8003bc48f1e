"""How long Cloud Storage is waited for: as long as it asks, and not at all where no wait can help."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.patience import Clock
from support.stores.gcs_emulator import gcs_host  # noqa: F401  a fixture
from support.stores.gcs_fake import FakeGcs, Fault
from support.stores.storage_contract import put
from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.inspect.clean import clean_output
from tokenization_worker.inspect.status import read_status
from tokenization_worker.storage.gcs.client import EMULATOR_VARIABLE, RETRY, PatientRetry
from tokenization_worker.storage.gcs.source import GcsSource
from tokenization_worker.storage.gcs.store import GcsStore
from tokenization_worker.storage.gcs.upload import CHUNK_BYTES
from tokenization_worker.storage.prefetch import PATIENCE_S
from tokenization_worker.storage.retry import MOST_ASKED_S

# The client library leaves the connection of a download that failed to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(PatientRetry, "clock", staticmethod(lambda: clock.now))
    monkeypatch.setattr(PatientRetry, "sleep", staticmethod(clock.sleep))
    return clock


CALLS = {
    "list": ("GET", lambda store: list(store.list())),
    "stat": ("GET", lambda store: store.stat("a")),
    "read": ("GET", lambda store: store.read("a")),
    "range": ("GET", lambda store: store.read_range("a", 0, 2)),
    "upload": ("POST", lambda store: put(store, "b", b"x")),
    "chunk": ("PUT", lambda store: put(store, "c", b"x" * (CHUNK_BYTES + 1))),
    "delete": ("DELETE", lambda store: store.delete("a")),
    "source": ("GET", lambda store: GcsSource().open("gs://bucket/out/a")[1].read(3)),
}


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("call", CALLS)
def test_a_rate_limit_is_waited_for_as_long_as_it_says(call: str, status: int, fake: FakeGcs, clock: Clock) -> None:
    fake.put("out/a", b"abc")
    method, attempt = CALLS[call]
    fake.faults += [Fault(method, "/bucket/o", status, headers={"retry-after": "150"})] * 2
    attempt(GcsStore("gs://bucket/out"))
    assert not fake.faults
    assert 300 <= clock.now < 310


def test_without_a_word_from_the_service_waits_end_after_two_minutes(fake: FakeGcs, clock: Clock) -> None:
    fake.faults += [Fault("GET", "/bucket/o", 503, "busy")] * 100
    with pytest.raises(TemporaryError, match="503 busy"):
        GcsStore("gs://bucket/out").read("a")
    assert 60 < clock.now <= 120  # the wait that would end later takes a minute at most


def test_a_read_is_given_up_no_sooner_than_its_tries_may_end() -> None:
    assert RETRY.timeout is not None
    assert RETRY.timeout + MOST_ASKED_S < PATIENCE_S


@pytest.mark.parametrize(
    "host",
    ["http://127.0.0.1:99999", "http://127.0.0.1:0", "http://127.0.0.1:x", "https://127.0.0.1:99999/"],
)
def test_an_impossible_port_is_refused_before_any_call(
    host: str, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setenv(EMULATOR_VARIABLE, host)
    with pytest.raises(SpecError, match=r"(?s)STORAGE_EMULATOR_HOST is .*a port from 1 to 65535") as raised:
        GcsStore("gs://bucket/out").read("a")
    assert raised.value.reason == "StorageNotUsable"
    assert clock.now == 0


@pytest.mark.parametrize("call", ["list", "read", "upload", "source"])
def test_https_where_http_is_spoken_is_refused_at_once(
    call: str, fake: FakeGcs, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setenv(EMULATOR_VARIABLE, fake.url.replace("http:", "https:"))
    with pytest.raises(SpecError, match="the service there does not use https") as raised:
        CALLS[call][1](GcsStore("gs://bucket/out"))
    assert raised.value.reason == "StorageNotUsable"
    assert clock.now == 0


@pytest.fixture(params=["fake", "emulator"])
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that word it differently."""
    if request.param == "fake":
        request.getfixturevalue("fake")
    else:
        monkeypatch.setenv(EMULATOR_VARIABLE, request.getfixturevalue("gcs_host"))


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize("look", [read_status, lambda uri: clean_output(uri, dry_run=False)], ids=["status", "clean"])
def test_a_bucket_that_is_not_there_is_said_to_be_missing(look: Callable[[str], object]) -> None:
    with pytest.raises(SpecError, match=r"bucket 'nowhere' does not exist"):
        look("gs://nowhere/out")
