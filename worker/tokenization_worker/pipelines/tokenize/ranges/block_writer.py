"""Writes batches of documents as blocks of a segment: streams, tokens, checksums.

Verdicts on documents that crash the tokenizer and on the engine are written where they are found.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.errors import ChangedError
from tokenization_worker.formats.segment import SegmentWriter, crc32c_of
from tokenization_worker.output.ledger.crash_verdicts import record_crash_verdict
from tokenization_worker.output.ledger.epochs import void_engine
from tokenization_worker.output.versions import describe_versions
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.ranges.encode import EncodedDocuments, Encoder, LosesText, count_bytes
from tokenization_worker.pipelines.tokenize.ranges.slice_counts import SliceCounts
from tokenization_worker.pipelines.tokenize.ranges.tokenizer_check import require_same_tokenizer
from tokenization_worker.pipelines.tokenize.ranges.truncate import truncate_documents
from tokenization_worker.planning.lossless_check import loses_text
from tokenization_worker.planning.planned_source import open_planned
from tokenization_worker.planning.splits import stream_of
from tokenization_worker.readers.document_batch import CrashVerdict, DocumentBatch
from tokenization_worker.storage.base import Store
from tokenization_worker.tokenizers.base import Engine, EngineMismatch, KillsEngine, Tokenizer
from tokenization_worker.tokenizers.checks.engine_check import engine_by_name
from tokenization_worker.tokenizers.isolation.engine_process import Role
from tokenization_worker.tokenizers.isolation.supervisor import Isolation
from tokenization_worker.tokenizers.load import load_tokenizer


class BlockWriter:
    """Encodes documents with the run's engine and appends them to `segment`.

    `isolation`: the engines are in a process of their own; documents that crash it are in `verdicts_found` then, with
    their files, and the segment lacks them and others. `text_bytes`, `tokens`, `samples`: of all that was written.
    """

    def __init__(self, context: RunContext, store: Store, segment: SegmentWriter, isolation: Isolation | None) -> None:
        self.segment = segment
        self.verdicts_found: list[tuple[int, CrashVerdict]] = []
        self.text_bytes = 0
        self.samples = 0
        self.tokens = 0
        self._context = context
        self._store = store
        self._thresholds = context.streams.thresholds()
        self._longest = context.data.output.longest_document
        tokenizer = self._tokenizer = _load_tokenizer(context)
        self.versions = describe_versions(tokenizer.libraries)
        require_same_tokenizer(store, context, tokenizer)
        engine, reference = _engines(tokenizer, context.engine, isolation)
        self._encoder = Encoder(
            engine=engine,
            reference=reference,
            vocab_size=tokenizer.vocab_size,
            delimiters=tokenizer.delimiters,
            dtype=context.numpy_dtype,
            sample_one_in=context.sample_one_in,
            restore=tokenizer.restore,
            byte_lengths=tokenizer.byte_lengths,
            drop=tokenizer.drop,
            normalize=tokenizer.normalize,
        )

    def write(self, batches: list[tuple[SliceCounts, DocumentBatch]]) -> None:
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

    def _write_block(
        self, stream: int, texts: list[str], positions: NDArray[np.int64], owners: list[SliceCounts]
    ) -> None:
        encoded = self._encode(texts, positions, owners)
        if encoded is None:
            return
        tokens, lengths, samples = encoded
        self.samples += samples
        truncated = None
        if self._longest is not None and lengths.max(initial=0) > self._longest:
            tokens, lengths, truncated = truncate_documents(tokens, lengths, self._longest)
        self.tokens += len(tokens)
        slices = np.array([part.number for part in owners], dtype=np.uint32)
        if owners[0] is owners[-1]:  # owners come in order: the whole block is of one slice
            start = owners[0].tokens_crc[stream]
            crc = self.segment.append(stream, tokens, lengths, positions, slices, crc_start=start)
            owners[0].count(stream, len(tokens), lengths, crc, 0 if truncated is None else int(truncated.sum()))
            return
        self.segment.append(stream, tokens, lengths, positions, slices)
        first_docs = np.flatnonzero(np.diff(slices, prepend=np.uint32(0xFFFFFFFF))).tolist()
        token_ends = np.cumsum(lengths, dtype=np.int64)
        for first, end in pairwise([*first_docs, len(slices)]):
            token_start = int(token_ends[first - 1]) if first else 0
            part = tokens[token_start : int(token_ends[end - 1])]
            crc = crc32c_of(part, start=owners[first].tokens_crc[stream])
            not_written = 0 if truncated is None else int(truncated[first:end].sum())
            owners[first].count(stream, len(part), lengths[first:end], crc, not_written)

    def _encode(
        self, texts: list[str], positions: NDArray[np.int64], owners: list[SliceCounts]
    ) -> EncodedDocuments | None:
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
                open_planned(source).close()  # a verdict is for ever: not one on a text that was never planned
                verdict = record_crash_verdict(self._store, source, position, texts[number], kill.detail)
                self.verdicts_found.append((source.file, verdict))
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
