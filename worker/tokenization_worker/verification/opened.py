"""Opens a dataset to verify it: its index, its tables, and their claims about shards and source files."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from tokenization_worker.output import layout
from tokenization_worker.output.index import Index, require_index
from tokenization_worker.storage.base import Store
from tokenization_worker.storage.open import open_store
from tokenization_worker.verification.claims import FileClaim
from tokenization_worker.verification.facts import Facts, Rows, Unreadable, read_facts, read_files, read_table
from tokenization_worker.verification.refused import RefusedSums, add_up_refused
from tokenization_worker.verification.report import Finding


@dataclass(slots=True)
class OpenedDataset:
    """What was opened. `facts` None: the tables cannot be read, and `findings` say why."""

    store: Store
    index: Index
    facts: Facts | None = None
    files: list[FileClaim] = field(default_factory=list)
    shard_rows: Rows = field(default_factory=list)
    file_rows: Rows = field(default_factory=list)
    refused: RefusedSums = field(default_factory=RefusedSums)
    findings: list[Finding] = field(default_factory=list)


def open_dataset(uri: str | os.PathLike[str]) -> OpenedDataset:
    store = open_store(os.fspath(uri).rstrip("/") or "/")
    dataset = OpenedDataset(store, require_index(store))
    try:
        dataset.shard_rows = read_table(store, layout.SHARDS_TABLE)
        dataset.file_rows = read_table(store, layout.FILES_TABLE)
        dataset.refused = add_up_refused(store)
        facts = read_facts(store, dataset.index, dataset.shard_rows)
        dataset.files = read_files(facts, dataset.file_rows)
        dataset.facts = facts
    except Unreadable as error:
        dataset.findings.append(error.finding)
    return dataset
