"""The TokenizationCheckpoint: how one run's spec reaches its Pods, and how they report back.

The operator writes `spec`: `run` once (it never changes), `attempt` before each attempt. The plan Pod writes
`status.plan`, the driver `status.progress` and, last, `status.committed`; the parts are disjoint, so merge
patches cannot collide. The operator copies them into the job's status and never reads a bucket. How operators and
worker images of neighbouring versions read and write it is the business of `version_skew.py`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, StringConstraints

from tokenization_worker.api.data import DelimiterPosition
from tokenization_worker.api.job import JobSpec, TokenizationJob
from tokenization_worker.api.keys import KEY_VERSION, run_key
from tokenization_worker.api.metadata import API_VERSION, JobMeta, ObjectMeta
from tokenization_worker.api.output import Output
from tokenization_worker.api.source import Documents, Source
from tokenization_worker.api.status import (
    Address,
    PlanStatus,
    ProgressStatus,
    Sentence,
    StatusBlock,
    Time,
    Word,
)
from tokenization_worker.api.tokenizer import Fingerprint, JobTokenizer, Tokenizer
from tokenization_worker.api.types.fields import BigCount, Count, LimitValue, PositiveCount, Quantity, ShortText
from tokenization_worker.api.types.model import Rule, SpecBlock

MOST_REPORT_INTERVAL_S: Final = 60.0
_LEAST_REPORT_INTERVAL_S = 15.0
_REPORT_SHARE = 1 / 20


def report_interval_s(lasted_s: float) -> float:
    """Seconds between two reports of a driver, by how long it has worked: 15 s at first, 60 s after 20 minutes."""
    return min(MOST_REPORT_INTERVAL_S, max(_LEAST_REPORT_INTERVAL_S, lasted_s * _REPORT_SHARE))


MinimumVersion = Annotated[str, StringConstraints(max_length=32, pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]


class RunSpec(SpecBlock):
    """The data fields and the identity of one run."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "the run of a checkpoint never changes: a new run has its own",
            cel=("self == oldSelf"),
            holds=None,
        ),
    )

    number: PositiveCount = Field(description="Counts the runs of the job, from 1.")
    job_name: ShortText = Field(description="The TokenizationJob.")
    job_uid: ShortText = Field(description="Its UID, so that a deleted namesake is not taken for it.")
    run_key: ShortText = Field(description="Digest of what was asked for.")
    key_version: PositiveCount = Field(description="The version of the rules that made runKey.")
    source: Source = Field(description="As in the job.")
    documents: Documents = Field(description="As in the job.")
    tokenizer: Tokenizer = Field(description="As in the job, without its fingerprint, which an attempt has.")
    output: Output = Field(description="As in the job.")
    rerun_token: str | None = Field(default=None, description="As in the job.")
    minimum_version: MinimumVersion | None = Field(
        default=None,
        description="The oldest worker version that may execute the run; absent where every version may.",
    )


class AttemptSpec(SpecBlock):
    """How the next attempt, or the plan, executes the run."""

    number: Count = Field(description="Counts the attempts of the run, from 1; 0 is the plan.")
    image: Address | None = Field(default=None, description="The worker image of this attempt.")
    slots: PositiveCount | None = Field(default=None, description="Tasks that may run at the same time.")
    max_quarantined: LimitValue = Field(default="0.1%", description="As in the job.")
    max_corrupt_files: LimitValue = Field(default=0, description="As in the job.")
    range_bytes: Quantity = Field(default="256Mi", description="As in the job.")
    stall_timeout_seconds: PositiveCount = Field(default=1800, description="As in the job.")
    tokenizer_fingerprint: Fingerprint | None = Field(
        default=None, description="tokenizer.fingerprint of the job; absent where the job asserts none."
    )
    minimum_version: MinimumVersion | None = Field(
        default=None,
        description="The oldest worker version that may execute the attempt; absent where every version may.",
    )


class CheckpointSpec(SpecBlock):
    """What the operator asks of the plan Pod and of the driver."""

    run: RunSpec = Field(description="The data fields and the identity of the run; never changes.")
    attempt: AttemptSpec | None = Field(default=None, description="How the next attempt executes it.")
    writer_pod_prefix: ShortText | None = Field(
        default=None, description="The names of the Pods that may write the status begin with this."
    )
    writer_service_account: ShortText | None = Field(
        default=None, description="The ServiceAccount of the Pods that may write the status."
    )


CHECKPOINT_VARIABLE = "TOKENIZATION_CHECKPOINT"
"""In the environment of a head Pod: the name of its checkpoint."""

LAST_WORDS_VARIABLE = "TOKENIZATION_TERMINATION_LOG"
"""In that of a plan Pod: the file whose contents Kubernetes shows as the message of a container that has ended."""


class FailureReport(StatusBlock):
    """Why a plan or an attempt ended without success, as its Pod recorded it."""

    attempt: Count | None = Field(default=None, description="The attempt; 0 is the plan.")
    exit_code: Count = Field(
        description="1 a bug, 2 the spec, 3 source or output changed, 4 corrupt data, 5 temporary."
    )
    reason: Word = Field(description="A CamelCase word.")
    message: Sentence = Field(description="What, where, expected and found.")
    next_step: Sentence | None = Field(default=None, description="What to do now.")
    pod: Word | None = Field(default=None, description="The Pod that reports it.")
    time: Time | None = Field(default=None, description="When it happened.")


class CheckpointPlan(PlanStatus):
    """What the plan Pod reports."""

    data_key: Word | None = Field(default=None, description="Digest of what fixes the bytes.")
    plan_id: Word | None = Field(default=None, description="Digest of dataKey and the cut into ranges.")
    already_complete: bool | None = Field(default=None, description=("The output of this run is committed already."))
    ray_version: Word | None = Field(default=None, description="The Ray version of the worker image.")
    worker_version: Word | None = Field(default=None, description="The version of the worker.")
    failure: FailureReport | None = Field(default=None, description="Why the plan failed.")


class CheckpointProgress(ProgressStatus):
    """What the driver reports, every 15 s at first, later every 60 s, also if nothing happens."""

    attempt: Count | None = Field(default=None, description="The attempt that reports.")
    failure: FailureReport | None = Field(default=None, description="Why the attempt failed.")
    log_uri: Address | None = Field(default=None, description="The driver's log, written when the attempt ends.")


class Committed(StatusBlock):
    """The proof of success: the dataset's index exists."""

    job_uid: Word = Field(description="The UID of the job that the run belongs to.")
    run: PositiveCount = Field(description="The run's number.")
    run_key: Word = Field(description="The run's runKey.")
    data_key: Word | None = Field(default=None, description="The dataset's dataKey.")
    index_uri: Address = Field(description="The index.")
    index_digest: Word = Field(description="SHA-256 of the index.")
    digest: Word | None = Field(default=None, description="The digest of the dataset's content; absent of old workers.")
    fingerprint: Word | None = Field(
        default=None, description="The fingerprint of the dataset's tokenizer; absent of old workers."
    )
    documents: BigCount | None = Field(default=None, description="Documents written.")
    tokens: BigCount | None = Field(default=None, description="Tokens written.")
    time: Time | None = Field(default=None, description="When it was committed.")


class CheckpointStatus(StatusBlock):
    """What the Pods of the run report."""

    plan: CheckpointPlan | None = Field(default=None, description="Written by the plan Pod.")
    progress: CheckpointProgress | None = Field(default=None, description="Written by the driver.")
    committed: Committed | None = Field(default=None, description="Written by the driver, last.")


class TokenizationCheckpoint(SpecBlock):
    """One run of a TokenizationJob: what its Pods are to do, and how far they are. Not written by users."""

    api_version: Literal["tokenization.dev/v1alpha1"]
    kind: Literal["TokenizationCheckpoint"]
    metadata: ObjectMeta
    spec: CheckpointSpec = Field(description="What the operator asks of the plan Pod and of the driver.")
    status: CheckpointStatus | None = Field(default=None, description="What the Pods of the run report.")

    def to_job(self) -> TokenizationJob:
        """Return the job that the Pods of this run execute: the run's data fields, the attempt's limits, and what the
        job asserts.
        """
        run, attempt = self.spec.run, self.spec.attempt
        fingerprint = None if attempt is None else attempt.tokenizer_fingerprint
        limits = {} if attempt is None else {name: getattr(attempt, name) for name in _LIMITS}
        return TokenizationJob(
            api_version=API_VERSION,
            kind="TokenizationJob",
            metadata=JobMeta(name=run.job_name, namespace=self.metadata.namespace, uid=run.job_uid),
            spec=JobSpec(
                source=run.source,
                documents=run.documents,
                tokenizer=JobTokenizer(**dict(run.tokenizer), fingerprint=fingerprint),
                output=run.output,
                rerun_token=run.rerun_token,
                **limits,
            ),
        )


_LIMITS = ("max_quarantined", "max_corrupt_files", "range_bytes", "stall_timeout_seconds")


def _tokenizer_of_run(tokenizer: JobTokenizer) -> Tokenizer:
    """Without what the job asserts, which may change; with the default position written out, as every checkpoint had it
    before a job could name begin and end.
    """
    fields = {name: getattr(tokenizer, name) for name in Tokenizer.model_fields}
    delimiter = tokenizer.delimiter
    if delimiter.position is None and delimiter.begin is None and delimiter.end is None:
        fields["delimiter"] = delimiter.model_copy(update={"position": DelimiterPosition.BEFORE})
    return Tokenizer(**fields)


def make_run_spec(job: TokenizationJob, *, number: int, job_uid: str) -> RunSpec:
    """Return the data fields and the identity of run `number` of `job`."""
    return RunSpec(
        number=number,
        job_name=job.metadata.name,
        job_uid=job_uid,
        run_key=run_key(job),
        key_version=KEY_VERSION,
        source=job.spec.source,
        documents=job.spec.documents,
        tokenizer=_tokenizer_of_run(job.spec.tokenizer),
        output=job.spec.output,
        rerun_token=job.spec.rerun_token,
    )


def make_attempt_spec(job: TokenizationJob, *, number: int, image: str | None, slots: int | None) -> AttemptSpec:
    """Return how attempt `number` executes the run, with the job's limits, and what it asserts, as they are now."""
    limits = {name: getattr(job.spec, name) for name in _LIMITS}
    fingerprint = job.spec.tokenizer.fingerprint
    return AttemptSpec(number=number, image=image, slots=slots, tokenizer_fingerprint=fingerprint, **limits)
