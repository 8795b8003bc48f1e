"""Checks that the cluster serves the kinds that the operator needs."""

from __future__ import annotations

from typing import Any

from kubernetes.aio import client
from kubernetes.aio.client.exceptions import ApiException

from tokenization_operator.objects.kinds import PLACES, Kind

OWN_KINDS, KUBERAY = PLACES[Kind.JOB][:2], PLACES[Kind.RAY_JOB][:2]
"""API group and version of the operator's kinds, and of RayJobs."""

_NEEDED = {
    OWN_KINDS: "the CustomResourceDefinitions of this operator: helm upgrade, or kubectl apply -f crds/",
    KUBERAY: "KubeRay 1.6 or newer",
}


async def find_missing(api: client.ApiClient, *groups: tuple[str, str]) -> list[str]:
    """What must be installed first, as messages; checks `groups`, or all that are needed."""
    custom: Any = client.CustomObjectsApi(api)
    missing = []
    for group, version in groups or _NEEDED:
        try:
            await custom.get_api_resources(group, version)
        except ApiException as error:
            if error.status != 404:
                raise
            missing.append(f"the API server does not serve {group}/{version}: install {_NEEDED[group, version]}")
    return missing
