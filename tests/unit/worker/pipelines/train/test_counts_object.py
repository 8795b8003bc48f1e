"""The scratch object of a counted range tells whether it is whole."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest

from tokenization_worker.pipelines.train.counts_object import CountsWriter, read_counts
from tokenization_worker.training.pieces import Pieces

ONE = Pieces(np.frombuffer(b"onetwo", np.uint8), np.array([3, 6]), np.array([4, 5]))
TWO = Pieces(np.frombuffer(b"two", np.uint8), np.array([3]), np.array([2]))
NONE = Pieces(np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64))


def written(*tables: Pieces) -> tuple[bytes, int]:
    file = BytesIO()
    writer = CountsWriter(file)
    for table in tables:
        writer.write(table)
    writer.finish()
    return file.getvalue(), writer.pieces


def test_all_tables_come_back() -> None:
    data, pieces = written(ONE, NONE, TWO)
    assert pieces == 11
    assert [dict(table.items()) for table in read_counts(data, 11)] == [{b"one": 4, b"two": 5}, {b"two": 2}]
    assert list(read_counts(written()[0], 0)) == []


def test_one_that_is_cut_changed_or_of_another_range_is_refused() -> None:
    data, pieces = written(ONE, TWO)
    wrong = [data[:size] for size in (0, 5, 8, 20, 100, len(data) - 1)]
    wrong += [bytes([*data[:place], data[place] ^ 1, *data[place + 1 :]]) for place in (0, 9, 26, 40, len(data) - 3)]
    wrong.append(data + b"x")
    for each in wrong:
        with pytest.raises(ValueError):
            list(read_counts(each, pieces))
    with pytest.raises(ValueError, match="expected 12 pieces"):
        list(read_counts(data, 12))
