"""Creates objects only where none exists: the one module that decides what a second writer may do.

Every durable object is written here. The first writer wins. A later writer compares its data with the existing object,
by a digest and never by reading the data again. Equal means that another writer did the same work. Different means that
two runs of the same job disagree: an error, which stops the run. Only `place` and `place_files` replace an object, one
version of it, where their caller has the right to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, Self, TypeVar

from tokenization_worker.errors import TemporaryError, TokenizationError
from tokenization_worker.formats.base import ByteSink
from tokenization_worker.output.object_metadata import record_metadata
from tokenization_worker.output.record import dump_record, load_record, parsing, require_plan
from tokenization_worker.storage.base import (
    MARK_ABSENT,
    Entry,
    NotFound,
    PreconditionFailed,
    Store,
    Upload,
)

_TRIES = 20
"""What another writer made and took back between two calls is met once or twice, never so often."""


class Disagreement(TokenizationError):
    """Two writers of one object produced different data: the job is not deterministic here."""


class Voided(TemporaryError):
    """This writer's epoch was voided: what it makes must not be seen."""


def create_bytes(store: Store, path: str, data: bytes, metadata: Mapping[str, str] | None = None) -> bool:
    """Create `path` with `data`; False where something is there already."""
    return create_chunks(store, path, (data,), metadata)


def create_chunks(store: Store, path: str, chunks: Iterable[bytes], metadata: Mapping[str, str] | None = None) -> bool:
    """`create_bytes` for what is never held whole."""
    try:
        with store.upload(path) as upload:
            for chunk in chunks:
                upload.write(chunk)
            upload.commit(metadata)
    except PreconditionFailed:
        return False
    return True


def create_or_read(store: Store, path: str, data: bytes, metadata: Mapping[str, str] | None = None) -> bytes | None:
    """Create `path` with `data` and return None, or return the data of the existing object."""
    for _ in range(_TRIES):
        if create_bytes(store, path, data, metadata):
            return None
        try:
            return store.read(path)
        except NotFound:
            continue  # removed between the two calls: try again
    raise _refused_for_nothing(store, path)


def create_record(store: Store, path: str, record: dict[str, Any]) -> dict[str, Any]:
    """Create a record, or return the one that is there: the first writer's word is final.

    Either way the result is what a reader of the file would get: plain JSON values.
    """
    mine = dump_record(record)
    found = create_or_read(store, path, mine, record_metadata(mine))
    with parsing(store.uri, path):
        return load_record(mine if found is None else found)


class Receipt(Protocol):
    """A record that says which part of it two writers must agree on."""

    @property
    def plan_id(self) -> str: ...
    def to_dict(self) -> dict[str, Any]: ...
    @classmethod
    def from_dict(cls, value: dict[str, Any], /) -> Self: ...
    def disagreement(self, other: Self, /) -> str | None: ...


R = TypeVar("R", bound=Receipt)


def find_receipt(store: Store, path: str, kind: type[R], plan_id: str) -> R | None:
    """The receipt at `path`, whichever writer of this plan wrote it; None where there is none."""
    try:
        data = store.read(path)
    except NotFound:
        return None
    with parsing(store.uri, path):
        record = load_record(data)
    with parsing(store.uri, path, is_whole=True):
        found = kind.from_dict(record)
    require_plan(store.uri, path, found.plan_id, plan_id)
    return found


def create_receipt(store: Store, path: str, receipt: R) -> R:
    """Create a receipt, or return the one that is there; raises `Disagreement` if their data differ."""
    record = create_record(store, path, receipt.to_dict())
    with parsing(store.uri, path, is_whole=True):
        found = type(receipt).from_dict(record)
    require_plan(store.uri, path, found.plan_id, receipt.plan_id)
    difference = receipt.disagreement(found)
    if difference is not None:
        raise Disagreement(
            "NotDeterministic",
            f"{store.uri}/{path}: two writers of the same task wrote different records: {difference}",
            next_step="this is a bug or broken hardware: please report it with both records",
        )
    return found


def place(
    store: Store,
    path: str,
    write: Callable[[ByteSink], None],
    *,
    is_same: Callable[[Entry], bool],
    allow_replace: Callable[[], None],
    require_current: Callable[[], None] = lambda: None,
    metadata: Mapping[str, str] | None = None,
) -> Entry:
    """`place_files` of one file: leave at `path` what `write` writes, and return its entry."""
    (entry,) = place_files(
        store,
        (path,),
        lambda sinks: write(sinks[0]),
        is_same=lambda _, found: is_same(found),
        allow_replace=lambda _: allow_replace(),
        require_current=require_current,
        metadata=metadata,
    )
    return entry


def place_files(
    store: Store,
    paths: Sequence[str],
    write: Callable[[Sequence[ByteSink]], None],
    *,
    is_same: Callable[[int, Entry], bool],
    allow_replace: Callable[[str], None],
    require_current: Callable[[], None] = lambda: None,
    metadata: Mapping[str, str] | None = None,
) -> tuple[Entry, ...]:
    """Leave at `paths` what `write` writes into sinks of the same order, and return their entries.

    Files become visible one after the other, **the last of `paths` first**: the main file is the first path, and is
    there only where the others are. A writer that is killed between two files leaves those that it had made. The next
    writer keeps each that `is_same(number, entry)` finds equal, and makes the others.

    `write` may be called again after a lost race. Something else at a path is replaced, that version and no other, if
    `allow_replace(path)` returns; it raises where this writer has no right to. `require_current` raises `Voided` where
    it may not even create: it is asked before the first file becomes visible, and again after the last, when all that
    this writer has made are taken back. So a later epoch must not rely on what a voided one has created: its `is_same`
    is never true.
    """
    files = [_Placed(path) for path in paths]
    try:
        while any(file.entry is None for file in files):
            with ExitStack() as uploads:
                for file in files:
                    if file.entry is None:
                        file.upload = uploads.enter_context(store.upload(file.path, expect=file.expect))
                write([_NOWHERE if file.entry is not None else file.upload for file in files])
                require_current()
                for number, file in reversed([*enumerate(files)]):
                    if file.entry is None and not file.commit(partial(is_same, number), metadata):
                        file.compare_with_other(store, partial(is_same, number), allow_replace)
                    if file.entry is None:
                        break  # a main file is not there before the others
        if any(file.is_made for file in files):
            require_current()
    except Voided:  # no other error: a run of the same epoch may rely on these files already
        for file in files:
            if file.is_made:
                file.upload.retract()
        raise
    return tuple(file.entry for file in files if file.entry is not None)


@dataclass(slots=True)
class _Placed:
    """A file that is being placed. `entry`: of the object that has the name at last; `is_made`: `upload` created it."""

    path: str
    expect: str = MARK_ABSENT
    entry: Entry | None = None
    is_made: bool = False
    tries: int = 0
    upload: Upload = field(init=False)

    def commit(self, is_same: Callable[[Entry], bool], metadata: Mapping[str, str] | None) -> bool:
        """Give the file its name; False where something else has it."""
        try:
            entry = self.upload.commit(metadata)
        except PreconditionFailed:
            return False
        self.is_made = self.upload.is_ours
        if self.is_made or is_same(entry):
            self.entry = entry
        return self.entry is not None

    def compare_with_other(
        self, store: Store, is_same: Callable[[Entry], bool], allow_replace: Callable[[str], None]
    ) -> None:
        """Take what has the name, if it is the same; otherwise expect it, to replace it."""
        found = store.stat(self.path)
        if found is None:
            self.tries += 1
            if self.tries == _TRIES:
                raise _refused_for_nothing(store, self.path)
            self.expect = MARK_ABSENT
            return
        if is_same(found):
            self.entry = found
            return
        allow_replace(self.path)
        self.expect = found.version


class _Nowhere:
    """Takes the bytes of a file that is there already."""

    def write(self, data: bytes | memoryview, /) -> None:
        """They are not needed again."""


_NOWHERE = _Nowhere()


def _refused_for_nothing(store: Store, path: str) -> TemporaryError:
    return TemporaryError(
        "StorageFailed",
        f'{store.uri}/{path}: create failed {_TRIES} times with "already exists", but the object does not exist',
        next_step="start the same command again; finished work is kept",
    )


def place_bytes(store: Store, path: str, data: bytes, *, allow_replace: Callable[[], None]) -> Entry:
    """`place` for small objects that every dataset has: the last writer that may replace them does."""
    return place(
        store,
        path,
        lambda upload: upload.write(data),
        is_same=lambda found: found.size == len(data) and store.read(path) == data,
        allow_replace=allow_replace,
    )
