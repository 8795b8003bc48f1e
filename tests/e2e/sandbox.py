"""A machine in the machine: namespaces in which a node may change what it likes.

Processes, mounts and networks are those of namespaces, and go with their first process, however it ends. What the
kernel keeps for the whole machine is kept out of reach: settings that a kubelet writes are files of ours there, and
folders that it makes are layers of ours. Only control groups are left, and are removed from outside.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
CGROUP = "tokenization-e2e"
CONTAINED = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"),
)
"""Before a command: what it starts and mounts ends with it, and it with this process, also when that is killed. More
namespaces may follow."""

ADDRESS, SERVICE_ADDRESS, STORE_ADDRESS = "10.99.0.1", "10.96.0.1", "10.99.0.2"
BRIDGE = "node0"
"""The node's own network; `SERVICE_ADDRESS` is what Pods know the API server by."""

SETTINGS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
"""Of /proc/sys, of the whole machine, that a kubelet sets."""

_CHANGED_FOLDERS = ("/var/lib", "/var/log")
"""In which a kubelet makes folders, whatever its own settings say."""


def try_out(scratch: Path) -> str:
    """What is said where there can be no sandbox, else nothing. Removes what is left of one that was killed first."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        remove_cgroups()
        _make_cgroups()
        tried = subprocess.run(_command(["true"], scratch), capture_output=True, text=True, check=False)
        return (tried.stderr.strip() or f"exit code {tried.returncode}") if tried.returncode else ""
    except OSError as error:
        return str(error)
    finally:
        shutil.rmtree(scratch)
        remove_cgroups()


def run_inside(command: Sequence[str], scratch: Path) -> int:
    """Run a command in a sandbox of its own; its exit code. `scratch`: a folder for what is changed inside."""
    _make_cgroups()
    process = subprocess.Popen(_command(command, scratch))
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)  # who is inside hears it, too
    try:
        return process.wait()
    except BaseException:
        process.kill()
        process.wait()  # others of its namespace may take a moment longer; control groups go with the last of them
        raise
    finally:
        signal.signal(signal.SIGINT, previous)
        remove_cgroups()


def _command(command: Sequence[str], scratch: Path) -> list[str]:
    inside = [sys.executable, "-m", "e2e.sandbox", str(scratch), *command]
    return [*CONTAINED, "--net", "--ipc", "--uts", *inside]


def cgroup_roots() -> list[Path]:
    """The root of each hierarchy that is mounted: one of version 2, or one a controller of version 1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return sorted(path for path in CGROUPS.iterdir() if not path.is_symlink() and (path / "cgroup.procs").exists())


def _make_cgroups() -> None:
    for root in cgroup_roots():
        (root / CGROUP).mkdir(exist_ok=True)


def remove_cgroups(patience_s: float = 10.0) -> None:
    """Remove those of a sandbox whose processes are gone, or about to be; raises `OSError`."""
    deadline = time.monotonic() + patience_s
    for root in cgroup_roots():
        while (root / CGROUP).exists():
            try:
                for folder, _, _ in os.walk(root / CGROUP, topdown=False):
                    Path(folder).rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def _prepare(scratch: Path) -> None:
    """What a node finds, in the namespaces of this process."""
    _run("mount", "--make-rshared", "/")  # the kubelet wants that; it is shared with nobody outside
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")
    for folder in _CHANGED_FOLDERS:
        layers = [scratch / "layers" / folder.strip("/").replace("/", "-") / name for name in ("upper", "work")]
        for layer in layers:
            layer.mkdir(parents=True)
        options = f"lowerdir={folder},upperdir={layers[0]},workdir={layers[1]}"
        _run("mount", "-t", "overlay", "overlay", "-o", options, folder)
    for name in SETTINGS:
        setting = Path("/proc/sys", name)
        if setting.exists():
            mine = scratch / "settings" / name
            mine.parent.mkdir(parents=True, exist_ok=True)
            mine.write_text(setting.read_text(encoding="ascii"), encoding="ascii")
            _run("mount", "--bind", str(mine), str(setting))
    names = scratch / "resolv.conf"
    names.write_text(f"nameserver {ADDRESS}\n", encoding="ascii")
    known_as = Path("/etc/resolv.conf").resolve()  # often a link to below /run, which is empty now
    known_as.parent.mkdir(parents=True, exist_ok=True)
    known_as.touch()
    _run("mount", "--bind", str(names), str(known_as))
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", BRIDGE, "type", "bridge")
    _run("ip", "address", "add", f"{ADDRESS}/24", "dev", BRIDGE)
    _run("ip", "link", "set", BRIDGE, "up")
    for address in (SERVICE_ADDRESS, STORE_ADDRESS):
        _run("ip", "address", "add", f"{address}/32", "dev", BRIDGE)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def _first_process(scratch: Path, command: Sequence[str]) -> int:
    """Run a command, and bury what others leave behind: this process is the first one of its namespace."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: None)
    _prepare(scratch)
    child = subprocess.Popen(command)
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(_first_process(Path(sys.argv[1]), sys.argv[2:]))
