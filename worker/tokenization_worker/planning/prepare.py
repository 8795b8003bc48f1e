"""The plan phase: checks everything that can be checked before the work begins.

Loads the tokenizer, lists the source, reads the heads of a few files, and estimates tokens and room. Writes nothing.
What happens at the output is decided by `run.output_state`, and `make_plan` cuts the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, NamedTuple

from tokenization_worker.api.data import DataSpec, DType, OutputFormat
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.keys import canonical_data, data_key, run_key
from tokenization_worker.api.resolve import RunLimits, resolve_data, resolve_limits
from tokenization_worker.errors import DataError, SpecError, TokenizationError
from tokenization_worker.events import Preparing, Warned, Watcher, ignore
from tokenization_worker.formats.registry import fingerprints
from tokenization_worker.output.ledger.version_samples import SampledText, choose_texts
from tokenization_worker.planning.encoded_sample import EncodedSample, encode_samples
from tokenization_worker.planning.estimate import Estimate, estimate
from tokenization_worker.planning.groups.files import list_files
from tokenization_worker.planning.groups.foresight import foresee_shares
from tokenization_worker.planning.groups.shares import asks_for_tokens, pin_shares, resolve_shares
from tokenization_worker.planning.head_check import is_corrupt, sample_heads, warn_of_empty_texts
from tokenization_worker.planning.listing_check import (
    refuse_output_in_source,
    warn_of_closed_folders,
    warn_of_empty_files,
    warn_of_links,
)
from tokenization_worker.planning.lossless_check import require_text_kept, warn_of_refused
from tokenization_worker.planning.measured import Measured, measure_groups
from tokenization_worker.planning.sampling import advice, foresee
from tokenization_worker.planning.source_check import find_strange
from tokenization_worker.planning.split_check import foresee_splits
from tokenization_worker.readers.detection.detect import is_named_parquet, may_be_parquet
from tokenization_worker.readers.head import HeadSample
from tokenization_worker.storage.source_file import SourceFile
from tokenization_worker.tokenizers.base import Tokenizer
from tokenization_worker.tokenizers.fingerprint import other_fingerprint
from tokenization_worker.tokenizers.load import load_tokenizer, pin_tokenizer
from tokenization_worker.tokenizers.padding import resolve_pad

_UINT16_IDS = 1 << 16
_LEAST_TEXT = 0.5
"""Of packed rows."""

_MOST_TRUNCATED = 0.1
"""Of all tokens."""

_MEGATRON_ROWS = (
    "output.formats: to Megatron each row of output.sequence is one document, so it masks nothing inside of a row; for "
    "masks between documents leave output.sequence out"
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A job with its tokenizer, before the source is listed."""

    job: TokenizationJob
    data: DataSpec
    limits: RunLimits
    tokenizer: Tokenizer
    dtype: DType
    pad_id: int | None

    def canonical(self, data: DataSpec) -> dict[str, object]:
        """The canonical fields of `data`: this job's, with the shares of its groups."""
        return canonical_data(
            data,
            tokenizer_fingerprint=self.tokenizer.fingerprint,
            delimiters=self.tokenizer.delimiters,
            dtype=self.dtype,
            pad_id=self.pad_id,
            writers=fingerprints(data.output.formats),
        )


class FoundData(NamedTuple):
    """The canonical fields and the dataKey of a plan or an index at the output; `is_same_run`: the job's runKey."""

    data: Mapping[str, Any]
    data_key: str
    is_same_run: bool


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the plan phase found out. `foreseen`: the error that a new run of it would certainly end with. `strange`:
    why a new run of it is refused, by the names of its files. `hint`: what to do about unusable records in its samples,
    "" where that is not known. `pad_id`: fills rows, None where there are none."""

    job: TokenizationJob
    data: DataSpec
    limits: RunLimits
    tokenizer: Tokenizer
    dtype: DType
    files: tuple[SourceFile, ...]
    pad_id: int | None
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
    """Look at tokenizer and source; `pins`, `revision`: the commits of sources and tokenizer in an earlier plan.

    Raises `SpecError` for anything that a retry cannot change.
    """
    return prepare_source(prepare_tokenizer(job, watch, revision), watch, pins)


def prepare_tokenizer(job: TokenizationJob, watch: Watcher, revision: str = "") -> Subject:
    """Load the job's tokenizer; `revision`: its commit on the Hub, where an earlier plan has chosen it."""
    data, limits = resolve_data(job), resolve_limits(job)
    watch(Preparing(data.tokenizer.uri or data.tokenizer.name or "", tuple(data.source.uris)))
    data = replace(data, tokenizer=pin_tokenizer(data.tokenizer, revision))
    tokenizer = load_tokenizer(data.tokenizer)
    asserted, way_out = job.spec.tokenizer.fingerprint, "give the tokenizer that the job means"
    error = other_fingerprint(asserted, tokenizer.fingerprint, tokenizer.name, way_out)
    if error is not None:
        raise error
    sequence = data.output.sequence
    pad_id = None if sequence is None else resolve_pad(sequence, tokenizer)
    ids = tokenizer.vocab_size if pad_id is None else max(tokenizer.vocab_size, pad_id + 1)
    if ids > tokenizer.vocab_size:
        is_widened = tokenizer.vocab_size <= _UINT16_IDS < ids and data.output.dtype is DType.AUTO
        watch(Warned(_pad_above_vocabulary(ids, tokenizer, is_widened=is_widened)))
    if sequence is not None and OutputFormat.MEGATRON in data.output.formats:
        watch(Warned(_MEGATRON_ROWS))
    return Subject(job, data, limits, tokenizer, resolve_dtype(data.output.dtype, ids, pad_id), pad_id)


def _pad_above_vocabulary(ids: int, tokenizer: Tokenizer, *, is_widened: bool) -> str:
    return (
        f"output.sequence.pad.id: the padding token {ids - 1:,} is above the {tokenizer.vocab_size:,} tokens of "
        f"{tokenizer.name}: give the model's embedding room for {ids:,}"
        + ("; because of it the tokens are UInt32, twice as many bytes" if is_widened else "")
    )


def prepare_source(
    subject: Subject, watch: Watcher, pins: Mapping[str, str] | None = None, found: Sequence[FoundData] = ()
) -> Prepared:
    """List the source and read the heads of some files; `pins`: the commits at which an earlier plan reads them.
    `found`: the data of plan and index at the output, whose shares count where all else is the same.
    """
    job, data, limits, tokenizer, dtype = subject.job, subject.data, subject.limits, subject.tokenizer, subject.dtype
    files = list_files(data, pins)
    refuse_output_in_source(data, files)
    warn_of_closed_folders(data.source.uris, data.output.uri, watch)
    warn_of_empty_files(files, data.source.format, watch)
    warn_of_links(files, watch)
    strange = find_strange(data.source.uris, data.source.format, files)
    try:
        samples = sample_heads(data, limits, files, watch)
    except (SpecError, DataError) as error:
        if strange is not None:  # says more about the whole source
            raise strange from error
        raise
    encoded = encode_samples(data, tokenizer, samples)
    sampled_texts = _choose_texts(samples, encoded)
    warn_of_refused(tokenizer, [(file.uri, each) for (file, _), each in zip(samples, encoded, strict=True)], watch)
    require_text_kept(data.tokenizer, tokenizer, sampled_texts, watch)
    warn_of_empty_texts(data, samples, watch)
    foresight = foresee(samples, len(files), limits, lambda file: is_corrupt(data, file))
    for warning in foresight.warnings:
        watch(Warned(warning))
    measured = measure_groups(files, samples, encoded)
    data = _find_shares(subject, files, measured, found, watch)
    shares = foresee_shares(data, measured, samples)
    for warning in shares.warnings:
        watch(Warned(warning))
    splits = foresee_splits(data, measured, samples)
    for warning in splits.warnings:
        watch(Warned(warning))
    estimated = estimate(data, tokenizer, dtype, measured, samples)
    for warning in _foresee_packing(data, estimated):
        watch(Warned(warning))
    canonical = subject.canonical(data)
    return Prepared(
        job=job,
        data=data,
        limits=limits,
        tokenizer=tokenizer,
        dtype=dtype,
        files=files,
        pad_id=subject.pad_id,
        canonical=canonical,
        data_key=_key_of(canonical, files),
        run_key=run_key(job),
        estimate=estimated,
        sampled_texts=sampled_texts,
        foreseen=foresight.error or shares.error or splits.error,
        strange=strange,
        hint=advice(samples),
    )


def _foresee_packing(data: DataSpec, estimated: Estimate) -> Iterator[str]:
    """What may come out otherwise than hoped where rows are packed."""
    packed, rows = data.output.packed_rows, estimated.rows
    if packed is None:
        return
    if rows is not None and estimated.tokens:
        if rows.count > 1 and estimated.tokens < _LEAST_TEXT * rows.tokens:
            ways_out = "choose another length, or write packing: Concat"
            yield (
                "output.sequence: less than half of the rows will be text, and the rest padding: "
                f"{ways_out if packed.max_documents is None else f'raise maxDocuments, {ways_out}'}"
            )
        lost = rows.truncated / (rows.truncated + estimated.tokens)
        if lost > _MOST_TRUNCATED:
            yield (
                f"output.sequence.longDocuments: Truncate will leave out about {lost:.0%} of all tokens: raise length, "
                "or write longDocuments: Split"
            )
    longest = data.max_document_bytes / max(1.0, estimated.bytes_per_token or 1)
    is_split = data.output.longest_document is None
    if data.output.has_uneven_shards and is_split and longest > data.output.shard_tokens:
        yield (
            f"output.shards.tokens: a document of more tokens than a shard, {data.output.shard_tokens:,}, may end the "
            f"run (ShardEmpty). documents.maxBytes allows about {round(longest):,} tokens: raise shards.tokens, lower "
            "maxBytes, which leaves such documents out, add output.shuffle, or write longDocuments: Truncate"
        )


def _key_of(canonical: dict[str, object], files: Sequence[SourceFile]) -> str:
    return data_key(canonical, ((file.uri, file.size, file.version, file.group) for file in files))


def _find_shares(
    subject: Subject,
    files: Sequence[SourceFile],
    measured: Mapping[str, Measured],
    found: Sequence[FoundData],
    watch: Watcher,
) -> DataSpec:
    """The data with the shares of groups that ask for tokens: those of an earlier start, else new ones."""
    data = subject.data
    if not asks_for_tokens(data):
        return data
    for earlier in found:

        def is_same(pinned: DataSpec, earlier: FoundData = earlier) -> bool:
            canonical = subject.canonical(pinned)
            return canonical == earlier.data and (earlier.is_same_run or _key_of(canonical, files) == earlier.data_key)

        pinned = pin_shares(data, earlier.data, is_same)
        if pinned is not None:
            return pinned
    tokenizer = subject.tokenizer
    longest = data.output.longest_document
    tokens = {
        name: None if each.is_unknown(tokenizer) else each.written(tokenizer, longest)
        for name, each in measured.items()
    }
    return resolve_shares(data, tokens, watch)


def _choose_texts(
    samples: list[tuple[SourceFile, HeadSample]], encoded: list[EncodedSample]
) -> tuple[SampledText, ...]:
    """Some of the texts that were encoded, with their tokens: they are kept with the plan."""
    return choose_texts([_with_tokens(file.uri, sample) for (file, _), sample in zip(samples, encoded, strict=True)])


def _with_tokens(uri: str, sample: EncodedSample) -> Iterator[SampledText]:
    """Made when it is asked for: a sample may have millions of texts."""
    for text, (start, end) in zip(sample.texts, pairwise(chain((0,), sample.ends)), strict=True):
        yield SampledText(uri, text, sample.ids[start:end])


def resolve_dtype(wanted: DType, ids: int, pad_id: int | None = None) -> DType:
    """The smallest unsigned type for so many ids, padding's included, unless given; raises where they do not fit."""
    if wanted == DType.AUTO:
        return DType.UINT16 if ids <= _UINT16_IDS else DType.UINT32
    if wanted == DType.UINT16 and ids > _UINT16_IDS:
        what = f"the padding token is {pad_id:,}" if pad_id == ids - 1 else f"this vocabulary has {ids:,}"
        raise SpecError(
            "SpecInvalid",
            f"output.dtype: UInt16 holds ids up to 65,535; {what}",
            next_step="write UInt32, or Auto",
        )
    return wanted
