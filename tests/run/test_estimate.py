"""What the plan says of tokens, room, engine and time, where the beginnings of files say little."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Bench
from support.corpus import json_lines
from support.engine.inline import inline
from support.runs import make_job
from tokenization_worker.api.status import PlanStatus
from tokenization_worker.cli.plan_checkpoint import _describe
from tokenization_worker.cli.progress import describe
from tokenization_worker.errors import DataError
from tokenization_worker.events import Event, Planned, Warned, ignore
from tokenization_worker.formats.registry import FORMATS
from tokenization_worker.inspect.preview import Preview, preview_run
from tokenization_worker.planning import output_check
from tokenization_worker.planning.estimate import Estimate
from tokenization_worker.run import run_plan
from tokenization_worker.run.run import PlanOnly, run_job
from tokenization_worker.run.run_plan import RunPlan, plan_run
from tokenization_worker.storage.local.store import LocalStore

WORDS = ["tokens", "from", "a", "corpus", "are", "counted", "before", "the", "run", "begins"]


def prose(size: int, seed: int = 1) -> str:
    chosen = random.Random(seed).choices(WORDS, k=size // 4)
    return " ".join(chosen)[:size]


def plan(source: Path, **fields: Any) -> Preview:
    job = make_job(source, source.parent / "out", {"maxQuarantined": "100%"}, fields)
    return preview_run(job, 2)


def tokens_of(source: Path, **fields: Any) -> int:
    return run_job(
        make_job(source, source.parent / "done", {"maxQuarantined": "100%"}, fields), executor=inline()
    ).tokens


@pytest.mark.parametrize("files", [1, 20])
def test_a_large_first_record_is_read_to_its_end(files: int, tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    for number in range(files):
        size = 1_200_000 if files == 1 else 1_100_000 + number
        (source / f"{number:02}.jsonl").write_bytes(json_lines([prose(size, number), *["small"] * 5]))
    found = plan(source, tokenizer={"name": "bytes"})
    written = sum(path.stat().st_size for path in source.iterdir())
    assert found.tokens is not None
    assert abs(found.tokens - written) < written / 50
    assert found.shards is not None
    assert found.shard_bytes == 2 * found.tokens + 128 * found.shards


def test_files_are_sampled_by_their_bytes(tmp_path: Path) -> None:
    """Most files are small and hold little text; most bytes are in two files of text alone."""
    source = tmp_path / "src"
    source.mkdir()
    for number in range(50):
        is_large = number in (17, 34)
        rows = [
            {"text": prose(900, number), "notes": "" if is_large else "x" * 9000} for _ in range(400 if is_large else 1)
        ]
        (source / f"{number:02}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = plan(source, tokenizer={"name": "bytes"})
    assert found.tokens is not None
    assert abs(found.tokens / tokens_of(source, tokenizer={"name": "bytes"}) - 1) < 0.2


SHORT: dict[str, tuple[str, dict[str, Any]]] = {
    "documents": ("a", {}),
    "rows": ("a" + " a" * 32, {"sequence": {"length": 64}}),
}


@pytest.mark.parametrize(
    ("format", "kind"),
    [(format, kind) for format in FORMATS for kind in SHORT if (format, kind) != ("WebDataset", "documents")],
)
def test_the_plan_knows_the_size_of_the_files_of_short_documents(format: str, kind: str, tmp_path: Path) -> None:
    """Megatron's index is larger than the tokens of documents of one. How far a WebDataset's rows can be compressed is
    not known before they are there."""
    text, layout = SHORT[kind]
    source = tmp_path / "src"
    source.mkdir()
    (source / "a.jsonl").write_bytes(json_lines([text] * 3000))
    job = make_job(source, tmp_path / "out", output={"formats": [format], "shards": {"tokens": 4000}, **layout})
    expected = preview_run(job).shard_bytes
    run_job(job, executor=inline())
    files = [path for path in (tmp_path / "out").rglob("train_*") if "_tokenization" not in path.parts]
    found = sum(path.stat().st_size for path in files)
    assert len(files) > 1
    assert expected is not None
    assert abs(expected - found) < (0.15 if format == "WebDataset" else 0.02) * found


def test_a_first_record_larger_than_any_document_is_unknown_and_not_zero(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "a.jsonl").write_bytes(json_lines(["x" * 18_000_000, *["a document"] * 30]))
    found = plan(source, documents={"maxBytes": 1000}, tokenizer={"name": "bytes"})
    assert (found.tokens, found.shards, found.shard_bytes, found.bytes_per_token, found.seconds) == (None,) * 5
    assert found.source_bytes >= 18_000_000


def test_files_without_a_whole_record_are_taken_for_an_average_of_the_others(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    for number in range(8):
        (source / f"{number}.jsonl").write_bytes(json_lines([prose(2_500_000, number)]))
    (source / "8.jsonl").write_bytes(json_lines([prose(2000, n) for n in range(1250)]))
    found = plan(source, tokenizer={"name": "bytes"})
    written = sum(path.stat().st_size for path in source.iterdir())
    assert found.tokens is not None
    assert abs(found.tokens - written) < written / 20


def test_good_documents_behind_bad_ones_count(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "a.jsonl").write_bytes(b"not JSON\n" * 70_000 + json_lines([prose(3000, n) for n in range(400)]))
    found = plan(source, tokenizer={"name": "bytes"})
    assert found.tokens is None or found.tokens > 300_000


@pytest.mark.parametrize("content", [b"", b"\n\n"], ids=["no bytes", "blank lines"])
def test_a_source_without_documents_is_refused_by_the_plan(content: bytes, tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "a.jsonl").write_bytes(content)
    with pytest.raises(DataError, match="NoDocuments: the source has no document: 1 file read to the end"):
        plan(source)


@pytest.fixture
def unknown(bench: Bench) -> Bench:
    """A source whose beginning says nothing of its tokens."""
    for path in bench.source.iterdir():
        path.unlink()
    bench.write("src/a.jsonl", json_lines(["x" * 18_000_000, *["a document"] * 30]))
    return bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


UNKNOWN = ["--documents.maxBytes", "1000", "--maxQuarantined", "100%"]


def test_what_is_unknown_is_said_so_and_is_null_in_json(unknown: Bench) -> None:
    words = unknown.tokjob("plan", "job.yaml", *UNKNOWN)
    assert words.code == 0, words.err
    assert "tokens     unknown with bytes: no whole document was found at the beginnings of the files\n" in words.out
    assert "  unknown shards  UInt16" in words.out
    assert "\ntime       unknown with" in words.out
    assert "~0" not in words.out
    numbers = json.loads(unknown.tokjob("plan", "job.yaml", "--json", *UNKNOWN).out)
    for name in ("tokens", "shards", "shard_bytes", "bytes_per_token", "seconds"):
        assert numbers[name] is None
    run = unknown.tokjob("run", "job.yaml", "--json", *UNKNOWN)
    planned = next(event for event in map(json.loads, run.out.splitlines()) if event["event"] == "planned")
    assert (planned["estimated_tokens"], planned["core_seconds"]) == (None, None)


def test_an_unknown_estimate_is_absent_from_the_status(tmp_path: Path) -> None:
    planned = Planned(3, 300, 1, None, None, "gpt2", "tiktoken", False, False)
    assert "unknown tokens" in describe(planned, 0.0)
    (tmp_path / "a.txt").write_text("a line\n")
    job = make_job(tmp_path, tmp_path.parent / "out", tokenizer={"name": "bytes"})
    found = plan_run(LocalStore(tmp_path.parent / "out"), job, "auto", lambda: 2, ignore)
    assert isinstance(found, RunPlan)
    unknown: dict[str, Any] = dict.fromkeys(("tokens", "shard_bytes", "reference_seconds"))
    estimate = replace(found.prepared.estimate, **unknown)
    changes = _describe(PlanOnly(replace(found, prepared=replace(found.prepared, estimate=estimate)), None), 2)
    status = PlanStatus.model_validate({name: changes[name] for name in PlanStatus.model_fields if name in changes})
    assert set(status.model_dump(exclude_none=True)) == {"files", "bytes", "ranges"}


def test_the_engine_is_chosen_by_stored_bytes_where_tokens_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    choose = run_plan.choose_engine

    def spy(tokenizer: Any, wanted: Any, text_bytes: int, *more: Any) -> Any:
        asked.append(text_bytes)
        return choose(tokenizer, "reference", text_bytes, *more)

    monkeypatch.setattr(run_plan, "choose_engine", spy)
    source = tmp_path / "src"
    source.mkdir()
    (source / "a.jsonl").write_bytes(json_lines(["x" * 18_000_000, *["a document"] * 30]))
    plan(source, documents={"maxBytes": 1000})
    assert asked == [pytest.approx((source / "a.jsonl").stat().st_size, rel=0.01)]


class Disk(LocalStore):
    """A disk with little room."""

    def free_bytes(self) -> int | None:
        return 1_000_000


def test_room_is_not_taken_for_enough_where_tokens_are_unknown(tmp_path: Path) -> None:
    told: list[Event] = []
    estimate = Estimate(None, 5_000_000, None, None, "bytes", None, None, 0)
    output_check.require_room(Disk(tmp_path), estimate, told.append)
    (warning,) = told
    assert isinstance(warning, Warned)
    assert "tokjob cannot estimate the space that this run needs" in warning.message
    assert "5.0 MB and 1.0 MB are free" in warning.message
    output_check.require_room(Disk(tmp_path), Estimate(None, 900_000, None, None, "bytes", None, None, 0), told.append)
    assert len(told) == 1


@pytest.mark.parametrize("reference", ["tiktoken", "sentencepiece", "tokenizers", "bytes"])
def test_the_reference_is_not_planned_at_the_speed_of_the_accelerated_engine(reference: str) -> None:
    estimate = Estimate(1, 1, 1, 1, reference, 80.0, 4.0, 1)
    assert estimate.core_seconds(reference) == estimate.core_seconds("reference") == 80.0
    assert estimate.core_seconds("fastokens") == {"tokenizers": 2.0}.get(reference, 10.0)
