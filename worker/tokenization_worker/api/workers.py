"""The blocks `workers` and `head`: how many machines, of which kind.

Owns the fields, the table of TPU types and the arithmetic between topology, chips and hosts. A laptop
ignores all of it. Which labels and taints follow is the operator's business.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field, StringConstraints

from tokenization_worker.api.pod.template import PodPlacement
from tokenization_worker.api.types.fields import PositiveCount, ShortText
from tokenization_worker.api.types.kubernetes_names import LABEL_VALUE, matching
from tokenization_worker.api.types.model import Rule, SpecBlock

WORKER_BYTES = 700 << 20
"""Memory set aside for one task at a time: the measured peak of a process is below 600 MB on ordinary text.

A document of one piece takes tiktoken 50 bytes for each of its bytes on top of that (2026-11-24; docs/sizing.md)."""

_PLAIN_BYTES = 450 << 20
"""What a process takes beside the window or the cells of a shuffle that it holds."""


def task_bytes(held: int) -> int:
    """Memory of a task that holds so many bytes of a shuffle: a quarter more, for copies, but at least
    `WORKER_BYTES`."""
    return max(WORKER_BYTES, _PLAIN_BYTES + held * 5 // 4)


class Accelerator(StrEnum):
    """The values of the node label cloud.google.com/gke-tpu-accelerator."""

    V4 = "tpu-v4-podslice"
    V5E = "tpu-v5-lite-podslice"
    V5P = "tpu-v5p-slice"
    V6E = "tpu-v6e-slice"
    V7X = "tpu7x"


class TpuShare(StrEnum):
    """Whether the Pods take the TPU chips of their hosts, or only idle CPUs."""

    EXCLUSIVE = "Exclusive"
    HOST_CPU = "HostCpu"


class Capacity(StrEnum):
    """How the nodes of the workers are paid for."""

    ANY = "Any"
    ON_DEMAND = "OnDemand"
    SPOT = "Spot"
    FLEX_START = "FlexStart"
    RESERVATION = "Reservation"


@dataclass(frozen=True, slots=True)
class TpuType:
    """What hosts of one accelerator look like: chips per host and dimensions of a topology."""

    chips_per_host: tuple[int, ...]
    dimensions: int


TPU_TYPES = {
    Accelerator.V4: TpuType((4,), 3),
    Accelerator.V5E: TpuType((1, 4, 8), 2),
    Accelerator.V5P: TpuType((4,), 3),
    Accelerator.V6E: TpuType((1, 4, 8), 2),
    Accelerator.V7X: TpuType((4,), 3),
}
TOPOLOGY = r"^[1-9][0-9]{0,2}(x[1-9][0-9]{0,2}){1,2}$"
_FLAT = r"^([1-9]|1[0-6])x([1-9]|1[0-6])$"
_CUBE = r"^[1-9][0-9]{0,2}(x[1-9][0-9]{0,2}){2}$"
_RESERVATION = matching(
    LABEL_VALUE,
    "write the name of the reservation alone, without its project: at most 63 letters, digits, - _ and . such as "
    "tpu-reservation",
)
_MOST_REPLICAS = 10_000
_BOUNDED = Rule(
    f"write at most {_MOST_REPLICAS}: Ray is tested with clusters of about 2,000 nodes, Kubernetes with 5,000",
    cel=f"self <= {_MOST_REPLICAS}",
    holds=lambda count: count <= _MOST_REPLICAS,
    is_for_new=True,
)
Replicas = Annotated[PositiveCount, _BOUNDED]
"""Of workers: the operator and KubeRay would make as many Pods as the job asks for."""
_FLAT_NAMES = "['tpu-v5-lite-podslice', 'tpu-v6e-slice']"


def parse_topology(topology: str) -> tuple[int, ...]:
    """Return the sides of a topology: `"2x4"` is (2, 4)."""
    return tuple(int(side) for side in topology.split("x"))


def hosts_per_slice(tpu: Tpu) -> int:
    """Return the number of hosts that one slice of `tpu` has."""
    return math.prod(parse_topology(tpu.topology)) // tpu.chips_per_host


def _is_flat(tpu: Any) -> bool:
    return TPU_TYPES[tpu.accelerator].dimensions == 2


def _fits_hosts(tpu: Any) -> bool:
    return not re.fullmatch(TOPOLOGY, tpu.topology) or (
        math.prod(parse_topology(tpu.topology)) % tpu.chips_per_host == 0
    )


def _cel_product(sides: int) -> str:
    return " * ".join(f"int(self.topology.split('x')[{side}])" for side in range(sides))


class Tpu(SpecBlock):
    """The TPU hosts that the workers run on."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "hosts of tpu-v5-lite-podslice and tpu-v6e-slice have 1, 4 or 8 chips, those of tpu-v4-podslice, "
            "tpu-v5p-slice and tpu7x have 4",
            cel=f"self.accelerator in {_FLAT_NAMES} ? self.chipsPerHost in [1, 4, 8] : self.chipsPerHost == 4",
            holds=lambda t: t.chips_per_host in TPU_TYPES[t.accelerator].chips_per_host,
            field="chipsPerHost",
        ),
        Rule(
            "tpu-v5-lite-podslice and tpu-v6e-slice have a flat topology from 1x1 to 16x16: write for example 2x4",
            cel=f"!(self.accelerator in {_FLAT_NAMES}) || self.topology.matches(r'{_FLAT}')",
            holds=lambda t: not _is_flat(t) or bool(re.fullmatch(_FLAT, t.topology)),
            field="topology",
        ),
        Rule(
            "tpu-v4-podslice, tpu-v5p-slice and tpu7x have a topology of three sides: write for example 2x2x1",
            cel=f"self.accelerator in {_FLAT_NAMES} || self.topology.matches(r'{_CUBE}')",
            holds=lambda t: _is_flat(t) or bool(re.fullmatch(_CUBE, t.topology)),
            field="topology",
        ),
        Rule(
            "the chips of the topology (the product of its sides) must be a whole number of hosts: change "
            "topology or chipsPerHost",
            cel=f"self.topology.matches(r'{TOPOLOGY}') ? (self.topology.split('x').size() == 2 "
            f"? {_cel_product(2)} : {_cel_product(3)}) % self.chipsPerHost == 0 : true",
            holds=_fits_hosts,
            field="topology",
        ),
    )

    accelerator: Accelerator = Field(
        description="The TPU type, as in the node label cloud.google.com/gke-tpu-accelerator.",
        examples=["tpu-v5-lite-podslice"],
    )
    topology: Annotated[str, StringConstraints(min_length=1, max_length=16)] = Field(
        description="The shape of a slice in chips, as in the node label cloud.google.com/gke-tpu-topology.",
        examples=["2x4"],
    )
    chips_per_host: PositiveCount = Field(
        description="The chips of one host; the topology's chips divided by it are the hosts of a slice.",
        examples=[8],
    )
    share: TpuShare = Field(
        default=TpuShare.EXCLUSIVE,
        description=(
            "Exclusive: the Pods request all chips of their hosts, which provisions and scales node pools; "
            "with more than one host in a slice, replicas counts slices. Of the CPUs and the memory of these hosts the "
            "Pods use what workers.resources.requests says, by default 4 CPUs and 8Gi. HostCpu: the Pods use idle "
            "CPUs of TPU hosts that another job reserved, at a negative priority, and provision nothing (Standard "
            "clusters only)."
        ),
        examples=["HostCpu"],
    )


class Workers(PodPlacement):
    """The machines that tokenize."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "minReplicas is at most replicas: make it smaller, or leave it out",
            cel="!has(self.minReplicas) || self.minReplicas <= self.replicas",
            holds=lambda w: w.min_replicas is None or w.min_replicas <= w.replicas,
            field="minReplicas",
        ),
        Rule(
            "capacity: Reservation and reservationName go together: write both, or neither",
            cel="(self.capacity == 'Reservation') == has(self.reservationName)",
            holds=lambda w: (w.capacity is Capacity.RESERVATION) == (w.reservation_name is not None),
            field="reservationName",
        ),
    )

    replicas: Replicas = Field(
        default=1,
        description=(
            "The number of hosts; with tpu.share Exclusive and a topology of several hosts, of slices. At most 10,000: "
            "Ray is tested with clusters of about 2,000 nodes, Kubernetes with 5,000."
        ),
        examples=[16],
    )
    min_replicas: Replicas | None = Field(
        default=None,
        description=(
            "Start with fewer than replicas, but at least this many, if no more are ready at the startup "
            "deadline. Default: replicas."
        ),
        examples=[8],
    )
    tpu: Tpu | None = Field(
        default=None,
        description="Run on TPU hosts. Absent: ordinary CPU nodes.",
        examples=[{"accelerator": "tpu-v5-lite-podslice", "topology": "2x4", "chipsPerHost": 8}],
    )
    capacity: Capacity = Field(
        default=Capacity.ANY,
        description=(
            "Which nodes the workers take: Any, OnDemand, Spot, FlexStart, or Reservation with "
            "reservationName. It never applies to the head."
        ),
        examples=["Spot"],
    )
    reservation_name: Annotated[ShortText, _RESERVATION] | None = Field(
        default=None,
        description="The reservation to use, with capacity: Reservation.",
        examples=["tpu-reservation"],
    )


class Head(PodPlacement):
    """The machine that drives the run; always an ordinary node, never Spot."""
