"""Volumes that a job mounts into its Pods, as Kubernetes core v1 writes them.

Owns which kinds of volumes there are: those that a namespace of the restricted Pod Security standard admits. Where they
may be mounted is a rule, too: never over the folders that every Pod of a job has. The rest of a volume is passed on:
the API server checks it when it tries the Pods of a job.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from tokenization_worker.api.types.fields import Flag, KubernetesObject, ShortText, Text
from tokenization_worker.api.types.kubernetes_names import DnsLabel, matching
from tokenization_worker.api.types.model import FORBIDDEN, Rule, SpecBlock

OWN_VOLUMES: Final = ("tmp", "token", "shm", "shared-mem", "ray-logs")
"""Names of volumes that the operator and KubeRay add."""

OWN_FOLDERS: Final = ("/tmp", "/dev/shm", "/var/run/secrets", "/run/secrets")
"""What is mounted in every Pod; `/var/run` is a link to `/run`."""

_KINDS = (
    *("configMap", "secret", "emptyDir", "persistentVolumeClaim"),
    *("projected", "ephemeral", "csi", "downwardAPI"),
)
_PATH = r"^(/[A-Za-z0-9_@%+=,-][A-Za-z0-9._@%+=,-]*|/[.][A-Za-z0-9_@%+=,-][A-Za-z0-9._@%+=,-]*)+$"


def _overlaps(path: str) -> bool:
    return any(f"{path}/".startswith(f"{own}/") or f"{own}/".startswith(f"{path}/") for own in OWN_FOLDERS)


class Volume(SpecBlock):
    """A volume of the Pods: a name, and one kind."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "a path of the node may not be mounted: the restricted Pod Security standard refuses such Pods. Use "
            "persistentVolumeClaim, ephemeral or csi",
            cel="!has(self.hostPath)",
            holds=lambda v: v.host_path is None,
            field="hostPath",
            reason=FORBIDDEN,
        ),
        Rule(
            f"write one of {', '.join(_KINDS)}: Kubernetes takes a volume without a kind for an empty folder",
            cel=f"[{', '.join(f'has(self.{kind})' for kind in (*_KINDS, 'hostPath'))}].exists(each, each)",
            holds=lambda v: v.model_fields_set != {"name"},
            is_for_new=True,
        ),
        Rule(
            f"the names {', '.join(OWN_VOLUMES)} are taken: choose another one",
            cel=f"!(self.name in {list(OWN_VOLUMES)})",
            holds=lambda v: v.name not in OWN_VOLUMES,
            field="name",
        ),
    )

    name: DnsLabel = Field(description="Its name, for volumeMounts.", examples=["cache"])
    config_map: KubernetesObject | None = Field(
        default=None, description="The keys of a ConfigMap as files.", examples=[{"name": "company-ca"}]
    )
    secret: KubernetesObject | None = Field(
        default=None, description="The keys of a Secret as files.", examples=[{"secretName": "mirror-login"}]
    )
    empty_dir: KubernetesObject | None = Field(
        default=None, description="A folder that lives as long as its Pod.", examples=[{"sizeLimit": "50Gi"}]
    )
    persistent_volume_claim: KubernetesObject | None = Field(
        default=None,
        description="A claim of the namespace. Its access mode must allow Pods on several nodes.",
        examples=[{"claimName": "corpus", "readOnly": True}],
    )
    projected: KubernetesObject | None = Field(
        default=None,
        description="Several sources in one folder.",
        examples=[{"sources": [{"configMap": {"name": "company-ca"}}]}],
    )
    ephemeral: KubernetesObject | None = Field(
        default=None,
        description="A disk of its own for each Pod.",
        examples=[
            {
                "volumeClaimTemplate": {
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "200Gi"}}}
                }
            }
        ],
    )
    csi: KubernetesObject | None = Field(
        default=None,
        description="A volume of a CSI driver that lives as long as its Pod.",
        examples=[{"driver": "gcsfuse.csi.storage.gke.io", "readOnly": True}],
    )
    downward_api: KubernetesObject | None = Field(
        default=None,
        alias="downwardAPI",
        description="Fields of the Pod as files.",
        examples=[{"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}],
    )
    host_path: KubernetesObject | None = Field(
        default=None,
        description="Refused: the restricted Pod Security standard admits no Pod with it.",
        examples=[{"path": "/data"}],
    )


class VolumeMount(SpecBlock):
    """Where a volume stands in the Pods."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"a mount may not be in, or hold, one of the folders that every Pod has: {', '.join(OWN_FOLDERS)}",
            cel=f"self.mountPath.endsWith('/') || !{list(OWN_FOLDERS)}.exists(own, "
            "(self.mountPath + '/').startsWith(own + '/') || (own + '/').startsWith(self.mountPath + '/'))",
            holds=lambda m: not _overlaps(m.mount_path),
            field="mountPath",
            reason=FORBIDDEN,
        ),
    )

    name: ShortText = Field(description="The volume.", examples=["cache"])
    mount_path: Annotated[
        Text,
        matching(
            _PATH,
            "write an absolute path such as /cache, of letters, digits and . _ @ % + = , - without . or .. as a part "
            "and without a / at the end",
        ),
    ] = Field(description="The folder.", examples=["/cache"])
    sub_path: Text | None = Field(
        default=None, description="Mount only this part of the volume.", examples=["tokenizers"]
    )
    read_only: Flag | None = Field(default=None, description="Mount it read-only.", examples=[True])
