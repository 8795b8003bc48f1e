"""The decoders by the names of their formats in the index."""

from __future__ import annotations

from tokenization_worker.errors import ChangedError
from tokenization_worker.verification.formats.base import ShardDecoder
from tokenization_worker.verification.formats.llmc import LLMC
from tokenization_worker.verification.formats.megatron import MEGATRON
from tokenization_worker.verification.formats.npy import NPY
from tokenization_worker.verification.formats.raw import RAW

DECODERS: dict[str, ShardDecoder] = {"Npy": NPY, "Raw": RAW, "LlmC": LLMC, "Megatron": MEGATRON}


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
