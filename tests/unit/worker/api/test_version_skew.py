"""Operators and worker images of neighbouring versions work on the same run.

`checkpoints-0.1.0.json` holds what the operator of version 0.1.0 wrote. It stands for all older versions and is never
made again: where the tests here fail, the code must change, and not the file.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.manifests.api_manifests import Manifest
from support.places import RELEASED
from tokenization_worker.api.checkpoint import AttemptSpec, CheckpointSpec, RunSpec, make_attempt_spec, make_run_spec
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.keys import FROZEN_DEFAULTS, KEY_VERSION, run_key
from tokenization_worker.api.types.walk import iter_fields
from tokenization_worker.api.version_skew import (
    LATER_FIELDS,
    LaterField,
    attempt_number,
    read_checkpoint,
    write_part,
)
from tokenization_worker.errors import SpecError

DATA = RELEASED / "checkpoints-0.1.0.json"
WRITTEN: dict[str, dict[str, Manifest]] = json.loads(DATA.read_text(encoding="utf-8"))
VERSION = "0.2.0"
EACH = pytest.mark.parametrize("name", WRITTEN)


def checkpoint_of(name: str = "smallest") -> Manifest:
    return copy.deepcopy(WRITTEN[name]["checkpoint"])


def blocks_of(value: Any) -> Iterator[dict[str, Any]]:
    """Every block of an object, itself among them."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from blocks_of(each)


# What a worker reads


@EACH
def test_a_worker_executes_what_the_operator_of_0_1_0_wrote(name: str) -> None:
    checkpoint = read_checkpoint(checkpoint_of(name), VERSION)
    job = checkpoint.to_job()
    asked = TokenizationJob.from_object(WRITTEN[name]["job"])
    assert run_key(job) == run_key(asked) == checkpoint.spec.run.run_key
    assert (job.spec.max_quarantined, job.spec.range_bytes) == (asked.spec.max_quarantined, asked.spec.range_bytes)


@EACH
def test_unknown_fields_of_a_checkpoint_are_ignored_at_every_level(name: str) -> None:
    known = read_checkpoint(checkpoint_of(name), VERSION)
    newer = checkpoint_of(name)
    special_tokens = newer["spec"]["run"]["tokenizer"].pop("specialTokens", None)  # a map: its keys are no fields
    blocks = [block for block in blocks_of(newer) if block is not newer["metadata"].get("labels")]
    assert len(blocks) > 10
    for block in blocks:
        block["aFieldOfTomorrow"] = {"deep": [1]}
    if special_tokens:
        newer["spec"]["run"]["tokenizer"]["specialTokens"] = special_tokens
    assert read_checkpoint(newer, VERSION) == known


@pytest.mark.parametrize("part", ["run", "attempt"])
@pytest.mark.parametrize(
    ("minimum", "version", "is_enough"),
    [
        ("0.2.0", "0.2.0", True),
        ("0.2.0", "0.10.0", True),
        ("0.2.0", "0.2.0.dev3+g1", True),
        ("0.2.0", "1.0", True),
        ("0.2.1", "0.2.0", False),
        ("0.10.0", "0.9.3", False),
        ("1.0.0", "0.2.0", False),
    ],
)
def test_a_worker_below_the_minimum_version_is_refused(part: str, minimum: str, version: str, is_enough: bool) -> None:
    found = checkpoint_of()
    found["spec"][part]["minimumVersion"] = minimum
    if is_enough:
        read_checkpoint(found, version)
        return
    with pytest.raises(SpecError) as caught:
        read_checkpoint(found, version)
    assert (caught.value.reason, caught.value.exit_code) == ("WorkerTooOld", 2)
    assert f"needs a worker of tokenization {minimum} or newer, and this image has {version}" in str(caught.value)
    assert f"set spec.image of the job to a worker image of tokenization {minimum} or newer" in str(caught.value)


def test_the_minimum_version_is_compared_before_values_that_only_newer_workers_know() -> None:
    found = checkpoint_of()
    found["spec"]["run"] |= {"minimumVersion": "0.3.0", "source": {"kind": "Queue"}}
    with pytest.raises(SpecError, match=r"WorkerTooOld: .* 0\.3\.0 or newer"):
        read_checkpoint(found, VERSION)


def test_a_field_that_changes_the_dataset_is_never_ignored() -> None:
    """Also where the operator has named no minimum version: its runKey counts the field, and that of the worker not."""
    found = checkpoint_of()
    found["spec"]["run"]["output"]["order"] = "ByLength"
    read_checkpoint(found, VERSION)  # the value that it was born with is in no runKey
    found["spec"]["run"]["runKey"] = "0" * 64
    with pytest.raises(SpecError) as caught:
        read_checkpoint(found, VERSION)
    assert (caught.value.reason, caught.value.exit_code) == ("WorkerTooOld", 2)
    assert "It does not know spec.run.output.order" in str(caught.value)


def test_a_run_key_by_later_rules_is_refused() -> None:
    found = checkpoint_of()
    found["spec"]["run"]["keyVersion"] = KEY_VERSION + 1
    with pytest.raises(SpecError, match=f"a runKey of version {KEY_VERSION + 1}"):
        read_checkpoint(found, VERSION)


def test_paths_of_another_folder_are_not_compared() -> None:
    """A relative path gives another runKey in each folder that a process is started in."""
    found = checkpoint_of()
    found["spec"]["run"] |= {"source": {"uris": ["corpus/*.txt"]}, "runKey": "0" * 64}
    assert read_checkpoint(found, VERSION).spec.run.source.uris == ["corpus/*.txt"]


def test_what_no_version_reads_is_told_with_both_versions() -> None:
    found = checkpoint_of()
    del found["spec"]["run"]["jobUid"]
    with pytest.raises(SpecError, match=r"SpecInvalid: checkpoint team/demo-r1 is not what tokenization 0\.2\.0 reads"):
        read_checkpoint(found, VERSION)


def test_the_number_of_an_attempt_is_known_whatever_else_is_not() -> None:
    found = checkpoint_of()
    assert attempt_number(found) == 2
    del found["spec"]["attempt"]
    assert attempt_number(found) == attempt_number({}) == 0


# What an operator writes


@EACH
def test_an_older_worker_gets_what_the_operator_of_0_1_0_wrote(name: str) -> None:
    """For a job that uses nothing new, to the letter: a worker of 0.1.0 refuses fields that it does not know."""
    job = TokenizationJob.from_object(WRITTEN[name]["job"])
    written = checkpoint_of(name)["spec"]
    assert write_part("run", make_run_spec(job, number=1, job_uid="uid-1")) == written["run"]
    slots = written["attempt"]["slots"]
    attempt = make_attempt_spec(job, number=2, image="worker:1", slots=slots)
    assert write_part("attempt", attempt) == written["attempt"]


class Run(RunSpec):
    """The run of a version that has come later."""

    order: str = "AsListed"
    hint: int = 1


def later_run(**changes: object) -> Run:
    return Run.model_validate({**checkpoint_of("larger")["spec"]["run"], **changes})


LATER = {
    "run.order": LaterField(born="AsListed", minimum_version="0.10.0"),
    "run.hint": LaterField(born=1, minimum_version=None),
    "run.output.splits[].share": LaterField(born="0.5%", minimum_version="0.9.0"),  # stands for one in a list
    "attempt.slots": LaterField(born=7, minimum_version="0.99.0"),
}


def test_a_later_field_with_the_value_it_was_born_with_is_not_written() -> None:
    written = write_part("run", later_run(), LATER)
    assert not {"order", "hint", "minimumVersion"} & written.keys()
    assert written["output"]["splits"] == [{"name": "test"}, {"name": "train"}]


def test_a_later_field_that_older_workers_may_ignore_asks_for_no_version() -> None:
    written = write_part("run", later_run(hint=2), LATER)
    assert written["hint"] == 2
    assert "minimumVersion" not in written


def test_a_later_field_that_older_workers_must_not_ignore_names_the_version_that_knows_it() -> None:
    splits = [{"name": "test", "share": "2%"}, {"name": "train"}]
    run = later_run(order="ByLength")
    changed = run.model_copy(update={"output": run.output.model_copy(update={"splits": [*run.output.splits]})})
    assert write_part("run", changed, LATER)["minimumVersion"] == "0.10.0"
    other = later_run(output={"uri": "gs://tokens/{rerunToken}", "splits": splits})
    written = write_part("run", other, LATER)
    assert (written["output"]["splits"], written["minimumVersion"]) == (splits, "0.9.0")
    both = later_run(order="ByLength", output={"uri": "gs://tokens/{rerunToken}", "splits": splits})
    assert write_part("run", both, LATER)["minimumVersion"] == "0.10.0", "the newest of them"


FIELDS_OF_0_1_0 = """
run run.number run.jobName run.jobUid run.runKey run.keyVersion run.rerunToken run.minimumVersion
run.source run.source.uris run.source.format run.source.textField run.source.idField run.source.documentSeparator
run.documents run.documents.maxBytes
run.tokenizer run.tokenizer.name run.tokenizer.uri run.tokenizer.pattern run.tokenizer.specialTokens
run.tokenizer.delimiter run.tokenizer.delimiter.token run.tokenizer.delimiter.position
run.output run.output.uri run.output.formats run.output.dtype run.output.shards run.output.shards.tokens run.output.path
run.output.splits run.output.splits[].name run.output.splits[].shards run.output.splits[].share
attempt attempt.number attempt.image attempt.slots attempt.maxQuarantined attempt.maxCorruptFiles attempt.rangeBytes
attempt.stallTimeoutSeconds attempt.minimumVersion
writerPodPrefix writerServiceAccount
"""
"""With `minimumVersion`, which no version of 0.1 had, and which is absent where a worker of 0.1 may execute a run."""


def test_every_field_that_came_later_says_what_older_workers_do_without_it() -> None:
    """A new field of a checkpoint: give it an entry in `LATER_FIELDS`."""
    fields = {entry.path for entry in iter_fields(CheckpointSpec)}
    first = set(FIELDS_OF_0_1_0.split())
    assert first <= fields, "older workers need them all"
    blocks = tuple(f"{path}{inside}" for path in LATER_FIELDS for inside in (".", "[]."))
    assert {path for path in fields - first if not path.startswith(blocks)} == LATER_FIELDS.keys()


def test_a_later_field_is_born_with_its_default_and_data_stand_in_the_keys() -> None:
    defaults = {entry.path: entry.info.default for entry in iter_fields(CheckpointSpec)}
    for path, field in LATER_FIELDS.items():
        assert defaults[path] == field.born, path
        area = path.removeprefix("run.")
        if area.split(".")[0] in ("source", "documents", "tokenizer", "output"):
            assert FROZEN_DEFAULTS.get(area, field.born) == field.born, path
            assert field.minimum_version is not None, f"{path}: no worker may ignore data"


@pytest.mark.parametrize("model", [RunSpec, AttemptSpec])
def test_a_minimum_version_is_three_numbers(model: type[RunSpec | AttemptSpec]) -> None:
    part = "run" if model is RunSpec else "attempt"
    for text, is_right in (("0.3.0", True), ("0.3", False), ("next", False)):
        found = checkpoint_of()["spec"][part] | {"minimumVersion": text}
        assert (model.__pydantic_validator__.isinstance_python(found)) is is_right, text
