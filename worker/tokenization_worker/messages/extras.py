"""Names what to install for an optional part of this package, from the package's metadata."""

from __future__ import annotations

import re
from importlib import metadata

_PACKAGE = "tokenization"


def install_command(extra: str) -> str:
    """The command that installs what `extra` needs, beside a checkout and beside an installed wheel."""
    try:
        wanted = metadata.requires(_PACKAGE) or []
    except metadata.PackageNotFoundError:  # run from its source
        wanted = []
    marked = re.compile(rf"extra == ['\"]{re.escape(extra)}['\"]")
    needs = [line.partition(";")[0].strip() for line in wanted if marked.search(line)]
    return "pip install " + " ".join(f"'{need}'" for need in needs or [f".[{extra}]"])
