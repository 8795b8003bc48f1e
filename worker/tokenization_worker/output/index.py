"""The index, the final description of a dataset: reads and checks it. It exists only if the run succeeded.

`run` inside it says how this execution went (keys, engine, versions); everything else is the same for
every execution of the same job, whatever its processes, ranges, engine or crashes. `run.checksum` is of the
whole index, so that a flipped digit never becomes an answer; an index without one is older than the checksum.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

import orjson

from tokenization_worker.api.data import OutputFormat, has_packed_rows
from tokenization_worker.errors import ChangedError, DataError, SpecError
from tokenization_worker.messages.counts import counted
from tokenization_worker.output import layout
from tokenization_worker.output.record import CHECKSUM, dump_json, parsing, record_checksum
from tokenization_worker.output.recovery import advise_index
from tokenization_worker.output.versions import join_versions
from tokenization_worker.storage.base import NotFound, Store

_FORMAT_VERSIONS = (1, 2, 3)
"""1: datasets without rows and groups, with at most one delimiter, whose only format is Npy; 3: shuffled ones, and
those whose rows are packed by best fit; 2: all others. Programs before 0.3.0 cannot check 2 and 3."""

TRAINING_KIND = "TokenizerTraining"
"""The kind of an index that is none of a dataset."""

UNKNOWN_VERSIONS = "unknown"
"""In `run.rangesByVersions`, of ranges that an older version of this program tokenized."""


class IndexDelimiters(TypedDict):
    """What stands around documents: `delimiterId`, None where there is none; or None and two others, where there are
    both.
    """

    delimiterId: int | None
    beginId: NotRequired[int]
    endId: NotRequired[int]


class IndexTokenizer(IndexDelimiters):
    """The tokenizer of a dataset."""

    name: str
    fingerprint: str
    vocabularySize: int


class IndexSequences(TypedDict):
    """The rows of a split: how many tokens each has, how many there are, and how many of their tokens are padding."""

    length: int
    rows: int
    padding: int


class IndexSplit(TypedDict):
    """A split: its documents, tokens and shards, and the SHA-256 of its rows in the shards table.

    `sequences` only where the tokens are in rows; `tokens` are those of documents.
    """

    name: str
    documents: int
    tokens: int
    shards: int
    digest: str
    sequences: NotRequired[IndexSequences]


class IndexFolder(TypedDict):
    """A file that lists the shards of its folder for the readers of a format."""

    format: str
    path: str
    bytes: int
    sha256: str


class Conservation(TypedDict):
    """What became of all documents (`quarantined`: by reason; `leftOut`: by the shares of groups, only where there are
    groups) and of all files (by outcome)."""

    read: int
    written: int
    quarantined: dict[str, int]
    files: dict[str, int]
    leftOut: NotRequired[int]


class IndexGroupSplit(TypedDict):
    """What a group has of a split."""

    name: str
    documents: int
    tokens: int
    shards: int


class IndexGroup(TypedDict):
    """A named group of source files. `documents`: written; `bytes`: of the documents read; `filesDropped`: of its
    `files`, those that are corrupt. Read are documents + quarantined + leftOut. `splits` only where groups are in
    paths."""

    name: str
    files: int
    filesDropped: int
    documents: int
    bytes: int
    tokens: int
    quarantined: int
    leftOut: int
    splits: NotRequired[list[IndexGroupSplit]]


class IndexContent(TypedDict):
    """What is the same for every execution of a job. `truncatedTokens`: of long documents, not written; only where the
    job truncates them."""

    formatVersion: int
    keyVersion: int
    data: dict[str, Any]
    tokenizer: IndexTokenizer
    dtype: str
    splits: list[IndexSplit]
    conservation: Conservation
    tokens: int
    truncatedTokens: NotRequired[int]
    groups: NotRequired[list[IndexGroup]]
    folderIndexes: NotRequired[list[IndexFolder]]


class IndexRun(TypedDict):
    """How the execution went. Older versions of this program did not write the fields that are not required."""

    runKey: str
    textBytes: int
    planId: NotRequired[str]
    epoch: NotRequired[int]
    engine: NotRequired[str]
    documentsCompared: NotRequired[int]
    readBytes: NotRequired[int | None]
    quarantinedBytes: NotRequired[int | None]
    libraries: NotRequired[dict[str, str]]
    rangesByVersions: NotRequired[dict[str, int]]
    tokenizer: NotRequired[dict[str, Any]]
    asked: NotRequired[dict[str, Any]]
    epochs: NotRequired[list[dict[str, Any]]]
    poison: NotRequired[list[dict[str, Any]]]
    filesDigest: NotRequired[str]
    checksum: NotRequired[str]


class Index(IndexContent):
    """index.json (docs/layout.md)."""

    digest: str
    dataKey: str
    run: IndexRun


_NUMBER, _TEXT, _OBJECT, _LIST, _NOTHING = int, str, dict, list, type(None)
_Kinds = tuple[type, ...]

_FIELDS: dict[tuple[str, ...], _Kinds] = {
    ("dataKey",): (_TEXT,),
    ("digest",): (_TEXT,),
    ("dtype",): (_TEXT,),
    ("tokens",): (_NUMBER,),
    ("tokenizer", "name"): (_TEXT,),
    ("tokenizer", "fingerprint"): (_TEXT,),
    ("tokenizer", "vocabularySize"): (_NUMBER,),
    ("tokenizer", "delimiterId"): (_NUMBER, _NOTHING),
    ("conservation", "read"): (_NUMBER,),
    ("conservation", "written"): (_NUMBER,),
    ("conservation", "quarantined"): (_OBJECT,),
    ("conservation", "files", "Read"): (_NUMBER,),
    ("data", "output", "splits"): (_LIST,),
    ("run", "runKey"): (_TEXT,),
    ("run", "textBytes"): (_NUMBER,),
    ("splits",): (_LIST,),
}
_SPLIT: dict[tuple[str, ...], _Kinds] = {
    ("name",): (_TEXT,),
    ("documents",): (_NUMBER,),
    ("tokens",): (_NUMBER,),
    ("shards",): (_NUMBER,),
    ("digest",): (_TEXT,),
}
"""What readers of an index rely on: kinds of its fields, and of those of each of its splits."""


def dump_index(index: Index) -> bytes:
    """The bytes of index.json, with the checksum of these fields in them."""
    return dump_json({**index, "run": {**index["run"], CHECKSUM: checksum_of(index)}})


def load_index(data: bytes) -> Index:
    """The index that `dump_index` has just made these bytes of: nothing is checked."""
    return cast(Index, orjson.loads(data))


def checksum_of(index: Index) -> str:
    """CRC32C, as 8 hexadecimal digits, of the index without its checksum, as JSON with sorted keys and a line feed."""
    run = {key: value for key, value in index["run"].items() if key != CHECKSUM}
    return record_checksum({**index, "run": run})


def checksum_in(index: Index) -> str | None:
    """The checksum that an index holds; None in one that was written before there was one."""
    return index["run"].get("checksum")


class ForeignIndex(ChangedError):
    """Another program wrote the `index.json` at an output."""


class HoldsTraining(ForeignIndex):
    """A training of a tokenizer is at an output, and no dataset."""


def is_of_training(data: bytes) -> bool:
    """Whether these are the bytes of a training's index."""
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return isinstance(fields, dict) and fields.get("kind") == TRAINING_KIND


def read_own_index(store: Store) -> Index | None:
    """`read_index` for a command that is given an output to look at: raises `SpecError` for an index of others."""
    try:
        return read_index(store)
    except ForeignIndex as error:
        raise not_own(error) from error


def not_own(error: ForeignIndex) -> SpecError:
    """The error of a command that is given an output to look at, and finds the index of another program."""
    return SpecError("NotAnOutput", error.message, next_step=_CHECK_THE_PATH)


_CHECK_THE_PATH = "check the path: it must be the output.uri of a job"


def format_version(data: Mapping[str, Any]) -> int:
    """The version of the layout of a dataset with these canonical data fields."""
    output = data["output"]
    if "shuffle" in output or has_packed_rows(output):
        return 3
    is_first = output["formats"] == [OutputFormat.NPY] and "sequence" not in output and "groups" not in data["source"]
    return 1 if is_first and "begin" not in data["tokenizer"]["delimiter"] else 2


def read_index(store: Store) -> Index | None:
    """The index at `store`, or None where nothing is committed; raises `DataError` if it is not as it was written."""
    try:
        data = store.read(layout.INDEX)
    except NotFound:
        return None
    if is_of_training(data):
        raise HoldsTraining(
            "OutputConflict",
            f"{store.uri} holds the training of a tokenizer, no dataset",
            next_step="write to another output.uri",
        )
    try:
        with parsing(store.uri, layout.INDEX, advise=lambda: advise_index(store)):
            index = orjson.loads(data)
            version = index["formatVersion"]
    except DataError as error:
        if any(store.stat(path) is not None for path in (layout.PLAN, layout.SHARDS_TABLE, layout.COUNTS)):
            raise  # the index is ours
        raise ForeignIndex(
            "OutputConflict",
            f"{store.uri}/{layout.INDEX} was not written by this program",
            next_step="write to another output.uri",
        ) from error
    if version not in _FORMAT_VERSIONS:
        raise ChangedError(
            "OutputConflict",
            f"{store.uri}/{layout.INDEX} has format version {version}; this program reads versions up to "
            f"{_FORMAT_VERSIONS[-1]}",
            next_step="use the version of this program that wrote it",
        )
    with parsing(store.uri, layout.INDEX, advise=lambda: advise_index(store)):
        _require_fields(index)
        expected = checksum_in(index)
        if expected not in (None, found := checksum_of(index)):
            raise ValueError(f"its checksum is {expected}, of its fields {found}")
    return cast(Index, index)


def _require_fields(index: dict[str, Any]) -> None:
    """Raise `KeyError`, `TypeError` or `ValueError` where a field is missing or of another kind."""
    _require_kinds(index, _FIELDS, "")
    if index["dtype"] not in ("UInt16", "UInt32"):
        raise ValueError(f"dtype is {index['dtype']!r}, expected UInt16 or UInt32")
    for name in ("beginId", "endId"):
        if name in index["tokenizer"]:
            _require_kind(index["tokenizer"][name], (_NUMBER,), f"tokenizer.{name}")
    for reason, count in index["conservation"]["quarantined"].items():
        _require_kind(count, (_NUMBER,), f"conservation.quarantined.{reason}")
    for number, split in enumerate(index["splits"]):
        _require_kinds(split, _SPLIT, f"splits[{number}].")
    for name in index["data"]["output"]["formats"]:
        _require_kind(name, (_TEXT,), "data.output.formats[]")
    for split in index["data"]["output"]["splits"]:
        _require_kind(split["share"], (_TEXT, _NOTHING), "data.output.splits[].share")
    if not index["splits"] or len(index["splits"]) != len(index["data"]["output"]["splits"]):
        raise ValueError(f"it has {len(index['splits'])} splits, {len(index['data']['output']['splits'])} in its data")


def _require_kinds(value: Any, fields: dict[tuple[str, ...], _Kinds], where: str) -> None:
    for names, kinds in fields.items():
        found = value
        for name in names:
            found = found[name]
        _require_kind(found, kinds, where + ".".join(names))


def _require_kind(value: object, kinds: _Kinds, name: str) -> None:
    if type(value) not in kinds:
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} is of type {type(value).__name__}, expected {expected}")


def require_index(store: Store) -> Index:
    """The index at `store`; raises `SpecError("NotADataset")`, naming what it found instead."""
    index = read_own_index(store)
    if index is not None:
        return index
    if store.stat(layout.PLAN) is not None:
        done = sum(layout.is_range_receipt(entry.path) for entry in store.list(layout.LEDGER))
        there = f"an unfinished run: a plan and the receipts of {counted(done, 'range')}"
        next_step = "start its job again, which continues where it stopped; tokjob status shows its progress"
    else:
        there = foreign_content(store) or "nothing"
        next_step = "check the path: it must be the output.uri of a finished job"
        root = store.local_path("")
        if root is not None and not root.exists():
            raise SpecError("NotADataset", f"{store.uri} does not exist{near_folder(root)}", next_step=next_step)
        if root is not None and (output := _output_above(root)) is not None:
            next_step = f"give the folder of the dataset: {output}"
    raise SpecError("NotADataset", f"{store.uri} has no {layout.INDEX}; found {there}", next_step=next_step)


def not_an_output(store: Store) -> SpecError:
    """What to raise where a command needs an output and there is neither index nor plan."""
    there = foreign_content(store)  # raises where there is no such bucket
    root = store.local_path("")
    if there == FOREIGN_FILES:
        words = "has files, but no run of tokjob"
    elif there is not None:
        words = f"is {there}"
    elif root is not None and not root.exists():
        words = f"does not exist{near_folder(root)}"
    else:
        words = "is empty"
    return SpecError("NotAnOutput", f"{store.uri} {words}", next_step=_CHECK_THE_PATH)


def near_folder(root: Path) -> str:
    """`; did you mean out?`, where a folder beside `root`, which does not exist, has nearly its name."""
    try:
        names = [each.name for each in root.parent.iterdir() if each.is_dir()]
    except OSError:
        return ""
    near = difflib.get_close_matches(root.name, names, n=1)
    return f"; did you mean {root.parent / near[0]}?" if near else ""


def _output_above(root: Path) -> Path | None:
    """The nearest folder above `root` that holds an index beside what is ours."""
    return next((each for each in root.parents if (each / layout.INDEX).is_file()), None)


FOREIGN_FILES = "files, but none that tokjob wrote"


def foreign_content(store: Store) -> str | None:
    """What is at a place with neither index nor plan, in words; None where it is empty but for leftovers of ours."""
    root = store.local_path("")
    if root is not None and root.is_file():
        return "a file"
    for parent in root.parents if root is not None and root.exists() else ():
        if (parent / layout.OWN).is_dir():
            return f"a part of {parent}, which is an output"
    if any(not entry.path.startswith(layout.OWN) for entry in store.list()):
        return FOREIGN_FILES
    return None


def recorded_versions(index: Index) -> tuple[str, ...]:
    """The versions of libraries that wrote the dataset, those of the most ranges first; () where the index has none.

    An index from before ranges had versions has those of the libraries of its tokenizer.
    """
    run = index["run"]
    if "rangesByVersions" in run:
        ranges: dict[str, int] = run["rangesByVersions"]
        return tuple(sorted(ranges.keys() - {UNKNOWN_VERSIONS}, key=lambda versions: (-ranges[versions], versions)))
    libraries: dict[str, str] = run.get("libraries") or {}
    return (join_versions(libraries),) if libraries else ()


def trusted_runs(store: Store, index: Index, run_key: str) -> frozenset[str]:
    """The keys of runs whose dataset this is: of the one that wrote it, and `run_key` if it has verified it since."""
    keys = {str(index["run"]["runKey"])}
    if run_key not in keys and store.stat(layout.rerun_path(run_key)) is not None:
        keys.add(run_key)
    return frozenset(keys)
