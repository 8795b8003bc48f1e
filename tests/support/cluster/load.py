"""Many jobs on one operator: how long until all run, and what the operator takes for it.

    make load LOAD_ARGS='--jobs 300'
    make load LOAD_ARGS='--finished 10000 --jobs 300'

On a control plane of its own with the real KubeRay and nodes without machines; plan Pods and drivers are played, so
that only the operator and the cluster work. `--finished`: so many jobs have ended before the operator starts. Ends
with 1 where a bar is missed.
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

from kubernetes import client, config

from support.cluster.finished import make_finished
from support.cluster.jobs import Jobs, wait_for
from support.cluster.operators import Release
from support.cluster.player import Player
from testbed.api_proxy import ApiProxy, Asked
from testbed.cluster import Testbed
from testbed.programs import find_programs
from testbed.shared import CRDS
from tokenization_operator.objects.kinds import Kind

NAMESPACE = "load"
RUNNING_S = 180.0
START_S = 60.0
MOST_MEMORY = 300 << 20
MOST_MEMORY_WITH_FINISHED = 512 << 20
MOST_REQUESTS = 20
MOST_CORE = 0.05
REST_S = 5.0
AT_REST = 0.2
SPEC = {"source": {"uris": ["gs://corpus/"]}, "tokenizer": {"name": "gpt2"}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--finished", type=int, default=0, help="jobs that have ended before the operator starts")
    parser.add_argument(
        "--ended-ago", type=float, default=600.0, help="seconds since they ended; after 3,600 their RayJobs go"
    )
    parser.add_argument("--watch", type=float, default=60.0, help="seconds of steady state for each interval")
    parser.add_argument("--intervals", type=float, nargs="*", default=[60.0, 15.0], help="of the drivers' reports")
    options = parser.parse_args()
    os.environ.setdefault("GOMEMLIMIT", "5GiB")  # of the API server, which otherwise lets as much garbage lie
    with tempfile.TemporaryDirectory() as folder:
        bed = Testbed(Path(folder) / "bed", find_programs())
        bed.up([*bed.kuberay_crds, *sorted(CRDS.glob("*.yaml"))], with_kuberay=bool(options.jobs))
        try:
            return measure(bed, Path(folder), options)
        finally:
            bed.down()


def measure(bed: Testbed, folder: Path, options: argparse.Namespace) -> int:
    bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    api = config.new_client_from_config(str(bed.kubeconfig))
    release, jobs = Release(bed, api, NAMESPACE, folder), Jobs(api, NAMESPACE)
    how = {"start": subprocess.Popen, "image": "testbed/worker:hold", "TOKENIZATION_RESYNC_SECONDS": "60"}
    names = [f"done-{number:05}" for number in range(options.finished)]
    if names:
        began = time.monotonic()
        make_finished(bed, api, NAMESPACE, names, options.ended_ago)
        print(f"{len(names)} finished jobs: made in {time.monotonic() - began:.0f} s", flush=True)
        jobs.edit(names[-1], {"rerunToken": "again"})
    bars: list[bool] = []
    with ApiProxy.of(api) as proxy, release.operator(server=proxy.url, **how) as process:
        operator = Usage(process.pid)
        if names:
            bars.append(start(operator, proxy, jobs, names[-1]))
            bars.append(steady(operator, proxy, options.watch, "none running"))
        wait_for_watches(proxy)
        if options.jobs:
            bars += run(operator, proxy, jobs, api, options)
        memory = operator.peak_bytes()
        print(f"memory of the operator: {operator.bytes_now() >> 20} MiB, at most {memory >> 20} MiB")
        bars.append(memory < (MOST_MEMORY_WITH_FINISHED if names else MOST_MEMORY))
        errors = release.errors()
        print(f"errors in its log: {len(errors)}", *(each["message"] for each in errors[:5]), sep="\n  ")
    return 0 if all(bars) and not errors else 1


def start(operator: Usage, proxy: ApiProxy, jobs: Jobs, rerun: str) -> bool:
    """Whether an operator that starts beside finished jobs takes up a new one in time, and one that is to run again."""
    began = time.monotonic()
    jobs.apply("first", SPEC | {"output": {"uri": "gs://tokens/first"}})
    wait_for(lambda: jobs.status("first").get("run"), bool, 600)
    first_s = time.monotonic() - began
    wait_for(lambda: jobs.status(rerun)["run"]["number"], lambda number: number == 2, 600)
    rerun_s = time.monotonic() - began
    wait_for_watches(proxy)
    watches_s = time.monotonic() - began
    rest_s, used_s = rest(operator, began)
    asked = Counter(map(what, (each for each in proxy.asked if not each.is_watch)))
    print(f"start: a new job taken up after {first_s:.1f} s, a rerun after {rerun_s:.1f} s")
    print(f"  all watches open after {watches_s:.0f} s, at rest after {rest_s:.0f} s")
    print(f"  {used_s:.0f} s of a core, {asked.total()} requests: {dict(asked.most_common(8))}")
    print(f"  memory {operator.bytes_now() >> 20} MiB, at most {operator.peak_bytes() >> 20} MiB", flush=True)
    return max(first_s, rerun_s) < START_S


def wait_for_watches(proxy: ApiProxy) -> None:
    """Until Kopf has listed the objects of all kinds."""
    wait_for(lambda: sum(asked.is_watch for asked in proxy.asked), lambda watches: watches >= len(Kind), 900)


def rest(operator: Usage, began: float) -> tuple[float, float]:
    """Since when the operator has little to do, for five seconds at least, and what it took until then."""
    while True:
        used, now = operator.cpu_s(), time.monotonic()
        time.sleep(REST_S)
        if (operator.cpu_s() - used) / REST_S < AT_REST:
            return now - began, used


def run(operator: Usage, proxy: ApiProxy, jobs: Jobs, api: client.ApiClient, options: argparse.Namespace) -> list[bool]:
    """Whether many jobs at once get to work in time and cost little then."""
    calls_before = len(proxy.asked)
    with Player(api, NAMESPACE, options.intervals[0]) as player:
        began = time.monotonic()
        for number in range(options.jobs):
            jobs.apply(f"job-{number}", SPEC | {"output": {"uri": f"gs://tokens/{number}"}})
        applied_s = time.monotonic() - began
        wait_for(lambda: phases(jobs), lambda found: found["Running"] >= options.jobs, 1800)
        running_s = time.monotonic() - began
        asked = Counter(map(what, (each for each in proxy.asked[calls_before:] if not each.is_watch)))
        calls = asked.total()
        print(f"{options.jobs} jobs: applied in {applied_s:.0f} s, all Running after {running_s:.0f} s")
        print(f"API requests of the operator: {calls}, {calls / options.jobs:.1f} a job (3 phases)")
        for each, count in asked.most_common():
            print(f"  {count / options.jobs:5.2f}  {each}")
        bars = [running_s < RUNNING_S, calls / options.jobs / 3 < MOST_REQUESTS]
        for interval_s in options.intervals:
            player.interval_s = interval_s
            time.sleep(interval_s)  # until all drivers have taken it over
            bars.append(steady(operator, proxy, options.watch, f"all running, a report each {interval_s:.0f} s"))
    return bars


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
        return self._of_status("VmHWM:")

    def bytes_now(self) -> int:
        return self._of_status("VmRSS:")

    def _of_status(self, field: str) -> int:
        lines = (self._folder / "status").read_text("utf-8").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))


def steady(operator: Usage, proxy: ApiProxy, watch_s: float, while_what: str) -> bool:
    """Whether the share of a core is below the bar."""
    before, calls = operator.cpu_s(), len(proxy.asked)
    time.sleep(watch_s)
    share = (operator.cpu_s() - before) / watch_s
    asked = (len(proxy.asked) - calls) / watch_s
    print(f"{while_what}: {share:.1%} of a core, {asked:.1f} requests/s", flush=True)
    return share < MOST_CORE


def phases(jobs: Jobs) -> Counter[str]:
    time.sleep(5)  # hundreds of objects each time, or thousands
    return Counter((each.get("status") or {}).get("phase", "") for each in jobs.all(Kind.JOB))


if __name__ == "__main__":
    sys.exit(main())
