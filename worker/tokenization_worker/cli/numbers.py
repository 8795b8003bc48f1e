"""Parses and formats numbers for people."""

from __future__ import annotations

import argparse

from tokenization_worker.api.types.quantities import nearest_number, parse_quantity
from tokenization_worker.messages.counts import counted as counted
from tokenization_worker.planning.limits import percent

_MOST_SHOWN = 80


def read_count(text: str) -> int:
    """A flag's whole number above 0, in any form that a manifest takes: `1000`, `1_000`, `1k`."""
    try:
        return parse_quantity(text)
    except ValueError:
        meant = nearest_number(text)
        hint = "" if meant is None else f": write {meant}"
        shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
        raise argparse.ArgumentTypeError(f"found {shown!r}, expected a whole number, at least 1{hint}") from None


def read_number(text: str) -> int:
    """As `read_count`, and 0."""
    if text.strip() == "0":
        return 0
    try:
        return read_count(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(str(error).replace("at least 1", "at least 0")) from None


def short_count(value: float) -> str:
    """`79.1M`, `1.3k`, `12`."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e4)):
        if value >= size:
            scaled = value / (1e3 if unit == "k" else size)
            return f"{scaled:.0f}{unit}" if scaled >= 100 else f"{scaled:.1f}{unit}"
    return f"{value:,.0f}"


def short_bytes(value: float) -> str:
    """`81 MB`, `1.3 GB`; powers of ten."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            scaled = value / size
            return f"{scaled:.0f} {unit}" if scaled >= 10 else f"{scaled:.1f} {unit}"
    return f"{value:.0f} B"


def short_time(seconds: float) -> str:
    """`1.3 s`, `2 min`, `3.5 h`, `2.1 days`."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 180_000 else f"{seconds / 86400:.1f} days"


def short_share(share: float) -> str:
    """`30 %`, `0.12 %`, of one."""
    return f"{100 * share:.3g} %"


def share_of_bytes(quarantined: int, quarantined_bytes: int | None, read_bytes: int | None) -> str:
    """` (61 % of the bytes)` behind a number of unusable documents; nothing for 0, or where bytes are not known."""
    if not quarantined or not read_bytes or quarantined_bytes is None:
        return ""
    return f" ({percent(quarantined_bytes, read_bytes)} of the bytes)"


def estimated(number: float | None, noun: str) -> str:
    """`~79.1M tokens`, `unknown tokens`."""
    return f"unknown {noun}s" if number is None else f"~{short_count(number)} {noun}{'' if number == 1 else 's'}"


def clock_time(seconds: float) -> str:
    """`0:07`, `1:02:03`, `4.2 days`: of something that goes on."""
    whole = round(seconds)
    if whole >= 360_000:
        return f"{whole / 86400:.1f} days"
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
