"""What happens at output.uri: which of what is there belongs to this job.

index with this runKey, or a proof of it    complete already (decided before the source is listed)
index with this dataKey, other runKey       prove it: check every shard, rebuild what is damaged; with a new plan
                                            where the dataset was moved without its own
plan with this runKey or dataKey            adopt it and go on
plan or index of other data, foreign files  OutputConflict; nothing is touched
anything else                               a new plan, create-only: the loser of a race adopts
"""

from __future__ import annotations

from tokenization_worker import layout
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.keys import differences, run_key
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.commit import create_bytes, create_or_read
from tokenization_worker.errors import ChangedError
from tokenization_worker.events import Warned, Watcher
from tokenization_worker.formats import npy
from tokenization_worker.index import Index
from tokenization_worker.plan import Plan
from tokenization_worker.planning import Prepared
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.storage.source_file import SourceFile, first_file_difference, source_changed
from tokenization_worker.storage.sources import has_pins, pins_of

_SHOWN_FIELDS = 5

_PUT_BACK = "write to another output.uri; or put the field back; or, if the old output is not wanted, "


def read_plan(store: Store) -> Plan | None:
    """The plan at the output, or None."""
    try:
        return Plan.from_bytes(store.read(layout.PLAN), store.uri)
    except NotFound:
        return None


def planned_pins(store: Store, job: TokenizationJob) -> dict[str, str]:
    """The commits at which a plan of `job` that is there reads repositories: a branch that moved is no change."""
    if not has_pins(resolve_data(job).source.uris):
        return {}
    plan = read_plan(store)
    return pins_of(plan.files) if plan is not None and plan.run_key == run_key(job) else {}


def write_plan(store: Store, plan: Plan) -> Plan:
    """Write the plan, or return the one that somebody else wrote first."""
    found = create_or_read(store, layout.PLAN, plan.to_bytes())
    return plan if found is None else Plan.from_bytes(found, store.uri)


def require_own_index(store: Store, index: Index, prepared: Prepared) -> None:
    """Raise OutputConflict unless the committed dataset has this job's dataKey."""
    if index["dataKey"] == prepared.data_key:
        return
    difference = _fields(index["data"], prepared)
    plan = read_plan(store)
    if not difference and plan is not None:
        difference = first_file_difference(plan.files, prepared.files) or ""
    raise ChangedError(
        "OutputConflict",
        f"{store.uri} holds a complete dataset of other data: {difference or 'the source files differ'}",
        next_step=f"{_PUT_BACK}remove the folder yourself (tokjob clean never removes a complete dataset)",
    )


def require_own_plan(store: Store, plan: Plan, prepared: Prepared, watch: Watcher) -> None:
    """Raise OutputConflict or SourceChanged unless `plan` is this job's, for the files as they are.

    Files that came after the plan was made are not part of the run; `watch` is told.
    """
    if plan.data_key == prepared.data_key:
        return
    difference = _fields(plan.data, prepared)
    if not difference and plan.run_key == prepared.run_key:
        _require_unchanged(plan, prepared.files, watch)
        return
    raise ChangedError(
        "OutputConflict",
        f"{store.uri} holds an unfinished run of other data: "
        f"{difference or first_file_difference(plan.files, prepared.files)}",
        next_step=f"{_PUT_BACK}remove it with: tokjob clean {store.uri}",
    )


def _fields(was: dict[str, object], prepared: Prepared) -> str:
    """The data fields that are not as they were, in words; "" where all are."""
    found = differences(was, prepared.canonical)
    more = f"; and {len(found) - _SHOWN_FIELDS} more" if len(found) > _SHOWN_FIELDS else ""
    return "; ".join(found[:_SHOWN_FIELDS]) + more


def _require_unchanged(plan: Plan, files: tuple[SourceFile, ...], watch: Watcher) -> None:
    now = {file.uri: file for file in files}
    for was in plan.files:
        found = now.pop(was.uri, None)
        if found != was:
            raise source_changed(was, found)
    if now:
        first = next(iter(now))
        watch(
            Warned(
                f"{len(now)} files came after the plan was made and are not part of this run, "
                f"the first: {first}; a new rerunToken lists the source again"
            )
        )


def refuse_foreign_files(store: Store, prepared: Prepared) -> None:
    """Raise OutputConflict if something at the output has a name that a shard would get."""
    template = prepared.data.output.path
    matcher = layout.shard_matcher(template, npy.SUFFIX)
    for entry in store.list(layout.static_prefix(template)):
        if matcher.fullmatch(entry.path):
            if read_plan(store) is not None:
                return  # a concurrent run has written a plan and this shard meanwhile
            raise ChangedError(
                "OutputConflict",
                f"{store.uri}/{entry.path} has a name that output.path gives to shards, and there is no plan",
                next_step="move it away, or write to another output.uri",
            )


def probe_output(store: Store) -> None:
    """Create and remove an object, so that an output where one of both is not permitted is refused now."""
    create_bytes(store, layout.PROBE, b"")
    store.delete(layout.PROBE)
