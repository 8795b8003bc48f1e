"""The plan: ordered files with sizes and versions, cut into ranges. Frozen once written.

Held as arrays, because a corpus may have a million files and ranges. A **slice** is a part of one file; a
**range** is a run of consecutive slices. Slices follow the order of files, so ranges do too.

Bytes: magic, u64 header length, header (JSON), then the sections that the header lists: `files` (zstd JSONL
of uri, size, version, kind, and, where there are such, the commit in its repository and the group), the little-endian
arrays of `Cut`, and,
where files are local, `file_inode` and `file_ctime` (zstd, u64 and i64[n_files], 0 for a file in a store); at the end
the CRC32C of all that, u32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from sys import intern
from typing import Any

import google_crc32c
import numpy as np
import orjson
from numpy.typing import NDArray

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.errors import ChangedError
from tokenization_worker.messages.commands import tokjob
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_or_read
from tokenization_worker.output.naming import Naming, require_known_formats
from tokenization_worker.output.record import parsing
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.readers.document_batch import Compression, FileKind, FileSlice
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.storage.source_file import SourceFile

MAGIC = b"TOKPLAN2"
_ARRAYS = {
    "slice_file": "<i4",
    "slice_start": "<i8",
    "slice_end": "<i8",
    "range_slice": "<i8",
    "range_bytes": "<i8",
}


_STATES = {"file_inode": "<u8", "file_ctime": "<i8"}
"""How local files were when they were listed; plans of before they were recorded have none."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The files' slices and how they are grouped into ranges.

    `slice_file` i32[n_slices], `slice_start`, `slice_end` i64[n_slices] (end -1: to the end of the file),
    `range_slice` i64[n_ranges + 1]: range r is slices [range_slice[r], range_slice[r + 1]);
    `range_bytes` i64[n_ranges]: its stored bytes.
    """

    slice_file: NDArray[np.int32]
    slice_start: NDArray[np.int64]
    slice_end: NDArray[np.int64]
    range_slice: NDArray[np.int64]
    range_bytes: NDArray[np.int64]

    def digest(self) -> bytes:
        """Identifies the cut within a plan of the same files."""
        digest = sha256()
        for name, dtype in _ARRAYS.items():
            digest.update(getattr(self, name).astype(dtype).tobytes())
        return digest.digest()


@dataclass(frozen=True, slots=True)
class Scattering:
    """How a shuffled run scatters documents: a window of a stream has `window_tokens` tokens, and its documents go to
    `n_cells` cells by their keys. Neither decides a byte of the dataset.
    """

    window_tokens: int
    n_cells: int


@dataclass(frozen=True)
class Plan:
    """One per output. `data` is the canonical form that `data_key` digests (without the files).

    `asked`: the data fields as they were written, by dotted path, for messages alone; empty where an earlier version
    made the plan. `scattering`: None where documents stand in the order of the source.
    """

    plan_id: str
    data_key: str
    run_key: str
    data: dict[str, Any]
    files: tuple[SourceFile, ...]
    kinds: tuple[FileKind | None, ...]
    cut: Cut
    asked: dict[str, Any] = field(default_factory=dict)
    scattering: Scattering | None = None

    @property
    def n_ranges(self) -> int:
        return len(self.cut.range_slice) - 1

    @property
    def is_of_training(self) -> bool:
        """Whether a tokenizer is trained, and no dataset made."""
        return "training" in self.data

    def slices(self, range_id: int) -> tuple[FileSlice, ...]:
        """The slices of one range, in order."""
        first, last = self.cut.range_slice[range_id : range_id + 2].tolist()
        return tuple(self._slice(i) for i in range(first, last))

    def _slice(self, i: int) -> FileSlice:
        file = int(self.cut.slice_file[i])
        source = self.files[file]
        start, end = int(self.cut.slice_start[i]), int(self.cut.slice_end[i])
        return FileSlice(
            file,
            source.uri,
            source.size,
            source.version,
            start,
            end,
            self.kinds[file],
            source.pin,
            source.inode,
            source.ctime_ns,
        )

    def as_listed(self, files: Iterable[SourceFile]) -> Plan:
        """The plan with its local files as they are in a listing of now, which has the same sizes and versions."""
        now = {file.uri: file for file in files if file.ctime_ns}
        return replace(self, files=tuple(now.get(file.uri, file) for file in self.files)) if now else self

    def to_bytes(self) -> bytes:
        sections = {"files": zstd.compress(b"".join(self._file_lines()))}
        for name, dtype in _ARRAYS.items():
            sections[name] = getattr(self.cut, name).astype(dtype).tobytes()
        if any(file.ctime_ns for file in self.files):
            states = ([file.inode for file in self.files], [file.ctime_ns for file in self.files])
            for (name, dtype), values in zip(_STATES.items(), states, strict=True):
                sections[name] = zstd.compress(np.array(values, dtype=dtype).tobytes())
        header = orjson.dumps(
            {
                "planId": self.plan_id,
                "dataKey": self.data_key,
                "runKey": self.run_key,
                "data": self.data,
                "asked": self.asked,
                **({} if self.scattering is None else {"scattering": asdict(self.scattering)}),
                "sections": {name: len(data) for name, data in sections.items()},
            }
        )
        data = b"".join([MAGIC, len(header).to_bytes(8, "little"), header, *sections.values()])
        return data + _checksum(data)

    def _file_lines(self) -> Iterator[bytes]:
        for file, kind in zip(self.files, self.kinds, strict=True):
            names = None if kind is None else [kind.format, kind.compression]
            more = [file.pin, file.group] if file.group else [file.pin] if file.pin else []
            yield orjson.dumps([file.uri, file.size, file.version, names, *more]) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, uri: str) -> Plan:
        """The plan of the store at `uri`; raises `ChangedError` if these bytes are no plan of ours, and `DataError`
        if they were one."""
        if not MAGIC.startswith(data[:8]):
            raise ChangedError(
                "OutputConflict",
                f"{uri}/{layout.PLAN} is not a plan that this version can read",
                next_step="write to another output.uri, or move that file away",
            )
        with parsing(uri, layout.PLAN):
            plan = cls._parse(data)
            formats = () if plan.is_of_training else tuple(map(str, plan.data["output"]["formats"]))
        require_known_formats(formats, uri, layout.PLAN)
        return plan

    @classmethod
    def _parse(cls, data: bytes) -> Plan:
        data, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
        if checksum != _checksum(data):
            raise ValueError("its CRC32C does not match")
        header, position = _read_header(data)
        sections: dict[str, bytes] = {}
        for name, size in header["sections"].items():
            sections[name] = data[position : position + size]
            position += size
        if position != len(data):
            raise ValueError(f"expected {position:,} bytes, found {len(data):,}")
        rows = [orjson.loads(line) for line in _unpack(sections["files"]).splitlines()]
        arrays = {name: np.frombuffer(sections[name], dtype=dtype) for name, dtype in _ARRAYS.items()}
        states = [_states(sections.get(name), dtype, len(rows)) for name, dtype in _STATES.items()]
        return cls(
            plan_id=header["planId"],
            data_key=header["dataKey"],
            run_key=header["runKey"],
            data=header["data"],
            files=tuple(
                SourceFile(uri, size, version, more[0] if more else "", inode, ctime_ns, intern("".join(more[1:])))
                for (uri, size, version, _, *more), inode, ctime_ns in zip(rows, *states, strict=True)
            ),
            kinds=tuple(None if names is None else _kind(*names) for _, _, _, names, *_ in rows),
            cut=Cut(**arrays),
            asked=header.get("asked", {}),
            scattering=Scattering(**header["scattering"]) if "scattering" in header else None,
        )


def read_plan(store: Store) -> Plan | None:
    """The plan of a job at an output, or None; raises what `Plan.from_bytes` raises, and for one of a training."""
    plan = read_any_plan(store)
    if plan is not None and plan.is_of_training:
        raise ChangedError(
            "OutputConflict",
            f"{store.uri} holds an unfinished training of a tokenizer",
            next_step="write to another output.uri; or, if you do not want the training, remove it with: "
            f"{tokjob('clean', store.uri)}",
        )
    return plan


def read_any_plan(store: Store) -> Plan | None:
    """The plan at an output, of a job or a training, or None; raises what `Plan.from_bytes` raises."""
    try:
        return Plan.from_bytes(store.read(layout.PLAN), store.uri)
    except NotFound:
        return None


def write_plan(store: Store, plan: Plan) -> Plan:
    """Write the plan, or return the one that another start wrote first."""
    found = create_or_read(store, layout.PLAN, plan.to_bytes())
    return plan if found is None else Plan.from_bytes(found, store.uri)


_CHECKSUM_BYTES = 4


def _checksum(data: bytes) -> bytes:
    number: int = google_crc32c.value(data)
    return number.to_bytes(_CHECKSUM_BYTES, "little")


def _read_header(data: bytes) -> tuple[dict[str, Any], int]:
    """The header and its end."""
    end = 16 + int.from_bytes(data[8:16], "little")
    return dict(orjson.loads(data[16:end])), end


def read_naming(data: bytes) -> Naming | None:
    """The naming of a plan, also of one whose end is lost; None where it cannot be told."""
    try:
        return Naming.planned(_read_header(data)[0]["data"])
    except (ValueError, KeyError, TypeError):
        return None


def _unpack(section: bytes) -> bytes:
    try:
        return zstd.decompress(section)
    except zstd.ZstdError as error:
        raise ValueError(str(error)) from error


def _states(section: bytes | None, dtype: str, n_files: int) -> list[int]:
    """A number for each file; zeros where the plan has none."""
    if section is None:
        return [0] * n_files
    values: list[int] = np.frombuffer(_unpack(section), dtype=dtype).tolist()
    return values


def _kind(source_format: str, compression: str) -> FileKind:
    return FileKind(SourceFormat(source_format), Compression(compression))
