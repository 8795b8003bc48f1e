"""The twelve jobs: what each one asks for, its source, and where a run of it was stopped.

Texts are our own, made from a list of words by SHA-256: the same on every machine.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from support.corpus import zstd
from support.programs.flipping_run import FLIP

Files = dict[str, bytes]
"""Contents by path below the job's folder."""

CRASH = "<exit>"
"""A text with this mark kills its process (`tests/support/programs/poisoned`), for the tokenizer `bytes`."""

_VOCABULARY = (
    "the a of and river stone window winter machine paper orange question seven 1984 3.14 isn't they'll Straße été "
    "日本語 съешь ещё 🦊 <|endoftext|> __init__ return\t{ } \n\n \r\n — “quoted” e\u0301 ______ 1234567890"
)
_WORDS = _VOCABULARY.split(" ")


def text(seed: str, words: int) -> str:
    """So many words, with blanks between."""
    numbers = b"".join(sha256(f"{seed} {block}".encode()).digest() for block in range(words // 32 + 1))
    return " ".join(_WORDS[number % len(_WORDS)] for number in numbers[:words])


def texts(seed: str, count: int) -> list[str]:
    """Documents of 0 to 130 words."""
    return [text(f"{seed}{number}", number * 37 % 131) for number in range(count)]


def lines(documents: Sequence[str], field: str = "text") -> bytes:
    rows = [{"id": f"d{number}", field: document} for number, document in enumerate(documents)]
    return "".join(json.dumps(row, ensure_ascii=number % 2 == 0) + "\n" for number, row in enumerate(rows)).encode()


def packed(data: bytes, pack: Callable[[bytes], bytes], parts: int) -> bytes:
    """`data` as `parts` members or frames, cut at any byte."""
    step = -(-len(data) // parts)
    return b"".join(pack(data[at : at + step]) for at in range(0, len(data), step))


def gz(data: bytes, parts: int = 1) -> bytes:
    return packed(data, lambda part: gzip.compress(part, 6, mtime=0), parts)


def zst(data: bytes, parts: int = 1) -> bytes:
    return packed(data, zstd.compress, parts)


def parquet(documents: Sequence[str], column: str, rows_per_group: int) -> bytes:
    target = io.BytesIO()
    table = pa.table({"id": [f"r{number}" for number in range(len(documents))], column: list(documents)})
    pq.write_table(table, target, row_group_size=rows_per_group, compression="zstd")
    return target.getvalue()


@dataclass(frozen=True)
class Stop:
    """Where a run is stopped: when it has done so many ranges (-1: all) and shards. `killed`: by SIGKILL; else it is
    asked to stop."""

    ranges: int = 0
    shards: int = 0
    killed: bool = False


@dataclass(frozen=True)
class Dataset:
    """A job. `in_bucket`: source and output are objects, else files. `crashes`: a document kills the tokenizer.
    `flips`: its first start has a wrong engine. `rerun`: the token of a second run, which proves the whole output."""

    name: str
    make_files: Callable[[], Files]
    spec: dict[str, Any]
    in_bucket: bool = False
    keeps_complete: bool = False
    stop: Stop | None = None
    crashes: bool = False
    flips: bool = False
    rerun: str = ""


def _jsonl() -> Files:
    return {f"source/{name}.jsonl": lines(texts(name, 20)) for name in "abc"}


def _gzip() -> Files:
    return {f"source/{name}.jsonl.gz": gz(lines(texts(f"gzip {name}", 60)), parts=2) for name in "abc"}


def _zstd() -> Files:
    return {f"source/{name}.ndjson.zst": zst(lines(texts(f"zstd {name}", 45)), parts=3) for name in "ab"}


def _whole_files() -> Files:
    documents = {f"source/{number:02d}.txt": text(f"file {number}", number * 41 % 300) for number in range(12)}
    return {path: document.encode() for path, document in documents.items()} | {"source/99.md.gz": gz(b"# The last\n")}


def _separated() -> Files:
    return {
        f"source/{name}.txt": "\n---\n".join(texts(f"separated {name}", 30)).encode() + b"\n---\n" for name in "abc"
    }


def _parquet() -> Files:
    return {f"source/{name}.parquet": parquet(texts(f"row {name}", 40), "content", 10) for name in "ab"}


def _unusable() -> Files:
    bad = [
        b'{"text": "cut',
        b'{"id": "no text"}',
        b'{"text": 7}',
        b'{"text": null}',
        b'["no object"]',
        b'{"text": "\xff"}',
        b'{"text": "%s"}' % (b"too large " * 160),
        b"",
    ]
    files = {}
    for name in "abc":
        good = lines(texts(f"unusable {name}", 16)).splitlines()
        rows = [row for pair in zip(good, bad * 2, strict=True) for row in pair]
        files[f"source/{name}.jsonl"] = b"\n".join(rows) + b"\n"
    return files


def _corrupt() -> Files:
    files = {f"source/{name}.jsonl.zst": zst(lines(texts(f"corrupt {name}", 50)), parts=2) for name in "abcd"}
    return files | {"source/b.jsonl.zst": files["source/b.jsonl.zst"][:-150]}


def _crashing() -> Files:
    documents = {name: texts(f"crash {name}", 30) for name in "abc"}
    documents["a"][7] += CRASH
    return {f"source/{name}.jsonl": lines(found) for name, found in documents.items()}


def _flipped() -> Files:
    """Every third text asks the wrong engine for a mistake; those that are not compared get into shards."""
    documents = {name: texts(f"flip {name}", 9) for name in "abcdefg"}
    return {
        f"source/{name}.jsonl": lines([one + FLIP * (number % 3 == 1) for number, one in enumerate(found)])
        for name, found in documents.items()
    }


def _mixed() -> Files:
    return {
        "source/a.jsonl": lines(["", *texts("mixed a", 30), ""]),
        "source/b.jsonl.gz": gz(lines(texts("mixed b", 30))),
        "source/c.jsonl.zst": zst(lines(texts("mixed c", 30))),
        "source/d.parquet": parquet(texts("mixed d", 30), "text", 10),
        "source/e.txt": text("mixed e", 400).encode(),
        "source/f.jsonl": b"",
    }


def _with_tokenizer() -> Files:
    return {f"source/{name}.jsonl": lines(texts(f"json {name}", 20)) for name in "ab"} | {
        "tokenizer.json": json.dumps(tokenizer_json(), ensure_ascii=False, indent=1).encode()
    }


def tokenizer_json() -> dict[str, Any]:
    """A byte-level BPE of 256 letters and eight merges, written by hand."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [byte for byte in range(256) if byte not in plain]
    letters = [chr(byte) for byte in plain] + [chr(256 + number) for number in range(len(other))]
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("e", "r"), ("o", "n"), ("Ġ", "s"), ("Ã", "©")]
    vocabulary = {letter: number for number, letter in enumerate([*letters, *(a + b for a, b in merges)])}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": len(vocabulary), "content": "<|endoftext|>", **flags}],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [list(merge) for merge in merges],
        },
    }


def _shards(tokens: int, **more: Any) -> dict[str, Any]:
    return {"shards": {"tokens": tokens}, **more}


DATASETS = (
    Dataset(
        "bytes-jsonl",
        _jsonl,
        {"tokenizer": {"name": "bytes"}, "rangeBytes": "5000", "output": _shards(5000)},
        keeps_complete=True,
        stop=Stop(ranges=2),
    ),
    Dataset(
        "gpt2-gzip-leading-splits",
        _gzip,
        {
            "tokenizer": {"name": "gpt2", "delimiter": {"position": "After"}},
            "rangeBytes": "3000",
            "output": _shards(
                2000, path="c4_{split}_{shard:06d}", splits=[{"name": "val", "shards": 2}, {"name": "train"}]
            ),
        },
        stop=Stop(ranges=3, shards=2),
    ),
    Dataset(
        "cl100k-zstd-shares",
        _zstd,
        {
            "tokenizer": {"name": "cl100k_base"},
            "rangeBytes": "3000",
            "output": _shards(1500, splits=[{"name": "val", "share": "12.5%"}, {"name": "train"}]),
        },
        keeps_complete=True,
        stop=Stop(ranges=3, killed=True),
    ),
    Dataset(
        "bytes-text-files",
        _whole_files,
        {
            "source": {"format": "Text"},
            "tokenizer": {"name": "bytes", "delimiter": {"position": "None"}},
            "output": _shards(5000, path="{split}/{index:04d}"),
        },
    ),
    Dataset(
        "gpt2-separated-text-rerun",
        _separated,
        {
            "rerunToken": "2026-11",
            "source": {"format": "Text", "documentSeparator": "\n---\n"},
            "tokenizer": {"name": "gpt2"},
            "rangeBytes": "6000",
            "output": _shards(2000, dtype="UInt16"),
        },
        in_bucket=True,
        keeps_complete=True,
        stop=Stop(ranges=-1, shards=1, killed=True),
        rerun="2026-12",
    ),
    Dataset(
        "cl100k-parquet",
        _parquet,
        {
            "source": {"textField": "content"},
            "tokenizer": {"name": "cl100k_base", "delimiter": {"position": "After"}},
            "rangeBytes": "3000",
            "output": _shards(2000, dtype="UInt32"),
        },
        keeps_complete=True,
    ),
    Dataset(
        "bytes-quarantine",
        _unusable,
        {
            "documents": {"maxBytes": "1500"},
            "tokenizer": {"name": "bytes"},
            "maxQuarantined": "100%",
            "rangeBytes": "5000",
            "output": _shards(4000),
        },
        keeps_complete=True,
        stop=Stop(ranges=3),
    ),
    Dataset(
        "gpt2-corrupt-file",
        _corrupt,
        {"tokenizer": {"name": "gpt2"}, "maxCorruptFiles": 1, "rangeBytes": "3000", "output": _shards(3000)},
        in_bucket=True,
        stop=Stop(ranges=4),
    ),
    Dataset(
        "gpt2-voided-engine",
        _flipped,
        {"tokenizer": {"name": "gpt2"}, "rangeBytes": "3000", "output": _shards(900)},
        stop=Stop(ranges=2),
        flips=True,
    ),
    Dataset(
        "tokenizer-json",
        _with_tokenizer,
        {
            "tokenizer": {
                "uri": "{root}/tokenizer.json",
                "delimiter": {"token": "<|endoftext|>", "position": "After"},
            },
            "rangeBytes": "5000",
            "output": _shards(4000),
        },
        keeps_complete=True,
    ),
    Dataset(
        "gpt2-mixed-bucket",
        _mixed,
        {
            "source": {"uris": ["{root}/source/*.jsonl*", "{root}/source/e.txt", "{root}/source/*.parquet"]},
            "tokenizer": {"name": "gpt2"},
            "rangeBytes": "4000",
            "output": _shards(2000, dtype="UInt32", splits=[{"name": "test", "share": "25%"}, {"name": "train"}]),
        },
        in_bucket=True,
        keeps_complete=True,
        stop=Stop(ranges=3, shards=1),
    ),
    Dataset(
        "bytes-crashing-document",
        _crashing,
        {"tokenizer": {"name": "bytes"}, "maxQuarantined": 1, "rangeBytes": "5000", "output": _shards(6000)},
        stop=Stop(ranges=2),
        crashes=True,
    ),
)
