"""Jobs of a team on a real cluster: their manifests, how far they are, and what they have written."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from e2e.node import STORE
from e2e.steps import step
from support.cluster.jobs import Jobs, wait_for
from support.forked_commands import TOKJOB
from support.objects import differing_shards
from support.runs import read_index
from tokenization_operator.objects.kinds import Kind
from tokenization_worker.output.object_metadata import record_of
from tokenization_worker.output.record import load_record
from tokenization_worker.storage.base import Entry
from tokenization_worker.storage.gcs.client import crc32c_number, gcs_client
from tokenization_worker.storage.open import open_store

CORPUS_FILES = 40
TOKENIZER = {"name": "cl100k_base"}
RANGE_BYTES = "256Ki"
SHARD_TOKENS = 500_000
NAME = "corpus"
TOO_LATE = "it was too late for this test"
RUN_S = 600.0
"""Patience for a whole run, or for what goes on after a fault, also on a machine that has much else to do."""

_SMALL = {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}


def fit(spec: dict[str, Any], replicas: int = 2) -> dict[str, Any]:
    """The same work by small workers on the store of this machine, in many ranges and shards."""
    return {
        **spec,
        "output": {**spec["output"], "shards": {"tokens": SHARD_TOKENS}},
        "rangeBytes": RANGE_BYTES,
        "env": [{"name": "STORAGE_EMULATOR_HOST", "value": STORE}],
        "workers": {"replicas": replicas, "resources": _SMALL},
        "head": {"resources": _SMALL},
    }


def start_of(pod: dict[str, Any]) -> datetime:
    """When the kubelet began with a Pod."""
    return datetime.fromisoformat(pod["status"]["startTime"])


@dataclass(frozen=True)
class Team:
    """`jobs`: of its namespace; `bucket`: has its corpus, and takes what it writes."""

    jobs: Jobs
    bucket: str

    def spec(self, output: str = "out", replicas: int = 2, **more: Any) -> dict[str, Any]:
        """Of a job that tokenizes the corpus; `more`: other fields."""
        source, target = {"uris": [f"gs://{self.bucket}/corpus"]}, {"uri": self.uri(output)}
        return {**fit({"source": source, "tokenizer": TOKENIZER, "output": target}, replicas), **more}

    def begin(self, replicas: int = 2) -> None:
        """A run of which something is done."""
        self.jobs.apply(NAME, self.spec(replicas=replicas))
        with step("reach the first ranges"):
            self.wait_for_ranges(3)

    def uri(self, output: str = "out") -> str:
        return f"gs://{self.bucket}/{output}"

    def receipts(self, output: str = "out") -> set[tuple[str, str]]:
        """Path and generation of what says that a range is done."""
        found = open_store(self.uri(output)).list("_tokenization/ledger/")
        return {(entry.path, entry.version) for entry in found if "/ranges/" in entry.path}

    def count_done(self, output: str = "out") -> int:
        return len(self.receipts(output))

    def is_committed(self, output: str = "out") -> bool:
        """Whether the dataset is complete, whatever Kubernetes knows of it."""
        return any(entry.path == "index.json" for entry in open_store(self.uri(output)).list("index.json"))

    def wait_for_ranges(self, least: int, output: str = "out") -> None:
        wait_for(lambda: self.count_done(output), lambda done: done >= least, RUN_S)

    def first_ranges(self, output: str = "out") -> dict[str, datetime]:
        """When the first range of each node of Ray's was done, by `POD/ID` and the store's clock."""
        first: dict[str, datetime] = {}
        for blob in gcs_client().list_blobs(self.bucket, prefix=f"{output}/_tokenization/ledger/"):
            if "/ranges/" in blob.name:
                carried = record_of(Entry(blob.name, blob.size, "", blob.metadata or {}, crc32c_number(blob.crc32c)))
                node = load_record(carried or blob.download_as_bytes(), is_proven=True)["node"]
                first[node] = min(first.get(node, blob.updated), blob.updated)
        return first

    def pods(self, name: str, node_type: str) -> list[dict[str, Any]]:
        """A job's Pods of that type, `head` or `worker`, that are not going."""
        labels = {"tokenization.dev/job": name, "ray.io/node-type": node_type}
        return [
            pod
            for pod in self.jobs.all(Kind.POD)
            if labels.items() <= (pod["metadata"].get("labels") or {}).items()
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def succeed(self, name: str, reason: str = "") -> dict[str, Any]:
        """Wait until the job has succeeded; its status."""
        status = self.jobs.wait(name, lambda status: status.get("phase") in ("Succeeded", "Failed"), RUN_S)
        assert status["phase"] == "Succeeded", status
        assert reason in ("", status["reason"]), status
        return status

    def prove(self, expected: Path, output: str = "out") -> None:
        """Verify what was written, and compare it with a local run's."""
        verified = subprocess.run(
            [TOKJOB, "verify", self.uri(output), "--processes", "1"], capture_output=True, text=True, check=False
        )
        assert verified.returncode == 0, verified.stdout + verified.stderr
        assert differing_shards(self.uri(output), expected) == []
        index = json.loads(open_store(self.uri(output)).read("index.json"))
        assert index["digest"] == read_index(expected)["digest"], "of sidecars and tables, too"

    def clear(self) -> None:
        """Delete all jobs; returns when their Pods are gone."""
        self.jobs.delete_all(Kind.JOB)
        wait_for(lambda: self.jobs.names(Kind.POD), lambda names: not names)
