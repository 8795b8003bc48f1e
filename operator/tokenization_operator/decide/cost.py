"""The cost of a run: estimated by its plan, and actual. Pure.

An attempt costs from when it may have machines until it ends, however it ends; pauses, queues and suspensions cost
nothing. The sums are stored in the status, so an operator restart changes no figure. Prices come from the chart's
values: if one that is needed is missing, there are hours but no cost. A plan's Pod is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenization_operator.build.placement import TPU, Placement, place_head, place_workers
from tokenization_operator.build.pod import complete_resources
from tokenization_operator.build.sizes import HEAD_CPU, HEAD_MEMORY, WORKER_CPU, WORKER_MEMORY, slots_of_worker
from tokenization_operator.decide.context import Context
from tokenization_operator.decide.status.derived import ENDED
from tokenization_operator.objects.quantities import read_quantity
from tokenization_operator.observe.rayjob_status import read_ray_job
from tokenization_operator.settings import Settings
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.status import CostStatus, JobStatus, MachinesStatus, PlanStatus
from tokenization_worker.api.types.times import read_time


@dataclass(frozen=True, slots=True)
class Hours:
    """Hours of worker Pods, of TPU chips that the job reserves, and of CPUs on ordinary nodes."""

    hosts: float
    chips: float
    cpus: float

    def __add__(self, other: Hours) -> Hours:
        return Hours(self.hosts + other.hosts, self.chips + other.chips, self.cpus + other.cpus)


def machines_of(job: TokenizationJob, replicas: int) -> MachinesStatus:
    """The machines of an attempt with this many replicas. CPUs of TPU hosts are not counted: they come with the chips
    or are idle."""
    workers, head = place_workers(job.spec.workers, ""), place_head(job.spec.head)
    hosts = replicas * workers.hosts
    chips = int(workers.requests.get(TPU, 0))
    cpus = _cpus(head, HEAD_CPU, HEAD_MEMORY)
    if job.spec.workers.tpu is None:
        cpus += hosts * _cpus(workers, WORKER_CPU, WORKER_MEMORY)
    return MachinesStatus(hosts=hosts, chips=hosts * chips, cpus=_decimal(cpus))


def _cpus(placement: Placement, cpu: str, memory: str) -> float:
    requests, _ = complete_resources(placement.requests, placement.limits, cpu=cpu, memory=memory)
    return float(read_quantity(str(requests["cpu"])))


def expect(job: TokenizationJob, plan: PlanStatus, settings: Settings) -> PlanStatus:
    """The plan with the estimated machines, hours and cost, as far as they are known."""
    machines = machines_of(job, job.spec.workers.replicas)
    plan = plan.model_copy(update={"workers": machines.hosts})
    if plan.estimated_seconds is None:
        return plan
    slower = slots_of_worker(job) / slots_of_worker(job, plan.task_bytes)  # the plan takes tasks for ordinary ones
    plan = plan.model_copy(update={"estimated_seconds": round(plan.estimated_seconds * slower)})
    assert plan.estimated_seconds is not None
    hours = _hours(machines, plan.estimated_seconds)
    changes = {
        "chip_hours": _decimal(hours.chips, 1) if machines.chips else None,
        "cpu_hours": _decimal(hours.cpus, 1),
        "estimated_cost": _price(hours, settings),
    }
    return plan.model_copy(update=changes)


def settle(context: Context, after: JobStatus) -> JobStatus:
    """The status with the cost of an attempt that had machines before and has none after, however it ended."""
    before = context.before
    if not _has_machines(before) or _run_of(before) != _run_of(after):
        return after
    if _has_machines(after) and _number_of(before) == _number_of(after):
        return after
    return after.model_copy(update={"cost": charge(context)})


def charge(context: Context) -> CostStatus | None:
    """The cost of the run if its attempt ended now."""
    before, attempt = context.before, context.before.attempt
    began = read_time(attempt.admitted_time) if attempt is not None else None
    if attempt is None or began is None or not _has_machines(before):
        return before.cost
    machines = attempt.machines or machines_of(context.job, attempt.replicas or 1)
    share = 1.0
    if attempt.running_time is None:  # ready workers waited for the others
        ready = before.workers.ready if before.workers else None
        share = (ready or 0) / (machines.hosts or 1)
    ended = context.observation.now
    if context.observation.ray_job is not None:  # it may have ended while no operator ran
        ended = min(ended, read_time(read_ray_job(context.observation.ray_job).ended) or ended)
    spent = _hours(machines, share * max(0.0, (ended - began).total_seconds()))
    return _cost(_spent(before.cost) + spent, context.settings)


def _has_machines(status: JobStatus) -> bool:
    attempt = status.attempt
    is_held = attempt is not None and attempt.admitted_time is not None and not attempt.is_over
    return is_held and status.phase not in ENDED


def _run_of(status: JobStatus) -> int:
    return status.run.number if status.run else 0


def _number_of(status: JobStatus) -> int:
    return status.attempt.number if status.attempt else 0


def _hours(machines: MachinesStatus, seconds: float) -> Hours:
    hours = seconds / 3600
    return Hours((machines.hosts or 0) * hours, (machines.chips or 0) * hours, float(machines.cpus or 0) * hours)


def _spent(cost: CostStatus | None) -> Hours:
    cost = cost or CostStatus()
    return Hours(float(cost.host_hours or 0), float(cost.chip_hours or 0), float(cost.cpu_hours or 0))


def _cost(hours: Hours, settings: Settings) -> CostStatus:
    return CostStatus(
        chip_hours=_decimal(hours.chips) if hours.chips else None,
        host_hours=_decimal(hours.hosts),
        cpu_hours=_decimal(hours.cpus),
        actual=_price(hours, settings),
    )


def _price(hours: Hours, settings: Settings) -> str | None:
    """None if chips, or the CPUs of a run without chips, have no price; only the head's CPUs may lack one."""
    per_chip, per_cpu = settings.price_per_chip_hour, settings.price_per_cpu_hour
    if (per_chip if hours.chips else per_cpu) is None:
        return None
    return f"{hours.chips * (per_chip or 0) + hours.cpus * (per_cpu or 0):.2f} {settings.currency}"


def _decimal(number: float, digits: int = 4) -> str:
    """Format without trailing zeros."""
    text = f"{number:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
