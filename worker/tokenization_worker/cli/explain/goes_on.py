"""How a failed job goes on, by the reason of its failure. Decides; does no I/O.

`advice` says in words what to do about a reason; a test holds its words against this table.
"""

from __future__ import annotations

from enum import Enum


class GoesOn(Enum):
    """What a failed job needs after its cause is gone."""

    BY_NEW_RUN = "a new rerunToken, since its data fields or its source have to change"
    BY_RETRY = "a higher infraRetryLimit, since all tries are used up"
    BY_LIMIT = "any changed limit"
    BY_LIMIT_FOR_DOCUMENTS = "a higher maxQuarantined, or a corrected source"


def goes_on(reason: str) -> GoesOn:
    """What a job that failed with `reason` needs; a reason of another version needs a changed limit."""
    return _OF_REASON.get(reason, GoesOn.BY_LIMIT)


_OF_REASON = {
    "QuarantineExceeded": GoesOn.BY_LIMIT_FOR_DOCUMENTS,
    "SpecInvalid": GoesOn.BY_NEW_RUN,
    "SourceInvalid": GoesOn.BY_NEW_RUN,
    "SourceNotReadable": GoesOn.BY_NEW_RUN,
    "SplitEmpty": GoesOn.BY_NEW_RUN,
    "ShardEmpty": GoesOn.BY_NEW_RUN,
    "ShardTooLarge": GoesOn.BY_NEW_RUN,
    "ShuffleTooLarge": GoesOn.BY_NEW_RUN,
    "TokenizerUnavailable": GoesOn.BY_NEW_RUN,
    "TokenizerInvalid": GoesOn.BY_NEW_RUN,
    "TokenizerLosesText": GoesOn.BY_NEW_RUN,
    "TokenizerUnsafe": GoesOn.BY_NEW_RUN,
    "DelimiterRequired": GoesOn.BY_NEW_RUN,
    "DelimiterUnknown": GoesOn.BY_NEW_RUN,
    "PadRequired": GoesOn.BY_NEW_RUN,
    "PadUnknown": GoesOn.BY_NEW_RUN,
    "PadUnsafe": GoesOn.BY_NEW_RUN,
    "OutputNotWritable": GoesOn.BY_NEW_RUN,
    "OutputNested": GoesOn.BY_NEW_RUN,
    "OutputConflict": GoesOn.BY_NEW_RUN,
    "FileSizeLimit": GoesOn.BY_NEW_RUN,
    "CorruptFile": GoesOn.BY_NEW_RUN,
    "EmptyFile": GoesOn.BY_NEW_RUN,
    "WrongEncoding": GoesOn.BY_NEW_RUN,
    "SchemaMismatch": GoesOn.BY_NEW_RUN,
    "UnsupportedFile": GoesOn.BY_NEW_RUN,
    "NoDocuments": GoesOn.BY_NEW_RUN,
    "Retrying": GoesOn.BY_RETRY,
    "StartupDeadline": GoesOn.BY_RETRY,
    "HeadLost": GoesOn.BY_RETRY,
    "RayJobGone": GoesOn.BY_RETRY,
    "RayJobStopped": GoesOn.BY_RETRY,
    "Stalled": GoesOn.BY_RETRY,
    "CommitMissing": GoesOn.BY_RETRY,
    "PlanNotReported": GoesOn.BY_RETRY,
    "PlanLost": GoesOn.BY_RETRY,
    "PlanDeadline": GoesOn.BY_RETRY,
    "AppFailed": GoesOn.BY_RETRY,
    "RayJobFailed": GoesOn.BY_RETRY,
    "SubmissionFailed": GoesOn.BY_RETRY,
    "ValidationFailed": GoesOn.BY_RETRY,
    "ApiServerAway": GoesOn.BY_RETRY,
    "ReportDenied": GoesOn.BY_RETRY,
    "OutputFull": GoesOn.BY_RETRY,
    "OpenFilesLimit": GoesOn.BY_RETRY,
    "TemporaryFolderFull": GoesOn.BY_RETRY,
    "StorageFailed": GoesOn.BY_RETRY,
    "WorkerDied": GoesOn.BY_RETRY,
    "NoCluster": GoesOn.BY_RETRY,
    "NoWorkers": GoesOn.BY_RETRY,
    "SegmentLost": GoesOn.BY_RETRY,
    "QuarantineLost": GoesOn.BY_RETRY,
    "ShardChanged": GoesOn.BY_RETRY,
}
