"""Digests of the reference's behaviour, which compare two library versions without having both.

Chapters of text are encoded and each one's tokens are digested. Sampled documents rarely hold the few characters that
two versions of a library treat differently (tokenizers 0.22.0 and 0.23.3: 28 code points for Lowercase, 13 for Digits,
none of them in any common text), so nearly every chapter is about code points, each in the surroundings in which its
class decides (`check_texts.show_code_point`). Left thin are only ranges whose members have one class and no case:
ideographs, Hangul syllables, private use, planes without characters.

Measured 2026-11, one core: 0.5 s with tiktoken, 0.3 s with SentencePiece, 2 to 3 s with tokenizers. So the result is
kept for each host, library and tokenizer, and most starts only read it.
"""

from __future__ import annotations

import hashlib
import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from tokenization_worker.errors import SpecError
from tokenization_worker.host.kept_files import finding_out, keep_fact, read_fact
from tokenization_worker.tokenizers.base import WRITE_PLAINLY, Engine, HasNoToken, KillsEngine, Tokenizer
from tokenization_worker.tokenizers.checks.check_texts import (
    contraction_texts,
    mixed_blank_texts,
    random_texts,
    show_code_point,
    special_texts,
    vocabulary_texts,
)

BEHAVIOUR_VERSION = 1
"""Counted up whenever a chapter changes: digests of other versions cannot be compared."""

BEHAVIOUR_SECONDS = {"tiktoken": 0.5, "tokenizers": 3.0}
"""By reference, about how long it takes on one core (2026-11)."""

_LIMIT_S = 10.0
"""CPU time for all chapters with a pattern of the user's: twenty times what they take with a known one. Processes that
wait for another one's record have `_PATIENCE_S`, so that none of them does the same work."""

_SHOWN = 40

_KIND = "references"
_PATIENCE_S = 120.0
_DIGEST_BYTES = 8
_HAS_NO_TOKEN = "0" * 2 * _DIGEST_BYTES
"""In place of the digest of a chapter whose characters the vocabulary lacks, where no token stands for unknown text."""

_CODE_POINTS = 128
"""To a chapter, so that a difference names its characters closely."""

_VOCABULARY_STEP = 4
_LONG_RUN = 120_001
"""Beyond what tiktoken takes in one piece: then the `regex` package cuts."""

_DENSE: tuple[range, ...] = (
    range(0x3400),
    range(0x4DC0, 0x4E00),
    range(0x9FA0, 0xAC00),
    range(0xD7A0, 0xD800),
    range(0xF900, 0x17000),
    range(0x18700, 0x20000),
    range(0xE0000, 0xE0200),
)
"""Every code point of these is shown."""

_THIN: tuple[range, ...] = (
    range(0x3400, 0x4DC0, 16),  # ideographs
    range(0x4E00, 0x9FA0, 16),
    range(0xAC00, 0xD7A0, 16),  # Hangul syllables
    range(0xE000, 0xF900, 64),  # private use
    range(0x17000, 0x18700, 16),  # Tangut
    range(0x20000, 0x40000, 16),  # ideographs, and room for more
    range(0x40000, 0xE0000, 4096),  # planes without characters
    range(0xE0200, 0x110000, 4096),  # private use
)

Restore = Callable[[Sequence[int]], bytes]
Chapter = tuple[str, list[str]]
"""What it shows, in words, and its texts."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """`digests`: of each chapter's tokens, in order. `lost`: the first text whose tokens are not its bytes, or ""; only
    of tokenizers that restore."""

    digests: tuple[str, ...]
    lost: str = ""


def behaviour_of(tokenizer: Tokenizer, begins: Callable[[], None] = lambda: None) -> Behaviour:
    """What the reference does, from this host's cache or found out now; `begins` is called before the latter.

    Raises SpecError (TokenizerInvalid) where a text of a chapter cannot be encoded.
    """
    key = _key(tokenizer)
    found = _read(key)
    if found is not None:
        return found
    begins()
    with finding_out(_KIND, key, _PATIENCE_S):
        found = _read(key)
        if found is None:
            found = _find_out(tokenizer)
            keep_fact(_KIND, key, {"digests": found.digests, "lost": found.lost})
    return found


def first_change(tokenizer: Tokenizer, was: tuple[str, ...]) -> str | None:
    """What the first chapter whose digest is not what it was shows; None where all are equal."""
    try:
        now = behaviour_of(tokenizer).digests
    except SpecError as error:
        return f"a text that it cannot encode ({error.message})"
    if now == was:
        return None
    names = (name for name, _ in _chapters(tokenizer))
    return next((name for name, a, b in zip(names, was, now, strict=False) if a != b), "text of the vocabulary")


def _find_out(tokenizer: Tokenizer) -> Behaviour:
    digests, lost = [], ""
    engine = tokenizer.limited_reference(_LIMIT_S)
    deadline = math.inf if tokenizer.pattern is None else time.process_time() + _LIMIT_S
    for name, texts in _chapters(tokenizer):
        try:
            ids, ends = engine.encode(texts)
        except HasNoToken:
            digests.append(_HAS_NO_TOKEN)
            continue
        except KillsEngine as kill:
            raise _cannot_encode(tokenizer, name, texts[kill.document], kill.detail) from kill
        if time.process_time() > deadline:
            detail = f"all test texts together take more than {_LIMIT_S:.3g} s"
            raise _cannot_encode(tokenizer, name, texts[0], detail)
        digest = hashlib.blake2b(ids.astype("<u4").tobytes(), digest_size=_DIGEST_BYTES)
        digest.update(ends.astype("<i8").tobytes())
        digests.append(digest.hexdigest())
        if tokenizer.restore is not None and not lost:
            kept = tokenizer.restore(ids.tolist())
            if kept != "".join(texts).encode():
                lost = _first_lost(engine, tokenizer.restore, texts)
    return Behaviour(tuple(digests), lost)


def _cannot_encode(tokenizer: Tokenizer, chapter: str, text: str, detail: str) -> SpecError:
    what = f"cannot split a test text ({chapter}: {text[:_SHOWN]!a}): {detail}"
    if tokenizer.pattern is None:
        subject = f"tokenizer: {tokenizer.name}"
        return SpecError("TokenizerInvalid", f"{subject} {what}", next_step=f"in its pre-tokenizer, {WRITE_PLAINLY}")
    return SpecError("TokenizerInvalid", f"tokenizer.pattern: {tokenizer.pattern!r} {what}", next_step=WRITE_PLAINLY)


def _first_lost(engine: Engine, restore: Restore, texts: list[str]) -> str:
    """A short text that does not come back, found by halves."""
    text = next((text for text in texts if not _is_kept(engine, restore, text)), "".join(texts))
    while len(text) > 1:
        middle = len(text) // 2
        parts = (text[:middle], text[middle:])
        shorter = next((part for part in parts if not _is_kept(engine, restore, part)), None)
        if shorter is None:
            break
        text = shorter
    return text


def _is_kept(engine: Engine, restore: Restore, text: str) -> bool:
    """Whether a text's tokens are its bytes; True where it cannot be encoded: nothing shows then that it is lost."""
    try:
        ids = engine.encode([text]).ids
    except KillsEngine:
        return True
    return restore(ids.tolist()) == text.encode()


def _chapters(tokenizer: Tokenizer) -> Iterator[Chapter]:
    yield "the texts of special tokens", list(special_texts(sorted(tokenizer.special_tokens)))
    yield "contractions", list(contraction_texts())
    yield "blanks", list(mixed_blank_texts())
    yield "long runs of blanks", [f"x{unit * _LONG_RUN}y" for unit in " \n"]
    yield "mixtures of scripts", list(random_texts())
    yield from _code_point_chapters()
    vocabulary = (tokenizer.decode([token]) for token in range(0, tokenizer.vocab_size, _VOCABULARY_STEP))
    yield "text of the vocabulary", list(vocabulary_texts(vocabulary))


def _code_point_chapters() -> Iterator[Chapter]:
    ranges = sorted([*_DENSE, *_THIN], key=lambda points: points.start)
    points = chain.from_iterable(ranges)
    shown = (point for point in points if not 0xD800 <= point < 0xE000)
    while part := list(islice(shown, _CODE_POINTS)):
        yield f"a character of U+{part[0]:04X} to U+{part[-1]:04X}", ["".join(map(show_code_point, map(chr, part)))]


def _read(key: dict[str, object]) -> Behaviour | None:
    stored = read_fact(_KIND, key)
    if stored is None:
        return None
    digests, lost = stored.get("digests"), stored.get("lost")
    if not (isinstance(digests, list) and digests and isinstance(lost, str)):
        return None
    return Behaviour(tuple(map(str, digests)), lost)


def _key(tokenizer: Tokenizer) -> dict[str, object]:
    return {
        "fingerprint": tokenizer.fingerprint,
        "specials": sorted(tokenizer.special_tokens),
        "libraries": {name: tokenizer.libraries[name] for name in sorted(tokenizer.libraries) if name != "fastokens"},
        "machine": platform.machine(),
        "behaviour": BEHAVIOUR_VERSION,
    }
