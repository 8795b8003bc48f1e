"""The control plane: etcd, API server, controller manager, scheduler and KubeRay's operator.

The order of the start matters: the kinds of all custom resources before the controller manager, whose garbage collector
looks for new ones every 30 seconds only. Nothing here needs root, but a port below 1024.
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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from testbed.certificates import ADMINS, Authority
from testbed.ports import hold_ports
from testbed.processes import Processes
from testbed.programs import Programs

API_SERVER, MANAGER, SCHEDULER, KUBERAY, ETCD = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "ray-operator",
    "etcd",
)
_FEWER_COLLECTIONS = {"GOGC": "400"}
"""A fifth of the API server's time goes into collections of garbage by default; memory is what this machine has."""

_PATIENCE_S = 300.0
_LOOPBACK = "127.0.0.1"
_TESTS = Path(__file__).parents[1]


class ControlPlane:
    """Its files are below `folder`. `address`: of the API server, for nodes and Pods too; `port`: a free one at 0."""

    def __init__(self, folder: Path, programs: Programs, address: str = _LOOPBACK, port: int = 0) -> None:
        self.folder = folder.resolve()
        self.kubeconfig = self.folder / "kubeconfig"
        self.commands = self.folder / "bin"
        self.processes = Processes(_processes(self.folder))
        self._programs = programs
        self._address, self._port = address, port
        self._tls: ssl.SSLContext | None = None
        self.server = ""

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

    def do(self, *words: str, text: str = "") -> str:
        """What kubectl prints, as an administrator; raises `AssertionError` with what it says is wrong."""
        done = self.kubectl(*words, text=text)
        assert not done.returncode, done.stderr
        return done.stdout

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """As `kubectl apply --server-side` does; raises `AssertionError` with its words."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.do("apply", "--server-side", "--force-conflicts", "-f", "-", text=text)

    def down(self) -> None:
        """Stop all processes; files stay."""
        self.processes.stop_all()

    def start(self, crds: Sequence[Path]) -> Authority:
        """Start all but KubeRay; `crds`: files of CustomResourceDefinitions. Its authority signs what others need."""
        shutil.rmtree(self.folder, ignore_errors=True)
        keys = self.folder / "keys"
        keys.mkdir(parents=True, mode=0o700)
        self.processes = Processes(_processes(self.folder))
        etcd, peer, api, manager, scheduler = hold_ports(5)
        api = self._port or api
        self.server = f"https://{self._address}:{api}"
        authority = Authority(keys)
        authority.kubeconfig(self.kubeconfig, self.server, "testbed-admin", ADMINS)
        self._write_commands()
        self._trust(keys)
        self._start_etcd(etcd, peer)
        self._start_api_server(authority, etcd, api)
        self.apply_crds(crds)
        self._start_controllers(authority, manager, scheduler)
        return authority

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
        self.etcd_url = url
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
        certificate, key = authority.server("kube-apiserver", self._address)
        accounts = authority.service_account_key
        kubelet_certificate, kubelet_key = authority.client("kube-apiserver-kubelet-client", ADMINS)
        everywhere = _LOOPBACK if self._address == _LOOPBACK else "0.0.0.0"
        self.processes.start(
            API_SERVER,
            *(self._programs.control_plane, API_SERVER, "--etcd-servers", f"http://127.0.0.1:{etcd_port}"),
            *("--bind-address", everywhere, "--advertise-address", self._address, "--secure-port", port),
            *("--tls-cert-file", certificate, "--tls-private-key-file", key),
            *("--client-ca-file", authority.certificate, "--authorization-mode", "Node,RBAC"),
            *("--service-cluster-ip-range", "10.96.0.0/24", "--allow-privileged=true"),
            *("--kubelet-client-certificate", kubelet_certificate, "--kubelet-client-key", kubelet_key),
            *("--kubelet-preferred-address-types", "InternalIP"),
            *("--service-account-issuer", "https://kubernetes.default.svc.cluster.local"),
            *("--service-account-key-file", accounts, "--service-account-signing-key-file", accounts),
            *("--enable-admission-plugins", "NodeRestriction,OwnerReferencesPermissionEnforcement"),
            environment=_FEWER_COLLECTIONS,
        )
        self._wait_for_api_server()

    def start_api_server_again(self) -> None:
        """After `processes.stop`."""
        self.processes.start_again(API_SERVER)
        self._wait_for_api_server()

    def _wait_for_api_server(self) -> None:
        self.wait("the API server", lambda: self.answers("/readyz"), ETCD, API_SERVER)

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
        self.wait("the controller manager", lambda: self.answers(account), MANAGER, SCHEDULER)

    def apply_crds(self, files: Sequence[Path]) -> None:
        """Have the API server serve these kinds. Server-side, as KubeRay's are too large for the other way."""
        kinds = {".".join(reversed(path.stem.split("_", 1))): path for path in files}  # ray.io_rayjobs.yaml
        items = {name: f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}" for name in kinds}
        for name, item in items.items():
            query = "?fieldManager=testbed&force=true"
            self.call("PATCH", item + query, kinds[name].read_bytes(), "application/apply-patch+yaml")
        for name, item in items.items():
            self.wait(f"the kind {name}", partial(self._is_served, item), API_SERVER)

    def _is_served(self, item: str) -> bool:
        found = self.call("GET", item)
        conditions = found.get("status", {}).get("conditions") or []  # of a fresh one: null
        if not any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
            return False
        group, names = found["spec"]["group"], found["spec"]["names"]
        return all(
            self.answers(f"/apis/{group}/{each['name']}/{names['plural']}") for each in found["spec"]["versions"]
        )

    def start_ours(self, name: str, module: str, *words: object) -> None:
        """A module of the tests as a process, which asks this API server."""
        path = os.pathsep.join([str(_TESTS), os.environ.get("PYTHONPATH", "")])
        command = (sys.executable, "-m", module, "--kubeconfig", self.kubeconfig, *words)
        self.processes.start(name, *command, environment={"PYTHONPATH": path})

    def start_kuberay(self, **environment: str) -> None:
        metrics, probes = hold_ports(2)
        self.processes.start(
            KUBERAY,
            *(self._programs.kuberay, "--metrics-addr", f"127.0.0.1:{metrics}"),
            *("--health-probe-bind-address", f"127.0.0.1:{probes}"),
            *("--enable-leader-election=false", "--reconcile-concurrency=8"),
            environment={"KUBECONFIG": str(self.kubeconfig), **_FEWER_COLLECTIONS, **environment},
        )
        self.wait("KubeRay", lambda: _is_ok(f"http://127.0.0.1:{probes}/readyz"), KUBERAY)

    def wait(self, what: str, holds: Callable[[], bool], *needs: str) -> None:
        """Until that holds; `needs`: the processes that are to bring it about. Raises `NotReady`."""
        self.processes.wait_until(what, holds, needs=needs, patience_s=_PATIENCE_S)

    def answers(self, path: str) -> bool:
        """Whether there is something at a path of the API server."""
        try:
            self._open("GET", path).close()
        except OSError:
            return False
        return True

    def call(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> Any:
        """The API server's answer, as an administrator; `kind`: of the body."""
        with self._open(method, path, body, kind, timeout_s=_PATIENCE_S) as answer:
            return json.load(answer)

    def merge(self, path: str, patch: Mapping[str, Any]) -> None:
        """Merge into the object at a path of the API server, as an administrator."""
        self.call("PATCH", path, json.dumps(patch).encode(), "application/merge-patch+json")

    def _open(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        kind: str = "application/json",
        *,
        timeout_s: float = 30.0,
    ) -> Any:
        request = urllib.request.Request(self.server + path, body, {"Content-Type": kind}, method=method)
        return urllib.request.urlopen(request, context=self._tls, timeout=timeout_s)


def _processes(folder: Path) -> Path:
    return folder / "processes"


def _is_ok(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
