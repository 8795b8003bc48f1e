"""Megatron's `IndexedDataset`, memory-mapped and read by file, by entry and by slices of one.

The wheel's reader is used as it is. Its package imports all of Megatron and a torch newer than the index has for CPUs,
so the modules that it names stand in: of torch it takes a base class, and one function that logs.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
from report import DTYPE, files, print_split


def stand_in(name: str, **members: object) -> ModuleType:
    module = sys.modules[name] = ModuleType(name)
    module.__dict__.update(members)
    return module


def import_reader():  # type: ignore[no-untyped-def]
    """`megatron.core.datasets.indexed_dataset`, without what its packages import."""
    found = importlib.util.find_spec("megatron")
    assert found is not None
    assert found.submodule_search_locations
    root = Path(next(iter(found.submodule_search_locations)))
    for name, folder in (("megatron.core", root / "core"), ("megatron.core.datasets", root / "core/datasets")):
        stand_in(name, __path__=[str(folder)])
    data = stand_in("torch.utils.data", Dataset=object)
    stand_in("torch", Tensor=object, utils=stand_in("torch.utils", data=data))
    stand_in("megatron.core.utils", log_single_rank=lambda *words: None)
    return importlib.import_module("megatron.core.datasets.indexed_dataset")


reader = import_reader()
shards: list[object] = []
entries: list[int] = []
for path in files(".bin"):
    prefix = str(path.with_suffix(""))
    assert reader.IndexedDataset.exists(prefix)
    mapped, by_file = (reader.IndexedDataset(prefix, multimodal=False, mmap=mmap) for mmap in (True, False))
    assert mapped.index.dtype == {"uint16": np.uint16, "uint32": np.int32}[DTYPE]
    assert mapped.document_indices.tolist() == list(range(len(mapped) + 1))
    rows = [mapped[number] for number in range(len(mapped))]
    assert [len(row) for row in rows] == mapped.sequence_lengths.tolist()
    for number, row in enumerate(rows):
        assert np.array_equal(by_file[number], row)
        middle = len(row) // 2
        assert np.array_equal(mapped.get(number, middle), row[middle:])
        assert np.array_equal(by_file.get(number, 0, middle), row[:middle])
    entries += map(len, rows)
    shards.append(np.concatenate(rows))
print_split(shards, entries=entries)
