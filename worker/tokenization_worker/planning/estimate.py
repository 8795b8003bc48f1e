"""Estimates how many tokens a source holds, from the heads of a few files."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.api.data import DataSpec, DType, OutputSpec
from tokenization_worker.formats.base import ShardShape
from tokenization_worker.formats.dtypes import NUMPY_DTYPES
from tokenization_worker.formats.registry import format_of
from tokenization_worker.planning.row_estimate import RowEstimate, count_shards, count_stored, estimate_rows, parts_of
from tokenization_worker.processes import CopyDied, can_copy, compute_in_copy
from tokenization_worker.readers.head import HeadSample
from tokenization_worker.storage.source_file import SourceFile
from tokenization_worker.tokenizers.base import EndArray, Engine, IdArray, KillsEngine, Tokenizer, join_encoded
from tokenization_worker.tokenizers.isolation.engine_process import Role
from tokenization_worker.tokenizers.isolation.supervisor import Isolation

SAMPLED_FILES = 16
SAMPLE_BYTES = 32 << 10
"""Of decompressed text from each sampled file: half a megabyte in all takes about 35 ms with the reference engine."""

SAMPLED_BYTES = SAMPLED_FILES * SAMPLE_BYTES
"""In all; of fewer files more of each, and of more files, where there are many groups, `SAMPLE_BYTES` of each."""

_FEWEST_OF_A_GROUP = 4
"""Files; in 64 groups 256, of which the reference engine encodes 8 MB."""

_MOST_KILLERS = 4
"""Of a file's sample, each of which costs a process or two: then what is behind them is not counted."""

_LIMIT_S = 5.0
"""CPU time for all samples with a pattern of the user's, which may backtrack: some fifty times what they take else."""

_NO_END = np.iinfo(np.int64).max

_LEAST_GAIN = 8.0
FAST_ENGINE_GAIN = {"tiktoken": _LEAST_GAIN, "tokenizers": 40.0}
"""By reference, how much faster a run with the accelerated engine is than encoding with it, reading and writing
included: against tiktoken 6 on mixed languages and code to 10 on English (2026-11-21). Encoding alone, against tiktoken
5 to 20, against tokenizers (qwen3) 31 on many languages, 75 on English, 220 on code (CPU time, 2026-11-23)."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """From a sample of the source; None where that holds no text, which says nothing about the rest.

    `rows`: None also where there are none. `groups`: tokens of each group. `source_bytes`: decompressed; at least the
    stored bytes, where nothing better is known. `shard_bytes`: in all formats; `scratch_bytes`: what scratch has beside
    them at most: all tokens once, of shuffled rows with their padding, and of a shuffle half as much again, since files
    wait there for their next use.
    `reference_seconds`: the sample's encoding time, scaled to all of it, on one core with the engine `reference`.
    `parts`: the shares of the tokens that have shards of their own.
    """

    tokens: int | None
    source_bytes: int
    shard_bytes: int | None
    scratch_bytes: int | None
    reference: str
    reference_seconds: float | None
    bytes_per_token: float | None
    sampled_bytes: int
    rows: RowEstimate | None = None
    documents: int | None = None
    groups: Mapping[str, int | None] = field(default_factory=dict)
    parts: tuple[float, ...] = (1.0,)

    def shards(self, output: OutputSpec) -> int | None:
        """How many shards hold all tokens."""
        return None if self.tokens is None else count_shards(output, self.tokens, self.rows, self.parts)

    def stored_tokens(self, output: OutputSpec) -> int:
        """What decides how many shards there are, where the tokens are known."""
        return count_stored(output, self.tokens or 0, self.rows)

    def core_seconds(self, engine: str) -> float | None:
        """What a run with that engine takes on one core; `engine` as `choose_engine` names it."""
        if self.reference_seconds is None or engine in (self.reference, "reference"):
            return self.reference_seconds
        return self.reference_seconds / FAST_ENGINE_GAIN.get(self.reference, _LEAST_GAIN)


def choose_samples(files: Sequence[SourceFile]) -> list[SourceFile]:
    """The files to look into, spread over the stored bytes of each group of the source."""
    groups = _by_group(files)
    most = _sampled_files(len(groups))
    return [file for group in groups.values() for file, _ in _spread(group, most)]


def _by_group(files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
    return {name: list(group) for name, group in groupby(files, key=lambda file: file.group)}


def _sampled_files(n_groups: int) -> int:
    """Of each group."""
    return max(_FEWEST_OF_A_GROUP, SAMPLED_FILES // max(1, n_groups))


def _spread(files: Sequence[SourceFile], most: int) -> list[tuple[SourceFile, float]]:
    """At most so many of the files, each with the stored bytes for which its sample stands.

    Of more files those at equal distances of stored bytes: a large file is met more often than a small one, and stands
    for as much more. Where files of different sizes hold different text, a choice by number would count too much of the
    small ones.
    """
    if len(files) <= most:
        return [(file, float(file.size)) for file in files]
    ends = np.cumsum([file.size for file in files])
    part = float(ends[-1]) / most
    if not part:
        return [(file, 0.0) for file in files[:most]]
    numbers, times = np.unique(np.searchsorted(ends, (np.arange(most) + 0.5) * part, "right"), return_counts=True)
    return [(files[number], n * part) for number, n in zip(numbers.tolist(), times.tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class Measured:
    """What the samples of some files, scaled to these files, hold. `stored`: bytes of the files; `known`: of those for
    which a sample stands. Sums but `source_bytes` are of all files, also those that no sample stands for. `lengths`
    i64[n]: of the sampled documents, about how many tokens each has, without delimiters.
    """

    files: int
    stored: int
    known: int
    text_tokens: float
    documents: float
    source_bytes: float
    text_bytes: float
    seconds: float
    is_all: bool
    lengths: NDArray[np.int64]

    def tokens(self, tokenizer: Tokenizer) -> float:
        """Of whole documents."""
        return self.text_tokens + self.documents * len(tokenizer.delimiters.ids)

    def written(self, tokenizer: Tokenizer, longest: int | None) -> float:
        """The same of documents that are cut off behind `longest` tokens, None: not cut off."""
        lengths = self.lengths + len(tokenizer.delimiters.ids)
        if longest is None or not lengths.any():
            return self.tokens(tokenizer)
        return self.tokens(tokenizer) * float(np.minimum(lengths, longest).sum() / lengths.sum())

    def is_unknown(self, tokenizer: Tokenizer) -> bool:
        """Whether the samples hold no text, which says nothing about the rest."""
        return self.stored > 0 and not self.is_all and not self.tokens(tokenizer)


def measure_groups(
    files: Sequence[SourceFile], samples: list[tuple[SourceFile, HeadSample]], encoded: list[EncodedSample]
) -> dict[str, Measured]:
    """Of each group, and of "" where there are none. `samples`: of the files of `choose_samples`."""
    groups = _by_group(files)
    most = _sampled_files(len(groups))
    measured = {}
    pairs = list(zip(samples, encoded, strict=True))
    for name, group in groups.items():
        mine = [(head, sample) for (file, head), sample in pairs if file.group == name]
        measured[name] = _measure(group, [stored for _, stored in _spread(group, most)], mine)
    return measured


def _measure(
    files: Sequence[SourceFile], stands_for: Sequence[float], samples: Sequence[tuple[HeadSample, EncodedSample]]
) -> Measured:
    """Scale each sample to the stored bytes that it stands for.

    Files whose sample holds no whole record are taken for an average of the others.
    """
    text_tokens = documents = source_bytes = text_bytes = seconds = 0.0
    lengths = [np.empty(0, np.int64)]
    known = total = 0.0
    for stored, (head, sample) in zip(stands_for, samples, strict=True):
        total += stored
        texts, shown = _shorten(head.texts, SAMPLE_BYTES)
        is_known = head.stored_bytes and (len(sample.ids) or not any(texts))  # a text may have killed its process
        if not is_known:
            source_bytes += max(stored, stored * head.content_bytes / head.taken_bytes if head.taken_bytes else 0)
            continue
        known += stored
        scale = stored / head.stored_bytes
        seconds += sample.seconds * scale / shown
        text_tokens += len(sample.ids) / shown * scale
        documents += len(head.texts) * scale
        lengths.append(_lengths_of(head, sample))
        source_bytes += head.source_bytes * scale
        text_bytes += sum(len(text.encode()) for text in texts) * scale / shown
    share = known / total if known else 1.0
    return Measured(
        files=sum(file.size > 0 for file in files),
        stored=round(total),
        known=round(known),
        text_tokens=text_tokens / share,
        documents=documents / share,
        source_bytes=source_bytes,
        text_bytes=text_bytes / share,
        seconds=seconds / share,
        is_all=len(samples) == len(files) and all(head.is_whole for head, _ in samples),
        lengths=np.concatenate(lengths),
    )


def _lengths_of(head: HeadSample, sample: EncodedSample) -> NDArray[np.int64]:
    """How many tokens each document of a sample has: about, where it is not encoded to its end."""
    encoded = np.array([len(text) for text in sample.texts], np.int64)
    characters = np.array([len(text) for text in head.texts], np.int64)
    lengths: NDArray[np.int64] = np.ceil(characters * (len(sample.ids) / max(1, encoded.sum()))).astype(np.int64)
    if len(encoded) == len(characters):  # none was left out
        lengths = np.where(encoded == characters, np.diff(sample.ends, prepend=0), lengths)
    return lengths


def _add_up(groups: Sequence[tuple[Measured, float]]) -> Measured:
    """The sums over groups, each with the share of its documents that is taken.

    Groups without any text in their samples are taken for an average of the others.
    """
    stored = sum(each.stored for each, _ in groups)
    seen = sum(each.stored for each, _ in groups if each.known)
    scale = stored / seen if seen else 1.0

    def total(value_of: Callable[[Measured], float]) -> float:
        return sum(value_of(each) * share for each, share in groups) * scale

    return Measured(
        files=sum(each.files for each, _ in groups),
        stored=stored,
        known=sum(each.known for each, _ in groups),
        text_tokens=total(lambda each: each.text_tokens),
        documents=total(lambda each: each.documents),
        source_bytes=sum(each.source_bytes for each, _ in groups),
        text_bytes=total(lambda each: each.text_bytes),
        seconds=total(lambda each: each.seconds),
        is_all=all(each.is_all for each, _ in groups),
        lengths=np.concatenate([each.lengths for each, _ in groups]),
    )


def estimate(
    data: DataSpec,
    tokenizer: Tokenizer,
    dtype: DType,
    measured: Mapping[str, Measured],
    samples: list[tuple[SourceFile, HeadSample]],
) -> Estimate:
    """What a run writes of the documents that its groups' shares take."""
    shares = {group.name: float(group.share or 1) for group in data.source.groups}
    found = _add_up([(each, shares.get(name, 1.0)) for name, each in measured.items()])
    whole, unknown, longest = found.tokens(tokenizer), found.is_unknown(tokenizer), data.output.longest_document
    tokens = found.written(tokenizer, longest)
    itemsize = NUMPY_DTYPES[dtype].itemsize
    lengths = found.lengths + len(tokenizer.delimiters.ids)
    rows = estimate_rows(
        data.output,
        tokens=tokens,
        text_tokens=found.text_tokens * (tokens / whole if whole else 1.0),
        files=found.files,
        lengths=np.minimum(lengths[lengths > 0], longest or _NO_END),
        truncated=whole - tokens,
    )
    groups = {name: _group_tokens(each, tokenizer, shares[name], longest) for name, each in measured.items() if name}
    parts = parts_of(data.output.splits, [groups[name] or 0 for name in data.path_groups])
    shards = count_shards(data.output, round(tokens), rows, parts)
    shard_bytes = _shard_bytes(data.output, dtype, rows, shards, tokens=round(tokens), documents=round(found.documents))
    return Estimate(
        tokens=None if unknown else round(tokens),
        source_bytes=round(found.source_bytes),
        shard_bytes=None if unknown else shard_bytes,
        scratch_bytes=None if unknown else round(_scratch_tokens(data.output, tokens, rows) * itemsize),
        reference=tokenizer.reference.name,
        reference_seconds=None if unknown else found.seconds,
        bytes_per_token=None if unknown else found.text_bytes / whole if whole else 0.0,
        sampled_bytes=sum(head.source_bytes for _, head in samples),
        rows=None if unknown else rows,
        documents=None if unknown else round(found.documents),
        groups=groups,
        parts=parts,
    )


def _scratch_tokens(output: OutputSpec, tokens: float, rows: RowEstimate | None) -> float:
    if output.shuffle is None:
        return tokens
    scattered = tokens if rows is None or output.shuffled_rows is None else rows.tokens
    return scattered + tokens / 2


def _group_tokens(measured: Measured, tokenizer: Tokenizer, share: float, longest: int | None) -> int | None:
    return None if measured.is_unknown(tokenizer) else round(measured.written(tokenizer, longest) * share)


def _shard_bytes(
    output: OutputSpec, dtype: DType, rows: RowEstimate | None, shards: int, *, tokens: int, documents: int
) -> int:
    """Of all files of shards; a document is cut by nearly every border of a shard."""
    length, tokens = (0, tokens) if rows is None else (rows.length, rows.tokens)
    shape = ShardShape(tokens, NUMPY_DTYPES[dtype], length)
    entries = documents + shards if rows is None else rows.count
    size = sum(format_of(name).total_bytes(shape, shards, entries) for name in output.formats)
    return size if rows is None else size + rows.parts_bytes(documents)


class EncodedSample(NamedTuple):
    """The reference's tokens of a file's sample, and the seconds that they took. Texts that kill what encodes them are
    not among `texts`; `refused` says why, of those that the engine itself refuses, and `untried` are behind too many of
    them. `ends` i64[n_texts] are cumulative.
    """

    texts: list[str]
    ids: IdArray
    ends: EndArray
    seconds: float
    refused: tuple[str, ...] = ()
    untried: int = 0


def encode_samples(
    data: DataSpec, tokenizer: Tokenizer, samples: list[tuple[SourceFile, HeadSample]]
) -> list[EncodedSample]:
    """The tokens of each sample's beginning.

    Never encoded in this process: a text that kills its process counts as nothing, and the run will find it. A copy of
    this one is made in milliseconds, a process of its own in half a second.
    """
    shortened = [_shorten(head.texts, SAMPLE_BYTES)[0] for _, head in samples]
    if can_copy():
        return _encode_in_copies(tokenizer.limited_reference(_LIMIT_S), shortened)
    name = tokenizer.reference.name
    with Isolation(data, name, _LIMIT_S) as isolation:
        isolated = isolation.engine(name, Role.REFERENCE)
        # another process encodes
        return [_encode_without_killers(isolated, texts, time.perf_counter) for texts in shortened]


def _encode_without_killers(engine: Engine, texts: list[str], clock: Callable[[], float]) -> EncodedSample:
    refused: list[str] = []
    untried = 0
    while True:
        engine.encode([""])  # the start of the process, also after a killer, is none of the sample's time
        try:
            return EncodedSample(texts, *_encode_sample(engine, texts, clock), tuple(refused), untried)
        except KillsEngine as killer:
            refused.append(killer.detail)
            left = texts[killer.document + 1 :] if len(refused) < _MOST_KILLERS else []
            untried += len(texts) - killer.document - 1 - len(left)
            texts = texts[: killer.document] + left


def _encode_in_copies(engine: Engine, samples: list[list[str]]) -> list[EncodedSample]:
    """The copy knows which text the engine gives up on. Which one a copy dies of is found by halves."""
    try:
        return compute_in_copy(lambda: [_encode_without_killers(engine, texts, time.process_time) for texts in samples])
    except CopyDied:
        if len(samples) > 1:
            return [sample for texts in samples for sample in _encode_in_copies(engine, [texts])]
        texts = samples[0]
        if len(texts) < 2:
            return [EncodedSample([], *_encode_sample(engine, [], time.process_time))]
        first, second = _encode_in_copies(engine, [texts[: len(texts) // 2], texts[len(texts) // 2 :]])
        return [
            EncodedSample(
                first.texts + second.texts,
                np.concatenate([first.ids, second.ids]),
                np.concatenate([first.ends, second.ends + len(first.ids)]),
                first.seconds + second.seconds,
                first.refused + second.refused,
                first.untried + second.untried,
            )
        ]


def _encode_sample(engine: Engine, texts: list[str], clock: Callable[[], float]) -> tuple[IdArray, EndArray, float]:
    started = clock()
    ids, ends = engine.encode(texts) if texts else join_encoded([])
    return ids, ends, clock() - started


def _shorten(texts: list[str], most: int) -> tuple[list[str], float]:
    """The first `most` characters of the texts, and what share of all characters that is."""
    kept, room = [], most
    for text in texts:
        kept.append(text[:room])
        room -= len(kept[-1])
        if room <= 0:
            break
    total = sum(map(len, texts))
    return kept, sum(map(len, kept)) / total if total else 1.0
