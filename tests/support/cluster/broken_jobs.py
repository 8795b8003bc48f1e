"""Twelve broken jobs on a control plane of this machine, for a person who is to find out why with `kubectl` and `tokjob
explain` alone: their names say nothing.

    make broken-jobs

Prints how to reach them, and ends them when its input ends (Ctrl-D). `--answers` prints what is wrong with each.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubernetes import config

from support.cluster.jobs import Jobs, bad_lines, local_spec, text_files, wait_for
from support.cluster.operators import Release
from testbed.cluster import Testbed
from testbed.programs import find_programs
from testbed.shared import CRDS
from tokenization_operator.objects.kinds import Kind

NAMESPACE = "team"


def image(fates: str) -> str:
    """By its tag, an image says what becomes of its Pods."""
    return f"testbed/worker:{fates}"


def _on_tpu(folder: Path, accelerator: str, topology: str, chips: int, replicas: int = 1) -> dict[str, Any]:
    tpu = {"accelerator": accelerator, "topology": topology, "chipsPerHost": chips}
    return local_spec(folder, workers={"replicas": replicas, "tpu": tpu})


def _wrong_field(folder: Path) -> dict[str, Any]:
    spec = local_spec(folder)
    spec["source"]["textField"] = "body"
    return spec


def _dirty(folder: Path) -> dict[str, Any]:
    text_files(folder / "src")
    bad_lines(folder / "src" / "bad.jsonl")
    return local_spec(folder, maxQuarantined=3)


_SMALL = {"resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"memory": "1Gi"}}}

BROKEN: dict[str, tuple[str, Callable[[Path], dict[str, Any]]]] = {
    "ant": ("ImagePullFailed", lambda folder: local_spec(folder, image=image("plan-missing"))),
    "bee": ("ImagePullFailed", lambda folder: local_spec(folder, image=image("plan-run.worker-missing"))),
    "cat": (
        "Unschedulable",
        lambda folder: _on_tpu(folder, "tpu-v5p-slice", "2x2x1", 4),
    ),
    "dog": ("SourceInvalid", _wrong_field),
    "eel": (
        "SourceInvalid",
        lambda folder: local_spec(folder) | {"source": {"uris": [f"file://{folder}/nothing/*.jsonl"]}},
    ),
    "fox": ("TokenizerUnavailable", lambda folder: local_spec(folder, tokenizer={"name": "cl100k_bas"})),
    "gnu": ("WaitingForWorkers", lambda folder: _on_tpu(folder, "tpu-v5-lite-podslice", "2x4", 8, replicas=3)),
    "hen": ("Queued", local_spec),
    "ibis": ("WorkerMemory", lambda folder: local_spec(folder, workers=_SMALL, image=image("plan-run.worker-oom"))),
    "jay": ("QuarantineExceeded", _dirty),
    "kiwi": ("OutputConflict", lambda folder: local_spec(folder, tokenizer={"name": "cl100k_base"})),
    "lynx": (
        "Stalled",
        lambda folder: local_spec(folder, stallTimeoutSeconds=3, image=image("plan-run.driver-hold")),
    ),
}
"""By name: the reason that the job has in the end, and its spec for a folder of its own."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", action="store_true", help="say what is wrong with each, and end")
    if parser.parse_args().answers:
        print("\n".join(f"{name:<5} {reason}" for name, (reason, _) in BROKEN.items()))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the control plane is stopped
    with tempfile.TemporaryDirectory() as folder:
        bed = Testbed(Path(folder) / "bed", find_programs())
        bed.up(sorted(CRDS.glob("*.yaml")))
        try:
            return show(bed, Path(folder))
        finally:
            bed.down()


def show(bed: Testbed, folder: Path) -> int:
    bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    api = config.new_client_from_config(str(bed.kubeconfig))
    release, jobs = Release(bed, api, NAMESPACE, folder), Jobs(api, NAMESPACE)
    with release.operator():
        break_all(jobs, folder)
        print(f"export KUBECONFIG={bed.kubeconfig} PATH={bed.commands}:$PATH")
        print(f"kubectl -n {NAMESPACE} get tkj; tokjob explain -n {NAMESPACE} ant", flush=True)
        print("Ctrl-D, Ctrl-C or SIGTERM ends them", flush=True)
        sys.stdin.read()
    return 0


def break_all(jobs: Jobs, folder: Path) -> None:
    """Apply all, and wait until each has its reason."""
    jobs.apply("kiwi-before", local_spec(folder / "kiwi"))
    jobs.reach("kiwi-before", "Succeeded")
    jobs.delete("kiwi-before")
    for name, (_, spec) in BROKEN.items():
        labels = {"labels": {"kueue.x-k8s.io/queue-name": "tpus"}} if name == "hen" else {}
        jobs.apply(name, spec(folder / name), **labels)
    wait_for(lambda: "hen-r1-a1" in jobs.names(Kind.RAY_JOB), bool)
    jobs.patch(Kind.RAY_JOB, "hen-r1-a1", {"spec": {"suspend": True}})  # as Kueue does
    for name, (reason, _) in BROKEN.items():
        jobs.wait(name, lambda status, reason=reason: status.get("reason") == reason)


if __name__ == "__main__":
    sys.exit(main())
