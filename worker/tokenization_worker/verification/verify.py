"""Verifies a dataset against its bytes and its source. Read `verify` as the table of contents.

Nothing of this package imports what writes datasets (a lint contract): readers, sidecars, parts, tables, splits
and digests are read by code of their own, and the reference engine alone says what the tokens are. What is
derived from the shards is a claim here, never evidence.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from tokenization_worker.api.arguments import (
    require_count,
    require_function,
    require_one_of,
    require_place,
    require_processes,
)
from tokenization_worker.errors import ChangedError, DataError
from tokenization_worker.host.main_guard import require_main_guard
from tokenization_worker.messages.counts import counted
from tokenization_worker.output import layout
from tokenization_worker.output.recovery import can_be_rewritten
from tokenization_worker.processes import default_processes
from tokenization_worker.storage.schemes import scheme_of
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.verification.claims import FileClaim
from tokenization_worker.verification.compare import MOST_FINDINGS
from tokenization_worker.verification.decoders.source import may_be_parquet
from tokenization_worker.verification.differences import first_difference
from tokenization_worker.verification.digest import compute_digest, split_entries
from tokenization_worker.verification.facts import Facts
from tokenization_worker.verification.files.by_sums import Unequal, look_up, not_looked_up
from tokenization_worker.verification.files.check import check_files
from tokenization_worker.verification.files.claimed import FileCheck, FileTask
from tokenization_worker.verification.folders import Entries, check_folders
from tokenization_worker.verification.libraries import Libraries, advise, compare_libraries
from tokenization_worker.verification.opened import OpenedDataset, open_dataset
from tokenization_worker.verification.packing_proof import PackingProof
from tokenization_worker.verification.refused import refused_by_file, refused_lines
from tokenization_worker.verification.report import (
    Fault,
    Finding,
    VerifyMode,
    VerifyProgress,
    VerifyReport,
    Watcher,
    ignore,
    next_step,
)
from tokenization_worker.verification.shards.check import ShardCheck, check_file_numbers, check_neighbours, check_shard
from tokenization_worker.verification.shards.place_sums import FileSums, add_up, compare_counts
from tokenization_worker.verification.tables import check_crash_verdicts, check_names, check_plan, check_tables
from tokenization_worker.verification.workers import run_all

SAMPLE_ONE_IN = 100

SAMPLE_LEAST = 64
"""How many documents a sample is expected to have, at least: 100 of a corpus of 50 would be none."""

_TASK_BYTES = 32 << 20
"""Stored bytes of small files that one task checks, at most."""


def verify(
    uri: str | os.PathLike[str],
    *,
    mode: VerifyMode | str = VerifyMode.SAMPLE,
    processes: int | None = None,
    on_progress: Watcher = ignore,
    sample_one_in: int = SAMPLE_ONE_IN,
) -> VerifyReport:
    """Check the dataset at `uri` and say what is wrong with it.

    - `checksums`: every byte of shards, sidecars, parts and tables is read once: sizes, headers, CRC32C, SHA-256, id
      range, rows, padding, sums and keys. No source is needed. About 1 GB/s a core.
    - `sample`: also the whole source is read once, documents and unusable documents are recounted for every file,
      and one document in `sample_one_in` (by a hash of its place; more of a small dataset, so that about 64 are
      looked at, or all) is encoded again with the reference engine and compared with its tokens.
    - `full`: every document is encoded again and every token compared: about 15 MB of text a second and core.

    Shards and files are checked in `processes` processes (default: one a core; 1: in this one). Raises
    `SpecError` where there is no dataset or its tokenizer cannot be loaded, and `ChangedError` if a source file
    or the tokenizer is not what the dataset was made from: then nothing can be proved, and nothing is known to
    be wrong.
    """
    require_place("verify", uri)
    require_function("on_progress", on_progress, "on_progress(event)")
    require_main_guard("verify")
    require_one_of("mode", mode, VerifyMode)
    require_processes(processes)
    require_count("sample_one_in", sample_one_in)
    mode = VerifyMode(mode)
    dataset = open_dataset(uri)
    if dataset.facts is None:
        return _report(dataset, mode, dataset.findings, [], [], None, _advise(dataset, dataset.findings))
    facts, findings = dataset.facts, list(dataset.findings)
    findings += check_tables(facts, dataset.index, dataset.files, dataset.file_rows, dataset.refused)
    findings += check_crash_verdicts(facts, dataset.refused)
    findings += check_plan(dataset.store, dataset.index, dataset.files)
    findings += check_names(dataset.store, facts)
    libraries = None if mode is VerifyMode.CHECKSUMS else _require_tokenizer(dataset, facts)
    watch = _Progress(dataset, mode, on_progress, len(findings))
    processes = processes or default_processes()
    one_in = 1 if mode is VerifyMode.FULL else one_in_of_sample(dataset.files, sample_one_in)
    shards = _check_shards(dataset, facts, processes, watch, 0 if libraries is None else one_in)
    findings += [finding for check in shards for finding in check.findings]
    of_folders, folders = check_folders(dataset.store, facts, dataset.index)
    findings += of_folders
    digest = _digest(dataset, facts, shards, folders)
    sums = _add_up_files(dataset, facts, shards)
    findings += _check_whole(dataset, facts, shards, sums, digest)
    if libraries is None:
        return _report(dataset, mode, findings, shards, [], digest, _advise(dataset, findings))
    can_prove = facts.are_packed_rows_shuffled and one_in == 1 and not any(check.findings for check in shards)
    proof = PackingProof(facts, shards) if can_prove else None
    files = _check_source(dataset, facts, one_in, processes, watch, sums, proof)
    of_source = [finding for check in files for finding in check.findings]
    of_source += islice(proof.findings(), MOST_FINDINGS) if proof is not None else ()
    can_rewrite = bool(findings) and can_be_rewritten(dataset.store)
    advice = advise(dataset.store.uri, libraries, findings, of_source, can_rewrite=can_rewrite)
    return _report(dataset, mode, [*findings, *of_source], shards, files, digest, advice)


def dataset_digest(uri: str | os.PathLike[str], *, processes: int | None = None) -> str:
    """The digest of the dataset's content, from the bytes of shards, sidecars, parts and tables.

    Equal for equal datasets, whatever runs wrote them (`digest` defines it), and to the index's `digest`. Raises
    `DataError` where a part is missing or corrupt: `DatasetIncomplete`, or `DatasetDamaged` with the digest of the
    bytes that are there.
    """
    require_main_guard("verify")
    dataset = open_dataset(uri)
    findings, digest = list(dataset.findings), None
    if dataset.facts is not None:
        findings += check_tables(dataset.facts, dataset.index, dataset.files, dataset.file_rows, dataset.refused)
        silent = _Progress(dataset, VerifyMode.CHECKSUMS, ignore, 0)
        shards = _check_shards(dataset, dataset.facts, processes or default_processes(), silent, 0)
        of_folders, folders = check_folders(dataset.store, dataset.facts, dataset.index)
        findings += of_folders
        digest = _digest(dataset, dataset.facts, shards, folders)
        findings += [finding for check in shards for finding in check.findings]
        sums = _add_up_files(dataset, dataset.facts, shards)
        findings += _check_whole(dataset, dataset.facts, shards, sums, digest)
    if digest is not None and not findings:
        return digest
    more = f" (and {counted(len(findings) - 1, 'more finding')})" if len(findings) > 1 else ""
    there = "" if digest is None else f"; the existing bytes have digest {digest}"
    damage = f"{dataset.store.uri} is damaged: {findings[0]}{more}{there}"
    if digest is None:
        raise DataError("DatasetIncomplete", damage, next_step=_advise(dataset, findings))
    raise DataError("DatasetDamaged", damage, next_step=_advise(dataset, findings))


def _advise(dataset: OpenedDataset, findings: list[Finding]) -> str:
    return next_step(findings, can_rewrite=bool(findings) and can_be_rewritten(dataset.store))


def _require_tokenizer(dataset: OpenedDataset, facts: Facts) -> Libraries:
    """Load the tokenizer; raises `ChangedError` if it is not the one of the dataset. Returns the versions of both."""
    tokenizer = load_tokenizer(facts.tokenizer)
    has_parquet = any(may_be_parquet(file.uri, facts.rules.format) for file in dataset.files)
    libraries = compare_libraries(dataset.index, tokenizer.libraries, has_parquet=has_parquet)
    was = (facts.fingerprint, facts.vocab_size, *facts.delimiter_ids)
    now = (tokenizer.fingerprint, tokenizer.vocab_size, *tokenizer.delimiters.ids)
    if was != now:
        words, way_out = (f"; {libraries.words}", f", or {libraries.way_out}") if libraries.names else ("", "")
        raise ChangedError(
            "TokenizerChanged",
            f"{facts.tokenizer.uri or facts.tokenizer.name} is not the tokenizer that this dataset was made with: "
            f"fingerprint, vocabulary size and delimiter were {was}, are {now}{words}",
            next_step=f"put that tokenizer back{way_out}, or verify with mode checksums, which needs none",
        )
    return libraries


class _Progress:
    """Adds up what is done and reports it to the watcher."""

    def __init__(self, dataset: OpenedDataset, mode: VerifyMode, watch: Watcher, findings: int) -> None:
        shards = dataset.facts.streams if dataset.facts is not None else ()
        self._total = sum(shard.bytes for stream in shards for shard in stream)
        if mode is not VerifyMode.CHECKSUMS:
            self._total += sum(file.size for file in dataset.files)
        self._done = 0
        self._findings = findings
        self._watch = watch
        self._phase = ""
        self._sizes: Sequence[int] = ()
        self._under_way: dict[int, int] = {}

    def begin(self, phase: str, sizes: Sequence[int]) -> None:
        """Tasks of these `sizes` are checked now."""
        self._phase, self._sizes = phase, sizes
        self._under_way = {}
        self._report()

    def take(self, under_way: dict[int, int]) -> None:
        """Bytes that tasks have told of; one that reads its file again, to find the very place, counts once."""
        self._under_way = {number: min(size, self._sizes[number]) for number, size in under_way.items()}
        self._report()

    def end(self, number: int, findings: int) -> None:
        """A task is done."""
        self._under_way.pop(number, None)
        self._done += self._sizes[number]
        self._findings += findings
        self._report()

    def _report(self) -> None:
        done = self._done + sum(self._under_way.values())
        self._watch(VerifyProgress(self._phase, done, self._total, self._findings))


def _check_shards(
    dataset: OpenedDataset, facts: Facts, processes: int, watch: _Progress, one_in: int
) -> list[ShardCheck]:
    """All shards, in the order of streams and shards; `one_in`: as for `check_shard`."""
    claims = [shard for shards in facts.streams for shard in shards]
    checks: dict[int, ShardCheck] = {}
    may_fork = scheme_of(dataset.store.uri) == "file"
    watch.begin("shards", [claim.bytes for claim in claims])
    checking = run_all(
        partial(check_shard, one_in=one_in),
        facts,
        claims,
        processes=min(processes, len(claims)),
        may_fork=may_fork,
        on_advance=watch.take,
    )
    for number, check in checking:
        checks[number] = _with_places(check, dataset.files, is_reordered=facts.is_reordered)
        watch.end(number, len(check.findings))
    return [checks[number] for number in range(len(claims))]


def _with_places(check: ShardCheck, files: list[FileClaim], *, is_reordered: bool) -> ShardCheck:
    """Say in the findings where the shard's first document comes from, as its sidecar or its parts have it. Of a
    reordered shard that would say nothing of the others."""
    if not check.findings or check.ends is None or check.ends.first_file >= len(files) or is_reordered:
        return check
    uri, position = files[check.ends.first_file].uri, check.ends.first_position
    return replace(check, findings=tuple(replace(item, uri=uri, position=position) for item in check.findings))


def _digest(dataset: OpenedDataset, facts: Facts, shards: list[ShardCheck], folders: Entries | None) -> str | None:
    lines = partial(refused_lines, dataset.store)
    if folders is None:
        return None
    return compute_digest(facts, dataset.index, dataset.files, shards, folders, dataset.refused, lines)


def _check_whole(
    dataset: OpenedDataset,
    facts: Facts,
    shards: list[ShardCheck],
    sums: list[FileSums | None],
    digest: str | None,
) -> Iterator[Finding]:
    """What shows only when all shards are known: documents that straddle two, and the digests. `sums`: of each stream
    of a shuffled dataset."""
    for number in range(len(facts.streams)):
        yield from check_neighbours(facts, [check for check in shards if check.claim.stream == number])
    for check in shards:
        yield from check_file_numbers(check, len(dataset.files))
    for number, found_there in enumerate(sums):
        if found_there is not None:
            counts = compare_counts(dataset.files, number, found_there, is_delimited=bool(facts.delimiter_ids))
            yield from islice(counts, MOST_FINDINGS)
    splits, listed = split_entries(facts, dataset.shard_rows), dataset.index.get("splits")
    if splits != listed:
        first = first_difference("splits", splits, listed)
        yield Finding(Fault.TABLES_DISAGREE, f"{first.place}: {first.expected}", first.found, layout.INDEX)
    if digest is not None and digest != (recorded := dataset.index.get("digest")):
        yield Finding(Fault.DIGEST_DIFFERS, f"the digest of the dataset's files, {digest}", str(recorded), layout.INDEX)


def _add_up_files(dataset: OpenedDataset, facts: Facts, shards: list[ShardCheck]) -> list[FileSums | None]:
    """Of each stream of a reordered dataset, what its shards hold of each file; None where a shard cannot be read."""
    if not facts.is_reordered:
        return []
    found: list[FileSums | None] = []
    for number in range(len(facts.streams)):
        mine = [check.sums for check in shards if check.claim.stream == number]
        found.append(add_up(mine, len(dataset.files)))
    return found


def _check_source(
    dataset: OpenedDataset,
    facts: Facts,
    one_in: int,
    processes: int,
    watch: _Progress,
    sums: list[FileSums | None],
    proof: PackingProof | None,
) -> list[FileCheck]:
    """All source files, in the order of the files table. `sums`: of each stream of a reordered dataset; `proof`: gets
    their documents."""
    groups = list(_groups(dataset.files, processes))
    may_fork = all(scheme_of(place) == "file" for place in (dataset.store.uri, *_uris(dataset, facts)))
    checks: dict[int, list[FileCheck]] = {}
    watch.begin("source", [sum(claim.size for claim in group) for group in groups])
    tasks = _tasks(dataset, facts, groups, one_in, sums, keeps_documents=proof is not None)
    count = min(processes, len(groups))
    checking = run_all(check_files, facts, tasks, processes=count, may_fork=may_fork, on_advance=watch.take)
    for number, done in checking:
        if proof is not None:
            proof.add(number, done)
        checks[number] = [replace(check, encoded=()) for check in done]
        watch.end(number, sum(len(check.findings) for check in done))
    in_order = [check for number in range(len(groups)) for check in checks[number]]
    return list(_with_places_of_sums(dataset, facts, in_order, processes, may_fork=may_fork))


def _with_places_of_sums(
    dataset: OpenedDataset, facts: Facts, checks: list[FileCheck], processes: int, *, may_fork: bool
) -> Iterator[FileCheck]:
    """Say of files whose sums differ what is wrong with them; of the first few it is looked up."""
    pairs = zip(dataset.files, checks, strict=True)
    files = [Unequal(claim, check.unequal) for claim, check in pairs if check.unequal]
    looked_up = files[:MOST_FINDINGS]
    found = dict(run_all(look_up, facts, looked_up, processes=min(processes, len(looked_up)), may_fork=may_fork))
    number = 0
    for check in checks:
        if check.unequal:
            more = found[number] if number in found else (not_looked_up(files[number]),)
            check = replace(check, findings=(*check.findings, *more))
            number += 1
        yield check


def one_in_of_sample(files: list[FileClaim], wanted: int) -> int:
    """One document in how many is encoded again: `wanted`, or fewer so that `SAMPLE_LEAST` can be expected."""
    return min(wanted, max(1, sum(sum(file.documents) for file in files) // SAMPLE_LEAST))


def _uris(dataset: OpenedDataset, facts: Facts) -> Iterator[str]:
    yield facts.tokenizer.uri or ""
    for file in dataset.files:
        yield file.uri


def _groups(files: list[FileClaim], processes: int) -> Iterator[tuple[FileClaim, ...]]:
    """Files in order, small ones together, but so that every process gets some."""
    most = min(_TASK_BYTES, sum(claim.size for claim in files) // (8 * processes))
    group: list[FileClaim] = []
    size = 0
    for claim in files:
        group.append(claim)
        size += claim.size
        if size >= most:
            yield tuple(group)
            group, size = [], 0
    if group:
        yield tuple(group)


def _tasks(
    dataset: OpenedDataset,
    facts: Facts,
    groups: list[tuple[FileClaim, ...]],
    one_in: int,
    sums: list[FileSums | None],
    *,
    keeps_documents: bool,
) -> Iterator[tuple[FileTask, ...]]:
    """A task for each group, made when it is asked for: with it come its files' rows of the quarantine table."""
    refused = refused_by_file(dataset.store, dataset.files)

    def sums_of(claim: FileClaim) -> tuple[int | None, ...]:
        mine = sums[claim.first_stream : claim.first_stream + facts.streams_of_files]
        return tuple(None if each is None else int(each.sums[claim.number]) for each in mine)

    for group in groups:
        yield tuple(FileTask(claim, next(refused), one_in, sums_of(claim), keeps_documents) for claim in group)


def _report(
    dataset: OpenedDataset,
    mode: VerifyMode,
    findings: list[Finding],
    shards: list[ShardCheck],
    files: list[FileCheck],
    digest: str | None,
    advice: str,
) -> VerifyReport:
    return VerifyReport(
        uri=dataset.store.uri,
        mode=mode,
        findings=tuple(findings),
        shards=sum(check.size > 0 for check in shards),
        shard_bytes=sum(check.size for check in shards),
        tokens=sum(check.tokens or 0 for check in shards),
        files=len(files),
        files_dropped=sum(not claim.is_read for claim in dataset.files) if files else 0,
        source_bytes=sum(claim.size for claim in dataset.files) if files else 0,
        documents=sum(check.documents for check in files),
        quarantined=sum(check.quarantined for check in files),
        documents_compared=sum(check.documents_compared for check in files),
        tokens_compared=sum(check.tokens_compared for check in files),
        digest=digest,
        stopped=dataset.facts is None,
        next_step=advice,
    )
