"""Tokenizers of tiktoken's kind: an encoding by name, or a `*.tiktoken` file.

Owns how a rank table becomes a `Tokenizer`; where the table comes from is the part of `ranks`, encoding the
engines'.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import version

from tokenization_worker.api.data import TokenizerSpec
from tokenization_worker.errors import SpecError
from tokenization_worker.tokenizers import fast_engine
from tokenization_worker.tokenizers.base import Tokenizer, shorten_uri
from tokenization_worker.tokenizers.delimiter import (
    check_specials,
    forbid_ids,
    keep_if_safe,
    quote_list,
    resolve_delimiter,
)
from tokenization_worker.tokenizers.fingerprint import fingerprint_ranks
from tokenization_worker.tokenizers.rank_files import KNOWN_FILES
from tokenization_worker.tokenizers.ranks import RankTable, parse_ranks, read_known, read_named
from tokenization_worker.tokenizers.tiktoken_engine import TiktokenEngine


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
        raise SpecError(
            "TokenizerInvalid",
            f"tokenizer.uri: {uri} holds the ranks of no known encoding ({', '.join(KNOWN_FILES.values())}); "
            "such a file says neither how text is cut into pieces nor which special tokens there are "
            "(Llama 3's is one)",
            next_step="set tokenizer.pattern and tokenizer.specialTokens {text: id} as the model's own code has them, "
            "or give the model's tokenizer.json, which holds both",
        )
    return build_tokenizer(spec, read_known(known, data))


def _read_custom(spec: TokenizerSpec, pattern: str, uri: str, data: bytes) -> RankTable:
    try:
        ranks = parse_ranks(data)
    except ValueError as error:
        raise _invalid(f"{uri}: {error}", "check that the file is whole") from error
    specials = dict(spec.special_tokens)
    ids = [*ranks.values(), *specials.values()]
    if missing := [byte for byte in range(256) if bytes([byte]) not in ranks]:
        raise _invalid(
            f"{uri}: {len(missing)} of 256 single bytes have no rank, the first is {missing[0]:#04x}: "
            "some text could not be encoded",
            "check that the file is whole",
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

    delimiter_id = resolve_delimiter(spec, table.name, table.special_tokens)
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
    forbidden = forbid_ids(table.special_tokens, delimiter_id)
    check_specials(reference, table.special_tokens, forbidden)
    fingerprint = fingerprint_ranks(table.ranks, table.pattern, table.special_tokens, reference)
    return Tokenizer(
        name=table.name,
        vocab_size=encoding.max_token_value + 1,
        special_tokens=table.special_tokens,
        delimiter_id=delimiter_id,
        fingerprint=fingerprint,
        libraries={package: version(package) for package in ("fastokens", "regex", "tiktoken")},
        reference=reference,
        decode=reference.decode,
        accelerate=lambda: keep_if_safe(fast_engine.build_for_ranks(table, reference), table.special_tokens, forbidden),
    )


def _invalid(message: str, next_step: str) -> SpecError:
    return SpecError("TokenizerInvalid", f"tokenizer.uri: {message}", next_step=next_step)
