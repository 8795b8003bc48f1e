"""Who is compared: the command of each, what it reads, and where its tokens lie afterwards.

Every contender must yield the same stream: the documents in source order, the delimiter before each. Nobody gets
more than one engine thread a process, and everybody's final bytes are durable when its process ends.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from corpus import Corpus

from tokenization_worker.tokenizers.fast_engine import make_tokenizer_json
from tokenization_worker.tokenizers.ranks.encodings import read_named
from tokenization_worker.tokenizers.ranks.rank_files import locate_files

HERE = Path(__file__).parent
END_OF_TEXT = "<|endoftext|>"
ONE_THREAD = {
    "FASTOKENS_BPE_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OPENBLAS_NUM_THREADS": "1",
}
PRESETS = ("cl100k_base", "o200k_base")

Tokens = np.ndarray[Any, np.dtype[Any]]
Command = list[str | Path]


class Digest(NamedTuple):
    """What a contender wrote: the number of tokens and the SHA-256 of their bytes."""

    tokens: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Encoding:
    """A tokenizer in every form that a contender takes."""

    name: str
    delimiter: int
    dtype: np.dtype[Any]
    rank_folder: Path | None
    engine_file: Path


@dataclass(frozen=True, slots=True)
class Contender:
    """One row of the table. `command` gets the output folder, which does not exist yet."""

    name: str
    title: str
    corpus: Corpus
    processes: int
    command: Callable[[Path], Command]
    read_tokens: Callable[[Path], Iterable[Tokens]]
    environment: Mapping[str, str] = field(default_factory=dict)
    is_peer: bool = False

    def digest(self, output: Path) -> Digest:
        sha256 = hashlib.sha256()
        n_tokens = 0
        for tokens in self.read_tokens(output):
            n_tokens += len(tokens)
            sha256.update(tokens.data.cast("B"))
        return Digest(n_tokens, sha256.hexdigest())


def prepare_encoding(name: str, folder: Path) -> Encoding:
    """The tokenizer, with the file from which the leanest loop loads its engine written to `folder`.

    The same construction as the product's: a preset's rank file where fastokens has one, else a tokenizer.json.
    """
    ranks = read_named(name)
    delimiter = ranks.special_tokens[END_OF_TEXT]
    largest = max(max(ranks.ranks.values()), *ranks.special_tokens.values())
    if ranks.preset in PRESETS and ranks.read_file is not None:
        engine_file = folder / f"{ranks.preset}.tiktoken"
        engine_file.write_bytes(ranks.read_file())
    else:
        engine_file = folder / f"{ranks.name}.json"
        engine_file.write_bytes(make_tokenizer_json(ranks.ranks, ranks.pattern))
    dtype = np.dtype("<u2" if largest < 2**16 else "<u4")
    return Encoding(name, delimiter, dtype, locate_files(ranks.name), engine_file)


def make_tokjob(name: str, title: str, encoding: Encoding, corpus: Corpus, processes: int) -> Contender:
    """`tokjob run`, complete: from its start to its index."""
    tokjob = Path(sys.executable).with_name("tokjob")
    command: Command = [
        tokjob,
        "run",
        "--source",
        corpus.folder,
        "--tokenizer",
        encoding.name,
        "--processes",
        str(processes),
    ]
    return Contender(
        name,
        title,
        corpus,
        processes,
        lambda output: [*command, "--output", output],
        _read_npy("train/train_*.npy"),
    )


def make_leanest(name: str, title: str, encoding: Encoding, corpus: Corpus, processes: int) -> Contender:
    command: Command = [sys.executable, HERE / "leanest.py", "--engine", encoding.engine_file]
    command += ["--delimiter", str(encoding.delimiter), "--dtype", encoding.dtype.name, "--processes", str(processes)]
    return Contender(
        name,
        title,
        corpus,
        processes,
        lambda output: [*command, "--output", output, *corpus.paths],
        lambda output: (np.fromfile(path, encoding.dtype) for path in sorted(output.glob("*.bin"))),
    )


def make_nanogpt(name: str, title: str, encoding: Encoding, corpus: Corpus, processes: int) -> Contender:
    command: Command = [sys.executable, HERE / "nanogpt_way.py", "--encoding", encoding.name]
    command += ["--dtype", encoding.dtype.name, "--processes", str(processes)]
    folder = encoding.rank_folder
    return Contender(
        name,
        title,
        corpus,
        processes,
        lambda output: [*command, "--output", output, *corpus.paths],
        _read_npy("shard_*.npy"),
        {} if folder is None else {"TIKTOKEN_CACHE_DIR": str(folder)},
    )


def make_datatrove(
    name: str, title: str, encoding: Encoding, corpus: Corpus, processes: int, python: Path, tokenizer: Path
) -> Contender:
    command: Command = [python, HERE / "datatrove_way.py", "--tokenizer", tokenizer, "--eos", END_OF_TEXT]
    command += ["--workers", str(processes), "--source", corpus.folder]

    def read_tokens(output: Path) -> Iterator[Tokens]:
        files = (np.fromfile(path, encoding.dtype) for path in sorted((output / "tokens").glob("*.ds")))
        return move_delimiter(files, encoding)

    return Contender(
        name, title, corpus, processes, lambda output: [*command, "--output", output], read_tokens, is_peer=True
    )


def move_delimiter(files: Iterable[Tokens], encoding: Encoding) -> Iterator[Tokens]:
    """Documents with the delimiter after each, as a stream with the delimiter before each."""
    last = np.array([encoding.delimiter], encoding.dtype)
    for tokens in files:
        yield last
        yield tokens[:-1]
        last = tokens[-1:]


def _read_npy(pattern: str) -> Callable[[Path], Iterator[Tokens]]:
    return lambda output: (np.load(path, mmap_mode="r") for path in sorted(output.glob(pattern)))


class RunFacts(NamedTuple):
    """What the index says of a run of tokjob."""

    engine: str
    text_bytes: int


def read_facts(output: Path) -> RunFacts:
    run = orjson.loads((output / "index.json").read_bytes())["run"]
    return RunFacts(run["engine"], run["textBytes"])
