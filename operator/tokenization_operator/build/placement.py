"""Places the Pods of a job: node labels, taints and chips of GKE. Pure.

All knowledge of GKE is here: accelerators and topologies as node labels; taints of TPU, Spot and flex-start nodes;
reservations.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tokenization_operator.objects.names import JOB_LABEL, NODE_TYPE_LABEL
from tokenization_worker.api.pod.template import PodPlacement
from tokenization_worker.api.workers import Capacity, Head, TpuShare, Workers, hosts_per_slice

TPU = "google.com/tpu"
_ACCELERATOR = "cloud.google.com/gke-tpu-accelerator"
_TOPOLOGY = "cloud.google.com/gke-tpu-topology"
_SPOT = "cloud.google.com/gke-spot"
_FLEX_START = "cloud.google.com/gke-flex-start"
_RESERVATION = "cloud.google.com/reservation-name"
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"


@dataclass(frozen=True, slots=True)
class Placement:
    """The fields of a Pod's spec and metadata that decide where it runs.

    `hosts`: Pods per replica. `avoided`: labels of excluded nodes, since not every node pool has a taint. `affinity`:
    the user's. `passed_on`: the user's other fields of the Pod's spec, as they are. `is_unchecked`: only the API server
    can tell whether the user's fields are right.
    """

    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[dict[str, Any]] = field(default_factory=list)
    priority_class_name: str | None = None
    hosts: int = 1
    annotations: dict[str, str] = field(default_factory=dict)
    requests: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    is_one_a_host: bool = False
    avoided: tuple[str, ...] = ()
    affinity: dict[str, Any] = field(default_factory=dict)
    passed_on: dict[str, Any] = field(default_factory=dict)
    is_unchecked: bool = False


def place_head(head: Head) -> Placement:
    """Place the head, the plan and the submitter on ordinary nodes: never on TPU hosts, never on Spot."""
    return replace(_place(head, {"kubernetes.io/arch": "amd64"}, []), avoided=(_SPOT, _FLEX_START, _ACCELERATOR))


def place_workers(workers: Workers, low_priority: str) -> Placement:
    """Place the workers. `low_priority`: the PriorityClass of Pods on hosts that another job has reserved."""
    found = _place_workers(workers, low_priority)
    return replace(found, avoided=(_SPOT, _FLEX_START)) if workers.capacity is Capacity.ON_DEMAND else found


def _place_workers(workers: Workers, low_priority: str) -> Placement:
    selector, tolerations = _capacity(workers)
    if workers.tpu is None:
        return _place(workers, selector, tolerations)
    selector |= {_ACCELERATOR: str(workers.tpu.accelerator), _TOPOLOGY: workers.tpu.topology}
    tolerations.append({"key": TPU, "operator": "Equal", "value": "present", "effect": "NoSchedule"})
    if workers.tpu.share is TpuShare.HOST_CPU:
        found = _place(workers, selector, tolerations, priority=low_priority, annotations={SAFE_TO_EVICT: "true"})
        return replace(found, is_one_a_host=True)
    return _place(workers, selector, tolerations, chips=workers.tpu.chips_per_host, hosts=hosts_per_slice(workers.tpu))


def affinity_of(placement: Placement, job_name: str) -> dict[str, Any]:
    """The affinity of a Pod: no node of the avoided ones, and for workers that ask for it a host each; with the user's;
    maybe empty."""
    affinity: dict[str, Any] = {}
    if placement.avoided:
        nowhere = [{"key": label, "operator": "DoesNotExist"} for label in placement.avoided]
        terms = {"nodeSelectorTerms": [{"matchExpressions": nowhere}]}
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    if placement.is_one_a_host:
        workers = {"matchLabels": {JOB_LABEL: job_name, NODE_TYPE_LABEL: "worker"}}
        apart = {"labelSelector": workers, "topologyKey": "kubernetes.io/hostname"}
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    return dict(_both(affinity, placement.affinity))


def _both(own: Any, asked: Any, name: str = "") -> Any:
    """The operator's affinity and the user's: both must hold. A user's part of another shape stays as it is: the API
    server refuses it."""
    if asked is None:
        return own
    if isinstance(own, dict) and isinstance(asked, dict):
        shared = {key: _both(own[key], asked[key], key) for key in own.keys() & asked.keys()}
        return own | asked | shared
    if isinstance(own, list) and isinstance(asked, list):
        if name == "nodeSelectorTerms":  # one of them must hold
            return [term and _both(own[0], term) for term in asked]  # an empty term matches no node
        return asked + own
    return asked


def hosts_of(workers: Workers) -> int:
    """The number of Pods of all replicas."""
    return workers.replicas * place_workers(workers, "").hosts


def _capacity(workers: Workers) -> tuple[dict[str, str], list[dict[str, Any]]]:
    match workers.capacity:
        case Capacity.SPOT:
            return {_SPOT: "true"}, [_tolerate(_SPOT, "true")]
        case Capacity.FLEX_START:
            return {_FLEX_START: "true"}, [_tolerate(_FLEX_START, "true")]
        case Capacity.RESERVATION:
            return {_RESERVATION: str(workers.reservation_name)}, []
        case Capacity.ANY:  # Spot too, if available
            return {}, [_tolerate(_SPOT, "true")]
        case Capacity.ON_DEMAND:
            return {}, []


def _tolerate(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}


def _place(
    asked: PodPlacement,
    selector: dict[str, str],
    tolerations: list[dict[str, Any]],
    *,
    priority: str | None = None,
    chips: int = 0,
    hosts: int = 1,
    annotations: dict[str, str] | None = None,
) -> Placement:
    passed_on = _pass_on(asked)
    requests, limits = dict(asked.resources.requests or {}), dict(asked.resources.limits or {})
    if chips:
        requests[TPU] = limits[TPU] = str(chips)  # extended resources need equal requests and limits
    return Placement(
        node_selector=selector | (asked.node_selector or {}),
        tolerations=[*(asked.tolerations or ()), *tolerations],  # numbered as in the job
        priority_class_name=asked.priority_class_name or priority,
        hosts=hosts,
        annotations=annotations or {},
        requests=requests,
        limits=limits,
        affinity=asked.affinity or {},
        passed_on=passed_on,
        is_unchecked=bool(asked.tolerations or asked.affinity or passed_on),
    )


def _pass_on(asked: PodPlacement) -> dict[str, Any]:
    fields = {
        "topologySpreadConstraints": asked.topology_spread_constraints,
        "schedulerName": asked.scheduler_name,
        "runtimeClassName": asked.runtime_class_name,
    }
    return {name: value for name, value in fields.items() if value}
