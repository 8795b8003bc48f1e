"""The block `pods`: what all Pods of a job have beside what the operator gives them.

Owns which labels and annotations a job may not set: those by which the operator, KubeRay, Kueue, Kubernetes and GitOps
tools find their own objects.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from tokenization_worker.api.pod.resources import ResourceQuantity
from tokenization_worker.api.pod.volumes import Volume, VolumeMount
from tokenization_worker.api.types.fields import ShortText
from tokenization_worker.api.types.kubernetes_names import (
    LABEL_KEY,
    LABEL_KEY_MESSAGE,
    LabelMap,
    keys_matching,
    keys_without,
)
from tokenization_worker.api.types.model import SpecBlock

_OWN_PREFIXES = (
    *("tokenization.dev/", "ray.io/", "kueue.x-k8s.io/", "batch.kubernetes.io/"),
    *("argocd.argoproj.io/", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/", "meta.helm.sh/"),
)
_OWN_KEYS = (
    *("job-name", "controller-uid", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by"),
    *("app.kubernetes.io/name", "app.kubernetes.io/created-by"),  # KubeRay's Services select head Pods by them
)
_NOT_OWN = keys_without(
    _OWN_PREFIXES,
    _OWN_KEYS,
    "the operator, KubeRay, Kueue, Kubernetes and GitOps tools find their objects by this key: choose another one "
    "(labels for Kueue stand in metadata.labels of the job)",
)


PodLabels = Annotated[LabelMap, _NOT_OWN]
PodAnnotations = Annotated[
    dict[ShortText, Annotated[str, StringConstraints(max_length=4096)]],
    Field(max_length=32),
    keys_matching(LABEL_KEY, LABEL_KEY_MESSAGE.replace("of a label", "of an annotation")),
    _NOT_OWN,
]


class TemporaryVolume(SpecBlock):
    """The emptyDir at /tmp."""

    size_limit: ResourceQuantity | None = Field(
        default=None,
        description="A Pod that writes more to /tmp is evicted. Default: 10Gi.",
        examples=["50Gi"],
    )


class Pods(SpecBlock):
    """What all Pods of the job have: the one that plans, the head, the workers, and, but for volumes, the submitter."""

    labels: PodLabels | None = Field(
        default=None,
        description="Labels of the Pods, such as for cost accounting.",
        examples=[{"cost-center": "research"}],
    )
    annotations: PodAnnotations | None = Field(
        default=None,
        description="Annotations of the Pods, such as for a service mesh or a CSI driver.",
        examples=[{"gke-gcsfuse/volumes": "true"}],
    )
    volumes: Annotated[list[Volume], Field(max_length=16)] | None = Field(
        default=None,
        description="Volumes of the plan Pod, the head and the workers.",
        examples=[[{"name": "ca", "configMap": {"name": "company-ca"}}]],
    )
    volume_mounts: Annotated[list[VolumeMount], Field(max_length=16)] | None = Field(
        default=None,
        description="Where the containers mount these volumes.",
        examples=[[{"name": "ca", "mountPath": "/etc/company-ca", "readOnly": True}]],
    )
    temporary_volume: TemporaryVolume | None = Field(
        default=None,
        description="The volume at /tmp; Pods write only there and to volumes that the job mounts.",
        examples=[{"sizeLimit": "50Gi"}],
    )
