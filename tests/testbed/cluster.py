"""The control plane with nodes that have no machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.control_plane import ControlPlane
from testbed.ports import hold_ports
from testbed.processes import Processes

NODES = "nodes"


class Testbed(ControlPlane):
    """All of it listens on loopback."""

    __test__ = False  # for pytest, which takes it for one by its name

    def up(self, crds: Sequence[Path] = (), *, with_kuberay: bool = True) -> None:
        """Start everything; `crds`: files of CustomResourceDefinitions beside KubeRay's."""
        if self.processes.are_there:
            raise RuntimeError(f"a test bed runs already in {self.folder}: stop it first")
        try:
            self.start([*(self.kuberay_crds if with_kuberay else ()), *crds])
            [dashboard] = hold_ports(1)
            self._start_nodes(dashboard)
            if with_kuberay:
                way_to_dashboards = f"http://127.0.0.1:{dashboard}"
                self.start_kuberay(HTTP_PROXY=way_to_dashboards, NO_PROXY="", no_proxy="")
        except BaseException:
            self.down()
            raise

    def create_nodes(self, *nodes: Mapping[str, Any]) -> None:
        """Add nodes without machines; `nodes` makes their objects. Their status is that of a node that is ready."""
        self.apply(*nodes)
        for node in nodes:
            self.merge(f"/api/v1/nodes/{node['metadata']['name']}/status", {"status": node["status"]})

    def _start_nodes(self, dashboard_port: int) -> None:
        self.start_ours(NODES, "testbed.nodes", "--dashboard-port", dashboard_port)
        self.wait("the nodes", lambda: bool(self.call("GET", "/api/v1/nodes")["items"]), NODES)


def stop_testbed(folder: Path) -> None:
    """Stop what an earlier process has started below `folder`."""
    Processes(folder.resolve() / "processes").stop_all()
