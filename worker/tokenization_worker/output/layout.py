"""The paths of all objects below `output.uri`; of shards the templates, which `naming` fills in.

The authority for names; docs/layout.md describes the bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from tokenization_worker.errors import SpecError
from tokenization_worker.storage import reserved

INDEX = "index.json"
SHARDS_TABLE = "shards.jsonl.zst"
OWN = reserved.OWN
PLAN = OWN + "plan"
SAMPLES = OWN + "samples"
WRITE_CHECK = OWN + "probe"
FAILURE = OWN + "failure.json"
ALIVE = reserved.ALIVE
EPOCHS = OWN + "epochs/"
LEDGER = reserved.LEDGER
VERDICTS = OWN + "files/"
CRASH_VERDICTS = OWN + "poison/"
DOCUMENTS = OWN + "documents/"
QUARANTINE_TABLE = OWN + "quarantine.jsonl.zst"
FILES_TABLE = OWN + "files.jsonl.zst"
RERUNS = OWN + "reruns/"
LOGS = OWN + "logs/"

RANGE_RECEIPTS = "ranges/"
SCATTER_RECEIPTS = "scatters/"
SHARD_RECEIPTS = "shards/"
"""Folders of receipts, each below the folder of an epoch: see `epoch_ledger`."""

COUNTED_RECEIPTS = "counted/"
MERGED_RECEIPTS = "merged/"
"""The same of a training: of counted ranges, and of the merged counts."""

TOKENIZER = "tokenizer.json"
COUNTS = "counts.npz"
HOLDOUT = "holdout.jsonl.zst"
RANKS = "ranks.tiktoken"
MODEL = "tokenizer.model"
VOCABULARY = "vocab.json"
MERGES = "merges.txt"
REPORT = "report.json"
EXPORTS = (TOKENIZER, RANKS, VOCABULARY, MERGES, MODEL)
"""The files of one trained tokenizer."""
BESIDE_INDEX = (COUNTS, HOLDOUT, REPORT)
"""What a training writes once, whatever the sizes."""

FORMAT_PLACEHOLDER = "{format}"


class ScatterKey(NamedTuple):
    """What tells a scattered object from all others of a run: its stream, counted over all groups in paths, and its
    number within the stream.
    """

    stream: int
    number: int

    @property
    def words(self) -> str:
        return f"scattered object {self.number} of stream {self.stream}"


class ShardKey(NamedTuple):
    """What tells a shard from all others of an output. `number`: within its split and group; `group`: "" where groups
    are not in paths.
    """

    split: str
    number: int
    group: str = ""

    @property
    def words(self) -> str:
        return f"shard {self.number} of split {self.split}{f' of group {self.group}' if self.group else ''}"


def epoch_path(epoch: int) -> str:
    return f"{EPOCHS}{epoch:04d}.json"


def epoch_ledger(epoch: int) -> str:
    """The folder of what an epoch's tasks record."""
    return f"{LEDGER}{epoch}/"


def range_receipt_path(epoch: int, range_id: int) -> str:
    return f"{epoch_ledger(epoch)}{RANGE_RECEIPTS}{range_id:08d}.json"


def is_range_receipt(path: str) -> bool:
    """Whether a path below `LEDGER` is that of a range's receipt, of any epoch."""
    return "/ranges/" in path


def segment_path(epoch: int, range_id: int) -> str:
    return f"{segments_prefix(epoch)}{range_id:08d}"


def segments_prefix(epoch: int) -> str:
    return f"{epoch_ledger(epoch)}segments/"


def scatter_receipt_path(epoch: int, key: ScatterKey) -> str:
    return f"{epoch_ledger(epoch)}{SCATTER_RECEIPTS}{key.stream:04d}/{key.number:08d}.json"


def scattered_path(epoch: int, key: ScatterKey) -> str:
    return f"{scattered_prefix(epoch)}{key.stream:04d}/{key.number:08d}"


def scattered_prefix(epoch: int) -> str:
    return f"{epoch_ledger(epoch)}scattered/"


def scratch_path(epoch: int, product: int | ScatterKey) -> str:
    """Of the segment of a range, or of a scattered object."""
    return segment_path(epoch, product) if isinstance(product, int) else scattered_path(epoch, product)


def counted_receipt_path(range_id: int) -> str:
    return f"{epoch_ledger(0)}{COUNTED_RECEIPTS}{range_id:08d}.json"


def merged_receipt_path() -> str:
    return f"{epoch_ledger(0)}{MERGED_RECEIPTS}{0:08d}.json"


def export_paths(folders: Iterable[str]) -> list[str]:
    """The files of trained tokenizers, in folders that are "" or end with a slash."""
    return [f"{folder}{name}" for folder in folders for name in EXPORTS]


def training_claim_path() -> str:
    """Which training writes its tokenizer there: of those that have the same counts, one alone may."""
    return f"{epoch_ledger(0)}claims/{0:08d}.json"


def counts_prefix() -> str:
    """Of scratch: the counts of ranges."""
    return f"{epoch_ledger(0)}counts/"


def held_out_prefix() -> str:
    """Of scratch: the documents of ranges that are held out."""
    return f"{epoch_ledger(0)}holdout/"


def training_scratch(range_id: int) -> tuple[str, str]:
    """The counts of a range, and its documents that are held out."""
    return f"{counts_prefix()}{range_id:08d}", f"{held_out_prefix()}{range_id:08d}"


def quarantine_prefix(epoch: int) -> str:
    return f"{epoch_ledger(epoch)}quarantine/"


def quarantine_path(epoch: int, range_id: int, digest: str) -> str:
    return f"{plain_quarantine_path(epoch, range_id, digest)}.zst"


def plain_quarantine_path(epoch: int, range_id: int, digest: str) -> str:
    """Where older versions put what is at `quarantine_path` now, uncompressed."""
    return f"{quarantine_prefix(epoch)}{range_id:08d}-{digest[:16]}.jsonl"


def quarantine_paths(epoch: int, range_id: int, digest: str) -> tuple[str, str]:
    """Where a list may be: the place of this version first."""
    return quarantine_path(epoch, range_id, digest), plain_quarantine_path(epoch, range_id, digest)


def shard_receipt_path(epoch: int, split: str, index: int, group: str = "") -> str:
    return f"{epoch_ledger(epoch)}{SHARD_RECEIPTS}{_numbered(split, index, group)}.json"


def _numbered(split: str, index: int, group: str) -> str:
    return f"{group}/{split}/{index:08d}" if group else f"{split}/{index:08d}"


def verdict_path(file: int) -> str:
    return f"{VERDICTS}{file:08d}.json"


def crash_verdict_path(file: int, position: int) -> str:
    return f"{CRASH_VERDICTS}{file:08d}-{position:016d}.json"


def documents_path(split: str, index: int, group: str = "") -> str:
    return f"{DOCUMENTS}{_numbered(split, index, group)}"


def documents_path_of(receipt: str) -> str:
    """The sidecar's path of the shard whose receipt is at `receipt`, of any epoch."""
    return f"{DOCUMENTS}{receipt.partition(f'/{SHARD_RECEIPTS}')[2].removesuffix('.json')}"


def rerun_path(run_key: str) -> str:
    return f"{RERUNS}{run_key.removeprefix('sha256:')}.json"


def log_path(run: int, attempt: int, number: int = 1) -> str:
    """Of the driver of an attempt. `number`: 2 and up where an earlier job of the same output has left such a log."""
    return f"{LOGS}{run}-{attempt}{f'-{number}' if number > 1 else ''}.log.zst"


def template_of(path: str, format: str, *, among: int) -> str:
    """The template of shards in one of `among` formats: `{format}` is its name in lower case. Several formats whose
    `output.path` does not say where get a folder each.
    """
    if among > 1 and FORMAT_PLACEHOLDER not in path:
        path = f"{FORMAT_PLACEHOLDER}/{path}"
    return path.replace(FORMAT_PLACEHOLDER, format.lower())


def beside(path: str, name: str) -> str:
    """A file of this name in the folder of `path`."""
    return f"{path.rpartition('/')[0]}/{name}"


def shard_path(template: str, suffix: str, *, split: str, index: int, shard: int, group: str = "") -> str:
    """The path of a shard's file: `index` counts within the split (and the group, where paths have it), `shard` over
    all shards.

    Raises `SpecError` for a number that does not fit the template's width: names would no longer sort.
    """
    require_number_fits(template, shard if "{shard" in template else index)
    return template.format(split=split, index=index, shard=shard, group=group) + suffix


def require_number_fits(template: str, number: int) -> None:
    """Raise `SpecError` if a shard number has more digits than the template gives it."""
    width = number_width(template)
    if width is not None and len(str(number)) > width:
        digits = "1 digit" if width == 1 else f"{width} digits"
        raise SpecError(
            "SpecInvalid",
            f"output.path: {template} has {digits} for shard {number:,}",
            next_step=f"give it {len(str(number)) + 1} digits, or ask for larger shards (output.shards)",
        )


def shard_matcher(
    template: str, suffixes: Iterable[str], splits: Iterable[str] | None = None, groups: Iterable[str] | None = None
) -> re.Pattern[str]:
    """A pattern for the paths that the template gives to files of shards of `splits` and `groups`; splits None: for
    whatever looks like one, of any split and group, with any number of digits.
    """
    width = None if splits is None else number_width(template)
    digits = r"\d+" if width is None else rf"\d{{{width}}}"
    pattern = re.escape(template)
    for name, values in (("split", splits), ("group", groups)):
        any_of = "[^/]+" if values is None else "|".join(map(re.escape, values))
        pattern = pattern.replace(rf"\{{{name}\}}", f"(?P<{name}>{any_of})", 1)
        pattern = pattern.replace(rf"\{{{name}\}}", f"(?P={name})")
    pattern = re.sub(r"\\{(?:index|shard)(?::0\d+d)?\\}", lambda _: digits, pattern)
    return re.compile(f"{pattern}(?:{'|'.join(map(re.escape, suffixes))})")


def is_own_name(path: str) -> bool:
    """Whether a path below `_tokenization/` is one that this program writes."""
    return _OWN_NAMES.fullmatch(path) is not None


_NUMBER = "[0-9]{8,}"
_SPLIT = "([a-z0-9-]+/)?[a-z0-9][a-z0-9_-]*"
"""With the group in front, where paths have groups."""
_IN_LEDGER = (
    rf"ranges/{_NUMBER}\.json",
    rf"segments/{_NUMBER}",
    rf"(counted|merged|claims)/{_NUMBER}\.json",
    rf"(counts|holdout)/{_NUMBER}",
    rf"scatters/[0-9]{{4,}}/{_NUMBER}\.json",
    rf"scattered/[0-9]{{4,}}/{_NUMBER}",
    rf"quarantine/{_NUMBER}-[0-9a-f]{{16}}\.jsonl(\.zst)?",
    rf"shards/{_SPLIT}/{_NUMBER}\.json",
)
_OWN_NAMES = re.compile(
    "|".join(
        (
            *map(re.escape, (PLAN, SAMPLES, WRITE_CHECK, FAILURE, QUARANTINE_TABLE, FILES_TABLE)),
            rf"{ALIVE}[^/]+-[0-9]+-[0-9a-f]+",
            rf"{EPOCHS}[0-9]{{4,}}\.json",
            *(rf"{LEDGER}[0-9]+/{names}" for names in _IN_LEDGER),
            rf"{VERDICTS}{_NUMBER}\.json",
            rf"{CRASH_VERDICTS}{_NUMBER}-[0-9]{{16,}}\.json",
            rf"{DOCUMENTS}{_SPLIT}/{_NUMBER}",
            rf"{RERUNS}[0-9a-f]+\.json",
            rf"{LOGS}[0-9]+-[0-9]+(-[0-9]+)?\.log\.zst",
        )
    )
)


def is_shard_receipt(path: str) -> bool:
    """Whether `path` is that of a shard's receipt, of any epoch."""
    return _SHARD_RECEIPTS.fullmatch(path) is not None


_SHARD_RECEIPTS = re.compile(rf"{LEDGER}[0-9]+/{_IN_LEDGER[-1]}")


def static_prefix(template: str) -> str:
    """The part of the template before its first placeholder: what a listing can be narrowed to."""
    return template.partition("{")[0]


def number_width(template: str) -> int | None:
    """Digits that the template's shard number is padded to; None where it is not padded."""
    found = re.search(r"\{(?:index|shard):0(\d+)d\}", template)
    return int(found[1]) if found else None
