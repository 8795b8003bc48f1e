"""The peers: which format each reads, what its environment holds, and what its reader can see.

`packages` lists all packages of the environment, each pinned: pip installs these wheels and nothing that they ask for.
So no dependency brings torch, which the index has as a build for CUDA only; `torch` adds Debian's instead.
"""

from __future__ import annotations

from dataclasses import dataclass

NUMPY = "numpy==2.4.6"
NUMPY_OF_TORCH = "numpy==1.26.4"
"""Debian's torch is built for numpy 1."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One reader of one format; `readers/read_<name>.py` is its script.

    `sees`: what the reader tells beside the tokens of a split: "shards" (tokens of each file), "entries" (tokens of
    each document in a shard, or of each row). `layouts`: "documents" (shards of one run of tokens) and "rows".
    `core`: light enough for `.ci/run`. `torch`: with Debian's.
    """

    name: str
    format: str
    packages: tuple[str, ...]
    sees: frozenset[str]
    layouts: tuple[str, ...] = ("documents", "rows")
    torch: bool = False
    core: bool = True


PEERS = (
    Peer("npy", "Npy", (NUMPY,), frozenset({"shards"})),
    Peer("raw", "Raw", (NUMPY,), frozenset({"shards"})),
    Peer("nanogpt", "Raw", (NUMPY_OF_TORCH,), frozenset({"shards"}), torch=True, core=False),
    Peer("llmc", "LlmC", (NUMPY,), frozenset({"shards"})),
    Peer(
        "webdataset",
        "WebDataset",
        (NUMPY, "webdataset==1.0.2", "braceexpand==0.1.7", "PyYAML==6.0.3"),
        frozenset({"shards", "entries"}),
        layouts=("rows",),
    ),
    Peer("megatron", "Megatron", (NUMPY, "megatron-core==0.16.1"), frozenset({"shards", "entries"})),
)

GRAIN = Peer(
    "grain",
    "rows",
    (
        "grain==0.2.18",
        "absl-py==2.5.1",
        "array-record==0.8.6",
        "cloudpickle==3.1.3",
        "etils==1.15.0",
        "fsspec==2026.9.0",
        NUMPY,
        "portpicker==1.6.0",
        "protobuf==7.36.2",
        "psutil==7.2.2",
        "typing-extensions==4.16.0",
        "zipp==4.1.2",
    ),
    frozenset(),
)
"""A loader of rows: it reads no format, and takes what `dataset[split].rows` gives."""
