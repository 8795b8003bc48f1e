"""From merges to a vocabulary, and to the files of a tokenizer.

Inside, tokens are 256 bytes in the order of a layout, then the merges. A **layout** says where special tokens stand:
Gpt2 has the printable bytes first and special tokens last, BytesFirst has bytes by value and special tokens from 256.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.tokenizers.fast_engine import printable_bytes

_STAND_INS = printable_bytes()
_GPT2_ORDER = tuple(sorted(range(256), key=_STAND_INS.__getitem__))
"""The printable bytes first, which stand for themselves."""


def byte_order(*, bytes_first: bool) -> tuple[int, ...]:
    """The byte of each of the first 256 tokens: by value, or as GPT-2 counts them."""
    return tuple(range(256)) if bytes_first else _GPT2_ORDER


def byte_ids(*, bytes_first: bool = False) -> NDArray[np.int32]:
    """The token of each byte, i32[256]."""
    ids = np.empty(256, np.int32)
    ids[list(byte_order(bytes_first=bytes_first))] = np.arange(256)
    return ids


@dataclass(frozen=True)
class Vocabulary:
    """Merges i32[n, 2] of tokens, with the layout of their ids."""

    merges: NDArray[np.int32]
    special_tokens: tuple[str, ...]
    bytes_first: bool = False

    def cut(self, n_merges: int) -> Vocabulary:
        """The vocabulary of the first merges alone."""
        return replace(self, merges=self.merges[:n_merges])

    def text(self, merge: int) -> bytes:
        """The bytes of the token that a merge makes."""
        order = byte_order(bytes_first=self.bytes_first)
        parts, text = [256 + merge], bytearray()
        while parts:
            token = parts.pop()
            if token < 256:
                text.append(order[token])
            else:
                left, right = self.merges[token - 256].tolist()
                parts += [right, left]
        return bytes(text)

    @cached_property
    def texts(self) -> list[bytes]:
        """The bytes of all tokens but special ones, in the order inside."""
        texts = [bytes([byte]) for byte in byte_order(bytes_first=self.bytes_first)]
        for left, right in self.merges.tolist():
            texts.append(texts[left] + texts[right])
        return texts

    @cached_property
    def names(self) -> list[str]:
        """What `tokenizer.json` calls each of `texts`: a character a byte."""
        return [text.decode("latin-1").translate(_STAND_INS) for text in self.texts]

    def doubled_names(self) -> list[str]:
        """Special tokens that are also the name of another token."""
        return sorted({*self.special_tokens}.intersection(self.names))

    def special_ids(self) -> dict[str, int]:
        """The special tokens with their ids."""
        first = 256 if self.bytes_first else 256 + len(self.merges)
        return {token: first + number for number, token in enumerate(self.special_tokens)}

    def ids(self) -> list[int]:
        """The id of each of `texts`."""
        first = 256 + (len(self.special_tokens) if self.bytes_first else 0)
        return [*range(256), *range(first, first + len(self.merges))]

    def to_ranks(self) -> bytes:
        """A rank file as tiktoken reads it: each token's bytes in base64, and its id."""
        pairs = zip(self.texts, self.ids(), strict=True)
        return b"".join(b64encode(text) + f" {number}\n".encode() for text, number in pairs)

    def to_tokenizer_json(self, pre_tokenizer: dict[str, Any]) -> bytes:
        """A file as the library tokenizers reads it."""
        vocabulary, specials = self._named_ids(), self.special_ids()
        if self.bytes_first:  # among the others: the library numbers those that are not in the vocabulary behind it
            vocabulary = _by_id({**vocabulary, **specials})
        return _dump(vocabulary, self._named_merges(), specials, pre_tokenizer)

    def to_vocab_json(self) -> bytes:
        """The names of all tokens, special ones included, with their ids: GPT-2's `vocab.json`."""
        vocabulary = _by_id({**self._named_ids(), **self.special_ids()})
        return json.dumps(vocabulary, ensure_ascii=False).encode() + b"\n"

    def to_merges_txt(self) -> bytes:
        """A line for each merge, in order: GPT-2's `merges.txt`."""
        lines = ["#version: 0.2", *(f"{left} {right}" for left, right in self._named_merges())]
        return "".join(f"{line}\n" for line in lines).encode()

    def _named_ids(self) -> dict[str, int]:
        vocabulary = dict(zip(self.names, self.ids(), strict=True))
        assert len(vocabulary) == len(self.names), (
            "no two merges make the same text: the first one would have made both"
        )
        return vocabulary

    def _named_merges(self) -> list[list[str]]:
        names = self.names
        return [[names[left], names[right]] for left, right in self.merges.tolist()]


def _by_id(vocabulary: dict[str, int]) -> dict[str, int]:
    return dict(sorted(vocabulary.items(), key=lambda item: item[1]))


def _dump(
    vocabulary: dict[str, int], merges: Sequence[Sequence[str]], specials: dict[str, int], pre_tokenizer: dict[str, Any]
) -> bytes:
    added = [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token, number in specials.items()
    ]
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
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
            "merges": merges,
        },
    }
    return json.dumps(content, ensure_ascii=False, indent=1).encode() + b"\n"
