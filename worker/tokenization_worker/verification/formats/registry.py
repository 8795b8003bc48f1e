"""The decoders by the names of their formats in the index."""

from __future__ import annotations

from tokenization_worker.verification.formats.base import ShardDecoder
from tokenization_worker.verification.formats.npy import NpyDecoder

DECODERS: dict[str, ShardDecoder] = {"Npy": NpyDecoder()}


def decoder_of(name: str) -> ShardDecoder:
    """The decoder of this format; raises `ValueError` for one that this version cannot read."""
    try:
        return DECODERS[name]
    except KeyError:
        raise ValueError(f"there is no format {name!r}: expected one of {', '.join(DECODERS)}") from None
