"""Decodes tokens to the bytes of their text, for a tokenizer.json, and finds lost text.

That is so for byte-level BPE without a normalizer. It is not the library's decoder, which is made to be read: that one
takes an added token such as "éé" for two bytes, and turns bytes that are no UTF-8 into U+FFFD.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from tokenization_worker.tokenizers.base import LengthArray, pack_lengths
from tokenization_worker.tokenizers.fast_engine import printable_bytes

_CUTTERS = {"ByteLevel", "Digits", "Punctuation", "Split"}
"""Pre-tokenizers that only cut, or that leave out what they are told to: what then does not come back is lost."""


_SHOWN = 48
"""Characters of a text in a message, from a little before the first that is lost."""

_BEFORE = 12


def find_normalising(document: Mapping[str, Any]) -> str:
    """Why tokens of this tokenizer.json are not the bytes of the text, in words; "" where they are."""
    if document.get("normalizer") is not None:
        return f"its normalizer ({', '.join(_types(document['normalizer'], 'normalizers'))}) changes text"
    steps = list(_steps(document.get("pre_tokenizer"), "pretokenizers"))
    others = sorted({str(step.get("type")) for step in steps} - _CUTTERS)
    if others:
        return f"its pre-tokenizer ({', '.join(others)}) changes text"
    levels = [step for step in steps if step.get("type") == "ByteLevel"]
    if not levels or document["model"].get("type") != "BPE":
        return "its tokens are not bytes"
    if any(level.get("add_prefix_space") for level in levels):
        return "it puts a space before the text"
    model = document["model"]
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return "it marks the parts of words"
    added = document.get("added_tokens") or []
    if any(not token.get("special") and (token.get("lstrip") or token.get("rstrip")) for token in added):
        return "some of its added tokens take the blanks beside them"
    return ""


def may_leave_out(document: Mapping[str, Any]) -> bool:
    """Whether text can be in no token: a pre-tokenizer removes what it cuts at, or the vocabulary lacks a byte."""
    if any(map(_leaves_out, _steps(document.get("pre_tokenizer"), "pretokenizers"))):
        return True
    vocabulary = document["model"].get("vocab") or {}
    return any(chr(shown) not in vocabulary for shown in printable_bytes().values())


_BLANKS_REMOVED = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}


def find_removing(document: Mapping[str, Any]) -> str:
    """The pre-tokenizers of this tokenizer.json that leave out the characters at which they cut; "" without any."""
    steps = _steps(document.get("pre_tokenizer"), "pretokenizers")
    named = _BLANKS_REMOVED | {"CharDelimiterSplit"}
    return ", ".join(sorted({str(step["type"]) for step in steps if step.get("type") in named or _leaves_out(step)}))


def _leaves_out(step: Mapping[str, Any]) -> bool:
    return step.get("behavior") == "Removed"


def make_dropper(document: Mapping[str, Any], normalize: Callable[[str], str]) -> Callable[[str], str] | None:
    """The function from a text to what the model keeps of it; None for a model that has tokens for all characters.

    A BPE model without unknown token and without byte fallback leaves out a character that its vocabulary lacks. White
    space counts where no pre-tokenizer removes it; a character of an added token counts as known.
    """
    model = document["model"]
    if model.get("type") != "BPE" or model.get("unk_token") is not None or model.get("byte_fallback"):
        return None
    steps = {str(step.get("type")) for step in _steps(document.get("pre_tokenizer"), "pretokenizers")}
    ends = (model.get("continuing_subword_prefix") or "", model.get("end_of_word_suffix") or "")
    parts = {token.removeprefix(ends[0]).removesuffix(ends[1]) for token in model.get("vocab") or {}}
    known = {part for part in parts if len(part) == 1}
    if "ByteLevel" in steps:
        bytes_known = {byte for byte, shown in printable_bytes().items() if chr(shown) in known}
        if len(bytes_known) == len(printable_bytes()):
            return None
    else:
        bytes_known = set()
    if "Metaspace" in steps:
        known.add(" ")
    for token in document.get("added_tokens") or []:
        known.update(token["content"])
    removes_blanks = not steps.isdisjoint(_BLANKS_REMOVED)

    def is_lost(character: str) -> bool:
        if character in known or (removes_blanks and character.isspace()):
            return False
        return not bytes_known or not bytes_known.issuperset(character.encode())

    def drop(text: str) -> str:
        lost = {character for character in set(normalize(text)) if is_lost(character)}
        if not lost:
            return text
        return "".join(character for character in text if lost.isdisjoint(normalize(character)))

    return drop


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


def _types(step: Mapping[str, Any], below: str) -> list[str]:
    return sorted({str(each.get("type")) for each in _steps(step, below)})


def _steps(step: Mapping[str, Any] | None, below: str) -> Iterator[Mapping[str, Any]]:
    """A normalizer or pre-tokenizer, or the ones that a sequence holds."""
    if step is None:
        return
    if step.get("type") != "Sequence":
        yield step
        return
    for each in step.get(below) or []:
        yield from _steps(each, below)
