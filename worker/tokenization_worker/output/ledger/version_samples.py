"""Samples of the reference's tokens from plan time: they prove that another library version gives the same tokens.

The versions of libraries are in no key, and a run may be resumed, or joined by a node, with others. A process whose
versions differ from those in a plan's samples encodes the samples again, and goes on only if every token is the same.
Kept are the texts themselves (bounded), so that the check needs no source, and the digests of the reference's
behaviour on nearly every code point (`tokenizers.behaviour`), which documents hardly ever show.

Written once for a plan, before its first epoch; the first writer's samples count for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, zip_longest
from typing import Any

import numpy as np

from tokenization_worker.errors import ChangedError
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_or_read
from tokenization_worker.output.record import dump_record, load_record, parsing
from tokenization_worker.output.versions import (
    describe_changes,
    describe_versions,
    find_changes,
    has_pyarrow,
    install_versions,
)
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.readers.parquet.version_check import parquet_digest
from tokenization_worker.readers.parser_check import parser_digest
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.storage.open import open_store
from tokenization_worker.tokenizers.base import IdArray, KillsEngine, Tokenizer
from tokenization_worker.tokenizers.checks.behaviour import BEHAVIOUR_VERSION, behaviour_of, first_change
from tokenization_worker.tokenizers.fingerprint import CHECK_TEXT, encode_check_text

MOST_DOCUMENTS = 64
MOST_CHARACTERS = 256 << 10
_SHOWN = 60

_LOST = f"{layout.SAMPLES} is missing, or belongs to other versions, or was not copied with the dataset"


@dataclass(frozen=True, slots=True)
class SampledText:
    """A text of the source, or its beginning, and the reference's tokens of it. `uri`: the file that it is from."""

    uri: str
    text: str
    tokens: IdArray


@dataclass(frozen=True, slots=True)
class Samples:
    """`versions`: of the libraries that gave the tokens. `revision`: the commit of a tokenizer on the Hub, else "".
    `parquet`: digest of what pyarrow reads of small files; "" where the plan had no Parquet, None in older samples."""

    versions: str
    revision: str
    behaviour_version: int
    behaviour: tuple[str, ...]
    parser: str
    documents: tuple[SampledText, ...]
    parquet: str | None = None

    def to_bytes(self) -> bytes:
        return zstd.compress(
            dump_record(
                {
                    "versions": self.versions,
                    "revision": self.revision,
                    "behaviourVersion": self.behaviour_version,
                    "behaviour": self.behaviour,
                    "parser": self.parser,
                    "parquet": self.parquet,
                    "documents": [[each.uri, each.text, each.tokens.tolist()] for each in self.documents],
                }
            )
        )

    @classmethod
    def from_bytes(cls, data: bytes, uri: str) -> Samples:
        with parsing(uri, layout.SAMPLES):
            record = _unpack(data)
            return cls(
                versions=record["versions"],
                revision=record["revision"],
                behaviour_version=record["behaviourVersion"],
                behaviour=tuple(record["behaviour"]),
                parser=record["parser"],
                documents=tuple(
                    SampledText(uri, text, np.array(tokens, np.uint32)) for uri, text, tokens in record["documents"]
                ),
                parquet=record.get("parquet"),
            )


def choose_texts(texts: Sequence[Iterable[SampledText]]) -> tuple[SampledText, ...]:
    """Of the texts of each sampled file as many as fit, taken from the files in turn; of no more is asked."""
    chosen: list[SampledText] = []
    room = MOST_CHARACTERS
    for item in chain.from_iterable(zip_longest(*texts)):
        if item is not None and len(item.text) <= room:
            chosen.append(item)
            room -= len(item.text)
            if len(chosen) == MOST_DOCUMENTS:
                break
    return tuple(chosen)


def keep_samples(
    store: Store,
    tokenizer: Tokenizer,
    documents: Sequence[SampledText],
    revision: str = "",
    begins: Callable[[], None] = lambda: None,
    *,
    has_parquet: bool = False,
) -> Samples:
    """Write the samples of a new plan, or return those that another start of it has written.

    `has_parquet`: the plan has such files; otherwise pyarrow is not imported. `begins`: told before something that
    takes seconds, once for each host and version.
    """
    ids = encode_check_text(tokenizer.reference)
    probe = () if ids is None else (SampledText("", CHECK_TEXT, ids),)
    mine = Samples(
        versions=describe_versions(tokenizer.libraries),
        revision=revision,
        behaviour_version=BEHAVIOUR_VERSION,
        behaviour=behaviour_of(tokenizer, begins).digests if tokenizer.libraries else (),
        parser=parser_digest(),
        documents=(*probe, *documents),
        parquet=parquet_digest() if has_parquet and has_pyarrow() else "",
    )
    found = create_or_read(store, layout.SAMPLES, mine.to_bytes())
    return mine if found is None else Samples.from_bytes(found, store.uri)


def read_samples(store: Store) -> Samples | None:
    """The samples of the plan at the output; None where a version of this program wrote it that kept none."""
    try:
        return Samples.from_bytes(store.read(layout.SAMPLES), store.uri)
    except NotFound:
        return None


@dataclass(frozen=True, slots=True)
class OtherVersions:
    """Versions differ from those of the samples. `is_compared`: every sample was encoded again, with equal tokens.
    `pyarrow`: what was found out about it, in words; "" where its version is the same."""

    was: str
    now: str
    is_compared: bool
    pyarrow: str = ""


@lru_cache(maxsize=4)
def require_same_tokens(uri: str, plan_id: str, tokenizer: Tokenizer, was: str) -> OtherVersions | None:
    """Raise `ChangedError("TokenizerChanged")` where this process's libraries give other tokens than the plan's.

    `was`: the versions that the epoch of the plan at `uri` names. None where they are those of this process. Compares
    once for each process and plan.
    """
    del plan_id
    now = describe_versions(tokenizer.libraries)
    samples = require_proof(open_store(uri), was, now)
    if samples is None:
        return None
    has_other_pyarrow = any(name == "pyarrow" for name, _, _ in find_changes(was, now))
    difference = _first_difference(samples, tokenizer)
    if difference is None and has_other_pyarrow:
        difference = _parquet_difference(samples)
    if difference is not None:
        raise tokenizer_changed(uri, was, now, f"which gives other tokens for {difference}")
    is_compared = samples.behaviour_version == BEHAVIOUR_VERSION
    pyarrow = _describe_pyarrow(samples) if has_other_pyarrow else ""
    return OtherVersions(*describe_changes(was, now), is_compared, pyarrow)


def require_proof(store: Store, was: str, now: str) -> Samples | None:
    """The samples that another version of a library has to be compared with; None where versions do not differ.

    Raises `ChangedError("TokenizerChanged")` where no samples of the versions `was` are there. They are written before
    an epoch names versions: where versions are known, a lack of samples is a loss.
    """
    if not find_changes(was, now):
        return None
    samples = read_samples(store)
    if samples is None or find_changes(was, samples.versions):
        raise tokenizer_changed(
            store.uri, was, now, f"and tokjob has no samples to prove that it gives the same tokens: {_LOST}"
        )
    return samples


def find_changed_libraries(uri: str, was: str, libraries: Mapping[str, str]) -> ChangedError | None:
    """The error of a run whose tokenizer has another fingerprint now, where `libraries` are others than it `was` begun
    with; None where they are the same."""
    now = describe_versions(libraries)
    if not find_changes(was, now):
        return None
    changed = "the text of the fingerprint (or the tokenizer itself was changed)"
    return tokenizer_changed(uri, was, now, f"which gives other tokens for {changed}")


def tokenizer_changed(uri: str, was: str, now: str, finding: str) -> ChangedError:
    """The error that names the versions that differ. `finding`: the words behind those of this process."""
    then, since = describe_changes(was, now)
    return ChangedError(
        "TokenizerChanged",
        f"{uri}: this run began with {then}; this process has {since}, {finding}",
        next_step=f"install the versions that the run began with ({install_versions(was, now)}) and start the same "
        "command again, or write to another output.uri",
    )


def describe_others(others: OtherVersions) -> str:
    """A warning's words."""
    result = (
        "every stored sample was encoded again and gives the same tokens"
        if others.is_compared
        else "the samples of the run cannot be compared; if tokens may differ, install the first versions again"
    )
    return f"this run began with {others.was} and continues with {others.now}: {result}{others.pyarrow}"


def _first_difference(samples: Samples, tokenizer: Tokenizer) -> str | None:
    """What this process's libraries treat differently, in words; None where every sample is as it was."""
    if parser_digest() != samples.parser:
        return "lines that are not strict JSON: the parser accepts other lines, or reads other texts from them"
    for sample in samples.documents:
        if not _is_same(sample, tokenizer):
            return f"a document of {sample.uri or 'the probe'}, which begins {sample.text[:_SHOWN]!r}"
    if samples.behaviour and samples.behaviour_version == BEHAVIOUR_VERSION:
        return first_change(tokenizer, samples.behaviour)
    return None


def _is_same(sample: SampledText, tokenizer: Tokenizer) -> bool:
    """Whether the reference gives the sample's tokens; one that cannot encode its text does not."""
    try:
        return np.array_equal(tokenizer.reference.encode([sample.text]).ids, sample.tokens)
    except KillsEngine:
        return False


def _parquet_difference(samples: Samples) -> str | None:
    """`_first_difference` for pyarrow, as far as the samples say what it read."""
    if samples.parquet and parquet_digest() != samples.parquet:
        return "Parquet: it reads other texts of small files"
    return None


def _describe_pyarrow(samples: Samples) -> str:
    if samples.parquet:
        return "; small Parquet files give the same texts"
    return "; pyarrow was not compared, because the samples of the run contain no Parquet"


def _unpack(data: bytes) -> dict[str, Any]:
    try:
        return load_record(zstd.decompress(data))
    except zstd.ZstdError as error:
        raise ValueError(str(error)) from error
