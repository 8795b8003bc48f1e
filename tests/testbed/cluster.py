"""The control plane: etcd, API server, controller manager, scheduler, KubeRay's operator, and nodes without a machine.

The order of the start matters: the kinds of all custom resources before the controller manager, whose garbage collector
looks for new ones every 30 seconds only. Nothing here needs root; all listens on loopback.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.certificates import ADMINS, Authority
from testbed.ports import free_ports
from testbed.processes import Processes
from testbed.programs import Programs

API_SERVER, MANAGER, SCHEDULER, KUBERAY, NODES, ETCD = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "ray-operator",
    "nodes",
    "etcd",
)
_FEWER_COLLECTIONS = {"GOGC": "400"}
"""A fifth of the API server's time goes into collections of garbage by default; memory is what this machine has."""

_PATIENCE_S = 90.0
_TESTS = Path(__file__).parents[1]


class Testbed:
    """One control plane whose files are below `folder`."""

    __test__ = False  # for pytest, which takes it for one by its name

    def __init__(self, folder: Path, programs: Programs) -> None:
        self.folder = folder.resolve()
        self.kubeconfig = self.folder / "kubeconfig"
        self.commands = self.folder / "bin"
        self.processes = Processes(_processes(self.folder))
        self._programs = programs
        self._tls: ssl.SSLContext | None = None
        self.server = ""

    def up(self, crds: Sequence[Path] = (), *, with_kuberay: bool = True) -> None:
        """Start everything; `crds`: files of CustomResourceDefinitions beside KubeRay's."""
        if self.processes.are_there:
            raise RuntimeError(f"a test bed runs already in {self.folder}: stop it first")
        try:
            self._start(crds, with_kuberay)
        except BaseException:
            self.down()
            raise

    @property
    def kuberay_crds(self) -> list[Path]:
        """The files of KubeRay's kinds."""
        return sorted(self._programs.kuberay_crds.glob("*.yaml"))

    def join(self) -> None:
        """Use the one that another process has started."""
        found = json.loads(self.kubeconfig.read_text(encoding="utf-8"))
        self.server = found["clusters"][0]["cluster"]["server"]
        self._trust(self.folder / "keys")

    def kubectl(self, *words: str, text: str = "", kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
        """What kubectl says, as an administrator or as somebody else; `text`: what it reads."""
        return subprocess.run(
            [str(self._programs.control_plane), "kubectl", "--kubeconfig", str(kubeconfig or self.kubeconfig), *words],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """As `kubectl apply --server-side` does; raises `AssertionError` with its words."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        done = self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=text)
        assert not done.returncode, done.stderr

    def create_nodes(self, *nodes: Mapping[str, Any]) -> None:
        """Add nodes without machines; `nodes` makes their objects. Their status is that of a node that is ready."""
        self.apply(*nodes)
        for node in nodes:
            path = f"/api/v1/nodes/{node['metadata']['name']}/status"
            self._call("PATCH", path, json.dumps({"status": node["status"]}).encode(), "application/merge-patch+json")

    def down(self) -> None:
        """Stop all processes; files stay."""
        self.processes.stop_all()

    def _start(self, crds: Sequence[Path], with_kuberay: bool) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        keys = self.folder / "keys"
        keys.mkdir(parents=True, mode=0o700)
        self.processes = Processes(_processes(self.folder))
        etcd, peer, api, manager, scheduler = free_ports(5)
        self.server = f"https://127.0.0.1:{api}"
        authority = Authority(keys)
        authority.kubeconfig(self.kubeconfig, self.server, "testbed-admin", ADMINS)
        self._write_commands()
        self._trust(keys)
        self._start_etcd(etcd, peer)
        self._start_api_server(authority, etcd, api)
        self.apply_crds([*(self.kuberay_crds if with_kuberay else ()), *crds])
        self._start_controllers(authority, manager, scheduler)
        [dashboard] = free_ports(1)
        self._start_nodes(dashboard)
        if with_kuberay:
            self._start_kuberay(dashboard)

    def _write_commands(self) -> None:
        self.commands.mkdir()
        kubectl = self.commands / "kubectl"
        kubectl.write_text(f'#!/bin/sh\nexec "{self._programs.control_plane}" kubectl "$@"\n', encoding="utf-8")
        kubectl.chmod(0o755)

    def _trust(self, keys: Path) -> None:
        self._tls = ssl.create_default_context(cafile=str(keys / "ca.crt"))
        self._tls.load_cert_chain(keys / "testbed-admin.crt", keys / "testbed-admin.key")

    def _start_etcd(self, port: int, peer_port: int) -> None:
        url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
        self.processes.start(
            ETCD,
            *(self._programs.control_plane, "etcd", "--data-dir", self.folder / "etcd"),
            *("--listen-client-urls", url, "--advertise-client-urls", url),
            *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url),
            *("--initial-cluster", f"default={peer_url}", "--log-level", "warn"),
            "--unsafe-no-fsync",  # thrown away afterwards; a slow disk stays out of it
            environment=_FEWER_COLLECTIONS,
        )

    def _start_api_server(self, authority: Authority, etcd_port: int, port: int) -> None:
        certificate, key = authority.server("kube-apiserver")
        accounts = authority.service_account_key
        self._api_server_command = (
            *(self._programs.control_plane, API_SERVER, "--etcd-servers", f"http://127.0.0.1:{etcd_port}"),
            *("--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", port),
            *("--tls-cert-file", certificate, "--tls-private-key-file", key),
            *("--client-ca-file", authority.certificate, "--authorization-mode", "Node,RBAC"),
            *("--service-cluster-ip-range", "10.96.0.0/24", "--allow-privileged=true"),
            *("--service-account-issuer", "https://kubernetes.default.svc.cluster.local"),
            *("--service-account-key-file", accounts, "--service-account-signing-key-file", accounts),
            *("--enable-admission-plugins", "NodeRestriction,OwnerReferencesPermissionEnforcement"),
        )
        self.start_api_server()

    def start_api_server(self) -> None:
        """Start it, at first or again after `processes.stop`."""
        self.processes.start(API_SERVER, *self._api_server_command, environment=_FEWER_COLLECTIONS)
        self._wait("the API server", lambda: self._answers("/readyz"), ETCD, API_SERVER)

    def _start_controllers(self, authority: Authority, manager_port: int, scheduler_port: int) -> None:
        accounts = authority.service_account_key
        for name, port, own in (
            (
                MANAGER,
                manager_port,
                (
                    *("--use-service-account-credentials", "--service-account-private-key-file", accounts),
                    *("--root-ca-file", authority.certificate),
                    *("--cluster-signing-cert-file", authority.certificate),
                    *("--cluster-signing-key-file", authority.key),
                ),
            ),
            (SCHEDULER, scheduler_port, ()),
        ):
            config = authority.kubeconfig(self.folder / f"{name}.kubeconfig", self.server, f"system:{name}")
            self.processes.start(
                name,
                *(self._programs.control_plane, name, "--kubeconfig", config),
                *("--authentication-kubeconfig", config, "--authorization-kubeconfig", config),
                *("--bind-address", "127.0.0.1", "--secure-port", port, "--leader-elect=false"),
                *("--kube-api-qps", 500, "--kube-api-burst", 1000),  # the defaults cost five seconds at the start
                *own,
                environment=_FEWER_COLLECTIONS,
            )
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self._wait("the controller manager", lambda: self._answers(account), MANAGER, SCHEDULER)

    def apply_crds(self, files: Sequence[Path]) -> None:
        """Have the API server serve these kinds. Server-side, as KubeRay's are too large for the other way."""
        for path in files:
            name = ".".join(reversed(path.stem.split("_", 1)))  # ray.io_rayjobs.yaml
            item = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
            query = "?fieldManager=testbed&force=true"
            self._call("PATCH", item + query, path.read_bytes(), "application/apply-patch+yaml")
        for path in files:
            name = ".".join(reversed(path.stem.split("_", 1)))
            item = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
            self._wait(f"the kind {name}", lambda item=item: self._is_served(item), API_SERVER)

    def _is_served(self, item: str) -> bool:
        found = self._call("GET", item)
        conditions = found.get("status", {}).get("conditions") or []  # of a fresh one: null
        if not any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
            return False
        group, names = found["spec"]["group"], found["spec"]["names"]
        return all(
            self._answers(f"/apis/{group}/{each['name']}/{names['plural']}") for each in found["spec"]["versions"]
        )

    def _start_kuberay(self, dashboard_port: int) -> None:
        metrics, probes = free_ports(2)
        self.processes.start(
            KUBERAY,
            *(self._programs.kuberay, "--metrics-addr", f"127.0.0.1:{metrics}"),
            *("--health-probe-bind-address", f"127.0.0.1:{probes}"),
            *("--enable-leader-election=false", "--reconcile-concurrency=8"),
            environment={
                "KUBECONFIG": str(self.kubeconfig),
                "HTTP_PROXY": f"http://127.0.0.1:{dashboard_port}",  # the way to all dashboards
                "NO_PROXY": "",
                "no_proxy": "",
                **_FEWER_COLLECTIONS,
            },
        )
        self._wait("KubeRay", lambda: _is_ok(f"http://127.0.0.1:{probes}/readyz"), KUBERAY)

    def _start_nodes(self, dashboard_port: int) -> None:
        self.processes.start(
            NODES,
            *(sys.executable, "-m", "testbed.nodes", "--kubeconfig", self.kubeconfig),
            *("--dashboard-port", dashboard_port),
            environment={"PYTHONPATH": os.pathsep.join([str(_TESTS), os.environ.get("PYTHONPATH", "")])},
        )
        self._wait("the nodes", lambda: bool(self._call("GET", "/api/v1/nodes")["items"]), NODES)

    def _wait(self, what: str, holds: Any, *needs: str) -> None:
        self.processes.wait_until(what, holds, needs=needs, patience_s=_PATIENCE_S)

    def _answers(self, path: str) -> bool:
        try:
            self._open("GET", path).close()
        except OSError:
            return False
        return True

    def _call(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> Any:
        with self._open(method, path, body, kind) as answer:
            return json.load(answer)

    def _open(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> Any:
        request = urllib.request.Request(self.server + path, body, {"Content-Type": kind}, method=method)
        return urllib.request.urlopen(request, context=self._tls, timeout=30)


def stop_testbed(folder: Path) -> None:
    """Stop what an earlier process has started below `folder`."""
    Processes(_processes(folder.resolve())).stop_all()


def _processes(folder: Path) -> Path:
    return folder / "processes"


def _is_ok(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
