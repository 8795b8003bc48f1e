"""Finds the first difference between two JSON values, so that a finding is one sentence whatever their size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MOST_CHARACTERS = 200
"""Of a value in a finding: what is longer is cut."""

_NOTHING = object()


class Difference(NamedTuple):
    """Where it is, such as `splits[1].tokens`, and both values in words."""

    place: str
    expected: str
    found: str


def first_difference(place: str, expected: object, found: object) -> Difference:
    """Descends into objects and lists as long as both have them; the values must not be equal."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        for key in [*expected, *(key for key in found if key not in expected)]:
            values = expected.get(key, _NOTHING), found.get(key, _NOTHING)
            if values[0] != values[1]:
                return first_difference(f"{place}.{key}", *values)
    if isinstance(expected, list) and isinstance(found, list):
        for number in range(max(len(expected), len(found))):
            was, now = (values[number] if number < len(values) else _NOTHING for values in (expected, found))
            if was != now:
                return first_difference(f"{place}[{number}]", was, now)
    return Difference(place, _shorten(expected), _shorten(found))


def _shorten(value: object) -> str:
    text = "nothing" if value is _NOTHING else str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."
