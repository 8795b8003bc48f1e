"""A number that a person may write is taken in every field and flag, or refused in every one with what to write."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Any

import pytest

from support.manifests.api_manifests import MINIMAL, with_spec
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.manifest.load import validate_manifest
from tokenization_worker.api.manifest.yaml_text import parse_value
from tokenization_worker.api.resolve import resolve_data, resolve_limits
from tokenization_worker.cli.main import main
from tokenization_worker.cli.manifest import JobParser, job_from_arguments
from tokenization_worker.cli.numbers import read_count, read_number
from tokenization_worker.errors import SpecError
from tokenization_worker.messages.counts import counted


def splits(shards: object) -> dict[str, Any]:
    return {"output": {"splits": [{"name": "a", "shards": shards}, {"name": "b"}]}}


FIELDS: dict[str, tuple[Callable[[object], dict[str, Any]], Callable[[TokenizationJob], object]]] = {
    "rangeBytes": (lambda v: {"rangeBytes": v}, lambda job: resolve_limits(job).range_bytes),
    "documents.maxBytes": (lambda v: {"documents": {"maxBytes": v}}, lambda job: resolve_data(job).max_document_bytes),
    "output.shards.tokens": (
        lambda v: {"output": {"shards": {"tokens": v}}},
        lambda job: resolve_data(job).output.shard_tokens,
    ),
    "output.splits[0].shards": (splits, lambda job: resolve_data(job).output.splits[0].shards),
    "maxQuarantined": (lambda v: {"maxQuarantined": v}, lambda job: resolve_limits(job).max_quarantined.count),
    "maxCorruptFiles": (lambda v: {"maxCorruptFiles": v}, lambda job: resolve_limits(job).max_corrupt_files.count),
}
fields = pytest.mark.parametrize("field", FIELDS)


@fields
@pytest.mark.parametrize(
    ("written", "number"), [(1000, 1000), ("1000", 1000), ("1_000", 1000), ("10k", 10_000), ("1M", 1_000_000)]
)
def test_a_number_is_taken_in_every_field(field: str, written: object, number: int) -> None:
    patch, read = FIELDS[field]
    job = validate_manifest(TokenizationJob, with_spec(patch(written)), origin="m")
    assert read(job) == number
    assert TokenizationJob.from_yaml(_yaml(job)) == job


def _yaml(job: TokenizationJob) -> str:
    import yaml

    return yaml.safe_dump(job.to_manifest())


@fields
@pytest.mark.parametrize(
    ("written", "write"),
    [
        ("1e6", "write 1000000"),
        ("1.5M", "write 1500000"),
        ("1K", "write 1000"),
        ("64MB", "write 64000000"),
        ("10 k", "write 10000"),
        ("1,000", "write 1000"),
        ("2MiB", "write 2097152"),
        (1e6, "write 1000000"),
    ],
)
def test_what_is_almost_a_number_is_refused_with_the_number(field: str, written: object, write: str) -> None:
    with pytest.raises(SpecError) as raised:
        validate_manifest(TokenizationJob, with_spec(FIELDS[field][0](written)), origin="m")
    assert f"spec.{field}: found" in raised.value.message
    assert write in raised.value.message


@pytest.mark.parametrize("form", ["flag", "set"])
@pytest.mark.parametrize("flag", ["rangeBytes", "documents.maxBytes", "output.shards.tokens", "maxQuarantined"])
@pytest.mark.parametrize(("typed", "number"), [("1_000", 1000), ("10k", 10_000), ("1M", 1_000_000)])
def test_a_flag_takes_what_its_field_takes(form: str, flag: str, typed: str, number: int) -> None:
    job = ["--source", "a", "--tokenizer", "bytes", "--output", "o"]
    more = [f"--{flag}", typed] if form == "flag" else ["--set", f"{flag}={typed}"]
    assert FIELDS[flag][1](job_from_arguments(JobParser("tokjob run", "").parse_args([*job, *more]))) == number


@pytest.mark.parametrize(("typed", "number"), [("8", 8), ("1_000", 1000), ("1k", 1000)])
def test_a_count_after_a_flag_is_read_alike(typed: str, number: int) -> None:
    assert read_count(typed) == number


@pytest.mark.parametrize("typed", ["0", "-1", "two", "", "1.5", "1e3", "٣"])
def test_what_is_no_count_is_refused_after_a_flag(typed: str) -> None:
    with pytest.raises(ArgumentTypeError, match="expected a whole number, at least 1") as raised:
        read_count(typed)
    assert ("write 1000" in str(raised.value)) == (typed == "1e3")


@pytest.mark.parametrize(
    ("share", "write"),
    [(0.01, "write 1%"), ("0.01", "write 1%"), (0.005, "write 0.5%"), (5, "write 5%"), ("5", "write 5%")],
)
def test_a_share_without_its_sign_is_refused_with_it(share: object, write: str) -> None:
    patch = {"output": {"splits": [{"name": "a", "share": share}, {"name": "b"}]}}
    with pytest.raises(SpecError) as raised:
        validate_manifest(TokenizationJob, with_spec(patch), origin="m")
    assert f"{write} " in raised.value.message + " "


@pytest.mark.parametrize(("typed", "write"), [("010", "10, or 8"), ("0x10", "10, or 16"), ("-0b11", "-11, or -3")])
def test_a_number_of_another_base_is_refused_with_both_readings(typed: str, write: str) -> None:
    with pytest.raises(SpecError, match=f"the number {typed} would mean .*: write {write}\n"):
        parse_value(typed, origin="--rangeBytes")


def test_one_zero_or_many_are_0() -> None:
    assert [parse_value(typed, origin="") for typed in ("0", "00", "0x0")] == [0, 0, 0]


TOO_LARGE = "too large: at most 9,223,372,036,854,775,807"


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"documents": {"maxBytes": "9999999Ti"}}, f"{TOO_LARGE} bytes"),
        ({"rangeBytes": 2**63}, f"{TOO_LARGE} bytes"),
        ({"output": {"shards": {"tokens": "9999999Ti"}}}, TOO_LARGE),
        ({"output": {"shards": {"tokens": "9999Ti"}}}, "at most 9,007,199,254,740,992"),
        ({"maxQuarantined": "99999999999999999999"}, TOO_LARGE),
        ({"maxQuarantined": "200%"}, "a percentage is at most 100%"),
        ({"maxQuarantined": ".5%"}, "write 0.5%"),
        ({"output": {"splits": [{"name": "a", "share": ".5%"}, {"name": "b"}]}}, "write 0.5%"),
        ({"maxCorruptFiles": 1.5}, "write 1.5%, or the count 1 "),
        ({"maxCorruptFiles": "x"}, "a unit k, M, G, T: 1k"),
        ({"output": {"shards": {"tokens": "x"}}}, "a unit Ki, Mi, Gi, Ti, k, M, G, T: 1M"),
    ],
    ids=str,
)
def test_a_number_out_of_bounds_is_told_its_bounds(patch: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError) as raised:
        validate_manifest(TokenizationJob, with_spec(patch), origin="m")
    assert words in raised.value.message


@pytest.mark.parametrize(("typed", "number"), [("0", 0), ("1_000", 1000), ("1k", 1000)])
def test_a_number_after_a_flag_may_be_0(typed: str, number: int) -> None:
    assert read_number(typed) == number


def test_the_number_of_a_token_is_read_as_counts_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "nowhere", "--token", "1k"]) == 2
    assert "NotADataset" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["show", "nowhere", "--token", "-1"])
    assert "--token: found '-1', expected a whole number, at least 0" in capsys.readouterr().err


@pytest.mark.parametrize("field", ["maxQuarantined", "maxCorruptFiles"])
@pytest.mark.parametrize("written", [0.01, "0.01"])
def test_a_limit_without_its_sign_is_refused_with_it(field: str, written: object) -> None:
    with pytest.raises(SpecError, match="write 1%"):
        validate_manifest(TokenizationJob, with_spec({field: written}), origin="m")


@pytest.mark.parametrize(
    ("patch", "write"),
    [({"backoffLimit": "1k"}, "write 1000"), ({"stallTimeoutSeconds": "1_800"}, "write 1800")],
)
def test_a_count_of_machines_or_seconds_is_a_plain_number(patch: dict[str, Any], write: str) -> None:
    """The API server takes nothing else there."""
    with pytest.raises(SpecError, match=write):
        validate_manifest(TokenizationJob, with_spec(patch), origin="m")


def test_the_smallest_manifest_stays_valid() -> None:
    validate_manifest(TokenizationJob, MINIMAL, origin="m")


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [
        (1, "file", "1 file"),
        (0, "file", "0 files"),
        (2, "corrupt file", "2 corrupt files"),
        (3, "worker process", "3 worker processes"),
        (1_234, "token", "1,234 tokens"),
    ],
)
def test_counts_have_the_number_of_their_noun(number: int, noun: str, words: str) -> None:
    assert counted(number, noun) == words
