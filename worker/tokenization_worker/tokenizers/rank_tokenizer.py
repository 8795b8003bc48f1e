"""Tokenizers of tiktoken's kind: an encoding by name, or a `*.tiktoken` file.

Owns how a rank table becomes a `Tokenizer`; where the table comes from is the part of `ranks`, encoding the
engines'.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from importlib.metadata import version

import numpy as np

from tokenization_worker.api.data import TokenizerSpec
from tokenization_worker.errors import SpecError
from tokenization_worker.tokenizers import fast_engine
from tokenization_worker.tokenizers.base import (
    WRITE_PLAINLY,
    KillsEngine,
    LengthArray,
    Tokenizer,
    pack_lengths,
    shorten_uri,
)
from tokenization_worker.tokenizers.delimiter import (
    check_specials,
    forbid_ids,
    keep_if_safe,
    quote_list,
    resolve_delimiters,
)
from tokenization_worker.tokenizers.fingerprint import CHECK_TEXT, fingerprint_ranks
from tokenization_worker.tokenizers.ranks.encodings import RankTable, parse_ranks, read_known, read_named
from tokenization_worker.tokenizers.ranks.rank_files import KNOWN_FILES
from tokenization_worker.tokenizers.tiktoken_engine import TiktokenEngine, is_refusal

_LIMIT_S = 5.0
"""CPU time for all texts that are tried while a tokenizer with a pattern of the user's is loaded."""

_EMPTY_MATCH_S = 2.0
"""For looking for empty matches in a short text, with a library that has no limit of its own."""


def load_named(spec: TokenizerSpec, name: str) -> Tokenizer:
    """The encoding or model `name`."""
    return build_tokenizer(spec, read_named(name))


def load_rank_file(spec: TokenizerSpec, uri: str, data: bytes) -> Tokenizer:
    """The ranks in `data`: a known encoding's by their SHA-256, else with the pattern and specials of the
    spec.

    Raises SpecError (TokenizerInvalid): a retry cannot help.
    """
    if spec.pattern is not None:
        return build_tokenizer(spec, _read_custom(spec, spec.pattern, uri, data))
    known = KNOWN_FILES.get(hashlib.sha256(data).hexdigest())
    if known is None:
        meant = [name for name in KNOWN_FILES.values() if name in uri.rpartition("/")[2]] or ["one of these encodings"]
        raise SpecError(
            "TokenizerInvalid",
            f"tokenizer.uri: {uri} holds the ranks of no known encoding ({', '.join(KNOWN_FILES.values())}); such a "
            "file (Llama 3's is one) defines neither the pattern that splits text nor the special tokens",
            next_step=f"if this should be the file of {' or '.join(meant)}, it is truncated or corrupt: copy it again; "
            "otherwise set tokenizer.pattern and tokenizer.specialTokens {text: id} as in the model's own code, or "
            "give the model's tokenizer.json, which holds both",
        )
    return build_tokenizer(spec, read_known(known, data))


def _read_custom(spec: TokenizerSpec, pattern: str, uri: str, data: bytes) -> RankTable:
    try:
        ranks = parse_ranks(data)
    except ValueError as error:
        raise _invalid(f"{uri}: {error}", "check that the file is complete") from error
    specials = dict(spec.special_tokens)
    ids = [*ranks.values(), *specials.values()]
    if missing := [byte for byte in range(256) if bytes([byte]) not in ranks]:
        raise _invalid(
            f"{uri}: {len(missing)} of 256 single bytes have no rank, the first is {missing[0]:#04x}: some text could "
            "not be encoded",
            "check that the file is complete",
        )
    if len(set(ids)) < len(ids):
        used = set(ranks.values())
        twice = [text for text, token in specials.items() if token in used]
        raise _invalid(
            f"{uri}: an id is used twice" + (f", by a rank and by {quote_list(twice[:3])}" if twice else ""),
            f"give special tokens ids of their own (ranks go up to {max(used)})",
        )
    return RankTable(
        name=shorten_uri(uri),
        pattern=pattern,
        ranks=ranks,
        special_tokens=specials,
    )


def build_tokenizer(spec: TokenizerSpec, table: RankTable) -> Tokenizer:
    """A tokenizer from its table, which it keeps until the accelerated engine is built."""
    import tiktoken

    delimiters = resolve_delimiters(spec, table.name, table.special_tokens)
    try:
        encoding = tiktoken.Encoding(
            table.name,
            pat_str=table.pattern,
            mergeable_ranks=table.ranks,
            special_tokens=table.special_tokens,
        )
    except ValueError as error:
        detail = str(error).partition("\n")[0]
        raise SpecError(
            "TokenizerInvalid",
            f"tokenizer.pattern: the expression is refused: {detail}",
            next_step="write it as the model's own code does, in single quotes (YAML reads backslashes in double ones)",
        ) from error
    reference = TiktokenEngine(encoding, table.pattern)
    if spec.pattern is not None:
        _check_pattern(reference, spec.pattern)
    forbidden = forbid_ids(table.special_tokens, delimiters)
    _check_specials(spec, reference, table.special_tokens, forbidden)
    fingerprint = fingerprint_ranks(table.ranks, table.pattern, table.special_tokens, reference)
    vocab_size = encoding.max_token_value + 1
    return Tokenizer(
        name=table.name,
        vocab_size=vocab_size,
        special_tokens=table.special_tokens,
        delimiters=delimiters,
        fingerprint=fingerprint,
        libraries={package: version(package) for package in ("fastokens", "regex", "tiktoken")},
        reference=reference,
        decode=reference.decode,
        restore=reference.restore,
        byte_lengths=None if spec.pattern is None else _measure_ranks(table.ranks, vocab_size),
        pattern=spec.pattern,
        limit=None if spec.pattern is None else reference.limited,
        accelerate=lambda: keep_if_safe(fast_engine.build_for_ranks(table, reference), table.special_tokens, forbidden),
    )


def _measure_ranks(ranks: Mapping[bytes, int], vocab_size: int) -> LengthArray:
    """The bytes of each token; of special tokens, which never come from text, none."""
    lengths = np.zeros(vocab_size, np.int64)
    lengths[np.fromiter(ranks.values(), np.int64, len(ranks))] = np.fromiter(map(len, ranks), np.int64, len(ranks))
    return pack_lengths(lengths)


def _check_specials(
    spec: TokenizerSpec, reference: TiktokenEngine, specials: Mapping[str, int], forbidden: set[int]
) -> None:
    """`check_specials`, which a pattern of the user's must not hold up; SpecError (TokenizerInvalid)."""
    if spec.pattern is None:
        check_specials(reference, specials, forbidden)
        return
    try:
        check_specials(reference.limited(_LIMIT_S), specials, forbidden)
    except KillsEngine as kill:
        raise _invalid_pattern(
            f"{spec.pattern!r} cannot split the text of a special token: {kill.detail}", WRITE_PLAINLY
        ) from kill


def _check_pattern(reference: TiktokenEngine, pattern: str) -> None:
    """Refuse a pattern of one's own that cannot cut ordinary text; SpecError (TokenizerInvalid)."""
    for text in ("", CHECK_TEXT):
        if (place := _find_empty_match(pattern, text)) is not None:
            where = repr(text[place : place + 12]) if text else "a text that is empty"
            raise _invalid_pattern(
                f"{pattern!r} matches an empty text (at {where}): each match needs at least one character",
                "let every alternative match a character: + in place of *, and no alternative that is empty",
            )
        try:
            reference.encode_plainly(text)
        except BaseException as error:  # a panic of Rust is no Exception
            if not is_refusal(error):
                raise
            detail = str(error).partition("\n")[0]
            raise _invalid_pattern(
                f"{pattern!r} cannot split ordinary text: tiktoken says: {detail}",
                WRITE_PLAINLY,
            ) from error


def _find_empty_match(pattern: str, text: str) -> int | None:
    """Where the pattern matches nothing; None where it does not, or where tiktoken alone can tell.

    Raises SpecError (TokenizerInvalid) for a pattern that repeats itself without an end.
    """
    import regex  # type: ignore[import-untyped]

    deadline = time.process_time() + _EMPTY_MATCH_S
    try:
        for match in regex.finditer(pattern, text, timeout=_EMPTY_MATCH_S):  # the limit of each match
            if match.start() == match.end():
                return int(match.start())
            if time.process_time() >= deadline:
                return None
    except (regex.error, TimeoutError):
        return None
    except MemoryError as error:  # the library's own limit of 1 GB, for a pattern that stands in itself
        raise _invalid_pattern(
            f"{pattern!r} recurses without end: the package regex runs out of memory",
            "leave out what stands for the pattern or a part of it within itself: (?R), (?0), (?1), (?&name)",
        ) from error
    return None


def _invalid_pattern(message: str, next_step: str) -> SpecError:
    return SpecError("TokenizerInvalid", f"tokenizer.pattern: {message}", next_step=next_step)


def _invalid(message: str, next_step: str) -> SpecError:
    return SpecError("TokenizerInvalid", f"tokenizer.uri: {message}", next_step=next_step)
