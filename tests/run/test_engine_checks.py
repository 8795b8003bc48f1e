"""An accelerated engine is compared with the reference on every machine that uses it, once, before it is used."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.corpus import json_lines, take_documents
from support.engine.inline import inline
from support.runs import make_job, read_index
from support.tokenizer_models import WrongFor, make_spec, make_tokenizer
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.cli.progress import describe
from tokenization_worker.engine.task import Task
from tokenization_worker.errors import TemporaryError
from tokenization_worker.events import CheckingEngine, Event, Planned
from tokenization_worker.host import kept_files
from tokenization_worker.output import layout
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.tokenizers.base import Engine
from tokenization_worker.tokenizers.byte_engine import ByteEngine
from tokenization_worker.tokenizers.checks import engine_check
from tokenization_worker.tokenizers.load import load_tokenizer

ONLY_THE_PROBE_HAS_IT = "of the probe: \ufb05\u1e97"
FAST = Options(engine="fastokens", sample_one_in=2**62)


class Machines:
    """The machine that this process is on; another one has its own cache and loads the tokenizer anew."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._patch = patch
        self._count = 0
        self.move()

    def move(self, *, is_wrong: bool = False) -> None:
        """Be on another machine, whose accelerated engine may be wrong about a text that only the probe has."""
        self._count += 1
        self._patch.setenv("XDG_CACHE_HOME", str(self._folder / f"cache{self._count}"))
        load_tokenizer.cache_clear()
        tokenizer = load_tokenizer(make_spec("gpt2"))
        if is_wrong:
            engine: Engine | None = tokenizer.accelerated()
            assert engine is not None
            wrong = WrongFor(engine, "\ufb05\u1e97")
            wrong.name = "fastokens"
            tokenizer._accelerated = wrong


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    texts = ["", "some text", ONLY_THE_PROBE_HAS_IT]
    monkeypatch.setattr(engine_check, "make_texts", lambda specials, vocabulary: iter(texts))
    monkeypatch.setattr("tokenization_worker.tokenizers.checks.behaviour._code_point_chapters", lambda: iter(()))
    yield Machines(tmp_path, monkeypatch)
    load_tokenizer.cache_clear()


@pytest.fixture
def job(tmp_path: Path) -> TokenizationJob:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.jsonl").write_bytes(json_lines(take_documents(90_000, odd=False)))
    return make_job(source, tmp_path / "out", rangeBytes="32Ki", output={"shards": {"tokens": 9000}})


class Killed(Exception):
    """Stands for a signal."""


def begin(job: TokenizationJob) -> list[Event]:
    """Run one task, then be killed."""
    events: list[Event] = []
    seen: list[Task] = []

    def count(task: Task) -> None:
        seen.append(task)
        if len(seen) > 1:
            raise Killed

    with pytest.raises(Killed):
        run_job(job, options=FAST, executor=inline(count), on_progress=events.append)
    return events


def checks(events: list[Event]) -> list[CheckingEngine]:
    return [event for event in events if isinstance(event, CheckingEngine)]


def evidence(job: TokenizationJob) -> dict[str, object]:
    found: dict[str, object] = json.loads((Path(job.spec.output.uri) / layout.epoch_path(1)).read_bytes())
    return found


def test_a_check_is_told_before_it_begins(job: TokenizationJob, machines: Machines) -> None:
    events = begin(job)
    (check,) = checks(events)
    assert (check.engine, check.reference) == ("fastokens", "tiktoken")
    assert describe(check, 0.0) == "engine     checking fastokens against tiktoken, ~5 s, once"
    (planned,) = [event for event in events if isinstance(event, Planned)]
    assert events.index(check) < events.index(planned)
    assert "checked against the reference" in describe(planned, 0.0)


def test_a_resume_on_another_machine_checks_the_engine_there(job: TokenizationJob, machines: Machines) -> None:
    begin(job)
    machines.move()
    events: list[Event] = []
    run_job(job, options=FAST, executor=inline(), on_progress=events.append)
    assert len(checks(events)) == 1
    assert read_index(Path(job.spec.output.uri))["run"]["engine"] == "fastokens"


@pytest.mark.exhaustive
def test_a_resume_on_the_same_machine_checks_nothing(job: TokenizationJob, machines: Machines) -> None:
    begin(job)
    load_tokenizer.cache_clear()
    events: list[Event] = []
    run_job(job, options=FAST, executor=inline(), on_progress=events.append)
    assert checks(events) == []


def test_an_engine_that_differs_on_the_machine_of_a_resume_is_given_up(
    job: TokenizationJob, machines: Machines
) -> None:
    begin(job)
    machines.move(is_wrong=True)
    with pytest.raises(TemporaryError, match="EngineVoided: engine fastokens differs from the reference") as caught:
        run_job(job, options=FAST, executor=inline())
    assert "the probe on " in caught.value.message
    require_evidence_and_reference(job)


@pytest.mark.exhaustive
def test_a_worker_on_another_node_checks_the_engine_there(job: TokenizationJob, machines: Machines) -> None:
    seen: list[Task] = []

    def be_another_node(task: Task) -> None:
        seen.append(task)
        if len(seen) == 2:
            machines.move(is_wrong=True)

    with pytest.raises(TemporaryError, match="EngineVoided"):
        run_job(job, options=FAST, executor=inline(be_another_node))
    assert len(seen) == 2
    require_evidence_and_reference(job)


def require_evidence_and_reference(job: TokenizationJob) -> None:
    """The next epoch says which text differs, and the next start works in it."""
    found = evidence(job)
    assert found["engine"] == "reference"
    document = found["document"]
    assert isinstance(document, dict)
    assert document["uri"].startswith("the probe on ")
    assert "\ufb05\u1e97" in document["excerpt"]
    assert found["found"] != found["expected"]
    run_job(job, executor=inline())
    assert read_index(Path(job.spec.output.uri))["run"]["engine"] == "reference"


def test_of_the_processes_of_a_host_one_probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads stand for them: each has its own handle on the lock."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    probed: list[int] = []
    begun = threading.Barrier(4)

    def probe_slowly(tokenizer: object, accelerated: object) -> engine_check.EngineVerdict:
        probed.append(1)
        return engine_check.EngineVerdict(True, 1, 1, "")

    monkeypatch.setattr(engine_check, "check_engine", probe_slowly)

    def ask() -> None:
        tokenizer = make_tokenizer(ByteEngine())
        begun.wait()
        assert engine_check.find_verdict(tokenizer, ByteEngine(), lambda a, b: None).identical

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(probed) == 1


def test_a_cache_that_cannot_be_written_is_kept_in_a_folder_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kept_files.keep_fact("kind", {"key": 1}, {"fact": 2})
    found = kept_files.read_fact("kind", {"key": 1})
    assert found is not None
    assert found["fact"] == 2
    (folder,) = tmp_path.glob("tokenization-*")
    assert folder.stat().st_mode & 0o077 == 0
    folder.chmod(0o777)  # as if another user had made it: its files prove nothing
    assert kept_files.read_fact("kind", {"key": 1}) is None
