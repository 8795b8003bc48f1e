"""Estimates how many rows a source fills, and how much of them is text. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tokenization_worker.api.data import OutputSpec, Scope
from tokenization_worker.planning.splits import Streams
from tokenization_worker.sequences.parts import PART


@dataclass(frozen=True, slots=True)
class RowEstimate:
    """`count` rows of `length` tokens. `utilization`: the share of them that is text, neither delimiter nor padding."""

    length: int
    count: int
    utilization: float

    @property
    def tokens(self) -> int:
        """With padding."""
        return self.count * self.length

    def parts_bytes(self, documents: int) -> int:
        """Of the files of parts: nearly every border of a row cuts a document."""
        return PART.itemsize * (documents + self.count)


def estimate_rows(output: OutputSpec, *, tokens: float, text_tokens: float, files: int) -> RowEstimate | None:
    """None where the output has no rows. `files`: those that hold text; the last row of each is half full on average.

    The last row of a stream alone is padded to its end, so small sources are not overestimated.
    """
    sequence = output.sequence
    if sequence is None:
        return None
    length = sequence.length
    streams = Streams(output.splits).count
    ends = files * streams if sequence.scope is Scope.FILE else streams
    whole, rest = divmod(round(tokens), length)
    count = whole + (ends // 2 if ends > 1 else 0)
    count = max(count + (rest > 0), min(ends, round(tokens)))
    return RowEstimate(length, count, text_tokens / (count * length) if count else 0.0)
