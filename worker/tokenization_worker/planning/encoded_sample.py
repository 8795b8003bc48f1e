"""Encodes the heads of sampled files with the reference engine, where a text may kill what encodes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tokenization_worker.api.data import DataSpec
from tokenization_worker.planning.sampled_files import SAMPLE_BYTES
from tokenization_worker.processes import CopyDied, can_copy, compute_in_copy
from tokenization_worker.readers.head import HeadSample
from tokenization_worker.storage.source_file import SourceFile
from tokenization_worker.tokenizers.base import EndArray, Engine, IdArray, KillsEngine, Tokenizer, join_encoded
from tokenization_worker.tokenizers.isolation.engine_process import Role
from tokenization_worker.tokenizers.isolation.supervisor import Isolation

_MOST_KILLERS = 4
"""Of a file's sample, each of which costs a process or two: then what is behind them is not counted."""

_LIMIT_S = 5.0
"""CPU time for all samples with a pattern of the user's, which may backtrack: some fifty times what they take else."""


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
    shortened = [shorten(head.texts, SAMPLE_BYTES)[0] for _, head in samples]
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


def shorten(texts: list[str], most: int) -> tuple[list[str], float]:
    """The first `most` characters of the texts, and what share of all characters that is."""
    kept, room = [], most
    for text in texts:
        kept.append(text[:room])
        room -= len(kept[-1])
        if room <= 0:
            break
    total = sum(map(len, texts))
    return kept, sum(map(len, kept)) / total if total else 1.0
