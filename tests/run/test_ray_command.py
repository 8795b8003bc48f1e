"""The command `ray` of the worker's image, as KubeRay calls it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.faults.ray_nodes import ray_nodes
from support.places import CHECKOUT

RAY = CHECKOUT / "scripts" / "ray_command.py"
LOOK = (
    "import runpy, sys; path, *sys.argv[1:] = sys.argv[1:]\n"
    "try: runpy.run_path(path, run_name='__main__')\n"
    "finally: print('ray' in sys.modules)"
)


def ask(*words: str) -> tuple[int, str]:
    """The exit code, and whether Ray was imported; nothing where Ray itself ends the process."""
    done = subprocess.run([sys.executable, "-c", LOOK, str(RAY), *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.rpartition("\n")[0].rpartition("\n")[2]


@pytest.mark.exhaustive
@pytest.mark.slow
def test_whether_there_is_a_head_is_answered_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # for what is outside
    with ray_nodes(1) as nodes:
        assert ask("health-check", "--address", nodes.address) == (0, "False")
    assert ask("health-check", "--address", nodes.address)[0] == 1


def test_everything_else_is_answered_by_rays_own_command() -> None:
    assert ask("--version") == (0, "True")
    assert ask("health-check", "--address", "127.0.0.1:1", "--help") == (0, "True")


def test_a_head_behind_tls_is_asked_by_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    assert ask("health-check", "--address", "no-address")[1] == "True"  # of any other, Ray waits 40 s for an answer
