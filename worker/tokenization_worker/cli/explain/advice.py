"""Maps the reason of a status to the next step, for one job. Decides; does no I/O.

`advice_table` has the words of each reason; those that depend on Pods, nodes or a queue are here. A next step that the
message itself names comes first.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from tokenization_worker.api.job import JobSpec
from tokenization_worker.api.status import Phase
from tokenization_worker.cli.explain.advice_table import ADVICE
from tokenization_worker.cli.explain.goes_on import GoesOn, goes_on
from tokenization_worker.messages.counts import counted

_TRIED_AGAIN = "The operator tries again by itself, until infraRetryLimit is reached; finished work is kept."
_TRIED_OUT = (
    "All tries that infraRetryLimit allows are used up. When the cause is fixed, raise spec.infraRetryLimit: the run "
    "continues from the finished work."
)
FIND_OPERATOR = "`kubectl get deploy -A -l app.kubernetes.io/name=tokenization-operator`"

UNSEEN = (
    "The operator has not processed this job. Check that it runs and watches namespace {namespace}: "
    f"{FIND_OPERATOR}, then read the log of that Deployment."
)
_UNKNOWN = "Do what the message says. This version of tokjob does not know the reason {reason}: see docs/operations.md."


_STEP_OF_MESSAGE = re.compile(r"(?:^|(?<=[.?!]) )Next: (.+?)(?: (?=Failure \d+ of the \d+ that )|$)", re.DOTALL)

_DEFAULT_STALL_S = JobSpec.model_fields["stall_timeout_seconds"].default
_FEWER = (
    " Or set spec.workers.minReplicas: it begins with fewer when spec.startupDeadlineSeconds have passed, if so many "
    "are ready."
)
_NO_KUEUE = (
    "Kueue is not installed in this cluster, so nothing admits the job. Install Kueue. Or remove the label "
    "kueue.x-k8s.io/queue-name from the job, and set spec.suspend to true, then to false: the operator then makes its "
    "RayJob again, without a queue."
)
_QUEUED = (
    "The job waits in the queue of its label kueue.x-k8s.io/queue-name; time in the queue counts toward no deadline. "
    "Inspect the queue: `kubectl -n {namespace} get workloads,localqueues`."
)
_UNPLACED_PLAN = (
    "Compare what the Pod asks for with `kubectl describe nodes`, and add a node: the job then continues by itself."
)
_UNPLACED_TPU = (
    "Compare what the Pod asks for with `kubectl get nodes -L "
    "cloud.google.com/gke-tpu-accelerator,cloud.google.com/gke-tpu-topology`. Add such nodes; or correct "
    "spec.workers.tpu: {taken}."
)
_OTHER_TPU = (
    "The workers ask for nodes with {asked}; the cluster has {offered}. Add such nodes; or correct spec.workers.tpu: "
    "{taken}."
)
_UNPLACED = (
    "Compare what the Pod asks for with `kubectl describe nodes`. Add such nodes; or lower "
    "spec.workers.resources: {taken}."
)


@dataclass(frozen=True, slots=True)
class JobView:
    """What advice depends on besides the reason."""

    job: str
    namespace: str
    output: str
    phase: str = ""
    is_planned: bool = False
    stall_timeout_s: int | None = None
    replicas: int = 1
    has_kueue: bool | None = None
    """None where it is not known."""
    asked_tpu: str = ""
    """Accelerator and topology that the workers ask for; empty without a TPU."""
    offered_tpus: tuple[str, ...] | None = None
    """Accelerator and topology of each TPU node of the cluster; None where they are not known."""

    @property
    def is_over(self) -> bool:
        return self.phase == Phase.FAILED

    @property
    def taken(self) -> str:
        """When the Pods are made as the job says now."""
        match self.phase:
            case Phase.PLANNING:
                return "the plan starts again at once when the job is changed"
            case Phase.QUEUED | Phase.STARTING:
                return "the attempt starts again at once when the job is changed"
            case Phase.FAILED:
                return "the run then continues from the finished work"
        return "the next attempt has it, and continues from the finished work"

    @property
    def unplaced(self) -> str:
        if not self.is_planned:
            return _UNPLACED_PLAN
        step = self._unplaced_alone
        return step if self.replicas < 2 else f"{step} Or lower spec.workers.replicas.{_FEWER}"

    @property
    def _unplaced_alone(self) -> str:
        offered = self.offered_tpus
        if self.asked_tpu and offered is not None and self.asked_tpu not in offered:
            counts = sorted(Counter(offered).items())
            words = ", ".join(f"{name} ({counted(number, 'node')})" for name, number in counts) or "no TPU nodes"
            return _OTHER_TPU.format(asked=self.asked_tpu, offered=words, taken=self.taken)
        return (_UNPLACED_TPU if self.asked_tpu else _UNPLACED).format(taken=self.taken)

    @property
    def queued(self) -> str:
        return (_NO_KUEUE if self.has_kueue is False else _QUEUED).format(namespace=self.namespace)


def split_step(message: str) -> tuple[str, str]:
    """A message without the next step that it names, and that step."""
    found = _STEP_OF_MESSAGE.search(message)
    if found is None:
        return message, ""
    return f"{message[: found.start()]} {message[found.end() :]}".strip(), found[1].strip()


def advise_as_said(step: str, reason: str, at: JobView) -> str:
    """The next step that a message names, and how the job then goes on."""
    sentence = f"{step[:1].upper()}{step[1:]}"
    return f"{sentence if sentence.endswith(('.', '?', '!')) else f'{sentence}.'} {_effect(reason, at)}".strip()


def _effect(reason: str, at: JobView) -> str:
    if not at.is_over:
        return _TRIED_AGAIN if at.phase == Phase.RETRYING else ""
    if not at.is_planned:
        return (
            "If you change the job, apply it: it continues by itself. If you change only files, set a new "
            "spec.rerunToken."
        )
    match goes_on(reason):
        case GoesOn.BY_NEW_RUN:
            return "Then apply the job again with a new spec.rerunToken."
        case GoesOn.BY_LIMIT_FOR_DOCUMENTS:
            return f"The documents: `tokjob show --quarantined {at.output}`. The run continues from the finished work."
        case GoesOn.BY_RETRY:
            return _TRIED_OUT
        case GoesOn.BY_LIMIT:
            return "A changed limit lets the run continue from the finished work."


def advise(reason: str, at: JobView) -> str:
    """What to do about a job with that reason, in a few sentences."""
    again = "apply the job again: it continues by itself"
    if at.is_planned:
        again = "apply the job again with a new rerunToken, without which the data fields of a planned job are fixed"
    same = "raise spec.backoffLimit by 1: any changed limit lets a failed run continue"
    stall_s = at.stall_timeout_s or _DEFAULT_STALL_S
    return ADVICE.get(reason, _UNKNOWN).format(
        job=at.job,
        namespace=at.namespace,
        output=at.output or "OUTPUT",
        again=again,
        same=same,
        retried=_TRIED_OUT if at.is_over else _TRIED_AGAIN,
        taken=at.taken,
        unplaced=at.unplaced,
        queued=at.queued,
        stall_s=stall_s if stall_s == _DEFAULT_STALL_S else f"{stall_s} (default {_DEFAULT_STALL_S})",
        reason=reason,
    )
