"""The events of a run, as values. The watcher decides whether and how to print them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tokenization_worker.messages.redact import redact


class Receipt(Protocol):
    """The durable record that a task's product is there; each pipeline has kinds of its own."""

    def to_dict(self) -> dict[str, Any]:
        """Its fields as plain JSON values."""
        ...


@dataclass(frozen=True, slots=True)
class CheckingEngine:
    """The accelerated engine is compared with the reference now: about `seconds`, once for each host."""

    engine: str
    reference: str
    seconds: float


@dataclass(frozen=True, slots=True)
class RecordingReference:
    """What the reference does is written down for later starts: about `seconds`, once for each host and version."""

    reference: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Preparing:
    """The tokenizer is loaded, the source listed, and the heads of some files read. Shows no secret in an address."""

    tokenizer: str
    patterns: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokenizer", redact(self.tokenizer))
        object.__setattr__(self, "patterns", tuple(map(redact, self.patterns)))


@dataclass(frozen=True, slots=True)
class StartingRay:
    """A Ray cluster is joined. `address` None or auto: the one that this machine is part of, or else a new one here;
    local: a new one here."""

    address: str | None


@dataclass(frozen=True, slots=True)
class WaitingForWorkers:
    """No worker has started yet; `wanted`: so many are asked for."""

    wanted: int


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A group of source files in a plan. `share`: of its documents, as a fraction of one; `tokens`: of these,
    estimated; None where the sample of the source does not tell. `stored_bytes`: None where no plan says them."""

    name: str
    files: int
    stored_bytes: int | None
    share: float
    tokens: int | None


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """What became of the documents of a group: of those that are read by now. `bytes`: of all of them; `left_out`: by
    its share; `asked`: tokens that the group asks for, None where it has a share."""

    name: str
    files: int
    documents: int
    bytes: int
    tokens: int
    quarantined: int
    left_out: int
    asked: int | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan is fixed. `core_seconds`: expected work of one core; `adopted`: an earlier or concurrent start had
    written it. Estimates are None where the sample of the source holds no text. `shuffle`: what is shuffled, and the
    seed, in words."""

    files: int
    stored_bytes: int
    ranges: int
    estimated_tokens: int | None
    core_seconds: float | None
    tokenizer: str
    engine: str
    is_accelerated: bool
    adopted: bool
    is_checked: bool = False
    groups: tuple[GroupPlan, ...] = ()
    shuffle: str = ""


@dataclass(frozen=True, slots=True)
class Resumed:
    """Work that earlier starts have done. `done`: their ranges, as half-open stretches in order."""

    ranges_done: int
    done: tuple[tuple[int, int], ...]
    ranges: int
    shards_done: int


@dataclass(frozen=True, slots=True)
class Warned:
    """Something that asks for a look, not for a stop. Shows no secret that stands in an address."""

    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", redact(self.message))


@dataclass(frozen=True, slots=True)
class Progress:
    """After every task. `shards` is None until they are known; bytes are stored bytes.

    `receipt`: what has just been done; None at the start. `windows`: of a shuffle, to be scattered; None until they are
    known, and 0 where nothing is shuffled.
    """

    ranges_done: int
    ranges: int
    bytes_done: int
    bytes_total: int
    tokens: int
    documents: int
    quarantined: int
    source_bytes: int
    shards_done: int
    shards: int | None
    receipt: Receipt | None
    groups: tuple[GroupCounts, ...] = ()
    windows_done: int = 0
    windows: int | None = 0


@dataclass(frozen=True, slots=True)
class Advanced:
    """About once a second while tasks run, whether or not one has ended: as `Progress`, and with what workers say of
    the ranges that they have not finished. `workers`: those that have started.

    Parts of ranges are withdrawn when their worker is lost; `bytes_done` is never above `bytes_total`.
    """

    bytes_done: int
    bytes_total: int
    tokens: int
    source_bytes: int
    workers: int


@dataclass(frozen=True, slots=True)
class Committing:
    """All tasks have ended: the sums are checked, and the index is written."""

    shards: int


@dataclass(frozen=True, slots=True)
class Checking:
    """Shards that earlier starts have written are read again before the index is written; now and then while that goes
    on."""

    shards_done: int
    shards: int
    bytes_done: int
    bytes_total: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The dataset is committed. `already`: it was before this start. `rebuilt`: shards written again.

    `read_bytes`, `quarantined_bytes`: of documents; None where an older version made the dataset, or began it. `rows`:
    None where the tokens are one run. `documents_left_out`: by the shares of `groups`; `truncated_tokens`: of long
    documents, not written.
    """

    uri: str
    already: bool
    rebuilt: int
    documents_read: int
    documents_written: int
    documents_quarantined: int
    files_dropped: int
    tokens: int
    text_bytes: int
    shards: int
    quarantine_limit: int | None
    read_bytes: int | None = None
    quarantined_bytes: int | None = None
    rows: int | None = None
    documents_left_out: int = 0
    truncated_tokens: int = 0
    groups: tuple[GroupCounts, ...] = ()


@dataclass(frozen=True, slots=True)
class TrainingPlanned:
    """The plan of a training is fixed. `pattern`: its name, or the regular expression; `is_compiled`: a splitter of
    ours cuts the pieces, and was found equal to the library's. `ranges_done`: counted by earlier starts."""

    files: int
    stored_bytes: int
    ranges: int
    ranges_done: int
    vocab_sizes: tuple[int, ...]
    pattern: str
    is_compiled: bool
    adopted: bool


@dataclass(frozen=True, slots=True)
class Counted:
    """How far the counting of pieces is, after every task and about once a second. Bytes are stored bytes; `pieces`: of
    the ranges that are done. `distinct`: pieces of the largest table so far; the source has no fewer different ones."""

    ranges_done: int
    ranges: int
    bytes_done: int
    bytes_total: int
    source_bytes: int
    pieces: int
    distinct: int
    documents: int
    quarantined: int
    workers: int


@dataclass(frozen=True, slots=True)
class CountsMerged:
    """The counts of all ranges are merged: `distinct` pieces, `pieces` of them in the text. `digest`: of the counts."""

    pieces: int
    distinct: int
    text_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class MergesMade:
    """How far the training is, a few times a second. `last`: the text of the last token, and how often it stood in the
    text when it was made."""

    merges_done: int
    merges: int
    last: str
    last_count: int


@dataclass(frozen=True, slots=True)
class TrainingModel:
    """A SentencePiece model is trained from now on, which tells nothing until it is made. `algorithm`: as the manifest
    calls it."""

    algorithm: str
    vocab_size: int


@dataclass(frozen=True, slots=True)
class HoldoutMeasured:
    """How far the held-out documents are encoded by one of the trained tokenizers, that of `file`."""

    file: str
    bytes_done: int
    bytes_total: int


@dataclass(frozen=True, slots=True)
class Reported:
    """The report on the trained tokenizers: the fields of report.json."""

    report: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TokenizerMade:
    """A trained tokenizer. `uri`: of the file that a job names."""

    uri: str
    vocab_size: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class TrainingFinished:
    """The tokenizers are there, the smallest first, or none where `is_counts_only`. `already`: they were before this
    start."""

    uri: str
    already: bool
    is_counts_only: bool
    tokenizers: tuple[TokenizerMade, ...]
    delimiter: str
    documents_read: int
    documents_counted: int
    documents_held_out: int
    documents_left_out: int
    documents_quarantined: int
    files_dropped: int
    text_bytes: int
    pieces: int
    distinct: int
    counts_digest: str


Event = (
    Preparing
    | CheckingEngine
    | RecordingReference
    | StartingRay
    | Planned
    | Resumed
    | WaitingForWorkers
    | Warned
    | Progress
    | Advanced
    | Checking
    | Committing
    | Finished
    | TrainingPlanned
    | Counted
    | CountsMerged
    | MergesMade
    | TrainingModel
    | HoldoutMeasured
    | Reported
    | TrainingFinished
)
Watcher = Callable[[Event], None]


def ignore(event: Event) -> None:
    """A watcher that looks away."""
