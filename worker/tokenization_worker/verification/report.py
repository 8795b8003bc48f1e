"""What verification says: findings, counts, and how far it is. Values only.

A finding names the dataset's side (a shard, and the token within it, or a table) and the source's side (the
file, and the byte offset or row in it), so that a person can look at both. `expected` is what the source, or
the stronger record, demands; `found` is what the dataset holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tokenization_worker.output import layout
from tokenization_worker.output.recovery import NOT_REWRITTEN


class VerifyMode(StrEnum):
    """How much is looked at; each mode does everything that the ones before it do. `driver.verify` has the costs."""

    CHECKSUMS = "checksums"
    SAMPLE = "sample"
    FULL = "full"


class Fault(StrEnum):
    """What is wrong."""

    TABLE_MISSING = "TableMissing"
    TABLE_CORRUPT = "TableCorrupt"
    TABLES_DISAGREE = "TablesDisagree"
    DIGEST_DIFFERS = "DigestDiffers"
    FOLDER_INDEX_WRONG = "FolderIndexWrong"
    UNEXPECTED_FILE = "UnexpectedFile"
    SHARD_MISSING = "ShardMissing"
    SHARD_SIZE = "ShardSize"
    SHARD_HEADER = "ShardHeader"
    SHARD_CHECKSUM = "ShardChecksum"
    TOKEN_OUT_OF_RANGE = "TokenOutOfRange"
    DELIMITER_WRONG = "DelimiterWrong"
    FORMATS_DIFFER = "FormatsDiffer"
    SIDECAR_MISSING = "SidecarMissing"
    SIDECAR_CORRUPT = "SidecarCorrupt"
    SIDECAR_WRONG = "SidecarWrong"
    ORDER_WRONG = "OrderWrong"
    PARTS_WRONG = "PartsWrong"
    PADDING_WRONG = "PaddingWrong"
    ROWS_DIFFER = "RowsDiffer"
    FILE_OUTCOME = "FileOutcome"
    FILE_COUNTS = "FileCounts"
    QUARANTINE_DIFFERS = "QuarantineDiffers"
    DOCUMENT_LOST = "DocumentLost"
    DOCUMENT_DOUBLED = "DocumentDoubled"
    DOCUMENTS_SWAPPED = "DocumentsSwapped"
    TOKENS_DIFFER = "TokensDiffer"
    TOKENS_ADDED = "TokensAdded"
    NOT_ALIGNED = "NotAligned"
    TEXT_LOST = "TextLost"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    `path` is a shard, sidecar, file of parts or table below the dataset's URI, `token` a token's number within the
    shard, padding included. `uri` and `position` are the place in the source: byte offset in the decompressed file, row
    of a Parquet file. For faults of a whole shard that is where the shard's first document comes from.
    """

    fault: Fault
    expected: str
    found: str
    path: str | None = None
    token: int | None = None
    uri: str | None = None
    position: int | None = None

    def __str__(self) -> str:
        shard = self.path if self.token is None else f"{self.path} token {self.token:,}"
        source = self.uri if self.position is None else f"{self.uri} @ {self.position:,}"
        where = "; ".join(place for place in (shard, source) if place)
        return f"{self.fault}: {where}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The outcome. Without findings everything that `mode` looks at is right.

    `shards`: those that are there. `files`, `documents` and `quarantined` were recounted from the source (0 in mode
    checksums); `files_dropped` of these files are corrupt and left out whole. `documents_compared` were encoded
    again, `tokens_compared` compared with them. `stopped` says that the dataset's own tables cannot be read, so that
    nothing behind them was looked at. `digest` identifies the dataset's content as it is, whatever the index says;
    None where a part is missing.
    `next_step`: what repairs the dataset, or what else to do about findings; "" where nothing is wrong.
    """

    uri: str
    mode: VerifyMode
    findings: tuple[Finding, ...]
    shards: int
    shard_bytes: int
    tokens: int
    files: int
    files_dropped: int
    source_bytes: int
    documents: int
    quarantined: int
    documents_compared: int
    tokens_compared: int
    digest: str | None
    stopped: bool
    next_step: str

    @property
    def is_clean(self) -> bool:
        return not self.findings


_AGAIN = f"delete {layout.INDEX} and run the job again: index and tables are written again from the ledger"
_TABLES = (Fault.TABLE_MISSING, Fault.TABLE_CORRUPT, Fault.TABLES_DISAGREE, Fault.DIGEST_DIFFERS)


def next_step(findings: Sequence[Finding], *, can_rewrite: bool) -> str:
    """The next steps for `findings`: of the files that are corrupt, and of anything else only where no file is.

    `can_rewrite`: a run would write index and tables again.
    """
    way_back = f", or {_AGAIN}" if can_rewrite else f"; {NOT_REWRITTEN}"
    steps = []
    faults = {finding.fault for finding in findings}
    if any(fault.startswith(("Shard", "Sidecar", "TokenOut")) for fault in faults):
        steps.append("run the job again with a new rerunToken: it writes mismatched shards again")
    elif Fault.FOLDER_INDEX_WRONG in faults:
        steps.append("run the job again with a new rerunToken: it writes the lists of shards again")
    foreign = [finding.path for finding in findings if finding.fault is Fault.UNEXPECTED_FILE]
    if foreign:
        steps.append(f"move {foreign[0]} away" if len(foreign) == 1 else f"move the {len(foreign):,} other files away")
    if Fault.TEXT_LOST in faults:
        steps.append(
            "the tokenizer leaves text out: give a tokenizer.pattern that matches all text, or the model's original "
            "file, and write to another output.uri"
        )
    for finding in findings:
        if finding.fault in (Fault.TABLE_MISSING, Fault.TABLE_CORRUPT):
            other = ", or delete it: the dataset is whole without it" if finding.path == layout.PLAN else way_back
            steps.append(f"restore {finding.path} from a copy{other}")
    if not steps and faults and faults <= set(_TABLES):
        steps.append(f"restore index and tables from a copy{way_back}")
    if not steps and faults:
        steps.append("keep the dataset and report it: it was made or changed wrongly")
    return "; ".join(dict.fromkeys(steps))


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """After every step, and about each second in one: stored bytes read and to read, of shards and of source files, and
    findings so far."""

    phase: str
    done_bytes: int
    total_bytes: int
    findings: int


Watcher = Callable[[VerifyProgress], None]


def ignore(progress: VerifyProgress) -> None:
    """A watcher that looks away."""
