"""How many tokens a source holds, from the heads of a few of its files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from tokenization_worker.api.data import DataSpec, DType
from tokenization_worker.context import NUMPY_DTYPES
from tokenization_worker.isolated_engine import Role
from tokenization_worker.isolation import Isolation
from tokenization_worker.processes import CopyDied, can_copy, compute_in_copy
from tokenization_worker.readers.head import HeadSample
from tokenization_worker.storage.source_file import SourceFile
from tokenization_worker.tokenizers.base import Engine, KillsEngine, Tokenizer

SAMPLED_FILES = 16
SAMPLE_BYTES = 32 << 10
"""Of decompressed text from each sampled file: half a megabyte in all takes about 35 ms with the reference engine."""

_MOST_KILLERS = 4
"""Of a file's sample, each of which costs a process or two: then what is behind them is not counted."""

FAST_ENGINE_GAIN = 8.0
"""How much faster a run with the accelerated engine is than encoding with the reference, reading and
writing included: 6 on mixed languages and code to 10 on English (2026-11-21)."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """From a sample of the source. `source_bytes`: decompressed; `seconds`: the sample's encoding time,
    scaled to all of it, on one core with the reference engine."""

    tokens: int
    source_bytes: int
    shard_bytes: int
    reference_seconds: float
    bytes_per_token: float
    sampled_bytes: int

    def core_seconds(self, engine: str) -> float:
        """What a run with that engine takes on one core."""
        return self.reference_seconds if engine == "reference" else self.reference_seconds / FAST_ENGINE_GAIN


def choose_samples(files: Sequence[SourceFile]) -> Sequence[SourceFile]:
    """The files to look into, spread over the source."""
    return files[:: _step(files)][:SAMPLED_FILES]


def _step(files: Sequence[SourceFile]) -> int:
    """From one sampled file to the next."""
    return max(1, len(files) // SAMPLED_FILES)


def estimate(
    data: DataSpec,
    tokenizer: Tokenizer,
    dtype: DType,
    files: tuple[SourceFile, ...],
    samples: list[tuple[SourceFile, HeadSample]],
) -> Estimate:
    """Scale each sample, of the files of `choose_samples`, to the files between it and the next one."""
    step = _step(files)
    tokens = source_bytes = text_bytes = seconds = 0.0
    shortened = [_shorten(head.texts, SAMPLE_BYTES) for _, head in samples]
    counts = _count_tokens(data, tokenizer.reference, [texts for texts, _ in shortened])
    for number, (_, head) in enumerate(samples):
        if not head.stored_bytes:
            continue
        first = number * step
        last = first + step if number + 1 < len(samples) else len(files)
        scale = sum(file.size for file in files[first:last]) / head.stored_bytes
        texts, share = shortened[number]
        sampled_tokens, sampled_seconds = counts[number]
        seconds += sampled_seconds * scale / share
        tokens += (sampled_tokens / share + (len(head.texts) if tokenizer.delimiter_id is not None else 0)) * scale
        source_bytes += head.source_bytes * scale
        text_bytes += sum(len(text.encode()) for text in texts) * scale / share
    return Estimate(
        tokens=round(tokens),
        source_bytes=round(source_bytes),
        shard_bytes=round(tokens * NUMPY_DTYPES[dtype].itemsize),
        reference_seconds=seconds,
        bytes_per_token=text_bytes / tokens if tokens else 0.0,
        sampled_bytes=sum(head.source_bytes for _, head in samples),
    )


def _count_tokens(data: DataSpec, engine: Engine, samples: list[list[str]]) -> list[tuple[int, float]]:
    """Tokens of each sample, and the seconds that they took.

    Never counted in this process: a text that kills its process counts as nothing, and the run will find it. A copy of
    this one is made in milliseconds, a process of its own in half a second.
    """
    if can_copy():
        return _count_in_copies(engine, samples)
    with Isolation(data, engine.name) as isolation:
        isolated = isolation.engine(engine.name, Role.REFERENCE)
        return [_count_without_killers(isolated, texts) for texts in samples]


def _count_without_killers(engine: Engine, texts: list[str]) -> tuple[int, float]:
    killers = 0
    while True:
        engine.encode([""])  # the start of the process, also after a killer, is none of the sample's time
        try:
            return _encode_sample(engine, texts)
        except KillsEngine as killer:
            killers += 1
            left = texts[killer.document + 1 :] if killers < _MOST_KILLERS else []
            texts = texts[: killer.document] + left


def _count_in_copies(engine: Engine, samples: list[list[str]]) -> list[tuple[int, float]]:
    try:
        return compute_in_copy(lambda: [_encode_sample(engine, texts) for texts in samples])
    except CopyDied:
        if len(samples) > 1:
            return [counts for texts in samples for counts in _count_in_copies(engine, [texts])]
        texts = samples[0]
        if len(texts) < 2:
            return [(0, 0.0)]
        halves = _count_in_copies(engine, [texts[: len(texts) // 2], texts[len(texts) // 2 :]])
        return [(sum(tokens for tokens, _ in halves), sum(seconds for _, seconds in halves))]


def _encode_sample(engine: Engine, texts: list[str]) -> tuple[int, float]:
    started = time.perf_counter()
    tokens = len(engine.encode(texts).ids) if texts else 0
    return tokens, time.perf_counter() - started


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
