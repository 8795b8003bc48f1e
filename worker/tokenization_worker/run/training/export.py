"""Writes the tokenizer of finished merges, and holds it against its own library before it counts."""

from __future__ import annotations

import random
from hashlib import sha256

import tokenizers

from tokenization_worker.api.data import DelimiterPosition, TokenizerSpec
from tokenization_worker.api.training.resolve import TrainingData
from tokenization_worker.errors import TokenizationError
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import place_bytes
from tokenization_worker.output.training_index import FileFacts
from tokenization_worker.storage.base import Store
from tokenization_worker.tokenizers.base import Tokenizer
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.training.merging import Ints
from tokenization_worker.training.patterns import describe_pattern
from tokenization_worker.training.vocabulary import make_tokenizer_json

_CHECKED_TEXTS = 500


def write_tokenizer(store: Store, data: TrainingData, merges: Ints) -> tuple[Tokenizer, FileFacts]:
    """Write `tokenizer.json`; the tokenizer as a job loads it, and the facts of the file."""
    pairs = [(left, right) for left, right in merges.tolist()]
    content = make_tokenizer_json(pairs, data.special_tokens, describe_pattern(data.pattern, data.regex))
    _require_lossless(content)
    place_bytes(store, layout.TOKENIZER, content, allow_replace=lambda: None)
    spec = TokenizerSpec(
        name=None,
        uri=f"{store.uri}/{layout.TOKENIZER}",
        pattern=None,
        special_tokens=(),
        delimiter_token=data.special_tokens[0],
        delimiter_position=DelimiterPosition.BEFORE,
    )
    return load_tokenizer(spec), FileFacts(bytes=len(content), sha256=sha256(content).hexdigest())


def _require_lossless(content: bytes) -> None:
    """Raise unless the library gives texts of the vocabulary back as they were."""
    library = tokenizers.Tokenizer.from_str(content.decode())
    numbers = random.Random(0)
    size = library.get_vocab_size(with_added_tokens=False)
    for _ in range(_CHECKED_TEXTS):
        text = library.decode([numbers.randrange(size) for _ in range(6)])
        back = library.decode(library.encode(text, add_special_tokens=False).ids)
        if back != text:
            raise TokenizationError(
                "TokenizerBroken",
                f"the trained tokenizer turns {text!r} into {back!r}, and must give it back as it was",
            )
