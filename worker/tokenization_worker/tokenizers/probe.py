"""Which engine a run uses: the accelerated one only after it gave the reference's tokens on every probe text.

The verdict is kept for each host below `$XDG_CACHE_HOME/tokenization/engines` (else `~/.cache`), under a
digest of all that it depends on: fingerprint, versions of both libraries, machine, version of the probe. A
damaged entry counts as none, a folder that cannot be written costs a probe in each run. The probe cannot
see every text; comparing a sample of the documents at run time (see `sample`) is the caller's part.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import orjson

from tokenization_worker.errors import SpecError
from tokenization_worker.tokenizers.base import Engine, Tokenizer
from tokenization_worker.tokenizers.host_files import write_whole
from tokenization_worker.tokenizers.probe_texts import make_texts

PROBE_VERSION = 2
"""Counted up whenever the probe's texts or their comparison change: older verdicts then no longer count."""

_BATCH_CHARACTERS = 1_000_000

_WORTH_BUILDING_BYTES = {"tiktoken": 12_000_000, "tokenizers": 2_000_000}
"""By reference, bytes of text from which building a checked engine pays. Measured 2026-11, two processes
that inherit it: 0.4 s (cl100k) to 1.1 s (o200k) to build, against 2 x 15 MB/s of tiktoken and 2 x 3 MB/s of
tokenizers.
"""

_WORTH_PROBING_BYTES = {"tiktoken": 48_000_000, "tokenizers": 32_000_000}
"""The same where the probe comes on top, once for each host: 4 s against tiktoken, 11 to 21 s against
tokenizers. For tiktoken less than it takes to win the time back at once: the next run on this host has the
verdict.
"""

EngineWanted = Literal["auto", "reference", "fastokens"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the probe found; `difference` shows the first place where the engines disagree, "" where none."""

    identical: bool
    texts: int
    characters: int
    difference: str


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine of a run, and why: a phrase for people."""

    name: str
    reason: str


def choose_engine(tokenizer: Tokenizer, wanted: EngineWanted, text_bytes: int) -> EngineChoice:
    """The engine for a job of `text_bytes` of text (UTF-8, an estimate is fine).

    May run the probe (some seconds, once for each host). Raises SpecError (EngineUnavailable,
    EngineDiffers) where the accelerated engine is asked for by name and cannot be used.
    """
    reference = tokenizer.reference.name
    if wanted == "reference":
        return EngineChoice(reference, "as asked")
    if wanted == "auto" and text_bytes < _WORTH_BUILDING_BYTES.get(reference, 0):
        return EngineChoice(reference, "little text")
    unchecked = text_bytes < _WORTH_PROBING_BYTES.get(reference, 0) and read_verdict(tokenizer) is None
    if wanted == "auto" and unchecked:
        return EngineChoice(reference, "little text, and a faster engine is not checked yet on this machine")
    accelerated = tokenizer.accelerated()
    if accelerated is None:
        if wanted == "auto":
            return EngineChoice(reference, "no faster engine for this tokenizer")
        raise SpecError(
            "EngineUnavailable",
            f"engine {wanted} cannot encode with tokenizer {tokenizer.name}",
            next_step=f"use engine auto or reference ({reference})",
        )
    verdict = find_verdict(tokenizer, accelerated)
    if verdict.identical:
        return EngineChoice(accelerated.name, f"checked against {reference}")
    if wanted == "auto":
        return EngineChoice(reference, f"{accelerated.name} gives other tokens: {verdict.difference}")
    raise SpecError(
        "EngineDiffers",
        f"engine {accelerated.name} gives other tokens than {reference} with {tokenizer.name}: {verdict.difference}",
        next_step=f"use engine auto or reference ({reference})",
    )


def engine_by_name(tokenizer: Tokenizer, name: str) -> Engine:
    """The engine that `choose_engine` named (or "reference"), in whatever process; SpecError (EngineUnavailable)."""
    if name in (tokenizer.reference.name, "reference"):
        return tokenizer.reference
    accelerated = tokenizer.accelerated()
    if accelerated is None or accelerated.name != name:
        raise SpecError(
            "EngineUnavailable",
            f"there is no engine {name!r} for tokenizer {tokenizer.name} here",
            next_step="install the same packages on every machine of a run",
        )
    return accelerated


def find_verdict(tokenizer: Tokenizer, accelerated: Engine) -> Verdict:
    """The verdict on this host, from the cache or by a probe."""
    verdict = read_verdict(tokenizer)
    if verdict is None:
        verdict = probe_tokenizer(tokenizer, accelerated)
        _write_verdict(tokenizer, verdict)
    return verdict


def probe_tokenizer(tokenizer: Tokenizer, accelerated: Engine) -> Verdict:
    """Compare an engine with the tokenizer's reference on every probe text."""
    vocabulary = (tokenizer.decode([token]) for token in range(tokenizer.vocab_size))
    return compare_engines(tokenizer.reference, accelerated, make_texts(tokenizer.special_tokens, vocabulary))


def compare_engines(reference: Engine, other: Engine, texts: Iterable[str]) -> Verdict:
    """Encode all texts with both engines, 1 MB at a time, until they differ."""
    n_texts = n_characters = 0
    for batch in _batches(texts):
        n_texts += len(batch)
        n_characters += sum(map(len, batch))
        expected, found = reference.encode(batch), other.encode(batch)
        if not np.array_equal(expected.ids, found.ids) or not np.array_equal(expected.ends, found.ends):
            return Verdict(False, n_texts, n_characters, _show_difference(reference, other, batch))
    return Verdict(True, n_texts, n_characters, "")


def _show_difference(reference: Engine, other: Engine, batch: Sequence[str]) -> str:
    """The first text that differs, shortened by halves as long as it still differs."""

    def differs(text: str) -> bool:
        return not np.array_equal(reference.encode([text]).ids, other.encode([text]).ids)

    text = next((text for text in batch if differs(text)), None)
    if text is None:
        return "only within a batch of texts"
    while len(text) > 1:
        middle = len(text) // 2
        quarter = len(text) // 4
        parts = (text[:middle], text[middle:], text[quarter : quarter + middle], text[1:], text[:-1])
        shorter = next((part for part in parts if differs(part)), None)
        if shorter is None:
            break
        text = shorter
    expected, found = reference.encode([text]).ids.tolist(), other.encode([text]).ids.tolist()
    return f"{text[:60]!a} is {expected[:12]} with {reference.name}, {found[:12]} with {other.name}"


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def read_verdict(tokenizer: Tokenizer) -> Verdict | None:
    """The verdict kept on this host; None where there is none that can be read."""
    path = _verdict_path(tokenizer)
    try:
        stored = orjson.loads(path.read_bytes()) if path is not None else None
        verdict = Verdict(**stored["verdict"]) if isinstance(stored, dict) else None
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return verdict if verdict is not None and isinstance(verdict.identical, bool) else None


def _write_verdict(tokenizer: Tokenizer, verdict: Verdict) -> None:
    path = _verdict_path(tokenizer)
    if path is None:
        return
    document = {"tokenizer": tokenizer.name, **_verdict_key(tokenizer), "verdict": asdict(verdict)}
    try:
        write_whole(path, orjson.dumps(document, option=orjson.OPT_INDENT_2))
    except OSError:
        return  # a cache: without it the next run probes again


def _verdict_path(tokenizer: Tokenizer) -> Path | None:
    digest = hashlib.sha256(orjson.dumps(_verdict_key(tokenizer), option=orjson.OPT_SORT_KEYS)).hexdigest()
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    except RuntimeError:  # no home
        return None
    return folder / "tokenization" / "engines" / f"{digest}.json"


def _verdict_key(tokenizer: Tokenizer) -> dict[str, object]:
    return {
        "fingerprint": tokenizer.fingerprint,
        "specials": sorted(tokenizer.special_tokens),
        "reference": tokenizer.reference.name,
        "libraries": tokenizer.libraries,
        "machine": platform.machine(),
        "probe": PROBE_VERSION,
    }
