#!/usr/bin/env python3
"""Build a corpus from text that comes with every Python: the standard library's sources and documentation.

    python examples/build_corpus.py [FOLDER] [--megabytes N]      default: out/corpus, 24

Documentation (help topics, docstrings, names of Unicode characters) becomes one Parquet file (JSONL without pyarrow).
Sources become several JSONL files with zstd. Every record has `id`, `text` and `kind`. One Python always builds the
same bytes. If its library is too small (some distributions omit its tests), the script adds installed packages. It
imports no module to read docstrings, and downloads nothing. The folder appears complete or not at all.
"""

from __future__ import annotations

import argparse
import ast
import json
import shutil
import sys
import sysconfig
import tokenize
import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FILE_BYTES = 4_000_000
"""Text in one JSONL file."""

DOCUMENTATION_SHARE = 0.25
_NOT_THE_LIBRARY = {"site-packages", "dist-packages", "__pycache__"}
_DERIVED_NAMES = ("CJK UNIFIED", "CJK COMPATIBILITY", "HANGUL SYLLABLE", "TANGUT", "NUSHU", "KHITAN", "EGYPTIAN")


class Document(NamedTuple):
    """A record of the corpus."""

    id: str
    text: str
    kind: str


def build_corpus(folder: Path, megabytes: float = 24.0) -> int:
    """Write the corpus to `folder`, which must not exist; returns its bytes of text.

    Raises SystemExit if this Python has less text than asked for.
    """
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    wanted = round(megabytes * 1e6)
    documentation = list(take(read_documentation(), round(wanted * DOCUMENTATION_SHARE)))
    text_bytes = sum(size_of(document) for document in documentation)
    if find_spec("pyarrow"):
        write_parquet(unfinished / "documentation.parquet", documentation)
    else:
        write_jsonl(unfinished / "documentation.jsonl.zst", documentation)
    for number, documents in enumerate(chunks(take(read_sources(), wanted - text_bytes), FILE_BYTES)):
        write_jsonl(unfinished / f"sources-{number:05d}.jsonl.zst", documents)
        text_bytes += sum(size_of(document) for document in documents)
    if text_bytes < wanted:
        sys.exit(f"this Python carries {text_bytes / 1e6:.1f} MB of text: ask for less with --megabytes")
    unfinished.rename(folder)
    return text_bytes


def read_documentation() -> Iterator[Document]:
    """Help topics, then one document of docstrings a module, then the characters in blocks of 256."""
    from pydoc_data.topics import topics

    yield from (Document(f"topic/{name}", topics[name], "topic") for name in sorted(topics))
    for path in library_files():
        text = read_source(path)
        docstrings = extract_docstrings(text) if text else ""
        if docstrings:
            yield Document(f"docstrings/{name_of(path)}", docstrings, "docstrings")
    yield from read_characters()


def read_sources() -> Iterator[Document]:
    """The library's modules, then its tests, then what is installed beside it."""
    installed = Path(sysconfig.get_path("purelib"))
    for path in chain(library_files(), library_files(tests=True), sorted(installed.rglob("*.py"))):
        text = read_source(path)
        if text:
            yield Document(name_of(path), text, "source")


def library_files(*, tests: bool = False) -> Iterator[Path]:
    """The library's files in the order of their names, without its tests or only these."""
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        parts = path.relative_to(library).parts
        if not _NOT_THE_LIBRARY.intersection(parts) and tests == bool({"test", "tests", "idle_test"} & set(parts)):
            yield path


def name_of(path: Path) -> str:
    """The path below the folder that holds it, the same on every machine."""
    for root in ("purelib", "stdlib"):
        folder = Path(sysconfig.get_path(root))
        if path.is_relative_to(folder):
            return path.relative_to(folder).as_posix()
    return path.name


def read_source(path: Path) -> str:
    """The file's text in the encoding that it declares; "" for one that Python could not read either."""
    try:
        with tokenize.open(path) as file:
            return file.read()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return ""


def extract_docstrings(source: str) -> str:
    """The docstrings of a module, its classes and functions, each below its name; without importing it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = ast.parse(source)
        except (SyntaxError, ValueError):
            return ""
    parts = [ast.get_docstring(module) or ""]
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                parts.append(f"{node.name}\n{docstring}")
    return "\n\n".join(part for part in parts if part)


def read_characters() -> Iterator[Document]:
    """Characters and their names, which brings most scripts into the corpus."""
    for start in range(0, 0x20000, 256):
        lines = []
        for character in map(chr, range(start, start + 256)):
            name = unicodedata.name(character, "")
            if name and not name.startswith(_DERIVED_NAMES):
                lines.append(f"{character} U+{ord(character):04X} {name}\n")
        if lines:
            yield Document(f"characters/{start:05X}", "".join(lines), "characters")


def size_of(document: Document) -> int:
    """Bytes of text."""
    return len(document.text.encode())


def take(documents: Iterable[Document], wanted_bytes: int) -> Iterator[Document]:
    """Documents until there is at least this much text; those that are no valid Unicode are passed over."""
    taken = 0
    for document in documents:
        if taken >= wanted_bytes:
            return
        try:
            taken += len(document.text.encode())
        except UnicodeEncodeError:  # a lone surrogate
            continue
        yield document


def chunks(documents: Iterable[Document], chunk_bytes: int) -> Iterator[list[Document]]:
    """Consecutive documents, about `chunk_bytes` of text at a time."""
    chunk: list[Document] = []
    size = 0
    for document in documents:
        chunk.append(document)
        size += size_of(document)
        if size >= chunk_bytes:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def write_jsonl(path: Path, documents: list[Document]) -> None:
    """JSON lines, compressed with zstd."""
    lines = "".join(json.dumps(document._asdict(), ensure_ascii=False) + "\n" for document in documents)
    path.write_bytes(zstd.compress(lines.encode()))


def write_parquet(path: Path, documents: list[Document]) -> None:
    """Columns id, text and kind; row groups of 64 rows, so that even a small file has several."""
    import pyarrow.parquet

    arrow: Any = pyarrow  # its types are not complete
    columns = {name: [getattr(document, name) for document in documents] for name in Document._fields}
    arrow.parquet.write_table(arrow.table(columns), path, compression="zstd", row_group_size=64)


def is_of_corpus(path: Path) -> bool:
    """Whether a file has a name that `build_corpus` gives."""
    return path.name.startswith(("documentation.", "sources-"))


def main(arguments: list[str] | None = None) -> int:
    """Build the corpus unless it is there already."""
    parser = argparse.ArgumentParser(description="Build a corpus from the standard library's text.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("out/corpus"))
    parser.add_argument("--megabytes", type=float, default=24.0, help="bytes of text, in millions (default 24)")
    options = parser.parse_args(arguments)
    if not 0 < options.megabytes < float("inf"):
        parser.error(f"--megabytes {options.megabytes:g}: give a number above 0")
    if options.folder.exists() and not options.folder.is_dir():
        parser.error(f"{options.folder} is a file: give a folder")
    if options.folder.exists():
        if not any(map(is_of_corpus, options.folder.iterdir())):
            parser.error(f"{options.folder} is there and holds no corpus of this script: give another folder")
        print(f"{options.folder}: there already")
        return 0
    text_bytes = build_corpus(options.folder, options.megabytes)
    files = sorted(options.folder.iterdir())
    stored = sum(path.stat().st_size for path in files)
    print(f"{options.folder}: {len(files)} files, {text_bytes / 1e6:.1f} MB of text, {stored / 1e6:.1f} MB stored")
    return 0


if __name__ == "__main__":
    sys.exit(main())
