"""Quantities (`64Mi`), percentages (`0.5%`) and limits (`10` or `0.1%`) of a manifest.

The models keep such values as written, because GitOps tools compare what they applied with what they read
back; code that needs a number asks here. Arithmetic is exact: integers and fractions, never floats.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

QUANTITY_PATTERN = r"^[1-9][0-9]{0,17}(Ki|Mi|Gi|Ti|k|M|G|T)?$"
PERCENTAGE_PATTERN = r"^[0-9]{1,3}(\.[0-9]{1,12})?%$"
LIMIT_PATTERN = r"^([0-9]{1,18}|[0-9]{1,3}(\.[0-9]{1,12})?%)$"

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

    Raises ValueError for anything but a positive int64 or a string of digits with one of Ki, Mi, Gi,
    Ti, k, M, G, T.
    """
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_INT64:
        return value
    if not isinstance(value, str) or not re.fullmatch(QUANTITY_PATTERN, value):
        raise ValueError(f"not a positive quantity such as 64Mi: {value!r}")
    digits = value.rstrip("KMGTik")
    number = int(digits) * _FACTORS[value[len(digits) :]]
    if number > MAX_INT64:
        raise ValueError(f"a quantity above 2^63-1: {value!r}")
    return number


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
            raise ValueError(f"not a count or a percentage such as 0.1%: {value!r}")
        if value.endswith("%"):
            return cls(count=None, share=parse_percentage(value))
        return cls(count=int(value), share=None)

    def allowed(self, total: int) -> int:
        """Return the largest number that is still allowed among `total` (a percentage is rounded down)."""
        if self.share is None:
            assert self.count is not None
            return self.count
        return total * self.share.numerator // self.share.denominator
