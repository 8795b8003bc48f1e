"""The status of a TokenizationJob: what the operator reports and `kubectl` shows.

Invariant: status is a view. It never decides what data exists; the ledger at the output does. It stays
below 16 KiB at a million ranges, which is why lists are bounded. Fields that a newer operator wrote are
ignored when read.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints

from tokenization_worker.api.types.fields import BigCount, Count
from tokenization_worker.api.types.model import Block

Word = Annotated[str, StringConstraints(max_length=253)]
Sentence = Annotated[str, StringConstraints(max_length=4096)]
Address = Annotated[str, StringConstraints(max_length=2048)]
Time = Annotated[str, StringConstraints(max_length=64), Field(json_schema_extra={"format": "date-time"})]


class Phase(StrEnum):
    """Where a job stands."""

    PENDING = "Pending"
    PLANNING = "Planning"
    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    RETRYING = "Retrying"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class StatusBlock(Block):
    """A block that the operator or a driver writes; unknown fields are left alone."""

    model_config = ConfigDict(extra="ignore")


class RunStatus(StatusBlock):
    """The run that the status speaks of."""

    number: Count = Field(description="Counts the runs of this job, from 1.")
    rerun_token: Word | None = Field(default=None, description="The rerunToken that started it.")
    run_key: Word | None = Field(default=None, description="Digest of what was asked for.")
    data_key: Word | None = Field(default=None, description="Digest of what fixes the bytes.")
    image: Address | None = Field(
        default=None, description="The default worker image when the run began: for a job that names none."
    )
    ray_version: Word | None = Field(default=None, description="The Ray version of the image that has planned the run.")
    worker_version: Word | None = Field(default=None, description="The version of the worker in that image.")
    checkpoint: Word | None = Field(default=None, description="The TokenizationCheckpoint of the run.")
    plan_job: Word | None = Field(default=None, description="The Kubernetes Job that plans the run.")
    start_time: Time | None = Field(default=None, description="When the run began, or went on after it was suspended.")
    spec_digest: Word | None = Field(
        default=None, description="Digest of the fields that matter for an attempt, as the last one had them."
    )


class PlanStatus(StatusBlock):
    """What the plan found and expects."""

    files: BigCount | None = Field(default=None, description="Source files.")
    bytes: BigCount | None = Field(default=None, description="Their stored bytes.")
    ranges: BigCount | None = Field(default=None, description="Ranges of work.")
    estimated_tokens: BigCount | None = Field(
        default=None, description="Tokens, estimated from a sample; absent where that holds no text."
    )
    estimated_rows: BigCount | None = Field(
        default=None, description="Rows of output.sequence; absent without it, and likewise."
    )
    estimated_utilization: Word | None = Field(
        default=None, description="The share of these rows that is text, neither delimiters nor padding, in percent."
    )
    estimated_seconds: BigCount | None = Field(
        default=None, description="Duration with all workers, in seconds; absent likewise."
    )
    task_bytes: BigCount | None = Field(
        default=None, description="Memory that a task needs, in bytes; absent where the default of 700 MiB will do."
    )
    workers: Count | None = Field(default=None, description="The worker Pods that time and cost are estimated for.")
    chip_hours: Word | None = Field(default=None, description="TPU chip hours, a decimal number.")
    cpu_hours: Word | None = Field(
        default=None, description="CPU hours on ordinary nodes, the head's among them, a decimal number."
    )
    estimated_cost: Word | None = Field(
        default=None, description="Cost, with its currency, at the chart's prices; absent where one is missing."
    )


class MachinesStatus(StatusBlock):
    """What an attempt asks for, as it is paid for."""

    hosts: Count | None = Field(default=None, description="Its worker Pods.")
    chips: Count | None = Field(default=None, description="TPU chips that the job itself reserves.")
    cpus: Word | None = Field(
        default=None, description="CPUs on ordinary nodes, the head's among them, a decimal number."
    )


class AttemptStatus(StatusBlock):
    """The current attempt: one RayJob."""

    number: Count = Field(description="Counts the attempts of the run, from 1.")
    ray_job_name: Word | None = Field(default=None, description="Its RayJob.")
    ray_cluster_name: Word | None = Field(default=None, description="Its RayCluster.")
    head_pod: Word | None = Field(
        default=None, description="The head Pod on which the driver started; without it the attempt is lost."
    )
    start_time: Time | None = Field(default=None, description="When it was created.")
    admitted_time: Time | None = Field(
        default=None, description="Since when no queue holds it: the startup deadline counts from then."
    )
    running_time: Time | None = Field(
        default=None, description="When its driver was started: the stall timeout counts from then."
    )
    image: Address | None = Field(default=None, description="Its worker image.")
    replicas: Count | None = Field(default=None, description="The replicas of workers that it asks for.")
    next_replicas: Count | None = Field(
        default=None, description="What the next attempt asks for, where fewer came in time and are enough."
    )
    progress_time: Time | None = Field(
        default=None,
        description="When the operator saw the last new range or shard: the stall timeout counts from then.",
    )
    account_time: Time | None = Field(
        default=None,
        description="When its ServiceAccount was back after it was missing: the tokens of its Pods may be invalid for "
        "an hour, so until a new range is reported it does not count as stalled before then.",
    )
    spec_digest: Word | None = Field(
        default=None,
        description="Digest of the fields that its Pods are made of: where they change before the driver has begun, "
        "the next attempt begins at once.",
    )
    is_over: bool | None = Field(default=None, description="Whether it has ended: the next one has another number.")
    machines: MachinesStatus | None = Field(default=None, description="What it asks for; the cost counts these.")
    pending_changes: Sentence | None = Field(
        default=None, description="What was changed in the spec since it began: from the next attempt."
    )
    log_uri: Address | None = Field(
        default=None, description="The log of its driver, below the output; set when the driver has ended."
    )


class WorkersStatus(StatusBlock):
    """The workers of the attempt."""

    desired: Count | None = Field(default=None, description="Asked for.")
    ready: Count | None = Field(default=None, description="Running and ready.")


class RangeRun(StatusBlock):
    """Completed ranges that follow each other, half-open."""

    start: BigCount = Field(description="The first range.")
    end: BigCount = Field(description="One past the last range.")


class ProgressStatus(StatusBlock):
    """How far the run is. The durable truth is the ledger at the output."""

    stage: Word | None = Field(default=None, description="Tokenize, Scatter (of a shuffle), Build or Finish.")
    ranges_total: BigCount | None = Field(default=None, description="Ranges of the plan.")
    ranges_completed: BigCount | None = Field(default=None, description="Ranges with a receipt.")
    completed_through: BigCount | None = Field(default=None, description="All ranges below this one are done.")
    completed_ranges: Annotated[list[RangeRun], Field(max_length=64)] | None = Field(
        default=None, description="The lowest 64 runs of completed ranges."
    )
    ranges_truncated: bool | None = Field(default=None, description="Whether completedRanges leaves some out.")
    windows_scattered: BigCount | None = Field(
        default=None, description="Windows of a shuffle with a receipt; absent without a shuffle."
    )
    windows_total: BigCount | None = Field(default=None, description="Windows of a shuffle, once known.")
    shards_built: BigCount | None = Field(default=None, description="Shards with a receipt.")
    shards_total: BigCount | None = Field(default=None, description="Shards of the dataset, once known.")
    documents: BigCount | None = Field(default=None, description="Documents written.")
    quarantined: BigCount | None = Field(default=None, description="Documents quarantined.")
    tokens: BigCount | None = Field(default=None, description="Tokens written.")
    bytes_read: BigCount | None = Field(default=None, description="Stored bytes of the source that were read.")
    percent: Annotated[int, Field(ge=0, le=100)] | None = Field(
        default=None, description="Of the work of all stages; 100 only after the index."
    )
    eta_seconds: BigCount | None = Field(default=None, description="Expected time left, in seconds.")
    tokens_per_second: BigCount | None = Field(default=None, description="Current rate.")
    last_range_time: Time | None = Field(
        default=None, description="When the last range, window or shard was completed."
    )
    last_checkpoint_time: Time | None = Field(default=None, description="When the driver last reported.")


class DisplayStatus(StatusBlock):
    """The same numbers as words for the columns of kubectl."""

    progress: Word | None = Field(default=None, description="For example 42% 4.2B/~10.1B tok.")
    rate: Word | None = Field(default=None, description="For example 12.3M/s.")
    eta: Word | None = Field(default=None, description="For example 8m.")
    workers: Word | None = Field(default=None, description="For example 16/16.")
    duration: Word | None = Field(default=None, description="How long a finished run took, for example 17m5s.")


class CostStatus(StatusBlock):
    """What the machines of the run came to, over all attempts that have ended, also those that failed."""

    chip_hours: Word | None = Field(default=None, description="TPU chip hours, a decimal number.")
    host_hours: Word | None = Field(default=None, description="Hours of worker Pods, a decimal number.")
    cpu_hours: Word | None = Field(
        default=None, description="CPU hours on ordinary nodes, the head's among them, a decimal number."
    )
    actual: Word | None = Field(
        default=None, description="Cost, with its currency, at the chart's prices; absent where one is missing."
    )


class FailuresStatus(StatusBlock):
    """What went wrong so far."""

    application: Count | None = Field(default=None, description="Application failures since the last progress.")
    infrastructure: Count | None = Field(default=None, description="Other failures of the run.")
    ranges_completed: BigCount | None = Field(
        default=None,
        description="Ranges that were complete at the last failure; more of them forgive the earlier ones.",
    )
    next_attempt_time: Time | None = Field(default=None, description="When the next attempt starts.")


class FailureRecord(StatusBlock):
    """One failed attempt."""

    attempt: Count | None = Field(default=None, description="Its number.")
    time: Time | None = Field(default=None, description="When it failed.")
    reason: Word | None = Field(default=None, description="A CamelCase word.")
    message: Sentence | None = Field(default=None, description="What happened, and the next step.")


class WaitStatus(StatusBlock):
    """Something that is waited for during minutes only."""

    reason: Word = Field(description="Why the job waits, as a CamelCase word.")
    since: Time = Field(description="Since when the operator has seen that.")


class OutputStatus(StatusBlock):
    """The dataset: where it will be, and, once it is complete, what a training job needs to know."""

    uri: Address | None = Field(
        default=None, description="Its folder, with rerunToken filled in; set when the run begins."
    )
    index_uri: Address | None = Field(default=None, description="Its index; set when the dataset is complete.")
    index_digest: Word | None = Field(default=None, description="SHA-256 of the index.")
    digest: Word | None = Field(
        default=None,
        description="The digest of its content, as tokjob verify --digest prints it; equal for equal datasets.",
    )
    tokens: BigCount | None = Field(default=None, description="Its tokens.")
    fingerprint: Word | None = Field(default=None, description="The fingerprint of its tokenizer.")


class Condition(StatusBlock):
    """A condition as all Kubernetes objects have them."""

    type: Word = Field(
        description="Accepted, Planned, Complete and Ready always; QuotaReserved, ClusterReady, Suspended, Failed, "
        "Reconciling and Stalled while they apply."
    )
    status: Word = Field(description="True, False or Unknown.")
    observed_generation: BigCount | None = Field(default=None, description="The generation it was derived from.")
    last_transition_time: Time | None = Field(default=None, description="When its status changed.")
    reason: Word = Field(description="A CamelCase word.")
    message: Sentence = Field(description="What it means, and the next step.")


class JobStatus(StatusBlock):
    """What the operator reports of a job."""

    observed_generation: BigCount | None = Field(default=None, description="The generation that this status is about.")
    phase: Phase | None = Field(default=None, description="Where the job stands.")
    reason: Word | None = Field(default=None, description="Why, as a CamelCase word.")
    message: Sentence | None = Field(default=None, description="Why, in words, with the next step.")
    start_time: Time | None = Field(default=None, description="When the run began.")
    completion_time: Time | None = Field(default=None, description="When the run succeeded or failed.")
    run: RunStatus | None = Field(default=None, description="The run that this status speaks of.")
    plan: PlanStatus | None = Field(default=None, description="What the plan found; set once the job is planned.")
    attempt: AttemptStatus | None = Field(default=None, description="The current attempt.")
    workers: WorkersStatus | None = Field(default=None, description="The workers of the attempt.")
    progress: ProgressStatus | None = Field(default=None, description="How far the run is.")
    display: DisplayStatus | None = Field(default=None, description="The same as words, for the columns of kubectl.")
    cost: CostStatus | None = Field(
        default=None, description="The machine time and cost of the run so far; plan.estimatedCost is the estimate."
    )
    wait: WaitStatus | None = Field(
        default=None, description="A wait that ends the plan or the attempt if it lasts for minutes."
    )
    failures: FailuresStatus | None = Field(default=None, description="What went wrong so far.")
    last_failures: Annotated[list[FailureRecord], Field(max_length=5)] | None = Field(
        default=None, description="The last failed attempts."
    )
    output: OutputStatus | None = Field(default=None, description="The dataset.")
    conditions: Annotated[list[Condition], Field(max_length=16)] | None = Field(
        default=None, description="Conditions; Complete, Failed and kstatus' Ready among them."
    )
