"""Reads the progress of the run at an output, from its index, plan and ledger."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace

from tokenization_worker.errors import ChangedError, DataError
from tokenization_worker.events import GroupCounts
from tokenization_worker.inspect.uris import absolute_uri
from tokenization_worker.messages.commands import tokjob
from tokenization_worker.messages.counts import counted
from tokenization_worker.output.folder_indexes import find_changed_folder_indexes
from tokenization_worker.output.index import (
    ForeignIndex,
    Index,
    foreign_content,
    near_folder,
    not_an_output,
    not_own,
)
from tokenization_worker.output.last_failure import read_failure
from tokenization_worker.output.ledger.receipts import SliceResult
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.output.shard_check import find_missing
from tokenization_worker.output.tables import require_tables
from tokenization_worker.pipelines.tokenize.ledger import TokenizeLedger, read_tokenize_ledger
from tokenization_worker.pipelines.tokenize.progress import add_slice
from tokenization_worker.run.observe import observe_output
from tokenization_worker.run.output_state import OutputState, judge
from tokenization_worker.storage.base import Store
from tokenization_worker.storage.heartbeat import DEAD_AFTER_S
from tokenization_worker.storage.open import open_store

_GO_ON = "start the same `tokjob run` again; it continues from here"


@dataclass(frozen=True, slots=True)
class OutputStatus:
    """How far the run at an output is. `phase`: Empty, Running, Interrupted, Failed, Complete or Damaged.

    `windows_done`: of a shuffle, those that are scattered. `poison`: documents that crash their worker. `read_bytes`,
    `quarantined_bytes`: of documents; None where a receipt of an older version does not know them. `left_out`:
    documents that the shares of `groups` leave out; `truncated_tokens`: of long documents, not written. `reason` and
    `message`: why the last start of a run that is Failed ended, or what is wrong with a dataset that is Damaged; for
    Empty, that the place does not exist.
    """

    uri: str
    phase: str
    plan_id: str = ""
    epoch: int = 0
    engine: str = ""
    ranges: int = 0
    ranges_done: int = 0
    shards_done: int = 0
    tokens: int = 0
    source_bytes: int = 0
    quarantined: int = 0
    read_bytes: int | None = None
    quarantined_bytes: int | None = None
    files_dropped: int = 0
    poison: int = 0
    next_step: str = ""
    reason: str = ""
    message: str = ""
    left_out: int = 0
    groups: tuple[GroupCounts, ...] = ()
    windows_done: int = 0
    is_shuffled: bool = False
    truncated_tokens: int = 0


def read_status(uri: str | os.PathLike[str]) -> OutputStatus:
    """The status of an output; raises `SpecError` where something else is, and what a run there is refused with."""
    store = open_store(absolute_uri(uri))
    state = observe_output(store)
    error = judge(state).error
    if error is not None:
        raise not_own(error) if isinstance(error, ForeignIndex) else error
    if state.index is not None:
        return _finished(store, state.index, _of_dataset(store, state))
    if state.plan is None:
        return _empty(store)
    status = OutputStatus(store.uri, "Interrupted", state.plan.plan_id, ranges=state.plan.n_ranges)
    if state.epoch is not None:
        status = _with_ledger(status, state, state.plan, read_tokenize_ledger(store, state.plan, state.epoch.number))
    return _unfinished(store, status)


def _empty(store: Store) -> OutputStatus:
    if foreign_content(store) is not None:
        raise not_an_output(store)
    root = store.local_path("")
    message = "" if root is None or root.exists() else f"{store.uri} does not exist{near_folder(root)}"
    return OutputStatus(store.uri, "Empty", message=message, next_step="tokjob run with this output.uri")


def _of_dataset(store: Store, state: OutputState) -> OutputStatus:
    """Of a complete dataset. It is whole without plan, epochs and ledger, which say more where they can be read."""
    status = OutputStatus(store.uri, "Complete")
    if state.plan is None:
        return status
    status = replace(status, plan_id=state.plan.plan_id)
    if state.epoch is None:
        return status
    try:
        ledger = read_tokenize_ledger(store, state.plan, state.epoch.number)
    except (ChangedError, DataError):  # of another plan, corrupt, or a newer version's
        return status
    return _with_ledger(status, state, state.plan, ledger)


def _with_ledger(status: OutputStatus, state: OutputState, plan: Plan, ledger: TokenizeLedger) -> OutputStatus:
    results = [result for receipt in ledger.ranges.values() for result in receipt.slices]
    return replace(
        status,
        epoch=0 if state.epoch is None else state.epoch.number,
        engine="" if state.epoch is None else state.epoch.engine,
        ranges=plan.n_ranges,
        ranges_done=len(ledger.ranges),
        shards_done=len(ledger.shards),
        windows_done=len(ledger.scatters),
        is_shuffled=plan.scattering is not None,
        tokens=sum(sum(result.tokens) for result in results),
        source_bytes=sum(receipt.source_bytes for receipt in ledger.ranges.values()),
        quarantined=sum(sum(result.quarantined.values()) for result in results),
        read_bytes=_sum_of_known([result.read_bytes for result in results]),
        quarantined_bytes=_sum_of_known([result.quarantined_bytes for result in results]),
        files_dropped=len({result.file for result in results if not result.is_read}),
        poison=sum(map(len, ledger.crash_verdicts.values())),
        left_out=sum(result.left_out or 0 for result in results),
        truncated_tokens=sum(sum(result.truncated or ()) for result in results),
        groups=tuple(_count_groups(plan, results).values()),
    )


def _count_groups(plan: Plan, results: list[SliceResult]) -> dict[str, GroupCounts]:
    files = Counter(file.group for file in plan.files if file.group)
    groups = {name: GroupCounts(name, count, 0, 0, 0, 0, 0) for name, count in files.items()}
    for result in results if groups else ():
        name = plan.files[result.file].group
        groups[name] = add_slice(groups[name], result)
    return groups


def _finished(store: Store, index: Index, state: OutputStatus) -> OutputStatus:
    """Complete, unless its tables, or a listing, show that something is gone."""
    try:
        require_tables(store, index)
        missing = [*find_missing(store), *find_changed_folder_indexes(store, index)]
    except DataError as error:
        return replace(state, phase="Damaged", reason=error.reason, message=error.message, next_step=error.next_step)
    if not missing:
        return replace(state, next_step=tokjob("verify", store.uri))
    return replace(
        state,
        phase="Damaged",
        reason="DatasetIncomplete",
        message=f"{counted(len(missing), 'file of the dataset is', 'files of the dataset are')} missing or of another "
        f"size, the first: {store.uri}/{missing[0]}",
        next_step="run the job with a new rerunToken, which writes these files again from the source; "
        f"{tokjob('verify', store.uri)} lists everything",
    )


def _unfinished(store: Store, state: OutputStatus) -> OutputStatus:
    """Running, Failed or Interrupted."""
    if store.has_live_writers():
        is_local = store.local_path("") is not None
        step = (
            "wait"
            if is_local
            else f"wait; a run that was killed still counts as running for {DEAD_AFTER_S / 60:.0f} more minutes"
        )
        return replace(state, phase="Running", next_step=step)
    failure = read_failure(store)
    if failure is None:
        return replace(state, next_step=_GO_ON)
    reason, message, next_step = failure
    return replace(state, phase="Failed", reason=reason, message=message, next_step=next_step)


def _sum_of_known(sizes: list[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
