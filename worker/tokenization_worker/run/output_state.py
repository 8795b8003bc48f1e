"""Decides what a run may do with the data at `output.uri`.

| data found | what it is to the job |
|---|---|
| an index that cannot be read, is of another program or a newer version | refused |
| an index of this run, or of a run that this one has verified | complete; decided before the source is listed |
| such an index, and the job asserts another tokenizer | refused: FingerprintDiffers |
| an index of other data | refused: OutputConflict |
| an index of this data, by another run | verified, if its tables are whole, and plan and epochs beside it are ours |
| a plan that cannot be read; epochs that are corrupt or gone | corrupt: `tokjob clean` removes such a run |
| a plan of this run or data | resumed; SourceChanged where its files are others now |
| a plan of other data | refused: OutputConflict |
| neither; inside of another output, a link, or a file with a shard's name | refused |
| neither | a new run |

`judge` is pure: `observe` has read what it needs. `tokjob plan`, `run`, `status`, `clean` and the plan Pod of a run on
Kubernetes decide by it, and its errors are all words there are about these states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tokenization_worker.api.changes import asked_fields, describe_changes
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.keys import run_key
from tokenization_worker.errors import ChangedError, DataError, TokenizationError
from tokenization_worker.messages.commands import tokjob
from tokenization_worker.messages.counts import counted
from tokenization_worker.output.index import Index
from tokenization_worker.output.ledger.epochs import Epoch
from tokenization_worker.output.ledger.version_samples import find_changed_libraries
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.output.writers import find_changed_writer, planned_writers
from tokenization_worker.planning.prepare import Prepared
from tokenization_worker.storage.source_file import (
    SourceFile,
    describe_touch,
    first_file_difference,
    source_changed,
)
from tokenization_worker.tokenizers.fingerprint import other_fingerprint

_SHOWN_FIELDS = 5


class Standing(StrEnum):
    """What an output is to a job, as `tokjob plan` says it."""

    NEW = "nothing: a new run"
    UNFINISHED = "an unfinished run of this job, which would be resumed"
    SAME_DATA = "the same data, from another run: its shards would be checked"
    COMPLETE = "this run is complete: nothing would be done"
    UNKNOWN = "not known yet: it depends on the source, which is not listed"
    CORRUPT = "an unfinished run with records that cannot be read"
    REFUSED = "the output of another job, or files that tokjob cannot read"


@dataclass(frozen=True, slots=True)
class OutputState:
    """What was found at an output. Errors are of what was found and cannot be used.

    `trusted_runs`: keys of the runs whose dataset the index is. Once that says that the run is complete, nothing more
    is read. `plan_version`: of the object that `plan` was read from. `place_error`: why no new run may begin there.
    `is_live`: a run may be writing there; asked only where it decides a next step (`RunConflict`).
    """

    uri: str
    index: Index | None = None
    trusted_runs: frozenset[str] = frozenset()
    plan: Plan | None = None
    plan_version: str = ""
    epoch: Epoch | None = None
    is_live: bool = False
    index_error: TokenizationError | None = None
    tables_error: TokenizationError | None = None
    plan_error: TokenizationError | None = None
    epoch_error: TokenizationError | None = None
    place_error: TokenizationError | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a job wants at its output; `data_key` is "", and the rest empty, as long as its source is not listed.
    `fingerprint`: that it asserts of its tokenizer, None if it asserts none."""

    run_key: str
    data_key: str = ""
    canonical: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str, object] = field(default_factory=dict)
    files: tuple[SourceFile, ...] = ()
    libraries: Mapping[str, str] = field(default_factory=dict)
    fingerprint: str | None = None

    @classmethod
    def of_job(cls, job: TokenizationJob) -> Wanted:
        return cls(run_key(job), fingerprint=job.spec.tokenizer.fingerprint)

    @classmethod
    def of(cls, prepared: Prepared) -> Wanted:
        return cls(
            prepared.run_key,
            prepared.data_key,
            prepared.canonical,
            asked_fields(prepared.job),
            prepared.files,
            prepared.tokenizer.libraries,
            prepared.job.spec.tokenizer.fingerprint,
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """`error`: why it is Corrupt or Refused. `warnings`: for the user of a run that continues."""

    standing: Standing
    error: TokenizationError | None = None
    warnings: tuple[str, ...] = ()

    def require(self) -> None:
        """Raise the error, if there is one."""
        if self.error is not None:
            raise self.error


class RunConflict(ChangedError):
    """An unfinished run of other data is there. Its next step depends on `OutputState.is_live`."""


def judge(state: OutputState, wanted: Wanted | None = None) -> Verdict:
    """What the output is to a job; `wanted` None: to a command that is given no job."""
    if state.index_error is not None:
        return _refused(state.index_error)
    if state.index is not None and (wanted is None or wanted.run_key in state.trusted_runs):
        return _judge_complete(state, state.index, None if wanted is None else wanted.fingerprint)
    if wanted is None:
        return _judge_alone(state)
    if state.index is not None:
        return _judge_dataset(state, state.index, wanted) if wanted.data_key else Verdict(Standing.UNKNOWN)
    if state.place_error is not None:
        return _refused(state.place_error)
    if state.plan_error is not None:
        return _corrupt(state.plan_error)
    if state.plan is None:
        return _with_epoch(state, Verdict(Standing.NEW))
    return _judge_plan(state, state.plan, wanted) if wanted.data_key else Verdict(Standing.UNKNOWN)


def _judge_complete(state: OutputState, index: Index, asserted: str | None) -> Verdict:
    """Of a complete dataset that no other run's data stand in the way of; `asserted`: by the job, of its tokenizer."""
    way_out = (
        "to tokenize with the tokenizer that the job means, write to another output.uri, or set a new rerunToken where "
        "output.uri holds {rerunToken}"
    )
    found = index["data"]["tokenizer"]["fingerprint"]
    error = other_fingerprint(asserted, found, f"the dataset at {state.uri}", way_out)
    return Verdict(Standing.COMPLETE) if error is None else _refused(error)


def _judge_alone(state: OutputState) -> Verdict:
    """Of a place without an index."""
    if state.plan_error is not None:
        return _corrupt(state.plan_error)
    return _with_epoch(state, Verdict(Standing.NEW if state.plan is None else Standing.UNFINISHED))


def _judge_dataset(state: OutputState, index: Index, wanted: Wanted) -> Verdict:
    """Of a complete dataset that this run has not verified yet."""
    difference = dataset_difference(state, index, wanted)
    if difference is not None and (changed := _changed_writer(state, index["data"], wanted)) is not None:
        return _refused(changed)
    if difference is not None:
        fields = _fields(index["data"], index["run"].get("asked", {}), wanted)
        return _refused(
            ChangedError(
                "OutputConflict",
                f"{state.uri} holds a complete dataset of other data: {difference}",
                next_step=f"{_put_back(fields)}remove the folder yourself (tokjob clean never removes a complete "
                "dataset)",
            )
        )
    if state.tables_error is not None:
        return _refused(state.tables_error)
    if state.plan_error is not None:
        return _corrupt(state.plan_error)
    verdict = Verdict(Standing.SAME_DATA)
    if state.plan is not None:
        beside = _judge_plan(state, state.plan, wanted)
        if beside.error is not None:
            return beside
        verdict = Verdict(Standing.SAME_DATA, warnings=beside.warnings)
    return _with_epoch(state, verdict)


def dataset_difference(state: OutputState, index: Index, wanted: Wanted) -> str | None:
    """The first thing that is not as the committed dataset has it, in words; None where its dataKey is the job's."""
    if index["dataKey"] == wanted.data_key:
        return None
    difference = _fields(index["data"], index["run"].get("asked", {}), wanted)
    if not difference and state.plan is not None:
        difference = first_file_difference(state.plan.files, wanted.files) or ""
    return difference or "the source files differ"


def _judge_plan(state: OutputState, plan: Plan, wanted: Wanted) -> Verdict:
    """Of a plan: whether it is this job's, for the files as they are. Files that came later are left out."""
    is_same_run = plan.run_key == wanted.run_key
    if is_same_run and plan.data["tokenizer"] != wanted.canonical["tokenizer"] and state.epoch is not None:
        changed = find_changed_libraries(state.uri, state.epoch.versions, wanted.libraries)
        if changed is not None:
            return _refused(changed)
    changed_writer = _changed_writer(state, plan.data, wanted)
    if changed_writer is not None:
        return _refused(changed_writer)
    new: tuple[str, ...] = ()
    if plan.data_key != wanted.data_key:
        difference = _fields(plan.data, plan.asked, wanted)
        if difference or not is_same_run:
            words = difference or first_file_difference(plan.files, wanted.files)
            return _refused(
                RunConflict(
                    "OutputConflict",
                    f"{state.uri} holds an unfinished run of other data: {words}",
                    next_step=_ways_past_a_run(state, difference),
                )
            )
        gone = _first_changed_file(plan, wanted.files)
        if gone is not None:
            return _refused(gone)
        new = _describe_new_files(plan, wanted.files)
    return _with_epoch(state, Verdict(Standing.UNFINISHED, warnings=(*new, *describe_touched(plan, wanted.files))))


def _changed_writer(state: OutputState, data: Mapping[str, Any], wanted: Wanted) -> ChangedError | None:
    """The error where a library here writes other files of a format, and nothing else is asked for."""
    was, now = planned_writers(data), planned_writers(wanted.canonical)
    without = [{**fields, "output": {**fields["output"], "writers": now}} for fields in (data, wanted.canonical)]
    return find_changed_writer(state.uri, was, now) if was != now and without[0] == without[1] else None


def _with_epoch(state: OutputState, verdict: Verdict) -> Verdict:
    return verdict if state.epoch_error is None else _corrupt(state.epoch_error)


def _refused(error: TokenizationError) -> Verdict:
    return Verdict(Standing.REFUSED, error)


def _corrupt(error: TokenizationError) -> Verdict:
    """Of records of a run: what is none of ours, or a newer version's, is not called corrupt."""
    return Verdict(Standing.CORRUPT if isinstance(error, DataError) else Standing.REFUSED, error)


def _put_back(fields: str) -> str:
    """The ways out of a conflict; `fields`: those that differ, "" where only the source files do."""
    what = "the field" if fields else "the source files"
    return f"write to another output.uri; or put {what} back; or, if you do not want the old output, "


def _ways_past_a_run(state: OutputState, fields: str) -> str:
    """The ways out of a conflict with an unfinished run: its files are not to be removed while it goes on."""
    if state.is_live:
        return "that run is writing there now: write to another output.uri, or wait until it has ended"
    return f"{_put_back(fields)}and no job or command continues that run, remove it with: {tokjob('clean', state.uri)}"


def _fields(was: dict[str, Any], was_asked: dict[str, object], wanted: Wanted) -> str:
    """The data fields that are not as they were, in words; "" where all are."""
    found = describe_changes(was, dict(wanted.canonical), was_asked, dict(wanted.asked))
    more = f"; and {len(found) - _SHOWN_FIELDS} more" if len(found) > _SHOWN_FIELDS else ""
    return "; ".join(found[:_SHOWN_FIELDS]) + more


def _first_changed_file(plan: Plan, files: tuple[SourceFile, ...]) -> ChangedError | None:
    now = {file.uri: file for file in files}
    for was in plan.files:
        found = now.get(was.uri)
        if found != was:
            return source_changed(was, found)
    return None


def _describe_new_files(plan: Plan, files: tuple[SourceFile, ...]) -> tuple[str, ...]:
    planned = {file.uri for file in plan.files}
    new = dict.fromkeys(file.uri for file in files if file.uri not in planned)
    if not new:
        return ()
    return (
        f"{counted(len(new), 'file')} appeared in the source after the plan was made; this run does not read them, the "
        f"first: {next(iter(new))}; to read them, set a new rerunToken",
    )


def describe_touched(plan: Plan, files: tuple[SourceFile, ...]) -> tuple[str, ...]:
    """A warning of files that have their planned size and modification time, and were touched all the same."""
    now = {file.uri: file for file in files if file.ctime_ns}
    pairs = ((was, now.get(was.uri, was)) for was in plan.files if was.ctime_ns)
    touched = [(was, is_now) for was, is_now in pairs if (was.inode, was.ctime_ns) != (is_now.inode, is_now.ctime_ns)]
    if not touched:
        return ()
    was, is_now = touched[0]
    return (
        f"source files that were touched since the plan was made: {len(touched):,}, the first: {was.uri}: "
        f"{describe_touch(was, is_now)}; size and modification time are unchanged. The run assumes that their content "
        "is unchanged too, which is right for a copy (cp -p, rsync -t) and for new permissions or links; if another "
        "program edited them, put the planned files back, or start a new run. `tokjob verify --mode full` compares a "
        "complete dataset with them",
    )
