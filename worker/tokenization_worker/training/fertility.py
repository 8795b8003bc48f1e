"""Measures tokenizers on held-out documents: how many tokens their text takes, and which ids they use.

Documents are sorted into **cells**, one for each group and script that occur together; all numbers are sums over
cells. The tokens are those of a tokenizer's reference engine, without delimiters. Needs no numba. Where documents come
from and where a report goes is left to others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from itertools import chain
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from tokenization_worker.errors import DataError, SpecError
from tokenization_worker.host.parallel import map_at_once
from tokenization_worker.tokenizers.base import Encoded, HasNoToken, KillsEngine, Tokenizer
from tokenization_worker.training.scripts import WITHOUT_SPACES, count_words, script_of

SELDOM = 100
"""An id that is used less often is one that a model hardly learns."""

Count = Annotated[int, Meta(ge=0)]

_BATCH_BYTES = 1 << 20
_ALONE_BYTES = 8 << 20
"""A document of this size is encoded while no other one is: a tokenizer.json takes 60 times the text meanwhile."""

_SHOWN = 60

ADVICE = "simplify tokenizer.regex, or train with holdout: 0% at another output.uri, which makes no report"
"""What to do where a training's own tokenizer cannot encode a document."""


class Cell(Struct, frozen=True):
    """The documents of one group, "" without groups, in one script. `bytes`: of UTF-8. `words`: runs of characters that
    are no white space; None where the script does not put spaces between words.
    """

    group: str
    script: str
    documents: Count
    bytes: Count
    words: Count | None


class MeasuredHoldout(NamedTuple):
    """Documents in cells. `cells`: by group, then script; `texts`: UTF-8; `numbers` int64[n_documents]: their cells."""

    cells: tuple[Cell, ...]
    texts: tuple[bytes, ...]
    numbers: NDArray[np.int64]


class Fertility(Struct, frozen=True, rename="camel"):
    """What a tokenizer makes of documents in cells.

    `tokens`: of each cell. `never_used`, `under_100`: how many of the ids that text can become are never used, and are
    used less than 100 times, never included. Special tokens are no such ids.
    """

    name: str
    vocabulary_size: Count
    fingerprint: str
    tokens: tuple[Count, ...]
    never_used: Count
    under_100: Count


def measure_holdout(documents: Iterable[tuple[str, str]]) -> MeasuredHoldout:
    """Sort documents, each a text with its group, into cells. Keeps the texts."""
    texts: list[bytes] = []
    keys: list[tuple[str, str]] = []
    sums: dict[tuple[str, str], list[int]] = {}
    for text, group in documents:
        content, script = text.encode(), script_of(text)
        words = 0 if script in WITHOUT_SPACES else count_words(text)
        keys.append((group, script))
        texts.append(content)
        sums[keys[-1]] = [
            was + new for was, new in zip(sums.get(keys[-1], (0, 0, 0)), (1, len(content), words), strict=True)
        ]
    cells = tuple(
        Cell(group, script, n_documents, size, None if script in WITHOUT_SPACES else words)
        for (group, script), (n_documents, size, words) in sorted(sums.items())
    )
    number_of = {(cell.group, cell.script): number for number, cell in enumerate(cells)}
    return MeasuredHoldout(cells, tuple(texts), np.array([number_of[key] for key in keys], np.int64))


def measure_tokenizer(
    tokenizer: Tokenizer,
    holdout: MeasuredHoldout,
    *,
    name: str,
    threads: int = 1,
    advice: str = ADVICE,
    watch: Callable[[int], None] = lambda done_bytes: None,
) -> Fertility:
    """Encode all documents, and count. `name`: what the tokenizer is called; the result is the same for any `threads`.

    `watch` is told the bytes that are done after each batch, and may raise. Raises `DataError("PatternFails")` or
    `SpecError("TokenizerLosesText")` for a document that the tokenizer cannot encode, with `advice`. Memory: the tokens
    of two batches a thread, and 60 times the text that is being encoded. Speed: 2 MB/s a core with a tokenizer.json,
    10 with tiktoken (CPU time, 2026-11-29, 32,000 tokens, mixed languages); both let other threads run meanwhile.
    """
    tokens = np.zeros(len(holdout.cells), np.int64)
    uses = np.zeros(tokenizer.vocab_size, np.int64)

    def encode(batch: range) -> Encoded:
        try:
            return tokenizer.reference.encode([holdout.texts[number].decode() for number in batch])
        except KillsEngine as kill:
            raise _cannot_encode(name, holdout, batch[kill.document], kill, advice) from kill

    small, alone = _batches([len(text) for text in holdout.texts])
    done = 0
    with closing(map_at_once(encode, small, threads)) as encoded:
        for batch, (ids, ends) in zip((*small, *alone), chain(encoded, map(encode, alone)), strict=True):
            np.add.at(tokens, holdout.numbers[batch.start : batch.stop], np.diff(ends, prepend=0))
            uses += np.bincount(ids, minlength=len(uses))
            done += sum(len(holdout.texts[number]) for number in batch)
            watch(done)
    of_text = uses[_can_be_text(tokenizer)]
    return Fertility(
        name=name,
        vocabulary_size=tokenizer.vocab_size,
        fingerprint=tokenizer.fingerprint,
        tokens=tuple(tokens.tolist()),
        never_used=int(np.count_nonzero(of_text == 0)),
        under_100=int(np.count_nonzero(of_text < SELDOM)),
    )


def _can_be_text(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """bool[vocab_size]: no special token; the id for text that the vocabulary lacks comes from text."""
    can_be = np.ones(tokenizer.vocab_size, bool)
    can_be[[*tokenizer.special_tokens.values()]] = False
    if tokenizer.unknown_id is not None:
        can_be[tokenizer.unknown_id] = True
    return can_be


def _batches(sizes: Sequence[int]) -> tuple[list[range], list[range]]:
    """The numbers of neighbouring documents of about `_BATCH_BYTES` together; and those of large ones, each alone."""
    small: list[range] = []
    alone: list[range] = []
    first = total = 0
    for number, size in enumerate(sizes):
        if size >= _ALONE_BYTES:
            small += [range(first, number)] if number > first else []
            alone.append(range(number, number + 1))
            first, total = number + 1, 0
            continue
        total += size
        if total >= _BATCH_BYTES:
            small.append(range(first, number + 1))
            first, total = number + 1, 0
    if first < len(sizes):
        small.append(range(first, len(sizes)))
    return small, alone


def _cannot_encode(
    name: str, holdout: MeasuredHoldout, number: int, kill: KillsEngine, advice: str
) -> DataError | SpecError:
    text = holdout.texts[number].decode()
    begins = repr(text[:_SHOWN]) + ("..." if len(text) > _SHOWN else "")
    words = f"{name} cannot encode document {number + 1:,} of the holdout, which begins {begins}: {kill.detail}"
    if isinstance(kill, HasNoToken):
        return SpecError("TokenizerLosesText", words, next_step=advice)
    return DataError("PatternFails", words, next_step=advice)
