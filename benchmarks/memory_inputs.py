"""Inputs that a worker's memory must not grow with, and documents that it grows with by a known rule.

Deterministic for one installation of Python.
`scale` shrinks all of them alike. Every function writes into an empty folder.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from itertools import islice
from pathlib import Path
from random import Random
from string import ascii_lowercase
from typing import Any, NamedTuple

import orjson
from stdlib_text import iter_documents

JSONL_BYTES = 4_000_000_000
PACKED_BYTES = 600_000_000
LINE_BYTES = 3_000_000_000
ROW_GROUP_BYTES = 1_000_000_000
TINY_FILES = 200_000
TINY_TEXT_CHARACTERS = 400
SMALL_BYTES = 1_000_000
FILES_IN_A_FOLDER = 1000
BAD_LINE = b'{"id": 12345678, "text": "cut in the middle of it\n'
BAD_LINES = 2_000_000

BAR_BYTES = 600_000_000
"""For every process, whatever its input."""

RUN_BYTES = 55
"""And for each byte of the longest run that the tokenizer merges as one piece: what its library needs, and the text."""

ONE_LETTER_BYTES = 50_000_000
RANDOM_LETTERS_BYTES = 20_000_000
BLANKS_BYTES = 20_000_000
WORDS_BYTES = 48_000_000


class Input(NamedTuple):
    """What is in the folder, how to make it, and what a run must say of it."""

    name: str
    title: str
    make: Callable[[Path, float], None]
    quarantined: Callable[[float], int] = lambda scale: 0
    arguments: Callable[[float], list[str]] = lambda scale: []
    bar_bytes: Callable[[float], int] = lambda scale: BAR_BYTES


def make_small(folder: Path, scale: float) -> None:
    """Next to nothing: what a run needs whatever its source."""
    _write_jsonl(folder / "small.jsonl", SMALL_BYTES)


def make_jsonl(folder: Path, scale: float) -> None:
    _write_jsonl(folder / "large.jsonl", int(JSONL_BYTES * scale))


def make_packed(folder: Path, scale: float) -> None:
    """More than a full shard of the default size, which has several blocks."""
    _write_jsonl(folder / "packed.jsonl", int(PACKED_BYTES * scale))


def pack_rows(scale: float) -> list[str]:
    return ["--output.sequence.length", "2048", "--output.sequence.packing", "BestFit"]


def shuffle_rows(scale: float) -> list[str]:
    return [*pack_rows(scale), "--output.shuffle.seed", "0"]


def make_single_line(folder: Path, scale: float) -> None:
    """One document that is a line without end, and a good file, so that the dataset is not empty."""
    left = int(LINE_BYTES * scale)
    with (folder / "line.jsonl").open("wb") as file:
        file.write(b'{"id":"line","text":"')
        for document in iter_documents():
            left -= file.write(orjson.dumps(document.text)[1:-1])
            if left <= 0:
                break
        file.write(b'"}\n')
    _write_jsonl(folder / "good.jsonl", SMALL_BYTES)


def limit_documents(scale: float) -> list[str]:
    """The one bad document is half of all; in a small check the limit shrinks with the line."""
    arguments = ["--maxQuarantined", "100%"]
    return arguments if scale >= 1 else [*arguments, "--documents.maxBytes", str(max(1 << 20, int(scale * (64 << 20))))]


def make_parquet(folder: Path, scale: float) -> None:
    """One row group that holds everything."""
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    names, texts = [], []
    left = int(ROW_GROUP_BYTES * scale)
    for document in iter_documents():
        names.append(document.name)
        texts.append(document.text)
        left -= len(document.text.encode())
        if left <= 0:
            break
    path = folder / "row_group.parquet"
    parquet.write_table(arrow.table({"id": names, "text": texts}), path, row_group_size=len(names))
    groups = parquet.read_metadata(path).num_row_groups
    if groups != 1:
        raise SystemExit(f"{path}: {groups} row groups, expected 1")


def make_tiny_files(folder: Path, scale: float) -> None:
    """A document a file."""
    documents = islice(iter_documents(), int(TINY_FILES * scale))
    for number, document in enumerate(documents):
        parent = folder / f"{number // FILES_IN_A_FOLDER:04d}"
        if number % FILES_IN_A_FOLDER == 0:
            parent.mkdir()
        record = {"id": document.name, "text": document.text[:TINY_TEXT_CHARACTERS]}
        (parent / f"{number:06d}.jsonl").write_bytes(orjson.dumps(record) + b"\n")


def make_bad_lines(folder: Path, scale: float) -> None:
    """Short unusable lines in a file that cannot be cut, and a good file, so that the dataset is not empty."""
    zstd: Any = import_module("tokenization_worker.readers.decompress").zstd
    (folder / "bad.jsonl.zst").write_bytes(zstd.compress(BAD_LINE * count_bad_lines(scale)))
    _write_jsonl(folder / "good.jsonl", SMALL_BYTES)


def count_bad_lines(scale: float) -> int:
    return int(BAD_LINES * scale)


def limit_bad_lines(scale: float) -> list[str]:
    return ["--maxQuarantined", "100%"]


def make_one_letter(folder: Path, scale: float) -> None:
    _write_document(folder, "a" * int(ONE_LETTER_BYTES * scale))


def make_random_letters(folder: Path, scale: float) -> None:
    letters = Random(1).choices(ascii_lowercase, k=int(RANDOM_LETTERS_BYTES * scale))
    _write_document(folder, "".join(letters))


def make_blanks(folder: Path, scale: float) -> None:
    _write_document(folder, "a" + " " * int(BLANKS_BYTES * scale) + "a")


def make_words(folder: Path, scale: float) -> None:
    """A document as long as those, which every pattern cuts into short pieces."""
    size = int(WORDS_BYTES * scale)
    words = "It is a truth that most words of a text are short, and that blanks stand between them. "
    _write_document(folder, (words * (size // len(words) + 1))[:size])


def _bar_of_run(run_bytes: int) -> Callable[[float], int]:
    return lambda scale: BAR_BYTES + int(RUN_BYTES * run_bytes * scale)


def _write_document(folder: Path, text: str) -> None:
    (folder / "one.jsonl").write_bytes(orjson.dumps({"id": "one", "text": text}) + b"\n")


INPUTS = (
    Input("small", "1 MB of JSONL, engine not yet probed on this host", make_small),
    Input("jsonl", "4 GB of JSONL in one file", make_jsonl),
    Input("packed", "600 MB of JSONL, rows packed by best fit", make_packed, arguments=pack_rows),
    Input("shuffled", "600 MB of JSONL, packed rows shuffled", make_packed, arguments=shuffle_rows),
    Input("line", "a line of 3 GB (quarantined) and a good file", make_single_line, lambda scale: 1, limit_documents),
    Input("parquet", "Parquet, one row group of 1 GB", make_parquet),
    Input("tiny", "200,000 files of a document each", make_tiny_files),
    Input(
        "bad",
        "100 MB of short unusable lines in one .zst, and a good file",
        make_bad_lines,
        count_bad_lines,
        limit_bad_lines,
    ),
    Input("words", "a document of 48 MB of ordinary words", make_words),
    Input("letter", "a document of 50 MB, one letter", make_one_letter, bar_bytes=_bar_of_run(ONE_LETTER_BYTES)),
    Input(
        "letters",
        "a document of 20 MB of random letters",
        make_random_letters,
        bar_bytes=_bar_of_run(RANDOM_LETTERS_BYTES),
    ),
    Input("blanks", "a document of 20 MB of blanks", make_blanks, bar_bytes=_bar_of_run(BLANKS_BYTES)),
)


def _write_jsonl(path: Path, text_bytes: int) -> None:
    left = text_bytes
    with path.open("wb") as file:
        for document in iter_documents():
            file.write(orjson.dumps({"id": document.name, "text": document.text}) + b"\n")
            left -= len(document.text)
            if left <= 0:
                return
