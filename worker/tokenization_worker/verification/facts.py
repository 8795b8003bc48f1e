"""The claims of a dataset about itself, in the form that the checks use. Each claim is checked.

Reads the index and the tables of shards and files with code of its own; `claims` has the values. A **stream** is the
run of tokens that documents are written into one after the other: the only one of a dataset whose splits are leading
shards, or one of each split whose documents were chosen by hash.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import orjson

from tokenization_worker.api.data import PARTS, LongDocuments, Packing, Scope, SourceFormat, TokenizerSpec
from tokenization_worker.output import layout
from tokenization_worker.output.index import Index
from tokenization_worker.readers.document_batch import FileOutcome
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.tokenizers.recorded import recorded_spec
from tokenization_worker.verification.assignment import claimed_hash_ends
from tokenization_worker.verification.claims import (
    ClaimedFile,
    FileClaim,
    PackingClaim,
    SequenceClaim,
    ShardClaim,
    ShuffleClaim,
    Shuffled,
    SourceRules,
    SplitClaim,
)
from tokenization_worker.verification.formats.registry import decoder_of
from tokenization_worker.verification.report import Fault, Finding

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

_DTYPES: dict[str, np.dtype[np.unsignedinteger]] = {"UInt16": np.dtype("<u2"), "UInt32": np.dtype("<u4")}

Rows = list[dict[str, Any]]

PARTS_SUFFIX = ".npy"

CrashDigests = dict[int, str]
"""Of a file's documents that kill their worker: position -> SHA-256 of the text."""


class Unreadable(Exception):
    """The index or a table cannot be used; `finding` says which and why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything about the dataset but its files; small enough to be sent to every process.

    `shard_tokens`: those of a full shard, with padding. `sequence`: None where the tokens are one run.
    `crash_verdicts`: the documents that kill their worker, by file. `hash_ends`: as `assignment` has them.
    `path_groups`: the groups in paths, each of which has streams of its own, one after the other.
    """

    uri: str
    rules: SourceRules
    tokenizer: TokenizerSpec
    fingerprint: str
    vocab_size: int
    begin_id: int | None
    end_id: int | None
    dtype: np.dtype[np.unsignedinteger]
    shard_tokens: int
    sequence: SequenceClaim | None
    shuffle: ShuffleClaim | None
    formats: tuple[str, ...]
    path_template: str
    splits: tuple[SplitClaim, ...]
    streams: tuple[tuple[ShardClaim, ...], ...]
    crash_verdicts: Mapping[str, CrashDigests]
    hash_ends: Mapping[str, int]
    path_groups: tuple[str, ...]

    @property
    def delimiter_ids(self) -> tuple[int, ...]:
        """Those that there are: the one before every document, and the one after it."""
        return tuple(token for token in (self.begin_id, self.end_id) if token is not None)

    @property
    def templates(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Of each format: the template of its shards' paths, and the suffixes of their files; last those of parts."""
        of_tokens = tuple(
            (layout.template_of(self.path_template, name, among=len(self.formats)), decoder_of(name).suffixes)
            for name in self.formats
        )
        if self.sequence is None:
            return of_tokens
        of_parts = layout.template_of(self.path_template, PARTS, among=len(self.formats) + 1)
        return (*of_tokens, (of_parts, (PARTS_SUFFIX,)))

    @property
    def is_reordered(self) -> bool:
        """Whether tokens stand in another order than in the source."""
        return self.shuffle is not None or (self.sequence is not None and self.sequence.packing is not None)

    @property
    def are_packed_rows_shuffled(self) -> bool:
        """Whether the source alone says how documents were packed."""
        return self.shuffle is not None and self.sequence is not None and self.sequence.packing is not None

    @property
    def row_length(self) -> int:
        """0 where the tokens are one run."""
        return 0 if self.sequence is None else self.sequence.length

    @property
    def column_length(self) -> int:
        """Tokens of a row, where rows are shuffled and a token's place in the stream says where in a row it is; else
        0."""
        by_row = self.shuffle is not None and self.shuffle.by_row
        return self.row_length if by_row and self.sequence is not None and self.sequence.packing is None else 0

    @property
    def longest_document(self) -> int | None:
        """Tokens of a document, delimiters included, behind which it is cut off; None where it is written whole."""
        packing = None if self.sequence is None else self.sequence.packing
        return self.row_length if packing is not None and packing.truncates else None

    @property
    def thresholds(self) -> tuple[int, ...]:
        """Upper ends, floor(cumulative share * 2**64), of all streams but the last."""
        total = Fraction(0)
        ends = []
        for split in self.splits[:-1]:
            total += split.share or 0
            ends.append(int(total * 2**64))
        return tuple(ends) if self.streams_of_files > 1 else ()

    @property
    def streams_of_files(self) -> int:
        """How many streams the documents of one file may be in."""
        return len(self.streams) // max(1, len(self.path_groups))


def read_table(store: Store, path: str) -> Rows:
    """The rows of a `.jsonl.zst` table; raises `Unreadable`."""
    try:
        data = zstd.decompress(store.read(path))
        return [dict(orjson.loads(line)) for line in data.splitlines()]
    except NotFound as error:
        raise Unreadable(Finding(Fault.TABLE_MISSING, "a table", "nothing", path)) from error
    except (zstd.ZstdError, ValueError, TypeError) as error:
        raise Unreadable(Finding(Fault.TABLE_CORRUPT, "zstd around JSON lines", str(error), path)) from error


def read_facts(store: Store, index: Index, shard_rows: Rows) -> Facts:
    """What index and shards table say; raises `Unreadable` where something is missing in them."""
    try:
        return _facts(store.uri, index, shard_rows)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError) as error:
        path = f"{layout.INDEX}, {layout.SHARDS_TABLE}"
        problem = f"{type(error).__name__}: {error}"
        raise Unreadable(Finding(Fault.TABLE_CORRUPT, "all fields", problem, path)) from error


def read_files(facts: Facts, rows: Rows) -> list[FileClaim]:
    """The files table's rows with their places in the streams; raises `Unreadable`."""
    files: list[FileClaim] = []
    nothing = (0,) * facts.streams_of_files
    starts, first_stream = nothing, 0
    step = facts.sequence.length if facts.sequence is not None and facts.sequence.by_file else 1  # of files' starts
    try:
        for number, row in enumerate(rows):
            outcome = str(FileOutcome(row["outcome"]))
            is_read = outcome == FileOutcome.READ
            documents = _counts(row["documents"], len(nothing)) if is_read else nothing
            tokens = _counts(row["tokens"], len(nothing)) if is_read else nothing
            quarantined = int(row["quarantined"]) if is_read else 0
            place = (str(row["uri"]), int(row["size"]), str(row["version"]))
            pin = str(row.get("pin", ""))
            sizes = [
                None if (size := row.get(name)) is None else int(size) for name in ("readBytes", "quarantinedBytes")
            ]
            sizes = sizes if is_read else [0, 0]
            group = str(row.get("group", ""))
            if (group or facts.hash_ends) and group not in facts.hash_ends:
                raise ValueError(f"the dataset has no group {group!r}")
            left_out = int(row["leftOut"]) if is_read and group else 0
            stream = facts.path_groups.index(group) * len(nothing) if facts.path_groups else 0
            if stream < first_stream:
                raise ValueError(f"the group {group!r} does not stand where the dataset lists it")
            if stream > first_stream:
                starts, first_stream = nothing, stream
            claim = FileClaim(number, *place, outcome, documents, tokens, starts, quarantined, pin, sizes[0], sizes[1])
            truncated: tuple[int, ...] = ()
            if facts.longest_document is not None:
                truncated = _counts(row["truncatedTokens"], len(nothing)) if is_read else nothing
            claim = replace(claim, group=group, left_out=left_out, first_stream=first_stream, truncated=truncated)
            files.append(claim)
            ends = tuple(start + count for start, count in zip(starts, tokens, strict=True))
            starts = tuple(end + -end % step for end in ends)
    except (KeyError, TypeError, ValueError) as error:
        problem = f"row {number + 1}: {type(error).__name__}: {error}"
        raise Unreadable(Finding(Fault.TABLE_CORRUPT, "all fields", problem, layout.FILES_TABLE)) from error
    return files


def _crash_verdicts(index: Index) -> dict[str, CrashDigests]:
    found: dict[str, CrashDigests] = {}
    for entry in index["run"].get("poison", ()):
        found.setdefault(str(entry["uri"]), {})[int(entry["position"])] = str(entry["sha256"])
    return found


def _counts(value: Any, n_streams: int) -> tuple[int, ...]:
    counts = tuple(int(count) for count in value)
    if len(counts) != n_streams or min(counts) < 0:
        raise ValueError(f"expected {n_streams} counts, found {value}")
    return counts


def _facts(uri: str, index: Index, shard_rows: Rows) -> Facts:
    data, tokenizer = index["data"], index["tokenizer"]
    source, output = data["source"], data["output"]
    begin_id, end_id = _delimiters(data["tokenizer"]["delimiter"])
    separator = source["documentSeparator"]
    splits = tuple(
        SplitClaim(item["name"], item["shards"], None if item["share"] is None else Fraction(item["share"]))
        for item in output["splits"]
    )
    formats = tuple(_text({"formats": name}, "formats") for name in output["formats"])
    template = layout.template_of(output["path"], formats[0], among=len(formats))
    layout.shard_path(template, "", split="", index=0, shard=0)  # raises where it is no template
    for name in formats:
        decoder_of(name)  # raises for a format that this version does not have
    sequence = _sequence(output)
    path_groups = tuple(claimed_hash_ends(source)) if "{group}" in output["path"] else ()
    _text(output, "dtype"), _text(data["tokenizer"], "fingerprint")  # compared with what the index says elsewhere
    return Facts(
        uri=uri,
        rules=SourceRules(
            format=SourceFormat(source["format"]),
            text_field=source["textField"],
            separator=None if separator is None else separator.encode(),
            max_document_bytes=data["documents"]["maxBytes"],
        ),
        tokenizer=recorded_spec(index),
        fingerprint=tokenizer["fingerprint"],
        vocab_size=_count(tokenizer, "vocabularySize"),
        begin_id=begin_id,
        end_id=end_id,
        dtype=_DTYPES[index["dtype"]],
        shard_tokens=_shard_tokens(output["shards"], sequence),
        sequence=sequence,
        shuffle=_shuffle(output),
        formats=formats,
        path_template=output["path"],
        splits=splits,
        streams=_streams(splits, path_groups, formats, sequence, shard_rows),
        crash_verdicts=_crash_verdicts(index),
        hash_ends=claimed_hash_ends(source),
        path_groups=path_groups,
    )


def _delimiters(claimed: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The ids before and after every document: a pair of them, or one with its position."""
    if "begin" in claimed or "end" in claimed:
        return _count(claimed, "begin"), _count(claimed, "end")
    before_after = {"Before": (True, False), "After": (False, True), "None": (False, False)}
    before, after = before_after[_text(claimed, "position")]
    token = _count(claimed, "id") if before or after else None
    if token is None and claimed["id"] is not None:
        raise ValueError(f"id is {claimed['id']!r}, and its position None")
    return token if before else None, token if after else None


def _sequence(output: Mapping[str, Any]) -> SequenceClaim | None:
    if "sequence" not in output:
        return None
    rows = output["sequence"]
    is_best_fit = Packing(rows["packing"]) is Packing.BEST_FIT
    length, packing = _positive(rows, "length"), None
    shuffle = _shuffle(output)
    if is_best_fit:
        most = _positive(rows, "maxDocuments") if "maxDocuments" in rows else None
        window = _count(output["shards"], "sequences") * length if shuffle is None else None
        truncates = LongDocuments(rows.get("longDocuments", "Split")) is LongDocuments.TRUNCATE
        packing = PackingClaim(window, most, truncates)
    shuffled = Shuffled.NOTHING if shuffle is None else Shuffled.ROWS if shuffle.by_row else Shuffled.DOCUMENTS
    by_file = Scope(rows["scope"]) is Scope.FILE
    return SequenceClaim(length, by_file, _count(rows, "pad"), shuffled, packing)


def _shuffle(output: Mapping[str, Any]) -> ShuffleClaim | None:
    if "shuffle" not in output:
        return None
    unit = output["shuffle"]["unit"]
    if unit not in ("Document", "Row"):
        raise ValueError(f"the unit of the shuffle is {unit!r}, expected 'Document' or 'Row'")
    return ShuffleClaim(_count(output["shuffle"], "seed"), unit == "Row")


def _shard_tokens(shards: Mapping[str, Any], sequence: SequenceClaim | None) -> int:
    return _count(shards, "tokens") if sequence is None else _count(shards, "sequences") * sequence.length


def _streams(
    splits: tuple[SplitClaim, ...],
    groups: tuple[str, ...],
    formats: tuple[str, ...],
    sequence: SequenceClaim | None,
    rows: Rows,
) -> tuple[tuple[ShardClaim, ...], ...]:
    """The shards of each stream in the order of groups in paths, splits and numbers within them."""
    order = {split.name: number for number, split in enumerate(splits)}
    group_order = {name: number for number, name in enumerate(groups or ("",))}
    by_hash = len(splits) > 1 and splits[0].share is not None
    n_streams = len(splits) if by_hash else 1
    streams: list[list[ShardClaim]] = [[] for _ in range(n_streams * len(group_order))]

    def place(row: dict[str, Any]) -> tuple[int, int, int]:
        return group_order[row.get("group", "")], order[row["split"]], row["index"]

    for row in sorted(rows, key=place):
        group, split, _ = place(row)
        stream = group * n_streams + (split if by_hash else 0)
        shards = streams[stream]
        n_rows = 0 if sequence is None else _positive(row, "rows")
        tokens = _count(row, "tokens")
        shards.append(
            ShardClaim(
                stream=stream,
                start=shards[-1].end if shards else 0,
                split=row["split"],
                index=_count(row, "index"),
                tokens=tokens,
                stored=tokens if sequence is None else n_rows * sequence.length,
                rows=n_rows,
                documents=_count(row, "documents"),
                files=_files_of(row, formats, has_parts=sequence is not None),
                documents_sha256=_text(row, "documentsSha256") if sequence is None else "",
                group=row.get("group", ""),
                number=len(shards),
                text_start=shards[-1].text_start + shards[-1].tokens if shards else 0,
            )
        )
    return tuple(tuple(shards) for shards in streams)


def _files_of(row: Mapping[str, Any], formats: tuple[str, ...], *, has_parts: bool) -> tuple[ClaimedFile, ...]:
    """The files of a shard: of an only file the row says nothing but its fields; `formats` are those of the job."""
    main = _file_of(row, formats[0])
    if "files" not in row and not has_parts:
        return (main,)
    files = tuple(_file_of(file, _text(file, "format")) for file in row["files"])
    if len(files) < 2 or files[0] != main:
        raise ValueError(f"the files of {main.path} do not begin with the shard itself")
    if [file.format == PARTS for file in files] != [False] * (len(files) - 1) + [has_parts]:
        raise ValueError(f"the file of the parts of {main.path} must be its last one if it has rows, and else none")
    return files


def _file_of(row: Mapping[str, Any], format: str) -> ClaimedFile:
    sums = (_text(row, "crc32c"), _text(row, "sha256"))
    return ClaimedFile(format, _text(row, "path"), _count(row, "bytes"), *sums)


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, expected a text")
    return value


def _count(row: Mapping[str, Any], name: str) -> int:
    value = row[name]
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise TypeError(f"{name} is {value!r}, expected a number")
    return value


def _positive(row: Mapping[str, Any], name: str) -> int:
    if not (value := _count(row, name)):
        raise ValueError(f"{name} is 0")
    return value
