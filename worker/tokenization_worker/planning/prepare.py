"""The plan phase: everything that can be refused is refused here, before any work is done.

Lists the source, reads the first records, loads the tokenizer, estimates tokens and room, and cuts the
files into ranges. Writes nothing: `run.output_state` decides what happens at the output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import numpy as np

from tokenization_worker.api.changes import asked_fields
from tokenization_worker.api.data import DataSpec, DType, SourceFormat
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.keys import canonical_data, data_key, plan_id, run_key
from tokenization_worker.api.resolve import RunLimits, resolve_data, resolve_limits
from tokenization_worker.errors import DataError, SpecError, TemporaryError, TokenizationError
from tokenization_worker.events import Preparing, Warned, Watcher, ignore
from tokenization_worker.formats.registry import suffixes_of
from tokenization_worker.host.parallel import LookAhead, map_at_once
from tokenization_worker.messages.counts import counted
from tokenization_worker.output.layout import INDEX, SHARDS_TABLE, require_number_fits, shard_path
from tokenization_worker.output.ledger.version_samples import SampledText, choose_texts
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.planning.cut import Inside, choose_range_bytes, cut_files
from tokenization_worker.planning.estimate import (
    SAMPLED_BYTES,
    EncodedSample,
    Estimate,
    choose_samples,
    encode_samples,
    estimate,
)
from tokenization_worker.planning.lossless_check import require_text_kept
from tokenization_worker.planning.sampling import advice, encoding_hint, foresee, read_on
from tokenization_worker.planning.source_check import find_strange
from tokenization_worker.planning.splits import Streams
from tokenization_worker.readers.detection.detect import is_named_parquet, kind_of_source, may_be_empty, may_be_parquet
from tokenization_worker.readers.detection.head import HeadSample, read_head
from tokenization_worker.readers.detection.sizes import estimate_content_bytes
from tokenization_worker.readers.detection.text_fields import array_advice
from tokenization_worker.readers.document_batch import Compression, DamagedFile, FileOutcome, ReadOptions, Reason
from tokenization_worker.readers.open import record_separator
from tokenization_worker.readers.parquet.reader import parquet_row_groups
from tokenization_worker.readers.record_splitter import can_cut
from tokenization_worker.storage.base import ByteReader, Store
from tokenization_worker.storage.source_file import SourceFile, source_changed
from tokenization_worker.storage.sources import (
    connections_to,
    find_touched_files,
    is_same_file,
    list_source,
    open_as_listed,
    open_file,
    selects,
)
from tokenization_worker.tokenizers.base import Tokenizer
from tokenization_worker.tokenizers.load import load_tokenizer, pin_tokenizer

_WRONG_FIELD = {"MissingText", "WrongTextType", "NotAnObject"}
_WRONG_FORMAT = _WRONG_FIELD | {"InvalidJson", "InvalidUtf8"}

_FEW_RECORDS = 3
"""Fewer unusable records than that say nothing about the rest of a source."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the plan phase found out. `foreseen`: the error that a new run of it would certainly end with. `strange`:
    why a new run of it is refused, by the names of its files. `hint`: what to do about unusable records in its samples,
    "" where that is not known."""

    job: TokenizationJob
    data: DataSpec
    limits: RunLimits
    tokenizer: Tokenizer
    dtype: DType
    files: tuple[SourceFile, ...]
    canonical: dict[str, object]
    data_key: str
    run_key: str
    estimate: Estimate
    sampled_texts: tuple[SampledText, ...]
    foreseen: TokenizationError | None
    strange: SpecError | None = None
    hint: str = ""

    @property
    def has_parquet(self) -> bool:
        """Whether a file is named as Parquet is."""
        return any(is_named_parquet(file.uri, self.data.source.format) for file in self.files)

    @property
    def may_have_parquet(self) -> bool:
        """Whether a file may be Parquet, if not all are named as text is."""
        return any(may_be_parquet(file.uri, self.data.source.format) for file in self.files)

    @property
    def stored_bytes(self) -> int:
        return sum(file.size for file in self.files)


def prepare(
    job: TokenizationJob, watch: Watcher = ignore, pins: Mapping[str, str] | None = None, revision: str = ""
) -> Prepared:
    """Look at source and tokenizer; `pins`, `revision`: the commits of sources and tokenizer in a plan that is there.

    Raises `SpecError` for anything a retry cannot mend.
    """
    data, limits = resolve_data(job), resolve_limits(job)
    watch(Preparing(data.tokenizer.uri or data.tokenizer.name or "", tuple(data.source.uris)))
    data = replace(data, tokenizer=pin_tokenizer(data.tokenizer, revision))
    tokenizer = load_tokenizer(data.tokenizer)
    dtype = resolve_dtype(data.output.dtype, tokenizer.vocab_size)
    files = tuple(list_source(data.source.uris, pins))
    _refuse_output_in_source(data, files)
    _warn_of_empty(files, data.source.format, watch)
    _warn_of_links(files, watch)
    strange = find_strange(data.source.uris, data.source.format, files)
    try:
        samples = _sample(data, limits, files, watch)
    except (SpecError, DataError) as error:
        if strange is not None:  # says more about the whole source
            raise strange from error
        raise
    encoded = encode_samples(data, tokenizer, samples)
    sampled_texts = _choose_texts(samples, encoded)
    require_text_kept(data.tokenizer, tokenizer, sampled_texts, watch)
    _warn_of_empty_texts(data, samples, watch)
    foresight = foresee(samples, len(files), limits, lambda file: _is_damaged(data, file))
    for warning in foresight.warnings:
        watch(Warned(warning))
    canonical = canonical_data(
        data, tokenizer_fingerprint=tokenizer.fingerprint, delimiter_id=tokenizer.delimiter_id, dtype=dtype
    )
    return Prepared(
        job=job,
        data=data,
        limits=limits,
        tokenizer=tokenizer,
        dtype=dtype,
        files=files,
        canonical=canonical,
        data_key=data_key(canonical, ((file.uri, file.size, file.version) for file in files)),
        run_key=run_key(job),
        estimate=estimate(data, tokenizer, dtype, files, samples, encoded),
        sampled_texts=sampled_texts,
        foreseen=foresight.error,
        strange=strange,
        hint=advice(samples),
    )


def _choose_texts(
    samples: list[tuple[SourceFile, HeadSample]], encoded: list[EncodedSample]
) -> tuple[SampledText, ...]:
    """Some of the texts that were encoded, with their tokens: they are kept with the plan."""
    return choose_texts([_with_tokens(file.uri, sample) for (file, _), sample in zip(samples, encoded, strict=True)])


def _with_tokens(uri: str, sample: EncodedSample) -> Iterator[SampledText]:
    """Made when it is asked for: a sample may have millions of texts."""
    for text, (start, end) in zip(sample.texts, pairwise(chain((0,), sample.ends)), strict=True):
        yield SampledText(uri, text, sample.ids[start:end])


def resolve_dtype(wanted: DType, vocab_size: int) -> DType:
    """The smallest unsigned type for the vocabulary unless given; raises where ids do not fit."""
    if wanted == DType.AUTO:
        return DType.UINT16 if vocab_size <= 1 << 16 else DType.UINT32
    if wanted == DType.UINT16 and vocab_size > 1 << 16:
        raise SpecError(
            "SpecInvalid",
            f"output.dtype: UInt16 holds ids up to 65,535; this vocabulary has {vocab_size:,}",
            next_step="write UInt32, or Auto",
        )
    return wanted


def _refuse_output_in_source(data: DataSpec, files: tuple[SourceFile, ...]) -> None:
    """Raise where source and output overlap: the next start would find the output's files in the source."""
    output = data.output
    inside = output.uri.rstrip("/") + "/"
    split = output.splits[0].name
    first_shard = [shard_path(output.path, each, split=split, index=0, shard=0) for each in suffixes_of(output.formats)]
    for pattern in data.source.uris:
        for path in (*first_shard, SHARDS_TABLE, INDEX):
            if selects(pattern, inside + path):
                raise SpecError(
                    "SpecInvalid",
                    f"output.uri: {output.uri} lies in the source: {pattern} would match {inside}{path}",
                    next_step="write outside of the source, or narrow source.uris",
                )
    for file in files:
        if file.uri.startswith(inside):
            raise SpecError(
                "SpecInvalid",
                f"output.uri: {output.uri} holds a source file: {file.uri}",
                next_step="write outside of the source, or narrow source.uris",
            )


def _warn_of_empty(files: tuple[SourceFile, ...], format: SourceFormat, watch: Watcher) -> None:
    """Tell of files of 0 bytes that count as read; those that cannot be valid are found damaged by their reader."""
    empty = [file.uri for file in files if not file.size and may_be_empty(file.uri, format)]
    if empty:
        watch(Warned(f"{counted(len(empty), 'file')} of 0 bytes, without a document, the first: {empty[0]}"))


def _warn_of_empty_texts(data: DataSpec, samples: list[tuple[SourceFile, HeadSample]], watch: Watcher) -> None:
    """Tell of a source whose sampled documents are all empty: another field may hold the text."""
    texts = [text for _, head in samples for text in head.texts]
    if not texts or any(texts):
        return
    file, head = next((file, head) for file, head in samples if head.texts)
    others = [field for field in head.fields if field != data.source.text_field][:10]
    fields = f"; other fields: {', '.join(others)}" if others else ""
    watch(
        Warned(
            f"{file.uri}: the text at {data.source.text_field!r} is empty in all "
            f"{counted(len(texts), 'sampled document')}{fields}; source.textField names the field that holds the text"
        )
    )


def _warn_of_links(files: tuple[SourceFile, ...], watch: Watcher) -> None:
    """Tell of files that the source has under several names: each name is a file, with all its documents."""
    inodes = np.array([file.inode for file in files], dtype=np.uint64)
    values, counts = np.unique(inodes[inodes > 0], return_counts=True)
    if not (counts > 1).any():
        return
    shared = set(values[counts > 1].tolist())
    first: dict[tuple[int, int, str], str] = {}
    links: list[tuple[str, str]] = []
    for file in files:
        if file.inode in shared:
            uri = first.setdefault((file.inode, file.ctime_ns, file.version), file.uri)
            if uri != file.uri and is_same_file(uri, file.uri):
                links.append((file.uri, uri))
    if links:
        watch(
            Warned(
                f"source files that are links to other source files: {len(links):,}, the first: {links[0][0]} is also "
                f"{links[0][1]}. Both names are read, so that the dataset has their documents twice; narrow "
                "source.uris to one of them if that is not wanted"
            )
        )


def _sample(
    data: DataSpec, limits: RunLimits, files: tuple[SourceFile, ...], watch: Watcher
) -> list[tuple[SourceFile, HeadSample]]:
    """The heads of a few files, spread over the source; the first file's fields must be right."""
    options = ReadOptions.of(data)
    sampled = choose_samples(files)
    sample_bytes = SAMPLED_BYTES // max(1, len(sampled))
    heads = map_at_once(
        lambda file: read_head(file.uri, file.size, options, sample_bytes, _opener(file)),
        sampled,
        connections_to(data.source.uris),
    )
    samples = []
    found = read_on(list(zip(sampled, heads, strict=True)), options, _opener, sample_bytes)
    for number, (file, head) in enumerate(found):
        problem = _problem(data, file, head)
        if problem is not None:
            if number == 0 and not limits.max_corrupt_files.allowed(len(files)):
                raise problem
            watch(Warned(f"{problem.reason}: {problem.message}"))
        samples.append((file, head))
    _refuse_unusable(data, limits, samples, watch)
    return samples


def _refuse_unusable(
    data: DataSpec, limits: RunLimits, samples: list[tuple[SourceFile, HeadSample]], watch: Watcher
) -> None:
    """Raise where no sampled file has a usable document and lines are not JSON; warn where the job allows that."""
    heads = [(file, head) for file, head in samples if file.size]
    rejected = sum((head.rejected for _, head in heads), Counter[str]())
    is_array = any(head.is_array for _, head in heads)
    unknown = any(head.texts or head.damage or not (head.source_bytes or head.is_array) for _, head in heads)
    if unknown or not set(rejected) <= _WRONG_FORMAT or (rejected.total() < _FEW_RECORDS and not is_array):
        return
    file, head = next((file, head) for file, head in heads if head.rejected or head.is_array)
    found = f" ({', '.join(sorted(rejected))})" if rejected else ""
    hint = encoding_hint(heads)
    what = (
        "expected documents that are UTF-8 text, found none"
        if set(rejected) == {Reason.INVALID_UTF8}
        else f"expected lines that are JSON objects with a text at {data.source.text_field!r}, found none"
    )
    if head.is_array:
        next_step = array_advice(file.uri, head.compression)
    elif hint:
        next_step = f"{hint}; to go on all the same, raise maxQuarantined"
    elif head.field_advice:
        next_step = head.field_advice
    else:
        next_step = (
            "write one JSON object a line, or set source.format to what the files are; to go on all the same, raise "
            "maxQuarantined"
        )
    problem = SpecError(
        "SourceInvalid",
        f"{file.uri}: {what} in {counted(len(heads), 'sampled file')}{found}",
        next_step=next_step,
    )
    if limits.max_quarantined.allowed(rejected.total()) < max(1, rejected.total()):
        raise problem
    watch(Warned(f"{problem.reason}: {problem.message}"))


def _problem(data: DataSpec, file: SourceFile, head: HeadSample) -> SpecError | DataError | None:
    """What is wrong with the fields of `file`, if its first records say so."""
    if head.damage is not None and head.damage.outcome == FileOutcome.SCHEMA_MISMATCH:
        return DataError(
            FileOutcome.SCHEMA_MISMATCH.value,
            f"{file.uri}: {head.damage.detail}",
            next_step="set source.textField to a column that holds text, or raise maxCorruptFiles: such files are "
            "then dropped whole",
        )
    reasons = head.rejected.keys()
    if head.texts or not reasons or not reasons <= _WRONG_FIELD:
        return None
    if head.is_array:
        return SpecError(
            "SourceInvalid",
            f"{file.uri}: expected one JSON object a line, found a JSON array",
            next_step=array_advice(file.uri, head.compression),
        )
    found = ", ".join(map(repr, head.fields[:20])) or "none"
    return SpecError(
        "SourceInvalid",
        f"{file.uri}: none of its first {counted(head.rejected.total(), 'record')} has a text at "
        f"{data.source.text_field!r} ({', '.join(sorted(reasons))}); fields found: {found}",
        next_step=head.field_advice or "set source.textField to the field that holds the text",
    )


def make_plan_of(prepared: Prepared, slots: int | None) -> Plan:
    """Cut the files. `slots`: processes that ranges should keep busy; None: take rangeBytes as it is."""
    range_bytes = choose_range_bytes(prepared.limits.range_bytes, prepared.stored_bytes, slots)
    large = [file for file in prepared.files if file.size > range_bytes]
    at_once = connections_to(prepared.data.source.uris)
    with LookAhead(_looker(prepared.data), large, at_once) as look_inside:
        cut, kinds = cut_files(prepared.files, range_bytes, look_inside)
    return Plan(
        plan_id=plan_id(prepared.data_key, cut.digest()),
        data_key=prepared.data_key,
        run_key=prepared.run_key,
        data=prepared.canonical,
        files=prepared.files,
        kinds=kinds,
        cut=cut,
        asked=asked_fields(prepared.job),
    )


def _looker(data: DataSpec) -> Callable[[SourceFile], Inside]:
    options = ReadOptions.of(data)

    def look_inside(file: SourceFile) -> Inside:
        found = look(file)
        for was, now in find_touched_files([file]):  # a plan is for ever
            raise source_changed(was, now, _LISTED)
        return found

    def look(file: SourceFile) -> Inside:
        kind = kind_of_source(file.uri, file.size, options.format, _strict_opener(file))
        if kind is None:  # damaged: the reader will say how
            return Inside(None)
        if kind.format is SourceFormat.PARQUET:
            return Inside(kind, row_groups=_row_group_bytes(file))
        separator = record_separator(kind.format, options)
        if separator is None or not can_cut(separator):
            return Inside(kind)
        if kind.compression is Compression.NONE:
            return Inside(kind, cuttable=True)
        size = estimate_content_bytes(file.uri, file.size, kind.compression, _strict_opener(file))
        return Inside(kind, content_bytes=size)

    return look_inside


def _is_damaged(data: DataSpec, file: SourceFile) -> bool:
    """Whether the file's head is damaged when it is read again, too, and as far as it may have been read."""
    options = ReadOptions.of(data)
    head = read_head(file.uri, file.size, options, SAMPLED_BYTES, _opener(file), most_bytes=options.max_document_bytes)
    return head.damage is not None


_LISTED = "since it was listed"


def _strict_opener(file: SourceFile) -> Callable[[str], ByteReader]:
    return lambda _: open_as_listed(file, _LISTED)


def _opener(file: SourceFile) -> Callable[[str], ByteReader]:
    return lambda _: open_file(file)


def _row_group_bytes(file: SourceFile) -> tuple[int, ...]:
    """Stored bytes of each row group; none for a damaged footer, which the reader will describe."""
    stream = open_as_listed(file, _LISTED)
    try:
        return tuple(group.stored_bytes for group in parquet_row_groups(stream))
    except DamagedFile:
        return ()
    finally:
        stream.close()


def require_room(store: Store, estimate: Estimate, watch: Watcher) -> None:
    """Refuse to start where the dataset will clearly not fit: not half of it, as estimates may be far off.

    Needed: all shards, and segments, which are deleted as shards are built; at worst there is one byte of
    segment for each byte of shard, when one slow file holds all shards back. `watch` is told where that may not fit.
    """
    free = store.free_bytes()
    if free is not None and estimate.shard_bytes is None:
        _warn_of_unknown_room(store, estimate, free, watch)
    if free is None or estimate.shard_bytes is None or (needed := 2 * estimate.shard_bytes) <= free:
        return
    shards = f"shards {_in_words(estimate.shard_bytes)} and as much for a while"
    words = f"{store.uri}: this run needs about {_in_words(needed)} ({shards}); {_in_words(free)} are free"
    if estimate.shard_bytes > 2 * free:
        raise TemporaryError("OutputFull", words, next_step="free space there, or write to another output.uri")
    watch(Warned(f"{words}: it may stop when the disk is full, and goes on when there is more room"))


def _in_words(size: int) -> str:
    """`1.3 GB`, `25.0 kB`, `0 B`; powers of ten."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"


def _warn_of_unknown_room(store: Store, estimate: Estimate, free: int, watch: Watcher) -> None:
    """Tell of a source that is larger than the free room: whether its tokens fit is not known."""
    if estimate.source_bytes > free:
        watch(
            Warned(
                f"{store.uri}: the room that this run needs is not known, because no whole document was found at the "
                f"beginnings of the files; the source has about {_in_words(estimate.source_bytes)} and "
                f"{_in_words(free)} are free: it may stop when the disk is full, and goes on when there is more "
                "room"
            )
        )


def require_shards(prepared: Prepared) -> None:
    """Raise where names or the estimate leave no doubt: strange files, an empty split, a shard number too long."""
    if prepared.strange is not None:
        raise prepared.strange
    output, tokens = prepared.data.output, prepared.estimate.tokens
    if tokens is None:
        return
    require_number_fits(output.path, tokens // 2 // output.shard_tokens)
    streams = Streams(output.splits)
    leading = sum(split.shards or 0 for split in output.splits[:-1])
    if not streams.by_hash and tokens * 2 < leading * output.shard_tokens:
        streams.require_all_filled([-(-tokens // output.shard_tokens)])
