"""The accelerated engine: fastokens, for tiktoken encodings and for tokenizer.json.

Owns how fastokens must be constructed to give the reference's tokens, and which text is known to be risky
and goes to the reference instead. That it does give them is for `engine_check` to show; nothing here is trusted.

How it is constructed decides its speed (measured 2026-11, fastokens 0.3.5, one thread, English): its
presets and the pre-tokenizers that it recognises in a tokenizer.json reach 220 MB/s (word cache warm: 420),
any other pattern goes through a general regex engine at 50 to 60.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from tokenization_worker.host.temporary import temporary_file
from tokenization_worker.tokenizers.base import Encoded, Engine, KillsEngine
from tokenization_worker.tokenizers.ranks.encodings import RankTable
from tokenization_worker.tokenizers.tiktoken_engine import is_refusal

_LONG_S = "\u017f"
_RISKY = f"'{_LONG_S}"
"""U+017F is an "s" where case is ignored: with o200k, this is a contraction for tiktoken and not for fastokens (it
shows before another apostrophe, as in "a'\u017f'So", and after " I"). gpt2's pattern minds case, and cl100k comes out
alike. Without the apostrophe it is a letter like any other, of which old books are full: sending those to the reference
took 2 % of a run's time (2026-11-21).
"""

_GPT2_PATTERNS = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
)
"""Spellings of GPT-2's pattern, which tokenizer.json calls ByteLevel."""

_PRESETS = ("cl100k_base", "o200k_base")


class FastokensEngine:
    """Batches through fastokens; texts that hold the risky characters through the reference."""

    name = "fastokens"

    def __init__(
        self, native: Any, reference: Engine, *, has_risk: bool = False, split_special_tokens: bool = False
    ) -> None:
        self._native = native
        self._reference = reference
        self._has_risk = has_risk
        self._split_special_tokens = split_special_tokens

    def encode(self, texts: Sequence[str]) -> Encoded:
        if self._has_risk and any(map(_is_risky, texts)):
            return self._encode_mixed(texts)
        return self._encode_fast(texts)

    def _encode_fast(self, texts: Sequence[str]) -> Encoded:
        try:
            ids, offsets = self._native.encode_batch_flat(
                texts if isinstance(texts, list) else list(texts), split_special_tokens=self._split_special_tokens
            )
        except BaseException as error:  # a panic of Rust is no Exception
            if isinstance(error, MemoryError) or not (isinstance(error, Exception) or is_refusal(error)):
                raise
            return self._reference.encode(texts)  # it gives up on a text: the reference decides which, and why
        return Encoded(np.frombuffer(ids, "<u4"), np.frombuffer(offsets, "<u8")[1:].astype(np.int64))

    def _encode_mixed(self, texts: Sequence[str]) -> Encoded:
        """Both engines, each its own texts, put together in the order of the texts."""
        is_risky = np.fromiter(map(_is_risky, texts), bool, len(texts))
        slow = _encode_some(self._reference.encode, texts, np.flatnonzero(is_risky))
        fast = _encode_some(self._encode_fast, texts, np.flatnonzero(~is_risky))
        sizes = np.empty(len(texts), np.int64)
        sizes[is_risky] = np.diff(slow.ends, prepend=0)
        sizes[~is_risky] = np.diff(fast.ends, prepend=0)
        from_slow = np.repeat(is_risky, sizes)
        ids = np.empty(len(from_slow), np.uint32)
        ids[from_slow] = slow.ids
        ids[~from_slow] = fast.ids
        return Encoded(ids, np.cumsum(sizes))


def _encode_some(encode: Callable[[Sequence[str]], Encoded], texts: Sequence[str], chosen: NDArray[np.intp]) -> Encoded:
    """Encode the texts with the numbers `chosen`; a `KillsEngine` has the number that its text has among all."""
    try:
        return encode([texts[number] for number in chosen])
    except KillsEngine as kill:
        raise KillsEngine(int(chosen[kill.document]), kill.detail) from kill


def _is_risky(text: str) -> bool:
    return _LONG_S in text and _RISKY in text  # one character is found 30 times as fast as two


def build_for_ranks(table: RankTable, reference: Engine) -> Engine | None:
    """The engine for a tiktoken encoding; None if fastokens cannot take it.

    Empties the ranks, which have a copy in the engine then (o200k: 25 MB less).
    """
    if table.preset in _PRESETS and table.read_file is not None:
        native = _from_rank_file(table.read_file(), table.preset)
    else:
        native = _from_json(make_tokenizer_json(table.ranks, table.pattern))
    table.ranks.clear()
    if native is None:
        return None
    is_known_good = table.preset == "cl100k_base" or table.pattern in _GPT2_PATTERNS
    return FastokensEngine(native, reference, has_risk=not is_known_good)


def build_for_json(document: bytes, reference: Engine) -> Engine | None:
    """The engine for a tokenizer.json whose special tokens must not match; None if fastokens cannot take it."""
    native = _from_json(document)
    if native is None:
        return None
    native.no_truncation()
    native.no_padding()
    return FastokensEngine(native, reference, split_special_tokens=True)


def make_tokenizer_json(ranks: Mapping[bytes, int], pattern: str) -> bytes:
    """The same encoding as a byte-level BPE tokenizer.json, without special tokens.

    What the pattern does not match is removed, as tiktoken does it: a cut alone would keep it as a piece of its own.
    Ids that no rank has get an unreachable entry: a vocabulary with gaps is refused.
    """
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    if pattern in _GPT2_PATTERNS:
        pre_tokenizer: dict[str, Any] = {**byte_level, "use_regex": True}
    else:
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": True}
        pre_tokenizer = {"type": "Sequence", "pretokenizers": [split, {**byte_level, "use_regex": False}]}
    stand_in = printable_bytes()
    vocab = {token.decode("latin-1").translate(stand_in): rank for token, rank in ranks.items()}
    taken = set(ranks.values())
    vocab |= {f"<unused {rank}>": rank for rank in range(max(taken, default=0)) if rank not in taken}
    merges = [
        [left.decode("latin-1").translate(stand_in), right.decode("latin-1").translate(stand_in)]
        for left, right in derive_merges(ranks)
    ]
    return orjson.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": pre_tokenizer,
            "post_processor": None,
            "decoder": {**byte_level, "use_regex": True},
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": True,
                "vocab": vocab,
                "merges": merges,
            },
        }
    )


def derive_merges(ranks: Mapping[bytes, int]) -> list[tuple[bytes, bytes]]:
    """The merge that makes each token, in rank order: its two parts under BPE with the lower ranks only.

    A token that lower ranks do not reduce to two parts has none: only a piece that equals it yields it.
    Measured 2026-11: 0.27 s for gpt2's 50,000 merges, so the result is not worth keeping on disk.
    """
    merges = []
    get = ranks.get
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [token[i : i + 1] for i in range(len(token))]
        while len(parts) > 2:
            lowest, at = rank, -1
            for i in range(len(parts) - 1):
                joined = get(parts[i] + parts[i + 1])
                if joined is not None and joined < lowest:
                    lowest, at = joined, i
            if at < 0:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        if len(parts) == 2:
            merges.append((parts[0], parts[1]))
    return merges


def printable_bytes() -> dict[int, int]:
    """GPT-2's printable stand-in for each byte, as a translation of latin-1 text."""
    plain = [byte for byte in range(256) if chr(byte).isprintable() and chr(byte) != " "]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: byte for byte in plain} | {byte: 256 + k for k, byte in enumerate(others)}


def _fastokens() -> Any:
    """fastokens with one thread: a job runs one process for each core."""
    os.environ.setdefault("FASTOKENS_BPE_THREADS", "1")
    import fastokens

    return fastokens


def _from_rank_file(data: bytes, encoding: str) -> Any:
    with temporary_file(f"{encoding}.tiktoken", data) as path:
        return _fastokens().Tokenizer.from_tiktoken(str(path), encoding=encoding, special_tokens={})


def _from_json(document: bytes) -> Any | None:
    """None for what fastokens does not support: the reference serves it."""
    try:
        return _fastokens().Tokenizer.from_json_str(document.decode())
    except (ValueError, RuntimeError):
        return None
