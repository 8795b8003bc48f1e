"""What happens at output.uri: which of what is there belongs to this job.

index with this runKey, or a proof of it    complete already (decided before the source is listed)
index with this dataKey, other runKey       prove it: check every shard, rebuild what is damaged; with a new plan
                                            where the dataset was moved without its own
plan with this runKey or dataKey            adopt it and go on
plan or index of other data, foreign files  OutputConflict; nothing is touched
nothing, inside of another output           OutputNested; nothing is touched
anything else                               a new plan, create-only: the loser of a race adopts
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from tokenization_worker.api.changes import asked_fields, describe_changes
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.keys import run_key
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.errors import ChangedError, DataError, SpecError, TokenizationError
from tokenization_worker.events import Warned, Watcher
from tokenization_worker.messages.commands import tokjob
from tokenization_worker.messages.counts import counted
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_bytes, create_or_read
from tokenization_worker.output.index import ForeignIndex, Index, read_index
from tokenization_worker.output.ledger.version_samples import read_samples
from tokenization_worker.output.naming import Naming
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.planning.prepare import Prepared, prepare
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.storage.hf.uri import is_model_name
from tokenization_worker.storage.local.folders import refuse_linked_folders
from tokenization_worker.storage.local.store import map_os_errors
from tokenization_worker.storage.open import open_store
from tokenization_worker.storage.source_file import (
    SourceFile,
    describe_touch,
    first_file_difference,
    source_changed,
)
from tokenization_worker.storage.sources import find_touched_files, has_pins, list_source, pins_of

_SHOWN_FIELDS = 5


def _put_back(fields: str) -> str:
    """The ways out of a conflict; `fields`: those that differ, "" where only the source files do."""
    what = "the field" if fields else "the source files"
    return f"write to another output.uri; or put {what} back; or, if the old output is not wanted, "


def _ways_past_a_run(store: Store, fields: str) -> str:
    """The ways out of a conflict with an unfinished run: its files are not to be removed while it goes on."""
    try:
        is_live = store.has_live_writers()
    except TokenizationError:  # this account may not look: it may live
        is_live = True
    if is_live:
        return "that run is writing there now: write to another output.uri, or wait until it has ended"
    return (
        f"{_put_back(fields)}and no job or command goes on with that run, remove it with: {tokjob('clean', store.uri)}"
    )


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


def planned_revision(store: Store, job: TokenizationJob) -> str:
    """The commit at which a plan of `job` that is there reads its tokenizer on the Hub; "" for any other tokenizer."""
    name = job.spec.tokenizer.name
    if name is None or not is_model_name(name):
        return ""
    plan = read_plan(store)
    samples = read_samples(store) if plan is not None and plan.run_key == run_key(job) else None
    return "" if samples is None else samples.revision


def prepare_at(store: Store, job: TokenizationJob, watch: Watcher) -> Prepared:
    """The plan phase for an output; a source that cannot be listed any more is a change if a plan of `job` is there."""
    try:
        return prepare(job, watch, planned_pins(store, job), planned_revision(store, job))
    except SpecError as error:
        plan = read_plan(store) if error.reason == "SourceInvalid" else None
        if plan is None or plan.run_key != run_key(job):
            raise
        changes = (
            pair for pair in find_touched_files(plan.files) if pair[1] is None or not pair[0].is_version(pair[1])
        )
        change = next(changes, None)
        if change is None:
            if _is_as_planned(plan, job):
                raise  # another field of the job refuses what an earlier start let pass
            raise ChangedError(
                "SourceChanged",
                f"the source changed since the plan was made: {error.message}",
                next_step="put the planned files back, and start the same command again; or start a new run at another "
                "output.uri",
            ) from error
        changed = source_changed(*change)
        message = f"{changed.message} ({error.message})"
        raise ChangedError("SourceChanged", message, next_step=changed.next_step) from error


def _is_as_planned(plan: Plan, job: TokenizationJob) -> bool:
    """Whether a listing finds the files of the plan: for stores, and plans that do not record how local files were."""
    try:
        files = list_source(resolve_data(job).source.uris, pins_of(plan.files))
    except SpecError:
        return False
    return tuple(files) == plan.files


def write_plan(store: Store, plan: Plan) -> Plan:
    """Write the plan, or return the one that somebody else wrote first."""
    found = create_or_read(store, layout.PLAN, plan.to_bytes())
    return plan if found is None else Plan.from_bytes(found, store.uri)


def require_own_index(store: Store, index: Index, prepared: Prepared) -> None:
    """Raise OutputConflict unless the committed dataset has this job's dataKey."""
    difference = difference_from_index(store, index, prepared)
    if difference is None:
        return
    fields = _fields(index["data"], index["run"].get("asked", {}), prepared)
    raise ChangedError(
        "OutputConflict",
        f"{store.uri} holds a complete dataset of other data: {difference}",
        next_step=f"{_put_back(fields)}remove the folder yourself (tokjob clean never removes a complete dataset)",
    )


def difference_from_index(store: Store, index: Index, prepared: Prepared) -> str | None:
    """The first thing that is not as the committed dataset has it, in words; None where its dataKey is this job's."""
    if index["dataKey"] == prepared.data_key:
        return None
    difference = _fields(index["data"], index["run"].get("asked", {}), prepared)
    plan = read_plan(store)
    if not difference and plan is not None:
        difference = first_file_difference(plan.files, prepared.files) or ""
    return difference or "the source files differ"


def require_own_plan(store: Store, plan: Plan, prepared: Prepared, watch: Watcher) -> None:
    """Raise OutputConflict or SourceChanged unless `plan` is this job's, for the files as they are.

    Files that came after the plan was made are not part of the run; `watch` is told.
    """
    if plan.data_key == prepared.data_key:
        warn_of_touched(plan, prepared.files, watch)
        return
    difference = _fields(plan.data, plan.asked, prepared)
    if not difference and plan.run_key == prepared.run_key:
        _require_unchanged(plan, prepared.files, watch)
        warn_of_touched(plan, prepared.files, watch)
        return
    raise ChangedError(
        "OutputConflict",
        f"{store.uri} holds an unfinished run of other data: "
        f"{difference or first_file_difference(plan.files, prepared.files)}",
        next_step=_ways_past_a_run(store, difference),
    )


def _fields(was: dict[str, Any], was_asked: dict[str, object], prepared: Prepared) -> str:
    """The data fields that are not as they were, in words; "" where all are."""
    found = describe_changes(was, prepared.canonical, was_asked, asked_fields(prepared.job))
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
                f"{counted(len(now), 'file')} came after the plan was made; this run leaves them out, "
                f"the first: {first}; a new rerunToken lists the source again"
            )
        )


def warn_of_touched(plan: Plan | None, files: tuple[SourceFile, ...], watch: Watcher) -> None:
    """Tell `watch` of files that have their planned size and modification time, and were touched all the same."""
    now = {file.uri: file for file in files if file.ctime_ns}
    pairs = ((was, now.get(was.uri, was)) for was in (plan.files if plan else ()) if was.ctime_ns)
    touched = [(was, is_now) for was, is_now in pairs if (was.inode, was.ctime_ns) != (is_now.inode, is_now.ctime_ns)]
    if touched:
        was, is_now = touched[0]
        watch(
            Warned(
                f"source files that were touched since the plan was made: {len(touched):,}, the first: {was.uri}: "
                f"{describe_touch(was, is_now)}; size and modification time are the planned ones. Their content counts "
                "as the planned one, which is right for a copy (cp -p, rsync -t) and for new permissions or links; if "
                "another program edited them, put the planned files back, or start a new run. `tokjob verify --mode "
                "full` compares a complete dataset with them"
            )
        )


def refuse_foreign_files(store: Store, prepared: Prepared) -> None:
    """Raise OutputConflict if something at the output has a name that a shard would get."""
    for entry in Naming.of(prepared.data.output, prepared.dtype).list_named(store):
        if read_plan(store) is not None:
            return  # a concurrent run has written a plan and this shard meanwhile
        raise ChangedError(
            "OutputConflict",
            f"{store.uri}/{entry.path} has a name that output.path gives to shards, and there is no plan",
            next_step="move it away, or write to another output.uri",
        )


def refuse_nested_output(store: Store) -> None:
    """Raise `SpecError` if a new run would write inside another output, whose `tokjob clean` could meet its files.

    The folders above are looked at by name: two small calls each on a local disk, one on a store.
    """
    root = store.local_path("")
    if root is None:
        _refuse_nested_uri(store.uri)
        return
    place = root.resolve()
    if _OWN_FOLDER in place.parts:
        raise _nested(store.uri, f"below a folder {_OWN_FOLDER}, where only tokjob itself writes")
    for parent in place.parents:
        if os.path.lexists(parent / layout.PLAN) or (
            os.path.lexists(parent / layout.INDEX) and _has_own_index(open_store(str(parent)))
        ):
            raise _nested(store.uri, f"in {parent}, which is an output")


_OWN_FOLDER = layout.OWN.rstrip("/")


def _refuse_nested_uri(uri: str) -> None:
    scheme, _, path = uri.partition("://")
    names = path.split("/")
    if _OWN_FOLDER in names:
        raise _nested(uri, f"below a folder {_OWN_FOLDER}, where only tokjob itself writes")
    for end in range(1, len(names)):
        parent = f"{scheme}://{'/'.join(names[:end])}"
        with suppress(SpecError):  # an account that may read nothing above its own folder cannot ask, and may write
            if open_store(parent).stat(layout.PLAN) is not None:
                break
    else:
        return
    raise _nested(uri, f"in {parent}, which is an output")


def _has_own_index(store: Store) -> bool:
    """Whether a dataset of this program is there, whatever state its index is in."""
    try:
        return read_index(store) is not None
    except (ForeignIndex, SpecError):
        return False
    except (DataError, ChangedError):
        return True


def _nested(uri: str, where: str) -> SpecError:
    return SpecError(
        "OutputNested",
        f"{uri} lies {where}",
        next_step="choose an output.uri outside of it, such as a folder beside it: each output has a folder of its own",
    )


def refuse_links(store: Store, prepared: Prepared) -> None:
    """Raise `SpecError` if a folder for shards, or one of ours, is a link, through which nothing is written."""
    root = store.local_path("")
    if root is not None:
        output = prepared.data.output
        paths = (layout.shard_path(output.path, "", split=split.name, index=0, shard=0) for split in output.splits)
        with map_os_errors("write below", root):
            refuse_linked_folders(root, {layout.OWN.rstrip("/"), *(path.rpartition("/")[0] for path in paths)})


def probe_output(store: Store) -> None:
    """Create and remove an object, so that an output where one of both is not permitted is refused now."""
    create_bytes(store, layout.PROBE, b"")
    store.delete(layout.PROBE)
