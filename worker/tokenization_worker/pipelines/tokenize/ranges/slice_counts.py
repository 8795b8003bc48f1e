"""Counts and checksums of one slice of a range, taken while it is read and encoded."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256

import numpy as np
import orjson
from msgspec import UNSET
from numpy.typing import NDArray

from tokenization_worker.formats.segment import crc32c_of
from tokenization_worker.output.ledger.receipts import SliceResult
from tokenization_worker.readers.document_batch import CrashVerdict, FileOutcome, FileSlice


class SliceCounts:
    """Counts and checksums of one slice while it is read, or of one that is dropped with its file."""

    def __init__(
        self,
        number: int,
        source: FileSlice,
        n_streams: int,
        outcome: str = FileOutcome.READ,
        detail: str = "",
    ) -> None:
        self.number = number
        self.source = source
        self.outcome = outcome
        self.detail = detail
        self.tokens = [0] * n_streams
        self.docs = [0] * n_streams
        self.tokens_crc = [0] * n_streams
        self.lengths_crc = [0] * n_streams
        self.truncated = [0] * n_streams
        self.records = 0
        self.quarantined: Counter[str] = Counter()
        self.read_bytes = 0
        self.quarantined_bytes = 0
        self.left_out: int | None = None
        """None where the whole group of the file is taken."""
        self.crash_verdicts: list[CrashVerdict] = []

    def count(self, stream: int, tokens: int, lengths: NDArray[np.uint32], tokens_crc: int, truncated: int) -> None:
        """Take one more block's part; `tokens_crc` is of all tokens so far, so no border of a block shows. `truncated`:
        tokens of long documents that are not written."""
        self.truncated[stream] += truncated
        self.tokens[stream] += tokens
        self.docs[stream] += len(lengths)
        self.tokens_crc[stream] = tokens_crc
        self.lengths_crc[stream] = crc32c_of(lengths, start=self.lengths_crc[stream])

    def result(self) -> SliceResult:
        quarantined = sorted(self.quarantined.items())
        counts = [self.tokens, self.docs, self.tokens_crc, self.lengths_crc, self.records, quarantined]
        if self.left_out is not None:
            counts.append(self.left_out)
        if any(self.truncated):
            counts.append(self.truncated)
        return SliceResult(
            file=self.source.file,
            outcome=self.outcome,
            detail=self.detail,
            tokens=tuple(self.tokens),
            docs=tuple(self.docs),
            records=self.records,
            quarantined=dict(self.quarantined),
            digest=sha256(orjson.dumps(counts)).hexdigest()[:32],
            crash_verdicts=tuple(self.crash_verdicts),
            read_bytes=self.read_bytes,
            quarantined_bytes=self.quarantined_bytes,
            left_out=UNSET if self.left_out is None else self.left_out,
            truncated=tuple(self.truncated) if any(self.truncated) else UNSET,
        )
