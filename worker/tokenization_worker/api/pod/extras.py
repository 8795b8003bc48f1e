"""The block `pods`: what all Pods of a job have beside what the operator gives them.

Owns which labels and annotations a job may not set: those by which the operator, KubeRay, Kueue, Kubernetes and GitOps
tools find their own objects.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

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
from tokenization_worker.api.types.model import Rule, SpecBlock

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


def _unknown_mounts(pods: Any) -> list[str]:
    names = {volume.name for volume in pods.volumes or ()}
    return [mount.name for mount in pods.volume_mounts or () if mount.name not in names]


def _are_unique(values: list[str]) -> bool:
    return len(values) == len(set(values))


class TemporaryVolume(SpecBlock):
    """The emptyDir at /tmp."""

    size_limit: ResourceQuantity | None = Field(
        default=None,
        description="A Pod that writes more to /tmp is evicted. Default: 10Gi.",
        examples=["50Gi"],
    )


class Pods(SpecBlock):
    """What all Pods of the job have: the one that plans, the head, the workers, and, but for volumes, the submitter."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "two volumes have the same name: rename one",
            cel="!has(self.volumes) || self.volumes.all(v, self.volumes.exists_one(w, w.name == v.name))",
            holds=lambda p: _are_unique([volume.name for volume in p.volumes or ()]),
            field="volumes",
        ),
        Rule(
            "two volumes are mounted at the same path: change one",
            cel="!has(self.volumeMounts) || "
            "self.volumeMounts.all(m, self.volumeMounts.exists_one(n, n.mountPath == m.mountPath))",
            holds=lambda p: _are_unique([mount.mount_path for mount in p.volume_mounts or ()]),
            field="volumeMounts",
        ),
        Rule(
            "a mount names a volume that is not in pods.volumes: add it there, or correct the name",
            cel="!has(self.volumeMounts) || self.volumeMounts.all(m, has(self.volumes) && "
            "self.volumes.exists(v, v.name == m.name))",
            holds=lambda p: not _unknown_mounts(p),
            field="volumeMounts",
        ),
    )

    labels: Annotated[LabelMap, _NOT_OWN] | None = Field(
        default=None,
        description="Labels of the Pods, such as for cost accounting.",
        examples=[{"cost-center": "research"}],
    )
    annotations: (
        Annotated[
            dict[ShortText, Annotated[str, StringConstraints(max_length=4096)]],
            Field(max_length=32),
            keys_matching(LABEL_KEY, LABEL_KEY_MESSAGE.replace("of a label", "of an annotation")),
            _NOT_OWN,
        ]
        | None
    ) = Field(
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
