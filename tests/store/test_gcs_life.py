"""A run on Cloud Storage shows that it goes on, by the service's clock; one that was killed is seen for a while."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from support.engine.inline import inline
from support.stores.bucket_job import JOB
from support.stores.gcs_emulator import gcs_bucket, gcs_host, gcs_uri  # noqa: F401  fixtures
from support.stores.gcs_fake import FakeGcs, Fault
from support.stores.storage_contract import paths
from tokenization_worker.cli.main import main
from tokenization_worker.engine.dispatch import Stopped
from tokenization_worker.errors import ChangedError
from tokenization_worker.inspect.clean import clean_output
from tokenization_worker.inspect.status import read_status
from tokenization_worker.output import layout
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.storage.gcs.client import RETRY
from tokenization_worker.storage.gcs.store import GcsStore
from tokenization_worker.storage.heartbeat import BEAT_S, DEAD_AFTER_S, Heartbeat

# The client library leaves the connection of a download that failed to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

OUT = "gs://bucket/out"
ALIVE = f"out/{layout.ALIVE}"


@pytest.fixture(autouse=True)
def _three_files(fake: FakeGcs) -> None:
    for number in range(3):
        lines = [json.dumps({"text": f"file {number}, line {line}: some text"}) for line in range(200)]
        fake.put(f"corpus/{number}.jsonl", "\n".join(lines).encode())


def begin(fake: FakeGcs) -> list[str]:
    """Run until the first range is done; what `status` said meanwhile."""
    phases: list[str] = []

    def stop() -> bool:
        if any("/ranges/" in name for name in fake.objects):
            phases.append(read_status(OUT).phase)
            with pytest.raises(ChangedError, match=r"(?s)OutputLive: .*--force"):
                clean_output(OUT, dry_run=True)
        return bool(phases)

    with pytest.raises(Stopped):
        run_job(JOB, options=Options(processes=2), executor=inline(), should_stop=stop)
    return phases


@pytest.mark.parametrize("ahead_s", [0, 86_400, -86_400], ids=["", "clock-a-day-behind", "clock-a-day-ahead"])
def test_a_run_that_goes_on_is_seen_whatever_the_time_is_here(ahead_s: float, fake: FakeGcs) -> None:
    fake.ahead_s = ahead_s
    assert begin(fake) == ["Running"]
    assert read_status(OUT).phase == "Interrupted"
    assert not any(name.startswith(ALIVE) for name in fake.objects)
    run_job(JOB, options=Options(processes=2), executor=inline())
    assert read_status(OUT).phase == "Complete"
    assert not any(name.startswith(ALIVE) for name in fake.objects)


def test_a_complete_dataset_is_removed_by_a_command_of_the_service() -> None:
    run_job(JOB, options=Options(processes=2), executor=inline())
    with pytest.raises(ChangedError, match=f"remove it yourself: gcloud storage rm -r {OUT}/"):
        clean_output(OUT, dry_run=False)


def kill(fake: FakeGcs, age_s: float) -> None:
    """As a driver leaves it that was killed so long ago."""
    begin(fake)
    name = f"{ALIVE}host-1-00000000"
    fake.put(name, b"")
    for path, stored in fake.objects.items():
        if path.startswith("out/"):
            stored.updated -= timedelta(seconds=age_s)


def test_a_run_that_was_killed_just_now_may_live_and_is_cleaned_by_force(
    fake: FakeGcs, capsys: pytest.CaptureFixture[str]
) -> None:
    kill(fake, age_s=DEAD_AFTER_S - 30)
    state = read_status(OUT)
    assert state.phase == "Running"
    assert "a run that was killed still counts as running for 3 more minutes" in state.next_step
    assert main(["clean", OUT]) == 3
    assert "killed less than 3 minutes ago" in capsys.readouterr().err
    assert main(["clean", OUT, "--force"]) == 0
    assert paths(GcsStore(OUT)) == []


def test_a_run_that_was_killed_some_time_ago_is_interrupted_and_cleaned(fake: FakeGcs) -> None:
    kill(fake, age_s=DEAD_AFTER_S + 1)
    assert read_status(OUT).phase == "Interrupted"
    clean_output(OUT, dry_run=False)
    assert paths(GcsStore(OUT)) == []


def test_a_run_whose_beats_fail_is_seen_by_what_it_writes(fake: FakeGcs) -> None:
    kill(fake, age_s=DEAD_AFTER_S + 1)
    fake.put(f"out/{layout.range_receipt_path(0, 7)}", b"")
    assert read_status(OUT).phase == "Running"
    with pytest.raises(ChangedError, match="OutputLive"):
        clean_output(OUT, dry_run=False)


def test_a_run_shows_its_life_before_it_counts_what_is_done(fake: FakeGcs) -> None:
    begin(fake)
    seen: list[bool] = []

    def look(request: str) -> None:
        if "ledger" in request and not seen:
            seen.append(any(name.startswith(ALIVE) for name in fake.objects))

    fake.hold = look
    run_job(JOB, options=Options(processes=2), executor=inline())
    assert seen == [True]


def test_another_job_is_not_told_to_clean_what_a_run_writes(fake: FakeGcs) -> None:
    kill(fake, age_s=DEAD_AFTER_S - 30)
    other = JOB.model_copy(
        update={"spec": JOB.spec.model_copy(update={"source": JOB.spec.source.model_copy(update={"id_field": "key"})})}
    )
    with pytest.raises(ChangedError) as living:
        run_job(other, options=Options(processes=2), executor=inline())
    assert living.value.reason == "OutputConflict"
    assert "wait until it has ended" in living.value.next_step
    assert "clean" not in living.value.next_step
    kill(fake, age_s=DEAD_AFTER_S + 1)
    with pytest.raises(ChangedError, match=f"no job or command continues that run.*tokjob clean {OUT}"):
        run_job(other, options=Options(processes=2), executor=inline())


def test_a_run_that_ends_takes_what_killed_ones_left(fake: FakeGcs) -> None:
    kill(fake, age_s=DEAD_AFTER_S + 1)
    run_job(JOB, options=Options(processes=2), executor=inline())
    assert not any(name.startswith(ALIVE) for name in fake.objects)


class Beats:
    """A heart that beats when the test says so."""

    def __init__(self) -> None:
        self._goes_on = threading.Semaphore(0)
        self._has_beaten = threading.Semaphore(0)

    def wait(self, is_over: threading.Event, seconds: float) -> bool:
        assert seconds == BEAT_S
        self._has_beaten.release()
        while not is_over.is_set() and not self._goes_on.acquire(timeout=0.01):
            pass
        return is_over.is_set()

    def come(self) -> None:
        assert self._has_beaten.acquire(timeout=120)

    def next(self) -> None:
        self._goes_on.release()
        self.come()


@contextmanager
def beating() -> Iterator[Beats]:
    beats = Beats()
    with Heartbeat(GcsStore(OUT, retry=RETRY.with_timeout(0.0)), beats.wait):
        beats.come()
        yield beats


def test_a_beat_is_one_small_write_and_the_end_removes_it(fake: FakeGcs) -> None:
    fake.requests.clear()
    with beating() as heart:
        (name,) = [name for name in fake.objects if name.startswith(ALIVE)]
        first = fake.objects[name].generation
        heart.next()
        assert fake.objects[name].generation > first
        assert [request.partition(" ")[0] for request in fake.requests] == ["POST", "POST"]
        assert len(fake.objects[name].data) < 100
    assert name not in fake.objects


@pytest.mark.parametrize("status", [403, 412, 429, 500, 0])
def test_a_beat_that_fails_is_no_error_and_is_not_repeated_before_the_next(status: int, fake: FakeGcs) -> None:
    with beating() as heart:
        fake.requests.clear()
        fake.faults += [Fault("POST", "/upload/", status)]
        heart.next()
        assert sum(request.startswith("POST") for request in fake.requests) == 1
        heart.next()
        assert GcsStore(OUT).has_live_writers()
    assert not GcsStore(OUT).has_live_writers()


def test_a_beat_that_fails_by_a_bug_is_told_and_the_next_one_comes(
    fake: FakeGcs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("not mapped: http://user:hunter2@host/x")

    with beating() as heart:
        (name,) = [name for name in fake.objects if name.startswith(ALIVE)]
        first = fake.objects[name].generation
        with monkeypatch.context() as broken:
            broken.setattr(GcsStore, "upload", fail)
            heart.next()
        assert caplog.messages == [
            f"cannot write the heartbeat gs://bucket/{name}: ValueError: not mapped: http://***@host; if no later one "
            "succeeds, tokjob status and tokjob clean treat this run as dead"
        ]
        heart.next()
        assert fake.objects[name].generation > first
    assert name not in fake.objects


def test_the_emulator_tells_ages_too(gcs_uri: str) -> None:  # noqa: F811
    store = GcsStore(gcs_uri)
    with store.showing_life():
        assert store.has_live_writers()
    assert not store.has_live_writers()


def test_a_beat_that_somebody_removed_comes_again(fake: FakeGcs) -> None:
    with beating() as heart:
        (name,) = [name for name in fake.objects if name.startswith(ALIVE)]
        del fake.objects[name]
        heart.next()  # finds out
        heart.next()
        assert GcsStore(OUT).has_live_writers()
    assert not GcsStore(OUT).has_live_writers()
