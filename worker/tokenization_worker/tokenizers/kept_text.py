"""Finds text that a tokenizer.json leaves out, where its tokens cannot be turned back into the text's bytes.

A BPE model without unknown token leaves out characters for which it has no token, and a pre-tokenizer may remove what
it cuts at. The library is asked what it keeps: of each character that occurs, once; and of each piece of a text with a
character that is not kept on its own. All other models answer with their unknown token, or raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tokenization_worker.tokenizers.library_errors import blame_text
from tokenization_worker.tokenizers.loaded_steps import (
    find_pre_tokenizers,
    has_affixes,
    has_all_bytes,
    is_bpe,
    leaves_out,
)

if TYPE_CHECKING:
    import tokenizers

Span = tuple[int, int]


def make_dropper(native: tokenizers.Tokenizer, added: Sequence[Mapping[str, Any]]) -> Callable[[str], str] | None:
    """The function from a text to what the tokens hold of it; None for a tokenizer that leaves nothing out.

    The function raises `KillsEngine` (document 0) for a text that the library gives up on.
    White space that a pre-tokenizer or an added token removes counts as kept: the plan warns of it.
    """
    model: Any = native.model
    drops = is_bpe(native) and model.unk_token is None and not has_all_bytes(native)
    removes = any(map(leaves_out, find_pre_tokenizers(native)))
    if not drops and not removes:
        return None
    return _Dropper(native, added, drops=drops, removes=removes).drop


class _Dropper:
    """`drops`: whether the model leaves out what its vocabulary lacks; `removes`: whether a pre-tokenizer removes."""

    def __init__(
        self,
        native: tokenizers.Tokenizer,
        added: Sequence[Mapping[str, Any]],
        *,
        drops: bool,
        removes: bool,
    ) -> None:
        self._native = native
        self._matching = {token["id"] for token in added if _always_matches(native, token)}
        self._drops = drops
        self._removes = removes
        # A character says nothing of a text where its place in a piece counts, or the text around it.
        self._tries_characters = not removes and not (drops and has_affixes(native))
        self._kept: set[str] = set()

    def drop(self, text: str) -> str:
        try:
            if self._tries_characters and self._keeps_characters(self._normalize(text)):
                return text
            return self._drop(text)
        except BaseException as error:
            blamed = blame_text(0, error)
            if blamed is None:
                raise
            raise blamed from error

    def _keeps_characters(self, text: str) -> bool:
        new = set(text) - self._kept
        kept = set(filter(self._is_kept, new))
        self._kept |= kept
        return len(kept) == len(new)

    def _is_kept(self, character: str) -> bool:
        pieces = self._cut(character)
        if not pieces:
            return character.isspace()  # a pre-tokenizer removed it
        return all(self._holds(piece) for piece, _ in pieces)

    def _drop(self, text: str) -> str:
        """The text without the characters, or without the pieces, that its tokens do not hold."""
        left = []
        for part, is_added in self._split_at_added(text):
            left.append(part if is_added else self._drop_between(part))
        return "".join(left)

    def _drop_between(self, text: str) -> str:
        normalized = self._normalize(text)
        pieces = self._cut(normalized)
        lost = [span for piece, span in pieces if self._drops and not self._holds(piece)]
        removed = self._find_removed(normalized, pieces) if self._removes else []
        if not lost and not removed:
            return text
        shown = {
            character for start, end in lost for character in normalized[start:end] if not self._is_kept(character)
        }
        without = "".join(c for c in text if not any(each in shown for each in self._normalize(c)))
        if not removed and without != text:
            return without
        return _leave_out(normalized, lost + removed)

    def _find_removed(self, text: str, pieces: list[tuple[str, Span]]) -> list[Span]:
        """What is in no piece and is no white space."""
        removed, done = [], 0
        for _, (start, end) in [*pieces, ("", (len(text), len(text)))]:
            if text[done:start].strip():
                removed.append((done, start))
            done = max(done, end)
        return removed

    def _holds(self, piece: str) -> bool:
        """Whether the model's tokens cover all bytes of a piece. Tokens of BPE follow one another without a gap."""
        tokens: list[Any] = self._native.model.tokenize(piece)
        return (tokens[-1].offsets[1] if tokens else 0) == len(piece.encode())

    def _normalize(self, text: str) -> str:
        normalizer = self._native.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))

    def _cut(self, text: str) -> list[tuple[str, Span]]:
        """The pieces that the model encodes, with their places in `text`, in characters."""
        cutter = self._native.pre_tokenizer
        if cutter is None:
            return [(text, (0, len(text)))] if text else []
        return list(cutter.pre_tokenize_str(text))

    def _split_at_added(self, text: str) -> Iterator[tuple[str, bool]]:
        """The parts of a text, and whether each is an added token: these are found before the text is cut."""
        if not self._matching:
            yield text, False
            return
        encoding = self._native.encode(text, add_special_tokens=False)
        done = 0
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token in self._matching:
                yield text[done:start], False
                yield text[start:end], True
                done = end
        yield text[done:], False


def _always_matches(native: tokenizers.Tokenizer, token: Mapping[str, Any]) -> bool:
    """Whether an added token stands in text for its own text alone: none of the model's tokens has its id then."""
    model: Any = native.model
    return not token.get("special") and (not token.get("single_word") or model.id_to_token(token["id"]) is None)


def _leave_out(text: str, spans: Sequence[Span]) -> str:
    left, done = [], 0
    for start, end in sorted(spans):
        left.append(text[done:start])
        done = max(done, end)
    return "".join([*left, text[done:]])
