"""A real Prometheus, of the distribution's package: scrapes operators of tests, and judges rules."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from testbed.ports import hold_ports
from testbed.processes import Processes
from testbed.programs import Unavailable

_NAME = "prometheus"
_TOOL = "promtool"
_INTERVAL = "2s"
_PATIENCE_S = 300.0


def find_prometheus() -> tuple[Path, Path]:
    """`prometheus` and `promtool`; raises `Unavailable`."""
    found = [shutil.which(name) for name in (_NAME, _TOOL)]
    if None in found:
        raise Unavailable("Prometheus is not installed: apt-get install prometheus")
    server, tool = (Path(str(path)) for path in found)
    return server, tool


def promtool(*words: str | Path) -> str:
    """What promtool says; raises `AssertionError` with its words."""
    done = subprocess.run([str(find_prometheus()[1]), *map(str, words)], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


class Prometheus:
    """Scrapes metrics at a port of this machine every two seconds. A context manager. `rules`: a file of them."""

    def __init__(self, folder: Path, port: int, rules: Path | None = None) -> None:
        self._folder = folder
        self._processes = Processes(folder / "processes")
        target = {"targets": [f"127.0.0.1:{port}"], "labels": {"namespace": "operators", "pod": "operator-0"}}
        self._configuration: Mapping[str, Any] = {
            "global": {"scrape_interval": _INTERVAL, "scrape_timeout": _INTERVAL, "evaluation_interval": _INTERVAL},
            "rule_files": [] if rules is None else [str(rules)],
            "scrape_configs": [{"job_name": "operator-metrics", "static_configs": [target]}],
        }
        self.url = ""

    def __enter__(self) -> Self:
        server, _ = find_prometheus()
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / "prometheus.yml"  # of which JSON is a part
        file.write_text(json.dumps(self._configuration), encoding="utf-8")
        [port] = hold_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self._processes.start(
            _NAME,
            *(server, f"--config.file={file}", f"--storage.tsdb.path={self._folder / 'data'}"),
            *(f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"),
        )
        self._processes.wait_until("Prometheus", self._is_ready, needs=(_NAME,), patience_s=_PATIENCE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._processes.stop_all()

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=30) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression has now, each with its `metric` and its `value`."""
        return self._ask("query", query=expression)

    def query_range(self, expression: str, start: float, end: float, step_s: float) -> list[dict[str, Any]]:
        """The series of an expression between two moments, each with its `metric` and its `values`."""
        return self._ask("query_range", query=expression, start=str(start), end=str(end), step=str(step_s))

    def ever_firing(self) -> set[tuple[str, str]]:
        """Alerts that fire or have fired, each with the name of its job, if it is about one."""
        found = self.query('max_over_time(ALERTS{alertstate="firing"}[1h])')
        return {(each["metric"]["alertname"], each["metric"].get("job_name", "")) for each in found}

    def last_evaluation(self) -> datetime:
        """When every group of rules had been evaluated last."""
        with urllib.request.urlopen(f"{self.url}/api/v1/rules", timeout=_PATIENCE_S) as answer:
            groups = json.load(answer)["data"]["groups"]
        return min(datetime.fromisoformat(each["lastEvaluation"]) for each in groups)

    def _ask(self, what: str, **parameters: str) -> list[dict[str, Any]]:
        """Raises `AssertionError` with Prometheus' words."""
        address = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=_PATIENCE_S) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        return found
