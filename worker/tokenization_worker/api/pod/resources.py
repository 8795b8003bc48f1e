"""What a container asks for and may use: Kubernetes quantities of named resources.

Owns the rules that Kubernetes has for the resources of one container, and the one of this project: chips follow from
`workers.tpu` and are never written by hand.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Final

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from tokenization_worker.api.types.fields import ShortText, TypeWords
from tokenization_worker.api.types.kubernetes_names import keys_matching, keys_without
from tokenization_worker.api.types.model import RULE_ERROR, Rule, SpecBlock

TPU_RESOURCE: Final = "google.com/tpu"
RESOURCE_MESSAGE = "write a Kubernetes quantity, such as 4, 500m or 16Gi"
_QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
_UNITS = {"": Fraction(1), "m": Fraction(1, 1000)} | {
    unit + binary: Fraction(1024 if binary else 1000) ** power
    for power, unit in enumerate(("k", "M", "G", "T", "P"), 1)
    for binary in ("", "i")
}
_UNITS["Ki"] = _UNITS.pop("ki")
_DOMAIN = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
_RESOURCE_NAME = rf"^(cpu|memory|ephemeral-storage|hugepages-[0-9]+[KMG]i|{_DOMAIN}/[A-Za-z0-9][-A-Za-z0-9_.]*)$"


def _check_resource(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | str) or not re.fullmatch(_QUANTITY, str(value)):
        raise PydanticCustomError(RULE_ERROR, RESOURCE_MESSAGE)
    return value


def amount_of(quantity: int | str) -> Fraction:
    """Return the exact number that a Kubernetes quantity stands for: `"500m"` is 1/2."""
    text = str(quantity)
    number = text.rstrip("mkKMGTPi")
    return Fraction(number) * _UNITS[text[len(number) :]]


ResourceQuantity = Annotated[
    int | str,
    TypeWords("Kubernetes quantity"),
    BeforeValidator(_check_resource),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "maxLength": 32,
            "x-kubernetes-validations": [
                Rule(
                    RESOURCE_MESSAGE, cel=f"type(self) == int ? self >= 0 : self.matches(r'{_QUANTITY}')", holds=None
                ).as_validation()
            ],
        }
    ),
]
ResourceMap = Annotated[
    dict[ShortText, ResourceQuantity],
    Field(max_length=32),
    keys_without(
        (),
        (TPU_RESOURCE,),
        "workers.tpu asks for the chips (accelerator, topology, chipsPerHost): write them there, not here",
    ),
    keys_matching(
        _RESOURCE_NAME,
        "the resources of a container are cpu, memory, ephemeral-storage, and devices such as example.com/device",
    ),
]


def _above_limits(resources: Any) -> list[str]:
    limits = resources.limits or {}
    return [
        name
        for name, asked in (resources.requests or {}).items()
        if name in limits and amount_of(asked) > amount_of(limits[name])
    ]


def _is_device(name: str) -> bool:
    """Whether Kubernetes wants a limit for it; chips have a rule of their own."""
    return "/" in name and "kubernetes.io/" not in name and name != TPU_RESOURCE


def _unlimited_devices(resources: Any) -> list[str]:
    limits = resources.limits or {}
    return [
        name
        for name, asked in (resources.requests or {}).items()
        if _is_device(name) and (name not in limits or amount_of(asked) != amount_of(limits[name]))
    ]


_IS_READABLE = f"string(self.requests[k]).matches(r'{_QUANTITY}') && string(self.limits[k]).matches(r'{_QUANTITY}')"
_REQUEST, _LIMIT = "quantity(string(self.requests[k]))", "quantity(string(self.limits[k]))"
_IS_ABOVE = f"k in self.limits && {_IS_READABLE} && {_REQUEST}.isGreaterThan({_LIMIT})"
_IS_DEVICE = f"k.contains('/') && !k.contains('kubernetes.io/') && k != '{TPU_RESOURCE}'"
_IS_OTHER = f"{_IS_DEVICE} && (!(k in self.limits) || ({_IS_READABLE} && {_REQUEST}.compareTo({_LIMIT}) != 0))"


class Resources(SpecBlock):
    """What a container asks for and may use."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "a limit is at least the request: raise the limit, or lower the request",
            cel=f"!has(self.requests) || !has(self.limits) || !self.requests.exists(k, {_IS_ABOVE})",
            holds=lambda r: not _above_limits(r),
            field="limits",
            found=f"'found a limit of ' + self.requests.filter(k, {_IS_ABOVE})[0] + ' below its request'",
            shows=lambda r: f"found a limit of {_above_limits(r)[0]} below its request",
            is_for_new=True,
        ),
        Rule(
            "a device has a limit, and a request only if it is equal: write it in limits alone",
            cel="!has(self.requests) || (has(self.limits) ? "
            f"!self.requests.exists(k, {_IS_OTHER}) : !self.requests.exists(k, {_IS_DEVICE}))",
            holds=lambda r: not _unlimited_devices(r),
            field="requests",
            is_for_new=True,
        ),
    )

    requests: ResourceMap | None = Field(
        default=None, description="What the scheduler reserves.", examples=[{"cpu": "100", "memory": "180Gi"}]
    )
    limits: ResourceMap | None = Field(
        default=None, description="What the container may use at most.", examples=[{"memory": "180Gi"}]
    )
