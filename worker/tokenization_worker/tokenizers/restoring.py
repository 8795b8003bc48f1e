"""Decodes tokens to the bytes of their text, for a tokenizer.json, and finds lost text.

That is so for byte-level BPE without a normalizer. It is not the library's decoder, which is made to be read: that one
takes an added token such as "éé" for two bytes, and turns bytes that are no UTF-8 into U+FFFD.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenization_worker.tokenizers.base import LengthArray, pack_lengths
from tokenization_worker.tokenizers.fast_engine import printable_bytes
from tokenization_worker.tokenizers.loaded_steps import (
    find_normalizers,
    find_pre_tokenizers,
    has_affixes,
    has_all_bytes,
    is_bpe,
    join_types,
    leaves_out,
    take_blanks,
)

if TYPE_CHECKING:
    import tokenizers

_CUTTERS = {"ByteLevel", "Digits", "Punctuation", "Split"}
"""Pre-tokenizers that only cut, or that leave out what they are told to: what then does not come back is lost."""


_SHOWN = 48
"""Characters of a text in a message, from a little before the first that is lost."""

_BEFORE = 12


def find_normalising(native: tokenizers.Tokenizer, added: Sequence[Mapping[str, Any]]) -> str:
    """Why tokens of this tokenizer are not the bytes of the text, in words; "" where they are."""
    normalizers = find_normalizers(native)
    if normalizers:
        return f"its normalizer ({join_types(normalizers)}) changes text"
    if why := why_no_bytes(native):
        return why
    return "some of its added tokens take the blanks beside them" if take_blanks(added) else ""


def why_no_bytes(native: tokenizers.Tokenizer) -> str:
    """Why tokens of this tokenizer are not the bytes of normalized text, in words; "" where they are."""
    pre_tokenizers = find_pre_tokenizers(native)
    others = [step for step in pre_tokenizers if step["type"] not in _CUTTERS]
    if others:
        return f"its pre-tokenizer ({join_types(others)}) changes text"
    levels = [step for step in pre_tokenizers if step["type"] == "ByteLevel"]
    if not levels or not is_bpe(native):
        return "its tokens are not bytes"
    if any(level.get("add_prefix_space") for level in levels):
        return "it puts a space before the text"
    return "it marks the parts of words" if has_affixes(native) else ""


def may_leave_out(native: tokenizers.Tokenizer) -> bool:
    """Whether text can be in no token: a pre-tokenizer removes what it cuts at, or the vocabulary lacks a byte."""
    return any(map(leaves_out, find_pre_tokenizers(native))) or not has_all_bytes(native)


def measure_tokens(restore: Callable[[Sequence[int]], bytes], vocab_size: int) -> LengthArray:
    """The bytes that each token stands for, as a number: u8/u16/u32[vocab_size]."""
    lengths = (len(restore([token])) for token in range(vocab_size))
    return pack_lengths(np.fromiter(lengths, np.int64, vocab_size))


def show_loss(text: str, kept: bytes) -> tuple[str, str]:
    """A text and what came back of it, both from a little before the first character that differs."""
    now = kept.decode(errors="replace")
    pairs = enumerate(zip_longest(text, now))
    first = max(0, next((number for number, (a, b) in pairs if a != b), 0) - _BEFORE)
    return text[first : first + _SHOWN], now[first : first + _SHOWN]


def make_restorer(
    added: Sequence[Mapping[str, Any]], token_of: Callable[[int], str | None]
) -> Callable[[Sequence[int]], bytes]:
    """The function from ids to bytes; `token_of` gives a token's name in the vocabulary."""
    bytes_of: dict[int, bytes] = {token["id"]: token["content"].encode() for token in added}
    byte_of = {chr(shown): byte for byte, shown in printable_bytes().items()}

    def find(token: int) -> bytes:
        name = token_of(token) or ""
        return bytes(byte_of[c] for c in name) if all(c in byte_of for c in name) else name.encode()

    def restore(ids: Sequence[int]) -> bytes:
        for token in set(ids) - bytes_of.keys():
            bytes_of[token] = find(token)
        return b"".join(map(bytes_of.__getitem__, ids))

    return restore
