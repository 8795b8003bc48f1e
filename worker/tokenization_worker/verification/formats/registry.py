"""The decoders by the names of their formats in the index."""

from __future__ import annotations

from collections.abc import Sequence

from tokenization_worker.errors import ChangedError
from tokenization_worker.verification.formats.base import ShardDecoder
from tokenization_worker.verification.formats.llmc import LLMC
from tokenization_worker.verification.formats.megatron import MEGATRON
from tokenization_worker.verification.formats.npy import NPY
from tokenization_worker.verification.formats.raw import RAW
from tokenization_worker.verification.formats.webdataset import WEBDATASET

DECODERS: dict[str, ShardDecoder] = {
    "Npy": NPY,
    "Raw": RAW,
    "LlmC": LLMC,
    "Megatron": MEGATRON,
    "WebDataset": WEBDATASET,
}


def preferred_format(names: Sequence[str]) -> str:
    """The one to read tokens by number from: the first with random access, or the first."""
    return next((name for name in names if decoder_of(name).has_random_access), names[0])


def decoder_of(name: str) -> ShardDecoder:
    """The decoder of this format; raises `ChangedError` for one that this version does not have."""
    try:
        return DECODERS[name]
    except KeyError:
        raise ChangedError(
            "OutputConflict",
            f"the dataset has shards in the format {name}; this program reads {', '.join(DECODERS)}",
            next_step="use the version of this program that wrote it",
        ) from None
