"""Chooses the token that fills rows which are not full, and checks that no text becomes it."""

from __future__ import annotations

import difflib

from tokenization_worker.api.data import SequenceSpec
from tokenization_worker.errors import SpecError
from tokenization_worker.tokenizers.base import Tokenizer
from tokenization_worker.tokenizers.delimiter import quote_list

PADDING = ("<|padding|>", "<|pad|>", "<pad>", "[PAD]")
"""Names of padding tokens in use."""


def resolve_pad(spec: SequenceSpec, tokenizer: Tokenizer) -> int:
    """The id that fills rows: the one asked for; else the tokenizer's only padding token; else the delimiter.

    Raises `SpecError`: PadUnknown, PadRequired, PadUnsafe.
    """
    specials = tokenizer.special_tokens
    if spec.pad_id is not None:
        _require_safe(spec.pad_id, "id", tokenizer)
        return spec.pad_id
    if spec.pad_token is not None:
        if spec.pad_token not in specials:
            raise _unknown(spec.pad_token, tokenizer)
        _require_safe(specials[spec.pad_token], "token", tokenizer)
        return specials[spec.pad_token]
    own = [token for token in PADDING if specials.get(token, tokenizer.unknown_id) != tokenizer.unknown_id]
    if len(own) == 1:
        return specials[own[0]]
    if tokenizer.delimiters.ids:
        return tokenizer.delimiters.ids[-1]
    detail = f"several candidates: {quote_list(own)}" if own else "it has no padding token, and there is no delimiter"
    raise SpecError(
        "PadRequired",
        f"output.sequence.pad: {tokenizer.name} does not say which token fills a row; {detail}",
        next_step='write output.sequence.pad: {token: "..."}, or {id: N} with an id that no text becomes',
    )


def _unknown(token: str, tokenizer: Tokenizer) -> SpecError:
    specials = tokenizer.special_tokens
    near = difflib.get_close_matches(token, specials, n=4, cutoff=0.4) or list(specials)[:4]
    known = f"it has {quote_list(near)}" if near else "it has none"
    return SpecError(
        "PadUnknown",
        f"output.sequence.pad.token: {token!r} is not a special token of {tokenizer.name}; {known}",
        next_step="write one of them, or pad: {id: N} with an id that no text becomes",
    )


def _require_safe(token: int, field: str, tokenizer: Tokenizer) -> None:
    """Raise for an id that text may become: every one of the vocabulary that is no special token, and the one that
    stands for text which the vocabulary lacks.
    """
    is_special = token in tokenizer.special_tokens.values() and token != tokenizer.unknown_id
    if token < tokenizer.vocab_size and not is_special and token not in tokenizer.delimiters.ids:
        raise SpecError(
            "PadUnsafe",
            f"output.sequence.pad.{field}: text can become token {token:,} of {tokenizer.name}, so padding would look "
            "like text",
            next_step=f"write the id of a special token, or one above the vocabulary: {tokenizer.vocab_size:,} or more",
        )
