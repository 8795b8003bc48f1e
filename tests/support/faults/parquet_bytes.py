"""Change a byte of Parquet files, and see that no file ends the process that reads it.

    PYTHONPATH=tests python tests/support/faults/parquet_bytes.py --files 1000 --seed 1

The byte is one of the footer in half of the files. Each file is read in a child process, by the readers of `plan`, of
a run and of `verify`. What each of them may answer:

    read       its rows: a run and `verify` the same
    damaged    a verdict on the file

Anything else is a failure: a process that a signal ends, another error, and two readers that say different things.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from support.faults.hostile import encrypted_parquet
from tokenization_worker.api.data import SourceFormat
from tokenization_worker.readers.document_batch import CorruptFileError
from tokenization_worker.readers.parquet.file import parquet_row_groups
from tokenization_worker.readers.parquet.reader import read_parquet, read_parquet_head
from tokenization_worker.verification.claims import SourceRules
from tokenization_worker.verification.decoders.record import CorruptSource
from tokenization_worker.verification.decoders.source import read_records

_ANSWERS = ("read", "damaged", "another error", "other texts")
_DOCUMENT_BYTES = 1 << 20
_PATIENCE_S = 60
_MEMORY_BYTES = 8 << 30
"""A footer may ask for any amount: a child that takes more than this has an error, and the machine has none."""


def footers(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Files with one changed byte in the footer, each with words for which one."""
    return _changed(_tables() | _encrypted(), count, seed, lambda footer, end: range(footer, end))


def pages(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Files with one changed byte before the footer, each with words for which one."""
    return _changed(_tables() | _pointers(), count, seed, lambda footer, end: range(4, footer))


def _changed(
    whole: dict[str, bytes], count: int, seed: int, places: Callable[[int, int], Sequence[int]]
) -> Iterator[tuple[str, bytes]]:
    chosen = random.Random(seed)
    for number in range(count):
        name = list(whole)[number % len(whole)]
        content = bytearray(whole[name])
        footer = len(content) - int.from_bytes(content[-8:-4], "little") - 8
        place = chosen.choice(places(footer, len(content)))
        before = content[place]
        content[place] = chosen.choice([byte for byte in range(256) if byte != before])
        yield f"{name}: byte {place} {before:#04x} -> {content[place]:#04x}", bytes(content)


def _tables() -> dict[str, bytes]:
    rows = range(300)
    table = pa.table(
        {
            "text": [f"document {n} " * (n % 7) if n % 11 else None for n in rows],
            "id": [f"id {n}" for n in rows],
            "meta": [{"n": n, "tags": [str(n)] * (n % 3)} for n in rows],
        }
    )
    return {
        "default": _parquet(table),
        "zstd": _parquet(table, compression="zstd", use_dictionary=False, write_page_checksum=True),
        "v2": _parquet(table, compression="gzip", data_page_version="2.0", write_page_index=True),
    }


def _encrypted() -> dict[str, bytes]:
    return {"signed": encrypted_parquet(["author"]), "encrypted": encrypted_parquet(["text"])}


def _pointers() -> dict[str, bytes]:
    """Rows that are pointers into a dictionary, with nothing that would tell a changed one."""
    texts = [f"value {n % 5}" if n % 3 else None for n in range(300)]
    typed = pa.array(texts).dictionary_encode()
    return {
        name: _parquet(pa.table({"text": each}), compression="none")
        for name, each in (("pointers", texts), ("typed", typed))
    }


def _parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=100, **options)
    return sink.getvalue()


def _plan(content: bytes) -> None:
    head = read_parquet_head(io.BytesIO(content), len(content), "text", _DOCUMENT_BYTES, 1 << 20)
    if head.damage is not None:
        raise head.damage
    parquet_row_groups(io.BytesIO(content))


def run_reads(content: bytes, most_bytes: int = _DOCUMENT_BYTES) -> list[str]:
    """The texts that a run reads of a file."""
    batches = read_parquet(io.BytesIO(content), len(content), 0, -1, "text", most_bytes)
    return [text for batch in batches for text in batch.texts]


def verify_reads(content: bytes, most_bytes: int = _DOCUMENT_BYTES) -> list[str]:
    """The texts that `verify` reads of a file."""
    rules = SourceRules(SourceFormat.PARQUET, "text", None, most_bytes)
    records = read_records(io.BytesIO(content), "file:///data/a.parquet", rules)
    return [record.text for record in records if record.text is not None]


READERS: dict[str, Callable[[bytes], Any]] = {"plan": _plan, "run": run_reads, "verify": verify_reads}


def answers(content: bytes) -> tuple[str, ...]:
    """What each of the readers says of a file, all in one child process; the signal alone that ends the child."""
    child = os.fork()
    if not child:
        signal.alarm(_PATIENCE_S)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what a dying library says
        code = 0
        for said in _answers_here(content):
            code = len(_ANSWERS) * code + _ANSWERS.index(said)
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        return (signal.Signals(-code).name,)
    return tuple(_ANSWERS[code // len(_ANSWERS) ** place % len(_ANSWERS)] for place in reversed(range(len(READERS))))


def _answers_here(content: bytes) -> list[str]:
    said, texts = [], {}
    for name, read in READERS.items():
        try:
            texts[name] = read(content)
            said.append("read")
        except (CorruptFileError, CorruptSource):
            said.append("damaged")
        except Exception:  # noqa: BLE001  a failure, as the caller counts it
            said.append("another error")
    if "run" in texts and "verify" in texts and texts["run"] != texts["verify"]:
        said[-1] = "other texts"
    return said


def judge(files: Iterable[tuple[str, bytes]]) -> tuple[Counter[str], list[str]]:
    """How often which answers were given, in the order of `READERS`, and the failures in words."""
    found: Counter[str] = Counter()
    failures = []
    for words, content in files:
        said = answers(content)
        found[", ".join(said)] += 1
        if said[1:] not in (("read", "read"), ("damaged", "damaged")) or said[0] == "another error":
            failures.append(f"{words}: {', '.join(said)}")
    return found, failures


def main() -> int:
    """Exit code 1 where a file has ended its reader, or has another answer that it may not have."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    found, failures = judge(
        chain(footers(asked.files // 2, asked.seed), pages(asked.files - asked.files // 2, asked.seed))
    )
    for said, times in found.most_common():
        print(f"{', '.join(READERS)}: {said}: {times:,} files")
    for failure in failures[:20]:
        print(f"FAILED {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
