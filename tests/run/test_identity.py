"""Identity end to end: what a tokenizer is called is not what it does, and how a job runs is not what it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.command_line import sample_texts
from support.corpus import json_lines
from support.engine.inline import inline
from support.runs import make_job, read_index, shard_files
from support.tokenizer_models import train_byte_level, write_json
from tokenization_worker import verify
from tokenization_worker.api.keys import run_key
from tokenization_worker.engine.task import Task
from tokenization_worker.errors import ChangedError, DataError
from tokenization_worker.inspect.preview import make_plan
from tokenization_worker.output import layout
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.run.run import run_job
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.verification.report import Fault


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    folder.mkdir()
    for name in "ab":
        (folder / f"{name}.jsonl").write_bytes(json_lines(sample_texts(name, 60)))
    return folder


def plan_of(source: Path, output: Path, **fields: Any) -> Plan:
    return make_plan(make_job(source, output, fields))


def test_two_names_of_one_tokenizer_have_one_data_key_and_two_run_keys(source: Path, tmp_path: Path) -> None:
    encoding = plan_of(source, tmp_path / "out", tokenizer={"name": "cl100k_base"})
    model = plan_of(source, tmp_path / "out", tokenizer={"name": "gpt-4"})
    other = plan_of(source, tmp_path / "out", tokenizer={"name": "gpt2"})
    assert model.data_key == encoding.data_key
    assert model.run_key != encoding.run_key
    assert other.data_key != encoding.data_key


def test_dataset_of_one_name_is_proved_for_the_other(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    run_job(make_job(source, output, tokenizer={"name": "cl100k_base"}), executor=inline())
    index, model = read_index(output), make_job(source, output, tokenizer={"name": "gpt-4"})
    finished = run_job(model, executor=inline())
    assert (finished.already, finished.rebuilt) == (False, 0)
    assert read_index(output) == index
    assert (output / "_tokenization" / "reruns" / f"{run_key(model)}.json").exists()
    assert run_job(model, executor=inline()).already
    with pytest.raises(ChangedError, match="OutputConflict"):
        run_job(make_job(source, output, tokenizer={"name": "gpt2"}), executor=inline())


@pytest.mark.parametrize(
    "fields",
    [
        {"maxQuarantined": "50%"},
        {"maxCorruptFiles": 3},
        {"rangeBytes": "64Ki"},
        {"workers": {"replicas": 7, "nodeSelector": {"a": "b"}}},
        {"backoffLimit": 0, "suspend": True, "ttlSecondsAfterFinished": 60},
    ],
    ids=lambda fields: "-".join(fields),
)
def test_how_a_job_runs_changes_no_key_and_the_dataset_counts_as_its_own(
    fields: dict[str, Any], source: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    plain, other = ({"tokenizer": {"name": "bytes"}} | more for more in ({}, fields))
    first, second = plan_of(source, output, **plain), plan_of(source, output, **other)
    assert (first.data_key, first.run_key) == (second.data_key, second.run_key)
    run_job(make_job(source, output, plain), executor=inline())
    assert run_job(make_job(source, output, other), executor=inline()).already


def test_place_of_the_output_is_no_part_of_the_data(source: Path, tmp_path: Path) -> None:
    jobs = [make_job(source, tmp_path / name, tokenizer={"name": "bytes"}) for name in ("one", "two")]
    for job in jobs:
        run_job(job, executor=inline())
    one, two = read_index(tmp_path / "one"), read_index(tmp_path / "two")
    assert one["dataKey"] == two["dataKey"]
    assert one["digest"] == two["digest"]
    assert one["run"]["runKey"] != two["run"]["runKey"]
    assert shard_files(tmp_path / "one") == shard_files(tmp_path / "two")


END = {"id": 600, "content": "<|endoftext|>", "special": True}


def test_worker_that_finds_another_tokenizer_than_the_plan_did_stops(source: Path, tmp_path: Path) -> None:
    """A spawned worker reads the tokenizer's file itself, at a time when it may be another."""
    model, output = write_json(tmp_path / "tokenizer.json", train_byte_level([END])), tmp_path / "out"
    job = make_job(source, output, {"tokenizer": {"name": None, "uri": str(model)}})
    planned = model.read_bytes()

    def replace(_: Task) -> None:
        write_json(model, train_byte_level([END], normalizer={"type": "Lowercase"}))
        load_tokenizer.cache_clear()

    with pytest.raises(ChangedError, match=rf"TokenizerChanged: {model} changed .* was \w+, is \w+\n.*put that"):
        run_job(job, executor=inline(replace))
    model.write_bytes(planned)
    load_tokenizer.cache_clear()
    assert not run_job(job, executor=inline()).already


def test_no_bit_of_a_plan_may_change(source: Path, tmp_path: Path) -> None:
    """A border between two slices that moved would lose a document, or read it twice."""
    data = plan_of(source, tmp_path / "out", rangeBytes="1Ki").to_bytes()
    assert Plan.from_bytes(data, "out").n_ranges > 2
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        with pytest.raises((DataError, ChangedError), match=r"RecordCorrupt|not a plan that this version can read"):
            Plan.from_bytes(bytes(changed), "out")


@pytest.mark.parametrize("place", [0, 100, -5, None], ids=["magic", "header", "cut", "empty"])
def test_a_run_and_verify_stop_at_a_plan_that_was_changed(place: int | None, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    job = make_job(source, output, rangeBytes="1Ki")
    run_job(job, executor=inline())
    plan = output / layout.PLAN
    data = bytearray(plan.read_bytes())
    if place is not None:
        data[place] ^= 1
    plan.write_bytes(b"" if place is None else data)
    report = verify(str(output), mode="checksums")
    assert [(finding.fault, finding.path) for finding in report.findings] == [(Fault.TABLE_CORRUPT, layout.PLAN)]
    (output / layout.INDEX).unlink()
    with pytest.raises((DataError, ChangedError), match="RecordCorrupt" if place else r"RecordCorrupt|OutputConflict"):
        run_job(job, executor=inline())
