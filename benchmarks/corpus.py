"""The bytes that everybody reads: a folder of .jsonl.zst files, repeated to a size, and an even part of it.

Sizes are bytes of text (UTF-8, what documents hold), never of JSON or of what is stored. Files are linked where
that is possible, so that a repeated corpus costs no room; a file then also stands in the page cache only once.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import orjson
from stdlib_text import iter_documents

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SUFFIX = ".jsonl.zst"
STDLIB_FILE_BYTES = 16_000_000
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


@dataclass(frozen=True, slots=True)
class CorpusFile:
    """One file and what it holds."""

    path: Path
    documents: int
    text_bytes: int


@dataclass(frozen=True, slots=True)
class Corpus:
    """Files in one folder, in the order in which their documents count."""

    folder: Path
    files: tuple[CorpusFile, ...]
    distinct_bytes: int

    @property
    def text_bytes(self) -> int:
        return sum(file.text_bytes for file in self.files)

    @property
    def documents(self) -> int:
        return sum(file.documents for file in self.files)

    @property
    def stored_bytes(self) -> int:
        return sum(file.path.stat().st_size for file in self.files)

    @property
    def paths(self) -> list[Path]:
        return [file.path for file in self.files]

    def describe(self) -> str:
        repeats = self.text_bytes / self.distinct_bytes
        again = f", {self.distinct_bytes / 1e6:,.0f} MB distinct, each {repeats:.1f} times" if repeats > 1.01 else ""
        return (
            f"{self.text_bytes / 1e6:,.1f} MB of text in {self.documents:,} documents, {len(self.files)} files, "
            f"{self.stored_bytes / 1e6:,.1f} MB stored{again}"
        )


def parse_size(text: str) -> int:
    """`2GB`, `200MB`, `64MiB` or a plain number as bytes."""
    found = re.fullmatch(r"([\d.]+)\s*([kmg]i?)?b?", text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is no size; write 2GB, 200MB or 64MiB")
    return int(float(found[1]) * _UNITS[found[2] or ""])


def measure_folder(folder: Path, globs: Sequence[str]) -> list[CorpusFile]:
    """The .jsonl.zst files of `folder` whose names match one of `globs`, with their counts."""
    if not folder.is_dir():
        raise SystemExit(f"{folder}: there is no such folder")
    paths = sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX))
    chosen = [path for path in paths if not globs or any(fnmatchcase(path.name, glob) for glob in globs)]
    if not chosen:
        wanted = f" that match {','.join(globs)}" if globs else ""
        raise SystemExit(f"{folder}: {len(paths)} {SUFFIX} files, none{wanted}")
    return [measure_file(path) for path in chosen]


def measure_file(path: Path) -> CorpusFile:
    documents = text_bytes = 0
    with zstd.open(path, "rb") as lines:
        for line in lines:
            documents += 1
            text_bytes += len(orjson.loads(line)["text"].encode())
    return CorpusFile(path, documents, text_bytes)


def link_repeated(files: Sequence[CorpusFile], folder: Path, min_bytes: int) -> Corpus:
    """`files` again and again below new names in `folder`, until there are `min_bytes` of text."""
    folder.mkdir(parents=True)
    linked: list[CorpusFile] = []
    for copy, file in _until(files, min_bytes):
        target = folder / f"{copy:04d}-{file.path.name}"
        _link(file.path, target)
        linked.append(CorpusFile(target, file.documents, file.text_bytes))
    distinct = sum(file.text_bytes for file in files)
    return Corpus(folder, tuple(linked), min(distinct, sum(file.text_bytes for file in linked)))


def _until(files: Sequence[CorpusFile], min_bytes: int) -> Iterator[tuple[int, CorpusFile]]:
    """Whole copies of all files: a part of one would change the mixture."""
    total = copy = 0
    while total < min_bytes:
        for file in files:
            yield copy, file
            total += file.text_bytes
        copy += 1


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system, or not ours
        shutil.copyfile(source, target)


def choose_evenly(files: Sequence[CorpusFile], text_bytes: int) -> list[CorpusFile]:
    """Files from all over the list, about `text_bytes` of text: a part that has the mixture of the whole."""
    share = text_bytes / sum(file.text_bytes for file in files)
    chosen: list[CorpusFile] = []
    taken = seen = 0
    for file in files:
        seen += file.text_bytes
        if taken + file.text_bytes / 2 <= share * seen:
            chosen.append(file)
            taken += file.text_bytes
    return chosen or [min(files, key=lambda file: file.text_bytes)]


def write_stdlib_corpus(folder: Path, text_bytes: int) -> None:
    """A corpus from this machine's Python sources, in files of 16 MB of text (or a quarter of it all)."""
    folder.mkdir(parents=True)
    per_file = min(STDLIB_FILE_BYTES, max(1, text_bytes // 4))
    total = in_file = number = 0
    with ExitStack() as stack:
        out = stack.enter_context(zstd.open(folder / f"stdlib-{number:05d}{SUFFIX}", "wb"))
        for document in iter_documents():
            if total >= text_bytes:
                break
            if in_file >= per_file:
                stack.pop_all().close()
                number += 1
                out = stack.enter_context(zstd.open(folder / f"stdlib-{number:05d}{SUFFIX}", "wb"))
                in_file = 0
            out.write(orjson.dumps({"id": document.name, "text": document.text}) + b"\n")
            size = len(document.text.encode())
            total += size
            in_file += size
