"""Checks one source file: counts its documents, and compares some or all of them with the shards.

A sampled file in which anything is wrong is compared whole, so that a finding names the very place. Raises
`ChangedError` if the file is not the one that the dataset was made from.
"""

from __future__ import annotations

from functools import partial

from tokenization_worker.storage.open import open_store
from tokenization_worker.verification.advance import OnAdvance, ignore_advance
from tokenization_worker.verification.claims import FileClaim
from tokenization_worker.verification.compare import Expected, StreamComparer
from tokenization_worker.verification.decoders.record import CorruptSource
from tokenization_worker.verification.facts import Facts
from tokenization_worker.verification.files.batches import read_batches
from tokenization_worker.verification.files.by_sums import check_reordered
from tokenization_worker.verification.files.claimed import (
    FileCheck,
    FileTask,
    claimed_records,
    open_claimed,
    outcome_finding,
)
from tokenization_worker.verification.files.counts import Counts
from tokenization_worker.verification.files.encode import Encoder
from tokenization_worker.verification.files.sample import Suspicion, compare_sample
from tokenization_worker.verification.report import Finding
from tokenization_worker.verification.shards.documents import NoDocuments
from tokenization_worker.verification.stream import Stream


def check_files(facts: Facts, tasks: tuple[FileTask, ...], on_advance: OnAdvance = ignore_advance) -> list[FileCheck]:
    """Several files, one after the other; `on_advance` gets the stored bytes of all."""
    checks = []
    before = 0
    for task in tasks:
        checks.append(check_file(facts, task, partial(_advance_behind, on_advance, before)))
        before += task.claim.size
    return checks


def _advance_behind(on_advance: OnAdvance, before: int, size: int) -> None:
    on_advance(before + size)


def check_file(facts: Facts, task: FileTask, on_advance: OnAdvance = ignore_advance) -> FileCheck:
    """Read the file and compare it with what the dataset holds of it."""
    if not task.claim.is_read:
        check = _check_dropped(facts, task.claim, on_advance)
    elif facts.is_reordered:
        check = check_reordered(facts, task, on_advance)
    elif task.one_in == 1:
        check = _compare_all(facts, task, on_advance)
    else:
        try:
            check = compare_sample(facts, task, on_advance)
        except (Suspicion, NoDocuments):
            check = _compare_all(facts, task, on_advance)
    if check.findings:
        open_claimed(task.claim).close()  # a file that was changed meanwhile is no fault of the dataset
    return check


def _check_dropped(facts: Facts, claim: FileClaim, on_advance: OnAdvance) -> FileCheck:
    """The file is as corrupt as the dataset says; that nothing of it was written follows from the sums."""
    found = "Read"
    detail = ""
    try:
        for _ in claimed_records(facts, claim, on_advance):
            pass
    except CorruptSource as damage:
        found, detail = damage.outcome, damage.detail
    if found == claim.outcome:
        return FileCheck((), 0, 0, 0, 0)
    finding = outcome_finding(claim, f"{found}: {detail}" if detail else found)
    return FileCheck((finding,), 0, 0, 0, 0)


def _compare_all(facts: Facts, task: FileTask, on_advance: OnAdvance) -> FileCheck:
    store = open_store(facts.uri)
    claim = task.claim
    streams = [Stream(store, facts, claim.first_stream + number) for number in range(facts.streams_of_files)]
    comparers = [StreamComparer(stream, claim, number) for number, stream in enumerate(streams)]
    counts = Counts(task, facts)
    encoder = Encoder(facts)
    findings: list[Finding] = []
    try:
        for number, documents in read_batches(facts, task, counts, on_advance):
            places = [position for position, _ in documents]
            encoded = encoder.encode(task.claim.uri, places, [text for _, text in documents])
            expected = [
                Expected(place, document.tokens, document.lost) for place, document in zip(places, encoded, strict=True)
            ]
            comparers[number].add(expected)
    except CorruptSource as damage:
        findings.append(outcome_finding(task.claim, f"{damage.outcome}: {damage.detail}"))
    else:
        for comparer in comparers:
            comparer.finish()
        findings.extend(counts.findings())
    found = [finding for comparer in comparers for finding in comparer.findings]
    compared = sum(comparer.tokens_compared for comparer in comparers)
    return FileCheck((*found, *findings), counts.documents, counts.refused, counts.documents, compared)
