"""Estimates how many tokens a source holds, from the heads of a few files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tokenization_worker.api.data import DataSpec, DType, OutputSpec
from tokenization_worker.formats.base import ShardShape
from tokenization_worker.formats.dtypes import NUMPY_DTYPES
from tokenization_worker.formats.registry import format_of
from tokenization_worker.planning.measured import Measured, add_up
from tokenization_worker.planning.row_estimate import RowEstimate, count_shards, count_stored, estimate_rows, parts_of
from tokenization_worker.readers.head import HeadSample
from tokenization_worker.storage.source_file import SourceFile
from tokenization_worker.tokenizers.base import Tokenizer

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


def estimate(
    data: DataSpec,
    tokenizer: Tokenizer,
    dtype: DType,
    measured: Mapping[str, Measured],
    samples: list[tuple[SourceFile, HeadSample]],
) -> Estimate:
    """What a run writes of the documents that its groups' shares take."""
    shares = {group.name: float(group.share or 1) for group in data.source.groups}
    found = add_up([(each, shares.get(name, 1.0)) for name, each in measured.items()])
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
