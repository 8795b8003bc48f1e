"""Every state of an output, and what each command says of it.

`tokjob plan`, `tokjob run` and the plan Pod decide alike; `status` and `clean` name the same defect in the same words.

A row builds its state with real runs on a local disk.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import pytest

from support.cluster.fake_checkpoint import Checkpoint
from support.corpus import json_lines
from support.engine.inline import inline
from support.runs import files_below, make_job, move_dataset
from tokenization_worker.api.checkpoint import LAST_WORDS_VARIABLE, CheckpointSpec, make_attempt_spec, make_run_spec
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.metadata import API_VERSION
from tokenization_worker.cli import plan_checkpoint
from tokenization_worker.engine.task import Task
from tokenization_worker.errors import ChangedError, TokenizationError
from tokenization_worker.events import Event, Planned, Preparing, Warned
from tokenization_worker.inspect import clean
from tokenization_worker.inspect.clean import clean_output
from tokenization_worker.inspect.preview import preview_run
from tokenization_worker.inspect.status import read_status
from tokenization_worker.output import layout
from tokenization_worker.output.index import dump_index, read_index
from tokenization_worker.output.ledger.epochs import void_engine
from tokenization_worker.output.plan_file import read_plan
from tokenization_worker.output.record import dump_record, load_record
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.storage.local.store import LocalStore
from tokenization_worker.tokenizers.base import EngineMismatch

NEW = "nothing: a new run"
RESUMES = "an unfinished run of this job, which would be resumed"
COMPLETE = "this run is complete: nothing would be done"
PROVES = "the same data, from another run: its shards would be checked"

SHARD = "train/train_000000.npy"
SPEC: dict[str, Any] = {
    "tokenizer": {"name": "bytes"},
    "output": {"shards": {"tokens": 60_000}},
    "rangeBytes": "64Ki",
    "maxQuarantined": 5,
}
AGAIN = {"rerunToken": "2"}
OTHER_DATA = {"output": {"dtype": "UInt32"}}


class Halt(BaseException):
    """A start that is killed."""


class Place:
    """A source of four ranges, an output, and a job from the one to the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "src"
        self.output = folder / "out"
        self.life = ExitStack()
        self.source.mkdir()
        for name in "ab":
            lines = json_lines([f"{name}{number} Straße 日本語. " * 40 for number in range(60)])
            (self.source / f"{name}.jsonl").write_bytes(lines + b"not JSON\n")

    def job(self, changes: dict[str, Any] | None = None) -> TokenizationJob:
        return make_job(self.source, self.output, SPEC, changes or {})

    def run(self, changes: dict[str, Any] | None = None) -> None:
        run_job(self.job(changes), executor=inline(), options=Options(processes=1))

    def halt(self, tasks: int = 1, changes: dict[str, Any] | None = None) -> None:
        """Leave a run that was killed before its task number `tasks`."""
        left = iter(range(tasks))

        def before(task: Task) -> None:
            if next(left, None) is None:
                raise Halt

        with pytest.raises(Halt):
            run_job(self.job(changes), executor=inline(before), options=Options(processes=1))
        LocalStore(self.output).close_scratch()  # as the kernel does

    def unfinish(self) -> None:
        """A run that was killed just before its index."""
        self.run()
        self.remove(layout.INDEX)

    def remove(self, *paths: str) -> None:
        for path in paths:
            target = self.output / path
            shutil.rmtree(target) if target.is_dir() else target.unlink()

    def write(self, path: str, content: bytes = b"theirs") -> None:
        target = self.output / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def damage(self, path: str) -> None:
        """Change one byte in the middle of the one file that `path` selects."""
        target = next(iter(sorted(self.output.glob(path))))
        data = bytearray(target.read_bytes())
        data[len(data) // 2] ^= 1
        target.write_bytes(data)

    def change_record(self, path: str, **fields: Any) -> None:
        """Let a record have other fields, and the checksum that belongs to them."""
        target = next(iter(sorted(self.output.glob(path))))
        target.write_bytes(dump_record(load_record(target.read_bytes()) | fields))

    def change_source(self) -> None:
        with (self.source / "a.jsonl").open("ab") as file:
            file.write(b'{"text": "more"}\n')

    def files(self) -> dict[str, bytes]:
        return {path: (self.folder / path).read_bytes() for path in files_below(self.folder)}


class Refused(NamedTuple):
    """The reason of an error, and its sentence."""

    reason: str
    sentence: str


class Phase(NamedTuple):
    """What `status` says without an error."""

    phase: str
    reason: str = ""
    sentence: str = ""


Answer = str | Refused | Phase
Build = Callable[[Place], object]

REMOVES = "removes"
INTERRUPTED = Phase("Interrupted")
WHOLE = Phase("Complete")
COMMITTED = Refused("DatasetCommitted", "holds a complete dataset, which clean never removes")
NOTHING_HERE = Refused("NotAnOutput", "is empty")
FILES_HERE = Refused("NotAnOutput", "has files, but no run of tokjob")


@dataclass(frozen=True)
class State:
    """`decision`: of plan, run and plan Pod, for a job with `changes`."""

    build: Build
    decision: str | Refused
    status: Phase | Refused
    clean: str | Refused
    changes: dict[str, Any] = field(default_factory=dict)


def steps(*each: Build) -> Build:
    """One after the other."""

    def build(place: Place) -> None:
        for step in each:
            step(place)

    return build


def complete(place: Place) -> None:
    place.run()


def half_done(place: Place) -> None:
    place.halt()


def all_but_index(place: Place) -> None:
    place.unfinish()


def empty(place: Place) -> None:
    place.output.mkdir()


def removed(*paths: str) -> Build:
    return lambda place: place.remove(*paths)


def damaged(path: str) -> Build:
    return lambda place: place.damage(path)


def written(path: str, content: bytes = b"theirs") -> Build:
    return lambda place: place.write(path, content)


def moved(place: Place) -> None:
    """A dataset alone, without its plan, epochs and ledger."""
    place.run()
    target = move_dataset(place.output, place.folder / "moved")
    shutil.rmtree(place.output)
    target.rename(place.output)


def source_gone(place: Place) -> None:
    shutil.rmtree(place.source)


def source_file_gone(place: Place) -> None:
    (place.source / "b.jsonl").unlink()


def source_changed(place: Place) -> None:
    place.change_source()


def source_touched(place: Place) -> None:
    (place.source / "a.jsonl").chmod(0o600)


def source_grown(place: Place) -> None:
    shutil.copy(place.source / "a.jsonl", place.source / "c.jsonl")


def linked(path: str) -> Build:
    """A folder of the output, or what is to be one, elsewhere behind a link."""

    def build(place: Place) -> None:
        target = place.folder / "elsewhere"
        where = place.output / path
        if where.exists():
            where.rename(target)
        else:
            target.mkdir()
            where.parent.mkdir(parents=True, exist_ok=True)
        where.symlink_to(target)

    return build


def newer_index(place: Place) -> None:
    place.run()
    index = place.output / layout.INDEX
    index.write_bytes(index.read_bytes().replace(b'"formatVersion":1', b'"formatVersion":4'))


def newer_plan(place: Place) -> None:
    plan = place.output / layout.PLAN
    plan.write_bytes(b"TOKPLAN9" + plan.read_bytes()[8:])


def unknown_format_in_plan(place: Place) -> None:
    path = place.output / layout.PLAN
    data = path.read_bytes()[:-4].replace(b'"formats":["Npy"]', b'"formats":["Abc"]')
    path.write_bytes(data + google_crc32c.value(data).to_bytes(4, "little"))


def unknown_format_in_index(place: Place) -> None:
    path = place.output / layout.INDEX
    index = json.loads(path.read_bytes())
    index["data"]["output"]["formats"] = ["Abc"]
    path.write_bytes(dump_index(index))


def inside(start: Build) -> Build:
    """The output is a folder inside of another one."""

    def build(place: Place) -> None:
        start(place)
        place.output = place.output / "deeper" / "out"

    return build


def plan_of_other_data(place: Place) -> None:
    """Beside the dataset."""
    plan = place.folder / "other"
    place.output, output = plan, place.output
    place.halt(0, OTHER_DATA)
    place.output = output
    shutil.copy(plan / layout.PLAN, output / layout.PLAN)


def voided(place: Place) -> None:
    place.halt()
    store, mismatch = LocalStore(place.output), EngineMismatch(0, [1], [2])
    void_engine(store, 0, "fast", mismatch, uri="a", position=0, text="x")
    store.close_scratch()


def source_elsewhere(place: Place) -> None:
    place.source = place.source.rename(place.folder / "elsewhere")


def over_the_limit(place: Place) -> None:
    with pytest.raises(TokenizationError, match="QuarantineExceeded"):
        place.run({"maxQuarantined": 0})


def live(place: Place) -> None:
    place.halt()
    place.life.enter_context(LocalStore(place.output).showing_life())


RECEIPT = "_tokenization/ledger/0/ranges/00000000.json"
DAMAGED_PLAN = Refused("RecordCorrupt", f"{layout.PLAN} is corrupt: ")
FOREIGN_PLAN = Refused("OutputConflict", f"{layout.PLAN} is not a plan that this version can read")
UNKNOWN_FORMAT = Refused("OutputConflict", " has shards in the format Abc; this program reads Npy")
DAMAGED_EPOCH = Refused("RecordCorrupt", f"{layout.epoch_path(0)} is corrupt: ")
EPOCHS_GONE = Refused("RecordCorrupt", f"{layout.epoch_path(0)} is missing, but the run has finished ranges")
DAMAGED_INDEX = Refused("RecordCorrupt", f"{layout.INDEX} is corrupt: ")
NEWER_INDEX = Refused("OutputConflict", f"{layout.INDEX} has format version 4; this program reads versions up to 3")
OTHER_RUN = Refused("OutputConflict", "holds an unfinished run of other data: ")
OTHER_DATASET = Refused("OutputConflict", "holds a complete dataset of other data: ")
CHANGED = Refused("SourceChanged", "a.jsonl changed since the plan was made: was ")
LINK = Refused("OutputUnsafe", "is a link (to ")
NEWER_RECEIPT = Refused("RecordCorrupt", f"{RECEIPT} has the right checksum, but this version")
OTHER_RECEIPT = Refused("OutputConflict", f"{RECEIPT} belongs to plan other, expected ")
DAMAGED_VERDICT = Refused("RecordCorrupt", "_tokenization/poison/00000000-0000000000000000.json is corrupt: ")


def table(path: str, reason: str) -> Refused:
    return Refused(reason, f"{path} is {'missing' if reason == 'TableMissing' else 'corrupt: '}")


def phase(refused: Refused) -> Phase:
    return Phase("Damaged", *refused)


SHARDS_GONE = Phase("Damaged", "DatasetIncomplete", f"is missing or of another size, the first: {{out}}/{SHARD}")
STATES: dict[str, State] = {
    # nothing of ours
    "nothing": State(
        lambda place: None, NEW, Phase("Empty", "", "does not exist"), Refused("NotAnOutput", "not exist")
    ),
    "empty-folder": State(empty, NEW, Phase("Empty"), NOTHING_HERE),
    "write-check": State(written(layout.WRITE_CHECK, b""), NEW, Phase("Empty"), NOTHING_HERE),
    "foreign-file": State(written("README.md"), NEW, FILES_HERE, FILES_HERE),
    "foreign-shard": State(
        written(SHARD),
        Refused("OutputConflict", f"{SHARD} has a name that output.path gives to shards, but the output has no plan"),
        FILES_HERE,
        FILES_HERE,
    ),
    "foreign-index": State(
        written(layout.INDEX, b'{"pages": []}'),
        Refused("OutputConflict", f"{layout.INDEX} was not written by this program"),
        Refused("NotAnOutput", f"{layout.INDEX} was not written by this program"),
        Refused("NotAnOutput", f"{layout.INDEX} was not written by this program"),
    ),
    "inside-a-dataset": State(
        inside(complete), Refused("OutputNested", "which is an output"), Phase("Empty"), Refused("NotAnOutput", "exist")
    ),
    "inside-an-unfinished-run": State(
        inside(half_done),
        Refused("OutputNested", "which is an output"),
        Phase("Empty"),
        Refused("NotAnOutput", "exist"),
    ),
    "inside-a-moved-dataset": State(
        inside(moved), Refused("OutputNested", "which is an output"), Phase("Empty"), Refused("NotAnOutput", "exist")
    ),
    "linked-output": State(linked(""), NEW, Phase("Empty"), NOTHING_HERE),
    "linked-own-folder": State(steps(empty, linked("_tokenization")), LINK, LINK, LINK),
    "linked-shards": State(linked("train"), LINK, Phase("Empty"), NOTHING_HERE),
    # an unfinished run
    "plan-alone": State(
        steps(lambda place: place.halt(0), removed("_tokenization/epochs", layout.SAMPLES)),
        RESUMES,
        INTERRUPTED,
        REMOVES,
    ),
    "plan-and-epoch": State(lambda place: place.halt(0), RESUMES, INTERRUPTED, REMOVES),
    "half-done": State(half_done, RESUMES, INTERRUPTED, REMOVES),
    "half-done-by-another-run": State(half_done, RESUMES, INTERRUPTED, REMOVES, AGAIN),
    "half-done-and-live": State(live, RESUMES, Phase("Running"), Refused("OutputLive", "a run is writing there now")),
    "all-but-index": State(all_but_index, RESUMES, INTERRUPTED, REMOVES),
    "all-but-index-shard-gone": State(steps(all_but_index, removed(SHARD)), RESUMES, INTERRUPTED, REMOVES),
    "over-the-limit": State(
        over_the_limit, RESUMES, Phase("Failed", "QuarantineExceeded", "2 of 122 documents are unusable"), REMOVES
    ),
    "engine-voided": State(voided, RESUMES, INTERRUPTED, REMOVES),
    "half-done-of-other-data": State(half_done, OTHER_RUN, INTERRUPTED, REMOVES, OTHER_DATA),
    "half-done-of-another-source": State(steps(half_done, source_elsewhere), OTHER_RUN, INTERRUPTED, REMOVES),
    "corrupt-plan": State(steps(half_done, damaged(layout.PLAN)), DAMAGED_PLAN, DAMAGED_PLAN, REMOVES),
    "empty-plan": State(steps(half_done, written(layout.PLAN, b"")), DAMAGED_PLAN, DAMAGED_PLAN, REMOVES),
    "newer-plan": State(steps(half_done, newer_plan), FOREIGN_PLAN, FOREIGN_PLAN, FOREIGN_PLAN),
    "plan-with-an-unknown-format": State(
        steps(half_done, unknown_format_in_plan), UNKNOWN_FORMAT, UNKNOWN_FORMAT, UNKNOWN_FORMAT
    ),
    "plan-gone-corrupt-epoch": State(
        steps(half_done, removed(layout.PLAN), damaged(layout.epoch_path(0))), DAMAGED_EPOCH, DAMAGED_EPOCH, REMOVES
    ),
    "plan-and-epochs-gone": State(
        steps(half_done, removed(layout.PLAN, "_tokenization/epochs")), EPOCHS_GONE, EPOCHS_GONE, REMOVES
    ),
    "linked-plan": State(steps(half_done, linked(layout.PLAN)), LINK, LINK, LINK),
    "epochs-gone": State(steps(half_done, removed("_tokenization/epochs")), EPOCHS_GONE, EPOCHS_GONE, REMOVES),
    "corrupt-epoch": State(steps(half_done, damaged(layout.epoch_path(0))), DAMAGED_EPOCH, DAMAGED_EPOCH, REMOVES),
    "corrupt-receipt": State(steps(half_done, damaged(RECEIPT)), RESUMES, INTERRUPTED, REMOVES),
    "newer-receipt": State(
        steps(half_done, lambda place: place.change_record(RECEIPT, slices="packed")),
        NEWER_RECEIPT,
        NEWER_RECEIPT,
        REMOVES,
    ),
    "receipt-of-another-plan": State(
        steps(half_done, lambda place: place.change_record(RECEIPT, plan_id="other")),
        OTHER_RECEIPT,
        OTHER_RECEIPT,
        REMOVES,
    ),
    "corrupt-verdict-on-a-document": State(
        steps(half_done, written(layout.crash_verdict_path(0, 0), b"{}")), DAMAGED_VERDICT, DAMAGED_VERDICT, REMOVES
    ),
    "corrupt-verdict-on-a-file": State(
        steps(half_done, written(layout.verdict_path(0), b"{}")), RESUMES, INTERRUPTED, REMOVES
    ),
    "corrupt-range-list": State(
        steps(all_but_index, damaged("_tokenization/ledger/0/quarantine/*")), RESUMES, INTERRUPTED, REMOVES
    ),
    "corrupt-failure": State(steps(half_done, written(layout.FAILURE, b"{}")), RESUMES, INTERRUPTED, REMOVES),
    "half-done-source-gone": State(
        steps(half_done, source_gone),
        Refused("SourceChanged", "a.jsonl changed since the plan was made: was "),
        INTERRUPTED,
        REMOVES,
    ),
    "half-done-source-file-gone": State(
        steps(half_done, source_file_gone),
        Refused("SourceChanged", "b.jsonl changed since the plan was made: was "),
        INTERRUPTED,
        REMOVES,
    ),
    "half-done-source-changed": State(steps(half_done, source_changed), CHANGED, INTERRUPTED, REMOVES),
    "half-done-source-touched": State(steps(half_done, source_touched), RESUMES, INTERRUPTED, REMOVES),
    "half-done-source-grown": State(steps(half_done, source_grown), RESUMES, INTERRUPTED, REMOVES),
    # a dataset of this run
    "complete": State(complete, COMPLETE, WHOLE, COMMITTED),
    "complete-source-gone": State(steps(complete, source_gone), COMPLETE, WHOLE, COMMITTED),
    "complete-source-changed": State(steps(complete, source_changed), COMPLETE, WHOLE, COMMITTED),
    "complete-corrupt-plan": State(steps(complete, damaged(layout.PLAN)), COMPLETE, WHOLE, COMMITTED),
    "complete-newer-plan": State(steps(complete, newer_plan), COMPLETE, WHOLE, COMMITTED),
    "complete-linked-shards": State(steps(complete, linked("train")), COMPLETE, WHOLE, COMMITTED),
    "complete-moved": State(moved, COMPLETE, WHOLE, COMMITTED),
    "complete-epochs-gone": State(steps(complete, removed("_tokenization/epochs")), COMPLETE, WHOLE, COMMITTED),
    "complete-corrupt-epoch": State(steps(complete, damaged(layout.epoch_path(0))), COMPLETE, WHOLE, COMMITTED),
    "complete-newer-receipt": State(
        steps(complete, lambda place: place.change_record(RECEIPT, slices="packed")), COMPLETE, WHOLE, COMMITTED
    ),
    "complete-shard-gone": State(steps(complete, removed(SHARD)), COMPLETE, SHARDS_GONE, COMMITTED),
    "complete-table-corrupt": State(
        steps(complete, damaged(layout.SHARDS_TABLE)),
        COMPLETE,
        phase(table(layout.SHARDS_TABLE, "TableCorrupt")),
        COMMITTED,
    ),
    "complete-index-corrupt": State(
        steps(complete, damaged(layout.INDEX)), DAMAGED_INDEX, DAMAGED_INDEX, DAMAGED_INDEX
    ),
    "half-done-index-foreign": State(
        steps(half_done, written(layout.INDEX, b'{"pages": []}')), DAMAGED_INDEX, DAMAGED_INDEX, DAMAGED_INDEX
    ),
    "complete-of-a-newer-version": State(newer_index, NEWER_INDEX, NEWER_INDEX, NEWER_INDEX),
    "complete-with-an-unknown-format": State(
        steps(complete, unknown_format_in_index), UNKNOWN_FORMAT, UNKNOWN_FORMAT, UNKNOWN_FORMAT
    ),
    # a dataset of another run
    "again": State(complete, PROVES, WHOLE, COMMITTED, AGAIN),
    "again-proven": State(lambda place: (place.run(), place.run(AGAIN)), COMPLETE, WHOLE, COMMITTED, AGAIN),
    "again-moved": State(moved, PROVES, WHOLE, COMMITTED, AGAIN),
    "again-shard-gone": State(steps(complete, removed(SHARD)), PROVES, SHARDS_GONE, COMMITTED, AGAIN),
    "again-epochs-gone": State(steps(complete, removed("_tokenization/epochs")), PROVES, WHOLE, COMMITTED, AGAIN),
    "again-corrupt-epoch": State(
        steps(complete, damaged(layout.epoch_path(0))), DAMAGED_EPOCH, WHOLE, COMMITTED, AGAIN
    ),
    "again-moved-corrupt-epoch": State(
        steps(moved, written(layout.epoch_path(0), b"{}")), DAMAGED_EPOCH, WHOLE, COMMITTED, AGAIN
    ),
    "again-corrupt-plan": State(steps(complete, damaged(layout.PLAN)), DAMAGED_PLAN, WHOLE, COMMITTED, AGAIN),
    "again-newer-plan": State(steps(complete, newer_plan), FOREIGN_PLAN, WHOLE, COMMITTED, AGAIN),
    "again-plan-of-other-data": State(steps(complete, plan_of_other_data), OTHER_RUN, WHOLE, COMMITTED, AGAIN),
    "again-source-gone": State(
        steps(complete, source_gone), Refused("SourceInvalid", "matches no file"), WHOLE, COMMITTED, AGAIN
    ),
    "again-source-changed": State(steps(complete, source_changed), OTHER_DATASET, WHOLE, COMMITTED, AGAIN),
    "complete-of-other-data": State(complete, OTHER_DATASET, WHOLE, COMMITTED, OTHER_DATA),
    **{
        f"again-{name}-{reason}": State(
            steps(complete, damaged(path) if reason == "TableCorrupt" else removed(path)),
            table(path, reason),
            phase(table(path, reason)),
            COMMITTED,
            AGAIN,
        )
        for name, path in (
            ("shards", layout.SHARDS_TABLE),
            ("files", layout.FILES_TABLE),
            ("quarantine", layout.QUARANTINE_TABLE),
        )
        for reason in ("TableCorrupt", "TableMissing")
    },
}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def answer(ask: Callable[[], Answer]) -> Answer:
    """What is said, or raised."""
    try:
        return ask()
    except TokenizationError as error:
        return Refused(error.reason, error.message)


def ask_plan(place: Place, changes: dict[str, Any]) -> str:
    return preview_run(place.job(changes), 1).there


def ask_status(place: Place) -> Phase:
    status = read_status(place.output)
    return Phase(status.phase, status.reason, status.message)


def ask_clean(place: Place) -> str:
    clean_output(place.output, dry_run=True)
    return REMOVES


def reruns(place: Place) -> int:
    return len(list(place.output.glob("_tokenization/reruns/*")))


def ask_run(place: Place, changes: dict[str, Any]) -> str:
    """Run the job to its end, and tell from what it did how it had begun."""
    before, events = reruns(place), list[Event]()
    has_index = (place.output / layout.INDEX).exists()
    finished = run_job(place.job(changes), executor=inline(), options=Options(processes=1), on_progress=events.append)
    if finished.already:
        return COMPLETE
    if has_index:
        assert reruns(place) == before + 1
        return PROVES
    return RESUMES if any(isinstance(event, Planned) and event.adopted for event in events) else NEW


def ask_pod(place: Place, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Plan the job as on Kubernetes, and tell from what is reported what was decided."""
    job = place.job(changes)
    run = make_run_spec(job, number=1, job_uid="uid")
    spec = CheckpointSpec(run=run, attempt=make_attempt_spec(job, number=0, image=None, slots=2))
    kind = {"apiVersion": API_VERSION, "kind": "TokenizationCheckpoint"}
    client = Checkpoint({**kind, "metadata": {"name": "demo-r1"}, "spec": spec.to_manifest()})
    monkeypatch.setattr(plan_checkpoint, "CheckpointClient", lambda name: client)
    before, has_index = reruns(place), (place.output / layout.INDEX).exists()
    plan = place.output / layout.PLAN
    planned = plan.read_bytes() if plan.exists() else None
    try:
        plan_checkpoint.plan_checkpoint("demo-r1")
    except TokenizationError as error:
        [report] = client.plans
        assert report.failure is not None
        assert (report.failure.reason, report.failure.message) == (error.reason, error.message)
        raise
    [report] = client.plans
    assert report.already_complete == bool(client.committed)
    if has_index:
        if report.already_complete and reruns(place) == before:
            return COMPLETE
        return PROVES
    assert report.plan_id is not None
    return NEW if planned is None else RESUMES


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", STATES)
def test_every_command_says_the_same_of_an_output(name: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    state = STATES[name]
    monkeypatch.delenv(LAST_WORDS_VARIABLE, raising=False)
    state.build(place)
    before = place.files()
    with place.life:
        said = {
            "status": answer(lambda: ask_status(place)),
            "clean": answer(lambda: ask_clean(place)),
            "plan": answer(lambda: ask_plan(place, state.changes)),
        }
        before.pop(f"out/{layout.WRITE_CHECK}", None)  # the write check of plan takes away what another one has left
        assert place.files() == before, "one that only looks has changed something"
        backup = place.folder / "backup"
        has_output = os.path.lexists(place.output)
        if has_output:
            shutil.copytree(place.output, backup, symlinks=True)
        said["pod"] = answer(lambda: ask_pod(place, state.changes, monkeypatch))
    if has_output:
        shutil.rmtree(place.output.resolve())
        shutil.copytree(backup, place.output.resolve(), symlinks=True)
    elif place.output.exists():
        shutil.rmtree(place.output)
    said["run"] = answer(lambda: ask_run(place, state.changes))

    for command in ("plan", "pod", "run"):
        require_same(said[command], state.decision, command, place)
    require_same(said["status"], state.status, "status", place)
    require_same(said["clean"], state.clean, "clean", place)
    if isinstance(state.decision, Refused):
        assert said["plan"] == said["run"] == said["pod"], "other words"


def require_same(found: Answer, expected: Answer, command: str, place: Place) -> None:
    if isinstance(expected, str):
        assert isinstance(found, str), f"{command}: {found}"
        assert found.startswith(expected), f"{command}: {found}"
        return
    assert type(found) is type(expected), f"{command}: {found}"
    *key, sentence = expected
    assert list(found[:-1]) == key, f"{command}: {found}"
    assert sentence.format(out=place.output) in found[-1], f"{command}: {found}"


def test_the_plan_of_an_unfinished_run_is_the_one_it_goes_on_with(place: Place) -> None:
    """Its ranges, files and engine, whatever a new run would have; nothing of that is cut or chosen again."""
    place.halt()
    place.change_record(layout.epoch_path(0), engine="fast")
    source_grown(place)
    preview = preview_run(place.job({"rangeBytes": "1Mi"}), 1)
    assert (preview.files, preview.ranges, preview.ranges_done) == (2, 4, 1)
    assert (preview.engine, preview.engine_reason) == ("fast", "this run began with it")
    assert preview.seconds is not None
    place.remove("")
    assert preview_run(place.job({"rangeBytes": "1Mi"}), 1).ranges == 1


def test_a_complete_run_is_shown_with_what_its_dataset_has(place: Place) -> None:
    place.run()
    source_gone(place)
    warnings: list[Event] = []
    preview = preview_run(place.job(), 1, warnings.append)
    index = json.loads((place.output / layout.INDEX).read_bytes())
    assert (preview.tokens, preview.files, preview.ranges) == (index["tokens"], 2, 4)
    assert preview.there.startswith(
        f"{COMPLETE}; changed since: {place.source}/a.jsonl changed since the plan was made"
    )
    assert any(isinstance(event, Warned) and "holds the earlier content" in event.message for event in warnings)


def test_a_plan_of_an_unfinished_run_expects_no_tokens_of_files_that_came_later(place: Place) -> None:
    before = preview_run(place.job(), 1)
    place.halt()
    for number in range(8):
        shutil.copy(place.source / "a.jsonl", place.source / f"later-{number}.jsonl")
    now = preview_run(place.job(), 1)
    assert before.tokens
    assert now.tokens
    assert now.files == before.files == 2
    assert 0.8 < now.tokens / before.tokens < 1.2
    assert now.shards == before.shards
    assert not now.is_complete


def test_a_plan_that_is_removed_while_the_source_is_listed_is_written_again(place: Place) -> None:
    place.halt()

    def clean(event: Event) -> None:
        if isinstance(event, Preparing):
            clean_output(place.output, dry_run=False)

    run_job(place.job(), executor=inline(), options=Options(processes=1), on_progress=clean)
    assert (place.output / layout.PLAN).exists()
    assert ask_status(place) == WHOLE


def during_the_listing(attempt: Callable[[], object]) -> Callable[[Event], None]:
    """What calls `attempt` once, after the output was observed and before the source is listed."""
    left = [attempt]

    def watch(event: Event) -> None:
        if isinstance(event, Preparing) and left:
            left.pop()()

    return watch


def test_a_plan_that_is_replaced_while_the_source_is_listed_is_the_one_that_counts(place: Place) -> None:
    def replace() -> None:
        clean_output(place.output, dry_run=False)
        (place.source / "c.jsonl").write_bytes(json_lines(["more"]))
        place.halt()

    place.halt()
    run_job(place.job(), executor=inline(), options=Options(processes=1), on_progress=during_the_listing(replace))
    store = LocalStore(place.output)
    plan, index = read_plan(store), read_index(store)
    assert plan is not None
    assert index is not None
    assert len(plan.files) == 3
    assert index["run"]["planId"] == plan.plan_id


@pytest.mark.parametrize("is_live", [True, False])
def test_a_run_that_begins_while_the_source_is_listed_is_not_to_be_cleaned_while_it_lives(
    place: Place, monkeypatch: pytest.MonkeyPatch, is_live: bool
) -> None:
    def begin() -> None:
        place.halt(1, OTHER_DATA)
        monkeypatch.setattr(LocalStore, "has_live_writers", lambda store: is_live)

    with pytest.raises(ChangedError, match="holds an unfinished run of other data") as raised:
        run_job(place.job(), executor=inline(), options=Options(processes=1), on_progress=during_the_listing(begin))
    assert ("that run is writing there now" in raised.value.next_step) is is_live
    assert ("tokjob clean" in raised.value.next_step) is not is_live


def test_whether_a_run_lives_is_not_asked_where_it_decides_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an object store the answer may take a listing of the whole ledger."""

    def ask(store: LocalStore) -> bool:
        raise AssertionError("asked")

    place.halt()
    monkeypatch.setattr(LocalStore, "has_live_writers", ask)
    place.run()
    assert ask_status(place) == WHOLE


def test_clean_removes_nothing_of_a_dataset_that_is_committed_while_it_lists(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_own = clean.sort_own

    def commit_first(*arguments: Any) -> Any:
        run_job(place.job(), executor=inline(), options=Options(processes=1))
        return list_own(*arguments)

    place.halt()
    monkeypatch.setattr(clean, "sort_own", commit_first)
    with pytest.raises(ChangedError, match="holds a complete dataset"):
        clean_output(place.output, dry_run=False)
    assert ask_status(place) == WHOLE
