"""Ray's dashboard, as far as KubeRay asks it: the state of a submitted job, by its id.

Every Pod has the address on which it listens, which must not be loopback (no Endpoints may be), and its port is fixed.
So there is one for all clusters of all test beds of this machine: each writes the states of its jobs into a folder,
and whichever listens reads them all.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import socket
import tempfile
import threading
import time
from pathlib import Path

PORT = 8265
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")


def own_address() -> str:
    """An address of this machine that others could reach; nothing is sent. Raises `OSError` where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # TEST-NET-1
        return str(probe.getsockname()[0])


class States:
    """Ray's words for the states of submitted jobs, and a message; those of this test bed go with it."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.gettempdir()) / f"tokenization-testbed-jobs-{os.getuid()}"
        self._mine: set[str] = set()
        self._folder.mkdir(mode=0o700, exist_ok=True)

    def write(self, submission: str, state: str, message: str) -> None:
        new = self._folder / f".{submission}"
        new.write_text(json.dumps([state, message]), encoding="utf-8")
        new.rename(self._folder / submission)
        self._mine.add(submission)

    def read(self, submission: str) -> tuple[str, str]:
        try:
            state, message = json.loads((self._folder / submission).read_text("utf-8"))
        except FileNotFoundError:
            return "PENDING", ""
        return str(state), str(message)

    def close(self) -> None:
        for submission in self._mine:
            (self._folder / submission).unlink(missing_ok=True)


def serve_dashboard(address: str, states: States) -> None:
    """Serve in a thread of its own, as soon as nobody else does."""
    began = int(time.time() * 1000)

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = re.fullmatch(r"/api/jobs/([^/]+)", self.path)
            if asked is None:
                self._say([])
                return
            state, message = states.read(asked[1])
            ended = int(time.time() * 1000) if state in _ENDED else None
            self._say(
                {
                    "submission_id": asked[1],
                    "job_id": "01000000",
                    "type": "SUBMISSION",
                    "entrypoint": "",
                    "status": state,
                    "message": message,
                    "start_time": began,
                    "end_time": ended,
                }
            )

        do_POST = do_DELETE = do_GET

        def _say(self, answer: object) -> None:
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    def serve() -> None:
        while True:
            try:
                server = http.server.ThreadingHTTPServer((address, PORT), Answers)
            except OSError:  # another test bed's dashboard has it
                time.sleep(0.2)
            else:
                server.serve_forever()

    threading.Thread(target=serve, daemon=True).start()
