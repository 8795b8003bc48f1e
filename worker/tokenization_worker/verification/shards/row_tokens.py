"""Compares the tokens of rows with their parts while they are read: padding, delimiters, largest id.

No text becomes a padding token or a delimiter, so each of them stands where parts say, and nowhere else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.verification.claims import ShardClaim
from tokenization_worker.verification.facts import Facts
from tokenization_worker.verification.formats.base import TokenArray
from tokenization_worker.verification.report import Fault, Finding
from tokenization_worker.verification.shards.delimiters import Delimiter, delimiters_of
from tokenization_worker.verification.shards.documents import Numbers
from tokenization_worker.verification.shards.packing import are_last_pieces
from tokenization_worker.verification.shards.parts import Parts


class RowTokens:
    """A pass over the tokens of a shard of rows, whose parts tile them."""

    def __init__(self, facts: Facts, parts: Parts, claim: ShardClaim) -> None:
        assert facts.sequence is not None
        self._pad_id = facts.sequence.pad_id
        self._is_pad_delimiter = self._pad_id in facts.delimiter_ids
        self._path = claim.path
        self._found: dict[Delimiter | None, Finding] = {}  # of each delimiter, and of padding (None), the first one
        ends = parts.tokens + parts.stored["length"]
        next_tokens = np.append(parts.tokens[1:], claim.stored)
        self._padding = (ends[next_tokens > ends], next_tokens[next_tokens > ends])
        is_first = parts.stored["offset"] == 0
        are_rows_apart = facts.sequence.are_rows_apart
        if facts.sequence.has_uneven_shards and facts.longest_document is None:  # with all pieces of its documents
            is_last, may_go_on = are_last_pieces(parts.stored), np.zeros(len(ends), np.bool_)
        elif facts.sequence.packing is not None:  # other pieces, and truncated documents, fill a row
            may_go_on = parts.stored["length"] == facts.row_length
            is_last = ~may_go_on
        else:
            is_last = np.append(is_first[1:], False)
            may_go_on = np.zeros(len(ends), np.bool_)  # the last part of the shard, or of a row that stands alone
            may_go_on[:-1] = are_rows_apart & (np.diff(parts.stored["row"]) != 0)
            may_go_on[-1] = True
            is_last &= ~may_go_on
        self._open_ends = ends[may_go_on] - 1
        """The last tokens of documents that may go on elsewhere."""
        places: dict[str, Numbers] = {"first": parts.tokens[is_first], "last": ends[is_last] - 1}
        self._delimiters = [(delimiter, places[delimiter.which]) for delimiter in delimiters_of(facts)]
        self._end_id = None if are_rows_apart else facts.end_id
        self.has_end_token: bool | None = None
        """Whether the shard's last document has its end token in it; None where there is no such token, or where rows
        stand alone."""

    def take(self, before: int, tokens: TokenArray) -> None:
        """The next tokens; `before`: how many there were."""
        if not len(tokens):
            return
        is_pad = self._padding_of(before, len(tokens))
        self._check_padding(before, tokens, is_pad)
        for delimiter, places in self._delimiters:
            self._check_delimiter(before, tokens, is_pad, delimiter, places)
        if self._end_id is not None and before <= (end := int(self._open_ends[-1])) < before + len(tokens):
            self.has_end_token = int(tokens[end - before]) == self._end_id

    def _padding_of(self, before: int, size: int) -> NDArray[np.bool_] | None:
        """Which of these tokens are padding by the parts; None: not one."""
        starts, ends = self._padding
        first = int(np.searchsorted(ends, before, side="right"))
        last = int(np.searchsorted(starts, before + size, side="left"))
        if first >= last:
            return None
        steps = np.zeros(size + 1, dtype=np.int8)
        steps[np.maximum(starts[first:last] - before, 0)] = 1
        steps[np.minimum(ends[first:last] - before, size)] = -1
        return np.cumsum(steps[:-1], dtype=np.int8).astype(bool)

    def _check_padding(self, before: int, tokens: TokenArray, is_pad: NDArray[np.bool_] | None) -> None:
        is_wrong = tokens == self._pad_id
        if is_pad is not None:
            is_wrong = is_wrong != is_pad if not self._is_pad_delimiter else is_pad & ~is_wrong
        elif self._is_pad_delimiter:
            return
        if is_wrong.any():
            at, padding = int(is_wrong.argmax()), f"padding, id {self._pad_id:,}"
            should_pad = is_pad is not None and bool(is_pad[at])
            words = (padding, f"id {int(tokens[at]):,}") if should_pad else ("a token of a document", padding)
            self._found.setdefault(None, Finding(Fault.PADDING_WRONG, *words, self._path, before + at))

    def _check_delimiter(
        self, before: int, tokens: TokenArray, is_pad: NDArray[np.bool_] | None, delimiter: Delimiter, places: Numbers
    ) -> None:
        is_there = tokens == delimiter.token
        if is_pad is not None:
            is_there &= ~is_pad
        if delimiter.which == "last":
            first, end = np.searchsorted(self._open_ends, [before, before + len(tokens)])
            is_there[self._open_ends[first:end] - before] = False
        wanted = places[slice(*np.searchsorted(places, [before, before + len(tokens)]))]
        if np.count_nonzero(is_there) == len(wanted) and is_there[wanted - before].all():
            return
        at = int(np.setxor1d(before + np.flatnonzero(is_there), wanted, assume_unique=True)[0])
        found = int(tokens[at - before]) if at in wanted else None
        self._found.setdefault(delimiter, delimiter.finding(self._path, at, found=found))

    def findings(self) -> list[Finding]:
        """The first difference of each kind."""
        return list(self._found.values())
