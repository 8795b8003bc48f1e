"""Formats counts for messages."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 file`, `2 files`, `1,000 processes`; the plural of the noun's last word, unless it is given."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {plural or noun + ('es' if noun.endswith(('s', 'x')) else 's')}"


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def counted_sizes(sizes: Sequence[int]) -> str:
    """Of vocabularies: `8,000 and 16,000 tokens`."""
    return f"{listed([f'{size:,}' for size in sizes])} tokens"
