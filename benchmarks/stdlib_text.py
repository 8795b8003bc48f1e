"""Text that is on every machine with Python: the standard library's sources, as many documents of it as wanted.

Deterministic for one installation of Python. The second and later copies of a document have its paragraphs in
another order, so no two documents are the same and no cache of whole texts can help anybody.
"""

from __future__ import annotations

import itertools
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Document(NamedTuple):
    """One document; `name` is unique."""

    name: str
    text: str


def iter_documents() -> Iterator[Document]:
    """Documents without end, about 10 KB each."""
    originals = read_sources()
    for copy in itertools.count():
        for name, text in originals:
            yield Document(f"{name}#{copy}", vary(text, f"{copy} {name}") if copy else text)


def read_sources() -> list[Document]:
    """Every source file of the standard library that is UTF-8, in order of its path."""
    folder = Path(sysconfig.get_path("stdlib"))
    documents = []
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).as_posix()
        if "site-packages" in path.parts or "dist-packages" in path.parts:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if text:
            documents.append(Document(name, text))
    if not documents:
        raise SystemExit(f"{folder}: no sources of the standard library here; give a corpus of your own")
    return documents


def vary(text: str, seed: str) -> str:
    """The same paragraphs in another order."""
    paragraphs = text.split("\n\n")
    random.Random(seed).shuffle(paragraphs)
    return "\n\n".join(paragraphs)
