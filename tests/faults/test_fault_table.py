"""Every call to the cloud store times every fault: the right bytes or the right error, within the retry budget.

Here are the operations of stores and sources; `test_fault_runs` has whole runs. A cell is one operation in which one
call goes wrong once. What must come of it is a table, too (`expected`), and whatever it is, nothing is half there,
nobody else's object has changed, and the same operation again succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import google_crc32c
import pytest

from support.stores.fault_proxy import ALWAYS, APPLIES, SURVIVED, Fault, FaultProxy, What, faults_of, serve_faults
from support.stores.gcs_emulator import gcs_host, make_bucket
from support.stores.gcs_rules import Call
from support.stores.quick_gcs import CHUNK_BYTES, PATIENCE_S, SHORT_TIMEOUT_S, quick_gcs, quick_retry
from support.stores.storage_contract import put
from tokenization_worker.errors import TemporaryError
from tokenization_worker.storage.base import NotFound, PreconditionFailed
from tokenization_worker.storage.gcs.source import GcsSource
from tokenization_worker.storage.gcs.store import GcsStore
from tokenization_worker.storage.patterns import Pattern

__all__ = ["gcs_host"]

# The client library leaves the connection of a download that failed to the garbage collector.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

BUDGET_S = 5.0
"""Far more than one fault takes."""

SHORT_BUDGET_S = 0.1
MOST_TRIES = 14
"""With the short budget; the product's own allows thousands."""

SMALL, OLD, FOREIGN = b"what is written" * 40, b"what was there before", b"somebody else's"
LARGE = bytes(range(256)) * (CHUNK_BYTES // 256) * 2 + b"and the rest"


@dataclass
class World:
    """One cell's part of the bucket: everything is below `prefix`, `a` is what operations are about."""

    proxy: FaultProxy
    bucket: str
    prefix: str
    store: GcsStore
    source: GcsSource
    versions: dict[str, str] = field(default_factory=dict)

    def put(self, path: str, data: bytes) -> None:
        self.versions[path] = self.proxy.service.put(self.bucket, f"{self.prefix}/{path}", data)

    def content(self, path: str) -> bytes | None:
        return self.proxy.service.content(self.bucket, f"{self.prefix}/{path}")

    def uri(self, path: str) -> str:
        return f"gs://{self.bucket}/{self.prefix}/{path}"


Act = Callable[[World], object]


@dataclass(frozen=True)
class Operation:
    """`act` is what meets the fault, `calls` what it asks of the service, `right` its result where all goes well.

    `before`, `after`: what is at `a` before and, where it succeeds, after it.
    """

    act: Act
    calls: tuple[Call, ...]
    right: Callable[[World], object] = lambda world: None
    before: bytes | None = None
    after: bytes | None = None
    is_refused: bool = False


def _list(world: World) -> object:
    return sorted(entry.path for entry in world.store.list("listed/"))


def _stat(path: str) -> Act:
    def act(world: World) -> object:
        entry = world.store.stat(path)
        return None if entry is None else (entry.size, entry.crc32c, entry.version)

    return act


def _read_nothing(world: World) -> None:
    with pytest.raises(NotFound):
        world.store.read("none")


def _write(data: bytes, expect: Callable[[World], str] = lambda world: "") -> Act:
    def act(world: World) -> object:
        entry = put(world.store, "a", data, expect(world))
        assert (entry.size, entry.crc32c) == (len(data), google_crc32c.value(data))
        return None

    return act


def _write_and_retract(world: World) -> None:
    with world.store.upload("a") as upload:
        upload.write(SMALL)
        upload.commit()
        upload.retract()


def _abandon(world: World) -> None:
    with world.store.upload("a") as upload:
        upload.write(LARGE)


def _read_source(world: World) -> object:
    file, stream = world.source.open(world.uri("a"))
    parts = []
    while part := stream.read(100_000):
        parts.append(part)
    return file.size, b"".join(parts)


def _delete(version: Callable[[World], str | None]) -> Act:
    return lambda world: world.store.delete("a", version=version(world))


def _version(world: World) -> str:
    return world.versions["a"]


def _facts(data: bytes) -> Callable[[World], object]:
    return lambda world: (len(data), google_crc32c.value(data), _version(world))


SIMPLE = (Call.UPLOAD,)
RESUMABLE = (Call.STAT, Call.START, Call.CHUNK, Call.CHUNK, Call.LAST)

OPERATIONS: dict[str, Operation] = {
    "list": Operation(_list, (Call.LIST,), lambda world: ["listed/1", "listed/2"]),
    "stat": Operation(_stat("a"), (Call.STAT,), _facts(OLD), OLD, OLD),
    "stat-nothing": Operation(_stat("none"), (Call.STAT,)),
    "read": Operation(lambda world: world.store.read("a"), (Call.READ,), lambda world: LARGE, LARGE, LARGE),
    "read-nothing": Operation(_read_nothing, (Call.READ,)),
    "read-range": Operation(
        lambda world: world.store.read_range("a", 7, 90_000), (Call.RANGE,), lambda w: LARGE[7:90_000], LARGE, LARGE
    ),
    "create": Operation(_write(SMALL), SIMPLE, after=SMALL),
    "replace": Operation(_write(SMALL, _version), SIMPLE, before=OLD, after=SMALL),
    "create-over-another": Operation(_write(SMALL), (*SIMPLE, Call.STAT), before=FOREIGN, is_refused=True),
    "create-large": Operation(_write(LARGE), RESUMABLE, after=LARGE),
    "replace-large": Operation(_write(LARGE, _version), RESUMABLE, before=OLD, after=LARGE),
    "create-large-over-another": Operation(_write(LARGE), (Call.STAT, Call.STAT), before=FOREIGN, is_refused=True),
    "abandon-large": Operation(_abandon, (*RESUMABLE[:4], Call.CANCEL)),
    "delete": Operation(_delete(lambda world: None), (Call.STAT, Call.DELETE), before=OLD),
    "delete-version": Operation(_delete(_version), (Call.STAT, Call.DELETE), before=OLD),
    "delete-another-version": Operation(_delete(lambda w: "1"), (Call.STAT,), before=FOREIGN, after=FOREIGN),
    "retract": Operation(_write_and_retract, (Call.UPLOAD, Call.DELETE)),
    "source-list": Operation(
        lambda world: sorted(file.uri for file in world.source.list(Pattern.parse(world.uri("listed/")))),
        (Call.LIST,),
        lambda world: [world.uri("listed/1"), world.uri("listed/2")],
    ),
    "source-is-folder": Operation(
        lambda world: world.source.is_folder(world.uri("listed")), (Call.LIST,), lambda world: True
    ),
    "source-stat": Operation(
        lambda world: world.source.stat(world.uri("a")) is not None, (Call.STAT,), lambda world: True, OLD, OLD
    ),
    "source-read": Operation(
        _read_source, (Call.STAT, Call.RANGE), lambda world: (len(LARGE), LARGE), before=LARGE, after=LARGE
    ),
}


class Cell(NamedTuple):
    operation: str
    fault: Fault

    def __str__(self) -> str:
        return f"{self.operation}-{self.fault}".replace(" ", "_")


def make_cells() -> list[Cell]:
    """Every call of every operation, times every fault that can befall it, before and after where that differs."""
    cells = []
    for name, operation in OPERATIONS.items():
        seen: dict[Call, int] = {}
        for call in operation.calls:
            seen[call] = seen.get(call, 0) + 1
            for what, after in faults_of(call):
                if what is not What.WRONG_CRC or not (operation.is_refused or name == "read-nothing"):
                    cells.append(Cell(name, Fault(what, call, seen[call], after=after)))
    return cells


CELLS = make_cells()

RIGHT, ERROR, REFUSED, STALE, WRONG = "right", "error", "refused", "stale", "wrong"

UNPROTECTED = {
    ("read-range", Call.RANGE, What.FLIPPED): "no checksum comes with a range; segments, its users, carry their own",
}
"""Cells in which wrong bytes come out, and why: what holds today, so that a cell that gets better is moved."""


def expected(cell: Cell) -> str:
    """What must come of a cell."""
    what, call = cell.fault.what, cell.fault.call
    if (cell.operation, call, what) in UNPROTECTED:
        return WRONG
    if cell.operation == "read-nothing":  # the library reads what a refusal says outside of its retry
        return ERROR if what in (What.STALLED, What.CUT, What.PRECONDITION) else RIGHT
    if call is Call.CANCEL or what in SURVIVED:
        return RIGHT
    if what in (What.MISSING, What.GHOST):  # a store says what it is told; runs show what comes of it
        return RIGHT if cell.operation == "source-is-folder" else STALE
    if what is What.PRECONDITION:
        return _expected_of_412(call, cell.fault.after, is_abandoned=cell.operation == "abandon-large")
    if what is What.WRONG_CRC and call is Call.RANGE:
        return RIGHT  # the header is about the whole object
    if what is What.WRONG_CRC and call in (Call.UPLOAD, Call.LAST):
        return RIGHT  # the object is looked at before that is believed
    if what is What.SHORT and call is Call.READ:
        return RIGHT  # the service says the stored length, and the rest is asked for
    if what in (What.SHORT, What.FLIPPED) and _is_told_by_status(cell):
        return RIGHT
    if what is What.FLIPPED_SENT and call is Call.CHUNK and cell.operation == "abandon-large":
        return RIGHT  # nobody asks for these bytes any more
    return ERROR


def _is_told_by_status(cell: Cell) -> bool:
    """Whether the call is answered with 404 or 412, whose body says nothing that is needed."""
    operation, call = OPERATIONS[cell.operation], cell.fault.call
    return (call is Call.STAT and operation.before is None) or (operation.is_refused and call is Call.UPLOAD)


def _expected_of_412(call: Call, after: bool, *, is_abandoned: bool) -> str:
    """A 412 is the service's word that something else is there; only its own success is told from that."""
    if call in (Call.LIST, Call.STAT, Call.READ, Call.RANGE):
        return ERROR
    if call is Call.DELETE or is_abandoned or (after and call in (Call.UPLOAD, Call.LAST)):
        return RIGHT
    return REFUSED


@pytest.fixture(scope="module")
def proxy(gcs_host: str) -> Iterator[FaultProxy]:
    with serve_faults(gcs_host) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def bucket(gcs_host: str) -> str:
    return make_bucket(gcs_host)


@pytest.fixture(autouse=True)
def _quick(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
    with quick_gcs(BUDGET_S, lambda: proxy.read_timeout_s(SHORT_TIMEOUT_S, PATIENCE_S)):
        yield


_NUMBERS = count()


def make_world(proxy: FaultProxy, bucket: str, operation: Operation, *, budget_s: float = BUDGET_S) -> World:
    """A new prefix with what operations need, and with a bystander; `listed/gone` is no longer there."""
    prefix = f"world-{next(_NUMBERS)}"
    retry = quick_retry(budget_s)
    world = World(proxy, bucket, prefix, GcsStore(f"gs://{bucket}/{prefix}", retry=retry), GcsSource(retry=retry))
    world.put("bystander", b"bystander")
    if operation.before is not None:
        world.put("a", operation.before)
    if operation.calls == (Call.LIST,):
        for path in ("listed/gone", "listed/1", "listed/2"):
            world.put(path, path.encode())
        proxy.service.remove(bucket, f"{prefix}/listed/gone")
    return world


def do(operation: Operation, world: World) -> str:
    """Act, and say in a word what came of it."""
    try:
        result = operation.act(world)
    except PreconditionFailed:
        return REFUSED
    except TemporaryError as error:
        assert (error.reason, error.exit_code) == ("StorageFailed", 5)
        assert f"gs://{world.bucket}/{world.prefix}" in error.message, error.message
        return ERROR
    right = operation.right(world)
    if result == right:
        return RIGHT
    return STALE if "listed" in str(result) else WRONG


@pytest.mark.sampled(3, of=lambda case: case["cell"].operation)
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_call_that_goes_wrong_once(proxy: FaultProxy, bucket: str, cell: Cell) -> None:
    operation, fault = OPERATIONS[cell.operation], cell.fault
    world = make_world(proxy, bucket, operation)
    proxy.plan([fault])
    outcome = do(operation, world)
    assert proxy.injected(), f"no call met {fault}: {[str(logged.call) for logged in proxy.log]}"

    wanted = expected(cell)
    if operation.is_refused and wanted == RIGHT:
        wanted = REFUSED
    assert outcome == wanted
    if fault.what is What.FLIPPED_SENT and outcome == ERROR:  # the service saw it, and so it was never visible
        assert 400 in [logged.status for logged in proxy.log]
    assert world.content("bystander") == b"bystander"
    assert world.content("a") in possible_contents(cell, outcome)

    proxy.plan()
    again = do(operation, world)
    if operation.is_refused:
        assert again == REFUSED
    elif again == REFUSED:  # the version that was to be replaced has gone with the bytes that were not the right ones
        assert (fault.what, world.content("a")) == (What.WRONG_CRC, None)
    else:
        assert again == RIGHT
        assert world.content("a") in (
            possible_contents(cell, RIGHT) if cell.operation == "retract" else [operation.after]
        )


def possible_contents(cell: Cell, outcome: str) -> tuple[bytes | None, ...]:
    """What may be at `a` after the cell; there is nothing in between."""
    operation, fault = OPERATIONS[cell.operation], cell.fault
    if outcome == REFUSED:
        return (operation.before,)
    if cell.operation == "retract" and fault.call is Call.UPLOAD:
        return (None, SMALL)  # its answer was lost: it may be another's, and stays
    if outcome != RIGHT:
        return (operation.before, operation.after, None)
    if fault.call is Call.DELETE and fault.what is What.PRECONDITION and not fault.after:
        return (operation.before, SMALL)  # the service says that it is another's
    return (operation.after,)


def test_operations_make_the_calls_that_the_table_has(proxy: FaultProxy, bucket: str) -> None:
    for name, operation in OPERATIONS.items():
        world = make_world(proxy, bucket, operation)
        proxy.plan()
        assert do(operation, world) == (REFUSED if operation.is_refused else RIGHT), name
        assert [logged.call for logged in proxy.log] == list(operation.calls), name
        assert world.content("a") == (operation.before if operation.is_refused else operation.after), name


# Faults that do not go away

LASTING = (What.TOO_MANY, What.INTERNAL, What.UNAVAILABLE, What.RESET, What.STALLED, What.CUT)
LASTING_CELLS = [
    Cell(name, Fault(what, call, times=ALWAYS))
    for name, call in [
        ("list", Call.LIST),
        ("stat", Call.STAT),
        ("read", Call.READ),
        ("read-range", Call.RANGE),
        ("create", Call.UPLOAD),
        ("create-large", Call.START),
        ("create-large", Call.CHUNK),
        ("create-large", Call.LAST),
        ("delete", Call.DELETE),
        ("source-list", Call.LIST),
        ("source-read", Call.STAT),
        ("source-read", Call.RANGE),
    ]
    for what in LASTING
    if call in APPLIES[what]
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("cell", LASTING_CELLS, ids=str)
def test_a_call_that_goes_wrong_always_ends_in_an_error_when_the_budget_is_spent(
    proxy: FaultProxy, bucket: str, cell: Cell
) -> None:
    operation = OPERATIONS[cell.operation]
    world = make_world(proxy, bucket, operation, budget_s=SHORT_BUDGET_S)
    proxy.plan([cell.fault])
    outcome = do(operation, world)
    # Each time half of what is left arrives, and so a body that is always cut arrives in the end.
    arrives = cell.fault.what in (What.CUT, What.STALLED) and cell.fault.call in (Call.READ, Call.RANGE)
    assert outcome in ((ERROR, RIGHT) if arrives else (ERROR,))
    assert len(proxy.injected()) > 1 or arrives
    assert len(proxy.injected()) <= MOST_TRIES
    assert world.content("a") in (operation.before, operation.after)


# Somebody else, at the worst moment

RACES = [
    Cell(name, Fault(what, call, after=after))
    for name, call in [
        ("create", Call.UPLOAD),
        ("replace", Call.UPLOAD),
        ("create-large", Call.START),
        ("create-large", Call.CHUNK),
        ("create-large", Call.LAST),
        ("replace-large", Call.LAST),
        ("delete", Call.DELETE),
        ("delete-version", Call.DELETE),
        ("retract", Call.DELETE),
    ]
    for what in (What.UNAVAILABLE, What.RESET)
    for after in (False, True)
]


@pytest.mark.parametrize("cell", RACES, ids=str)
def test_what_somebody_wrote_before_the_repeated_call_stays(proxy: FaultProxy, bucket: str, cell: Cell) -> None:
    operation = OPERATIONS[cell.operation]
    world = make_world(proxy, bucket, operation)
    fault = cell.fault
    proxy.plan([Fault(fault.what, fault.call, after=fault.after, meanwhile=lambda: world.put("a", FOREIGN))])
    outcome = do(operation, world)
    is_done = fault.call is Call.DELETE or (fault.call is Call.LAST and fault.after)  # a session remembers its success
    assert outcome == (RIGHT if is_done else REFUSED)
    assert world.content("a") == FOREIGN
    assert len(proxy.injected()) == 1


def test_the_table_has_not_shrunk() -> None:
    covered = {(cell.fault.call, cell.fault.what) for cell in CELLS}
    wanted = {(call, what) for what, calls in APPLIES.items() for call in calls if call is not Call.BUCKET}
    assert covered == wanted, "every call times every fault that can befall it"
    assert len(set(map(str, CELLS))) == len(CELLS)
    print(f"{len(CELLS)} cells of one fault, {len(LASTING_CELLS)} of lasting ones, {len(RACES)} races")
    assert (len(CELLS), len(LASTING_CELLS), len(RACES)) == (459, 69, 36)
