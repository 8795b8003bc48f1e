"""The Ray cluster that the drivers of a test bed share. A real one has a cluster for each attempt; here that would cost
more than the tests themselves, and what KubeRay makes of a RayJob is shown by its Pods.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from testbed.ports import hold_ports

CPUS = 2
_PATIENCE_S = 300.0
_STARTED = "Ray runtime started."
_IDLE = '{"enable_worker_prestart": false, "prestart_worker_first_driver": false}'


class RayHead:
    """Starts when its address is first asked for; `log`: what it says."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = ""
        self._address = ""

    def address(self) -> str:
        """Of a cluster that takes drivers."""
        with self._lock:
            if self._process is None:
                self._start()
            return self._address

    def _start(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="ray-")  # a short name: Ray's sockets lie there
        port, client_port = hold_ports(2)
        self._address = f"127.0.0.1:{port}"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(str(Path(sys.executable).with_name("ray")), "start", "--head", "--block"),
                    *("--node-ip-address", "127.0.0.1", "--port", str(port)),
                    *("--num-cpus", str(CPUS), "--object-store-memory", str(100 << 20), "--temp-dir", self._folder),
                    *("--include-dashboard=false", "--ray-client-server-port", str(client_port)),
                    *("--disable-usage-stats", "--system-config", _IDLE),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _PATIENCE_S
        while _STARTED not in self._log.read_text(encoding="utf-8"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Ray did not start: {self._log.read_text(encoding='utf-8')}")
            time.sleep(0.1)

    def close(self) -> None:
        """End it with all its processes."""
        with self._lock:
            if self._process is None:
                return
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            self._process = None
            shutil.rmtree(self._folder, ignore_errors=True)
