"""Writes the files of a tokenizer, each held against its own library before it counts.

All must give equal ids. Ranks are left out where they cannot: tiktoken merges by the joined text, the merges of a
tokenizer.json by the pair; and an expression of the user's may mean something else to tiktoken.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from typing import Any

import tiktoken
import tokenizers

from tokenization_worker.api.data import DelimiterPosition, TokenizerSpec
from tokenization_worker.api.training.resolve import TrainingData
from tokenization_worker.errors import TokenizationError
from tokenization_worker.events import Warned, Watcher
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import place_bytes
from tokenization_worker.output.training_index import FileFacts
from tokenization_worker.pipelines.train.holdout import read_held_out
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.tokenizers.base import Tokenizer
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.training.patterns import describe_pattern, pattern_text
from tokenization_worker.training.vocabulary import Vocabulary

_SOUPS = 20_000
_HELD_OUT = 200
"""Documents of the holdout that are encoded."""


def write_tokenizer(
    store: Store, data: TrainingData, vocabulary: Vocabulary, watch: Watcher
) -> tuple[Tokenizer, dict[str, FileFacts]]:
    """Write `tokenizer.json` and `ranks.tiktoken`; the tokenizer as a job loads it, and the facts of the files."""
    content = vocabulary.to_tokenizer_json(describe_pattern(data.pattern, data.regex))
    library = tokenizers.Tokenizer.from_str(content.decode())
    library.encode_special_tokens = True  # as a job does: text that spells one stays text
    texts = [*_soups(vocabulary), *_held_out(store)]
    ids = [library.encode(text, add_special_tokens=False).ids for text in texts]
    _require_lossless(library, texts, ids)
    files = {layout.TOKENIZER: _place(store, layout.TOKENIZER, content)}
    why_not = _difference_of_ranks(data, vocabulary, texts, ids)
    if why_not:
        watch(Warned(f"{layout.RANKS} is left out: {why_not}"))
    else:
        files[layout.RANKS] = _place(store, layout.RANKS, vocabulary.to_ranks())
    spec = TokenizerSpec(
        name=None,
        uri=f"{store.uri}/{layout.TOKENIZER}",
        pattern=None,
        special_tokens=(),
        delimiter_token=data.special_tokens[0],
        delimiter_position=DelimiterPosition.BEFORE,
    )
    return load_tokenizer(spec), files


def _place(store: Store, path: str, content: bytes) -> FileFacts:
    place_bytes(store, path, content, allow_replace=lambda: None)
    return FileFacts(bytes=len(content), sha256=sha256(content).hexdigest())


def _soups(vocabulary: Vocabulary) -> Iterator[str]:
    """Texts of random tokens; and of characters with every byte that UTF-8 has in its first two places."""
    numbers = random.Random(0)
    texts = vocabulary.texts()
    for _ in range(_SOUPS):
        yield b"".join(numbers.choices(texts, k=6)).decode("utf-8", "ignore")
    for point in (*range(0x250), 0x3042, 0x65E5, 0xFFFD, 0x1F600):
        yield f"a{chr(point)} {chr(point)}{chr(point)}1"


def _held_out(store: Store) -> list[str]:
    try:
        found = read_held_out(store.read(layout.HOLDOUT))
    except NotFound:
        return []
    return [document.text for document in islice(found, _HELD_OUT)]


def _require_lossless(library: Any, texts: list[str], ids: list[list[int]]) -> None:
    """Raise unless the library gives each text back as it was."""
    for text, tokens in zip(texts, ids, strict=True):
        back = library.decode(tokens, skip_special_tokens=False)
        if back != text:
            raise TokenizationError(
                "TokenizerBroken",
                f"the trained tokenizer turns {text!r} into {back!r}, and must give it back as it was",
            )


def _difference_of_ranks(data: TrainingData, vocabulary: Vocabulary, texts: list[str], ids: list[list[int]]) -> str:
    """Why tiktoken would not give the same ids, in words; "" where it does."""
    ranks = dict(zip(vocabulary.texts(), vocabulary.ids(), strict=True))
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
    wrong = next((text for text, mine, theirs in zip(texts, found, ids, strict=True) if mine != theirs), None)
    return "" if wrong is None else f"tiktoken gives other ids for {wrong[:60]!r}"
