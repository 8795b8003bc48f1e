"""Loads the `Tokenizer` of a `TokenizerSpec`.

Owns the choice of the kind (by name, or by the content of a file, never by its suffix). Importing this module
loads no tokenizer library; loading starts no thread, so that a process may fork afterwards.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from tokenization_worker.api.data import TokenizerSpec
from tokenization_worker.errors import SpecError
from tokenization_worker.storage.hf.uri import is_model_name, looks_like_repository, split_model_name
from tokenization_worker.storage.schemes import plain_path, scheme_of
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
    if is_model_name(spec.name):
        return _load_model(spec, spec.name)
    from tokenization_worker.tokenizers.rank_tokenizer import load_named

    return load_named(spec, spec.name)


def pin_tokenizer(spec: TokenizerSpec, planned: str = "") -> TokenizerSpec:
    """`spec` with the commit of a model on the Hub: the `planned` one, or that at which its revision stands now."""
    if spec.name is None or not is_model_name(spec.name):
        return spec
    return replace(spec, revision=planned or _find_commit(spec.name))


def _find_commit(name: str) -> str:
    from tokenization_worker.storage.base import NotFound
    from tokenization_worker.storage.sources import find_model_commit

    try:
        return find_model_commit(split_model_name(name))
    except NotFound as error:
        raise _no_tokenizer_json(name) from error


def _load_model(spec: TokenizerSpec, name: str) -> Tokenizer:
    from tokenization_worker.storage.base import NotFound
    from tokenization_worker.storage.sources import read_model_file
    from tokenization_worker.tokenizers.hf import load_tokenizer_json

    place = split_model_name(name)
    try:
        data = read_model_file(place._replace(revision=spec.revision or place.revision))
    except NotFound as error:
        raise _no_tokenizer_json(name) from error
    return load_tokenizer_json(spec, name, data)


def _no_tokenizer_json(name: str) -> SpecError:
    repository = split_model_name(name).repository
    return SpecError(
        "TokenizerUnavailable",
        f"tokenizer.name: {name}: the model's repository has no tokenizer.json",
        next_step="give the file that it has, such as a SentencePiece model: "
        f"{_download_command(repository, 'tokenizer.model')}",
    )


def _download_command(repository: str, file: str) -> str:
    folder = repository.replace("/", "--")
    return f"hf download {repository} {file} --local-dir {folder}, and then tokenizer.uri: {folder}/{file}"


def advise_model(repository: str) -> str:
    """How to get the tokenizer of a model on the Hub, for a name such as `org/name`."""
    return (
        f"for a model on the Hugging Face Hub write tokenizer.name: hf:{repository}, or download its file once: "
        f"{_download_command(repository, 'tokenizer.json')}"
    )


def _load_file(spec: TokenizerSpec, uri: str) -> Tokenizer:
    data = _read(uri)
    kind = detect_kind(data, uri)
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


_SHOWN = 4
"""Files of a folder that a message names."""


def _is_folder(folder: Path) -> SpecError:
    kinds = ("tokenizer.json", "tokenizer.model")
    found = [path for name in kinds for path in (folder / name, *sorted(folder.glob(f"*/{name}"))) if path.is_file()]
    if len(found) == 1:
        step = f"give the file in it: {found[0]}"
    elif found:
        step = f"give one of the files in it: {', '.join(map(str, found[:_SHOWN]))}"
    else:
        step = "give a tokenizer's file"
    return SpecError(
        "TokenizerUnavailable",
        f"tokenizer.uri: {folder} is a folder, expected a file",
        next_step=step,
    )


def _load_bytes(spec: TokenizerSpec) -> Tokenizer:
    from tokenization_worker.tokenizers.byte_engine import (
        DELIMITER_ID,
        DELIMITER_TOKEN,
        VOCAB_SIZE,
        ByteEngine,
    )
    from tokenization_worker.tokenizers.delimiter import resolve_delimiters
    from tokenization_worker.tokenizers.fingerprint import fingerprint_model

    engine = ByteEngine()
    specials = {DELIMITER_TOKEN: DELIMITER_ID}
    return Tokenizer(
        name="bytes",
        vocab_size=VOCAB_SIZE,
        special_tokens=specials,
        delimiters=resolve_delimiters(spec, "bytes", specials),
        fingerprint=fingerprint_model("bytes", b"", engine),
        libraries={},
        reference=engine,
        decode=engine.decode,
        restore=lambda ids: bytes(list(ids)),
    )


def detect_kind(data: bytes, uri: str) -> str:
    """`tokenizer.json`, `ranks` or `SentencePiece`, by content; SpecError (TokenizerInvalid) for anything else."""
    head = data[:4096].lstrip()
    if head[:1] == b"{":
        return "tokenizer.json"
    first = head.split(b"\n", 1)[0].split()
    if len(first) == 2 and first[1].isdigit() and _is_base64(first[0]):
        return "ranks"
    if _is_sentencepiece(data):
        return "SentencePiece"
    found = f"a file that begins with {data[:24]!r}" if data else "an empty file"
    hint = "; this is a Git LFS pointer, not the file" if data.startswith(b"version https://git-lfs") else ""
    raise SpecError(
        "TokenizerInvalid",
        f"tokenizer.uri: {uri}: expected a tokenizer.json, tiktoken ranks or a SentencePiece model, "
        f"found {found}{hint}",
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
        repository = "/".join(uri.rsplit("/", 2)[-2:])
        is_file_name = uri.endswith((".json", ".model", ".tiktoken"))
        is_relative = uri == os.path.abspath(repository)  # noqa: PTH100
        may_be_model = looks_like_repository(repository) and is_relative and not is_file_name
        named = "check the path; for a tokenizer of tiktoken use tokenizer: {name: ...} instead"
        raise SpecError(
            "TokenizerUnavailable",
            f"tokenizer.uri: {uri}: there is no such file",
            next_step=f"check the path; {advise_model(repository)}"
            if may_be_model
            else "check the path"
            if is_file_name
            else named,
        ) from error
    except SpecError as error:
        # os.path: what cannot be looked at, such as a name that is too long, is no folder.
        if scheme_of(uri) == "file" and os.path.isdir(path := plain_path(uri)):  # noqa: PTH112
            raise _is_folder(path) from error
        if isinstance(error.__cause__, PermissionError):
            raise SpecError(
                "TokenizerUnavailable",
                f"tokenizer.uri: this user may not read {uri}",
                next_step="give this user read permission for the file",
            ) from error
        raise SpecError(
            "TokenizerUnavailable",
            f"tokenizer.uri: {uri} cannot be read: {error.message}",
            next_step="give one readable file, not a folder",
        ) from error
