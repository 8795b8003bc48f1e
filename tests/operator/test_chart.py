"""The chart, by Helm itself: what it refuses, and what it makes of its values."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.cluster.operators import CHART, IMAGES, Release, helm, render
from support.places import CHECKOUT
from testbed.cluster import Testbed
from testbed.programs import find_helm
from tokenization_operator.objects.names import JOB_LABEL
from tokenization_operator.settings import VARIABLES
from tokenization_worker.cli.namespace_manifest_command import namespace_objects

pytestmark = [pytest.mark.testbed, pytest.mark.usefixtures("bed")]

CRDS = CHECKOUT / "crds"


def refuse(*flags: str) -> str:
    images = [word for value in IMAGES for word in ("--set-json", value)]
    done = subprocess.run(
        [str(find_helm()), "template", "x", str(CHART), *images, *flags], capture_output=True, text=True, check=False
    )
    assert done.returncode
    return done.stderr


def test_helm_finds_nothing_to_complain_about() -> None:
    done = subprocess.run(
        [str(find_helm()), "lint", "--strict", str(CHART)], capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("watchNamespaces=team", "watchNamespaces"),
        ("jobNamespaces[0].nam=team", "jobNamespaces"),
        ("operator.imag=x", "operator"),
        ("plan.deadlineSeconds=soon", "deadlineSeconds"),
        ("cost.pricePerChipHour=cheap", "pricePerChipHour"),
        ("cost.pricePerCpuHour=-1", "pricePerCpuHour"),
        ("hostCpuPriorityClass.value=5", "value"),
        ("operator.replicas=0", "replicas"),
        ("metrics.prometheusRule.for.jobFailed=soon", "jobFailed"),
        ("metrics.prometheusRule.maxQuarantinedShare=50", "maxQuarantinedShare"),
        ("metrics.dashboard.labels.grafana_dashboard=1", "grafana_dashboard"),
        ("metrics.port=8080", "two different ports"),
        ("operator.image.repository=", "docs/images.md"),
        ("worker.image.repository=null", "docs/images.md"),
        ("commonLabels.team=1", "commonLabels"),
        ("operator.nodeSelector.pool=true", "nodeSelector"),
        ("operator.podAnnotations.checked=true", "podAnnotations"),
        ("operator.podLabels.team=1", "podLabels"),
        ("operator.serviceAccount.annotations.id=1", "annotations"),
        ("nameOverride=Shards", "nameOverride"),
        ("nonsense=1", "nonsense"),
    ],
)
def test_values_that_make_no_sense_are_refused(value: str, named: str) -> None:
    assert named in refuse("--set", value)


def test_every_setting_of_the_operator_can_be_set() -> None:
    values = ['plan.resources={"limits": {"memory": "3Gi"}}', "cost.pricePerChipHour=1.2", "cost.pricePerCpuHour=0.04"]
    [deployment] = [each for each in render("team", *values) if each["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    named = {each["name"] for each in container["env"]}
    assert set(VARIABLES) - named == {"TOKENIZATION_RETRY_DELAY_SECONDS"}


def test_one_watched_namespace_needs_no_cluster_role_of_the_operator() -> None:
    objects = render("team", 'watchNamespaces=["a", "b"]', "rbac.aggregate=false")
    kinds = [(each["kind"], each["metadata"].get("namespace")) for each in objects]
    assert ("Role", "a") in kinds
    assert ("RoleBinding", "b") in kinds
    assert not [kind for kind, _ in kinds if kind.startswith("ClusterRole")]


def test_the_kinds_come_with_the_release_and_stay_without_it() -> None:
    crds = [each for each in render("team") if each["kind"] == "CustomResourceDefinition"]
    for path in CRDS.glob("*.yaml"):
        wanted = yaml.safe_load(path.read_text("utf-8"))
        [found] = [each for each in crds if each["metadata"]["name"] == wanted["metadata"]["name"]]
        assert found["spec"] == wanted["spec"]
        assert found["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert not [each for each in render("team", "crds.install=false") if each["kind"] == "CustomResourceDefinition"]


def test_a_namespace_is_prepared_by_the_chart_as_by_the_command() -> None:
    namespaces = json.dumps([{"name": "team-a", "annotations": {"iam.gke.io/gcp-service-account": "me"}}])
    by_chart = [
        each for each in render("team", f"jobNamespaces={namespaces}") if each["metadata"].get("namespace") == "team-a"
    ]
    by_command = namespace_objects("team-a", "tokenization-worker", {"iam.gke.io/gcp-service-account": "me"})
    for each in by_chart:
        del each["metadata"]["labels"]
        assert each["metadata"]["annotations"].pop("helm.sh/resource-policy") == "keep", "running jobs need it"
        if not each["metadata"]["annotations"]:
            del each["metadata"]["annotations"]
    assert by_chart == by_command


def test_alerts_and_monitors_come_only_when_asked_for() -> None:
    kinds = {each["kind"] for each in render("team")}
    wanted = {
        "ServiceMonitor": "serviceMonitor",
        "PodMonitor": "podMonitor",
        "PrometheusRule": "prometheusRule",
        "ConfigMap": "dashboard",
    }
    assert not kinds & wanted.keys()
    asked = render(
        "team", 'jobNamespaces=[{"name": "team"}]', *(f"metrics.{value}.enabled=true" for value in wanted.values())
    )
    assert wanted.keys() <= {each["kind"] for each in asked}
    [board] = [each for each in asked if each["kind"] == "ConfigMap"]
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1", "by which Grafana's sidecar finds it"
    shown = json.loads(board["data"]["tokenization.json"])
    assert shown == json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))


def test_no_test_of_a_release_is_taken_for_an_operator() -> None:
    objects = render("team", "operator.replicas=2", 'networkPolicy={"enabled": true}')
    [pod] = [each for each in objects if each["kind"] == "Pod"]
    selectors = [
        each["spec"].get("podSelector", each["spec"].get("selector"))
        for each in objects
        if each["kind"] in ("Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service")
    ]
    assert len(selectors) == 4
    for selector in selectors:
        wanted = selector.get("matchLabels", selector)
        assert wanted
        assert not wanted.items() <= pod["metadata"]["labels"].items(), wanted


def test_network_policies_admit_probes_jobs_and_kuberay_and_come_only_when_asked_for() -> None:
    assert not [each for each in render("team") if each["kind"] == "NetworkPolicy"]
    namespaces = json.dumps([{"name": "team-a"}, {"name": "team-b"}])
    where = 'networkPolicy={"enabled": true, "kubeRayNamespace": "ray"}'
    objects = render("team", where, f"jobNamespaces={namespaces}", "metrics.port=9999")
    own, *others = [each for each in objects if each["kind"] == "NetworkPolicy"]
    [deployment] = [each for each in objects if each["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]
    assert own["metadata"]["namespace"] == "team"
    assert own["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    ports = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
    [admitted] = own["spec"]["ingress"]
    assert [ports[each["port"]] for each in admitted["ports"]] == [8080, 9999]
    of_jobs = {"matchExpressions": [{"key": JOB_LABEL, "operator": "Exists"}]}
    of_kuberay = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ray"}}}
    assert [each["metadata"]["namespace"] for each in others] == ["team-a", "team-b"]
    for each in others:
        assert each["spec"] == {
            "podSelector": of_jobs,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": of_jobs}]}, {"from": [of_kuberay], "ports": [{"port": 8265}]}],
        }


def test_the_operator_itself_is_admitted_where_restrictions_hold(release: Release, bed: Testbed) -> None:
    objects = [each for each in render(release.namespace) if each["kind"] in ("Deployment", "Pod")]
    done = bed.kubectl("apply", "--dry-run=server", "--warnings-as-errors", "-f", "-", text=yaml.safe_dump_all(objects))
    assert not done.returncode, done.stderr


EARLIER_STRATEGY = (
    "strategy: {type: {{ if gt (int .Values.operator.replicas) 1 }}RollingUpdate{{ else }}Recreate{{ end }}}"
)
"""Of version 0.2."""


def strategy_of(bed: Testbed, namespace: str, name: str) -> tuple[int, dict[str, Any]]:
    found = json.loads(bed.do("-n", namespace, "get", "deployment", name, "-o", "json"))
    return found["spec"]["replicas"], found["spec"]["strategy"]


ONE_FOR_BOTH = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def test_helm_goes_from_one_replica_to_two_and_back_and_rolls_back(
    release: Release, bed: Testbed, tmp_path: Path
) -> None:
    """Server-side, as Helm 4 does without a word; over the border of a chart that had two strategies, too."""
    name, place = "scaled", ("--namespace", release.namespace, "--kubeconfig", str(bed.kubeconfig))
    earlier = tmp_path / "earlier"
    shutil.copytree(CHART, earlier)
    template = earlier / "templates" / "deployment.yaml"
    lines = template.read_text("utf-8").splitlines()
    [line] = [each for each in lines if each.strip().startswith("strategy:")]
    template.write_text("\n".join(lines).replace(line.strip(), EARLIER_STRATEGY), "utf-8")
    values = [
        *IMAGES,
        "crds.install=false",
        "writerPolicy.enabled=false",
        "hostCpuPriorityClass.create=false",
        f'watchNamespaces=["{release.namespace}"]',
    ]
    flags = [word for value in values for word in ("--set-json", value)]

    def upgrade(chart: Path, replicas: int) -> tuple[int, dict[str, Any]]:
        helm("upgrade", "--install", name, str(chart), *place, *flags, "--set", f"operator.replicas={replicas}")
        return strategy_of(bed, release.namespace, name)

    def roll_back(revision: int) -> tuple[int, dict[str, Any]]:
        helm("rollback", name, str(revision), *place)
        return strategy_of(bed, release.namespace, name)

    assert upgrade(earlier, 1) == (1, {"type": "Recreate"})
    for replicas in (1, 2, 1):
        assert upgrade(CHART, replicas) == (replicas, ONE_FOR_BOTH)
    assert roll_back(3) == (2, ONE_FOR_BOTH)
    assert roll_back(2) == (1, ONE_FOR_BOTH)
    assert roll_back(1) == (1, {"type": "Recreate"})
    helm("uninstall", name, *place)


def test_server_side_apply_goes_from_one_replica_to_two_and_back(release: Release, bed: Testbed) -> None:
    for replicas in (1, 2, 1):
        objects = render(release.namespace, f"operator.replicas={replicas}")
        [deployment] = [each for each in objects if each["kind"] == "Deployment"]
        deployment["metadata"]["name"] = "applied"
        bed.do("-n", release.namespace, "apply", "--server-side", "-f", "-", text=yaml.safe_dump(deployment))
        assert strategy_of(bed, release.namespace, "applied") == (replicas, ONE_FOR_BOTH)
    bed.do("-n", release.namespace, "delete", "deployment", "applied")
