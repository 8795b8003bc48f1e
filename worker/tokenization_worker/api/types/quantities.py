"""Quantities (`64Mi`), percentages (`0.5%`) and limits (`10` or `0.1%`) of a manifest.

The models keep such values as written, because GitOps tools compare what they applied with what they read
back; code that needs a number asks here. Arithmetic is exact: integers and fractions, never floats.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

QUANTITY_PATTERN = r"^[1-9](_?[0-9]){0,17}(Ki|Mi|Gi|Ti|k|M|G|T)?$"
PERCENTAGE_PATTERN = r"^[0-9]{1,3}(\.[0-9]{1,12})?%$"
LIMIT_PATTERN = r"^([0-9](_?[0-9]){0,17}(k|M|G|T)?|[0-9]{1,3}(\.[0-9]{1,12})?%)$"

MAX_INT64 = 2**63 - 1
_FACTORS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


def parse_quantity(value: int | str) -> int:
    """Return the whole number that `value` stands for: `"64Mi"` is 67108864.

    Raises ValueError for anything but a positive int64 or a string of digits, with `_` between them or not, and one of
    Ki, Mi, Gi, Ti, k, M, G, T.
    """
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_INT64:
        return value
    if not isinstance(value, str) or not re.fullmatch(QUANTITY_PATTERN, value):
        raise ValueError("not a positive quantity such as 64Mi")
    number = _read(value)
    if number > MAX_INT64:
        raise ValueError(f"a quantity above 2^63-1: {value!r}")
    return number


def _read(value: str) -> int:
    digits = value.rstrip("KMGTik")
    return int(digits) * _FACTORS[value[len(digits) :]]


_ALMOST = re.compile(r"([0-9][0-9_,]*(?:\.[0-9]+)?)(?:[eE]\+?([0-9]{1,2}))?\s*([kKmMgGtT]?)(i?)[bB]?(?:ytes)?")


def nearest_number(value: object) -> int | None:
    """The whole number that a person may have meant by what is refused: `1e6`, `1.5M`, `64 MB`, `1,000`; None for
    anything else."""
    if isinstance(value, float) and value.is_integer() and 0 < value <= MAX_INT64:
        return int(value)
    found = _ALMOST.fullmatch(value.strip()) if isinstance(value, str) and len(value) <= 32 else None
    if found is None:
        return None
    digits, exponent, unit, binary = found.groups()
    try:
        number = Fraction(digits.replace("_", "").replace(",", "")) * 10 ** int(exponent or 0)
    except ValueError:
        return None
    number *= _FACTORS[f"{unit.upper()}i" if unit and binary else "k" if unit in ("k", "K") else unit.upper()]
    return int(number) if number.denominator == 1 and 0 < number <= MAX_INT64 else None


_SHORT_NUMBER = r"[-+]?(?:[0-9]{1,32}(?:\.[0-9]{0,32})?|\.[0-9]{1,32})(?:[eE][-+]?[0-9]{1,2})?"


def nearest_percentage(value: object) -> str | None:
    """The percentage that a person may have meant by a number: `0.01` is `1%`, `5` is `5%`, `.5%` is `0.5%`; None for
    anything else.
    """
    if isinstance(value, str) and re.fullmatch(r"\.[0-9]{1,12}%", value):
        return f"0{value}"
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,12})?\s+%", value):
        closed = re.sub(r"\s+", "", value)
        return closed if Fraction(closed[:-1]) <= 100 else None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if not isinstance(value, int) and not re.fullmatch(_SHORT_NUMBER, str(value)):
        return None  # an exponent may stand for billions of digits
    number = Fraction(value) if isinstance(value, int) else Fraction(str(value))
    if not 0 < number < 100:
        return None
    percent = number * 100 if number < 1 else number
    text = f"{float(percent):.12f}".rstrip("0").rstrip(".")
    return f"{text}%" if re.fullmatch(PERCENTAGE_PATTERN, f"{text}%") and Fraction(text) == percent else None


def too_large(value: object) -> str | None:
    """What a quantity or a percentage may be at most, in words, where `value` is one above it; None for all else."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,32}(\.[0-9]{1,32})?%", value):
        return "a percentage is at most 100%" if Fraction(value[:-1]) > 100 else None
    number: int | None = None
    if isinstance(value, str) and re.fullmatch(r"[1-9][0-9_]{0,31}(Ki|Mi|Gi|Ti|k|M|G|T)?", value):
        number = _read(value)
    if isinstance(value, int):
        number = value
    return f"too large: at most {MAX_INT64:,}" if number is not None and number > MAX_INT64 else None


def parse_percentage(value: str) -> Fraction:
    """Return `value` as an exact fraction of one: `"0.5%"` is 1/200.

    Raises ValueError for anything but 0% to 100% with at most 12 decimals.
    """
    if not isinstance(value, str) or not re.fullmatch(PERCENTAGE_PATTERN, value):
        raise ValueError(f"not a percentage such as 0.5%: {value!r}")
    share = Fraction(value[:-1]) / 100
    if share > 1:
        raise ValueError(f"a percentage above 100%: {value!r}")
    return share


@dataclass(frozen=True, slots=True)
class Limit:
    """How many of something are allowed: a count, or a share of the total."""

    count: int | None
    share: Fraction | None

    @classmethod
    def parse(cls, value: int | str) -> Limit:
        """Read `10`, `"10"` or `"0.1%"`; ValueError for anything else."""
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INT64:
            return cls(count=value, share=None)
        if not isinstance(value, str) or not re.fullmatch(LIMIT_PATTERN, value):
            raise ValueError("not a count or a percentage such as 0.1%")
        if value.endswith("%"):
            return cls(count=None, share=parse_percentage(value))
        return cls(count=_read(value), share=None)

    def allowed(self, total: int) -> int:
        """Return the largest number that is still allowed among `total` (a percentage is rounded down)."""
        if self.share is None:
            assert self.count is not None
            return self.count
        return total * self.share.numerator // self.share.denominator
