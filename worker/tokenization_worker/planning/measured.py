"""Scales what samples hold to the files of each group. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.planning.encoded_sample import EncodedSample, shorten
from tokenization_worker.planning.sampled_files import SAMPLE_BYTES, by_group, sampled_files, spread
from tokenization_worker.readers.head import HeadSample
from tokenization_worker.storage.source_file import SourceFile
from tokenization_worker.tokenizers.base import Tokenizer

_ENOUGH = 30
"""Documents of a file whose lengths stand for those of the others."""


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
    groups = by_group(files)
    most = sampled_files(len(groups))
    measured = {}
    pairs = list(zip(samples, encoded, strict=True))
    for name, group in groups.items():
        mine = [(head, sample) for (file, head), sample in pairs if file.group == name]
        measured[name] = _measure(group, [stored for _, stored in spread(group, most)], mine)
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
        texts, shown = shorten(head.texts, SAMPLE_BYTES)
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
    """How many tokens each of a sample's documents has: of those that are encoded to their end, where they are enough;
    else of all, of the others by their characters."""
    encoded = np.array([len(text) for text in sample.texts], np.int64)
    characters = np.array([len(text) for text in head.texts], np.int64)
    lengths: NDArray[np.int64] = np.ceil(characters * (len(sample.ids) / max(1, encoded.sum()))).astype(np.int64)
    if not all(map(str.startswith, head.texts, sample.texts)):  # some have killed what encodes them
        return lengths
    is_whole = encoded == characters[: len(encoded)]
    known: NDArray[np.int64] = np.diff(sample.ends, prepend=0)[is_whole]
    if len(known) >= _ENOUGH:
        return known
    lengths[: len(encoded)][is_whole] = known
    return lengths


def add_up(groups: Sequence[tuple[Measured, float]]) -> Measured:
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
