"""Volumes that a job mounts into its Pods, in the shapes of Kubernetes core v1.

Owns which kinds of volumes there are: those that a namespace of the restricted Pod Security standard admits. Where they
may be mounted is a rule, too: never over the folders that every Pod of a job has.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field, Strict, StringConstraints

from tokenization_worker.api.pod.resources import ResourceQuantity
from tokenization_worker.api.types.fields import Flag, ShortText, Text
from tokenization_worker.api.types.kubernetes_names import DnsLabel, DnsName, KeyName, matching
from tokenization_worker.api.types.model import FORBIDDEN, Rule, SpecBlock

OWN_VOLUMES: Final = ("tmp", "token", "shm", "shared-mem", "ray-logs")
"""Names of volumes that the operator and KubeRay add."""

OWN_FOLDERS: Final = ("/tmp", "/dev/shm", "/var/run/secrets", "/run/secrets")
"""What is mounted in every Pod; `/var/run` is a link to `/run`."""

_PATH = r"^(/[A-Za-z0-9_@%+=,-][A-Za-z0-9._@%+=,-]*|/[.][A-Za-z0-9_@%+=,-][A-Za-z0-9._@%+=,-]*)+$"
_INNER_PATH = r"^([^/.][^/]*|[.][^/.][^/]*)(/([^/.][^/]*|[.][^/.][^/]*))*$"

FileMode = Annotated[int, Strict(), Field(ge=0, le=0o777)]
InnerPath = Annotated[
    ShortText,
    matching(_INNER_PATH, "write a path below the volume, without a leading /, and without . or .. as a part"),
]


def _overlaps(path: str) -> bool:
    return any(f"{path}/".startswith(f"{own}/") or f"{own}/".startswith(f"{path}/") for own in OWN_FOLDERS)


def only_one(cel_names: tuple[str, ...], names: tuple[str, ...], n_named: int | None = None) -> Rule:
    """Return the rule that a block has exactly one of these fields; the message names the first `n_named` of them."""
    cel_names, every = cel_names[:n_named], cel_names
    listed = f"{', '.join(cel_names[:-1])} and {cel_names[-1]}"
    return Rule(
        f"write exactly one of {listed}",
        cel=f"[{', '.join(f'has(self.{name})' for name in every)}].filter(x, x).size() == 1",
        holds=lambda block: sum(getattr(block, name) is not None for name in names) == 1,
    )


class VolumeItem(SpecBlock):
    """One key of a Secret or ConfigMap as a file."""

    key: KeyName = Field(description="The key.", examples=["ca.crt"])
    path: InnerPath = Field(description="The file, below the volume.", examples=["ca.crt"])
    mode: FileMode | None = Field(default=None, description="Its permissions, as a decimal number.", examples=[256])


class VolumeFieldSelector(SpecBlock):
    """A field of the Pod's metadata."""

    field_path: Annotated[
        ShortText,
        matching(
            r"^metadata\.(name|namespace|uid|labels|annotations)(\[\x27[^\x27]+\x27\])?$",
            "write metadata.labels, metadata.annotations, metadata.name, metadata.namespace or metadata.uid",
        ),
    ] = Field(description="The field.", examples=["metadata.labels"])


class PodFieldItem(SpecBlock):
    """A field of the Pod as a file."""

    path: InnerPath = Field(description="The file, below the volume.", examples=["labels"])
    field_ref: VolumeFieldSelector = Field(description="The field.", examples=[{"fieldPath": "metadata.labels"}])


Items = Annotated[list[VolumeItem], Field(max_length=16)]
PodFieldItems = Annotated[list[PodFieldItem], Field(max_length=16)]


class ConfigMapVolume(SpecBlock):
    """The keys of a ConfigMap as files."""

    name: DnsName = Field(description="The ConfigMap.", examples=["company-ca"])
    items: Items | None = Field(
        default=None, description="Only these keys.", examples=[[{"key": "ca.crt", "path": "ca.crt"}]]
    )
    optional: Flag | None = Field(default=None, description="Start also if it does not exist.", examples=[True])
    default_mode: FileMode | None = Field(
        default=None, description="The permissions of the files, as a decimal number.", examples=[288]
    )


class SecretVolume(SpecBlock):
    """The keys of a Secret as files."""

    secret_name: DnsName = Field(description="The Secret.", examples=["mirror-login"])
    items: Items | None = Field(
        default=None, description="Only these keys.", examples=[[{"key": "password", "path": "password"}]]
    )
    optional: Flag | None = Field(default=None, description="Start also if it does not exist.", examples=[True])
    default_mode: FileMode | None = Field(
        default=None, description="The permissions of the files, as a decimal number.", examples=[288]
    )


class EmptyDirVolume(SpecBlock):
    """A folder that lives as long as its Pod."""

    medium: Annotated[ShortText, matching("^Memory$", "write Memory, or leave it out: the node's disk")] | None = Field(
        default=None,
        description="Memory: the files count as memory of the container. Absent: the node's disk.",
        examples=["Memory"],
    )
    size_limit: ResourceQuantity | None = Field(
        default=None, description="Kubernetes evicts a Pod that writes more.", examples=["50Gi"]
    )


class ClaimVolume(SpecBlock):
    """A PersistentVolumeClaim of the job's namespace. Pods on several nodes need an access mode for many nodes."""

    claim_name: DnsName = Field(description="The PersistentVolumeClaim.", examples=["corpus"])
    read_only: Flag | None = Field(default=None, description="Mount it read-only.", examples=[True])


class NamedItems(SpecBlock):
    """A Secret or ConfigMap in a projected volume."""

    name: DnsName = Field(description="The Secret or ConfigMap.", examples=["company-ca"])
    items: Items | None = Field(
        default=None, description="Only these keys.", examples=[[{"key": "ca.crt", "path": "ca.crt"}]]
    )
    optional: Flag | None = Field(default=None, description="Start also if it does not exist.", examples=[True])


class TokenSource(SpecBlock):
    """A token of the Pods' ServiceAccount, for another service than the API server."""

    audience: ShortText = Field(
        description="The recipient of the token. Workers have no token for the API server.",
        examples=["sts.example.com"],
    )
    expiration_seconds: Annotated[int, Strict(), Field(ge=600, le=2**31 - 1)] | None = Field(
        default=None, description="How long it is valid, in seconds.", examples=[3600]
    )
    path: InnerPath = Field(description="The file, below the volume.", examples=["token"])


class PodFields(SpecBlock):
    """Fields of the Pod as files."""

    items: PodFieldItems = Field(
        description="The fields.", examples=[[{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]]
    )


class ProjectedSource(SpecBlock):
    """One part of a projected volume."""

    rules: ClassVar[tuple[Rule, ...]] = (
        only_one(
            ("configMap", "secret", "downwardAPI", "serviceAccountToken"),
            ("config_map", "secret", "downward_api", "service_account_token"),
        ),
    )

    config_map: NamedItems | None = Field(default=None, description="A ConfigMap.", examples=[{"name": "company-ca"}])
    secret: NamedItems | None = Field(default=None, description="A Secret.", examples=[{"name": "mirror-login"}])
    downward_api: PodFields | None = Field(default=None, alias="downwardAPI", description="Fields of the Pod.")
    service_account_token: TokenSource | None = Field(
        default=None, description="A token for another service.", examples=[{"audience": "sts.example.com"}]
    )


class ProjectedVolume(SpecBlock):
    """Several sources in one folder."""

    sources: Annotated[list[ProjectedSource], Field(max_length=8)] = Field(
        description="The sources.", examples=[[{"configMap": {"name": "company-ca"}}]]
    )
    default_mode: FileMode | None = Field(
        default=None, description="The permissions of the files, as a decimal number.", examples=[288]
    )


class Storage(SpecBlock):
    """An amount of storage."""

    storage: ResourceQuantity = Field(description="The size of the disk.", examples=["200Gi"])


class ClaimResources(SpecBlock):
    """The size of a claim."""

    requests: Storage = Field(description="The size.", examples=[{"storage": "200Gi"}])


class ClaimSpec(SpecBlock):
    """A claim that is made with each Pod, and goes with it."""

    access_modes: Annotated[list[ShortText], Field(min_length=1, max_length=4)] = Field(
        description="How it is used.", examples=[["ReadWriteOnce"]]
    )
    storage_class_name: DnsName | None = Field(
        default=None, description="The StorageClass. Absent: the cluster's default.", examples=["premium-rwo"]
    )
    resources: ClaimResources = Field(description="Its size.", examples=[{"requests": {"storage": "200Gi"}}])


class ClaimTemplate(SpecBlock):
    """The template of each Pod's claim."""

    spec: ClaimSpec = Field(description="The claim.")


class EphemeralVolume(SpecBlock):
    """A disk of its own for each Pod, which goes with it."""

    volume_claim_template: ClaimTemplate = Field(description="The template of each Pod's claim.")


class LocalObject(SpecBlock):
    """An object of the job's namespace."""

    name: DnsName = Field(description="Its name.", examples=["driver-login"])


class CsiVolume(SpecBlock):
    """A volume of a CSI driver that lives as long as its Pod."""

    driver: DnsName = Field(description="The driver.", examples=["gcsfuse.csi.storage.gke.io"])
    read_only: Flag | None = Field(default=None, description="Mount it read-only.", examples=[True])
    fs_type: ShortText | None = Field(default=None, description="The file system.", examples=["ext4"])
    volume_attributes: (
        Annotated[dict[ShortText, Annotated[str, StringConstraints(max_length=1024)]], Field(max_length=32)] | None
    ) = Field(default=None, description="Parameters of the driver.", examples=[{"bucketName": "corpus"}])
    node_publish_secret_ref: LocalObject | None = Field(
        default=None, description="A Secret for the driver.", examples=[{"name": "driver-login"}]
    )


class HostPath(SpecBlock):
    """A path of the node, which no Pod of a job may mount."""

    path: Text | None = Field(default=None, description="Refused.", examples=["/data"])
    type: ShortText | None = Field(default=None, description="Refused.", examples=["Directory"])


class Volume(SpecBlock):
    """A volume of the Pods: a name, and exactly one kind."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "a path of the node may not be mounted: the restricted Pod Security standard refuses such Pods. Use "
            "persistentVolumeClaim, ephemeral or csi",
            cel="!has(self.hostPath)",
            holds=lambda v: v.host_path is None,
            field="hostPath",
            reason=FORBIDDEN,
        ),
        only_one(
            (
                *("configMap", "secret", "emptyDir", "persistentVolumeClaim"),
                *("projected", "ephemeral", "csi", "downwardAPI", "hostPath"),
            ),
            (
                *("config_map", "secret", "empty_dir", "persistent_volume_claim"),
                *("projected", "ephemeral", "csi", "downward_api", "host_path"),
            ),
            n_named=-1,
        ),
        Rule(
            f"the names {', '.join(OWN_VOLUMES)} are taken: choose another one",
            cel=f"!(self.name in {list(OWN_VOLUMES)})",
            holds=lambda v: v.name not in OWN_VOLUMES,
            field="name",
        ),
    )

    name: DnsLabel = Field(description="Its name, for volumeMounts.", examples=["cache"])
    config_map: ConfigMapVolume | None = Field(
        default=None, description="The keys of a ConfigMap as files.", examples=[{"name": "company-ca"}]
    )
    secret: SecretVolume | None = Field(
        default=None, description="The keys of a Secret as files.", examples=[{"secretName": "mirror-login"}]
    )
    empty_dir: EmptyDirVolume | None = Field(
        default=None, description="A folder that lives as long as its Pod.", examples=[{"sizeLimit": "50Gi"}]
    )
    persistent_volume_claim: ClaimVolume | None = Field(
        default=None,
        description="A claim of the namespace. Its access mode must allow Pods on several nodes.",
        examples=[{"claimName": "corpus", "readOnly": True}],
    )
    projected: ProjectedVolume | None = Field(
        default=None,
        description="Several sources in one folder.",
        examples=[{"sources": [{"configMap": {"name": "company-ca"}}]}],
    )
    ephemeral: EphemeralVolume | None = Field(default=None, description="A disk of its own for each Pod.")
    csi: CsiVolume | None = Field(
        default=None,
        description="A volume of a CSI driver that lives as long as its Pod.",
        examples=[{"driver": "gcsfuse.csi.storage.gke.io", "readOnly": True}],
    )
    downward_api: PodFields | None = Field(default=None, alias="downwardAPI", description="Fields of the Pod as files.")
    host_path: HostPath | None = Field(
        default=None, description="Refused: the restricted Pod Security standard admits no Pod with it."
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

    name: DnsLabel = Field(description="The volume.", examples=["cache"])
    mount_path: Annotated[
        Text,
        matching(
            _PATH,
            "write an absolute path such as /cache, of letters, digits and . _ @ % + = , - without . or .. as a part "
            "and without a / at the end",
        ),
    ] = Field(description="The folder.", examples=["/cache"])
    sub_path: InnerPath | None = Field(
        default=None, description="Mount only this part of the volume.", examples=["tokenizers"]
    )
    read_only: Flag | None = Field(default=None, description="Mount it read-only.", examples=[True])
