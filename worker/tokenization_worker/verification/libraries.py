"""Decides which findings another library version may have caused. Pure.

The dataset is what its libraries made of the source. Where this process has others, and tokens differ, the dataset may
be as it was made: it is neither proven nor damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenization_worker.errors import ChangedError
from tokenization_worker.output import layout
from tokenization_worker.output.index import Index, recorded_versions
from tokenization_worker.output.versions import (
    PARSERS,
    describe_changes,
    describe_versions,
    find_changes,
    install_versions,
    same_as_any,
)
from tokenization_worker.verification.report import Fault, Finding, next_step

_OF_TOKENS = frozenset(
    {
        Fault.DOCUMENT_LOST,
        Fault.DOCUMENT_DOUBLED,
        Fault.DOCUMENTS_SWAPPED,
        Fault.TOKENS_DIFFER,
        Fault.TOKENS_ADDED,
        Fault.NOT_ALIGNED,
        Fault.SIDECAR_WRONG,
        Fault.PARTS_WRONG,
        Fault.ROWS_DIFFER,
    }
)
"""What a comparison of documents with tokens finds. Everything else of a source file depends on its parser alone."""


@dataclass(frozen=True, slots=True)
class Libraries:
    """Versions of libraries: `was` wrote the dataset ("": the index does not say), this process has `now`.

    `is_mixed`: other ranges of the dataset were written with the versions of this process.
    """

    was: str
    now: str
    is_mixed: bool = False

    @property
    def names(self) -> frozenset[str]:
        """The libraries whose versions differ."""
        return frozenset(name for name, _, _ in find_changes(self.was, self.now))

    def may_cause(self, finding: Finding) -> bool:
        """Whether a finding of a source file may come of the versions that differ."""
        if not self.was or self.names & set(PARSERS):
            return True
        return bool(self.names) and finding.fault in _OF_TOKENS

    @property
    def words(self) -> str:
        if not self.was:
            unknown = f"{layout.INDEX} does not record which library versions wrote the dataset"
            return f"{unknown}; this process has {self.now}"
        then, since = describe_changes(self.was, self.now)
        if self.is_mixed:
            return f"some ranges of the dataset were written with {then}, others with {since}, which this process has"
        return f"the dataset was written with {then}; this process has {since}"

    @property
    def way_out(self) -> str:
        if not self.was:
            return "verify again with the versions that wrote it; what differs with those, too, is a fault to report"
        if self.is_mixed:
            return "tokenize the source again at another output.uri, with one version of each library"
        return f"install the versions that wrote it ({install_versions(self.was, self.now)}) and verify again"


def compare_libraries(index: Index, libraries: dict[str, str], *, has_parquet: bool) -> Libraries:
    """Those of a dataset with this index and those of this process, whose tokenizer has these `libraries`."""
    now = describe_versions(libraries, has_parquet=has_parquet)
    recorded = recorded_versions(index)
    if not recorded:
        return Libraries("", now)
    other = next((versions for versions in recorded if find_changes(versions, now)), None)
    if other is None:
        return Libraries(now, now)
    return Libraries(other, now, is_mixed=same_as_any(now, recorded))


def advise(
    uri: str, libraries: Libraries, certain: Sequence[Finding], of_source: Sequence[Finding], *, can_rewrite: bool
) -> str:
    """What to do next about findings: `certain` ones, and those `of_source`, which read and encoded it again.

    Raises `ChangedError("TokenizerChanged")` where other versions may be the cause of all of them.
    """
    suspects = [finding for finding in of_source if libraries.may_cause(finding)]
    others = [*certain, *(finding for finding in of_source if not libraries.may_cause(finding))]
    if not suspects:
        return next_step(others, can_rewrite=can_rewrite)
    more = f" (and {len(suspects) - 1:,} more findings)" if len(suspects) > 1 else ""
    if libraries.was and not others:
        raise ChangedError(
            "TokenizerChanged",
            f"verify cannot tell whether {uri} is damaged: {libraries.words}. The other versions may have caused this: "
            f"{suspects[0]}{more}",
            next_step=f"{libraries.way_out}; or use --mode checksums, which needs no library",
        )
    doubt = f"{libraries.words}, which may be the cause of {suspects[0].fault}{more}: {libraries.way_out}"
    return "; ".join(filter(None, (next_step(others, can_rewrite=can_rewrite), doubt)))
