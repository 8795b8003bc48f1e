"""Compares one file's documents with their token stream, token by token.

The comparison owns the tokens [start, end) that the file claims. It accepts them only if the file's documents,
delimiters included, are exactly these tokens, one after the other; a claim that is too short or too long is
found at the file's end. With claims that tile the stream (`tables`) this proves that the shards are the
concatenation of the documents. Memory: the tokens of some
MiB of text at a time, or the longest document, twice: the batch in hand, and what is remembered of those before it.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from tokenization_worker.verification.claims import FileClaim
from tokenization_worker.verification.explain import LOOK_AHEAD, explain
from tokenization_worker.verification.moved_rows import Place, find_moved_rows
from tokenization_worker.verification.report import Fault, Finding
from tokenization_worker.verification.shards.documents import NoDocuments, PlacedDocuments
from tokenization_worker.verification.stream import MISSING, UNKNOWN, Stream, Tokens, difference

_WINDOW_TOKENS = 1 << 20
"""How far behind a fault the tokens are searched for the next document."""

_ROWS_AROUND = 64
"""How many rows before and behind a fault are searched for its tokens."""

_REMEMBERED = 64
_REMEMBERED_TOKENS = 1 << 20
"""Of all documents that are remembered together. The last one is remembered however large it is."""

_SHOWN = 8

MOST_FINDINGS = 20
"""Of one file and stream; then the rest of it is left alone: where nothing is right, looking for what is takes long."""


class Expected(NamedTuple):
    """A document as it must stand in its stream; `position` is its place in the file. `lost`: its text and what comes
    back from its tokens, both shortened; None where that is the text."""

    position: int
    tokens: Tokens
    lost: tuple[str, str] | None = None


class _Memory:
    """The last documents, of which a fault may be a copy; bounded by their number and by their tokens."""

    def __init__(self) -> None:
        self.documents: deque[Expected] = deque()
        self._size = 0

    def add(self, document: Expected) -> None:
        # A copy: without a delimiter a document's tokens are a view of those of its whole batch.
        self.documents.append(document._replace(tokens=document.tokens.copy()))
        self._size += len(document.tokens)
        while len(self.documents) > 1 and (self._size > _REMEMBERED_TOKENS or len(self.documents) > _REMEMBERED):
            self._size -= len(self.documents.popleft().tokens)


class StreamComparer:
    """Takes the documents of one file and stream in order; collects findings."""

    def __init__(self, stream: Stream, claim: FileClaim, number: int) -> None:
        self.findings: list[Finding] = []
        self.documents = 0
        self.tokens_compared = 0
        self._stream = stream
        self._uri = claim.uri
        self._file = claim.number
        self._at = claim.starts[number]
        self._end = claim.starts[number] + claim.tokens[number]
        self._pending: deque[Expected] = deque()
        self._before = _Memory()
        self._is_lost = False
        self._wrong_borders: set[str] = set()
        self._row_length = stream.row_length
        self._moved_rows: set[int] = set()  # of the stream: they were reported, and are not compared

    def add(self, documents: list[Expected]) -> None:
        """Compare some more documents."""
        self.documents += len(documents)
        self._pending.extend(documents)
        self._compare(is_end=False)

    def finish(self) -> None:
        """There are no more documents."""
        self._compare(is_end=True)
        if not self._is_lost and self._at < self._end:
            end = min(self._end, self._at + _WINDOW_TOKENS)
            self._report_added(self._stream.tokens(self._at, end), self._end - self._at)

    def _compare(self, *, is_end: bool) -> None:
        while self._pending and not self._is_lost:
            self._take_equal()
            if not self._pending or (len(self._pending) <= LOOK_AHEAD and not is_end):
                return
            self._take_different(is_end)
        if self._is_lost:
            self._pending.clear()

    def _take_equal(self) -> None:
        """Pass over the pending documents that stand where they should."""
        expected = np.concatenate([document.tokens for document in self._pending])
        found = self._found(min(self._at + len(expected), self._end))
        differ = difference(expected, found)
        equal = int(differ[0]) if len(differ) else len(found)
        start = self._at
        passed: list[Expected] = []
        while self._pending and self._at - start + len(self._pending[0].tokens) <= equal:
            passed.append(self._pending.popleft())
            self._report_lost(passed[-1])
            self._at += len(passed[-1].tokens)
        for document in passed[-_REMEMBERED:]:
            self._before.add(document)
        self.tokens_compared += int(np.count_nonzero(found[: self._at - start] != UNKNOWN))
        self._check_borders(start, passed)

    def _take_different(self, is_end: bool) -> None:
        """Report what stands in the place of the first pending document, and go on behind it."""
        if len(self.findings) >= MOST_FINDINGS:
            self._is_lost = True
            what = f"more than {MOST_FINDINGS} differences; the rest of the file was not compared"
            self._report(Fault.NOT_ALIGNED, 0, self._pending[0], "the file's documents", what)
            return
        if self._pass_moved_rows():
            return
        expected = [document.tokens for document in self._pending]
        size = sum(map(len, expected)) + _WINDOW_TOKENS
        found = self._found(min(self._at + size, self._end))
        history = explain(expected, found, is_end=is_end and self._at + len(found) == self._end)
        if history is None:
            self._is_lost = True
            self._report_replaced(1, found[: len(expected[0])])
            self._report(Fault.NOT_ALIGNED, 0, self._pending[0], "the file's documents in order", "other tokens")
            return
        if history.swapped:
            other = self._pending[history.swapped].position
            place = f"the document at {self._pending[0].position:,}, then the one at {other:,}"
            self._report(Fault.DOCUMENTS_SWAPPED, 0, self._pending[0], place, "them in each other's place")
        elif not history.documents:
            self._report_added(found[: history.tokens], history.tokens)
        elif not history.tokens:
            for document in list(self._pending)[: history.documents]:
                self._report(Fault.DOCUMENT_LOST, 0, document, f"its {len(document.tokens):,} tokens", "none of them")
        else:
            self._report_replaced(history.documents, found[: history.tokens])
        for _ in range(history.documents):
            self._before.add(self._pending.popleft())
        self._at += history.tokens

    def _found(self, end: int) -> Tokens:
        """The tokens from here to `end`; those of rows that were reported are not known."""
        found = self._stream.tokens(self._at, end)
        for row in self._moved_rows:
            low, high = (max(0, edge * self._row_length - self._at) for edge in (row, row + 1))
            found[low:high] = UNKNOWN
        return found

    def _pass_moved_rows(self) -> bool:
        """Report rows that have the tokens of others, if that explains the first difference."""
        length = self._row_length
        if not 0 < length <= _WINDOW_TOKENS:
            return False
        expected = np.concatenate([document.tokens for document in self._pending])
        differ = difference(expected, self._found(min(self._at + len(expected), self._end)))
        if not len(differ):
            return False
        first = int(differ[0])
        row, column = divmod(self._at + first, length)
        around = min(_ROWS_AROUND, _WINDOW_TOKENS // length)
        low = max(0, row - around)
        rows = self._stream.tokens(low * length, (row + around + 1) * length).reshape(-1, length)
        for moved, other in find_moved_rows(Place(rows, row - low, column, expected[first:])).items():
            path, token = self._stream.place((low + moved) * length)
            words = f"the tokens of row {low + other:,} of the stream"
            position = self._pending[0].position
            own = f"row {low + moved:,} of the stream"
            self.findings.append(Finding(Fault.ROWS_DIFFER, own, words, path, token, self._uri, position))
            self._moved_rows.add(low + moved)
        return row in self._moved_rows

    def _report_added(self, found: Tokens, size: int) -> None:
        """`size` tokens that belong to none of the documents expected here; `found` are the first of them."""
        for document in (*self._pending, *reversed(self._before.documents)):
            if np.array_equal(document.tokens, found):
                what = f"one time the {size:,} tokens of the document"
                self._report(Fault.DOCUMENT_DOUBLED, 0, document, what, "them once more")
                return
        around = self._pending[0] if self._pending else self._before.documents[-1] if self._before.documents else None
        what = f"{size:,} tokens that are no document of the file: {_shown(found)}"
        expected = "the next document" if self._pending else "the end of the file's tokens"
        self._report(Fault.TOKENS_ADDED, 0, around, expected, what)

    def _report_replaced(self, documents: int, found: Tokens) -> None:
        """Other tokens in the place of some documents: where the first differs."""
        replaced = list(self._pending)[:documents]
        expected = np.concatenate([document.tokens for document in replaced])
        differ = difference(expected, found)
        first = int(differ[0]) if len(differ) else min(len(expected), len(found))
        begins = np.cumsum([0, *(len(document.tokens) for document in replaced[:-1])])
        document = replaced[max(0, int(np.searchsorted(begins, first, side="right")) - 1)]
        sizes = (len(expected), len(found))
        size_words = ("", "") if sizes[0] == sizes[1] else tuple(f" ({size:,} tokens in all)" for size in sizes)
        what = f"token {first:,} on: {_shown(expected[first:])}{size_words[0]}"
        self._report(Fault.TOKENS_DIFFER, first, document, what, _shown(found[first:]) + size_words[1])

    def _report_lost(self, document: Expected) -> None:
        """Its tokens are right, and do not hold its text."""
        if document.lost is not None and len(self.findings) < MOST_FINDINGS:
            text, kept = document.lost
            self._report(Fault.TEXT_LOST, 0, document, repr(text), repr(kept))

    def _report(self, fault: Fault, offset: int, document: Expected | None, expected: str, found: str) -> None:
        path, token = self._stream.place(self._at + offset)
        position = None if document is None else document.position
        self.findings.append(Finding(fault, expected, found, path, token, self._uri, position))

    def _check_borders(self, start: int, documents: list[Expected]) -> None:
        """The sidecars, or parts, say where these documents, which stand at `start`, begin and end."""
        if start == self._at:
            return
        lengths = np.array([len(document.tokens) for document in documents], dtype=np.int64)
        ends = start + np.cumsum(lengths)
        positions = np.array([document.position for document in documents], dtype=np.int64)
        is_there = lengths > 0
        placed = PlacedDocuments(self._file, (ends - lengths)[is_there], ends[is_there], positions[is_there])
        for shard in self._stream.shards_of(start, self._at):
            path = shard.documents_path
            if path in self._wrong_borders:
                continue
            try:
                difference = self._stream.documents_of(shard).difference(shard, placed)
            except NoDocuments:
                continue  # reported with the shard
            if difference is not None:
                self._wrong_borders.add(path)
                expected, found, token, number = difference
                fault = Fault.PARTS_WRONG if shard.rows else Fault.SIDECAR_WRONG
                place = (path, token, self._uri, int(placed.positions[number]))
                self.findings.append(Finding(fault, expected, found, *place))


def _shown(tokens: Tokens) -> str:
    """A few ids, for a message."""
    ids = tokens[:_SHOWN].tolist()
    if not ids:
        return "nothing"
    words = ["(missing)" if token in (MISSING, UNKNOWN) else str(token) for token in ids]
    return "[" + ", ".join(words) + (", ...]" if len(tokens) > _SHOWN else "]")
