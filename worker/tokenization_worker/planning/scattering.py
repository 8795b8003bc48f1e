"""Chooses how a shuffled run scatters its documents: the size of a window, and the number of cells.

Both follow from the estimate of the source's tokens, and stand in the plan: a wrong estimate costs memory or reads,
and never changes a byte of the dataset.
"""

from __future__ import annotations

from tokenization_worker.errors import SpecError
from tokenization_worker.formats.dtypes import NUMPY_DTYPES
from tokenization_worker.output.plan_file import Scattering
from tokenization_worker.planning.prepare import Prepared

LEAST_WINDOW_BYTES = 8 << 20
_MOST_WINDOW_BYTES = 1 << 30
_WINDOWS = 256
"""Windows of a stream, as long as they have a size between these two."""

_MOST_WINDOWS = 4096
_CELL_BYTES = 32 << 20
"""A worker holds two cells of this mean size."""

_CELLS_OF_A_SHARD = 4
_MOST_CELLS = 1 << 14

_BYTES_A_TOKEN = 3
"""Of text, where the sample says nothing: a low guess."""


def choose_scattering(prepared: Prepared) -> Scattering | None:
    """None where documents stand in the order of the source; raises SpecError (ShuffleTooLarge)."""
    output, estimate = prepared.data.output, prepared.estimate
    if output.shuffle is None:
        return None
    itemsize = NUMPY_DTYPES[prepared.dtype].itemsize
    tokens = estimate.tokens if estimate.tokens is not None else estimate.source_bytes // _BYTES_A_TOKEN
    size = tokens * itemsize
    if size > _MOST_WINDOWS * _MOST_WINDOW_BYTES:
        raise SpecError(
            "ShuffleTooLarge",
            f"output.shuffle: the source has about {tokens:,} tokens ({size / 1e12:.1f} TB); one shuffle takes "
            f"{_MOST_WINDOWS * _MOST_WINDOW_BYTES / 1e12:.1f} TB",
            next_step="split the source into several jobs, or leave out output.shuffle",
        )
    window = min(max(size // _WINDOWS, LEAST_WINDOW_BYTES), _MOST_WINDOW_BYTES)
    cell = min(_CELL_BYTES, output.shard_tokens * itemsize // _CELLS_OF_A_SHARD)
    return Scattering(window // itemsize, _power_of_two(size / max(1, cell)))


def digest_of(scattering: Scattering | None) -> bytes:
    """What a plan's identity takes of it."""
    return b"" if scattering is None else b"%d %d" % (scattering.window_tokens, scattering.n_cells)


def _power_of_two(least: float) -> int:
    """The smallest one that is not below `least`, and at most `_MOST_CELLS`."""
    cells = 1
    while cells < min(least, _MOST_CELLS):
        cells *= 2
    return cells
