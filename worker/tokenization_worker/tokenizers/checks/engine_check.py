"""The engine check: a run uses the accelerated engine only after it gave the reference's tokens on every check text.

The verdict is kept for each host (`kept_files`), under a digest of all that it depends on: fingerprint, versions of
both libraries, machine, version of the check. One process of a host runs the check at a time; the others take its
verdict. A worker asks for the verdict before it uses the engine, too: its host may be another one than the driver's.
The check cannot cover every text; comparing a sample of the documents at run time (see `sample`) is the caller's part.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from tokenization_worker.errors import SpecError
from tokenization_worker.host.kept_files import finding_out, keep_fact, read_fact
from tokenization_worker.tokenizers.base import Engine, KillsEngine, Tokenizer
from tokenization_worker.tokenizers.checks.check_texts import make_texts

ENGINE_CHECK_VERSION = 2
"""Counted up whenever the check's texts or their comparison change: older verdicts then no longer count."""

_BATCH_CHARACTERS = 1_000_000

_WORTH_BUILDING_BYTES = {"tiktoken": 12_000_000, "tokenizers": 2_000_000}
"""By reference, bytes of text from which building a checked engine pays. Measured 2026-11, two processes
that inherit it: 0.4 s (cl100k) to 1.1 s (o200k) to build, against 2 x 15 MB/s of tiktoken and 2 x 3 MB/s of
tokenizers.
"""

_WORTH_PROBING_BYTES = {"tiktoken": 48_000_000, "tokenizers": 32_000_000}
"""The same where the check comes on top, once for each host: 4 s against tiktoken, 11 to 21 s against
tokenizers. For tiktoken less than it takes to win the time back at once: the next run on this host has the
verdict.
"""

ENGINE_CHECK_SECONDS = {"tiktoken": 5.0, "tokenizers": 20.0}
"""By reference, about how long the check takes on one core (2026-11)."""

_LIMIT_S = 60.0
"""CPU time of the reference for the texts on which a pattern of the user's backtracks; known patterns do not."""

_SHOWN = 60

_KIND = "engines"
_PATIENCE_S = 180.0
"""How long a process waits for the verdict of another one on its host, before it checks itself."""

EngineWanted = Literal["auto", "reference", "fastokens"]
Begins = Callable[[Engine, Engine], None]
"""Told before a check begins: the accelerated engine and the reference."""


def _untold(accelerated: Engine, reference: Engine) -> None:
    """For callers whom nobody watches."""


@dataclass(frozen=True, slots=True)
class EngineVerdict:
    """What the check found; `difference` shows the first place where the engines disagree, "" where none.

    `text` is what they disagree on, `found` and `expected` are the tokens of the engine and of the reference.
    """

    identical: bool
    texts: int
    characters: int
    difference: str
    text: str = ""
    found: tuple[int, ...] = ()
    expected: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine of a run, and why: a phrase for people."""

    name: str
    reason: str


def choose_engine(
    tokenizer: Tokenizer, wanted: EngineWanted, text_bytes: int, begins: Begins = _untold
) -> EngineChoice:
    """The engine for a job of `text_bytes` of text (UTF-8, an estimate is fine).

    May run the check (some seconds, once for each host), and calls `begins` before. Raises SpecError
    (EngineUnavailable, EngineDiffers) where the accelerated engine is asked for by name and cannot be used.
    """
    reference = tokenizer.reference.name
    if wanted == "reference":
        return EngineChoice(reference, "as asked")
    if wanted == "auto" and text_bytes < _WORTH_BUILDING_BYTES.get(reference, 0):
        return EngineChoice(reference, "little text")
    unchecked = text_bytes < _WORTH_PROBING_BYTES.get(reference, 0) and read_verdict(tokenizer) is None
    if wanted == "auto" and unchecked:
        return EngineChoice(reference, "the source is small, and no faster engine was checked on this machine yet")
    accelerated = tokenizer.accelerated()
    if accelerated is None:
        if wanted == "auto":
            return EngineChoice(reference, "no faster engine for this tokenizer")
        raise SpecError(
            "EngineUnavailable",
            f"engine {wanted} cannot encode with tokenizer {tokenizer.name}",
            next_step=f"use engine auto or reference ({reference})",
        )
    verdict = find_verdict(tokenizer, accelerated, begins)
    tokenizer.is_engine_checked = verdict.identical
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


def find_difference(tokenizer: Tokenizer, name: str, begins: Begins = _untold) -> EngineVerdict | None:
    """The verdict against the engine `name` on this host; None where it may be used.

    Runs the check where this host has no verdict. Once it is known, asking again costs this process nothing.
    """
    engine = engine_by_name(tokenizer, name)
    if engine is tokenizer.reference or tokenizer.is_engine_checked:
        return None
    verdict = find_verdict(tokenizer, engine, begins)
    tokenizer.is_engine_checked = verdict.identical
    return None if verdict.identical else verdict


def find_verdict(tokenizer: Tokenizer, accelerated: Engine, begins: Begins = _untold) -> EngineVerdict:
    """The verdict on this host, from the cache or by a check."""
    verdict = read_verdict(tokenizer)
    if verdict is not None:
        return verdict
    begins(accelerated, tokenizer.reference)
    with finding_out(_KIND, _verdict_key(tokenizer), _PATIENCE_S):
        verdict = read_verdict(tokenizer)
        if verdict is None:
            verdict = check_engine(tokenizer, accelerated)
            keep_fact(_KIND, _verdict_key(tokenizer), {"tokenizer": tokenizer.name, "verdict": asdict(verdict)})
    return verdict


def check_engine(tokenizer: Tokenizer, accelerated: Engine) -> EngineVerdict:
    """Compare an engine with the tokenizer's reference on every check text."""
    vocabulary = (tokenizer.decode([token]) for token in range(tokenizer.vocab_size))
    reference = tokenizer.limited_reference(_LIMIT_S)
    return compare_engines(reference, accelerated, make_texts(tokenizer.special_tokens, vocabulary))


def compare_engines(reference: Engine, other: Engine, texts: Iterable[str]) -> EngineVerdict:
    """Encode all texts with both engines, 1 MB at a time, until they differ, or one cannot encode a text."""
    n_texts = n_characters = 0
    for batch in _batches(texts):
        n_texts += len(batch)
        n_characters += sum(map(len, batch))
        try:
            expected, found = reference.encode(batch), other.encode(batch)
        except KillsEngine as kill:
            text = batch[kill.document]
            difference = f"{reference.name} cannot encode {text[:_SHOWN]!a}: {kill.detail}"
            return EngineVerdict(False, n_texts, n_characters, difference, text)
        if not np.array_equal(expected.ids, found.ids) or not np.array_equal(expected.ends, found.ends):
            return _disagree(reference, other, batch, n_texts, n_characters)
    return EngineVerdict(True, n_texts, n_characters, "")


def _disagree(reference: Engine, other: Engine, batch: Sequence[str], n_texts: int, n_characters: int) -> EngineVerdict:
    """The verdict with the first text that differs, shortened by halves as long as it still differs."""

    def differs(text: str) -> bool:
        try:
            return not np.array_equal(reference.encode([text]).ids, other.encode([text]).ids)
        except KillsEngine:
            return False

    text = next((text for text in batch if differs(text)), None)
    if text is None:
        return EngineVerdict(False, n_texts, n_characters, "only within a batch of texts")
    while len(text) > 1:
        middle = len(text) // 2
        quarter = len(text) // 4
        parts = (text[:middle], text[middle:], text[quarter : quarter + middle], text[1:], text[:-1])
        shorter = next((part for part in parts if differs(part)), None)
        if shorter is None:
            break
        text = shorter
    expected, found = reference.encode([text]).ids.tolist(), other.encode([text]).ids.tolist()
    difference = f"{text[:_SHOWN]!a} is {expected[:12]} with {reference.name}, {found[:12]} with {other.name}"
    return EngineVerdict(False, n_texts, n_characters, difference, text, tuple(found), tuple(expected))


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


def read_verdict(tokenizer: Tokenizer) -> EngineVerdict | None:
    """The verdict kept on this host; None where there is none that can be read."""
    stored = read_fact(_KIND, _verdict_key(tokenizer))
    try:
        verdict = None if stored is None else _verdict(**stored["verdict"])
    except (TypeError, KeyError):
        return None
    return verdict if verdict is not None and isinstance(verdict.identical, bool) else None


def _verdict(found: Sequence[int] = (), expected: Sequence[int] = (), **others: Any) -> EngineVerdict:
    return EngineVerdict(found=tuple(found), expected=tuple(expected), **others)


def _verdict_key(tokenizer: Tokenizer) -> dict[str, object]:
    return {
        "fingerprint": tokenizer.fingerprint,
        "specials": sorted(tokenizer.special_tokens),
        "reference": tokenizer.reference.name,
        "libraries": tokenizer.libraries,
        "machine": platform.machine(),
        "probe": ENGINE_CHECK_VERSION,
    }
