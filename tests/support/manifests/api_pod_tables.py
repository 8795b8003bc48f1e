"""What no Pod of a job may hold: manifests, the field that is at fault, and the words of both who refuse it."""

from __future__ import annotations

from typing import Any, NamedTuple

from support.manifests.api_manifests import Manifest


class PodMistake(NamedTuple):
    """A patch of the spec, the field that the error is about, and what its message holds."""

    patch: Manifest
    field: str
    words: str


def _resources(role: str, **resources: Any) -> Manifest:
    return {role: {"resources": resources}}


def _env(**variable: Any) -> Manifest:
    return {"env": [variable]}


def _pods(**fields: Any) -> Manifest:
    return {"pods": fields}


def _volume(**volume: Any) -> Manifest:
    return _pods(volumes=[{"name": "v", **volume}])


def _mount(path: str, **mount: Any) -> Manifest:
    return _pods(volumes=[{"name": "v", "emptyDir": {}}], volumeMounts=[{"name": "v", "mountPath": path, **mount}])


_QUANTITY = "write a Kubernetes quantity, such as 4, 500m or 16Gi"
_CHIPS = 'found "google.com/tpu"; workers.tpu asks for the chips'
_NAME = "write a name of lower-case letters, digits, - and ."
_IMAGE = "write REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:DIGEST"
_KEY = "the key of a label has at most 63 letters"
_VALUE = "the value of a label has at most 63 letters"
_OWN = "find their objects by this key: choose another one"
_MOUNT = "spec.pods.volumeMounts[0].mountPath"
_PATH = "write an absolute path such as /cache"
_ENV = "write a name of letters, digits, - _ and . that does not begin with a digit"

POD_MISTAKES: dict[str, PodMistake] = {
    # --- resources
    "cpu-unit": PodMistake(
        _resources("workers", requests={"cpu": "4cores"}), "spec.workers.resources.requests.cpu", _QUANTITY
    ),
    "memory-blank": PodMistake(
        _resources("head", limits={"memory": "8 GB"}), "spec.head.resources.limits.memory", _QUANTITY
    ),
    "memory-unit": PodMistake(
        _resources("head", limits={"memory": "8GB"}), "spec.head.resources.limits.memory", _QUANTITY
    ),
    "cpu-negative": PodMistake(
        _resources("workers", requests={"cpu": -1}), "spec.workers.resources.requests.cpu", _QUANTITY
    ),
    "cpu-negative-text": PodMistake(
        _resources("workers", requests={"cpu": "-500m"}), "spec.workers.resources.requests.cpu", _QUANTITY
    ),
    "memory-empty": PodMistake(
        _resources("workers", requests={"memory": ""}), "spec.workers.resources.requests.memory", _QUANTITY
    ),
    "limit-below": PodMistake(
        _resources("workers", requests={"memory": "8Gi"}, limits={"memory": "8G"}),
        "spec.workers.resources.limits",
        "found a limit of memory below its request; a limit is at least the request: raise the limit, or lower",
    ),
    "limit-below-cpu": PodMistake(
        _resources("head", requests={"cpu": 2}, limits={"cpu": "1900m"}),
        "spec.head.resources.limits",
        "found a limit of cpu below its request",
    ),
    "resource-name": PodMistake(
        _resources("workers", requests={"mem": "8Gi"}),
        "spec.workers.resources.requests",
        'found "mem"; the resources of a container are cpu, memory, ephemeral-storage',
    ),
    "chips-requested": PodMistake(
        _resources("workers", requests={"google.com/tpu": 4}), "spec.workers.resources.requests", _CHIPS
    ),
    "chips-limited": PodMistake(
        _resources("workers", limits={"google.com/tpu": "4"}), "spec.workers.resources.limits", _CHIPS
    ),
    "chips-of-head": PodMistake(_resources("head", limits={"google.com/tpu": 8}), "spec.head.resources.limits", _CHIPS),
    "device-without-limit": PodMistake(
        _resources("workers", requests={"example.com/device": 1}),
        "spec.workers.resources.requests",
        "a device has a limit, and a request only if it is equal",
    ),
    "device-over-limit": PodMistake(
        _resources("workers", requests={"example.com/device": 1}, limits={"example.com/device": 2}),
        "spec.workers.resources.requests",
        "a device has a limit, and a request only if it is equal",
    ),
    # --- images and names
    "image-blank": PodMistake({"image": "my image:latest"}, "spec.image", _IMAGE),
    "image-upper": PodMistake({"image": "registry.example/Team/worker:1"}, "spec.image", _IMAGE),
    "image-upper-alone": PodMistake({"image": "Worker:1"}, "spec.image", _IMAGE),
    "image-digest": PodMistake({"image": "registry.example/worker@sha256:0123"}, "spec.image", _IMAGE),
    "image-scheme": PodMistake({"image": "https://registry.example/worker:1"}, "spec.image", _IMAGE),
    "image-tag": PodMistake({"image": "registry.example/worker:"}, "spec.image", _IMAGE),
    "pull-secret": PodMistake({"imagePullSecrets": [{"name": "My_Secret"}]}, "spec.imagePullSecrets[0].name", _NAME),
    "account": PodMistake({"serviceAccountName": "Tokenization Worker"}, "spec.serviceAccountName", _NAME),
    "account-of-google": PodMistake(
        {"serviceAccountName": "worker@project.iam.gserviceaccount.com"}, "spec.serviceAccountName", _NAME
    ),
    "priority-class": PodMistake({"workers": {"priorityClassName": "High"}}, "spec.workers.priorityClassName", _NAME),
    "priority-class-of-head": PodMistake(
        {"head": {"priorityClassName": "batch_low"}}, "spec.head.priorityClassName", _NAME
    ),
    "reservation-name": PodMistake(
        {"workers": {"capacity": "Reservation", "reservationName": "projects/a/reservations/b"}},
        "spec.workers.reservationName",
        "write the name of the reservation alone, without its project",
    ),
    # --- nodes
    "selector-key": PodMistake(
        {"workers": {"nodeSelector": {"node pool": "a"}}}, "spec.workers.nodeSelector", f'found "node pool"; {_KEY}'
    ),
    "selector-domain": PodMistake(
        {"head": {"nodeSelector": {"Example.com/pool": "a"}}},
        "spec.head.nodeSelector",
        f'found "Example.com/pool"; {_KEY}',
    ),
    "selector-value": PodMistake(
        {"workers": {"nodeSelector": {"pool": "a b"}}}, "spec.workers.nodeSelector.pool", _VALUE
    ),
    "selector-long": PodMistake(
        {"workers": {"nodeSelector": {"pool": "a" * 64}}}, "spec.workers.nodeSelector.pool", _VALUE
    ),
    # --- environment
    "env-digit": PodMistake(_env(name="1A", value="x"), "spec.env[0].name", _ENV),
    "env-blank": PodMistake(_env(name="HF TOKEN", value="x"), "spec.env[0].name", _ENV),
    "env-assignment": PodMistake(_env(name="A=b"), "spec.env[0].name", _ENV),
    "env-secret": PodMistake(
        _env(name="A", valueFrom={"secretKeyRef": {"name": "Hugging Face", "key": "token"}}),
        "spec.env[0].valueFrom.secretKeyRef.name",
        _NAME,
    ),
    "env-key": PodMistake(
        _env(name="A", valueFrom={"configMapKeyRef": {"name": "a", "key": "a/b"}}),
        "spec.env[0].valueFrom.configMapKeyRef.key",
        "write a key of letters, digits, - _ and .",
    ),
    "env-field": PodMistake(
        _env(name="A", valueFrom={"fieldRef": {"fieldPath": "status.nodeName"}}),
        "spec.env[0].valueFrom.fieldRef.fieldPath",
        "spec.nodeName, spec.serviceAccountName, status.hostIP or status.podIP",
    ),
    "env-from-name": PodMistake({"envFrom": [{"secretRef": {"name": "A b"}}]}, "spec.envFrom[0].secretRef.name", _NAME),
    "env-from-prefix": PodMistake(
        {"envFrom": [{"prefix": "1 ", "configMapRef": {"name": "a"}}]}, "spec.envFrom[0].prefix", _ENV
    ),
    # --- pods
    "label-own": PodMistake(
        _pods(labels={"tokenization.dev/job": "other"}),
        "spec.pods.labels",
        'found "tokenization.dev/job"; the',
    ),
    "label-ray": PodMistake(_pods(labels={"ray.io/node-type": "head"}), "spec.pods.labels", _OWN),
    "label-kueue": PodMistake(
        _pods(labels={"kueue.x-k8s.io/queue-name": "q"}),
        "spec.pods.labels",
        "labels for Kueue stand in metadata",
    ),
    "label-argo": PodMistake(_pods(labels={"app.kubernetes.io/instance": "app"}), "spec.pods.labels", _OWN),
    "label-name": PodMistake(_pods(labels={"app.kubernetes.io/name": "corpus"}), "spec.pods.labels", _OWN),
    "label-creator": PodMistake(_pods(labels={"app.kubernetes.io/created-by": "me"}), "spec.pods.labels", _OWN),
    "label-job": PodMistake(_pods(labels={"job-name": "x"}), "spec.pods.labels", _OWN),
    "label-key": PodMistake(_pods(labels={"cost center": "x"}), "spec.pods.labels", f'found "cost center"; {_KEY}'),
    "label-value": PodMistake(_pods(labels={"team": "a/b"}), "spec.pods.labels.team", _VALUE),
    "annotation-own": PodMistake(
        _pods(annotations={"ray.io/overwrite-container-cmd": "true"}), "spec.pods.annotations", _OWN
    ),
    "annotation-argo": PodMistake(_pods(annotations={"argocd.argoproj.io/a": "a"}), "spec.pods.annotations", _OWN),
    "annotation-key": PodMistake(
        _pods(annotations={"a b": "x"}), "spec.pods.annotations", "the key of an annotation has at most 63 letters"
    ),
    "volume-host": PodMistake(
        _volume(hostPath={"path": "/data"}),
        "spec.pods.volumes[0].hostPath",
        "a path of the node may not be mounted: the restricted Pod Security standard refuses such Pods",
    ),
    "volume-none": PodMistake(_volume(), "spec.pods.volumes[0]", "write one of configMap, secret, emptyDir"),
    "volume-own": PodMistake(
        _pods(volumes=[{"name": "tmp", "emptyDir": {}}]), "spec.pods.volumes[0].name", "the names tmp, token, shm"
    ),
    "volume-name": PodMistake(
        _pods(volumes=[{"name": "My.Cache", "emptyDir": {}}]),
        "spec.pods.volumes[0].name",
        "write a name of lower-case letters, digits and - that begins",
    ),
    "mount-tmp": PodMistake(
        _mount("/tmp/cache"),
        _MOUNT,
        "a mount may not be in, or hold, one of the folders",
    ),
    "mount-token": PodMistake(
        _mount("/var/run/secrets/kubernetes.io/serviceaccount"),
        _MOUNT,
        "one of the folders that every Pod has: /tmp, /dev/shm",
    ),
    "mount-above-token": PodMistake(_mount("/var"), _MOUNT, "a mount may not be in, or"),
    "mount-run": PodMistake(_mount("/run/secrets"), _MOUNT, "a mount may not be in, or"),
    "mount-shm": PodMistake(_mount("/dev/shm"), _MOUNT, "a mount may not be in, or"),
    "mount-root": PodMistake(_mount("/"), _MOUNT, _PATH),
    "mount-relative": PodMistake(_mount("cache"), _MOUNT, _PATH),
    "mount-dots": PodMistake(_mount("/a/../tmp"), _MOUNT, _PATH),
    "mount-slash": PodMistake(_mount("/tmp/"), _MOUNT, _PATH),
    "temporary-size": PodMistake(
        _pods(temporaryVolume={"sizeLimit": "ten"}), "spec.pods.temporaryVolume.sizeLimit", _QUANTITY
    ),
}

EVERY_VOLUME: list[Manifest] = [
    {"name": "company-ca", "configMap": {"name": "company-ca", "items": [{"key": "ca.crt", "path": "a/ca.crt"}]}},
    {"name": "login", "secret": {"secretName": "login", "optional": True, "defaultMode": 256}},
    {"name": "cache", "emptyDir": {"sizeLimit": "50Gi"}},
    {"name": "fast", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    {"name": "corpus", "persistentVolumeClaim": {"claimName": "corpus", "readOnly": True}},
    {
        "name": "identity",
        "projected": {
            "sources": [
                {"serviceAccountToken": {"audience": "sts.example.com", "expirationSeconds": 3600, "path": "token"}},
                {"configMap": {"name": "company-ca"}},
                {"secret": {"name": "login", "optional": True}},
                {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            ]
        },
    },
    {
        "name": "disk",
        "ephemeral": {
            "volumeClaimTemplate": {
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "premium-rwo",
                    "resources": {"requests": {"storage": "200Gi"}},
                }
            }
        },
    },
    {
        "name": "bucket",
        "csi": {
            "driver": "gcsfuse.csi.storage.gke.io",
            "readOnly": True,
            "volumeAttributes": {"bucketName": "corpus"},
            "nodePublishSecretRef": {"name": "login"},
        },
    },
    {"name": "about", "downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
]
"""One of each kind that there is."""

EVERYTHING: Manifest = {
    "pods": {
        "labels": {"cost-center": "research", "sidecar.istio.io/inject": "false", "empty": ""},
        "annotations": {"gke-gcsfuse/volumes": "true", "note": "any text, also ünïcode"},
        "volumes": EVERY_VOLUME,
        "volumeMounts": [
            {"name": each["name"], "mountPath": f"/mnt/{each['name']}", "readOnly": True} for each in EVERY_VOLUME
        ],
        "temporaryVolume": {"sizeLimit": "50Gi"},
    }
}

PODS_ACCEPTED: dict[str, Manifest] = {
    "quantities": _resources("workers", requests={"cpu": "0.5", "memory": 1024}, limits={"cpu": "1500m"}),
    "limits": _resources("head", requests={"memory": "1024Mi", "cpu": 2}, limits={"memory": "1Gi", "cpu": "2000m"}),
    "device": _resources("workers", requests={"example.com/device": 1}, limits={"example.com/device": "1"}),
    "overcommitted": _resources("workers", requests={"kubernetes.io/batch-cpu": 1}),
    "storage": _resources("workers", requests={"ephemeral-storage": "10Gi"}, limits={"hugepages-2Mi": "4Mi"}),
    "image": {"image": "worker"},
    "image-tag": {"image": "localhost:5000/team/token_worker:v1.2-rc.1"},
    "image-digest": {"image": f"europe-docker.pkg.dev/p/r/w:1@sha256:{'0a' * 32}"},
    "image-registry": {"image": "Registry.Example.com:443/a/b__c/d-e"},
    "selector": {"head": {"nodeSelector": {"cloud.google.com/gke-nodepool": "A_b.c", "x": ""}}},
    "tolerations": {
        "workers": {
            "tolerations": [
                {"operator": "Exists"},
                {"key": "a", "operator": "Exists", "value": ""},
                {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 30},
                {"key": "example.com/a", "operator": "Equal", "effect": "PreferNoSchedule"},
            ]
        }
    },
    "unchecked": {
        "workers": {
            "affinity": {"nodeAffinity": {"any": [{"shape": None}]}},
            "topologySpreadConstraints": [{"maxSkew": 1}],
            "schedulerName": "volcano",
            "runtimeClassName": "gvisor",
        }
    },
    "names": {
        "serviceAccountName": "team.worker-1",
        "imagePullSecrets": [{"name": "a.b-c"}],
        "env": [{"name": "_a-b.C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}}],
        "envFrom": [{"prefix": "APP_", "secretRef": {"name": "x"}}],
    },
    "pods": EVERYTHING,
    "mounts": _mount("/tmpx/.cache/v1..2", subPath="a/.b"),
}
