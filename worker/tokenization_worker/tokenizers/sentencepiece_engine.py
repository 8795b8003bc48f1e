"""Tokenizers that a SentencePiece model defines, through its own library.

Control symbols (`<s>`, `</s>`) never come from text: the library leaves them out of its search. User-defined
symbols do come from text; one of them as delimiter is refused by the check of special tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from itertools import groupby
from typing import Any

import numpy as np

from tokenization_worker.api.data import TokenizerSpec
from tokenization_worker.errors import SpecError
from tokenization_worker.tokenizers.base import (
    Encoded,
    KillsEngine,
    Tokenizer,
    join_encoded,
    require_extra,
    shorten_uri,
)
from tokenization_worker.tokenizers.delimiter import check_specials, forbid_ids, resolve_delimiters
from tokenization_worker.tokenizers.fingerprint import fingerprint_model


class SentencePieceEngine:
    """The library's own encoding, one thread, without the symbols that it can add."""

    name = "sentencepiece"

    def __init__(self, processor: Any) -> None:
        self._processor = processor

    def encode(self, texts: Sequence[str]) -> Encoded:
        parts = []
        for number, text in enumerate(texts):
            try:
                parts.append(self._encode_one(text))
            except Exception as error:
                if isinstance(error, MemoryError):
                    raise
                raise KillsEngine(number, f"the package sentencepiece cannot encode it: {error}") from error
        return join_encoded(parts)

    def decode(self, ids: Sequence[int]) -> str:
        """Text to look at; control symbols show as their names."""
        parts: list[str] = []
        for kind, run in groupby((int(token) for token in ids), self._show_as):
            if kind == "text":
                parts.append(self._processor.decode(list(run)))
            elif kind == "symbol":
                parts.extend(self._processor.id_to_piece(token) for token in run)
            else:
                parts.extend("\ufffd" for _ in run)
        return "".join(parts)

    def _encode_one(self, text: str) -> np.ndarray[Any, np.dtype[np.uint32]]:
        ids = self._processor.encode(
            text, out_type=int, add_bos=False, add_eos=False, reverse=False, enable_sampling=False
        )
        return np.array(ids, np.uint32)

    def _show_as(self, token: int) -> str:
        if not 0 <= token < self._processor.get_piece_size():
            return "nothing"
        return "symbol" if self._processor.is_control(token) else "text"


def load_sentencepiece(spec: TokenizerSpec, uri: str, data: bytes) -> Tokenizer:
    """The tokenizer of the model; SpecError (TokenizerInvalid, TokenizerUnsafe), where a retry cannot help."""
    try:
        import sentencepiece
    except ImportError as error:
        what = f"tokenizer.uri: {uri} is a SentencePiece model, which"
        raise require_extra("sentencepiece", "sentencepiece", what) from error
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=data)
    except RuntimeError as error:
        raise SpecError(
            "TokenizerInvalid",
            f"tokenizer.uri: {uri}: the model cannot be read: it is probably truncated ({len(data):,} bytes)",
            next_step="copy the file again, and compare its size with the original's",
        ) from error
    name = shorten_uri(uri)
    size = processor.get_piece_size()
    specials = {processor.id_to_piece(i): i for i in range(size) if processor.is_control(i)}
    end = processor.eos_id()
    delimiters = resolve_delimiters(
        spec,
        name,
        specials | _find_piece(processor, spec.delimiter_token) | _find_piece(processor, spec.end_token),
        processor.id_to_piece(end) if end >= 0 else None,
    )
    specials |= {processor.id_to_piece(token): token for token in delimiters.ids}
    reference = SentencePieceEngine(processor)
    check_specials(reference, specials, forbid_ids(specials, delimiters, processor.unk_id()))
    return Tokenizer(
        name=name,
        vocab_size=size,
        special_tokens=specials,
        delimiters=delimiters,
        fingerprint=fingerprint_model("SentencePiece", data, reference),
        libraries={"sentencepiece": version("sentencepiece")},
        reference=reference,
        decode=reference.decode,
        normalises="a SentencePiece model normalises text",
        unknown_id=processor.unk_id(),
    )


def _find_piece(processor: Any, piece: str | None) -> dict[str, int]:
    """A piece of the vocabulary that was asked for as delimiter, whatever its type; the check judges it."""
    if piece is None:
        return {}
    found = processor.piece_to_id(piece)
    return {piece: found} if processor.id_to_piece(found) == piece else {}
