"""Reads what is at an output: an `OutputState`, from which `output_state.judge` decides. Writes nothing.

No more is read than the decision needs: of a run that is complete, only the index.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from tokenization_worker.api.data import DataSpec, OutputSpec
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.keys import run_key
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.errors import ChangedError, DataError, SpecError, TemporaryError, TokenizationError
from tokenization_worker.output import layout
from tokenization_worker.output.index import ForeignIndex, Index, read_index, trusted_runs
from tokenization_worker.output.ledger.epochs import Epoch, current_epoch, find_epoch
from tokenization_worker.output.naming import list_named, name_files, require_known_formats
from tokenization_worker.output.plan_file import read_plan
from tokenization_worker.output.tables import require_tables
from tokenization_worker.run.output_state import OutputState, RunConflict, Verdict, Wanted, judge
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.storage.local.folders import refuse_linked_folders
from tokenization_worker.storage.local.os_errors import map_os_errors
from tokenization_worker.storage.open import open_store

T = TypeVar("T")


def observe_output(store: Store, job: TokenizationJob | None = None) -> OutputState:
    """What is at the output; with a `job`, also what decides whether that may write there.

    What is wrong with index, plan, tables, epochs or the place is part of the state, and only `TemporaryError` passes.
    """
    index, index_error = _attempt(lambda: _read_index(store))
    if index_error is not None:
        return OutputState(store.uri, index_error=index_error)
    trusted: frozenset[str] = frozenset()
    if index is not None and job is not None:
        trusted = trusted_runs(store, index, run_key(job))
        if run_key(job) in trusted:
            return OutputState(store.uri, index, trusted)
    version = "" if job is None else _plan_version(store)  # before it is read: a later plan has another one
    plan, plan_error = _attempt(lambda: read_plan(store))
    place_error = tables_error = None
    if job is not None and index is None:
        wanted = resolve_data(job)
        output = wanted.output
        _, place_error = _attempt(lambda: refuse_links(store, wanted))
        if place_error is None and plan is None and plan_error is None:
            _, place_error = _attempt(lambda: _refuse_place(store, output))
            if place_error is not None:  # a concurrent start may have written a plan and a shard meanwhile
                plan, plan_error = _attempt(lambda: read_plan(store))
                place_error = place_error if plan is None and plan_error is None else None
    elif job is not None and index is not None:
        _, tables_error = _attempt(lambda: require_tables(store, index))
    epoch, epoch_error = _attempt(lambda: read_epoch(store, index))
    return OutputState(
        uri=store.uri,
        index=index,
        trusted_runs=trusted,
        plan=plan,
        plan_version=version,
        epoch=epoch,
        tables_error=tables_error,
        plan_error=plan_error,
        epoch_error=epoch_error,
        place_error=place_error,
    )


def _attempt(read: Callable[[], T]) -> tuple[T | None, TokenizationError | None]:
    """What `read` returns, or the error that it raises, if that does not pass."""
    try:
        return read(), None
    except TemporaryError:
        raise
    except TokenizationError as error:
        return None, error


def read_epoch(store: Store, index: Index | None) -> Epoch | None:
    """The epoch to work in; None where no range is done yet.

    A dataset may have been moved without its epochs, and with receipts of a repair.
    """
    if index is None:
        return find_epoch(store)
    with suppress(NotFound):
        return current_epoch(store)
    return None


def _read_index(store: Store) -> Index | None:
    index = read_index(store)
    if index is not None:
        require_known_formats(index["data"]["output"]["formats"], store.uri, layout.INDEX)
    return index


def _plan_version(store: Store) -> str:
    found, _ = _attempt(lambda: store.stat(layout.PLAN))  # what may not be looked at is told by the read
    return "" if found is None else found.version


def judge_now(store: Store, state: OutputState, wanted: Wanted) -> Verdict:
    """`judge`, which knows whether a run is writing there now where that decides what to do next."""
    verdict = judge(state, wanted)
    if isinstance(verdict.error, RunConflict) and _is_live(store):
        return judge(replace(state, is_live=True), wanted)
    return verdict


def _is_live(store: Store) -> bool:
    try:
        return store.has_live_writers()
    except TokenizationError:  # this account may not look: it may live
        return True


def refuse_links(store: Store, data: DataSpec) -> None:
    """Raise `SpecError` if a folder for shards, or one of ours, is a link, through which nothing is written."""
    root, output = store.local_path(""), data.output
    if root is not None:
        paths = (
            file.path
            for group in data.path_groups or ("",)
            for split in output.splits
            for file in name_files(output.path, output.file_kinds, split=split.name, index=0, shard=0, group=group)
        )
        with map_os_errors("write below", root):
            refuse_linked_folders(root, {_OWN_FOLDER, *(path.rpartition("/")[0] for path in paths)})


def _refuse_place(store: Store, output: OutputSpec) -> None:
    """Raise where no new run may begin."""
    refuse_nested_output(store)
    refuse_foreign_files(store, output)


def refuse_foreign_files(store: Store, output: OutputSpec) -> None:
    """Raise `ChangedError` if something at the output has a name that a shard would get."""
    for entry in list_named(store, output.path, output.file_kinds):
        raise ChangedError(
            "OutputConflict",
            f"{store.uri}/{entry.path} has a name that output.path gives to shards, but the output has no plan",
            next_step="move it away, or write to another output.uri",
        )


def refuse_nested_output(store: Store) -> None:
    """Raise `SpecError` if a new run would write inside another output, whose `tokjob clean` could meet its files.

    The folders above are asked for by name: two small calls each on a local disk, one on a store.
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
        next_step="choose an output.uri outside of it, such as a folder beside it: each output needs its own folder",
    )
