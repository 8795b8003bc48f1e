"""One trainer of a tokenizer on one text, in a process of its own: `python trainers.py NAME TEXT PATTERN VOCABULARY`.

Prints as JSON how long its stages took, the peak of its memory, and its merges where they can be told. Each imports its
own library alone: other trainers live in an environment of theirs.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

SPECIAL = "<|endoftext|>"


def read_documents(path: Path) -> Iterator[list[bytes]]:
    """Documents in batches of a megabyte, as a reader gives them."""
    rest = b""
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            *documents, rest = (rest + block).split(SPECIAL.encode())
            yield documents
    yield [rest]


def count_and_train(path: Path, pattern: str, vocab_size: int) -> dict[str, Any]:
    from tokenization_worker.training.merging import Trainer
    from tokenization_worker.training.patterns import PieceCounter
    from tokenization_worker.training.vocabulary import Vocabulary, byte_ids

    def count(batches: Iterable[list[bytes]]) -> Any:
        counter = PieceCounter(pattern, None, is_compiled=True)
        for batch in batches:
            counter.count(batch)
        return counter.take()

    def train(pieces: Any) -> Any:
        trainer = Trainer(pieces, byte_ids(), vocab_size - 257)
        while not trainer.is_finished:
            trainer.step()
        return trainer.merges

    train(count(islice(read_documents(path), 1)).sort())  # compiled, or read from where the code is kept
    began = time.perf_counter()
    pieces = count(read_documents(path))
    counted = time.perf_counter()
    pieces = pieces.sort()  # as the merge of counts leaves them
    merges = train(pieces)
    ended = time.perf_counter()
    peak = peak_memory()
    written = Vocabulary(merges, (SPECIAL,)).to_tokenizer_json({})
    return {
        "counting": counted - began,
        "seconds": ended - began,
        "merges": json.loads(written)["model"]["merges"],
        "counts": pieces.digest(),
        "peak": peak,
    }


def count_alone(path: Path, pattern: str, *, is_compiled: bool) -> dict[str, Any]:
    from tokenization_worker.training.patterns import PieceCounter

    counter = PieceCounter(pattern, None, is_compiled=is_compiled)
    began = time.perf_counter()
    for batch in read_documents(path):
        counter.count(batch)
    pieces = counter.take().sort()
    seconds = time.perf_counter() - began
    return {"counts": pieces.digest(), "pieces": int(pieces.counts.sum()), "different": len(pieces), "seconds": seconds}


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def train_gigabpe(path: str, vocab_size: int) -> dict[str, Any]:
    import gigabpe

    began = time.perf_counter()
    gigabpe.train_bpe([path], vocab_size)
    return {"seconds": time.perf_counter() - began}


def train_rustbpe(documents: list[bytes], vocab_size: int) -> dict[str, Any]:
    import rustbpe

    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    began = time.perf_counter()
    rustbpe.Tokenizer().train_from_iterator((each.decode() for each in documents), vocab_size, pattern=pattern)
    return {"seconds": time.perf_counter() - began}


def train_hugging_face(documents: list[bytes], pattern: str, vocab_size: int) -> dict[str, Any]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    from tokenization_worker.training.patterns import describe_pattern

    library = Tokenizer(models.BPE())
    steps = json.dumps({**json.loads(library.to_str()), "pre_tokenizer": describe_pattern(pattern, None)})
    library = Tokenizer.from_str(steps)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size - 1, initial_alphabet=alphabet, show_progress=False)
    began = time.perf_counter()
    library.train_from_iterator((each.decode() for each in documents if each), trainer)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "merges": json.loads(library.to_str())["model"]["merges"]}


def contend(name: str, path: Path, pattern: str, vocab_size: int) -> None:
    """Print what a contender took, as JSON."""
    documents = [] if name in ("tokjob", "counts", "library", "gigabpe") else path.read_bytes().split(SPECIAL.encode())
    ways: dict[str, Callable[[], dict[str, Any]]] = {
        "tokjob": lambda: count_and_train(path, pattern, vocab_size),
        "counts": lambda: count_alone(path, pattern, is_compiled=True),
        "library": lambda: count_alone(path, pattern, is_compiled=False),
        "gigabpe": lambda: train_gigabpe(str(path), vocab_size),
        "rustbpe": lambda: train_rustbpe(documents, vocab_size),
        "Hugging Face": lambda: train_hugging_face(documents, pattern, vocab_size),
    }
    found = ways[name]()
    print(json.dumps({"peak": peak_memory(), **found}))


if __name__ == "__main__":
    contend(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
