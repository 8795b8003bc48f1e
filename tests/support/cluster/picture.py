"""What the chart's dashboard shows of a few minutes of an operator, as a picture for the documentation.

    make dashboard-picture

On a control plane of its own; jobs are planned and run by players, so that they take as long as the picture needs.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kubernetes import config

from support.cluster.jobs import Jobs, local_spec, wait_for
from support.cluster.operators import CHART, Release
from support.cluster.player import Player
from testbed.cluster import Testbed
from testbed.ports import hold_ports
from testbed.programs import find_programs
from testbed.prometheus import Prometheus
from testbed.shared import CRDS

NAMESPACE = "team"
JOBS = 6
APART_S = 8.0
REPORTS = 50
POINTS = 60
CHECKOUT = CHART.parents[1]
PICTURE = CHECKOUT / "docs" / "dashboard.svg"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        bed = Testbed(Path(folder) / "bed", find_programs())
        bed.up(sorted(CRDS.glob("*.yaml")))
        try:
            answers = Path(folder) / "answers.json"
            answers.write_text(json.dumps(watch(bed, Path(folder))), encoding="utf-8")
        finally:
            bed.down()
        script = CHECKOUT / "scripts" / "draw_dashboard.py"
        return subprocess.run([sys.executable, script, answers, PICTURE], check=False).returncode


def watch(bed: Testbed, folder: Path) -> list[dict[str, Any]]:
    """The panels of the dashboard with what Prometheus has, from the first job to the end of the last."""
    bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    api = config.new_client_from_config(str(bed.kubeconfig))
    release, jobs = Release(bed, api, NAMESPACE, folder), Jobs(api, NAMESPACE)
    [port] = hold_ports(1)
    with (
        release.operator(metrics_port=port, image="testbed/worker:hold"),
        Prometheus(folder / "prometheus", port) as prometheus,
    ):
        wait_for(lambda: prometheus.query("tokenization_jobs"), bool)
        began = time.time()
        with Player(api, NAMESPACE, interval_s=2.0, reports=REPORTS, ranges=REPORTS):
            for number in range(JOBS):
                jobs.apply(f"corpus-{number}", local_spec(folder))
                time.sleep(APART_S)
            jobs.apply("broken", local_spec(folder, image="testbed/worker:driver-exit1", infraRetryLimit=2))
            names = [f"corpus-{number}" for number in range(JOBS)]
            wait_for(lambda: all(jobs.status(name).get("phase") == "Succeeded" for name in names), bool, 900)
            jobs.reach("broken", "Failed", deadline_s=300)
            enough = 'count_over_time(tokenization_job_phase{phase="Failed"}[1m]) > 5'
            wait_for(lambda: prometheus.query(enough), bool)
        return ask(prometheus, began, time.time())


def ask(prometheus: Prometheus, began: float, ended: float) -> list[dict[str, Any]]:
    board = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))
    found = []
    for panel in board["panels"]:
        series = []
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$job_namespace", ".*")
            for each in prometheus.query_range(query, began, ended, (ended - began) / POINTS):
                values = [(second - began, float(value)) for second, value in each["values"] if value != "NaN"]
                series.append({"name": name_of(target["legendFormat"], each["metric"]), "values": values})
        if "targets" in panel:
            unit = panel["fieldConfig"]["defaults"]["unit"]
            found.append({"title": panel["title"], "unit": unit, "series": series})
    return found


def name_of(form: str, labels: dict[str, str]) -> str:
    """As Grafana makes it; instances are ports of this machine."""
    return re.sub(r"\{\{(\w+)\}\}", lambda label: labels.get(label[1], ""), form).replace("127.0.0.1:", "port ")


if __name__ == "__main__":
    sys.exit(main())
