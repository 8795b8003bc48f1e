"""What `tokjob explain` makes of the objects of a cluster: one screen, in order, with the next step."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from support.local_servers import Handler, serve
from support.pages import read, table_heads
from tokenization_worker.api.types.times import time_text
from tokenization_worker.cli.explain.advice import JobView, advise, split_step
from tokenization_worker.cli.explain.advice_table import ADVICE
from tokenization_worker.cli.explain.events import is_of_job, merge_events
from tokenization_worker.cli.explain.goes_on import GoesOn, goes_on
from tokenization_worker.cli.explain.logs import Log, order_pods, tail
from tokenization_worker.cli.explain.pods import summarize_pod
from tokenization_worker.cli.explain.report import Observed, age, make_report
from tokenization_worker.cli.explain.screen import draw
from tokenization_worker.cli.main import main
from tokenization_worker.output.driver_log import write_log
from tokenization_worker.storage.open import open_store

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
UID = "6f1c"
SECRET = "https://user:hunter2@registry.example/v2"
HOSTILE = "a\x1b]0;owned\x07\x1b[2J\u202eb"


def ago(seconds: float) -> str:
    return time_text(NOW - timedelta(seconds=seconds))


def job(*, name: str = "demo", seconds: float = 3600, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "team", "name": name, "uid": UID, "creationTimestamp": ago(seconds), "generation": 1},
        "spec": {"output": {"uri": "gs://tokens/demo"}},
        "status": status,
    }


def event(
    reason: str, message: str, seconds: float, about: str = "TokenizationJob demo", **more: Any
) -> dict[str, Any]:
    kind, _, name = about.partition(" ")
    uid = UID if kind == "TokenizationJob" else f"uid-of-{name}"
    return {
        "involvedObject": {"kind": kind, "name": name, "uid": uid},
        "type": "Normal",
        "reason": reason,
        "message": message,
        "lastTimestamp": ago(seconds),
        "firstTimestamp": ago(seconds),
        "count": 1,
        **more,
    }


def pod(
    name: str, role: str = "worker", *, phase: str = "Running", seconds: float = 60, **status: Any
) -> dict[str, Any]:
    labels = {"tokenization.dev/job": "demo", "tokenization.dev/attempt": "0" if role == "plan" else "1"}
    if role in ("head", "worker"):
        labels["ray.io/node-type"] = role
    return {
        "metadata": {"name": name, "namespace": "team", "labels": labels, "creationTimestamp": ago(seconds)},
        "spec": {"nodeName": "node-1", "containers": [{"name": f"ray-{role}"}]},
        "status": {"phase": phase, **status},
    }


def container(restarts: int = 0, last: dict[str, Any] | None = None, **state: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": "ray-worker",
            "image": "ghcr.io/me/worker:typo",
            "restartCount": restarts,
            "state": state,
            "lastState": {"terminated": last} if last else {},
        }
    ]


LAST_WORDS = {"exitCode": 2, "reason": "Error", "message": '{"reason": "A", "message": "b"}'}
OOM = {"exitCode": 137, "reason": "OOMKilled"}
UNPLACED = [{"type": "PodScheduled", "status": "False", "message": "0/9 nodes are available: 9 Insufficient cpu."}]


def screen(observed: Observed, width: int = 100) -> str:
    return "\n".join(draw(make_report(observed), width))


def step(found: dict[str, Any], *pods: dict[str, Any]) -> str:
    return make_report(Observed(found, NOW, pods=pods)).next_step


# --- the screen

BROKEN = Observed(
    job(
        observedGeneration=1,
        phase="Running",
        reason="WorkerMemory",
        message="3 of 40 ranges. Pod demo-r1-a2-x-worker-1 was killed for its memory: its limit is 8Gi. Raise the "
        "limit (workers.resources.limits.memory), for example 12288Mi",
        run={"number": 1, "image": "worker:1", "rerunToken": "b"},
        plan={
            "files": 6,
            "bytes": 4_500_000_000,
            "ranges": 40,
            "estimatedTokens": 1_100_000_000,
            "estimatedRows": 540_000,
            "estimatedSeconds": 900,
        },
        attempt={"number": 2, "image": "worker:2", "logUri": None},
        workers={"desired": 64, "ready": 63},
        progress={
            "percent": 7,
            "rangesTotal": 40,
            "rangesCompleted": 3,
            "tokens": 80_000_000,
            "tokensPerSecond": 1_200_000,
            "etaSeconds": 850,
            "lastCheckpointTime": ago(20),
        },
        failures={"application": 0, "infrastructure": 1},
        lastFailures=[{"attempt": 1, "time": ago(900), "reason": "HeadLost", "message": "head Pod demo-head is gone"}],
    ),
    NOW,
    events=(
        event("ClusterRequested", "RayJob demo-r1-a2", 600),
        event("Planned", "6 files, 40 ranges", 3000),
        event("BackOff", "Back-off restarting container in demo-r1-a2-x-worker-1", 30, "Pod demo-r1-a2-x-worker-1")
        | {"type": "Warning", "count": 4, "firstTimestamp": ago(200)},
        event("BackOff", "Back-off restarting container in demo-r1-a2-x-worker-2", 40, "Pod demo-r1-a2-x-worker-2")
        | {"type": "Warning"},
        event("Planned", "of a deleted namesake", 4000, "RayJob demo-r1-a1"),
        event("Planned", "of another job", 10, "TokenizationJob other"),
    ),
    pods=(
        pod("demo-r1-a2-x-head", "head", seconds=590),
        pod("demo-r1-a2-x-worker-1", containerStatuses=container(4, OOM, waiting={"reason": "CrashLoopBackOff"})),
        *(pod(f"demo-r1-a2-x-worker-{number}") for number in range(3, 65)),
        pod("demo-r1-a2-zzzzz", "submitter", seconds=500),
    ),
    log=Log("of submitter Pod demo-r1-a2-zzzzz", ("plan  6 files", "tokenize  7%")),
    not_shown=("events of kind X: forbidden",),
)

GOLDEN = """\
team/demo  Running  WorkerMemory  created 60m ago, now 2026-11-24T12:00:00Z
  3 of 40 ranges. Pod demo-r1-a2-x-worker-1 was killed for its memory: its limit is 8Gi. Raise the
  limit (workers.resources.limits.memory), for example 12288Mi
run       1 (rerunToken b), attempt 2, image worker:2
plan      6 files, 4.5 GB, 40 ranges, ~1.1B tokens, ~540k rows, ~15 min
progress  7%, 3 of 40 ranges, 80.0M tokens, 1.2M tokens/s, 14 min left, reported 20s ago
workers   63 of 64 ready
retries   0 after errors of the application, 1 after other failures
failed    attempt 1, 15m ago: HeadLost: head Pod demo-head is gone
output    gs://tokens/demo

events    of the job and what was made for it, oldest first; ! = warning
 50m   Planned  6 files, 40 ranges
 10m   ClusterRequested  RayJob demo-r1-a2
 30s ! BackOff x5 since 3m  2 Pods: Back-off restarting container in *

pods
  demo-r1-a2-x-worker-1  worker     CrashLoopBackOff  60s  4 restarts  on node-1
      keeps ending: killed for its memory (OOMKilled)
  demo-r1-a2-x-head      head       Running  9m  on node-1
  demo-r1-a2-zzzzz       submitter  Running  8m  on node-1
  demo-r1-a2-x-worker-3  worker     Running  60s  on node-1
  demo-r1-a2-x-worker-4  worker     Running  60s  on node-1
  demo-r1-a2-x-worker-5  worker     Running  60s  on node-1
  and 59 more worker Running

log       of submitter Pod demo-r1-a2-zzzzz
  plan  6 files
  tokenize  7%
not shown events of kind X: forbidden

next:     Raise spec.workers.resources.limits.memory as the message says (head:
          spec.head.resources): the next attempt has it, and continues from the finished work."""


def test_the_screen_says_why_and_what_to_do() -> None:
    assert screen(BROKEN) == GOLDEN


_PULLING = (
    "Pod wiki-r1-a1-5zlf4-workers-worker-q49vf cannot pull ghcr.io/me/worker:typo: not found. Correct spec.image, or "
    "give the Pods imagePullSecrets: the attempt starts again at once when the job is changed. 0/1 worker is ready; "
    f"waits until {ago(-47 * 60)}"
)
_WIKI = "TokenizationJob wiki"
PULLING = Observed(
    job(
        name="wiki",
        seconds=800,
        phase="Starting",
        reason="ImagePullFailed",
        message=_PULLING,
        run={"number": 1},
        plan={
            "files": 4,
            "bytes": 4_500_000_000,
            "ranges": 40,
            "estimatedTokens": 1_100_000_000,
            "estimatedSeconds": 900,
            "workers": 1,
        },
        attempt={"number": 1, "image": "ghcr.io/me/worker:typo"},
        workers={"desired": 1, "ready": 0},
        output={"uri": "gs://tokens/wiki"},
    ),
    NOW,
    events=(
        event("Planning", "Job wiki-r1-p1 lists the source", 790, _WIKI),
        event("Planned", "4 files, about 1.1B tokens, about 15 min on 1 worker", 750, _WIKI),
        event("ClusterRequested", "RayJob wiki-r1-a1", 740, _WIKI),
        event("ImagePullFailed", _PULLING, 700, _WIKI, type="Warning"),
        *(event("Pulling", f"Pulling image {number}", 720, "Pod wiki-r1-a1-5zlf4-head-mhg7r") for number in range(7)),
    ),
    pods=(
        pod(
            "wiki-r1-a1-5zlf4-workers-worker-q49vf",
            phase="Pending",
            seconds=735,
            containerStatuses=container(waiting={"reason": "ImagePullBackOff", "message": "not found"}),
        ),
        pod("wiki-r1-a1-5zlf4-head-mhg7r", "head", seconds=735),
    ),
    log=Log("of head Pod wiki-r1-a1-5zlf4-head-mhg7r", ("Ray runtime started.",)),
)


def test_the_example_of_the_documentation_is_what_is_printed() -> None:
    assert f"\n```\n{screen(PULLING, 120)}\n```\n" in read("docs/operations.md")


def test_a_hundred_broken_pods_and_a_thousand_events_are_one_screen() -> None:
    words = "a sentence without an end " * 200
    broken = [pod(f"demo-r1-a1-x-worker-{n}", phase="Pending", conditions=UNPLACED) for n in range(100)]
    events = [event(f"Reason{n}", f"{n} {words}", n, "Pod demo-r1-a1-x") | {"type": "Warning"} for n in range(1000)]
    failures = [{"attempt": n, "time": ago(9), "reason": "Bug", "message": f"{n} {words}"} for n in range(5)]
    found = job(phase="Running", reason="Running", message=words, lastFailures=failures, run={"number": 1})
    log = Log("of Pod x", tuple(["line " * 100] * 8))
    lines = screen(Observed(found, NOW, tuple(events), tuple(broken), log)).splitlines()
    assert len(lines) <= 75
    assert max(map(len, lines)) <= 100


def test_what_others_write_is_shown_and_never_obeyed_and_tells_no_secret() -> None:
    text = f"{HOSTILE} {SECRET}"
    found = job(phase="Failed", reason="Bug", message=text, run={"number": 1, "image": text}, output={"uri": text})
    broken = pod("demo-r1-a1-x", containerStatuses=container(waiting={"reason": HOSTILE, "message": text}))
    observed = Observed(found, NOW, (event("Bug", text, 5),), (broken,), Log(HOSTILE, tail(text, 8)), (HOSTILE,))
    told = screen(observed, 160)
    assert not set(told) & {"\x1b", "\x07", "\u202e"}
    assert "hunter2" not in told
    assert told.count("***@") >= 4


def test_commands_and_addresses_stay_whole_to_be_copied() -> None:
    uri = "gs://" + "a-long-folder/" * 12 + "out"
    told = screen(Observed(job(phase="Succeeded", reason="Committed", output={"uri": uri}), NOW), 80)
    assert f"`tokjob verify {uri}`" in told
    unseen = screen(Observed(job(), NOW), 80)
    assert "`kubectl get deploy -A -l app.kubernetes.io/name=tokenization-operator`" in unseen


# --- the next step


def test_every_reason_of_the_documentation_has_a_next_step() -> None:
    operations = read("docs/operations.md").split("## Phases")[1].split("## Conditions")[0]
    reasons = table_heads(read("docs/troubleshooting.md")) | table_heads(operations)
    assert not reasons - ADVICE.keys(), "add to cli/explain/advice_table.py"
    assert not ADVICE.keys() - reasons, "these are in no page any more"


def test_how_a_failed_job_goes_on_is_what_its_next_step_says() -> None:
    """The words are written apart from what `explain` decides by."""
    for reason, step in ADVICE.items():
        assert ("{again}" in step) == (goes_on(reason) is GoesOn.BY_NEW_RUN), reason
        assert ("{retried}" in step and "{again}" not in step) == (goes_on(reason) is GoesOn.BY_RETRY), reason
    assert goes_on("QuarantineExceeded") is GoesOn.BY_LIMIT_FOR_DOCUMENTS
    assert goes_on("OfANewerVersion") is GoesOn.BY_LIMIT


@pytest.mark.parametrize("reason", [*ADVICE, "OfANewerVersion"])
def test_every_next_step_is_one_or_two_plain_sentences(reason: str) -> None:
    for is_planned in (False, True):
        for is_over in (False, True):
            at = JobView(
                "demo", "team", "gs://o", "Failed" if is_over else "Starting", is_planned, asked_tpu="v5p 2x2x1"
            )
            text = advise(reason, at)
            assert not re.search(r"\{[a-z]", text.replace('{"spec":{"suspend"', ""))
            assert text[0].isupper()
            assert text.endswith((".", "`"))
            assert len(text) < 420


SILENT = {"lastRangeTime": "2026-01-01T00:00:00Z", "lastCheckpointTime": "2026-01-01T00:01:00Z"}
"""A minute lies between them; the clock is off."""


@pytest.mark.parametrize(
    ("found", "pods", "words"),
    [
        (job(), (), "The operator has not processed this job."),
        (job(phase="Pending", observedGeneration=0), (), "The operator has not processed this job."),
        (
            job(phase="Failed", reason="SourceInvalid"),
            (),
            "Correct spec.source.uris, textField or format, as the message says, and apply the job again: it continues",
        ),
        (
            job(phase="Failed", reason="SourceInvalid", plan={"files": 1}),
            (),
            "apply the job again with a new rerunToken",
        ),
        (job(phase="Retrying", reason="HeadLost"), (), "The operator tries again by itself"),
        (job(phase="Failed", reason="HeadLost"), (), "All tries that infraRetryLimit allows are used up."),
        (
            job(phase="Starting", reason="WaitingForWorkers"),
            (pod("demo-r1-a1-x", phase="Pending", conditions=UNPLACED),),
            "`kubectl describe nodes`, and add a node",
        ),
        (
            job(phase="Starting", reason="Unschedulable", plan={"files": 1})
            | {"spec": {"workers": {"tpu": {"topology": "2x2x1"}}}},
            (),
            "-L cloud.google.com/gke-tpu-accelerator,cloud.google.com/gke-tpu-topology`. Add such nodes; or correct "
            "spec.workers.tpu: the attempt starts again at once when the job is changed.",
        ),
        (
            job(phase="Starting", reason="Unschedulable", plan={"files": 1})
            | {"spec": {"workers": {"replicas": 3, "tpu": {"topology": "2x2x1"}}}},
            (),
            "is changed. Or lower spec.workers.replicas. Or set spec.workers.minReplicas: it begins with fewer",
        ),
        (
            job(phase="Starting", reason="Unschedulable", plan={"files": 1}),
            (),
            "lower spec.workers.resources: the attempt starts again at once",
        ),
        (job(phase="Planning", reason="ImagePullFailed"), (), "the plan starts again at once when the job is changed."),
        (job(phase="Starting", reason="WorkerMemory"), (), "the attempt starts again at once when the job is changed."),
        (
            job(phase="Running", reason="WorkerMemory"),
            (),
            "the next attempt has it, and continues from the finished work.",
        ),
        (job(phase="Queued", reason="Queued"), (), "Inspect the queue: `kubectl -n team get workloads,localqueues`."),
        (
            job(
                phase="Starting",
                reason="WaitingForDriver",
                attempt={"number": 6},
                lastFailures=[{"reason": "Stalled"}, {"reason": "Stalled"}, {"reason": "HeadLost"}],
            )
            | {"spec": {"stallTimeoutSeconds": 3}},
            (),
            "Attempt 6 begins; the last 2 tries ended with Stalled. Find the last range in the log, and check the file "
            "that it reads. spec.stallTimeoutSeconds is 3 (default 1800)",
        ),
        (
            job(phase="Retrying", reason="Stalled") | {"spec": {"stallTimeoutSeconds": 3}},
            (),
            "spec.stallTimeoutSeconds is 3 (default 1800): raise it",
        ),
        (
            job(phase="Running", reason="Running", attempt={"number": 1, "progressTime": ago(780)}, progress=SILENT),
            (),
            "The driver's last report in the status is 12m old",
        ),
        (
            job(phase="Failed", reason="SourceInvalid", observedGeneration=1)
            | {"metadata": job()["metadata"] | {"generation": 2}},
            (),
            "The operator has not processed the last change of the job yet",
        ),
        (
            job(phase="Running", reason="Running")
            | {"metadata": job()["metadata"] | {"deletionTimestamp": ago(9), "finalizers": ["example.com/mine"]}},
            (),
            "It waits for its finalizers: example.com/mine.",
        ),
        (job(phase="Failed", reason="OfANewerVersion"), (), "does not know the reason OfANewerVersion"),
    ],
    ids=[
        *("no status", "what the API server fills in", "before the plan", "after the plan", "retrying", "tried out"),
        *(
            "what a Pod says",
            "no TPU node",
            "too few TPU nodes",
            "no node",
            "an image of a plan",
            "memory at the start",
            "memory later",
        ),
        *(
            "a queue",
            "a try after others",
            "a stall",
            "a silent driver",
            "a change that is not seen",
            "a finalizer",
            "an unknown reason",
        ),
    ],
)
def test_the_next_step_fits(found: dict[str, Any], pods: tuple[dict[str, Any], ...], words: str) -> None:
    assert words in step(found, *pods)


V5P = {"spec": {"workers": {"tpu": {"accelerator": "tpu-v5p-slice", "topology": "2x2x1"}}}}


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (
            ("tpu-v6e-slice 2x2", "tpu-v5-lite-podslice 2x4", "tpu-v6e-slice 2x2"),
            "ask for nodes with tpu-v5p-slice 2x2x1; the cluster has tpu-v5-lite-podslice 2x4 (1 node), tpu-v6e-slice "
            "2x2 (2 nodes). Add such nodes; or correct spec.workers.tpu",
        ),
        ((), "the cluster has no TPU nodes"),
        (("tpu-v5p-slice 2x2x1",), "Compare what the Pod asks for"),
        (None, "Compare what the Pod asks for"),
    ],
    ids=["others", "none", "the same", "not known"],
)
def test_the_tpus_that_a_cluster_has_are_named(nodes: tuple[str, ...] | None, words: str) -> None:
    found = job(phase="Starting", reason="Unschedulable", plan={"files": 1}) | V5P
    assert words in " ".join(screen(Observed(found, NOW, tpu_nodes=nodes), 160).split())


def test_what_the_scheduler_says_of_preemption_is_left_out() -> None:
    message = (
        "Pod p finds no node: 0/5 nodes are available: 5 node(s) didn't match Pod's node affinity/selector. no new "
        "claims to deallocate, preemption: 0/5 nodes are available: 5 Preemption is not helpful for scheduling. 0/1 "
        "worker is ready"
    )
    told = " ".join(screen(Observed(job(phase="Starting", reason="Unschedulable", message=message), NOW), 160).split())
    assert "didn't match Pod's node affinity/selector. 0/1 worker is ready" in told


@pytest.mark.parametrize(
    ("has_kueue", "words"),
    [(False, "Kueue is not installed in this cluster"), (True, "Inspect the queue:"), (None, "Inspect the queue:")],
)
def test_a_queue_that_nothing_serves_is_named(has_kueue: bool | None, words: str) -> None:
    told = screen(Observed(job(phase="Queued", reason="Queued"), NOW, has_kueue=has_kueue), 160)
    assert words in " ".join(told.split())


@pytest.mark.parametrize(
    ("message", "rest", "step"),
    [
        ("no file. Next: check the path", "no file.", "check the path"),
        ("did you mean 'a'? Next: or 'b'", "did you mean 'a'?", "or 'b'"),
        (
            "it failed. Next: do a; or b. Failure 1 of the 6 that backoffLimit allows; the next try begins at noon",
            "it failed. Failure 1 of the 6 that backoffLimit allows; the next try begins at noon",
            "do a; or b.",
        ),
        ("3 of 4 ranges", "3 of 4 ranges", ""),
    ],
    ids=["end", "question", "counted", "none"],
)
def test_a_message_is_told_apart_from_its_next_step(message: str, rest: str, step: str) -> None:
    assert split_step(message) == (rest, step)


@pytest.mark.parametrize(
    ("reason", "more", "words"),
    [
        (
            "SourceInvalid",
            {},
            "Do a. If you change the job, apply it: it continues by itself. If you change only files, set",
        ),
        ("SourceInvalid", {"plan": {"files": 1}}, "Do a. Then apply the job again with a new spec.rerunToken."),
        ("CorruptFile", {"plan": {"files": 1}}, "Do a. Then apply the job again with a new spec.rerunToken."),
        (
            "QuarantineExceeded",
            {"plan": {"files": 1}},
            "Do a. The documents: `tokjob show --quarantined gs://tokens/demo`.",
        ),
        (
            "TokenizerChanged",
            {"plan": {"files": 1}},
            "Do a. A changed limit lets the run continue from the finished work.",
        ),
        ("StorageFailed", {"plan": {"files": 1}}, "Do a. All tries that infraRetryLimit allows are used up."),
    ],
    ids=["unplanned", "planned", "file", "documents", "limit", "tried out"],
)
def test_the_next_step_of_the_message_is_the_one_of_the_screen(reason: str, more: dict[str, Any], words: str) -> None:
    found = job(phase="Failed", reason=reason, message="it is wrong. Next: do a", **more)
    told = " ".join(screen(Observed(found, NOW), 160).split())
    assert f"next: {words}" in told
    assert "Next:" not in told


def test_a_pod_without_a_node_shows_what_it_asks_for() -> None:
    found = pod("demo-r1-a1-w", phase="Pending", conditions=UNPLACED)
    found["spec"] = {
        "nodeSelector": {"cloud.google.com/gke-tpu-topology": "2x4"},
        "containers": [{"resources": {"requests": {"cpu": "8", "memory": "16Gi"}, "limits": {"google.com/tpu": "4"}}}],
    }
    told = screen(Observed(job(phase="Starting", reason="Unschedulable"), NOW, pods=(found,)), 120)
    assert (
        "asks for google.com/tpu 4, cpu 8, memory 16Gi on a node with cloud.google.com/gke-tpu-topology=2x4\n" in told
    )
    del found["status"]["conditions"]
    assert "asks for" not in screen(Observed(job(phase="Starting", reason="Starting"), NOW, pods=(found,)))


def test_a_driver_on_a_node_whose_clock_is_behind_does_not_hang() -> None:
    progress = {"lastRangeTime": ago(1300), "lastCheckpointTime": ago(1260)}
    attempt = {"number": 1, "progressTime": ago(90)}
    assert "hangs" not in step(job(phase="Running", reason="Running", attempt=attempt, progress=progress))


def test_what_stands_still_has_no_rate() -> None:
    progress = {"percent": 50, "rangesTotal": 2, "tokensPerSecond": 1000, "etaSeconds": 60}
    assert "tokens/s" in screen(Observed(job(phase="Running", reason="Running", progress=progress), NOW))
    assert "tokens/s" not in screen(Observed(job(phase="Failed", reason="Bug", progress=progress), NOW))


def test_a_shuffle_tells_its_windows_and_the_time_that_is_left() -> None:
    progress = {"percent": 84, "rangesTotal": 4, "rangesCompleted": 4, "windowsTotal": 40, "windowsScattered": 12}
    shown = screen(Observed(job(phase="Running", reason="Running", progress=progress | {"etaSeconds": 600}), NOW))
    assert "84%, 4 of 4 ranges, 0 tokens, 12 of 40 windows scattered, 10 min left" in shown


def test_the_newest_failures_are_told_and_that_of_the_message_once() -> None:
    failures = [
        {"attempt": number, "time": ago(600 - number), "reason": "Stalled", "message": f"no new range at {number}"}
        for number in (7, 6, 5, 4, 3)
    ]
    found = job(phase="Retrying", reason="Stalled", message="no new range at 7. Failure 7", lastFailures=failures)
    assert re.findall(r"^failed    attempt (\d)", screen(Observed(found, NOW)), re.MULTILINE) == ["4", "5", "6"]
    alike = [{**each, "message": "the RayJob failed"} for each in failures]
    found = job(phase="Retrying", reason="RayJobFailed", message="the RayJob failed", lastFailures=alike)
    assert screen(Observed(found, NOW)).count("\nfailed ") == 3


def test_the_image_is_that_of_the_attempt_before_it_that_of_the_job_and_else_the_default() -> None:
    found = job(phase="Planning", reason="Planning", run={"number": 1, "image": "default"})
    assert "run       1, image default\n" in screen(Observed(found, NOW))
    found["spec"]["image"] = "mine"
    assert "run       1, image mine\n" in screen(Observed(found, NOW))
    found["status"]["attempt"] = {"number": 1, "image": "first"}
    assert "attempt 1, image first\n" in screen(Observed(found, NOW))


def test_a_log_that_cannot_be_read_is_told_in_one_place_with_the_end_of_the_reason() -> None:
    long = f"log of Pod demo-r1-a1-head: the API server answers 500: Get {'x/' * 200}: dial tcp: i/o timeout"
    told = " ".join(screen(Observed(job(phase="Running", reason="Running"), NOW, unread_log=long)).split())
    assert "log not shown, and no driver has stored one: log of Pod demo-r1-a1-head: the API server answers 500" in told
    assert told.count("log of Pod") == 1
    assert "dial tcp: i/o timeout next:" in told


def test_moments_to_come_are_told_with_how_long_that_is() -> None:
    words = f"none since {ago(90)}; waits until {ago(-57 * 60)}"
    told = screen(Observed(job(phase="Starting", reason="Starting", message=words), NOW))
    assert f"none since {ago(90)}; waits until 2026-11-24T12:57:00Z (in 57 min)" in told


def test_what_is_left_out_of_the_events_is_counted_and_where_it_is_told() -> None:
    events = tuple(event(f"Reason{number}", "words", number) for number in range(12))
    told = screen(Observed(job(phase="Running", reason="Running"), NOW, events))
    assert "oldest first; 2 left out (--json has all)\n" in told


# --- events


@pytest.mark.parametrize(
    ("about", "is_mine"),
    [
        ("TokenizationJob demo", True),
        ("TokenizationJob demo-2", False),
        ("TokenizationCheckpoint demo-r1", True),
        ("Job demo-r1-p1", True),
        ("Pod demo-r1-p1-x7x7x", True),
        ("RayJob demo-r12-a3", True),
        ("RayCluster demo-r1-a1-abcde", True),
        ("Pod demo-r1-a1-abcde-workers-worker-x", True),
        ("RayJob demo-r1-r1-a1", False),
        ("RayJob demo-r1-a1-r1-a1", False),
        ("Pod demo-ui-r1-a1", False),
        ("Pod demo", False),
    ],
)
def test_events_are_of_the_job_and_its_children(about: str, is_mine: bool) -> None:
    assert is_of_job(event("Any", "words", 5, about), "demo", UID, NOW - timedelta(hours=1)) is is_mine


def test_a_namesakes_events_are_left_out() -> None:
    created = NOW - timedelta(hours=1)
    assert not is_of_job(event("Any", "words", 7200, "RayJob demo-r1-a1"), "demo", UID, created)
    other = event("Any", "words", 5) | {"involvedObject": {"kind": "TokenizationJob", "name": "demo", "uid": "other"}}
    assert not is_of_job(other, "demo", UID, created)


def test_what_is_said_of_every_pod_gives_way_to_what_is_not() -> None:
    events = [event("Pulled", f"image {n}", n, f"Pod demo-r1-a1-{n}") for n in range(50)]
    events.append(event("FailedMount", "no such volume", 3000, "Pod demo-r1-a1-0") | {"type": "Warning"})
    facts, left_out = merge_events(events, 10)
    assert [fact.reason for fact in facts] == ["FailedMount"]
    assert left_out == 50


# --- Pods


@pytest.mark.parametrize(
    ("found", "state", "blocked", "reason"),
    [
        (pod("p", phase="Pending", conditions=UNPLACED), "Pending", "finds no node: 0/9 nodes", "Unschedulable"),
        (
            pod("p", containerStatuses=container(waiting={"reason": "ErrImagePull", "message": "not found"})),
            "ErrImagePull",
            "cannot pull ghcr.io/me/worker:typo: not found",
            "ImagePullFailed",
        ),
        (
            pod(
                "p",
                containerStatuses=container(waiting={"reason": "CreateContainerConfigError", "message": "no secret"}),
            ),
            "CreateContainerConfigError",
            "no secret",
            "PodInvalid",
        ),
        (pod("p", containerStatuses=container(terminated=OOM)), "OOMKilled", "killed for its memory", "WorkerMemory"),
        (
            pod(
                "p",
                containerStatuses=container(
                    terminated={"exitCode": 2, "reason": "Error", "message": '{"reason":"A","message":"b"}'}
                ),
            ),
            "Error",
            "ended with exit code 2: A: b",
            "",
        ),
        (pod("p", phase="Failed", reason="Evicted", message="low on memory"), "Evicted", "Evicted: low on memory", ""),
        (
            pod("p", phase="Running", containerStatuses=container(2, OOM, running={})),
            "Running",
            "restarted; before: killed for its memory",
            "WorkerMemory",
        ),
        (pod("p", phase="Pending", seconds=10), "Pending", "", ""),
        (pod("p", phase="Pending", seconds=600), "Pending", "its containers are not created yet", ""),
        (pod("p", phase="Succeeded"), "Completed", "", ""),
    ],
    ids=["unschedulable", "image", "config", "oom", "exit", "evicted", "restarted", "young", "slow", "done"],
)
def test_what_blocks_a_pod(found: dict[str, Any], state: str, blocked: str, reason: str) -> None:
    summary = summarize_pod(found, NOW)
    assert (summary.state, summary.reason) == (state, reason)
    assert blocked in summary.blocked
    assert bool(blocked) is not summary.is_well


# --- logs


def test_the_end_of_a_log_is_what_the_driver_says() -> None:
    text = (
        "\x1b[36m2026-11-24 12:00:00,1 INFO cli.py:39 -- Job submission server address\x1b[39m\n"
        "2026-11-24T12:00:01Z plan  6 files\n2026-11-24T12:00:01Z plan  6 files\n\n"
        f"reading {SECRET}\n---------\nTailing logs until the job exits\n"
    )
    assert tail(text, 5) == ("12:00:01 plan  6 files", "reading https://***@registry.example/v2")


def test_the_submitter_is_asked_first_and_the_plan_while_there_is_no_attempt() -> None:
    pods = [pod("w", "worker"), pod("p", "plan"), pod("h", "head"), pod("s", "submitter"), pod("n", phase="Pending")]
    summaries = [summarize_pod(each, NOW) for each in pods]
    assert [summary.name for summary in order_pods(summaries, is_planning=False, most=3)] == ["s", "h", "w"]
    assert [summary.name for summary in order_pods(summaries, is_planning=True, most=1)] == ["p"]


def test_a_pod_without_an_image_has_no_log_to_ask_for() -> None:
    pulls = pod("h", "head", containerStatuses=container(waiting={"reason": "ImagePullBackOff", "message": "401"}))
    summaries = [summarize_pod(each, NOW) for each in (pulls, pod("w"))]
    assert [summary.name for summary in order_pods(summaries, is_planning=False, most=3)] == ["w"]


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (200_000, "2d")])
def test_ages_are_as_kubectl_has_them(seconds: float, text: str) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == text


# --- the API server


@dataclass
class ApiServer:
    """Answers GETs: `answers` by the end of the path, else 404; a text is a log. `asked`: paths, with what was sent."""

    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    methods: set[str] = field(default_factory=set)
    ahead: timedelta = timedelta()

    def answer(self, path: str) -> Any:
        ends = sorted((end for end in self.answers if urlsplit(path).path.endswith(end)), key=len)
        return self.answers[ends[-1]] if ends else 404


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """What KUBECONFIG leads to in this test."""
    server = ApiServer()

    class Answers(Handler):
        def date_time_string(self, timestamp: float | None = None) -> str:
            return format_datetime(datetime.now(UTC) + server.ahead, usegmt=True)

        def do_GET(self) -> None:
            server.asked.append(self.path)
            found = server.answer(self.path)
            if callable(found):
                found = found(parse_qs(urlsplit(self.path).query))
            status = found if isinstance(found, int) else 200
            if status != 200:
                found = {"message": f"the words of {status}"}
            body = found.encode() if isinstance(found, str) else json.dumps(found).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serve(Answers) as port:
        path = write_kubeconfig(tmp_path / "kubeconfig", port)
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.setenv("KUBECONFIG", str(path))
        monkeypatch.setenv("COLUMNS", "120")
        yield server


def write_kubeconfig(path: Path, port: int) -> Path:
    named = {"name": "here"}
    kubeconfig = {
        "clusters": [{**named, "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{**named, "user": {}}],
        "contexts": [{**named, "context": {"cluster": "here", "user": "here", "namespace": "team"}}],
        "current-context": "here",
    }
    path.write_text(yaml.safe_dump(kubeconfig), encoding="utf-8")
    return path


JOB_PATH = "/namespaces/team/tokenizationjobs/demo"


def test_ages_are_by_the_api_servers_clock(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.ahead = timedelta(days=3)
    made = time_text(datetime.now(UTC) + timedelta(days=2, hours=23))
    server.answers = {
        JOB_PATH: job() | {"metadata": job()["metadata"] | {"creationTimestamp": made}},
        "/pods": {"items": []},
        "/events": {"items": []},
    }
    assert main(["explain", "demo"]) == 0
    assert "created 60m ago" in capsys.readouterr().out


def test_events_come_page_after_page(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    def page(query: dict[str, list[str]]) -> dict[str, Any]:
        number = int(query.get("continue", ["0"])[0])
        more = str(number + 1) if number < 2 else ""
        return {"metadata": {"continue": more}, "items": [event(f"Page{number}", "words", 5)]}

    server.answers = {JOB_PATH: job(), "/pods": {"items": []}, "/events": page}
    assert main(["explain", "demo"]) == 0
    out = capsys.readouterr().out
    assert all(f"Page{number}" in out for number in range(3))


def test_logs_of_the_time_before_a_restart_and_of_the_store_where_pods_have_none(
    server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = pod("demo-r1-a1-w", containerStatuses=container(3, OOM, waiting={"reason": "CrashLoopBackOff"}))
    server.answers = {
        JOB_PATH: job(attempt={"number": 1}),
        "/pods": {"items": [worker]},
        "/events": {"items": []},
        "/pods/demo-r1-a1-w/log": lambda query: "of the time before\n" if query["previous"] == ["True"] else "",
    }
    assert main(["explain", "tkj/demo"]) == 0
    assert "log       of worker Pod demo-r1-a1-w\n  of the time before\n" in capsys.readouterr().out
    uri = write_log(open_store(str(tmp_path / "out")), 1, 1, b"2026-11-24T12:00:01Z kept words\n")
    server.answers |= {JOB_PATH: job(attempt={"number": 1, "logUri": uri}), "/pods/demo-r1-a1-w/log": 500}
    assert main(["explain", "demo"]) == 0
    out = capsys.readouterr().out
    assert "that the driver has left:" in out
    assert "\n  12:00:01 kept words\n" in out
    gone = f"{tmp_path}/other/_tokenization/logs/1-1.log.zst"
    server.answers[JOB_PATH] = job(attempt={"number": 1, "logUri": gone})
    assert main(["explain", "demo"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"{gone} (not on this machine" in out
    assert "not shown log of Pod demo-r1-a1-w: the API server answers 500: the words of 500" in out


def test_nothing_is_asked_but_gets(server: ApiServer) -> None:
    server.answers = {JOB_PATH: job(), "/pods": {"items": []}, "/events": {"items": []}}
    assert main(["explain", "demo"]) == 0
    assert [urlsplit(path).path.rpartition("/")[2] for path in server.asked] == ["demo", "pods", "events"]


@pytest.mark.parametrize(
    ("answers", "code", "words"),
    [
        ({"/tokenizationjobs": {"items": []}}, 2, "JobNotFound: namespace team has no TokenizationJob 'demo'"),
        ({}, 2, "the cluster does not know TokenizationJobs"),
        ({JOB_PATH: 403}, 2, "NotPermitted: TokenizationJob team/demo: the words of 403"),
        ({JOB_PATH: 503}, 5, "ApiServerAway: the API server answers 503: the words of 503"),
    ],
    ids=["no such job", "no such kind", "forbidden", "away"],
)
def test_what_is_wrong_is_told(
    answers: dict[str, Any], code: int, words: str, server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers = answers
    assert main(["explain", "demo"]) == code
    assert words in capsys.readouterr().err


def test_an_api_server_that_does_not_answer(
    server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = write_kubeconfig(tmp_path / "nobody", 1)
    assert main(["explain", "demo", "--kubeconfig", str(nobody)]) == 5
    assert "ApiServerAway: the API server does not answer: " in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--kubeconfig", "/nothing/here"], ["--context", "elsewhere"]], ids=" ".join)
def test_no_cluster_that_is_known(flags: list[str], server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "demo", *flags]) == 2
    told = capsys.readouterr().err
    assert "NotInCluster: no cluster is known" in told
    assert "kubectl config get-contexts" in told


def test_a_missing_client_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "kubernetes", None)
    monkeypatch.delitem(__import__("sys").modules, "tokenization_worker.cli.explain.cluster", raising=False)
    assert main(["explain", "demo"]) == 2
    told = capsys.readouterr().err
    assert "the Kubernetes client is not installed here" in told
    assert "pip install 'kubernetes" in told
