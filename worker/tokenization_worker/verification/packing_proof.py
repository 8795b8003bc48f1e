"""Packs the documents of the source anew, where packed rows are shuffled: a block's rows then stand in any shards.

A row's key says which shard has it, so each shard must have the sum of the hashes of all parts of its rows. The sums
do not depend on the order in which blocks are packed or shards are read. Memory: 12 bytes for each document of a file
that comes before its turn; of one block for each stream, 24 bytes, and about 300 while it is packed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.verification.claims import PackingClaim
from tokenization_worker.verification.facts import Facts
from tokenization_worker.verification.files.claimed import EncodedDocuments, FileCheck
from tokenization_worker.verification.report import Fault, Finding
from tokenization_worker.verification.shards.check import ShardCheck
from tokenization_worker.verification.shards.packing import hash_parts, largest_block, pack_block

Numbers = NDArray[np.int64]


class PackingProof:
    """What best fit makes of the documents of all files, beside what the shards have. Files come in any order."""

    def __init__(self, facts: Facts, shards: Sequence[ShardCheck]) -> None:
        """`shards`: all of the dataset, without findings."""
        assert facts.sequence is not None and facts.sequence.packing is not None and facts.shuffle is not None
        self._streams = []
        for number in range(len(facts.streams)):
            mine = [check for check in shards if check.claim.stream == number]
            self._streams.append(_StreamProof(mine, facts.row_length, facts.sequence.packing, facts.shuffle.seed))
        self._waiting: dict[int, list[FileCheck]] = {}
        self._next = 0
        self._is_sound = True

    def add(self, number: int, checks: list[FileCheck]) -> None:
        """The checks of the files of one more task, all documents of which were encoded; `number`: of the task, of
        which none is left out."""
        self._waiting[number] = checks
        while self._next in self._waiting:
            for check in self._waiting.pop(self._next):
                self._is_sound &= not check.findings and not check.unequal
                for documents in check.encoded if self._is_sound else ():
                    self._streams[documents.stream].add(documents)
            self._next += 1

    def findings(self) -> Iterator[Finding]:
        """The shards whose rows are others; none where documents are known to be others."""
        if not self._is_sound:
            return
        for stream in self._streams:
            yield from stream.findings()


class _StreamProof:
    """The same of one stream."""

    def __init__(self, shards: Sequence[ShardCheck], length: int, packing: PackingClaim, seed: int) -> None:
        self._shards = shards
        self._length = length
        self._packing = packing
        self._seed = seed
        orders = [check.order for check in shards]
        self._first_keys = np.array([order.first[0] for order in orders if order is not None], np.uint64)
        self._sums = np.zeros(len(shards), np.uint64)
        self._tokens = 0  # of all documents so far
        self._block = 0
        self._documents: list[tuple[Numbers, Numbers, Numbers]] = []  # of the block

    def add(self, documents: EncodedDocuments) -> None:
        """Documents that follow those so far."""
        positions, lengths = documents.positions, documents.lengths.astype(np.int64)
        files = np.full(len(lengths), documents.file)
        ends = self._tokens + np.cumsum(lengths)
        blocks = (ends - 1) // largest_block(self._length)
        for block in np.unique(blocks).tolist():
            if block != self._block:
                self._pack()
                self._block = block
            first, end = np.searchsorted(blocks, (block, block + 1)).tolist()
            self._documents.append((files[first:end], positions[first:end], lengths[first:end]))
        self._tokens += int(lengths.sum())

    def _pack(self) -> None:
        if not self._documents or not self._shards:
            return
        files, positions, lengths = (np.concatenate(each) for each in zip(*self._documents, strict=True))
        self._documents.clear()
        most = self._packing.max_documents
        parts, _ = pack_block(files, positions, lengths, length=self._length, most=most)
        keys, hashes = hash_parts(parts, self._seed)
        shards = np.maximum(np.searchsorted(self._first_keys, keys, side="right") - 1, 0)
        np.add.at(self._sums, shards, hashes)

    def findings(self) -> Iterator[Finding]:
        self._pack()
        for check, expected in zip(self._shards, self._sums.tolist(), strict=True):
            if check.packed != expected:
                words = ("the rows that best fit makes of the documents of the source", "others of the same documents")
                yield Finding(Fault.PARTS_WRONG, *words, check.claim.documents_path)
