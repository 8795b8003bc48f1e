"""The fingerprint of a tokenizer, one SHA-256: equal fingerprints mean equal tokens.

Hashed are the things that decide (ranks or model, pattern, normalizer, special tokens) and, as a witness
that they were understood the same way, the reference's tokens of a fixed text. Not hashed: names, file
formats that hold the same ranks, library versions. The byte stream is part of every dataset's identity: it
must never change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from tokenization_worker.errors import SpecError
from tokenization_worker.tokenizers.base import Engine, HasNoToken, IdArray

CHECK_TEXT = (
    "The quick brown fox doesn't jump over 13 lazy dogs; they'll SLEEP  until 07:45.\r\n\n"
    "\tdef f(x):\n        return x ** 2  # ½ of «it»\n"
    "Zażółć gęślą jaźń. Съешь же ещё этих мягких булок. Ὦ ξεῖν’. 他们为什么不说中文？ 日本語のテスト。 "
    "한국어 العربية עברית हिन्दी ไทย \U0001f469\u200d\U0001f467 \U0001f1ea\U0001f1fa "
    "e\u0301 \u00a0\u2003\u200b\u017f'\u017f A\u030a"
    "<|endoftext|></s><s>[SEP]   \n \n"
)
"""Contractions, digits, runs of blanks, scripts, joiners, combining marks, spelled special tokens."""


def fingerprint_ranks(
    ranks: Mapping[bytes, int], pattern: str, special_tokens: Mapping[str, int], reference: Engine
) -> str:
    """Of an encoding of tiktoken's kind: ranks in rank order, pattern, specials."""
    tokens = sorted(ranks, key=ranks.__getitem__)
    lengths = np.fromiter(map(len, tokens), np.uint32, len(tokens))
    values = np.fromiter(map(ranks.__getitem__, tokens), np.uint32, len(tokens))
    return _digest(
        reference,
        kind=b"ranks",
        tokens=b"".join(tokens),
        lengths=lengths.astype("<u4").tobytes(),
        ranks=values.astype("<u4").tobytes(),
        pattern=pattern.encode(),
        specials=_canonical(dict(special_tokens)),
    )


def fingerprint_json(document: Mapping[str, Any], reference: Engine) -> str:
    """Of a tokenizer.json: model, normalizer, pre-tokenizer, added tokens (not decoder or post-processor)."""
    added = sorted(document.get("added_tokens") or [], key=lambda token: (token["id"], token["content"]))
    return _digest(
        reference,
        kind=b"tokenizer.json",
        model=_canonical(document["model"]),
        normalizer=_canonical(document.get("normalizer")),
        pre_tokenizer=_canonical(document.get("pre_tokenizer")),
        added_tokens=_canonical(added),
    )


def fingerprint_model(kind: str, model: bytes, reference: Engine) -> str:
    """Of a model whose file is its definition (SentencePiece), or that has none (bytes)."""
    return _digest(reference, kind=kind.encode(), model=model)


def other_fingerprint(asserted: str | None, found: str, what: str, way_out: str) -> SpecError | None:
    """The error where `what` has another fingerprint than a job asserts, with a `way_out` other than a corrected
    fingerprint; None where the job asserts none."""
    if asserted in (None, found):
        return None
    return SpecError(
        "FingerprintDiffers",
        f"tokenizer.fingerprint: the job says {asserted}, {what} has {found}",
        next_step=f"{way_out}; or, if this is the right tokenizer, correct the fingerprint",
    )


def encode_check_text(reference: Engine) -> IdArray | None:
    """The ids of `CHECK_TEXT`; None where the vocabulary lacks a part of it and has no token for unknown text."""
    try:
        return reference.encode([CHECK_TEXT]).ids
    except HasNoToken:
        return None


def _digest(reference: Engine, **fields: bytes) -> str:
    """SHA-256 over the fields in order, each as name and content with their lengths, then the check's tokens."""
    ids = encode_check_text(reference)
    tokens = b"" if ids is None else ids.astype("<u4").tobytes()  # of a vocabulary for other text the fields decide
    digest = hashlib.sha256()
    for name, content in [*fields.items(), ("probe", tokens)]:
        digest.update(b"%s %d\n" % (name.encode(), len(content)))
        digest.update(content)
    return digest.hexdigest()


def _canonical(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
