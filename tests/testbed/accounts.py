"""Clients that are known as ServiceAccounts, so that their rights are those that somebody has given them."""

from __future__ import annotations

import json
from pathlib import Path

from kubernetes import client

_TOKEN_S = 3600


def make_token(api: client.ApiClient, namespace: str, account: str, pod: str | None = None) -> str:
    """A token of a ServiceAccount; `pod`: the one that it is made for, as the kubelet asks for it."""
    bound = pod and client.V1BoundObjectReference(api_version="v1", kind="Pod", name=pod)
    asked = client.AuthenticationV1TokenRequest(
        spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=_TOKEN_S, bound_object_ref=bound)
    )
    core = client.CoreV1Api(api)
    return str(core.create_namespaced_service_account_token(account, namespace, asked).status.token)


def account_kubeconfig(
    api: client.ApiClient, namespace: str, account: str, path: Path, *, server: str | None = None
) -> Path:
    """Write a file by which a process reaches the API server as that ServiceAccount; `server`: by another way."""
    token = make_token(api, namespace, account)
    cluster = {"server": server or api.configuration.host}
    if cluster["server"].startswith("https:"):
        cluster["certificate-authority"] = api.configuration.ssl_ca_cert
    path.touch(mode=0o600)
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "pod",
                "clusters": [{"name": "testbed", "cluster": cluster}],
                "users": [{"name": account, "user": {"token": token}}],
                "contexts": [
                    {"name": "pod", "context": {"cluster": "testbed", "user": account, "namespace": namespace}}
                ],
            }
        ),
        encoding="utf-8",
    )
    return path
