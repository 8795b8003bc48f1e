"""With this folder in PYTHONPATH, texts with a mark kill every Python process but the first that encodes them.

The first is the driver, which plans. The tokenizer must be `bytes`. Everything else is the product: workers, however
they are started, and the processes that encode in isolation.

`POISON_FOLDER`: a file is put there for every death, named by the mark that caused it, by what the process was for, and
by its id.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MODULE = "tokenization_worker.tokenizers.byte_engine"
DRIVER = os.environ.setdefault("POISON_DRIVER", str(os.getpid()))
FOLDER = Path(os.environ.get("POISON_FOLDER", "/nowhere"))


def read_null() -> None:
    ctypes.string_at(0)


def hoard() -> None:
    """Take more memory than there is, without using it; then die as of the kernel's hand."""
    import numpy as np

    hoard = [np.empty(1 << 30, np.uint8) for _ in range(256)]
    os.kill(os.getpid(), signal.SIGKILL)
    del hoard


WAYS: dict[str, Callable[[], object]] = {
    "<segfault>": read_null,
    "<hoard>": hoard,
    "<no memory>": lambda: bytearray(1 << 60),
    "<exit>": lambda: os._exit(7),
    "<killed>": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "<terminated>": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "<hangs>": signal.pause,
}


def no_such_file() -> None:
    raise FileNotFoundError("a table of the library")


WAYS["<os error>"] = no_such_file
"""What an engine may raise as well; it kills nothing."""

COMPANY = "<dies in company>"
LATER = "<dies later>"
"""Of a text that kills only a process that has encoded another one before."""


def poisoned(encode: Any) -> Any:
    before: list[str] = []

    def encode_or_die(engine: object, texts: Sequence[str]) -> object:
        if str(os.getpid()) != DRIVER:
            if "fine" in before and any(LATER in text for text in texts):
                os._exit(7)
            before.extend(texts)
            for text in texts:
                for mark, die in WAYS.items():
                    if mark in text:
                        note(mark)
                        die()
            if len(texts) > 1 and any(COMPANY in text for text in texts):
                note(COMPANY)
                os._exit(7)
        return encode(engine, texts)

    return encode_or_die


def note(mark: str) -> None:
    import multiprocessing

    target = getattr(multiprocessing.current_process(), "_target", None)
    if FOLDER.is_dir():
        (FOLDER / f"{mark} {getattr(target, '__name__', 'main')} {os.getpid()}").touch()


class Finder(MetaPathFinder):
    """Changes the engine as soon as it is imported."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != MODULE:
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
        change(module)


def change(module: ModuleType) -> None:
    engine = module.__dict__["ByteEngine"]
    engine.encode = poisoned(engine.encode)


if MODULE in sys.modules:  # this process is a fork of one that has imported it
    change(sys.modules[MODULE])
else:
    sys.meta_path.insert(0, Finder())
