"""The pages of the documentation, and the tables on them."""

from __future__ import annotations

import re
from functools import cache

from support.places import CHECKOUT


@cache
def read(page: str) -> str:
    """The text of a page, whose path is relative to the checkout."""
    return (CHECKOUT / page).read_text(encoding="utf-8")


def table_heads(page: str) -> set[str]:
    """The words in code style in the first column of a page's tables."""
    rows = re.findall(r"^\| (`[^|]*?) \|", page, re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`([A-Za-z0-9]+)`", row)}
