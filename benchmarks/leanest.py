"""The leanest loop that the libraries allow: the ceiling that `tokjob run` is measured against.

    python benchmarks/leanest.py --engine FILE --delimiter 50256 --dtype uint16 --processes 2 --output DIR FILE...

zstd, orjson, fastokens, delimiter, dtype, raw write, fsync: nothing else. The engine is loaded once and inherited by
forked processes, which take the next file, in the order given, from a pipe. No plan, no segments, no exact shards, no
checksums, no quarantine, no check of an id, and a bad line ends it. Tokens of file k go to `DIR/<k>.bin`; a thread
makes each file durable while the next one is encoded. Measured 2026-11-21, one core: parsing lines from views saves
5 to 10 % over `split`; whole files at once, no garbage collection, and one mask in place of a copy per document are
no faster.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("FASTOKENS_BPE_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import fastokens
import numpy as np
import orjson

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BLOCK_BYTES = 1 << 20
INDEX_BYTES = 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, required=True, help="tokenizer.json, or NAME.tiktoken of a preset")
    parser.add_argument("--delimiter", type=int, required=True)
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    engine = load_engine(options.engine)
    options.output.mkdir(parents=True)
    waiting = deal(options.files)
    children = []
    for _ in range(options.processes):
        child = os.fork()
        if child == 0:
            work(engine, options.files, waiting, options.output, options.delimiter, np.dtype(options.dtype))
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sync(os.open(options.output, os.O_RDONLY))
    return 1 if any(codes) else 0


def load_engine(path: Path) -> Any:
    """A preset's rank file is the fastest way that fastokens has; a tokenizer.json where there is no preset."""
    if path.suffix == ".tiktoken":
        return fastokens.Tokenizer.from_tiktoken(str(path), encoding=path.stem, special_tokens={})
    return fastokens.Tokenizer.from_json_str(path.read_text())


def deal(files: list[Path]) -> int:
    """A pipe that holds the numbers of all files, in order: reading one of them is atomic.

    Everybody reads in the same order, because it counts: largest first, copies of a file stand next to one another
    and find the engine's word cache warm, which makes a corpus that repeats itself 12 % faster (2026-11-21).
    """
    reading, writing = os.pipe()
    if len(files) * INDEX_BYTES > 65536:
        raise SystemExit(f"at most {65536 // INDEX_BYTES} files fit the pipe, found {len(files)}")
    os.write(writing, b"".join(number.to_bytes(INDEX_BYTES, "little") for number in range(len(files))))
    os.close(writing)
    return reading


def work(engine: Any, files: list[Path], waiting: int, output: Path, delimiter: int, dtype: np.dtype[Any]) -> None:
    """Encode files until none is left; returns when everything written is durable."""
    with ThreadPoolExecutor(1) as syncer:
        durable = []
        while number := os.read(waiting, INDEX_BYTES):
            index = int.from_bytes(number, "little")
            target = os.open(output / f"{index:06d}.bin", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            for texts in read_texts(files[index]):
                ids, offsets = engine.encode_batch_flat(texts)
                tokens = delimit(
                    np.frombuffer(ids, "<u4"), np.frombuffer(offsets, "<u8")[1:].tolist(), delimiter, dtype
                )
                write_all(target, tokens)
            durable.append(syncer.submit(sync, target))
        for done in durable:
            done.result()


def read_texts(path: Path) -> Iterator[list[str]]:
    """The texts of whole lines, about a megabyte at a time."""
    loads = orjson.loads
    rest: list[bytes] = []
    for block in read_blocks(path):
        first = block.find(b"\n")
        if first < 0:
            rest.append(block)
            continue
        if rest:
            texts = [loads(b"".join([*rest, block[:first]]))["text"]]
            begin = first + 1
        else:
            texts = []
            begin = 0
        view, find = memoryview(block), block.find
        while (end := find(b"\n", begin)) >= 0:
            texts.append(loads(view[begin:end])["text"])
            begin = end + 1
        rest = [block[begin:]] if begin < len(block) else []
        if texts:
            yield texts
    if rest:
        yield [loads(b"".join(rest))["text"]]


def read_blocks(path: Path) -> Iterator[bytes]:
    stored = path.read_bytes()
    while stored:
        decoder = zstd.ZstdDecompressor()
        block = decoder.decompress(stored, BLOCK_BYTES)
        while True:
            if block:
                yield block
            if decoder.eof:
                break
            if decoder.needs_input:
                raise EOFError(path)
            block = decoder.decompress(b"", BLOCK_BYTES)
        stored = decoder.unused_data


def delimit(ids: np.ndarray[Any, Any], ends: list[int], delimiter: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """`dtype[n_tokens]`: the delimiter before every document."""
    tokens = np.empty(len(ids) + len(ends), dtype)
    start = 0
    for number, end in enumerate(ends):
        tokens[start + number] = delimiter
        tokens[start + number + 1 : end + number + 1] = ids[start:end]
        start = end
    return tokens


def write_all(target: int, tokens: np.ndarray[Any, Any]) -> None:
    left = tokens.data.cast("B")
    while left:
        left = left[os.write(target, left) :]


def sync(descriptor: int) -> None:
    os.fsync(descriptor)
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
