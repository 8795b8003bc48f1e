"""What an output is to a job, decided from what was observed alone: no store is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tokenization_worker.errors import ChangedError, DataError, SpecError
from tokenization_worker.output.ledger.epochs import Epoch
from tokenization_worker.output.plan_file import Cut, Plan
from tokenization_worker.run.output_state import OutputState, RunConflict, Standing, Verdict, Wanted, judge
from tokenization_worker.storage.source_file import SourceFile

DATA: dict[str, Any] = {"tokenizer": {"fingerprint": "f"}, "output": {"dtype": "UInt16"}}
OTHER_DATA: dict[str, Any] = {"tokenizer": {"fingerprint": "f"}, "output": {"dtype": "UInt32"}}
FILES = (SourceFile("/a", 10, "v"), SourceFile("/b", 10, "v"))
NO_CUT = Cut(
    np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64), np.zeros(1, np.int64), np.empty(0, np.int64)
)
PLAN = Plan("plan", "data", "run", DATA, FILES, (None, None), NO_CUT)
OTHER_PLAN = replace(PLAN, data_key="other", run_key="other run", data=OTHER_DATA)
INDEX: Any = {"dataKey": "data", "data": DATA, "run": {}}
OTHER_INDEX: Any = {"dataKey": "other", "data": OTHER_DATA, "run": {}}
WANTED = Wanted("run", "data", DATA, files=FILES)
UNLISTED = Wanted("run")

CORRUPT = DataError("RecordCorrupt", "cannot be read")
NEWER = ChangedError("OutputConflict", "of a newer version")

STATES: dict[str, tuple[OutputState, Wanted | None, Standing]] = {
    "nothing, no job": (OutputState("out"), None, Standing.NEW),
    "nothing, source not listed": (OutputState("out"), UNLISTED, Standing.NEW),
    "nothing": (OutputState("out"), WANTED, Standing.NEW),
    "a plan, no job": (OutputState("out", plan=PLAN), None, Standing.UNFINISHED),
    "a plan, source not listed": (OutputState("out", plan=PLAN), UNLISTED, Standing.UNKNOWN),
    "its plan": (OutputState("out", plan=PLAN), WANTED, Standing.UNFINISHED),
    "the plan of a run of this data": (
        OutputState("out", plan=replace(PLAN, run_key="earlier")),
        WANTED,
        Standing.UNFINISHED,
    ),
    "an index, no job": (OutputState("out", index=INDEX), None, Standing.COMPLETE),
    "an index, source not listed": (OutputState("out", index=INDEX), UNLISTED, Standing.UNKNOWN),
    "its index": (OutputState("out", index=INDEX, trusted_runs=frozenset({"run"})), UNLISTED, Standing.COMPLETE),
    "the index of a run of this data": (OutputState("out", index=INDEX), WANTED, Standing.SAME_DATA),
    "that beside its plan": (OutputState("out", index=INDEX, plan=PLAN), WANTED, Standing.SAME_DATA),
    "an index beside a corrupt plan, no job": (
        OutputState("out", index=INDEX, plan_error=CORRUPT),
        None,
        Standing.COMPLETE,
    ),
}


@pytest.mark.parametrize(("state", "wanted", "standing"), STATES.values(), ids=STATES)
def test_an_output_has_its_standing(state: OutputState, wanted: Wanted | None, standing: Standing) -> None:
    assert judge(state, wanted) == Verdict(standing)


COMPLETE = OutputState("out", index=INDEX, trusted_runs=frozenset({"run"}))
UNUSABLE: dict[str, tuple[OutputState, Wanted | None, Standing]] = {
    "index": (OutputState("out", index_error=CORRUPT, plan=PLAN), None, Standing.REFUSED),
    "place": (OutputState("out", place_error=NEWER), WANTED, Standing.REFUSED),
    "plan, no job": (OutputState("out", plan_error=CORRUPT), None, Standing.CORRUPT),
    "plan": (OutputState("out", plan_error=CORRUPT), UNLISTED, Standing.CORRUPT),
    "plan of a newer version": (OutputState("out", plan_error=NEWER), WANTED, Standing.REFUSED),
    "epoch, no job": (OutputState("out", plan=PLAN, epoch_error=CORRUPT), None, Standing.CORRUPT),
    "epoch": (OutputState("out", plan=PLAN, epoch_error=CORRUPT), WANTED, Standing.CORRUPT),
    "epoch without a plan": (OutputState("out", epoch_error=CORRUPT), WANTED, Standing.CORRUPT),
    "tables": (OutputState("out", index=INDEX, tables_error=CORRUPT), WANTED, Standing.REFUSED),
    "plan beside an index": (OutputState("out", index=INDEX, plan_error=CORRUPT), WANTED, Standing.CORRUPT),
    "epoch beside an index": (OutputState("out", index=INDEX, epoch_error=CORRUPT), WANTED, Standing.CORRUPT),
}


@pytest.mark.parametrize(("state", "wanted", "standing"), UNUSABLE.values(), ids=UNUSABLE)
def test_what_cannot_be_used_is_the_error(state: OutputState, wanted: Wanted | None, standing: Standing) -> None:
    verdict = judge(state, wanted)
    assert verdict.standing is standing
    assert verdict.error in (CORRUPT, NEWER)
    with pytest.raises(type(verdict.error)):
        verdict.require()


def test_nothing_beside_an_index_of_this_run_can_refuse_it() -> None:
    errors = replace(COMPLETE, plan_error=CORRUPT, epoch_error=CORRUPT, tables_error=CORRUPT, place_error=NEWER)
    assert judge(errors, WANTED) == Verdict(Standing.COMPLETE)


CONFLICTS: dict[str, tuple[OutputState, type[ChangedError], str]] = {
    "a dataset": (
        OutputState("out", index=OTHER_INDEX),
        ChangedError,
        "a complete dataset of other data: output.dtype",
    ),
    "a run": (OutputState("out", plan=OTHER_PLAN), RunConflict, "an unfinished run of other data: output.dtype"),
    "a run beside the same data": (
        OutputState("out", index=INDEX, plan=OTHER_PLAN),
        RunConflict,
        "an unfinished run of other data",
    ),
    "other files": (
        OutputState("out", plan=replace(OTHER_PLAN, data=DATA, files=FILES[:1])),
        RunConflict,
        "an unfinished run of other data: ",
    ),
}


@pytest.mark.parametrize(("state", "error", "words"), CONFLICTS.values(), ids=CONFLICTS)
def test_other_data_is_a_conflict(state: OutputState, error: type[ChangedError], words: str) -> None:
    verdict = judge(state, WANTED)
    assert verdict.standing is Standing.REFUSED
    assert type(verdict.error) is error
    assert verdict.error.reason == "OutputConflict"
    assert words in verdict.error.message


@pytest.mark.parametrize("is_live", [False, True])
def test_a_run_that_writes_there_is_not_advised_to_be_removed(is_live: bool) -> None:
    error = judge(OutputState("out", plan=OTHER_PLAN, is_live=is_live), WANTED).error
    assert error is not None
    assert ("tokjob clean" in error.next_step) is not is_live
    assert ("wait until it has ended" in error.next_step) is is_live


def test_a_planned_file_that_changed_ends_the_run() -> None:
    now = (SourceFile("/a", 11, "w"), FILES[1])
    verdict = judge(OutputState("out", plan=PLAN), Wanted("run", "new", DATA, files=now))
    assert verdict.standing is Standing.REFUSED
    assert isinstance(verdict.error, ChangedError)
    assert (verdict.error.reason, "/a" in verdict.error.message) == ("SourceChanged", True)


def test_files_that_came_later_are_left_out_with_a_warning() -> None:
    now = (*FILES, SourceFile("/c", 1, "v"), SourceFile("/d", 1, "v"))
    verdict = judge(OutputState("out", plan=PLAN), Wanted("run", "new", DATA, files=now))
    assert (verdict.standing, verdict.error) == (Standing.UNFINISHED, None)
    [warning] = verdict.warnings
    assert warning.startswith("2 files appeared in the source after the plan was made")
    assert "the first: /c" in warning


def test_files_that_were_touched_are_a_warning() -> None:
    was = tuple(replace(file, inode=1, ctime_ns=1) for file in FILES)
    now = (was[0], replace(was[1], ctime_ns=2))
    state = OutputState("out", plan=replace(PLAN, files=was))
    assert judge(state, replace(WANTED, files=was)).warnings == ()
    [warning] = judge(state, replace(WANTED, files=now)).warnings
    assert warning.startswith("source files that were touched since the plan was made: 1, the first: /b")


def test_a_complete_run_whose_tokenizer_is_not_the_asserted_one_is_refused() -> None:
    state = OutputState("out", index=INDEX, trusted_runs=frozenset({"run"}))
    assert judge(state, Wanted("run", fingerprint="f")).standing is Standing.COMPLETE
    error = judge(state, Wanted("run", fingerprint="g")).error
    assert isinstance(error, SpecError)
    assert error.message == "tokenizer.fingerprint: the job says g, the dataset at out has f"


def test_an_epoch_of_other_libraries_ends_a_run_whose_tokenizer_is_another_by_now() -> None:
    epoch = Epoch(0, "tokenizers", False, ({"versions": "tokenizers 0.22.0"},))
    wanted = Wanted(
        "run", "new", DATA | {"tokenizer": {"fingerprint": "g"}}, files=FILES, libraries={"tokenizers": "0.23"}
    )
    error = judge(OutputState("out", plan=PLAN, epoch=epoch), wanted).error
    assert isinstance(error, ChangedError)
    assert error.reason == "TokenizerChanged"
