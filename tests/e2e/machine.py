"""What a machine must have for a real node."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from e2e.sandbox import CGROUPS, try_out

CANNOT = 77
"""The exit code where this machine cannot have a real node; no code of pytest's."""

_NEEDED_CGROUPS = ("cpu", "memory", "pids")
_PROGRAMS = {
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "runc": "runc",
    "ip": "iproute2",
    "mount": "mount",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}


def find_lacks() -> list[str]:
    """Why there can be no real node here, a sentence each; nothing where a trial may show it."""
    if os.geteuid():
        return ["only root can make namespaces, mounts and control groups: run it as root"]
    missing = sorted({package for name, package in _PROGRAMS.items() if shutil.which(name) is None})
    if missing:
        return [f"programs are missing: apt-get install --no-install-recommends {' '.join(missing)}"]
    return [f"no control group {name}, or it is read-only" for name in _NEEDED_CGROUPS if not _is_there(name)]


def try_sandbox(scratch: Path) -> list[str]:
    """Why a sandbox cannot be made, in a sentence; nothing where it can. `scratch`: see `run_inside`."""
    said = try_out(scratch)
    return [f"no namespaces, mounts or bridges as a node needs them: {said}"] if said else []


def _is_there(controller: str) -> bool:
    version_2 = CGROUPS / "cgroup.subtree_control"  # what a group below it gets
    if version_2.exists():
        return controller in version_2.read_text(encoding="ascii").split() and os.access(CGROUPS, os.W_OK)
    return os.access(CGROUPS / controller, os.W_OK)
