"""The plan Pod's command, with a checkpoint that is not in any cluster; what the API server has to do with it is shown
on the test bed."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from support.cluster.fake_checkpoint import Checkpoint
from support.runs import make_job
from tokenization_worker import open_dataset
from tokenization_worker.api.checkpoint import (
    LAST_WORDS_VARIABLE,
    CheckpointPlan,
    CheckpointSpec,
    FailureReport,
    TokenizationCheckpoint,
    make_attempt_spec,
    make_run_spec,
)
from tokenization_worker.api.metadata import API_VERSION
from tokenization_worker.cli import plan_checkpoint
from tokenization_worker.errors import DataError, SpecError
from tokenization_worker.output.plan_file import read_plan
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.storage.local.store import LocalStore
from tokenization_worker.verification.verify import dataset_digest


@pytest.fixture
def output() -> dict[str, Any]:
    """Fields of `output` beside its place."""
    return {}


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: dict[str, Any]) -> Checkpoint:
    monkeypatch.delenv(LAST_WORDS_VARIABLE, raising=False)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.txt").write_text("one line\n", encoding="utf-8")
    job = make_job(tmp_path / "src", tmp_path / "out", tokenizer={"name": "bytes"}, output=output)
    spec = CheckpointSpec(
        run=make_run_spec(job, number=1, job_uid="uid"), attempt=make_attempt_spec(job, number=0, image=None, slots=8)
    )
    kind = {"apiVersion": API_VERSION, "kind": "TokenizationCheckpoint"}
    client = Checkpoint({**kind, "metadata": {"name": "demo-r1"}, "spec": spec.to_manifest()})
    monkeypatch.setattr(plan_checkpoint, "CheckpointClient", lambda name: client)
    return client


def test_a_plan_is_reported_with_the_versions_of_the_image(checkpoint: Checkpoint, tmp_path: Path) -> None:
    assert plan_checkpoint.plan_checkpoint("demo-r1") == 0
    [report] = checkpoint.plans
    assert (report.files, report.ranges, report.already_complete) == (1, 1, False)
    assert report.ray_version
    assert report.worker_version
    assert not checkpoint.committed
    assert read_plan(LocalStore(tmp_path / "out")) is not None


@pytest.mark.parametrize("output", [{"sequence": {"length": 5}}])
def test_a_plan_with_rows_reports_how_many_and_how_much_is_text(checkpoint: Checkpoint) -> None:
    assert plan_checkpoint.plan_checkpoint("demo-r1") == 0
    [report] = checkpoint.plans
    assert (report.estimated_tokens, report.estimated_rows, report.estimated_utilization) == (10, 2, "90.0%")


def test_a_dataset_that_is_there_is_reported_with_all_that_a_training_job_needs(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run_job(TokenizationCheckpoint.model_validate(checkpoint.read()).to_job(), options=Options(processes=1))
    assert plan_checkpoint.plan_checkpoint("demo-r1") == 0
    [report] = checkpoint.committed
    assert report.index_uri == f"{out}/index.json"
    assert report.index_digest == sha256((out / "index.json").read_bytes()).hexdigest()
    assert report.digest == dataset_digest(str(out)), "that of `tokjob verify --digest`, from the bytes"
    assert report.fingerprint == open_dataset(out).index["tokenizer"]["fingerprint"]
    assert report.tokens == len(open_dataset(out)["train"])


def test_a_run_that_cannot_end_well_gets_no_machines(checkpoint: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "src" / "a.txt").write_bytes(b"no UTF-8: \xff\n")
    with pytest.raises(DataError, match="QuarantineExceeded"):
        plan_checkpoint.plan_checkpoint("demo-r1")
    [report] = checkpoint.plans
    assert report.failure is not None
    assert (report.failure.reason, report.failure.exit_code) == ("QuarantineExceeded", 4)


def test_a_dataset_beside_a_plan_that_cannot_be_read_is_complete(checkpoint: Checkpoint, tmp_path: Path) -> None:
    run_job(TokenizationCheckpoint.model_validate(checkpoint.read()).to_job(), options=Options(processes=1))
    plan = read_plan(LocalStore(tmp_path / "out"))
    (tmp_path / "out" / "_tokenization" / "plan").write_bytes(b"TOKPLAN2 and no more")
    assert plan_checkpoint.plan_checkpoint("demo-r1") == 0
    [report] = checkpoint.plans
    assert plan is not None
    assert (report.already_complete, report.plan_id, report.data_key) == (True, plan.plan_id, plan.data_key)


def test_a_plan_that_cannot_be_reported_leaves_words_at_once(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each report is tried for a while; the user is to know within a minute."""
    refused: list[CheckpointPlan] = []

    def refuse(report: CheckpointPlan) -> None:
        refused.append(report)
        raise SpecError("NamespaceNotPrepared", "403")

    monkeypatch.setattr(checkpoint, "report_plan", refuse)
    monkeypatch.setenv(LAST_WORDS_VARIABLE, str(tmp_path / "words"))
    with pytest.raises(SpecError, match="403"):
        plan_checkpoint.plan_checkpoint("demo-r1")
    assert len(refused) == 1
    assert FailureReport.model_validate_json((tmp_path / "words").read_text("utf-8")).reason == "NamespaceNotPrepared"


def test_an_image_without_ray_is_refused_before_it_gets_machines(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_checkpoint, "_ray_version", lambda: None)
    with pytest.raises(SpecError, match=r"the worker image has tokenization .*, but not Ray"):
        plan_checkpoint.plan_checkpoint("demo-r1")
    [report] = checkpoint.plans
    assert report.failure is not None
    assert (report.failure.reason, report.failure.exit_code) == ("ImageUnfit", 2)


def test_an_image_that_is_too_old_for_its_run_says_so_before_it_plans(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.found["spec"]["run"]["minimumVersion"] = "999.0.0"
    monkeypatch.setenv(LAST_WORDS_VARIABLE, str(tmp_path / "words"))
    with pytest.raises(SpecError, match=r"needs a worker of tokenization 999\.0\.0 or newer"):
        plan_checkpoint.plan_checkpoint("demo-r1")
    words = FailureReport.model_validate_json((tmp_path / "words").read_text("utf-8"))
    assert (words.reason, words.exit_code) == ("WorkerTooOld", 2)
    assert "set spec.image" in (words.next_step or "")
    assert not (tmp_path / "out").exists()
