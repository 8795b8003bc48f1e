"""Clients that are known as ServiceAccounts, so that their rights are those that somebody has given them."""

from __future__ import annotations

import json
from pathlib import Path

from kubernetes import client

_TOKEN_S = 3600


def account_kubeconfig(
    api: client.ApiClient, namespace: str, account: str, path: Path, *, server: str | None = None
) -> Path:
    """Write a file by which a process reaches the API server as that ServiceAccount; `server`: by another way."""
    asked = client.AuthenticationV1TokenRequest(
        spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=_TOKEN_S)
    )
    core = client.CoreV1Api(api)
    token = core.create_namespaced_service_account_token(account, namespace, asked).status.token
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
