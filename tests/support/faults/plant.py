"""Plants faults into a finished dataset so well that only the source can tell.

A `Planter` knows every document of a dataset as a correct run writes it. A fault changes that list; `write` then
makes everything anew that is derived from it: shards, sidecars, receipts, tables, counts, checksums, digests and
the index. Without a fault it writes back what was there, byte for byte, which a test holds it to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import orjson
import pyarrow.parquet as pq

from support.format_oracle import FOLDER_INDEXES, SUFFIXES, files_of, folder_index_of
from support.shuffle_oracle import key
from tokenization_worker.api.data import SourceFormat, SplitSpec
from tokenization_worker.api.keys import data_key
from tokenization_worker.formats.sidecar import ScatteredDocuments, ShardDocuments
from tokenization_worker.output import layout
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.output.record import dump_record, load_record
from tokenization_worker.output.tables import key_of_row
from tokenization_worker.planning.groups.shares import is_in_share
from tokenization_worker.planning.splits import ShardName, Streams, stream_of
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.readers.document_batch import CorruptFileError, FileSlice, ReadOptions
from tokenization_worker.readers.open import read_documents
from tokenization_worker.storage.local.upload import version_of
from tokenization_worker.storage.open import open_store
from tokenization_worker.storage.sources import open_source
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.verification.facts import Facts, read_facts, read_table

Row = dict[str, Any]


@dataclass(frozen=True)
class Document:
    """A document in its stream; `place` is what a finding must name. `rest`: its tokens that are not written."""

    file: int
    uri: str
    position: int
    stream: int
    tokens: tuple[int, ...]
    rest: tuple[int, ...] = ()

    @property
    def place(self) -> tuple[str, int]:
        return self.uri, self.position


class Planter:
    """A dataset below `output`, open for forgery. `documents`: all that are written, in the order of the dataset;
    `left_out`: those that the shares of groups leave out.

    `altered`: by format and number of the shard in its stream, the tokens that this format alone has there.
    """

    def __init__(self, output: Path) -> None:
        self.output = output
        self.altered: dict[tuple[str, int], np.ndarray[Any, Any]] = {}
        self.index: Row = orjson.loads((output / layout.INDEX).read_bytes())
        self.files = self._read_table(layout.FILES_TABLE)
        self.quarantine = self._read_table(layout.QUARANTINE_TABLE)
        store = open_store(str(output))
        self.facts: Facts = read_facts(store, self.index, read_table(store, layout.SHARDS_TABLE))
        self._streams = Streams(tuple(SplitSpec(split.name, split.shards, split.share) for split in self.facts.splits))
        self.documents: list[Document] = []
        self.left_out: list[Document] = []
        for number, row in enumerate(self.files):
            for document, text in self._documents_of(number, row):
                end = self.facts.hash_ends.get(row.get("group", ""), 1 << 64)
                (self.documents if is_in_share(text.encode(), end) else self.left_out).append(document)
        if self.facts.shuffle is not None and not self.facts.shuffle.by_row:
            self.sort(self.facts.shuffle.seed)
        self._usable = Counter(document.file for document in (*self.documents, *self.left_out))

    def sort(self, seed: int) -> None:
        """Put the documents in the order of a shuffle."""
        self.documents.sort(key=lambda document: key(seed, document.file, document.position))

    def _read_table(self, path: str) -> list[Row]:
        return [orjson.loads(line) for line in zstd.decompress((self.output / path).read_bytes()).splitlines()]

    def _documents_of(self, number: int, row: Row) -> list[tuple[Document, str]]:
        uri = row["uri"]
        groups = self.facts.path_groups
        first = groups.index(row["group"]) * self._streams.count if groups else 0
        rules, facts = self.facts.rules, self.facts
        options = ReadOptions(rules.format, rules.text_field, rules.separator, rules.max_document_bytes)
        engine = load_tokenizer(facts.tokenizer).reference
        begin, end = ([] if token is None else [token] for token in (facts.begin_id, facts.end_id))
        thresholds = self._streams.thresholds() if self._streams.by_hash else []
        documents = []
        try:
            for batch in read_documents(FileSlice(number, uri, Path(uri).stat().st_size, ""), options, open_source):
                for text, position in zip(batch.texts, batch.positions.tolist(), strict=True):
                    ids = engine.encode([text]).ids.tolist()
                    tokens = begin + ids + end
                    stream = first + stream_of(text.encode(), thresholds)
                    longest = facts.longest_document or len(tokens)
                    kept, rest = tuple(tokens[:longest]), tuple(tokens[longest:])
                    documents.append((Document(number, uri, position, stream, kept, rest), text))
        except CorruptFileError:
            return []
        return documents

    def in_stream(self, stream: int) -> list[Document]:
        return [document for document in self.documents if document.stream == stream]

    def start_of(self, document: Document) -> tuple[str, int]:
        """The shard that holds the document's first token, and which of its tokens that is."""
        start = 0
        for other in self.in_stream(document.stream):
            if other is document:
                number, token = divmod(start, self.facts.shard_tokens)
                return self._shard_path(document.stream, number), token
            start += len(other.tokens)
        raise ValueError(f"{document} is not in its stream")

    def _shard_path(self, stream: int, number: int) -> str:
        return self._file_paths(stream, number)[0][1]

    def _name(self, stream: int, number: int) -> ShardName:
        """Of a shard; what is planted in a dataset with groups in paths leaves no group another number of shards."""
        group, of_group = divmod(stream, self._streams.count)
        before = sum(map(len, self.facts.streams[: group * self._streams.count]))
        name = self.facts.path_groups[group] if self.facts.path_groups else ""
        return self._streams.name_shard(of_group, number, name, before)

    def _file_paths(self, stream: int, number: int) -> list[tuple[str, str]]:
        """Format and path of each file of a shard."""
        name = self._name(stream, number)
        numbers = {"split": name.split, "index": name.index, "shard": name.shard, "group": name.group}
        kinds = self.facts.formats if self.facts.sequence is None else (*self.facts.formats, "Parts")
        return [
            (format, layout.shard_path(template, suffix, **numbers))  # type: ignore[arg-type]
            for format, (template, _) in zip(kinds, self.facts.templates, strict=True)
            for suffix in SUFFIXES.get(format, [".npy"])
        ]

    def write(self) -> None:
        """Make the dataset anew from `documents`, `files` and `quarantine`."""
        shard_rows: list[Row] = []
        for row in self._read_table(layout.SHARDS_TABLE):
            for file in row.get("files", [row]):
                (self.output / file["path"]).unlink()
            if "documentsSha256" in row:
                (self.output / layout.documents_path(*key_of_row(row))).unlink()
        for stream in range(len(self.facts.streams)):
            shard_rows += self._write_stream(stream)
        self._count_files()
        self._write_receipts(shard_rows)
        folders = self._write_folder_indexes(shard_rows)
        self._write_table(layout.SHARDS_TABLE, shard_rows)
        self._write_table(layout.FILES_TABLE, self.files)
        self._write_table(layout.QUARANTINE_TABLE, self.quarantine)
        self._write_index(shard_rows, folders)

    def _write_stream(self, stream: int) -> list[Row]:
        documents = [document for document in self.in_stream(stream) if document.tokens]
        tokens = np.array([token for document in documents for token in document.tokens], dtype=self.facts.dtype)
        ends = np.cumsum([len(document.tokens) for document in documents])
        rows = []
        for number, start in enumerate(range(0, len(tokens), self.facts.shard_tokens)):
            name = self._name(stream, number)
            part = tokens[start : start + self.facts.shard_tokens]
            end = start + len(part)
            first = int(np.searchsorted(ends, start, side="right"))
            last = int(np.searchsorted(ends, end, side="left"))
            borders = [start, *ends[first:last].tolist(), end]
            skipped = start - (int(ends[first - 1]) if first else 0)
            sidecar = self._sidecar_of(documents[first : last + 1], borders, skipped, continues=int(ends[last]) > end)
            sidecar_path = self.output / layout.documents_path(*name.key)
            sidecar_path.write_bytes(sidecar)
            files = self._write_files(stream, number, part, np.diff(borders).tolist())
            main = {key: value for key, value in files[0].items() if key != "format"}
            rows.append(
                {
                    "split": name.split,
                    "index": name.index,
                    **({"group": name.group} if name.group else {}),
                    "path": main.pop("path"),
                    "tokens": len(part),
                    "documents": len(borders) - 1 - (skipped > 0),
                    **main,
                    "documentsSha256": sha256(sidecar).hexdigest(),
                }
                | ({"files": files} if len(files) > 1 else {})
            )
        return rows

    def _sidecar_of(self, documents: list[Document], borders: list[int], skipped: int, *, continues: bool) -> bytes:
        lengths = np.diff(borders).astype(np.uint32)
        begun = len(lengths) - (skipped > 0)
        if self.facts.shuffle is None:
            file, position = documents[0].file, documents[0].position
            return ShardDocuments(lengths, begun, file, position, skipped, continues).to_bytes()
        files = np.array([document.file for document in documents], np.uint32)
        positions = np.array([document.position for document in documents], np.int64)
        return ScatteredDocuments(lengths, begun, skipped, continues, files, positions).to_bytes()

    def _write_files(
        self,
        stream: int,
        number: int,
        tokens: np.ndarray[Any, Any],
        lengths: list[int],
        beside: Sequence[bytes] = (),
        places: Sequence[Sequence[int]] = (),
    ) -> list[Row]:
        """Write a shard's files, the ones in every format and those `beside`; what the shards table says of each.

        `places`: of the first token of each row."""
        index = self._name(stream, number).index
        contents = [
            data
            for format in self.facts.formats
            for data in files_of(format, self._tokens_of(format, number, tokens), lengths, number=index, places=places)
        ]
        contents += beside
        rows = []
        for (format, path), data in zip(self._file_paths(stream, number), contents, strict=True):
            (self.output / path).parent.mkdir(parents=True, exist_ok=True)
            (self.output / path).write_bytes(data)
            sums = {"crc32c": f"{google_crc32c.value(data):08x}", "sha256": sha256(data).hexdigest()}
            rows.append({"format": format, "path": path, "bytes": len(data), **sums})
        return rows

    def _tokens_of(self, format: str, number: int, tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        tokens = self.altered.get((format, number), tokens)
        return tokens if format == "Npy" else tokens.reshape(-1)

    def _count_files(self) -> None:
        for number, row in enumerate(self.files):
            if row["outcome"] != "Read":
                row.update(read=None, documents=None, tokens=None, quarantined=None)
                row |= {"truncatedTokens": None} if "truncatedTokens" in row else {}
                continue
            mine = [document for document in self.documents if document.file == number]
            streams = self._streams_of(mine)
            row["documents"] = [len(documents) for documents in streams]
            row["tokens"] = [sum(len(document.tokens) for document in documents) for documents in streams]
            row["quarantined"] = sum(item["uri"] == row["uri"] for item in self.quarantine)
            row["read"] = len(mine) + row["quarantined"]
            if "truncatedTokens" in row:
                row["truncatedTokens"] = [sum(len(document.rest) for document in documents) for documents in streams]
            if self.facts.hash_ends:
                row["leftOut"] = self._usable[number] - len(mine)
                row["read"] += row["leftOut"]

    def _streams_of(self, documents: list[Document]) -> list[list[Document]]:
        """The documents of one file in each stream of its group."""
        count = self._streams.count
        return [[document for document in documents if document.stream % count == stream] for stream in range(count)]

    def _write_receipts(self, shard_rows: list[Row]) -> None:
        """Ranges: what each slice gave. Shards: what was written."""
        plan = Plan.from_bytes((self.output / layout.PLAN).read_bytes(), str(self.output))
        for range_id in range(plan.n_ranges):
            path = self.output / layout.range_receipt_path(0, range_id)
            receipt = load_record(path.read_bytes())
            for item, piece in zip(receipt["slices"], plan.slices(range_id), strict=True):
                mine = [d for d in self.documents if d.file == piece.file and _is_inside(d.position, piece)]
                streams = self._streams_of(mine)
                item["docs"] = [len(documents) for documents in streams]
                item["tokens"] = [sum(len(d.tokens) for d in documents) for documents in streams]
                crcs = [_checksums(documents, self.facts.dtype) for documents in streams]
                quarantined = sorted(item["quarantined"].items())
                counts = [
                    item["tokens"],
                    item["docs"],
                    [tokens for tokens, _ in crcs],
                    [lengths for _, lengths in crcs],
                ]
                if "leftOut" in item:
                    left_out = [d for d in self.left_out if d.file == piece.file and _is_inside(d.position, piece)]
                    item["leftOut"] = len(left_out)
                more = [item["leftOut"]] if "leftOut" in item else []
                if "truncated" in item:
                    item["truncated"] = [sum(len(d.rest) for d in documents) for documents in streams]
                    more.append(item["truncated"])
                item["digest"] = sha256(orjson.dumps([*counts, item["records"], quarantined, *more])).hexdigest()[:32]
            digests = [(i, item["digest"]) for i, item in enumerate(receipt["slices"]) if item["outcome"] == "Read"]
            receipt["segment_digest"] = sha256(orjson.dumps(digests)).hexdigest()[:32]
            _write_record(path, receipt)
        kept = set()
        for row in shard_rows:
            path = self.output / layout.shard_receipt_path(0, *key_of_row(row))
            receipt = load_record(path.read_bytes()) if path.exists() else {}
            receipt.update(
                split=row["split"],
                index=row["index"],
                path=row["path"],
                tokens=row["tokens"],
                documents=row["documents"],
                bytes=row["bytes"],
                crc32c=int(row["crc32c"], 16),
                sha256=row["sha256"],
                documents_sha256=row.get("documentsSha256", ""),
                version=version_of((self.output / row["path"]).stat()),
                **({"rows": row["rows"]} if "rows" in row else {}),
                **({"group": row["group"]} if "group" in row else {}),
            )
            if "files" in row:
                receipt["files"] = [
                    file
                    | {"crc32c": int(file["crc32c"], 16), "version": version_of((self.output / file["path"]).stat())}
                    for file in row["files"]
                ]
            _write_record(path, receipt)
            kept.add(path)
        for path in (self.output / layout.LEDGER / "0/shards").rglob("*.json"):
            if path not in kept:
                path.unlink()

    def _count_group(self, name: str, shard_rows: list[Row]) -> Row:
        files = [row for row in self.files if row["group"] == name]
        read = [row for row in files if row["outcome"] == "Read"]
        entry = {
            "name": name,
            "files": len(files),
            "filesDropped": len(files) - len(read),
            "documents": sum(sum(row["documents"]) for row in read),
            "bytes": sum(row["readBytes"] for row in read),
            "tokens": sum(sum(row["tokens"]) for row in read),
            "quarantined": sum(row["quarantined"] for row in read),
            "leftOut": sum(row["leftOut"] for row in read),
        }
        if self.facts.path_groups:
            entry["splits"] = []
            for split in self.facts.splits:
                mine = [row for row in shard_rows if (row["group"], row["split"]) == (name, split.name)]
                sums = {field: sum(row[field] for row in mine) for field in ("documents", "tokens")}
                entry["splits"].append({"name": split.name, **sums, "shards": len(mine)})
        return entry

    def _write_table(self, path: str, rows: Sequence[Row]) -> None:
        options = {zstd.CompressionParameter.checksum_flag: 1}
        compressor = zstd.ZstdCompressor(options=options)  # as a stream, whose frame does not say how long it is
        parts = [compressor.compress(_json_lines([row])) for row in rows]
        (self.output / path).write_bytes(b"".join([*parts, compressor.flush()]))

    def _write_folder_indexes(self, shard_rows: list[Row]) -> list[Row]:
        """What the index says of them."""
        folders: dict[tuple[str, str], list[tuple[str, int, int]]] = {}
        for row in shard_rows:
            for file in row.get("files", ()):
                if file["format"] in FOLDER_INDEXES:
                    folder, _, name = file["path"].rpartition("/")
                    folders.setdefault((file["format"], folder), []).append((name, file["bytes"], row["rows"]))
        entries = []
        for (format, folder), shards in folders.items():
            path = f"{folder}/{FOLDER_INDEXES[format]}"
            data = folder_index_of(format, shards)
            (self.output / path).write_bytes(data)
            entries.append({"format": format, "path": path, "bytes": len(data), "sha256": sha256(data).hexdigest()})
        return entries

    def _write_index(self, shard_rows: list[Row], folders: list[Row]) -> None:
        written = len(self.documents)
        reasons = [row["reason"] for row in self.quarantine]
        outcomes = [row["outcome"] for row in self.files]
        content = {key: value for key, value in self.index.items() if key not in ("digest", "dataKey", "run")}
        content["tokens"] = sum(row["tokens"] for row in shard_rows)
        if "truncatedTokens" in content:
            content["truncatedTokens"] = sum(sum(row["truncatedTokens"] or []) for row in self.files)
        content["conservation"] = {
            "read": written + len(reasons),
            "written": written,
            "quarantined": {reason: reasons.count(reason) for reason in sorted(set(reasons))},
            "files": {"Read": outcomes.count("Read")}
            | {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes) - {"Read"})},
        }
        if self.facts.hash_ends:
            content["conservation"]["leftOut"] = sum(row["leftOut"] or 0 for row in self.files)
            content["conservation"]["read"] += content["conservation"]["leftOut"]
            content["groups"] = [self._count_group(name, shard_rows) for name in self.facts.hash_ends]
        if folders:
            content["folderIndexes"] = folders
        content["splits"] = []
        for split in self.facts.splits:
            mine = [row for row in shard_rows if row["split"] == split.name]
            sums = {name: sum(row[name] for row in mine) for name in ("documents", "tokens")}
            digest = sha256(_json_lines(mine)).hexdigest()
            content["splits"].append({"name": split.name, **sums, "shards": len(mine), "digest": digest})
            if self.facts.sequence is not None:
                length, n_rows = self.facts.sequence.length, sum(row["rows"] for row in mine)
                padding = n_rows * length - sums["tokens"]
                content["splits"][-1]["sequences"] = {"length": length, "rows": n_rows, "padding": padding}
        nameless = {key: value for key, value in content["tokenizer"].items() if key != "name"}
        digest = sha256(_canonical(content | {"tokenizer": nameless}))
        digest.update(_json_lines(shard_rows) + _json_lines(self.quarantine))
        files = [(row["uri"], row["size"], row["version"], row.get("group", "")) for row in self.files]
        identity = {"digest": digest.hexdigest(), "dataKey": data_key(self.index["data"], files)}
        rows = _json_lines(self.files)
        read = [row for row in self.files if row["outcome"] == "Read"]
        sums = {name: sum(row[name] for row in read) for name in ("readBytes", "quarantinedBytes")}
        run = self.index["run"] | sums | {"filesDigest": sha256(rows).hexdigest()}
        run.pop("checksum")
        index = content | identity | {"run": run}
        run["checksum"] = f"{google_crc32c.value(_canonical(index)):08x}"
        (self.output / layout.INDEX).write_bytes(_canonical(index))


def _is_inside(position: int, piece: FileSlice) -> bool:
    if piece.kind is not None and piece.kind.format is SourceFormat.PARQUET:
        metadata = pq.ParquetFile(piece.uri).metadata
        ends = np.cumsum([0, *(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))])
        return bool(ends[piece.start] <= position < ends[piece.end])
    return piece.start <= position and (piece.end < 0 or position < piece.end)


def _checksums(documents: list[Document], dtype: np.dtype[np.unsignedinteger]) -> tuple[int, int]:
    """CRC32C of the documents' tokens, and of their lengths."""
    tokens = np.array([token for document in documents for token in document.tokens], dtype=dtype)
    lengths = np.array([len(document.tokens) for document in documents], dtype=np.uint32)
    return google_crc32c.value(tokens.tobytes()), google_crc32c.value(lengths.tobytes())


def _write_record(path: Path, record: Row) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(dump_record(record))


def _canonical(value: Row) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


def _json_lines(rows: Sequence[Row]) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)
