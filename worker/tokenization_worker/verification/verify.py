"""Proving a dataset from its bytes and its source. Read `verify` as the table of contents.

Nothing of this package imports what writes datasets (a lint contract): readers, sidecars, tables, splits and
digests are read by code of their own, and the reference engine alone says what the tokens are. What is
derived from the shards is a claim here, never evidence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tokenization_worker import layout
from tokenization_worker.arguments import require_count, require_one_of, require_processes
from tokenization_worker.errors import ChangedError, DataError
from tokenization_worker.index import Index, require_index
from tokenization_worker.processes import default_processes
from tokenization_worker.storage.base import Store
from tokenization_worker.storage.open import open_store, scheme_of
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.verification.digest import compute_digest, split_entries
from tokenization_worker.verification.facts import (
    Facts,
    FileClaim,
    Refused,
    Rows,
    Unreadable,
    read_facts,
    read_files,
    read_refused,
    read_table,
)
from tokenization_worker.verification.files import FileCheck, FileTask, check_files
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
from tokenization_worker.verification.shards import ShardCheck, check_neighbours, check_shard
from tokenization_worker.verification.tables import check_names, check_plan, check_poison, check_tables
from tokenization_worker.verification.workers import run_all

SAMPLE_ONE_IN = 100

SAMPLE_LEAST = 64
"""How many documents a sample is expected to have, at least: 100 of a corpus of 50 would be none."""

_TASK_BYTES = 32 << 20
"""Stored bytes of small files that one task checks, at most."""


def verify(
    uri: str,
    *,
    mode: VerifyMode | str = VerifyMode.SAMPLE,
    processes: int | None = None,
    on_progress: Watcher = ignore,
    sample_one_in: int = SAMPLE_ONE_IN,
) -> VerifyReport:
    """Check the dataset at `uri` and say what is wrong with it.

    - `checksums`: every byte of shards, sidecars and tables is read once: sizes, headers, CRC32C, SHA-256, id range,
      sums and keys. No source is needed. About 1 GB/s a core.
    - `sample`: also the whole source is read once, documents and unusable documents are recounted for every file,
      and one document in `sample_one_in` (by a hash of its place; more of a small dataset, so that about 64 are
      looked at, or all) is encoded again with the reference engine and compared with its tokens.
    - `full`: every document is encoded again and every token compared: about 15 MB of text a second and core.

    Shards and files are checked in `processes` processes (default: one a core; 1: in this one). Raises
    `SpecError` where there is no dataset or its tokenizer cannot be loaded, and `ChangedError` if a source file
    or the tokenizer is not what the dataset was made from: then nothing can be proved, and nothing is known to
    be wrong.
    """
    require_one_of("mode", mode, VerifyMode)
    require_processes(processes)
    require_count("sample_one_in", sample_one_in)
    mode = VerifyMode(mode)
    dataset = _open(uri)
    if dataset.facts is None:
        return _report(dataset, mode, dataset.findings, [], [], None)
    facts, findings = dataset.facts, list(dataset.findings)
    findings += check_tables(facts, dataset.index, dataset.files, dataset.file_rows, dataset.refused_rows)
    findings += check_poison(facts, dataset.refused)
    findings += check_plan(dataset.store, dataset.index, dataset.files)
    findings += check_names(dataset.store, facts)
    if mode is not VerifyMode.CHECKSUMS:
        _require_tokenizer(facts)
    watch = _Progress(dataset, mode, on_progress, len(findings))
    processes = processes or default_processes()
    shards = _check_shards(dataset, facts, processes, watch)
    findings += [finding for check in shards for finding in check.findings]
    digest = compute_digest(facts, dataset.index, dataset.files, shards, dataset.refused_rows)
    findings += _check_whole(dataset, facts, shards, digest)
    files: list[FileCheck] = []
    if mode is not VerifyMode.CHECKSUMS:
        one_in = 1 if mode is VerifyMode.FULL else one_in_of_sample(dataset.files, sample_one_in)
        files = _check_source(dataset, facts, one_in, processes, watch)
        findings += [finding for check in files for finding in check.findings]
    return _report(dataset, mode, findings, shards, files, digest)


def dataset_digest(uri: str, *, processes: int | None = None) -> str:
    """The digest of the dataset's content, from the bytes of shards, sidecars and tables.

    Equal for equal datasets, whatever runs wrote them (`digest` defines it). Equal to the index's `digest` if
    nothing is damaged. Raises `DataError` where a part is missing.
    """
    dataset = _open(uri)
    digest = None
    if dataset.facts is not None:
        silent = _Progress(dataset, VerifyMode.CHECKSUMS, ignore, 0)
        shards = _check_shards(dataset, dataset.facts, processes or default_processes(), silent)
        digest = compute_digest(dataset.facts, dataset.index, dataset.files, shards, dataset.refused_rows)
        dataset.findings += [finding for check in shards for finding in check.findings]
    if digest is None:
        raise DataError(
            "DatasetIncomplete",
            f"{dataset.store.uri}: {dataset.findings[0]}",
            next_step=next_step(dataset.findings),
        )
    return digest


@dataclass(slots=True)
class _Dataset:
    """What was opened. `facts` None: the tables cannot be read, and `findings` say why."""

    store: Store
    index: Index
    facts: Facts | None = None
    files: list[FileClaim] = field(default_factory=list)
    shard_rows: Rows = field(default_factory=list)
    file_rows: Rows = field(default_factory=list)
    refused_rows: Rows = field(default_factory=list)
    refused: dict[str, tuple[Refused, ...]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def _open(uri: str) -> _Dataset:
    store = open_store(uri.rstrip("/") or "/")
    dataset = _Dataset(store, require_index(store))
    try:
        dataset.shard_rows = read_table(store, layout.SHARDS_TABLE)
        dataset.file_rows = read_table(store, layout.FILES_TABLE)
        dataset.refused_rows = read_table(store, layout.QUARANTINE_TABLE)
        facts = read_facts(store, dataset.index, dataset.shard_rows)
        dataset.files = read_files(facts, dataset.file_rows)
        dataset.refused = read_refused(dataset.refused_rows)
        dataset.facts = facts
    except Unreadable as error:
        dataset.findings.append(error.finding)
    return dataset


def _require_tokenizer(facts: Facts) -> None:
    """Load the tokenizer; raises `ChangedError` if it is not the one of the dataset."""
    tokenizer = load_tokenizer(facts.tokenizer)
    was = (facts.fingerprint, facts.vocab_size, facts.delimiter_id)
    now = (tokenizer.fingerprint, tokenizer.vocab_size, tokenizer.delimiter_id)
    if was != now:
        raise ChangedError(
            "TokenizerChanged",
            f"{facts.tokenizer.uri or facts.tokenizer.name} is not the tokenizer that this dataset was made with: "
            f"fingerprint, vocabulary size and delimiter were {was}, are {now}",
            next_step="put that tokenizer back, or verify with mode checksums, which needs none",
        )


class _Progress:
    """Adds up what is done and tells the watcher."""

    def __init__(self, dataset: _Dataset, mode: VerifyMode, watch: Watcher, findings: int) -> None:
        shards = dataset.facts.streams if dataset.facts is not None else ()
        self._total = sum(shard.bytes for stream in shards for shard in stream)
        if mode is not VerifyMode.CHECKSUMS:
            self._total += sum(file.size for file in dataset.files)
        self._done = 0
        self._findings = findings
        self._watch = watch

    def add(self, phase: str, size: int, findings: int) -> None:
        self._done += size
        self._findings += findings
        self._watch(VerifyProgress(phase, self._done, self._total, self._findings))


def _check_shards(dataset: _Dataset, facts: Facts, processes: int, watch: _Progress) -> list[ShardCheck]:
    """All shards, in the order of streams and shards."""
    claims = [shard for shards in facts.streams for shard in shards]
    checks: dict[int, ShardCheck] = {}
    may_fork = scheme_of(dataset.store.uri) == "file"
    for number, check in run_all(check_shard, facts, claims, processes=processes, may_fork=may_fork):
        checks[number] = _with_places(check, dataset.files)
        watch.add("shards", claims[number].bytes, len(check.findings))
    return [checks[number] for number in range(len(claims))]


def _with_places(check: ShardCheck, files: list[FileClaim]) -> ShardCheck:
    """Say in the findings where the shard's first document comes from, as its sidecar has it."""
    if not check.findings or check.ends is None or check.ends.first_file >= len(files):
        return check
    uri, position = files[check.ends.first_file].uri, check.ends.first_position
    return replace(check, findings=tuple(replace(item, uri=uri, position=position) for item in check.findings))


def _check_whole(dataset: _Dataset, facts: Facts, shards: list[ShardCheck], digest: str | None) -> Iterator[Finding]:
    """What shows only when all shards are known: documents that straddle two, and the digests."""
    for number in range(len(facts.streams)):
        yield from check_neighbours([check for check in shards if check.claim.stream == number])
    splits, listed = split_entries(facts, dataset.shard_rows), dataset.index.get("splits")
    if splits != listed:
        yield Finding(Fault.TABLES_DISAGREE, f"splits: {splits}", str(listed), layout.INDEX)
    if digest is not None and digest != dataset.index.get("digest"):
        found = f"the index says {dataset.index.get('digest')}"
        yield Finding(Fault.DIGEST_DIFFERS, f"digest {digest} by what is there", found, layout.INDEX)


def _check_source(dataset: _Dataset, facts: Facts, one_in: int, processes: int, watch: _Progress) -> list[FileCheck]:
    """All source files, in the order of the files table."""
    tasks = list(_tasks(dataset, one_in, processes))
    may_fork = all(scheme_of(place) == "file" for place in (dataset.store.uri, *_uris(dataset, facts)))
    checks: dict[int, list[FileCheck]] = {}
    for number, done in run_all(check_files, facts, tasks, processes=processes, may_fork=may_fork):
        checks[number] = done
        size = sum(task.claim.size for task in tasks[number])
        watch.add("source", size, sum(len(check.findings) for check in done))
    return [check for number in range(len(tasks)) for check in checks[number]]


def one_in_of_sample(files: list[FileClaim], wanted: int) -> int:
    """One document in how many is encoded again: `wanted`, or fewer so that `SAMPLE_LEAST` can be expected."""
    return min(wanted, max(1, sum(sum(file.documents) for file in files) // SAMPLE_LEAST))


def _uris(dataset: _Dataset, facts: Facts) -> Iterator[str]:
    yield facts.tokenizer.uri or ""
    for file in dataset.files:
        yield file.uri


def _tasks(dataset: _Dataset, one_in: int, processes: int) -> Iterator[tuple[FileTask, ...]]:
    """Files in order, small ones together, but so that every process gets some."""
    most = min(_TASK_BYTES, sum(claim.size for claim in dataset.files) // (8 * processes))
    group: list[FileTask] = []
    size = 0
    for claim in dataset.files:
        group.append(FileTask(claim, dataset.refused.get(claim.uri, ()), one_in))
        size += claim.size
        if size >= most:
            yield tuple(group)
            group, size = [], 0
    if group:
        yield tuple(group)


def _report(
    dataset: _Dataset,
    mode: VerifyMode,
    findings: list[Finding],
    shards: list[ShardCheck],
    files: list[FileCheck],
    digest: str | None,
) -> VerifyReport:
    return VerifyReport(
        uri=dataset.store.uri,
        mode=mode,
        findings=tuple(findings),
        shards=len(shards),
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
    )
