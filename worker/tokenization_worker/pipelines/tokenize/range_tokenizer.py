"""From the slices of a range to blocks of its segment: reading, leaving out, encoding, counting.

Reads records in batches, encodes them and appends blocks to the segment. Memory is bounded by a batch and by
`documents.maxBytes`, never by the file. Verdicts on damaged files, on documents that kill their worker and on the
engine are written where they are found; everything else of the range is written by its task (`tokenize`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from typing import Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

from tokenization_worker.engine.task_progress import Tell, untold
from tokenization_worker.errors import ChangedError, TemporaryError
from tokenization_worker.formats.segment import SegmentWriter, crc32c_of
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_record
from tokenization_worker.output.ledger.crash_verdicts import record_poison
from tokenization_worker.output.ledger.epochs import void_engine
from tokenization_worker.output.ledger.quarantine import QuarantineList, TooManyUnusable
from tokenization_worker.output.ledger.receipts import SliceResult
from tokenization_worker.output.versions import describe_versions
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.encode import (
    EncodedDocuments,
    Encoder,
    LosesText,
    count_bytes,
)
from tokenization_worker.pipelines.tokenize.tokenizer_check import require_same_tokenizer
from tokenization_worker.planning.lossless_check import loses_text
from tokenization_worker.planning.splits import stream_of
from tokenization_worker.readers.document_batch import (
    DamagedFile,
    DocumentBatch,
    FileOutcome,
    FileSlice,
    Poison,
    ReadOptions,
    Reason,
)
from tokenization_worker.readers.exclusions import read_without
from tokenization_worker.readers.open import read_documents
from tokenization_worker.readers.resumable_decoder import SetAside
from tokenization_worker.storage.base import ByteReader, Store
from tokenization_worker.storage.source_file import SourceFile
from tokenization_worker.storage.sources import open_as_listed
from tokenization_worker.tokenizers.base import Engine, EngineMismatch, KillsEngine, Tokenizer
from tokenization_worker.tokenizers.checks.engine_check import engine_by_name
from tokenization_worker.tokenizers.isolation.engine_process import Role
from tokenization_worker.tokenizers.isolation.supervisor import Isolation
from tokenization_worker.tokenizers.load import load_tokenizer

BLOCK_BYTES = 1 << 20
"""Small files are encoded together until this much has come together: an engine call costs about 50 us."""

_DOCUMENT_BYTES = 16
"""What a document counts in a block besides its bytes: an empty one takes memory, too, while it is encoded."""


class RangeToTokenize(Protocol):
    """What is to be known of a range; fields as those of `TokenizeTask`."""

    @property
    def context(self) -> RunContext: ...
    @property
    def range_id(self) -> int: ...
    @property
    def dropped(self) -> tuple[tuple[int, str, str], ...]: ...
    @property
    def poison(self) -> tuple[tuple[int, Poison], ...]: ...
    @property
    def room(self) -> int | None: ...


class _Slice:
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
        self.records = 0
        self.quarantined: Counter[str] = Counter()
        self.read_bytes = 0
        self.quarantined_bytes = 0
        self.poison: list[Poison] = []

    def count(self, stream: int, tokens: int, lengths: NDArray[np.uint32], tokens_crc: int) -> None:
        """Take one more block's part; `tokens_crc` is of all tokens so far, so no border of a block shows."""
        self.tokens[stream] += tokens
        self.docs[stream] += len(lengths)
        self.tokens_crc[stream] = tokens_crc
        self.lengths_crc[stream] = crc32c_of(lengths, start=self.lengths_crc[stream])

    def result(self) -> SliceResult:
        quarantined = sorted(self.quarantined.items())
        counts = [self.tokens, self.docs, self.tokens_crc, self.lengths_crc, self.records, quarantined]
        return SliceResult(
            file=self.source.file,
            outcome=self.outcome,
            detail=self.detail,
            tokens=tuple(self.tokens),
            docs=tuple(self.docs),
            records=self.records,
            quarantined=dict(self.quarantined),
            digest=sha256(orjson.dumps(counts)).hexdigest()[:32],
            poison=tuple(self.poison),
            read_bytes=self.read_bytes,
            quarantined_bytes=self.quarantined_bytes,
        )


class RangeWork:
    """Reads slices and writes blocks.

    Batches of small files wait in `_pending` until a block is worth writing; only files that were read to
    their end wait there. A file larger than a block gets blocks of its own, which are taken back if it
    turns out damaged. `decoder`: set aside between two ranges of one compressed file; another range costs time only.
    """

    def __init__(
        self,
        task: RangeToTokenize,
        store: Store,
        segment: SegmentWriter,
        quarantine: QuarantineList,
        decoder: SetAside,
        isolation: Isolation | None,
        tell: Tell = untold,
    ) -> None:
        context = task.context
        self.poison_found: list[tuple[int, Poison]] = []
        self.segment = segment
        self.text_bytes = 0
        self.source_bytes = 0
        self._waiting_bytes = 0  # source bytes of batches that are read and not encoded
        self.samples = 0
        self.tokens = 0
        self._tell = tell
        self._decoder = decoder
        self._context: RunContext = context
        self._store = store
        self._dropped = {file: (outcome, detail) for file, outcome, detail in task.dropped}
        self._poison = task.poison
        self._quarantine = quarantine
        self._range_id = task.range_id
        self._room = task.room
        self._read = 0
        self._unusable = Counter[str]()  # of the slices that were read to their end
        self._options = ReadOptions.of(context.data)
        self._thresholds = context.streams.thresholds()
        self._pending: list[tuple[_Slice, DocumentBatch]] = []
        self._pending_size = 0
        tokenizer = self._tokenizer = _load_tokenizer(context)
        self.versions = describe_versions(tokenizer.libraries)
        require_same_tokenizer(store, context, tokenizer)
        engine, reference = _engines(tokenizer, context.engine, isolation)
        self._encoder = Encoder(
            engine=engine,
            reference=reference,
            vocab_size=tokenizer.vocab_size,
            delimiter_id=tokenizer.delimiter_id,
            position=context.delimiter_position,
            dtype=context.numpy_dtype,
            sample_one_in=context.sample_one_in,
            restore=tokenizer.restore,
            byte_lengths=tokenizer.byte_lengths,
            drop=tokenizer.drop,
        )

    def tokenize(self, number: int, source: FileSlice) -> _Slice:
        """Read one slice to its end, or drop its file."""
        n_streams = self.segment.n_streams
        if source.file in self._dropped:
            return _Slice(number, source, n_streams, *self._dropped[source.file])
        part = _Slice(number, source, n_streams)
        poison = {item.position: item for file, item in self._poison if file == source.file}
        mark = self.segment.mark()
        quarantine_mark = self._quarantine.mark()
        batches: list[DocumentBatch] = []
        size = 0
        try:
            for batch in read_without(source, self._options, lambda _: _open(source), poison, self._decoder):
                part.records += batch.records
                self.source_bytes += batch.source_bytes
                self._read += len(batch.texts) + len(batch.rejected)
                part.read_bytes += batch.source_bytes - batch.other_bytes
                if batch.texts:
                    self._waiting_bytes += batch.source_bytes
                self._tell_done()
                if batch.rejected:
                    self._quarantine.add(number, source, *batch.rejected)
                    part.quarantined.update(str(item.reason) for item in batch.rejected)
                    part.quarantined_bytes += sum(item.bytes for item in batch.rejected)
                    killing = (item for item in batch.rejected if item.reason == Reason.KILLS_WORKER)
                    part.poison.extend(poison[item.position] for item in killing)
                    self._require_room(part)
                if batch.texts:
                    batches.append(replace(batch, rejected=[]))  # they are on the list: not to be held
                    size += batch.source_bytes + _DOCUMENT_BYTES * len(batch.texts)
                if size >= BLOCK_BYTES:
                    if self._pending:
                        self.write_pending()
                        mark = self.segment.mark()
                    self._write([(part, batch) for batch in batches])
                    batches, size = [], 0
        except DamagedFile as damage:
            self.segment.drop_from(mark)
            self._quarantine.drop_from(quarantine_mark)
            self._waiting_bytes -= sum(batch.source_bytes for batch in batches)
            self._require_damaged_again(source, damage)
            return _Slice(number, source, n_streams, *self._record_verdict(source, damage))
        if part.quarantined:
            self._unusable += part.quarantined
        self._pending.extend((part, batch) for batch in batches)
        self._pending_size += size
        if self._pending_size >= BLOCK_BYTES or self.segment.mark() > mark:
            self.write_pending()
        return part

    def _require_room(self, part: _Slice) -> None:
        """Raise `TooManyUnusable` where the run cannot end well with what was found; the list of it is written."""
        if self._room is None or self._unusable.total() + part.quarantined.total() <= self._room:
            return
        digest = self._quarantine.store(self._store, self._context.epoch, self._range_id)
        raise TooManyUnusable(self._range_id, digest, self._read, self._unusable + part.quarantined)

    def _require_damaged_again(self, source: FileSlice, damage: DamagedFile) -> None:
        """Raise `TemporaryError` unless the file is damaged when it is read again, too.

        What was changed on its way here looks like a damaged file, and a verdict is for ever.
        """
        try:
            for _ in read_documents(source, self._options, lambda _: _open(source)):
                pass
        except DamagedFile as again:
            if again.outcome == damage.outcome:
                return
        raise TemporaryError(
            "StorageFailed",
            f"{source.uri}: looked damaged ({damage}), and was not, or in another way, when it was read again",
            next_step="start the same command again; if it stays so, check the disk or the network",
        )

    def _record_verdict(self, source: FileSlice, damage: DamagedFile) -> tuple[str, str]:
        """Write down that the file is damaged; the first writer's verdict is the one that counts."""
        verdict = {
            "file": source.file,
            "uri": source.uri,
            "outcome": damage.outcome,
            "offset": damage.offset,
            "detail": damage.detail,
        }
        found = create_record(self._store, layout.verdict_path(source.file), verdict)
        return found["outcome"], found["detail"]

    def write_pending(self) -> None:
        if self._pending:
            self._write(self._pending)
            self._pending, self._pending_size = [], 0

    def _write(self, batches: list[tuple[_Slice, DocumentBatch]]) -> None:
        """Encode batches of whole documents and append them to the segment, a block per stream."""
        texts = [text for _, batch in batches for text in batch.texts]
        positions = np.concatenate([batch.positions for _, batch in batches])
        owners = [part for part, batch in batches for _ in batch.texts]
        if not self._context.streams.by_hash:
            self._write_block(0, texts, positions, owners)
        else:
            empty = stream_of(b"", self._thresholds)
            streams = np.array([stream_of(text.encode(), self._thresholds) if text else empty for text in texts])
            for stream in range(self.segment.n_streams):
                chosen = np.flatnonzero(streams == stream).tolist()
                if chosen:
                    self._write_block(
                        stream, [texts[i] for i in chosen], positions[chosen], [owners[i] for i in chosen]
                    )
        self.text_bytes += count_bytes(texts)
        self._waiting_bytes -= sum(batch.source_bytes for _, batch in batches)
        self._tell_done()

    def _tell_done(self) -> None:
        """What is read and waits to be encoded is not done: one document may take minutes."""
        self._tell(self.source_bytes - self._waiting_bytes, self.tokens)

    def _write_block(self, stream: int, texts: list[str], positions: NDArray[np.int64], owners: list[_Slice]) -> None:
        encoded = self._encode(texts, positions, owners)
        if encoded is None:
            return
        tokens, lengths, samples = encoded
        self.samples += samples
        self.tokens += len(tokens)
        slices = np.array([part.number for part in owners], dtype=np.uint32)
        if owners[0] is owners[-1]:  # owners come in order: the whole block is of one slice
            start = owners[0].tokens_crc[stream]
            crc = self.segment.append(stream, tokens, lengths, positions, slices, crc_start=start)
            owners[0].count(stream, len(tokens), lengths, crc)
            return
        self.segment.append(stream, tokens, lengths, positions, slices)
        first_docs = np.flatnonzero(np.diff(slices, prepend=np.uint32(0xFFFFFFFF))).tolist()
        token_ends = np.cumsum(lengths, dtype=np.int64)
        for first, end in pairwise([*first_docs, len(slices)]):
            token_start = int(token_ends[first - 1]) if first else 0
            part = tokens[token_start : int(token_ends[end - 1])]
            crc = crc32c_of(part, start=owners[first].tokens_crc[stream])
            owners[first].count(stream, len(part), lengths[first:end], crc)

    def _encode(self, texts: list[str], positions: NDArray[np.int64], owners: list[_Slice]) -> EncodedDocuments | None:
        """The documents' tokens; None where some of them kill what encodes them, which have their verdicts then.

        Behind a document that kills, those that follow it are tried: the range is done once more anyway.
        """
        files = np.array([part.source.file for part in owners], dtype=np.int64)
        is_whole = True
        while texts:
            try:
                encoded = self._encoder.encode(texts, positions, files)
            except KillsEngine as kill:
                number = kill.document
                source, position = owners[number].source, int(positions[number])
                _open(source).close()  # a verdict is for ever: not one on a text that was never planned
                poison = record_poison(self._store, source, position, texts[number], kill.detail)
                self.poison_found.append((source.file, poison))
                texts, owners = texts[number + 1 :], owners[number + 1 :]
                positions, files = positions[number + 1 :], files[number + 1 :]
                is_whole = False
            except EngineMismatch as mismatch:
                number = mismatch.document
                uri, position = owners[number].source.uri, int(positions[number])
                epoch, engine, text = self._context.epoch, self._context.engine, texts[number]
                raise void_engine(
                    self._store, epoch, engine, mismatch, uri=uri, position=position, text=text
                ) from mismatch
            except LosesText as loss:
                number = loss.document
                where = f"the document of {owners[number].source.uri} at {int(positions[number]):,}"
                spec = self._context.data.tokenizer
                raise loses_text(spec, self._tokenizer, where, texts[number], loss.kept) from loss
            else:
                return encoded if is_whole else None
        return None


def _engines(tokenizer: Tokenizer, name: str, isolation: Isolation | None) -> tuple[Engine, Engine]:
    """The run's engine and the reference, which may be the same; in a process of their own where there is one."""
    engine, reference = engine_by_name(tokenizer, name), tokenizer.reference
    if isolation is None:
        return engine, reference
    isolated = isolation.engine(reference.name, Role.REFERENCE)
    return (isolated if engine is reference else isolation.engine(engine.name, Role.ENGINE)), isolated


def _load_tokenizer(context: RunContext) -> Tokenizer:
    """The run's tokenizer, provided that it still is: a worker that was not forked has read its file anew."""
    spec = context.data.tokenizer
    tokenizer = load_tokenizer(spec)
    if tokenizer.fingerprint != context.fingerprint:
        raise ChangedError(
            "TokenizerChanged",
            f"{spec.uri or spec.name} changed since the plan was made: its fingerprint was {context.fingerprint}, "
            f"is {tokenizer.fingerprint}",
            next_step="put that tokenizer back and start the same command again, or write to another output.uri",
        )
    return tokenizer


def _open(source: FileSlice) -> ByteReader:
    """The file's bytes, provided that it is still the file that was planned, untouched since this start has listed it.

    So every receipt of a start tells of the file as it was listed: it may be believed whatever becomes of the file.
    """
    planned = SourceFile(source.uri, source.size, source.version, source.pin, source.inode, source.ctime_ns)
    return open_as_listed(planned, "since this run listed it")
