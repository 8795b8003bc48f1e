"""Parts of Pods that a manifest passes on: environment, tolerations, resources.

The shapes are those of Kubernetes core v1, as far as a tokenization job has a use for them. They are checked
for their structure only; what the values mean is for Kubernetes to say. No defaults stand inside list items.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field, Strict, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

from tokenization_worker.api.fields import Flag, ShortText
from tokenization_worker.api.model import RULE_ERROR, Rule, SpecBlock

_RESOURCE_MESSAGE = "write a Kubernetes quantity, such as 4, 500m or 16Gi"
_RESOURCE_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"


def _check_resource(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | str) or not re.fullmatch(_RESOURCE_PATTERN, str(value)):
        raise PydanticCustomError(RULE_ERROR, _RESOURCE_MESSAGE)
    return value


ResourceQuantity = Annotated[
    int | str,
    BeforeValidator(_check_resource),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "maxLength": 32, "pattern": _RESOURCE_PATTERN}),
]
ResourceMap = Annotated[dict[ShortText, ResourceQuantity], Field(max_length=32)]
LabelMap = Annotated[dict[ShortText, Annotated[str, StringConstraints(max_length=253)]], Field(max_length=32)]


class Resources(SpecBlock):
    """What a container asks for and may use."""

    requests: ResourceMap | None = Field(
        default=None, description="What the scheduler reserves.", examples=[{"cpu": "100", "memory": "180Gi"}]
    )
    limits: ResourceMap | None = Field(
        default=None, description="What the container may use at most.", examples=[{"memory": "180Gi"}]
    )


class Toleration(SpecBlock):
    """A taint that Pods of this job accept, as in a Pod."""

    key: ShortText | None = Field(
        default=None, description="The taint's key; absent: every key.", examples=["dedicated"]
    )
    operator: ShortText | None = Field(default=None, description="Equal or Exists.", examples=["Equal"])
    value: Annotated[str, StringConstraints(max_length=253)] | None = Field(
        default=None, description="The taint's value, with operator Equal.", examples=["tokenization"]
    )
    effect: ShortText | None = Field(
        default=None,
        description="NoSchedule, PreferNoSchedule or NoExecute; absent: all.",
        examples=["NoSchedule"],
    )
    toleration_seconds: Annotated[int, Strict()] | None = Field(
        default=None, description="How long a NoExecute taint is tolerated, in seconds.", examples=[300]
    )


class KeySelector(SpecBlock):
    """One key of a Secret or ConfigMap in the job's namespace."""

    name: ShortText = Field(description="The Secret or ConfigMap.", examples=["huggingface"])
    key: ShortText = Field(description="The key in it.", examples=["token"])
    optional: Flag | None = Field(default=None, description="Start without it when it is absent.", examples=[True])


class FieldSelector(SpecBlock):
    """A field of the Pod itself."""

    field_path: ShortText = Field(description="The field.", examples=["status.hostIP"])
    api_version: ShortText | None = Field(default=None, description="The version of its schema.", examples=["v1"])


class EnvVarSource(SpecBlock):
    """Where the value of an environment variable comes from."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "write exactly one of secretKeyRef, configMapKeyRef and fieldRef",
            cel=("[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)].filter(x, x).size() == 1"),
            holds=lambda s: sum(x is not None for x in (s.secret_key_ref, s.config_map_key_ref, s.field_ref)) == 1,
        ),
    )

    secret_key_ref: KeySelector | None = Field(
        default=None,
        description="A key of a Secret. Kubernetes hands it to the Pods; the operator reads no secret.",
        examples=[{"name": "huggingface", "key": "token"}],
    )
    config_map_key_ref: KeySelector | None = Field(
        default=None, description="A key of a ConfigMap.", examples=[{"name": "settings", "key": "proxy"}]
    )
    field_ref: FieldSelector | None = Field(
        default=None, description="A field of the Pod.", examples=[{"fieldPath": "status.hostIP"}]
    )


class EnvVar(SpecBlock):
    """An environment variable of the Pods."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "an environment variable has value or valueFrom, not both",
            cel="!(has(self.value) && has(self.valueFrom))",
            holds=lambda e: e.value is None or e.value_from is None,
        ),
    )

    name: ShortText = Field(description="Its name.", examples=["HF_TOKEN"])
    value: Annotated[str, StringConstraints(max_length=4096)] | None = Field(
        default=None, description="Its value, as text; numbers need quotes.", examples=["1"]
    )
    value_from: EnvVarSource | None = Field(
        default=None,
        description="Where its value comes from.",
        examples=[{"secretKeyRef": {"name": "huggingface", "key": "token"}}],
    )


class EnvSource(SpecBlock):
    """A whole Secret or ConfigMap."""

    name: ShortText = Field(description="The Secret or ConfigMap.", examples=["tokenization-settings"])
    optional: Flag | None = Field(default=None, description="Start without it when it is absent.", examples=[True])


class EnvFromSource(SpecBlock):
    """All keys of a Secret or ConfigMap as environment variables."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "write exactly one of secretRef and configMapRef",
            cel="has(self.secretRef) != has(self.configMapRef)",
            holds=lambda e: (e.secret_ref is None) != (e.config_map_ref is None),
        ),
    )

    prefix: ShortText | None = Field(default=None, description="Put before every key.", examples=["APP_"])
    secret_ref: EnvSource | None = Field(default=None, description="A Secret.", examples=[{"name": "huggingface"}])
    config_map_ref: EnvSource | None = Field(default=None, description="A ConfigMap.", examples=[{"name": "settings"}])


class ImagePullSecret(SpecBlock):
    """A Secret that the image is pulled with."""

    name: ShortText = Field(description="The Secret.", examples=["registry"])


class PodPlacement(SpecBlock):
    """What Pods ask for and where they may run."""

    resources: Resources = Field(
        default=Resources(),
        description=("Requests and limits of the container. Set them for TPU hosts: sources disagree on their size."),
        examples=[{"requests": {"cpu": "100", "memory": "180Gi"}}],
    )
    node_selector: LabelMap | None = Field(
        default=None, description="Labels that a node must have.", examples=[{"pool": "tokenization"}]
    )
    tolerations: Annotated[list[Toleration], Field(max_length=32)] | None = Field(
        default=None,
        description="Taints that the Pods accept, beside those that tpu and capacity imply.",
        examples=[[{"key": "dedicated", "operator": "Exists"}]],
    )
    priority_class_name: ShortText | None = Field(
        default=None, description="The PriorityClass of the Pods.", examples=["batch-low"]
    )
