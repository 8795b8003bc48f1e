"""Argo CD's engine on the test bed: its own small agent, which applies what is in a folder with a git repository."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.cluster import Testbed
from testbed.ports import hold_ports
from testbed.programs import find_argo_agent

RESYNC_S = 2


@contextmanager
def run_agent(bed: Testbed, repository: Path, namespace: str) -> Iterator[Path]:
    """Keep a namespace as the repository says; the agent's log, which tells what it could not do."""
    name = f"argo-agent-{namespace}"
    bed.processes.start(
        name,
        *(find_argo_agent(), repository, "--kubeconfig", bed.kubeconfig, "--namespaced"),
        *("--default-namespace", namespace, "--resync-seconds", RESYNC_S, "--port", hold_ports(1)[0]),
    )
    try:
        yield bed.processes.log(name)
    finally:
        bed.processes.stop(name)
