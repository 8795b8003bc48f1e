"""Many jobs on one operator: how long until all run, and what the operator takes for it.

    make load LOAD_ARGS='--jobs 300'

On a control plane of its own with the real KubeRay and nodes without machines; plan Pods and drivers are played, so
that only the operator and the cluster work. Ends with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from jobs import Jobs, wait_for
from kubernetes import config
from operators import Release
from player import Player

from testbed.api_proxy import ApiProxy, Asked
from testbed.cluster import Testbed
from testbed.programs import find_programs
from testbed.shared import CRDS
from tokenization_operator.kinds import Kind

NAMESPACE = "load"
RUNNING_S = 180.0
MOST_MEMORY = 300 << 20
MOST_REQUESTS = 20
MOST_CORE = 0.05
SPEC = {"source": {"uris": ["gs://corpus/"]}, "tokenizer": {"name": "gpt2"}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--watch", type=float, default=60.0, help="seconds of steady state for each interval")
    parser.add_argument("--intervals", type=float, nargs="*", default=[60.0, 15.0], help="of the drivers' reports")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bed = Testbed(Path(folder) / "bed", find_programs())
        bed.up(sorted(CRDS.glob("*.yaml")))
        try:
            return measure(bed, Path(folder), options)
        finally:
            bed.down()


def measure(bed: Testbed, folder: Path, options: argparse.Namespace) -> int:
    bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    api = config.new_client_from_config(str(bed.kubeconfig))
    release, jobs = Release(bed, api, NAMESPACE, folder), Jobs(api, NAMESPACE)
    how = {"start": subprocess.Popen, "image": "testbed/worker:hold", "TOKENIZATION_RESYNC_SECONDS": "60"}
    with ApiProxy.of(api) as proxy, release.operator(server=proxy.url, **how) as process:
        wait_for(lambda: sum(asked.is_watch for asked in proxy.asked), lambda watches: watches >= 5)
        operator = Usage(process.pid)
        with Player(api, NAMESPACE, options.intervals[0]) as player:
            began = time.monotonic()
            for number in range(options.jobs):
                jobs.apply(f"job-{number}", SPEC | {"output": {"uri": f"gs://tokens/{number}"}})
            applied_s = time.monotonic() - began
            wait_for(lambda: phases(jobs), lambda found: found["Running"] == options.jobs, 1800)
            running_s = time.monotonic() - began
            asked = Counter(map(what, (each for each in proxy.asked if not each.is_watch)))
            calls = asked.total()
            print(f"{options.jobs} jobs: applied in {applied_s:.0f} s, all Running after {running_s:.0f} s")
            print(f"API requests of the operator: {calls}, {calls / options.jobs:.1f} a job (3 phases)")
            for each, count in asked.most_common():
                print(f"  {count / options.jobs:5.2f}  {each}")
            bars = [running_s < RUNNING_S, calls / options.jobs / 3 < MOST_REQUESTS]
            for interval_s in options.intervals:
                player.interval_s = interval_s
                time.sleep(interval_s)  # until all drivers have taken it over
                bars.append(steady(operator, proxy, options.watch, interval_s))
        memory = operator.peak_bytes()
        print(f"memory of the operator at most: {memory >> 20} MiB")
        bars.append(memory < MOST_MEMORY)
        errors = release.errors()
        print(f"errors in its log: {len(errors)}")
    return 0 if all(bars) and not errors else 1


def what(asked: Asked) -> str:
    """Method and kind of a request, with the subresource."""
    _, _, rest = asked.path.partition(f"/namespaces/{NAMESPACE}/")
    words = (rest or asked.path).split("/")
    return " ".join((asked.method, words[0], *words[2:]))


class Usage:
    """What a process has taken so far."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")

    def cpu_s(self) -> float:
        fields = (self._folder / "stat").read_text("utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_bytes(self) -> int:
        lines = (self._folder / "status").read_text("utf-8").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def steady(operator: Usage, proxy: ApiProxy, watch_s: float, interval_s: float) -> bool:
    """Whether the share of a core is below the bar while all drivers report."""
    before, calls = operator.cpu_s(), len(proxy.asked)
    time.sleep(watch_s)
    share = (operator.cpu_s() - before) / watch_s
    asked = (len(proxy.asked) - calls) / watch_s
    print(f"all running, a report each {interval_s:.0f} s: {share:.1%} of a core, {asked:.1f} requests/s", flush=True)
    return share < MOST_CORE


def phases(jobs: Jobs) -> Counter[str]:
    time.sleep(5)  # 300 objects each time
    return Counter((each.get("status") or {}).get("phase", "") for each in jobs.all(Kind.JOB))


if __name__ == "__main__":
    sys.exit(main())
