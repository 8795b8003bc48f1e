"""Keys and certificates of a cluster that lives for an hour, and the files by which clients are known to it."""

from __future__ import annotations

import json
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

ADMINS = "system:masters"
_SERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "127.0.0.1",
    "10.96.0.1",
)


class Authority:
    """The cluster's certificate authority, and all that it has signed, as files below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA()
        self._folder = folder
        self.certificate = folder / "ca.crt"
        self.key = folder / "ca.key"
        self.service_account_key = folder / "service-accounts.key"
        self._ca.cert_pem.write_to_path(self.certificate)
        self._ca.private_key_pem.write_to_path(self.key)
        self.service_account_key.write_bytes(_rsa_key())

    def server(self, name: str, address: str, group: str | None = None) -> tuple[Path, Path]:
        """Certificate and key of a server on this machine that Pods know as `kubernetes`."""
        return self._issue(name, group, *dict.fromkeys((*_SERVER_NAMES, address)))

    def client(self, name: str, group: str | None = None) -> tuple[Path, Path]:
        """Certificate and key of a user."""
        return self._issue(name, group, "client.testbed")  # Go refuses an empty list of names that is marked critical

    def kubeconfig(self, path: Path, server: str, user: str, group: str | None = None) -> Path:
        """Write a file by which clients reach `server` as `user`."""
        certificate, key = self.client(user, group)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "testbed",
            "clusters": [
                {"name": "testbed", "cluster": {"server": server, "certificate-authority": str(self.certificate)}}
            ],
            "users": [{"name": user, "user": {"client-certificate": str(certificate), "client-key": str(key)}}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=1), encoding="utf-8")  # JSON is YAML
        return path

    def _issue(self, name: str, group: str | None, *identities: str) -> tuple[Path, Path]:
        made = self._ca.issue_cert(*identities, common_name=name, organization_name=group)
        stem = name.replace(":", "-")
        certificate, key = self._folder / f"{stem}.crt", self._folder / f"{stem}.key"
        made.cert_chain_pems[0].write_to_path(certificate)
        key.touch(mode=0o600)
        made.private_key_pem.write_to_path(key)
        return certificate, key


def _rsa_key() -> bytes:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
