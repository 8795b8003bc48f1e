"""What a node could leave on its machine, to be compared before and after."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

from e2e.sandbox import cgroup_roots

_PR_SET_CHILD_SUBREAPER = 36
_SETTABLE = 0o600
_NOT_SETTINGS = ("ns_last_pid", "perf_event_max_sample_rate", "hung_task_warnings", "binfmt_misc")
"""The first ones change by themselves, with every process or under load; to look into the last one mounts it."""


def adopt_orphans() -> None:
    """From now on a process of ours whose parent ends is a child of this one, so that `find_traces` sees it."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def find_traces() -> set[str]:
    """Processes of ours, mounts, interfaces, uppermost control groups and settings of the kernel, a line each.

    A namespace lives by its processes and by mounts.
    """
    return {*_processes(), *_mounts(), *_interfaces(), *_cgroups(), *_settings()}


def _processes() -> Iterator[str]:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:  # has ended
            pass
    except ChildProcessError:  # there is none
        return
    for thread in Path("/proc/self/task").iterdir():
        for pid in (thread / "children").read_text(encoding="ascii").split():
            yield f"process {pid} {Path('/proc', pid, 'comm').read_text(encoding='utf-8').strip()}"


def _mounts() -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        fields = line.split()
        yield f"mount {fields[4]} of {' '.join(fields[fields.index('-') + 1 :][:2])}"


def _interfaces() -> Iterator[str]:
    for interface in Path("/sys/class/net").iterdir():
        yield f"interface {interface.name}"


def _cgroups() -> Iterator[str]:
    for root in cgroup_roots():
        for folder in root.iterdir():
            if folder.is_dir():
                yield f"control group {folder}"


def _settings() -> Iterator[str]:
    for folder, folders, names in os.walk("/proc/sys"):
        folders[:] = [name for name in folders if name not in _NOT_SETTINGS]
        for path in (Path(folder, name) for name in names if name not in _NOT_SETTINGS):
            try:
                if path.stat().st_mode & _SETTABLE == _SETTABLE:
                    yield f"setting {path.relative_to('/proc/sys')} = {path.read_bytes()!r}"
            except OSError:  # it is gone, or cannot be read
                continue
