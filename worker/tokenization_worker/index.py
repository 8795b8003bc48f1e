"""The index: the final description of a dataset. Its presence is success.

`run` inside it says how this execution went (keys, engine, versions); everything else is the same for
every execution of the same job, whatever its processes, ranges, engine or crashes.
"""

from __future__ import annotations

from typing import Any

import orjson

from tokenization_worker import layout
from tokenization_worker.errors import ChangedError, DataError, SpecError
from tokenization_worker.records import parsing
from tokenization_worker.storage.base import NotFound, Store

FORMAT_VERSION = 1

Index = dict[str, Any]

_ALWAYS = ("conservation", "data", "dataKey", "digest", "dtype", "run", "splits", "tokenizer", "tokens")


def read_index(store: Store) -> Index | None:
    """The index at `store`, or None where nothing is committed."""
    try:
        data = store.read(layout.INDEX)
    except NotFound:
        return None
    try:
        with parsing(store.uri, layout.INDEX):
            index = orjson.loads(data)
            version = index["formatVersion"]
    except DataError as error:
        if store.stat(layout.PLAN) is not None:  # it was ours
            raise
        raise ChangedError(
            "OutputConflict",
            f"{store.uri}/{layout.INDEX} is not an index of this project",
            next_step="write to another output.uri",
        ) from error
    if version != FORMAT_VERSION:
        raise ChangedError(
            "OutputConflict",
            f"{store.uri}/{layout.INDEX} has format version {version}; this program reads {FORMAT_VERSION}",
            next_step="use the version of this program that wrote it",
        )
    with parsing(store.uri, layout.INDEX):
        return {**index, **{name: index[name] for name in _ALWAYS}}


def require_index(store: Store) -> Index:
    """The index at `store`; raises `SpecError("NotADataset")`, saying what is there instead."""
    index = read_index(store)
    if index is not None:
        return index
    if store.stat(layout.PLAN) is not None:
        done = sum("/ranges/" in entry.path for entry in store.list(layout.LEDGER))
        there = f"an unfinished run: a plan and the receipts of {done:,} ranges"
        next_step = "start its job again, which goes on where it stopped; tokjob status shows how far it is"
    else:
        there = foreign_content(store) or "nothing"
        next_step = "check the path: it must be the output.uri of a finished job"
    raise SpecError("NotADataset", f"{store.uri} has no {layout.INDEX}: there is {there}", next_step=next_step)


def foreign_content(store: Store) -> str | None:
    """What is at a place with neither index nor plan, in words; None where it is empty but for leftovers of ours."""
    root = store.local_path("")
    if root is not None and root.is_file():
        return "a file"
    for parent in root.parents if root is not None and root.exists() else ():
        if (parent / layout.OWN).is_dir():
            return f"a part of {parent}, which is an output"
    if any(not entry.path.startswith(layout.OWN) for entry in store.list()):
        return "files, but none of ours"
    return None


def is_proven(store: Store, index: Index, run_key: str) -> bool:
    """Whether the run with `run_key` wrote this dataset or has proved it since."""
    return bool(index["run"]["runKey"] == run_key) or store.stat(layout.rerun_path(run_key)) is not None
