"""With this folder in PYTHONPATH, a run stands still once, at the moment `GATE_MOMENT`, until it is let go.

It makes the file `reached` in the folder `GATE_FOLDER` and waits for `go` there. Workers, however they are started,
know the gate as the driver does. Reads are made small, so that a range takes many of them; everything else is the
product.
"""

from __future__ import annotations

import os
import sys
import time
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FOLDER = Path(os.environ.get("GATE_FOLDER", "/nowhere"))
MOMENT = os.environ.get("GATE_MOMENT", "")
LAST_START = int(os.environ.get("GATE_LAST_START", "0"))
"""Where the last range begins, as the plan has it."""

READ_BYTES = 16 << 10
READS_BEFORE = 3
"""Of a range, before it is stopped in its middle."""


class Gate:
    """`opened`: the slice that is being read; `reads`: of it, so far."""

    def __init__(self) -> None:
        self.opened: Any = None
        self.reads = 0

    def stop(self) -> None:
        if FOLDER.is_dir() and not (FOLDER / "reached").exists():
            (FOLDER / "reached").touch()
            while not (FOLDER / "go").exists():
                time.sleep(0.002)

    def open(self, source: Any) -> None:
        """A worker is about to open a slice."""
        self.opened, self.reads = source, 0
        if MOMENT == "before the first read" or (MOMENT == "between two ranges" and source.start > 0):
            self.stop()

    def read(self) -> None:
        """Some bytes of a slice have been read."""
        self.reads += 1
        if self.opened is None or self.reads != READS_BEFORE:
            return
        is_first, is_last = self.opened.start == 0, self.opened.start == LAST_START
        if (MOMENT == "in the first range" and is_first) or (MOMENT == "in the last range" and is_last):
            self.stop()


GATE = Gate()


def gate_tasks(module: ModuleType) -> None:
    opens = module.__dict__["open_planned"]

    def open_gated(source: Any) -> Any:
        GATE.open(source)
        return opens(source)

    module.__dict__["open_planned"] = open_gated


def gate_reads(name: str) -> Callable[[ModuleType], None]:
    def change(module: ModuleType) -> None:
        kind = module.__dict__[name]
        read = kind.read

        def read_gated(stream: Any, size: int = -1, /) -> bytes:
            data: bytes = read(stream, size)
            GATE.read()
            return data

        kind.read = read_gated
        for constant in ("BLOCK_BYTES", "FIRST_BYTES"):
            if constant in module.__dict__:
                module.__dict__[constant] = READ_BYTES

    return change


def gate_index(module: ModuleType) -> None:
    commit = module.__dict__["commit"]

    def commit_gated(*arguments: Any) -> Any:
        if MOMENT == "before the index":
            GATE.stop()
        return commit(*arguments)

    module.__dict__["commit"] = commit_gated


def shorten_reads(module: ModuleType) -> None:
    module.__dict__["BLOCK_BYTES"] = READ_BYTES
    module.__dict__["StoredBytes"].__init__.__kwdefaults__["read_bytes"] = READ_BYTES


def shorten_buffers(module: ModuleType) -> None:
    module.__dict__["_BUFFER_BYTES"] = READ_BYTES


CHANGES: dict[str, Callable[[ModuleType], None]] = {
    "tokenization_worker.pipelines.tokenize.ranges.range_tokenizer": gate_tasks,
    "tokenization_worker.storage.unchanged": gate_reads("LocalReader"),
    "tokenization_worker.storage.prefetch": gate_reads("RangedReader"),
    "tokenization_worker.run.finish": gate_index,
    "tokenization_worker.readers.decompress": shorten_reads,
    "tokenization_worker.readers.parquet.file": shorten_buffers,
}


class Finder(MetaPathFinder):
    """Changes the modules as soon as they are imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in CHANGES:
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.loader is not None
        spec.loader = Changed(spec.loader)
        return spec


class Changed(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        CHANGES[module.__name__](module)


for name, change in CHANGES.items():
    if name in sys.modules:  # this process is a fork of one that has imported it
        change(sys.modules[name])
sys.meta_path.insert(0, Finder())
