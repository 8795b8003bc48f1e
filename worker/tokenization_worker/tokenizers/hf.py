"""Tokenizers that a tokenizer.json of Hugging Face defines, through the `tokenizers` library.

The file describes how a model is fed; a corpus wants the tokens of the text alone. So what adds or removes
tokens is taken out (post-processor, truncation, padding), special tokens are not looked for in text, and the
delimiter's token is made a special one where the file does not say so. Everything else stays as the file has
it: added tokens that are not special are vocabulary, and match.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from tokenization_worker.api.data import TokenizerSpec
from tokenization_worker.errors import SpecError
from tokenization_worker.tokenizers import fast_engine
from tokenization_worker.tokenizers.base import (
    WRITE_PLAINLY,
    Encoded,
    KillsEngine,
    Tokenizer,
    join_encoded,
    require_extra,
    shorten_uri,
)
from tokenization_worker.tokenizers.delimiter import (
    check_specials,
    forbid_ids,
    keep_if_safe,
    resolve_delimiters,
)
from tokenization_worker.tokenizers.fingerprint import fingerprint_json
from tokenization_worker.tokenizers.kept_text import make_dropper
from tokenization_worker.tokenizers.library_errors import blame_text
from tokenization_worker.tokenizers.loaded_steps import find_removing, has_affixes, has_all_bytes, is_bpe, is_byte_level
from tokenization_worker.tokenizers.restoring import (
    find_normalising,
    make_restorer,
    may_leave_out,
    measure_tokens,
    why_no_bytes,
)
from tokenization_worker.tokenizers.tekken import refuse_tekken

if TYPE_CHECKING:
    import tokenizers

_NO_FALLBACK = "set model.byte_fallback to false in a copy of the file"
_TEXT_ALONE = {"post_processor": None, "truncation": None, "padding": None}


class HuggingFaceEngine:
    """The reference for a tokenizer.json: `tokenizers`, with special tokens as ordinary text.

    One text at a time: its result takes about 60 times the text while it is converted (measured 2026-11,
    tokenizers 0.23; speed 3 MB/s, in a batch not more with one thread).
    """

    name = "tokenizers"

    def __init__(self, native: tokenizers.Tokenizer) -> None:
        self._native = native

    def encode(self, texts: Sequence[str]) -> Encoded:
        """`KillsEngine` for a text on which the library's regular expressions give up, after ten million steps, and
        `HasNoToken` for one of which the vocabulary lacks a part.
        """
        parts = []
        for number, text in enumerate(texts):
            try:
                parts.append(self._encode_one(text))
            except BaseException as error:  # a panic of Rust is no Exception
                blamed = blame_text(number, error)
                if blamed is None:
                    raise
                raise blamed from error
        return join_encoded(parts)

    def decode(self, ids: Sequence[int]) -> str:
        """Text to look at; specials show as their text."""
        return self._native.decode([int(token) for token in ids], skip_special_tokens=False)

    def _encode_one(self, text: str) -> np.ndarray[Any, np.dtype[np.uint32]]:
        (encoding,) = self._native.encode_batch_fast([text], add_special_tokens=False)
        return np.array(encoding.ids, np.uint32)


def load_tokenizer_json(spec: TokenizerSpec, uri: str, data: bytes) -> Tokenizer:
    """The tokenizer of the file; SpecError (TokenizerInvalid, TokenizerUnsafe), where a retry cannot help."""
    library = _import_library(uri)
    document = _parse(uri, data)
    name = shorten_uri(uri)
    added = _added_tokens(uri, document)
    try:
        delimiters = resolve_delimiters(spec, name, {token["content"]: token["id"] for token in added})
    except SpecError:
        _require_known_model(library, uri, document)  # a broken file is said to be one before its tokens are asked for
        raise
    added = [token | {"special": True} if token["id"] in delimiters.ids else token for token in added]
    specials = {token["content"]: token["id"] for token in added if token.get("special")}
    prepared = orjson.dumps({**document, **_TEXT_ALONE, "added_tokens": added})
    try:
        native = library.Tokenizer.from_str(prepared.decode())
    except BaseException as error:
        if blame_text(0, error) is None:
            raise
        _require_known_model(library, uri, document)
        raise _invalid(uri, f"tokenizers refuses it: {error}", "check the file, or upgrade tokenizers") from error
    _check_ids(uri, added, native)
    if document["model"].get("byte_fallback"):
        _check_fallback(uri, native)
    native.encode_special_tokens = True
    reference = HuggingFaceEngine(native)
    unknown_id = _find_unknown(document["model"], native)
    forbidden = forbid_ids(specials, delimiters, unknown_id)
    try:
        fingerprint = fingerprint_json(document, reference)
        check_specials(reference, specials, forbidden)
    except KillsEngine as kill:
        what = f"it cannot split ordinary text: {kill.detail}"
        raise _invalid(uri, what, f"in its pre-tokenizer, {WRITE_PLAINLY}") from kill
    normalises = find_normalising(native, added)
    restore = make_restorer(added, native.id_to_token)
    drop = make_dropper(native, orjson.loads(prepared)) if normalises else None
    # With a normalizer the bytes of added tokens are of the text as it was, or as it is then: nobody knows.
    is_plain = native.normalizer is None or all(token.get("special") for token in added)
    is_measured = (
        may_leave_out(native) if not normalises else drop is not None and is_plain and not why_no_bytes(native)
    )
    vocab_size = max(native.get_vocab(with_added_tokens=True).values(), default=0) + 1
    return Tokenizer(
        name=name,
        vocab_size=vocab_size,
        special_tokens=specials,
        delimiters=delimiters,
        fingerprint=fingerprint,
        libraries={package: version(package) for package in ("fastokens", "tokenizers")},
        reference=reference,
        decode=reference.decode,
        restore=None if normalises else restore,
        byte_lengths=measure_tokens(restore, vocab_size) if is_measured else None,
        drop=drop,
        normalize=_normalizer_of(native) if drop else None,
        normalises=normalises,
        removes=find_removing(native, added) if normalises else "",
        unknown_id=unknown_id,
        accelerate=lambda: keep_if_safe(fast_engine.build_for_json(prepared, reference), specials, forbidden),
    )


def _normalizer_of(native: tokenizers.Tokenizer) -> Callable[[str], str]:
    """The file's normalizer; without one a text stays as it is."""
    normalizer = native.normalizer
    if normalizer is None:
        return lambda text: text
    return lambda text: str(normalizer.normalize_str(text))


def _import_library(uri: str) -> ModuleType:
    """`tokenizers` without its thread pool: a job runs one process for each core, and forks."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        import tokenizers
    except ImportError as error:
        raise require_extra("tokenizers", "hf", f"tokenizer.uri: {uri} is a tokenizer.json, which") from error
    return tokenizers


def _parse(uri: str, data: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _invalid(uri, f"it is not valid JSON: {error}", "check that the file is complete") from error
    if not isinstance(document.get("model"), dict):
        refuse_tekken(uri, document)
        found = ", ".join(sorted(document)[:6]) or "nothing"
        raise _invalid(
            uri,
            f"a tokenizer.json has a field model; found {found}",
            "give tokenizer.json itself (not tokenizer_config.json, vocab.json or config.json)",
        )
    if document["model"].get("dropout"):
        raise SpecError(
            "TokenizerUnsafe",
            f"tokenizer.uri: {uri}: its model has dropout {document['model']['dropout']}: the same text would "
            "not always give the same tokens",
            next_step="set model.dropout to null in a copy of the file",
        )
    return dict(document)


def _require_known_model(library: ModuleType, uri: str, document: dict[str, Any]) -> None:
    """Raise where the library does not read the file's model. It parses that again: only for a file that failed."""
    model = document["model"]
    try:
        library.Tokenizer.from_str(orjson.dumps({"model": model, "version": "1.0", "added_tokens": []}).decode())
    except BaseException as error:
        if blame_text(0, error) is None:
            raise
        kind = model.get("type")
        found = f"of type {_shown(kind)}" if kind is not None else f"with {', '.join(sorted(model)[:6]) or 'nothing'}"
        detail = "" if "ModelUntagged" in str(error) else f": {error}"
        raise _invalid(
            uri,
            f"its model, {found}, is not one that the library tokenizers {version('tokenizers')} knows{detail}",
            "check that the file is complete, or upgrade tokenizers",
        ) from error


def _added_tokens(uri: str, document: dict[str, Any]) -> list[dict[str, Any]]:
    """The added tokens of the file, each with a text and an id."""
    added = document.get("added_tokens") or []
    step = "save the tokenizer again with the library that made it"
    if not isinstance(added, list):
        raise _invalid(uri, f"added_tokens is {_shown(added)}, expected a list of tokens", step)
    for number, token in enumerate(added):
        is_token = isinstance(token, dict) and isinstance(token.get("content"), str)
        if not is_token or not isinstance(token.get("id"), int) or isinstance(token["id"], bool):
            what = (
                f"added_tokens[{number}] is {_shown(token)}, expected a token with a text (content) and a number (id)"
            )
            raise _invalid(uri, what, step)
    return added


def _shown(value: object) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 80 else f"{text[:80]}..."


def _check_ids(uri: str, added: list[dict[str, Any]], native: tokenizers.Tokenizer) -> None:
    """Refuse a file whose added tokens get other ids than it says: the library numbers them on its own."""
    for token in added:
        found = native.token_to_id(token["content"])
        if found != token["id"]:
            raise _invalid(
                uri,
                f"added token {token['content']!r} has id {token['id']} in the file, and tokenizers gives it {found}: "
                "ids of added tokens must follow the vocabulary without a gap",
                "save the tokenizer again with the library that made it",
            )


def _check_fallback(uri: str, native: tokenizers.Tokenizer) -> None:
    """Refuse a model whose byte fallback gives the bytes of something that is not the text: of a mark of a part of a
    word, or of a character that stands for a byte.
    """
    if is_bpe(native) and has_affixes(native):
        raise SpecError(
            "TokenizerUnsafe",
            f"tokenizer.uri: {uri}: its model has byte_fallback beside continuing_subword_prefix or "
            "end_of_word_suffix: the library tokenizers encodes the bytes of a prefix or suffix as if they were text",
            next_step=_NO_FALLBACK,
        )
    if is_byte_level(native) and not has_all_bytes(native):
        raise SpecError(
            "TokenizerUnsafe",
            f"tokenizer.uri: {uri}: its model has byte_fallback for byte-level text, and its vocabulary lacks bytes: "
            "the library tokenizers encodes the bytes of the characters that stand for them",
            next_step=_NO_FALLBACK,
        )


def _find_unknown(model: dict[str, Any], native: tokenizers.Tokenizer) -> int | None:
    """The id that stands for text the vocabulary lacks."""
    if isinstance(model.get("unk_id"), int):
        return int(model["unk_id"])
    unknown = model.get("unk_token")
    return native.token_to_id(unknown) if isinstance(unknown, str) else None


def _invalid(uri: str, message: str, next_step: str) -> SpecError:
    return SpecError("TokenizerInvalid", f"tokenizer.uri: {uri}: {message}", next_step=next_step)
