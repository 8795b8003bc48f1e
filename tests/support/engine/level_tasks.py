"""A pipeline of three levels of scratch below durable shards, made of tiny files: what the engine must be able to run.

    segment <- pack <- sum <- shard

A product is its payload and the payload's digest, and its payload is made of those of all that its item needs. So a
shard that equals the naive computation was made of whole products, whatever was lost on the way.
"""

from __future__ import annotations

import fcntl
import os
import random
import re
import signal
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from tokenization_worker.engine.executor import UnderWay
from tokenization_worker.engine.products import Products
from tokenization_worker.engine.task import ProductLost, Task, Worker, WorkerLost, WorkerState
from tokenization_worker.engine.task_progress import OnAdvance
from tokenization_worker.events import Advanced, Event, Receipt
from tokenization_worker.output.create_only import create_receipt, find_receipt, place
from tokenization_worker.storage.base import NotFound, PreconditionFailed, Store
from tokenization_worker.storage.open import open_store

PLAN_ID = "levels"
PRODUCT_LOST = "LevelLost"
"""The reason of a run that loses one product time and again."""

SCRATCH = "_tokenization/levels/"
RECEIPTS = "_tokenization/receipts/"
PAYLOAD_BYTES = 1 << 12
RELEASED_A_TASK = 2
MOMENTS = ("begin", "read", "written", "end")
"""Between which a task can lose its process."""

Item = tuple[str, int]


def is_scratch(item: Item) -> bool:
    return item[0] != "shard"


def scratch_path(item: Item) -> str:
    return f"{SCRATCH}{item[0]}/{item[1]:04d}"


def receipt_path(item: Item) -> str:
    return f"{RECEIPTS}{item[0]}/{item[1]:04d}.json"


def shard_path(item: Item) -> str:
    return f"{item[0]}-{item[1]:04d}.bin"


@dataclass(frozen=True)
class Layout:
    """How many items there are of each kind."""

    segments: int
    packs: int
    sums: int
    shards: int

    def needs(self) -> dict[Item, tuple[Item, ...]]:
        """All items and what they need: neighbours share segments, sums share packs, and a shard reads two levels."""
        segments = [("segment", number) for number in range(self.segments)]
        packs = [("pack", number) for number in range(self.packs)]
        sums = [("sum", number) for number in range(self.sums)]
        needs: dict[Item, tuple[Item, ...]] = dict.fromkeys(segments, ())
        for pack in packs:
            first = pack[1] * self.segments // self.packs
            needs[pack] = tuple(dict.fromkeys(segments[(first + step) % self.segments] for step in range(3)))
        for number, each in enumerate(sums):
            needs[each] = tuple(packs[number::2] or packs)
        for number in range(self.shards):
            needs["shard", number] = (*sums, packs[number % self.packs])
        return needs


def payload_of(item: Item, needed: Iterable[bytes]) -> bytes:
    """What an item's product holds, from what those that it needs hold."""
    digest = sha256(f"{item}".encode())
    for payload in needed:
        digest.update(payload)
    return digest.digest() * (PAYLOAD_BYTES // digest.digest_size)


def expected_shards(layout: Layout) -> dict[str, bytes]:
    """The durable outputs, computed naively."""
    needs = layout.needs()
    made: dict[Item, bytes] = {}
    for item in needs:
        made[item] = payload_of(item, [made[need] for need in needs[item]])
    return {shard_path(item): payload for item, payload in made.items() if not is_scratch(item)}


@dataclass(frozen=True)
class LevelReceipt:
    """That an item's product was made; two writers agree on its digest."""

    plan_id: str
    kind: str
    number: int
    digest: str

    @property
    def item(self) -> Item:
        return self.kind, self.number

    def to_dict(self) -> dict[str, Any]:
        return {"planId": self.plan_id, "kind": self.kind, "number": self.number, "digest": self.digest}

    @classmethod
    def from_dict(cls, value: dict[str, Any], /) -> LevelReceipt:
        return cls(value["planId"], value["kind"], value["number"], value["digest"])

    def disagreement(self, other: LevelReceipt, /) -> str | None:
        return None if other == self else f"{self} and {other}"


@dataclass(frozen=True)
class Journal:
    """A folder outside of the output in which tasks leave a line each, and the deaths that await them.

    `deaths`: by the number of a task, in the order in which tasks begin, the moment at which its process is killed.
    `first_deaths`: by an item, in words, the moment at which the process of its first task is killed, and of no other.
    No item dies three times.
    """

    folder: str
    deaths: tuple[tuple[int, str], ...] = ()
    first_deaths: tuple[tuple[str, str], ...] = ()

    def begin(self, item: Item) -> str:
        """Note that a task begins; returns the moment of its death, if it has one."""
        path = Path(self.folder) / "begun"
        with path.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            before = file.read().splitlines()
            name = f"{item[0]} {item[1]}"
            file.write(f"{name}\n")
            of_item = "" if name in before else dict(self.first_deaths).get(name, "")
            death = of_item or dict(self.deaths).get(len(before), "")
            return death if death and self._may_die(name) else ""

    def _may_die(self, name: str) -> bool:
        """Note a death, unless an item has lost two processes already: the third ends its run."""
        with (Path(self.folder) / "died").open("a+", encoding="utf-8") as file:
            file.seek(0)
            if file.read().splitlines().count(name) == 2:
                return False
            file.write(f"{name}\n")
        return True

    def begun(self) -> list[str]:
        """The items of the tasks that have begun, in order."""
        with suppress(FileNotFoundError):
            return (Path(self.folder) / "begun").read_text(encoding="utf-8").splitlines()
        return []


@dataclass(frozen=True)
class LevelTask:
    """Make one item's product. `again`: its receipt is there and its product was lost. `digests`: of what it needs."""

    output_uri: str
    item: Item
    digests: tuple[tuple[Item, str], ...]
    journal: Journal
    releasable: tuple[Item, ...] = ()
    again: bool = False

    @property
    def product(self) -> str:
        return f"{self.item[0]} {self.item[1]}"

    def run(self, worker: WorkerState, on_advance: OnAdvance) -> LevelReceipt:
        store = open_store(self.output_uri)
        death = self.journal.begin(self.item)
        _die_at(death, "begin")
        discard(store, self.releasable)
        if is_scratch(self.item) and not self.again:
            found = find_level_receipt(store, self.item)
            if found is not None:
                return found
        needed = [read_product(store, item, digest) for item, digest in self.digests]
        _die_at(death, "read")
        payload = payload_of(self.item, needed)
        write_product(store, self.item, payload)
        _die_at(death, "written")
        receipt = LevelReceipt(PLAN_ID, *self.item, sha256(payload).hexdigest())
        found = create_receipt(store, receipt_path(self.item), receipt)
        _die_at(death, "end")
        on_advance(1, 1)
        return found


def _die_at(death: str, moment: str) -> None:
    if death == moment:
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)  # the signal is under way


def read_product(store: Store, item: Item, digest: str) -> bytes:
    """A product's payload; raises `ProductLost`."""
    path = scratch_path(item)
    found = store.stat(path)  # before it is read: what is written since must not be discarded
    try:
        payload = store.read(path)
    except NotFound:
        raise ProductLost(item, "missing") from None
    if sha256(payload).hexdigest() != digest:
        raise ProductLost(item, "torn", None if found is None else found.version)
    return payload


def write_product(store: Store, item: Item, payload: bytes) -> None:
    """Write a product. An existing scratch object stays: its readers check it. An existing shard must be equal."""
    if is_scratch(item):
        with store.upload(scratch_path(item), durable=False) as upload, suppress(PreconditionFailed):
            upload.write(payload)
            upload.commit()
        return
    path = shard_path(item)

    def refuse() -> None:
        raise AssertionError(f"{path} exists and differs from the file")

    place(
        store,
        path,
        lambda upload: upload.write(payload),
        is_same=lambda found: store.read(path) == payload,
        allow_replace=refuse,
    )


def discard(store: Store, items: Iterable[Item]) -> None:
    for item in items:
        store.discard(scratch_path(item))


def find_level_receipt(store: Store, item: Item) -> LevelReceipt | None:
    return find_receipt(store, receipt_path(item), LevelReceipt, PLAN_ID)


def list_items(store: Store, prefix: str) -> set[Item]:
    """The items of the scratch, or the receipts, that are there."""
    found = (re.fullmatch(rf"{prefix}(\w+)/(\d+)(?:\.json)?", entry.path) for entry in store.list(prefix))
    return {(match[1], int(match[2])) for match in found if match}


class LevelSchedule:
    """Items in an order that is drawn by lot. `is_early`: all are added at once, and wait for their needs; otherwise
    an item is added when all of these were made."""

    def __init__(
        self,
        needs: Mapping[Item, tuple[Item, ...]],
        receipts: Mapping[Item, LevelReceipt],
        there: Iterable[Item],
        template: LevelTask,
        lots: random.Random,
        *,
        is_early: bool,
    ) -> None:
        self._needs = needs
        self._receipts = dict(receipts)
        self._template = template
        self._lots = lots
        self._is_early = is_early
        self._unknown = [item for item in needs if item not in receipts]  # those that are not added yet
        self._to_do: list[Item] = []
        self._unknown_users = dict.fromkeys(needs, 0)
        for item in self._unknown:
            for need in needs[item]:
                self._unknown_users[need] += 1
        self._products: Products[Item] = Products(
            there,
            needs_of=needs.__getitem__,
            is_final=lambda item: is_scratch(item) and not self._unknown_users[item],
            lost_reason=PRODUCT_LOST,
            words_of=lambda item: f"{item[0]} {item[1]}",
        )
        self._add_items()
        self._products.release(item for item in needs if is_scratch(item))

    @property
    def is_finished(self) -> bool:
        return len(self._receipts) == len(self._needs) and not self._products.is_any_made_again

    def _add_items(self) -> None:
        unknown, self._unknown = self._unknown, []
        for item in unknown:
            if not self._is_early and not self._receipts.keys() >= set(self._needs[item]):
                self._unknown.append(item)
                continue
            self._products.add(item)
            self._to_do.append(item)
            for need in self._needs[item]:
                self._unknown_users[need] -= 1

    def next_task(self, *, worker: Worker | None, busy: int, slots: int) -> LevelTask | None:
        while self._to_do or self._products.is_any_made_again:
            if not self._to_do or self._lots.random() < 0.5:
                item = self._products.next_again()
                if item is not None or not self._to_do:
                    return None if item is None else self._task(item)
            item = self._to_do.pop(self._lots.randrange(len(self._to_do)))
            if self._products.begin(item):
                return self._task(item)
        return None

    def _task(self, item: Item) -> LevelTask:
        return replace(
            self._template,
            item=item,
            digests=tuple((need, self._receipts[need].digest) for need in self._needs[item]),
            releasable=self._products.take_releasable(RELEASED_A_TASK),
            again=item in self._receipts,
        )

    def done(self, task: Task, receipt: Receipt, worker: Worker | None) -> None:
        assert isinstance(receipt, LevelReceipt)
        item = receipt.item
        self._receipts[item] = receipt
        self._to_do.extend(self._products.done(item, is_scratch=is_scratch(item)))
        self._add_items()

    def product_lost(self, task: Task, loss: ProductLost) -> bool:
        assert isinstance(task, LevelTask)
        is_news = self._products.lost(loss.product, task.item, loss.detail)  # type: ignore[arg-type]
        self._put_back(task.item)
        return is_news

    def worker_lost(self, task: Task, loss: WorkerLost, times: int, worker: Worker | None) -> None:
        assert isinstance(task, LevelTask)
        self._products.give_back(task.releasable)
        self._put_back(task.item)

    def _put_back(self, item: Item) -> None:
        if self._products.is_made_again(item):
            self._products.put_back(item)
        else:
            self._to_do.append(item)

    def take_releasable(self) -> tuple[Item, ...]:
        return self._products.take_releasable()

    def counts(self) -> tuple[int, int]:
        return len(self._receipts), len(self._needs)


class LevelPipeline:
    """One start of a run: it first lists the receipts and the scratch at its output."""

    def __init__(self, layout: Layout, output: Path, journal: Journal, seed: int, *, is_early: bool = False) -> None:
        self._store = open_store(str(output))
        there = list_items(
            self._store, SCRATCH
        )  # before the receipts: what is missing then was never there, or is lost
        receipts = [find_level_receipt(self._store, item) for item in list_items(self._store, RECEIPTS)]
        self.schedule = LevelSchedule(
            layout.needs(),
            {receipt.item: receipt for receipt in receipts if receipt is not None},
            there,
            LevelTask(str(output), ("segment", 0), (), journal),
            random.Random(seed),
            is_early=is_early,
        )

    def require_within_limits(self) -> None: ...

    def prepare(self, task: Task) -> Task:
        return task

    def find_receipt(self, task: Task) -> LevelReceipt | None:
        """A receipt of scratch says that it was made, not that it is there."""
        assert isinstance(task, LevelTask)
        receipt = find_level_receipt(self._store, task.item)
        if receipt is not None and is_scratch(task.item) and self._store.stat(scratch_path(task.item)) is None:
            return None
        return receipt

    def discard(self, loss: ProductLost) -> None:
        if loss.version is not None:
            self._store.delete(scratch_path(loss.product), version=loss.version)  # type: ignore[arg-type]

    def release(self, products: Iterable[Hashable]) -> None:
        discard(self._store, products)  # type: ignore[arg-type]

    def error_of(self, error: BaseException) -> BaseException:
        return error

    def warnings_of(self, task: Task, receipt: Receipt) -> Iterator[str]:
        yield from ()

    def progress(self, receipt: Receipt | None) -> Event:
        return Advanced(*self.schedule.counts(), 0, 0, 0)

    def advanced(self, state: UnderWay) -> Event:
        return Advanced(*self.schedule.counts(), 0, 0, state.workers)


class Vandal:
    """Deletes and tears scratch of an output, each product at most `most` times: a run ends at one loss more."""

    def __init__(self, output: Path, seed: int, *, chance: float, most: int = 1) -> None:
        self._folder = output / SCRATCH
        self._lots = random.Random(seed)
        self._chance = chance
        self._most = most
        self._hits: dict[Path, int] = {}
        self.damage = 0

    def strike(self) -> None:
        if self._lots.random() >= self._chance:
            return
        files = sorted(path for path in self._folder.glob("*/*") if self._hits.get(path, 0) < self._most)
        if not files:
            return
        path = self._lots.choice(files)
        self._hits[path] = self._hits.get(path, 0) + 1
        self.damage += 1
        with suppress(FileNotFoundError):
            if self._lots.random() < 0.5:
                path.unlink()
            else:
                os.truncate(path, self._lots.randrange(PAYLOAD_BYTES))


@contextmanager
def closing_scratch(output: Path) -> Iterator[None]:
    """What a run does at its end with its unfinished files."""
    try:
        yield
    finally:
        open_store(str(output)).close_scratch()


def leftovers(output: Path) -> list[str]:
    """Scratch of any level, and unfinished files, that are still there."""
    folders = (output / SCRATCH, output / "_tokenization" / "tmp")
    return sorted(str(path) for folder in folders for path in folder.rglob("*") if path.is_file())


def shards_of(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in output.glob("*.bin")}
