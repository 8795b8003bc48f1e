"""`tokjob namespace-manifest`: what a namespace needs before jobs can run in it."""

from __future__ import annotations

import argparse
import re
from typing import Any

import yaml

from tokenization_worker.api.job import WORKER_ACCOUNT
from tokenization_worker.api.metadata import API_GROUP

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def main(arguments: list[str]) -> int:
    """Print the objects as YAML."""
    parser = argparse.ArgumentParser(
        prog="tokjob namespace-manifest",
        description="Print what a namespace needs before TokenizationJobs can run in it: the ServiceAccount of their "
        "Pods, and its right to report. For kubectl apply -f -",
    )
    parser.add_argument("namespace", type=_name, help="it must exist")
    parser.add_argument(
        "--service-account", type=_name, default=WORKER_ACCOUNT, metavar="NAME", help=f"({WORKER_ACCOUNT})"
    )
    parser.add_argument(
        "--annotation",
        action="append",
        default=[],
        type=_annotation,
        metavar="KEY=VALUE",
        help="of the ServiceAccount, such as iam.gke.io/gcp-service-account=NAME@PROJECT.iam.gserviceaccount.com",
    )
    options = parser.parse_args(arguments)
    objects = namespace_objects(options.namespace, options.service_account, dict(options.annotation))
    print(yaml.safe_dump_all(objects, sort_keys=False), end="")
    return 0


def _name(text: str) -> str:
    if _NAME.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no name: expected lower case letters, digits and '-'")
    return text


def _annotation(text: str) -> tuple[str, str]:
    key, is_there, value = text.partition("=")
    if not key or not is_there:
        raise argparse.ArgumentTypeError(f"{text!r} is no annotation: expected KEY=VALUE")
    return key, value


def namespace_objects(namespace: str, account: str, annotations: dict[str, str]) -> list[dict[str, Any]]:
    """ServiceAccount, Role and RoleBinding of the Pods of jobs."""
    metadata = {"name": account, "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {**metadata, **({"annotations": annotations} if annotations else {})},
            "automountServiceAccountToken": False,
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": [
                {"apiGroups": [API_GROUP], "resources": ["tokenizationcheckpoints"], "verbs": ["get"]},
                {"apiGroups": [API_GROUP], "resources": ["tokenizationcheckpoints/status"], "verbs": ["patch"]},
            ],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": account},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        },
    ]
