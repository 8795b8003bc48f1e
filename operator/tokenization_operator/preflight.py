"""What a cluster must serve before the operator can work."""

from __future__ import annotations

from typing import Any

from kubernetes.aio.client.exceptions import ApiException

from tokenization_worker.api.job import API_GROUP, VERSION

_NEEDED = {
    (API_GROUP, VERSION): "the CustomResourceDefinitions of this operator: helm upgrade, or kubectl apply -f crds/",
    ("ray.io", "v1"): "KubeRay 1.6 or newer",
}


async def find_missing(custom: Any, groups: tuple[tuple[str, str], ...] = tuple(_NEEDED)) -> list[str]:
    """What has to be installed first, in words; `custom`: an asynchronous `CustomObjectsApi`."""
    missing = []
    for group, version in groups:
        try:
            await custom.get_api_resources(group, version)
        except ApiException as error:
            if error.status != 404:
                raise
            missing.append(f"the API server does not serve {group}/{version}: install {_NEEDED[group, version]}")
    return missing


OWN_KINDS = ((API_GROUP, VERSION),)
KUBERAY = (("ray.io", "v1"),)
