"""Writes the files of a tokenizer, each held against its own library before it counts.

All must give equal ids. A file that cannot is left out: tiktoken merges by the joined text, the merges of a
tokenizer.json by the pair; an expression of the user's may mean something else to tiktoken; and in `merges.txt` a line
that begins with `#version` is no merge.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import tiktoken
import tokenizers

from tokenization_worker.api.data import DelimiterPosition, TokenizerSpec
from tokenization_worker.api.training.resolve import TrainingData
from tokenization_worker.errors import TokenizationError
from tokenization_worker.events import Warned, Watcher
from tokenization_worker.messages.counts import listed
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import place_bytes
from tokenization_worker.output.training_index import FileFacts
from tokenization_worker.storage.base import Store
from tokenization_worker.tokenizers.base import Tokenizer
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.training.patterns import describe_pattern, pattern_text
from tokenization_worker.training.vocabulary import Vocabulary

SOUPS = 20_000
HELD_OUT = 200
"""Documents of the holdout that are encoded."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A tokenizer as a job loads it, from `file`, and the facts of all its files."""

    tokenizer: Tokenizer
    file: str
    files: dict[str, FileFacts]


def write_tokenizer(
    store: Store, data: TrainingData, vocabulary: Vocabulary, held_out: Sequence[str], folder: str, watch: Watcher
) -> Exported:
    """Write all files of one tokenizer into `folder`, "" or with a slash at its end. `held_out`: texts to try it on."""
    content = vocabulary.to_tokenizer_json(describe_pattern(data.pattern, data.regex))
    library = tokenizers.Tokenizer.from_str(content.decode())
    texts = [*_soups(vocabulary), *held_out[:HELD_OUT]]
    ids = _encode(library, texts)
    require_lossless(lambda tokens: library.decode(tokens, skip_special_tokens=False), texts, ids)
    contents = {layout.TOKENIZER: content}
    ranks = {layout.RANKS: vocabulary.to_ranks()}
    merges = {layout.VOCABULARY: vocabulary.to_vocab_json(), layout.MERGES: vocabulary.to_merges_txt()}
    for exports, why_not in (
        (ranks, _difference_of_ranks(data, vocabulary, texts, ids)),
        (merges, _difference_of_merges(library, merges, texts, ids)),
    ):
        if why_not:
            watch(Warned(f"{listed([f'{folder}{name}' for name in exports])} left out: {why_not}"))
        else:
            contents |= exports
    files = {f"{folder}{name}": place_file(store, f"{folder}{name}", each) for name, each in contents.items()}
    file = f"{folder}{layout.TOKENIZER}"
    return Exported(load_tokenizer(spec_of(store, data, file)), file, files)


def spec_of(store: Store, data: TrainingData, file: str) -> TokenizerSpec:
    """The trained tokenizer in `file`, as a job names it."""
    return TokenizerSpec(
        name=None,
        uri=f"{store.uri}/{file}",
        pattern=None,
        special_tokens=(),
        delimiter_token=data.special_tokens[0],
        delimiter_position=DelimiterPosition.BEFORE,
    )


def _encode(library: Any, texts: list[str]) -> list[list[int]]:
    """The ids of each text, as a job takes them: text that spells a special token stays text."""
    library.encode_special_tokens = True
    return [library.encode(text, add_special_tokens=False).ids for text in texts]


def place_file(store: Store, path: str, content: bytes) -> FileFacts:
    """Write a file, in place of another one that a stopped start has left."""
    place_bytes(store, path, content, allow_replace=lambda: None)
    return FileFacts(bytes=len(content), sha256=sha256(content).hexdigest())


def _soups(vocabulary: Vocabulary) -> Iterator[str]:
    """Texts of random tokens, and of characters with every byte that UTF-8 has."""
    numbers = random.Random(0)
    texts = vocabulary.texts
    for _ in range(SOUPS):
        yield b"".join(numbers.choices(texts, k=6)).decode("utf-8", "ignore")
    for point in (*range(0x800), *range(0x800, 0x10000, 0x800), *range(0x10000, 0x110000, 0x10000)):
        if not 0xD800 <= point < 0xE000:
            yield f"a{chr(point)} {chr(point)}{chr(point)}1"


def require_lossless(decode: Callable[[list[int]], str], texts: Sequence[str], ids: Iterable[list[int]]) -> None:
    """Raise unless `decode` gives each text back as it was."""
    for text, tokens in zip(texts, ids, strict=True):
        back = decode(tokens)
        if back != text:
            raise TokenizationError(
                "TokenizerBroken",
                f"the trained tokenizer turns {text!r} into {back!r}, and must give it back as it was",
            )


def _difference_of_ranks(data: TrainingData, vocabulary: Vocabulary, texts: list[str], ids: list[list[int]]) -> str:
    """Why tiktoken would not give the same ids, in words; "" where it does."""
    ranks = dict(zip(vocabulary.texts, vocabulary.ids(), strict=True))
    try:
        encoding = tiktoken.Encoding(
            "trained",
            pat_str=pattern_text(data.pattern, data.regex),
            mergeable_ranks=ranks,
            special_tokens=vocabulary.special_ids(),
        )
        found = [encoding.encode_ordinary(text) for text in texts]
    except BaseException as error:  # a panic of Rust is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        return f"tiktoken refuses it: {error}"
    return _difference("tiktoken gives", texts, found, ids)


def _difference_of_merges(library: Any, merges: dict[str, bytes], texts: list[str], ids: list[list[int]]) -> str:
    """Why `vocab.json` and `merges.txt` would not give the same ids, in words; "" where they do."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in merges]
        for path, content in zip(paths, merges.values(), strict=True):
            path.write_bytes(content)
        from_files = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(*map(str, paths)))
    from_files.pre_tokenizer = library.pre_tokenizer
    return _difference("they give", texts, _encode(from_files, texts), ids)


def _difference(giver: str, texts: list[str], found: list[list[int]], expected: list[list[int]]) -> str:
    """The first text whose ids differ, in words; "" where none do."""
    wrong = next((text for text, mine, other in zip(texts, found, expected, strict=True) if mine != other), None)
    return "" if wrong is None else f"{giver} other ids for {wrong[:60]!r}"
