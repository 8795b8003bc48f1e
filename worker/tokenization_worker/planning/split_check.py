"""Foresees splits by share into which no document falls: of a group with shards of its own, and of the whole corpus.

A split that is empty in one group has no shards there, which is no error. A split that is empty in all of them is one.
Where the sample is the whole corpus, the plan computes the split of each document; otherwise it warns of splits that
may be empty, from the estimated number of documents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tokenization_worker.api.data import DataSpec
from tokenization_worker.errors import SpecError
from tokenization_worker.messages.counts import counted
from tokenization_worker.planning.groups.shares import is_in_share
from tokenization_worker.planning.measured import Measured
from tokenization_worker.planning.splits import Streams, stream_of
from tokenization_worker.readers.head import HeadSample
from tokenization_worker.storage.source_file import SourceFile

Samples = Sequence[tuple[SourceFile, HeadSample]]

_CHANCE = 0.01
"""A warning needs a larger chance than this that no document falls into a split."""


class SplitForesight(NamedTuple):
    """`error`: what the run would certainly end with. `warnings`: of splits that are, or may be, empty."""

    error: SpecError | None
    warnings: list[str]


class _Documents(NamedTuple):
    """The documents of a group, or of the corpus: about `number`; `by_stream` where the sample has all of them."""

    number: float
    by_stream: Counter[int] | None


def foresee_splits(data: DataSpec, measured: Mapping[str, Measured], samples: Samples) -> SplitForesight:
    """Look at splits by share; other splits are judged by tokens (`output_check`)."""
    streams = Streams(data.output.splits)
    if not streams.by_hash:
        return SplitForesight(None, [])
    groups = {name: _documents_of(data, name, found, samples, streams) for name, found in measured.items()}
    shares = [float(split.share or 0) for split in streams.splits]
    shares[-1] = 1 - sum(shares)  # the last split has the rest
    named = [
        (stream, split.name, share) for stream, (split, share) in enumerate(zip(streams.splits, shares, strict=True))
    ]
    warnings = []
    for group in data.path_groups:
        documents = groups[group]
        if documents is not None and documents.by_stream is not None and not documents.by_stream:
            warnings.append(f"group {group} has no documents, and so no shards")
            continue
        for split in named:
            warnings += _warn(group, *split, documents)
    everything = _add_up(list(groups.values()))
    if everything is None:
        return SplitForesight(None, warnings)
    if everything.by_stream is not None:
        return SplitForesight(_find_error(streams, everything.by_stream), warnings)
    for split in named:
        warnings += _warn("", *split, everything)
    return SplitForesight(None, warnings)


def _documents_of(
    data: DataSpec, group: str, measured: Measured, samples: Samples, streams: Streams
) -> _Documents | None:
    """The documents that the group's share takes; None where the sample says nothing of them."""
    hash_end = data.source.hash_ends.get(group)
    if measured.is_all:
        texts = [text.encode() for file, head in samples if file.group == group for text in head.texts]
        taken = [text for text in texts if hash_end is None or is_in_share(text, hash_end)]
        return _Documents(len(taken), Counter(stream_of(text, streams.thresholds()) for text in taken))
    if not measured.known:
        return None
    return _Documents(measured.documents * (1 if hash_end is None else hash_end / 2**64), None)


def _add_up(groups: Sequence[_Documents | None]) -> _Documents | None:
    known = [group for group in groups if group is not None]
    if len(known) < len(groups):
        return None
    counts = [group.by_stream for group in known if group.by_stream is not None]
    by_stream = sum(counts, Counter[int]()) if len(counts) == len(known) else None
    return _Documents(sum(group.number for group in known), by_stream)


def _find_error(streams: Streams, by_stream: Counter[int]) -> SpecError | None:
    try:
        streams.require_all_filled([by_stream[stream] for stream in range(streams.count)])
    except SpecError as error:
        return error
    return None


def _warn(group: str, stream: int, name: str, share: float, documents: _Documents | None) -> list[str]:
    """The warning of a split that is, or may be, empty; `group`: "" for the corpus."""
    if documents is None:
        return []
    subject = f"output.splits: split {name!r}" + (f" of group {group}" if group else "")
    if documents.by_stream is not None:
        if documents.by_stream[stream]:
            return []
        whole = counted(round(documents.number), "document")
        return [f"{subject} has no shards: none of its group's {whole} falls into it"]
    if (1 - share) ** documents.number <= _CHANCE:
        return []
    about = counted(max(1, round(documents.number)), "document")
    outcome = "it then has no shards" if group else "the run then ends with SplitEmpty"
    return [f"{subject} may get no document, as it takes {100 * share:.3g} % of about {about}: {outcome}"]
