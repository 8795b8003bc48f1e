"""The way in: from a `TokenizerSpec` to a loaded `Tokenizer`.

Owns the choice of the kind (by name, or by the content of a file, never by its suffix). Importing this module
loads no tokenizer library; loading starts no thread, so that a process may fork afterwards.
"""

from __future__ import annotations

from functools import lru_cache

from tokenization_worker.api.data import TokenizerSpec
from tokenization_worker.errors import SpecError
from tokenization_worker.tokenizers.base import Tokenizer


@lru_cache(maxsize=8)
def load_tokenizer(spec: TokenizerSpec) -> Tokenizer:
    """The tokenizer of a job, checked: no text becomes a special token, and the delimiter is known.

    A second call with an equal spec returns the same object, also in a forked child. Raises SpecError
    (TokenizerUnavailable, TokenizerInvalid, TokenizerUnsafe, DelimiterUnknown, DelimiterRequired), where a
    retry cannot help, and TemporaryError (TokenizerUnavailable) where a file of a right name could not be
    downloaded.
    """
    if spec.uri is not None:
        return _load_file(spec, spec.uri)
    if spec.name is None:
        raise SpecError("TokenizerInvalid", "tokenizer: neither name nor uri is set", next_step="set one of them")
    if spec.name == "bytes":
        return _load_bytes(spec)
    from tokenization_worker.tokenizers.rank_tokenizer import load_named

    return load_named(spec, spec.name)


def _load_file(spec: TokenizerSpec, uri: str) -> Tokenizer:
    data = _read(uri)
    kind = detect_kind(data)
    if kind == "ranks":
        from tokenization_worker.tokenizers.rank_tokenizer import load_rank_file

        return load_rank_file(spec, uri, data)
    if spec.pattern is not None or spec.special_tokens:
        raise SpecError(
            "TokenizerInvalid",
            f"tokenizer.pattern, tokenizer.specialTokens: {uri} is a {kind} file, which holds both itself",
            next_step="leave them out",
        )
    if kind == "tokenizer.json":
        from tokenization_worker.tokenizers.hf import load_tokenizer_json

        return load_tokenizer_json(spec, uri, data)
    from tokenization_worker.tokenizers.sentencepiece_engine import load_sentencepiece

    return load_sentencepiece(spec, uri, data)


def _load_bytes(spec: TokenizerSpec) -> Tokenizer:
    from tokenization_worker.tokenizers.byte_engine import (
        DELIMITER_ID,
        DELIMITER_TOKEN,
        VOCAB_SIZE,
        ByteEngine,
    )
    from tokenization_worker.tokenizers.delimiter import resolve_delimiter
    from tokenization_worker.tokenizers.fingerprint import fingerprint_model

    engine = ByteEngine()
    specials = {DELIMITER_TOKEN: DELIMITER_ID}
    return Tokenizer(
        name="bytes",
        vocab_size=VOCAB_SIZE,
        special_tokens=specials,
        delimiter_id=resolve_delimiter(spec, "bytes", specials),
        fingerprint=fingerprint_model("bytes", b"", engine),
        libraries={},
        reference=engine,
        decode=engine.decode,
    )


def detect_kind(data: bytes) -> str:
    """`tokenizer.json`, `ranks` or `SentencePiece`, by content; SpecError (TokenizerInvalid) for anything else."""
    head = data[:4096].lstrip()
    if head[:1] == b"{":
        return "tokenizer.json"
    first = head.split(b"\n", 1)[0].split()
    if len(first) == 2 and first[1].isdigit() and _is_base64(first[0]):
        return "ranks"
    if _is_sentencepiece(data):
        return "SentencePiece"
    found = "nothing (0 bytes)" if not data else repr(data[:24])
    hint = "; this is a Git LFS pointer, not the file" if data.startswith(b"version https://git-lfs") else ""
    raise SpecError(
        "TokenizerInvalid",
        "tokenizer.uri: expected a tokenizer.json, tiktoken ranks or a SentencePiece model, "
        f"found a file that begins with {found}{hint}",
        next_step="give one of these files; the suffix does not matter",
    )


def _is_base64(word: bytes) -> bool:
    import base64
    import binascii

    try:
        return bool(base64.b64decode(word, validate=True))
    except binascii.Error:
        return False


def _is_sentencepiece(data: bytes) -> bool:
    """Whether it begins as a ModelProto does: field 1, a piece, whose own field 1 is text."""
    return len(data) > 4 and data[0] == 0x0A and data[1] < 0x80 and data[2] == 0x0A and data[3] < data[1]


def _read(uri: str) -> bytes:
    from tokenization_worker.storage.base import NotFound
    from tokenization_worker.storage.sources import read_uri

    try:
        return read_uri(uri)
    except NotFound as error:
        raise SpecError(
            "TokenizerUnavailable",
            f"tokenizer.uri: {uri}: there is no such file",
            next_step="check the path; for a tokenizer of tiktoken use tokenizer: {name: ...} instead",
        ) from error
    except SpecError as error:
        raise SpecError(
            "TokenizerUnavailable",
            f"tokenizer.uri: {uri} cannot be read: {error.message}",
            next_step="give one readable file, not a folder",
        ) from error
