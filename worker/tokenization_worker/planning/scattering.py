"""Chooses how a shuffled run scatters its documents: the size of a window, and the number of cells.

Both follow from the estimate of the source's tokens and documents, and stand in the plan: a wrong estimate costs memory
or reads, and never changes a byte of the dataset.
"""

from __future__ import annotations

from tokenization_worker.api.data import OutputSpec
from tokenization_worker.api.workers import WORKER_BYTES, task_bytes
from tokenization_worker.errors import SpecError
from tokenization_worker.formats.dtypes import NUMPY_DTYPES
from tokenization_worker.output.plan_file import Scattering
from tokenization_worker.planning.prepare import Prepared
from tokenization_worker.sequences.best_fit import largest_block

LEAST_WINDOW_BYTES = 8 << 20
_MOST_WINDOW_BYTES = 1 << 30
_WINDOWS = 256
"""Windows of a stream, as long as they have a size between these two."""

_MOST_WINDOWS = 4096
_CELL_BYTES = 32 << 20
"""A worker holds two cells of this mean size."""

_CELLS_OF_A_SHARD = 4
_MOST_CELLS = 1 << 14

_TEXT_A_TOKEN = 3
"""Bytes of text, where the sample says nothing: a low guess."""

_BYTES_A_PART = 128
"""Of memory: the part itself, its key, its place in the order, and their copies while they are sorted."""


def choose_scattering(prepared: Prepared) -> Scattering | None:
    """None where documents stand in the order of the source; raises SpecError (ShuffleTooLarge)."""
    output = prepared.data.output
    if output.shuffle is None:
        return None
    tokens = _stored_tokens(prepared)
    size = tokens * NUMPY_DTYPES[prepared.dtype].itemsize
    if size > _MOST_WINDOWS * _MOST_WINDOW_BYTES:
        raise SpecError(
            "ShuffleTooLarge",
            f"output.shuffle: the source has about {tokens:,} tokens ({size / 1e12:.1f} TB); one shuffle takes "
            f"{_MOST_WINDOWS * _MOST_WINDOW_BYTES / 1e12:.1f} TB",
            next_step="split the source into several jobs, or leave out output.shuffle",
        )
    a_token = bytes_a_token(prepared)
    window = min(max(tokens * a_token / _WINDOWS, LEAST_WINDOW_BYTES), _MOST_WINDOW_BYTES)
    cell = min(_CELL_BYTES, output.shard_tokens * a_token / _CELLS_OF_A_SHARD)
    unit = _unit(output)
    units = max(1, int(window / a_token * stream_share(prepared)) // unit)
    return Scattering(units * unit, _power_of_two(_largest_stream(prepared) * tokens * a_token / max(1, cell)))


def _unit(output: OutputSpec) -> int:
    """Tokens of the stream of which a window has a multiple: so many become the same rows wherever windows end."""
    if output.packed_rows is not None:
        return largest_block(output.packed_rows.length)
    return 1 if output.shuffled_rows is None else output.shuffled_rows.length


def stream_share(prepared: Prepared) -> float:
    """Tokens of the stream, in which windows count, for each token that is scattered: padding of packed rows is none of
    the stream."""
    estimate = prepared.estimate
    if prepared.data.output.packed_rows is None or estimate.rows is None or not estimate.tokens:
        return 1.0
    return min(1.0, estimate.tokens / estimate.rows.tokens)


def bytes_a_token(prepared: Prepared) -> float:
    """What a worker holds of a shuffled token: the token, and its share of the part that it is in."""
    output, estimate = prepared.data.output, prepared.estimate
    parts = estimate.documents or 0
    if output.shuffled_rows is not None and estimate.rows is not None:
        parts += estimate.rows.count
    return NUMPY_DTYPES[prepared.dtype].itemsize + _BYTES_A_PART * parts / max(1, _stored_tokens(prepared))


def _stored_tokens(prepared: Prepared) -> int:
    """Of all units, with the padding of rows."""
    estimate = prepared.estimate
    if prepared.data.output.shuffled_rows is not None and estimate.rows is not None:
        return estimate.rows.tokens
    return estimate.tokens if estimate.tokens is not None else estimate.source_bytes // _TEXT_A_TOKEN


def _largest_stream(prepared: Prepared) -> float:
    """Its share of all tokens: of the largest split by share, and of the largest group where groups are in paths."""
    splits, counts = prepared.data.output.splits, prepared.estimate.groups.values()
    shares = [float(split.share) for split in splits if split.share is not None]
    known = [count for count in counts if count]
    group = max(known) / sum(known) if prepared.data.path_groups and known and len(known) == len(counts) else 1.0
    return max([*shares, 1.0 - sum(shares)]) * group


def window_tokens(prepared: Prepared, scattering: Scattering) -> int:
    """Tokens of a window, with the padding of rows."""
    return round(scattering.window_tokens / stream_share(prepared))


def held_bytes(prepared: Prepared, scattering: Scattering, tokens: int) -> int:
    """What a worker holds at most: a window, or two cells of mean size. `tokens`: of all units, with padding."""
    share, a_token = stream_share(prepared), bytes_a_token(prepared)
    itemsize = NUMPY_DTYPES[prepared.dtype].itemsize
    window = min(window_tokens(prepared, scattering), tokens)
    cells = min(2 * -(-tokens // scattering.n_cells), tokens)
    packed = prepared.data.output.packed_rows
    block = 0 if packed is None else min(largest_block(packed.length), round(tokens * share))
    block_bytes = block * (itemsize + (a_token - itemsize) / share)  # while its rows go to the window
    return round(max(window * a_token + block_bytes, cells * a_token))


def needed_bytes(prepared: Prepared, scattering: Scattering | None) -> int | None:
    """Memory of a task of the run; None where that of any task will do."""
    if scattering is None:
        return None
    needed = task_bytes(held_bytes(prepared, scattering, max(1, _stored_tokens(prepared))))
    return needed if needed > WORKER_BYTES else None


def digest_of(scattering: Scattering | None) -> bytes:
    """What a plan's identity takes of it."""
    return b"" if scattering is None else b"%d %d" % (scattering.window_tokens, scattering.n_cells)


def _power_of_two(least: float) -> int:
    """The smallest one that is not below `least`, and at most `_MOST_CELLS`."""
    cells = 1
    while cells < min(least, _MOST_CELLS):
        cells *= 2
    return cells
