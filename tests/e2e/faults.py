"""What tests break on a real node."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from e2e.node import RealCluster
from e2e.runs import NAME, Team
from e2e.sandbox import BRIDGE, STORE_ADDRESS

_AT_ONCE = ("--grace-period=0", "--force", "--ignore-not-found")


def kill_pod(cluster: RealCluster, team: Team, node_type: str) -> str:
    """As when its machine is lost: without a word to it, and it does not come back; its name."""
    pod = team.pods(NAME, node_type)[0]
    name = str(pod["metadata"]["name"])
    kill_container(cluster, pod)
    cluster.do("-n", team.jobs.namespace, "delete", "pod", name, *_AT_ONCE)
    return name


def kill_container(cluster: RealCluster, pod: dict[str, Any]) -> None:
    """Its first process, and with it all."""
    [container] = pod["status"]["containerStatuses"]
    said = cluster.ctr("tasks", "kill", "--signal", "SIGKILL", container["containerID"].rpartition("/")[2])
    assert not said.returncode, said.stderr


@contextmanager
def store_away() -> Iterator[None]:
    """No run can end meanwhile."""
    address = f"{STORE_ADDRESS}/32"
    subprocess.run(["ip", "address", "del", address, "dev", BRIDGE], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "address", "add", address, "dev", BRIDGE], check=True)
