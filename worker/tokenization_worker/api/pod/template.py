"""Parts of Pods that a manifest passes on: environment, tolerations, where they run.

The shapes are those of Kubernetes core v1, as far as a tokenization job has a use for them. What no Pod may hold of
the environment is refused here; tolerations, affinity and spread are passed on as they are, and the API server checks
them when it tries the Pods of a job. Whether the named objects exist is for Kubernetes to say. No defaults stand inside
list items.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from tokenization_worker.api.pod.resources import Resources
from tokenization_worker.api.types.fields import Flag, KubernetesObject, ShortText
from tokenization_worker.api.types.kubernetes_names import (
    DnsName,
    EnvName,
    KeyName,
    LabelMap,
    matching,
)
from tokenization_worker.api.types.model import Rule, SpecBlock

_ENV_FIELD = (
    r"^(metadata\.(name|namespace|uid|(labels|annotations)\[\x27[^\x27]+\x27\])|"
    r"spec\.(nodeName|serviceAccountName)|status\.(hostIP|hostIPs|podIP|podIPs))$"
)


class KeySelector(SpecBlock):
    """One key of a Secret or ConfigMap in the job's namespace."""

    name: DnsName = Field(description="The Secret or ConfigMap.", examples=["huggingface"])
    key: KeyName = Field(description="The key in it.", examples=["token"])
    optional: Flag | None = Field(default=None, description="Start also if it does not exist.", examples=[True])


class FieldSelector(SpecBlock):
    """A field of the Pod itself."""

    field_path: Annotated[
        ShortText,
        matching(
            _ENV_FIELD,
            "write metadata.name, metadata.namespace, metadata.uid, metadata.labels['KEY'], "
            "metadata.annotations['KEY'], spec.nodeName, spec.serviceAccountName, status.hostIP or status.podIP",
        ),
    ] = Field(description="The field.", examples=["status.hostIP"])
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
        description="A key of a Secret. Only Kubernetes reads it, not the operator.",
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

    name: EnvName = Field(description="Its name.", examples=["HF_TOKEN"])
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

    name: DnsName = Field(description="The Secret or ConfigMap.", examples=["tokenization-settings"])
    optional: Flag | None = Field(default=None, description="Start also if it does not exist.", examples=[True])


class EnvFromSource(SpecBlock):
    """All keys of a Secret or ConfigMap as environment variables."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "write exactly one of secretRef and configMapRef",
            cel="has(self.secretRef) != has(self.configMapRef)",
            holds=lambda e: (e.secret_ref is None) != (e.config_map_ref is None),
        ),
    )

    prefix: EnvName | None = Field(default=None, description="A prefix for every key.", examples=["APP_"])
    secret_ref: EnvSource | None = Field(default=None, description="A Secret.", examples=[{"name": "huggingface"}])
    config_map_ref: EnvSource | None = Field(default=None, description="A ConfigMap.", examples=[{"name": "settings"}])


class ImagePullSecret(SpecBlock):
    """A Secret that the image is pulled with."""

    name: DnsName = Field(description="The Secret.", examples=["registry"])


class PodPlacement(SpecBlock):
    """What Pods ask for and where they may run."""

    resources: Resources = Field(
        default=Resources(),
        description=("Requests and limits of the container. Set them for TPU hosts: their sizes differ."),
        examples=[{"requests": {"cpu": "100", "memory": "180Gi"}}],
    )
    node_selector: LabelMap | None = Field(
        default=None, description="Labels that a node must have.", examples=[{"pool": "tokenization"}]
    )
    tolerations: Annotated[list[KubernetesObject], Field(max_length=32)] | None = Field(
        default=None,
        description="Taints that the Pods accept, beside those that tpu and capacity imply.",
        examples=[[{"key": "dedicated", "operator": "Exists"}]],
    )
    affinity: KubernetesObject | None = Field(
        default=None,
        description="Which nodes and neighbours the Pods need or prefer, beside what tpu and capacity imply.",
        examples=[
            {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}]
                    }
                }
            }
        ],
    )
    topology_spread_constraints: Annotated[list[KubernetesObject], Field(max_length=8)] | None = Field(
        default=None,
        description="How the Pods spread over zones or hosts. Their label tokenization.dev/job is the job's name.",
        examples=[
            [
                {
                    "maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"tokenization.dev/job": "fineweb-edu"}},
                }
            ]
        ],
    )
    priority_class_name: DnsName | None = Field(
        default=None, description="The PriorityClass of the Pods.", examples=["batch-low"]
    )
    scheduler_name: DnsName | None = Field(
        default=None, description="The scheduler of the Pods. Absent: the cluster's default.", examples=["volcano"]
    )
    runtime_class_name: DnsName | None = Field(
        default=None, description="The RuntimeClass of the Pods.", examples=["gvisor"]
    )
