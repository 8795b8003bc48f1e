"""Computes from counts whether too much of a source is unusable: `maxQuarantined` and `maxCorruptFiles`.

A count limits documents. A percentage limits documents and their bytes, each rounded down: one document may hold most
of a corpus. What the bytes of a document are is said in docs/policy.md. Pure. Who enforces
it: `sampling` in the plan, `pipelines.tokenize.unusable_limit` while a run reads, `accounting` at its end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tokenization_worker.api.types.quantities import Limit
from tokenization_worker.errors import DataError
from tokenization_worker.messages.counts import counted
from tokenization_worker.readers.document_batch import WHAT_TO_DO

LISTED_BEYOND = 10_000
"""Unusable documents beyond a count that are still found and listed before a run ends early: most sources have fewer,
and all of them can be looked at together."""

_REASONS = 3
"""Reasons that a message counts one by one."""


@dataclass(frozen=True, slots=True)
class DocumentCounts:
    """Documents read and unusable, and their bytes; bytes are None where an older version did not count them."""

    read: int
    reasons: Counter[str]
    read_bytes: int | None
    quarantined_bytes: int | None

    @property
    def quarantined(self) -> int:
        return self.reasons.total()

    @property
    def share_of_bytes(self) -> str | None:
        """`61 %`; None where nothing is unusable or bytes are not known."""
        if not self.quarantined or not self.read_bytes or self.quarantined_bytes is None:
            return None
        return percent(self.quarantined_bytes, self.read_bytes)


class QuarantineExceeded(DataError):
    """More of a source is unusable than `maxQuarantined` allows."""


def percent(part: int, whole: int) -> str:
    """`61 %`, `0.3 %`, `<0.01 %`: never 0 for some of it, nor 100 for less than all."""
    share = 100 * part / whole
    if part and share < 0.01:
        return "<0.01 %"
    digits = 0 if share >= 10 or not part else 1 if share >= 0.1 else 2
    text = f"{share:.{digits}f}"
    if part < whole and float(text) >= 100:
        return ">99 %"
    return f"{text} %"


def list_reasons(reasons: Counter[str]) -> str:
    """`InvalidJson 6, MissingText 1, NotAnObject 1, 2 others`: the most frequent ones, the rest as one number."""
    shown = reasons.most_common(_REASONS)
    words = [f"{reason} {number:,}" for reason, number in shown]
    others = reasons.total() - sum(number for _, number in shown)
    if others:
        words.append(counted(others, "other"))
    return ", ".join(words)


def excess(counts: DocumentCounts, limit: Limit) -> str | None:
    """In words, which bound of `maxQuarantined` is exceeded and by how much; None where neither is."""
    documents = limit.allowed(counts.read)
    size, read_bytes = counts.quarantined_bytes, counts.read_bytes
    allowed_bytes = None if limit.share is None or read_bytes is None else limit.allowed(read_bytes)
    too_many = counts.quarantined > documents
    too_large = size is not None and allowed_bytes is not None and size > allowed_bytes
    if not too_many and not too_large:
        return None
    reasons = list_reasons(counts.reasons)
    is_one = counts.quarantined == 1
    read = counted(counts.read, "document")
    words = f"{counts.quarantined:,} of {read} {'is' if is_one else 'are'} unusable ({reasons})"
    if too_many:
        words += f"; maxQuarantined allows {documents:,}"
    if too_large:
        hold = "it holds" if is_one else "they hold"
        words += f"; {hold} {size:,} of {read_bytes:,} bytes ({counts.share_of_bytes}), and "
        words += f"maxQuarantined allows {counted(allowed_bytes or 0, 'byte')}"
    return words


def room_left(limit: Limit, found: int, *, may_drop_files: bool) -> int | None:
    """How many more unusable documents a run goes on for, negative where it has found too many.

    None: no number of them decides yet. A percentage is of what will be read, and a file that is dropped later takes
    its unusable documents with it.
    """
    if limit.count is None or may_drop_files:
        return None
    return limit.count + LISTED_BEYOND - found


def cannot_judge_bytes(counts: DocumentCounts, limit: Limit) -> bool:
    """Whether a percentage would also bound bytes, and they are not known."""
    unknown = counts.read_bytes is None or counts.quarantined_bytes is None
    return limit.share is not None and counts.quarantined > 0 and unknown


def too_many_corrupt(outcome: str, what: str, corrupt: int, files: int, limit: Limit) -> DataError:
    """The error of a source with more corrupt files than `maxCorruptFiles` allows; `what` describes the first."""
    found, _, step = what.partition(WHAT_TO_DO)
    return DataError(
        outcome,
        f"{found} ({corrupt:,} of {counted(files, 'file')} {'cannot be read' if step else 'corrupt'}; maxCorruptFiles "
        f"allows {limit.allowed(files):,})",
        next_step=f"{step or 'replace the file and start a new run'}; or raise maxCorruptFiles: the run then "
        "leaves such files out completely",
    )
