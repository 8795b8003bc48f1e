"""Corpora from the sources of Python's standard library: text that is on every machine, the same on each run.

A corpus is a folder and, beside it, what a correct reader finds there: the documents in source order. File names
sort in the order in which the files are written, so that a corpus never depends on how a reader orders files.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ODD_TEXTS = [
    "",
    "The special token <|endoftext|> is ordinary text, and so is <|endofprompt|>.",
    "Straße, 日本語のテキスト, съешь же ещё этих мягких булок, 🦊🦊 and e\u0301.",
    "line\r\nline\u2028line\u0085line\x0b\x0c\x00end",
    "it'ſ I'VE don'T we'll 1234567890 ________ \t\t\t   \n\n\n   x",
    " ",
    "",
]
"""Empty texts, spelled specials, line ends that end no line, and what engines like to disagree about."""


@dataclass(frozen=True)
class Corpus:
    """A folder of source files. `documents`: the texts of all usable records, in source order."""

    folder: Path
    documents: Sequence[str]
    quarantined: int = 0
    damaged_files: int = 0


@cache
def stdlib_documents() -> tuple[str, ...]:
    """Top-level pieces (classes, functions, headers) of the standard library's modules: 6 bytes to 60 kB."""
    folder = Path(sysconfig.get_path("stdlib"))
    pieces: list[str] = []
    for path in sorted(folder.glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        pieces += [piece for piece in re.split(r"\n(?=class |def |@|if __name__)", text) if piece]
    return tuple(pieces)


def take_documents(size_bytes: int, *, first: int = 0, odd: bool = True) -> list[str]:
    """About `size_bytes` of documents from the `first`-th on, with odd ones strewn in."""
    texts: list[str] = []
    size = 0
    every = stdlib_documents()
    number = first
    while size < size_bytes:
        texts.append(every[number % len(every)])
        size += len(texts[-1])
        if odd and len(texts) % 41 == 7:
            texts.append(ODD_TEXTS[len(texts) % len(ODD_TEXTS)])
        number += 1
    return texts


def whole_modules(size_bytes: int) -> list[str]:
    """Whole modules of the standard library, large ones first: 50 to 250 kB each."""
    paths = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"), key=lambda path: (-path.stat().st_size, path.name))
    texts: list[str] = []
    for path in paths:
        texts.append(path.read_text(encoding="utf-8", errors="replace"))
        if sum(map(len, texts)) >= size_bytes:
            break
    return texts


def json_lines(texts: Sequence[str], *, first_id: int = 0, blank_lines: bool = False) -> bytes:
    """JSON lines with ids; `blank_lines` strews lines in that are no documents."""

    def lines() -> Iterator[str]:
        for number, text in enumerate(texts, first_id):
            yield json.dumps({"id": f"doc-{number}", "text": text}, ensure_ascii=number % 2 == 0) + "\n"
            if blank_lines and number % 13 == 5:
                yield " \t\r\n" if number % 2 else "\n"

    return "".join(lines()).encode()


def zstd_frames(data: bytes, *, frames: int = 1) -> bytes:
    """zstd of `data`, cut into `frames` frames at any byte."""
    step = -(-len(data) // frames)
    return b"".join(zstd.compress(data[at : at + step]) for at in range(0, len(data), step))


def gzip_members(data: bytes, *, members: int = 1) -> bytes:
    """gzip of `data`, cut into `members` members at any byte."""
    step = -(-len(data) // members)
    return b"".join(gzip.compress(data[at : at + step], 6, mtime=0) for at in range(0, len(data), step))


def write_parquet(path: Path, texts: Sequence[str], *, rows_per_group: int) -> None:
    table = pa.table({"id": [f"row-{number}" for number in range(len(texts))], "text": list(texts)})
    pq.write_table(table, path, row_group_size=rows_per_group, compression="zstd")


class CorpusWriter:
    """Writes files into a folder and remembers the documents in the order in which a reader finds them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.documents: list[str] = []
        self.quarantined = 0
        self.damaged_files = 0
        self._files = 0
        folder.mkdir(parents=True)

    def _path(self, suffix: str) -> Path:
        self._files += 1
        return self.folder / f"{self._files:05d}{suffix}"

    def jsonl(self, texts: Sequence[str], *, pack: str = "", parts: int = 1, blank_lines: bool = False) -> None:
        data = json_lines(texts, first_id=len(self.documents), blank_lines=blank_lines)
        suffix = {"": ".jsonl", "zstd": ".jsonl.zst", "gzip": ".jsonl.gz"}[pack]
        if pack == "zstd":
            data = zstd_frames(data, frames=parts)
        if pack == "gzip":
            data = gzip_members(data, members=parts)
        self._path(suffix).write_bytes(data)
        self.documents += texts

    def parquet(self, texts: Sequence[str], *, rows_per_group: int) -> None:
        write_parquet(self._path(".parquet"), texts, rows_per_group=rows_per_group)
        self.documents += texts

    def text(self, text: str) -> None:
        """One file, one document; a file of no bytes holds none."""
        self._path(".txt").write_bytes(text.encode())
        self.documents += [text] if text else []

    def unusable_lines(self, texts: Sequence[str], lines: Sequence[bytes]) -> None:
        """A JSON lines file in which a bad line follows every document, as long as there are some."""
        good = json_lines(texts, first_id=len(self.documents)).splitlines(keepends=True)
        bad = [line + b"\n" for line in lines] + [b""] * (len(good) - len(lines))
        self._path(".jsonl").write_bytes(b"".join(a + b for a, b in zip(good, bad, strict=True)))
        self.documents += texts
        self.quarantined += len(lines)

    def truncated_zstd(self, texts: Sequence[str]) -> None:
        """A file whose last frame is cut: none of its documents count."""
        data = zstd_frames(json_lines(texts), frames=3)
        self._path(".jsonl.zst").write_bytes(data[:-100])
        self.damaged_files += 1

    def finish(self) -> Corpus:
        return Corpus(self.folder, tuple(self.documents), self.quarantined, self.damaged_files)


BAD_LINES = [
    b'{"id": "x", "text": "cut',
    b'{"id": "x", "text": NaN}',
    b'["no object"]',
    b'{"id": "x"}',
    b'{"id": "x", "text": null}',
    b'{"id": "x", "text": 7}',
    b'{"id": "x", "text": "\xff"}',
]


def mixed_corpus(folder: Path, size_bytes: int = 1_500_000) -> Corpus:
    """Every format and compression side by side, with empty documents at the borders of files."""
    part = size_bytes // 6
    corpus = CorpusWriter(folder)
    corpus.jsonl(["", *take_documents(part), ""], blank_lines=True)
    corpus.jsonl(take_documents(part, first=300), pack="zstd", parts=3)
    corpus.text("")
    corpus.text(take_documents(30_000, first=400)[0])
    corpus.jsonl(take_documents(part, first=600), pack="gzip", parts=2)
    corpus.parquet(take_documents(part, first=900), rows_per_group=25)
    for text in take_documents(part // 4, first=1200):
        corpus.text(text)
    corpus.jsonl(["", "", ""])
    corpus.unusable_lines(take_documents(part, first=1500), BAD_LINES)
    corpus.jsonl([*take_documents(part, first=1800), "", ""], pack="zstd")
    return corpus.finish()


def one_large_file(folder: Path, size_bytes: int = 1_500_000) -> Corpus:
    """One plain JSON lines file, which is cut into many ranges; some lines are longer than a small range."""
    corpus = CorpusWriter(folder)
    texts = (
        take_documents(size_bytes // 2) + whole_modules(size_bytes // 4) + take_documents(size_bytes // 4, first=900)
    )
    corpus.jsonl(texts, blank_lines=True)
    return corpus.finish()


def tiny_files(folder: Path, count: int = 400) -> Corpus:
    """Many files of one short document, a few without any."""
    corpus = CorpusWriter(folder)
    for number, text in enumerate(take_documents(10_000_000, odd=False)[:count]):
        if number % 3 == 0:
            corpus.text(text[:300])
        elif number % 50 == 1:
            corpus.text("")
        else:
            corpus.jsonl([text[:200]], pack=["", "zstd", "gzip"][number % 3])
    return corpus.finish()


def plain_texts(folder: Path, texts: Sequence[str]) -> Corpus:
    """Exactly these documents, in two plain JSON lines files."""
    corpus = CorpusWriter(folder)
    half = len(texts) // 2
    corpus.jsonl(texts[:half])
    corpus.jsonl(texts[half:])
    return corpus.finish()
