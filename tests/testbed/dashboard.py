"""Ray's dashboard, as far as KubeRay asks it: the state of a submitted job, by its id.

One for all clusters of the test bed: every Pod has the address on which it listens, which must not be loopback (no
Endpoints may be).
"""

from __future__ import annotations

import http.server
import json
import re
import socket
import threading
import time
from collections.abc import Callable

PORT = 8265
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")


def own_address() -> str:
    """An address of this machine that others could reach; nothing is sent. Raises `OSError` where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # TEST-NET-1
        return str(probe.getsockname()[0])


def serve_dashboard(address: str, state_of: Callable[[str], tuple[str, str]]) -> None:
    """Serve in a thread of its own; `state_of` a job's id: Ray's word for its state, and a message."""
    began = int(time.time() * 1000)

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = re.fullmatch(r"/api/jobs/([^/]+)", self.path)
            if asked is None:
                self._say([])
                return
            state, message = state_of(asked[1])
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

    server = http.server.ThreadingHTTPServer((address, PORT), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
