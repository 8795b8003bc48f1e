"""Finds text that a tokenizer.json leaves out, where its tokens cannot be turned back into the text's bytes.

A BPE model without unknown token leaves out characters for which it has no token, and a pre-tokenizer may remove what
it cuts at. The library is asked what it keeps: of each character that occurs, once; and of each piece of a text, where
that does not tell. All other models answer with their unknown token, or raise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from tokenization_worker.tokenizers.base import KillsEngine
from tokenization_worker.tokenizers.fast_engine import printable_bytes
from tokenization_worker.tokenizers.library_errors import blame_text
from tokenization_worker.tokenizers.loaded_steps import (
    Step,
    find_pre_tokenizers,
    has_affixes,
    has_all_bytes,
    is_bpe,
    leaves_out,
)

if TYPE_CHECKING:
    import tokenizers

R = TypeVar("R")

_PART = 1 << 18
"""Characters that are looked at together, up to the end of a line: the library holds some 300 bytes for each."""

_BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")


def make_dropper(native: tokenizers.Tokenizer, document: Mapping[str, Any]) -> Callable[[str], str] | None:
    """The function from a text to what its tokens hold of it, or to the text itself where they hold all of it; None for
    a tokenizer that leaves nothing out. `document`: the tokenizer.json as it was loaded.

    The function raises `KillsEngine` (document 0) for a text that the library gives up on. White space that a
    pre-tokenizer or an added token removes counts as kept: the plan warns of it.
    """
    model: Any = native.model
    drops = is_bpe(native) and model.unk_token is None and not has_all_bytes(native)
    removes = any(map(leaves_out, find_pre_tokenizers(native)))
    if not drops and not removes:
        return None
    return _Dropper(native, document, drops=drops, removes=removes).drop


class _Dropper:
    """`drops`: whether the model leaves out what its vocabulary lacks; `removes`: whether a pre-tokenizer removes."""

    def __init__(
        self, native: tokenizers.Tokenizer, document: Mapping[str, Any], *, drops: bool, removes: bool
    ) -> None:
        self._native = native
        self._drops = drops
        self._removes = removes
        steps = find_pre_tokenizers(native)
        self._decode = _decode_levels if any(step["type"] == "ByteLevel" for step in steps) else _decode_marks
        self._finder = _find_added_alone(native, document)
        self._cut_all = _pre_tokenizer_of(native, list(_keeping(steps))) if removes else native.pre_tokenizer
        # A character says nothing of a text where its place in a piece counts, or the text around it.
        self._tries_characters = not removes and not has_affixes(native)
        self._kept: set[str] = set()
        self._marks_beginning = self._show(self._cut(native.pre_tokenizer, self._normalize("a"))).startswith(" ")

    def drop(self, text: str) -> str:
        if self._tries_characters:
            with suppress(KillsEngine):  # the library normalizes what is between added tokens, as below
                if self._keeps_characters(text):
                    return text
        left = [part if is_added else self._drop_between(part) for part, is_added in self._split_at_added(text)]
        return "".join(left)

    def _keeps_characters(self, text: str) -> bool:
        new = set(self._normalize(text)) - self._kept
        kept = set(filter(self._is_kept, new))
        self._kept |= kept
        return len(kept) == len(new)

    def _is_kept(self, character: str) -> bool:
        pieces = self._cut(self._native.pre_tokenizer, character)
        return all(self._holds(piece) for _, piece in pieces) if pieces else character.isspace()  # it is removed

    def _drop_between(self, text: str) -> str:
        """What the tokens hold of a text without added tokens."""
        return "".join(map(self._drop_part, _cut_lines(text)))

    def _drop_part(self, text: str) -> str:
        normalized = self._normalize(text)
        pieces = self._cut(self._native.pre_tokenizer, normalized)
        there = self._show(pieces)
        if self._removes and _squeeze(there) != _squeeze(self._show(self._cut(self._cut_all, normalized))):
            return there
        if not self._drops or all(self._holds(piece) for _, piece in pieces):
            return text
        held = self._decode(b"".join(blank.encode() + self._held(piece) for blank, piece in pieces))
        if self._marks_beginning and held == there.removeprefix(" "):
            return text  # the mark alone is lost, which is none of the text's characters
        return held

    def _show(self, pieces: Sequence[tuple[str, str]]) -> str:
        """The text that pieces stand for."""
        return self._decode("".join(blank + piece for blank, piece in pieces).encode())

    def _holds(self, piece: str) -> bool:
        """Whether the model's tokens cover all bytes of a piece. Tokens of BPE follow one another without a gap."""
        tokens = self._tokens_of(piece)
        return (tokens[-1].offsets[1] if tokens else 0) == len(piece.encode())

    def _held(self, piece: str) -> bytes:
        """What the tokens of a piece say."""
        if self._holds(piece):
            return piece.encode()
        model: Any = self._native.model
        marks = model.continuing_subword_prefix or "", model.end_of_word_suffix or ""
        parts = []
        for token in self._tokens_of(piece):
            found = _BYTE_TOKEN.fullmatch(token.value) if model.byte_fallback else None
            text = token.value.removeprefix(marks[0]).removesuffix(marks[1])
            parts.append(bytes([int(found[1], 16)]) if found else text.encode())
        return b"".join(parts)

    def _tokens_of(self, piece: str) -> list[Any]:
        return _call(self._native.model.tokenize, piece)

    def _normalize(self, text: str) -> str:
        normalizer = self._native.normalizer
        return text if normalizer is None else str(_call(normalizer.normalize_str, text))

    def _cut(self, cutter: Any, text: str) -> list[tuple[str, str]]:
        """The pieces of a normalized text that the model encodes, each behind white space that is left out there."""
        if cutter is None:
            return [("", text)] if text else []
        pieces, done = [], 0
        for piece, (start, end) in _call(cutter.pre_tokenize_str, text):
            blank = text[done:start]
            pieces.append((blank if blank.isspace() else "", piece))
            done = max(done, end)
        return pieces

    def _split_at_added(self, text: str) -> Iterator[tuple[str, bool]]:
        """The parts of a text, and whether each is an added token: these are found before the text is cut."""
        if self._finder is None:
            yield text, False
            return
        done = 0
        for start, end in _call(self._finder.encode, text).offsets:
            yield text[done:start], False
            yield text[start:end], True
            done = end
        yield text[done:], False


def _call(function: Callable[[str], R], text: str) -> R:
    """What the library answers; raises `KillsEngine` (document 0) where it gives up on the text."""
    try:
        return function(text)
    except BaseException as error:
        blamed = blame_text(0, error)
        if blamed is None:
            raise
        raise blamed from error


def _cut_lines(text: str) -> Iterator[str]:
    """The text in parts of about `_PART` characters, each with the end of a line."""
    start = 0
    while len(text) - start > _PART and (end := text.find("\n", start + _PART) + 1):
        yield text[start:end]
        start = end
    yield text[start:]


def _find_added_alone(native: tokenizers.Tokenizer, document: Mapping[str, Any]) -> tokenizers.Tokenizer | None:
    """A tokenizer that finds in text what `native` takes for an added token, and nothing else; None if it has none."""
    matching = [token for token in document["added_tokens"] if not token.get("special")]
    if not matching:
        return None
    numbered = [token | {"id": number} for number, token in enumerate(matching)]
    return _make_like(native, {"normalizer": document.get("normalizer"), "added_tokens": numbered})


def _pre_tokenizer_of(native: tokenizers.Tokenizer, steps: Sequence[Step]) -> Any:
    """A pre-tokenizer of these steps."""
    return _make_like(native, {"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}).pre_tokenizer


def _make_like(native: tokenizers.Tokenizer, fields: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """A tokenizer of these fields whose model has no token at all."""
    model = {"type": "BPE", "vocab": {}, "merges": []}
    document = {"version": "1.0", "added_tokens": [], "model": model} | dict(fields)
    return type(native).from_str(orjson.dumps(document).decode())


def _keeping(steps: Sequence[Step]) -> Iterator[Step]:
    """The same steps, but that what they would remove is a piece of its own."""
    for step in steps:
        if step.get("behavior") == "Removed":
            yield {**step, "behavior": "Isolated"}
        elif step["type"] == "CharDelimiterSplit":
            pattern = {"String": step["delimiter"]}
            yield {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
        elif step["type"] != "UnicodeScripts":  # cuts, and leaves out characters of scripts that it does not know
            yield step


_BYTE_OF = {chr(shown): byte for byte, shown in printable_bytes().items()}


def _decode_levels(data: bytes) -> str:
    """The text of byte-level pieces; bytes that are no UTF-8 become U+FFFD."""
    text = data.decode(errors="replace")
    return b"".join(bytes([_BYTE_OF[c]]) if c in _BYTE_OF else c.encode() for c in text).decode(errors="replace")


def _decode_marks(data: bytes) -> str:
    """The text of pieces in which a mark stands for a blank."""
    return data.decode(errors="replace").replace("▁", " ")


def _squeeze(text: str) -> str:
    """Without white space."""
    return "".join(text.split())
