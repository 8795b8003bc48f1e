"""Computes from page headers what the pages of a Parquet column chunk decode to: the footer may lie.

Layout of headers: parquet.thrift in the compact protocol of Thrift.
"""

from __future__ import annotations

from typing import Any

_STOP, _TRUE, _FALSE, _BYTE, _BINARY, _STRUCT = 0, 1, 2, 3, 8, 12
_INTEGERS = (4, 5, 6)
_DECODED_BYTES, _STORED_BYTES = 2, 3
_DICTIONARY, _VALUES = 7, 1

Fields = dict[int, Any]
"""Of a struct, by number: integers, and structs."""


def decoded_bytes(stored: bytes) -> int | None:
    """The sum over the pages that `stored` begins with and consists of; None where it does not make sense."""
    total = at = 0
    try:
        while at < len(stored):
            at, header = _read_struct(stored, at)
            if min(header[_DECODED_BYTES], header[_STORED_BYTES]) < 0:
                return None
            total += header[_DECODED_BYTES]
            at += header[_STORED_BYTES]
    except (IndexError, KeyError, TypeError, ValueError, RecursionError):  # TypeError: a struct for an integer
        return None
    return total if at == len(stored) else None


def dictionary_values(stored: bytes) -> int:
    """How many values the dictionary page has with which `stored` begins; 0 where no such page is there."""
    try:
        values: int = _read_struct(stored, 0)[1][_DICTIONARY][_VALUES]
    except (IndexError, KeyError, TypeError, ValueError, RecursionError):  # TypeError: a struct for an integer
        return 0
    return values


def _read_struct(data: bytes, at: int) -> tuple[int, Fields]:
    """Where a struct ends, and its fields."""
    fields: Fields = {}
    number = 0
    while (head := data[at]) != _STOP:
        at += 1
        kind = head & 15
        if head >> 4:
            number += head >> 4
        else:
            at, number = _read_integer(data, at)
        if kind in _INTEGERS:
            at, fields[number] = _read_integer(data, at)
        elif kind == _BYTE:
            at += 1
        elif kind == _BINARY:
            at, size = _read_varint(data, at)
            at += size
        elif kind == _STRUCT:
            at, fields[number] = _read_struct(data, at)
        elif kind not in (_TRUE, _FALSE):
            raise ValueError(kind)
    return at + 1, fields


def _read_integer(data: bytes, at: int) -> tuple[int, int]:
    at, value = _read_varint(data, at)
    return at, value >> 1 ^ -(value & 1)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return at, value
        shift += 7
        if shift > 63:
            raise ValueError("a number longer than 64 bits")
