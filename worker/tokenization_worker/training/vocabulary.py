"""From merges to a vocabulary, and to a `tokenizer.json`: bytes in GPT-2's order, merges, special tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
BYTE_ORDER = (*_PRINTABLE, *(byte for byte in range(256) if byte not in _PRINTABLE))
"""The byte of each of the first 256 tokens, as GPT-2 counts them: the printable ones first."""

_LETTERS = {byte: chr(byte) for byte in _PRINTABLE} | {
    byte: chr(0x100 + number) for number, byte in enumerate(BYTE_ORDER[len(_PRINTABLE) :])
}
"""The character that stands for a byte in a `tokenizer.json`."""


def byte_ids() -> NDArray[np.int32]:
    """The token of each byte, i32[256]."""
    ids = np.empty(256, np.int32)
    ids[list(BYTE_ORDER)] = np.arange(256)
    return ids


def token_text(merges: NDArray[np.int32], number: int) -> bytes:
    """The bytes of the token that merge `number` makes."""
    parts, text = [256 + number], bytearray()
    while parts:
        token = parts.pop()
        if token < 256:
            text.append(BYTE_ORDER[token])
        else:
            left, right = merges[token - 256].tolist()
            parts += [right, left]
    return bytes(text)


def token_texts(merges: Sequence[tuple[int, int]]) -> list[str]:
    """The tokens of bytes and merges in order, each as the characters that stand for its bytes."""
    texts = [_LETTERS[byte] for byte in BYTE_ORDER]
    for left, right in merges:
        texts.append(texts[left] + texts[right])
    return texts


def make_tokenizer_json(
    merges: Sequence[tuple[int, int]], special_tokens: Sequence[str], pre_tokenizer: dict[str, Any]
) -> bytes:
    """The file. Ids: bytes, merges, special tokens."""
    texts = token_texts(merges)
    vocabulary = {text: number for number, text in enumerate(texts)}
    assert len(vocabulary) == len(texts), "no two merges make the same text: the first one would have made both"
    pairs = [[texts[left], texts[right]] for left, right in merges]
    added = [
        {
            "id": len(vocabulary) + number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for number, token in enumerate(special_tokens)
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
            "merges": pairs,
        },
    }
    return json.dumps(content, ensure_ascii=False, indent=1).encode() + b"\n"
