"""Ray's dashboards, as far as KubeRay asks them: the state of a submitted job, by its id.

KubeRay reaches a dashboard by the name of its cluster's Service, which nobody here resolves. So this is the HTTP proxy
that KubeRay is told to use, and it answers for all of them.
"""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

State = tuple[str, str]
"""Ray's word for the state of a submitted job, and a message."""

_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
_JOBS = "/api/jobs/"


def serve_dashboards(port: int, state_of: Callable[[str], State]) -> None:
    """Serve on loopback, in a thread of its own; `state_of`: a job that was submitted under an id."""
    began = int(time.time() * 1000)

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            submission = path.removeprefix(_JOBS)
            if not path.startswith(_JOBS) or "/" in submission:
                self._say([])
                return
            state, message = state_of(submission)
            self._say(
                {
                    "submission_id": submission,
                    "job_id": "01000000",
                    "type": "SUBMISSION",
                    "entrypoint": "",
                    "status": state,
                    "message": message,
                    "start_time": began,
                    "end_time": int(time.time() * 1000) if state in _ENDED else None,
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

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
