"""The operator and the Pods of jobs under the rules of OpenShift's SCC `restricted-v2`, written as a policy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes import client

from support.cluster.jobs import Jobs, local_spec, wait_for
from support.cluster.operators import Release, operator_pod
from testbed.cluster import Testbed

pytestmark = pytest.mark.testbed

VALUES = (
    "operator.podSecurityContext.runAsUser=null",
    "operator.podSecurityContext.runAsGroup=null",
    "jobPods.userId=null",
)
"""Those of docs/security.md."""

_CONTAINERS = "(object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : []))"
_KINDS = ("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret")
RULES = {
    "the ID of a user or a group is not in the range 1000710000 to 1000719999": (
        "[object.spec.securityContext.?runAsUser, object.spec.securityContext.?runAsGroup, "
        "object.spec.securityContext.?fsGroup].all(id, !id.hasValue() || (id.value() >= 1000710000 && "
        "id.value() <= 1000719999))"
    ),
    "a container has an ID of its own": f"{_CONTAINERS}.all(c, !has(c.securityContext.runAsUser))",
    "a container may become root": (
        f"object.spec.securityContext.?runAsNonRoot.orValue(false) && {_CONTAINERS}.all(c, "
        "c.securityContext.?allowPrivilegeEscalation.orValue(true) == false && "
        "!c.securityContext.?privileged.orValue(false) && "
        "c.securityContext.?capabilities.?drop.orValue([]).exists(each, each == 'ALL'))"
    ),
    "seccomp is not RuntimeDefault": (
        "object.spec.securityContext.?seccompProfile.?type.orValue('') == 'RuntimeDefault'"
    ),
    "a namespace of the node is used": (
        "!object.spec.?hostNetwork.orValue(false) && !object.spec.?hostPID.orValue(false) && "
        "!object.spec.?hostIPC.orValue(false)"
    ),
    "a volume is of a kind that is not allowed": "object.spec.volumes.all(v, "
    + " || ".join(f"has(v.{kind})" for kind in _KINDS)
    + ")",
}


@pytest.fixture
def restricted(bed: Testbed, namespace: str) -> Iterator[str]:
    """A namespace whose Pods the policy checks."""
    name = f"restricted-{namespace}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": expression, "message": message} for message, expression in RULES.items()],
    }
    spaces = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": spaces}
    group = "admissionregistration.k8s.io/v1"
    bed.apply(
        {"apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec},
        {"apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": binding},
    )
    yield namespace
    bed.kubectl("delete", "validatingadmissionpolicybinding", name)
    bed.kubectl("delete", "validatingadmissionpolicy", name)


def test_the_operator_and_jobs_are_admitted_with_the_values_of_the_docs_alone(
    restricted: str, bed: Testbed, api: client.ApiClient, tmp_path: Path
) -> None:
    def create(*values: str) -> str:
        """The API server's objection to the operator's Pod."""
        text = yaml.safe_dump(operator_pod(restricted, *values))
        return bed.kubectl("create", "--dry-run=server", "-f", "-", text=text).stderr

    wait_for(create, lambda said: "is not in the range" in said)
    assert create(*VALUES) == ""
    jobs = Jobs(api, restricted)
    with Release(bed, api, restricted, tmp_path, *VALUES).operator():
        jobs.apply("demo", local_spec(tmp_path))
        jobs.reach("demo", "Succeeded")
