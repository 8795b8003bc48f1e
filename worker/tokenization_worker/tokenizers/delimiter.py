"""Special tokens: finds the one that separates documents, and checks that text never produces it.

Invariant: after `check_specials` a text that spells a special token is ordinary text for that engine.
Whether a whole batch contains the delimiter is looked at again by the caller at run time.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

import numpy as np

from tokenization_worker.api.data import DelimiterPosition, Delimiters, TokenizerSpec
from tokenization_worker.errors import SpecError
from tokenization_worker.tokenizers.base import Engine, HasNoToken

END_OF_TEXT = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|eos|>",
    "[EOS]",
    "<|end▁of▁sentence|>",
    "<｜end▁of▁sentence｜>",
    "<EOD>",
    "<|EOT|>",
)
"""Names that mean the end of a document in tokenizers in use."""

END_OF_TURN = ("<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|end|>")
"""Names that mean the end of a chat turn: taken only where no document end is known."""


def resolve_delimiters(
    spec: TokenizerSpec, name: str, specials: Mapping[str, int], own: str | None = None
) -> Delimiters:
    """The ids that stand around every document.

    `own` is the tokenizer's end-of-text token where its kind defines one; else the well-known names decide.
    Raises SpecError (DelimiterUnknown, DelimiterRequired): a retry cannot help.
    """
    if spec.delimiter_position is DelimiterPosition.NONE:
        return Delimiters(None, None)
    token = spec.delimiter_token
    if token is None:
        token = own if own is not None else find_end_of_text(name, specials)
    if spec.end_token is not None:
        begin = _find_special(token, name, specials, ".begin")
        return Delimiters(begin, _find_special(spec.end_token, name, specials, ".end"))
    return Delimiters.at(spec.delimiter_position, _find_special(token, name, specials))


def _find_special(token: str, name: str, specials: Mapping[str, int], field: str = "") -> int:
    """The id of a special token; SpecError (DelimiterUnknown) where there is none of that text."""
    if token in specials:
        return specials[token]
    near = difflib.get_close_matches(token, specials, n=4, cutoff=0.4) or list(specials)[:4]
    known = f"it has {quote_list(near)}" if near else "it has none"
    raise SpecError(
        "DelimiterUnknown",
        f"tokenizer.delimiter{field}: {token!r} is not a special token of {name}; {known}"
        + (f" ({len(specials)} in all)" if len(specials) > len(near) else ""),
        next_step="write one of them, or leave tokenizer.delimiter out for the tokenizer's own end of text",
    )


def find_end_of_text(name: str, specials: Mapping[str, int]) -> str:
    """The one special token whose name says that it ends a document; SpecError where none or several do."""
    candidates: list[str] = []
    for names in (END_OF_TEXT, END_OF_TURN):
        candidates = [token for token in names if token in specials]
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            break
    if candidates:
        detail = f"several candidates: {quote_list(candidates)}"
    elif specials:
        detail = f"none of its special tokens is a known end of text: {quote_list(list(specials)[:6])}"
    else:
        detail = "it has no special tokens"
    raise SpecError(
        "DelimiterRequired",
        f"tokenizer.delimiter.token: {name} does not say which token ends a document; {detail}",
        next_step="set tokenizer.delimiter.token, or tokenizer.delimiter.position: None for no delimiter",
    )


def forbid_ids(specials: Mapping[str, int], delimiters: Delimiters, unknown_id: int | None = None) -> set[int]:
    """The ids that text must never yield: every special's, and the delimiters'.

    The id for text that the vocabulary lacks is an honest answer to text, and so allowed, unless it is
    a delimiter.
    """
    return {token for token in specials.values() if token != unknown_id} | {*delimiters.ids}


def check_specials(engine: Engine, specials: Mapping[str, int], forbidden: set[int]) -> None:
    """Refuse an engine that turns the text of a special token into a special id.

    Each special's text is encoded alone, beside letters, blanks, digits and itself. Raises SpecError
    (TokenizerUnsafe).
    """
    found = find_special(engine, specials, forbidden)
    if found is not None:
        text, token = found
        raise SpecError(
            "TokenizerUnsafe",
            f"the text {text!r} becomes the special token {token} with {engine.name}: a document could forge "
            "the end of a document",
            next_step="use the tokenizer's original file (SentencePiece *.model, tiktoken ranks), "
            "or another token for tokenizer.delimiter",
        )


def keep_if_safe(engine: Engine | None, specials: Mapping[str, int], forbidden: set[int]) -> Engine | None:
    """The engine, unless it turns the text of a special token into a special id."""
    return engine if engine is not None and find_special(engine, specials, forbidden) is None else None


def find_special(engine: Engine, specials: Mapping[str, int], forbidden: set[int]) -> tuple[str, int] | None:
    """The first text that yields a forbidden id, and that id. A text that cannot be encoded yields none."""
    texts = [form for token in specials for form in special_contexts(token)]
    try:
        ids, ends = engine.encode(texts)
    except HasNoToken:
        texts = [text for text in texts if _is_encodable(engine, text)]
        ids, ends = engine.encode(texts)
    hits = np.flatnonzero(np.isin(ids, np.fromiter(forbidden, np.uint32, len(forbidden))))
    if not len(hits):
        return None
    return texts[int(np.searchsorted(ends, hits[0], side="right"))], int(ids[hits[0]])


def _is_encodable(engine: Engine, text: str) -> bool:
    try:
        engine.encode([text])
    except HasNoToken:
        return False
    return True


def special_contexts(token: str) -> tuple[str, ...]:
    """The places in which a special token's text is tried."""
    return (
        token,
        f"a{token}b",
        f" {token} ",
        f"{token}{token}",
        f"\n{token}\n{token[:-1]}",
        f"1 {token.strip()}.",
    )


def quote_list(words: Sequence[str]) -> str:
    """Words in quotes, for a message."""
    return ", ".join(repr(word) for word in words)
