"""The protocol of a tokenizer of any kind.

Invariant: `reference` defines the tokens; any other engine of the same tokenizer gives the same ones or is
not used (`engine_check` and the sampling at run time see to that). Ids come from text only: no engine ever yields
the id of a special token, however the text spells it (`delimiter.check_specials`). Writing the delimiter
between documents, and looking for it in what an engine returned, is the caller's part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tokenization_worker.api.data import Delimiters
from tokenization_worker.errors import SpecError
from tokenization_worker.messages.extras import install_command

IdArray = npt.NDArray[np.uint32]
EndArray = npt.NDArray[np.int64]
LengthArray = npt.NDArray[np.unsignedinteger]


class Encoded(NamedTuple):
    """The tokens of several texts, one after the other."""

    ids: IdArray  # uint32[n_tokens]; may be read-only
    ends: EndArray  # int64[n_docs]: text k is ids[ends[k - 1] : ends[k]]; cumulative


WRITE_PLAINLY = "write repetitions that match a text in one way only: (?:a|aa)+ as a+, or possessive, as in \\p{L}++"
"""What to do about a pattern that backtracks."""


class KillsEngine(Exception):
    """A text kills the process that encodes it, and nothing else with it; only engines that outlive that raise it.

    Also for a text on which a pattern backtracks too far: no library encodes it in a time that can be waited for.
    """

    def __init__(self, document: int, detail: str) -> None:
        super().__init__(document, detail)
        self.document = document
        self.detail = detail


class HasNoToken(KillsEngine):
    """The vocabulary lacks a part of a text, and has no token for unknown text: only texts without that part encode."""


class Engine(Protocol):
    """Turns texts into ids. Pure, and single-threaded; memory grows with the batch (1 to 4 MB is best)."""

    @property
    def name(self) -> str: ...

    def encode(self, texts: Sequence[str]) -> Encoded:
        """The ids of each text; an empty text has none. Texts are valid Unicode (no lone surrogates)."""
        ...


class Tokenizer:
    """A loaded tokenizer: identity, delimiters, and the engines that encode with it.

    `restore` gives the bytes that tokens stand for, where these are the text's own bytes; where they are not,
    `normalises` says why, in words, and `removes` says what leaves out white space. `drop` gives what the tokens hold
    of a text, of tokenizers that do not restore and may leave text out; `KillsEngine` where the library gives up on it.
    `byte_lengths` u8/u16/u32[vocab_size] is the length of each token in bytes, of tokenizers that may leave text out
    and whose tokens are the bytes of the text, or of what `normalize` makes of it: those with a pattern of the user's,
    or a file that removes text.
    `unknown_id` stands for text that the vocabulary lacks. `pattern` is the one of the user's, and `limit` makes a
    reference that takes no more than so many seconds of CPU time for all texts on which that backtracks.

    Not picklable on purpose: send the `TokenizerSpec` and load it there, or fork after loading (no threads
    are started). `vocab_size` is above every id, specials and delimiter included. `libraries` are the
    versions of what encodes; they are recorded with a dataset and do not enter `fingerprint`.
    """

    def __init__(
        self,
        *,
        name: str,
        vocab_size: int,
        special_tokens: Mapping[str, int],
        delimiters: Delimiters,
        fingerprint: str,
        libraries: Mapping[str, str],
        reference: Engine,
        decode: Callable[[Sequence[int]], str],
        accelerate: Callable[[], Engine | None] | None = None,
        restore: Callable[[Sequence[int]], bytes] | None = None,
        byte_lengths: LengthArray | None = None,
        drop: Callable[[str], str] | None = None,
        normalize: Callable[[str], str] | None = None,
        normalises: str = "",
        removes: str = "",
        unknown_id: int | None = None,
        pattern: str | None = None,
        limit: Callable[[float], Engine] | None = None,
    ) -> None:
        self.name = name
        self.vocab_size = vocab_size
        self.special_tokens = dict(special_tokens)
        self.delimiters = delimiters
        self.fingerprint = fingerprint
        self.libraries = dict(libraries)
        self.reference = reference
        self.restore = restore
        self.byte_lengths = byte_lengths
        self.drop = drop
        self.normalize = normalize
        self.normalises = normalises
        self.removes = removes
        self.unknown_id = unknown_id
        self.pattern = pattern
        self.is_engine_checked = False  # whether this host's verdict on `accelerated` is known, and good
        self._decode = decode
        self._limit = limit
        self._accelerate = accelerate
        self._accelerated: Engine | None = None

    def __repr__(self) -> str:
        return f"Tokenizer({self.name!r}, vocab_size={self.vocab_size}, fingerprint={self.fingerprint[:12]})"

    def accelerated(self) -> Engine | None:
        """The faster engine, built on the first call and kept; None where there is none for this tokenizer.

        It has passed no identity check yet: `engine_check.choose_engine` decides whether it may be used.
        """
        if self._accelerate is not None:
            self._accelerated = self._accelerate()
            self._accelerate = None
        return self._accelerated

    def limited_reference(self, seconds: float) -> Engine:
        """The reference for texts that are only tried: `KillsEngine` for those on which a pattern backtracks, once all
        of them have taken so long. The reference itself where no text can take it for ever.
        """
        return self.reference if self._limit is None else self._limit(seconds)

    def decode(self, ids: Sequence[int]) -> str:
        """Text to look at: bytes that are no UTF-8, and ids that are no token, become U+FFFD."""
        return self._decode(ids)


def pack_lengths(lengths: npt.NDArray[np.int64]) -> LengthArray:
    """The same numbers in the smallest type that holds them all: they are gathered for every token of a run."""
    packed: LengthArray = lengths.astype(np.min_scalar_type(int(lengths.max(initial=0))))
    return packed


def join_encoded(parts: Sequence[IdArray]) -> Encoded:
    """One `Encoded` from the ids of each text."""
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    filled = [part for part, size in zip(parts, sizes.tolist(), strict=True) if size]
    return Encoded(np.concatenate(filled) if filled else np.empty(0, np.uint32), np.cumsum(sizes))


def shorten_uri(uri: str) -> str:
    """A file's name with its folder's, to tell one tokenizer.json from another."""
    return "/".join(uri.rsplit("/", 2)[-2:])


def require_extra(package: str, extra: str, what: str) -> SpecError:
    """The error for an optional package that is not installed."""
    return SpecError(
        "TokenizerUnavailable",
        f"{what} needs the package {package}, which is not installed",
        next_step=install_command(extra),
    )


class EngineMismatch(Exception):
    """The accelerated engine and the reference disagree on a document."""

    def __init__(self, document: int, found: list[int], expected: list[int]) -> None:
        super().__init__(document, len(found), len(expected))
        self.document = document
        self.found = found
        self.expected = expected
