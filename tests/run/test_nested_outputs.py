"""An output inside another output is refused before anything is written: `tokjob clean` of the outer one, or its names,
could meet what lies in it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command_line import Bench, assert_told
from support.engine.inline import inline
from support.stores.gcs_fake import FakeGcs
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.errors import SpecError
from tokenization_worker.output import layout
from tokenization_worker.run.observe import refuse_nested_output
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.storage.gcs.store import GcsStore
from tokenization_worker.storage.local.store import LocalStore


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


COMMANDS = {"run": "run", "plan": "plan"}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("place", ["out/train", "out/a/b/c", "out/_tokenization/x"])
@pytest.mark.parametrize("is_finished", [True, False], ids=["in-a-dataset", "in-an-unfinished-run"])
def test_an_output_inside_another_is_refused_and_nothing_is_written(
    is_finished: bool, place: str, command: str, bench: Bench
) -> None:
    bench.run() if is_finished else bench.stop()
    bench.write("other/a.jsonl", b'{"text": "a"}\n')
    before = bench.files()
    told = bench.tokjob(command, "job.yaml", "--source", "other", "--output", place)
    assert_told(told, 2, "OutputNested:", f"{bench.folder / place} lies", str(bench.output), "output.uri")
    assert bench.files() == before


def test_an_output_inside_a_dataset_that_was_moved_without_its_plan_is_refused(bench: Bench) -> None:
    bench.run()
    (bench.output / layout.PLAN).unlink()
    with pytest.raises(SpecError, match=r"OutputNested: .*out/train lies in .*out, which is an output"):
        bench.run(("uri: out", f"uri: {bench.output}/train"))


def test_an_output_inside_another_through_a_link_is_refused(bench: Bench) -> None:
    bench.stop()
    (bench.folder / "link").symlink_to(bench.output / "train")
    with pytest.raises(SpecError, match="OutputNested"):
        bench.run(("uri: out", f"uri: {bench.folder}/link"))


def test_a_run_that_began_inside_another_output_goes_on(bench: Bench) -> None:
    """Only a new plan is refused: what an earlier version let begin is not lost."""
    bench.stop()
    outer, inner = bench.output / layout.PLAN, bench.output / "inner" / layout.INDEX
    outer.rename(bench.folder / "plan")
    inside = ("uri: out", f"uri: {bench.output}/inner")
    bench.run(inside, more="  maxQuarantined: 3\n")
    inner.unlink()
    (bench.folder / "plan").rename(outer)
    assert not bench.run(inside, more="  maxQuarantined: 3\n").already
    assert inner.exists()


@pytest.mark.parametrize("name", ["index.json", "_tokenization/other"])
def test_a_folder_that_is_no_output_may_hold_one(name: str, bench: Bench) -> None:
    bench.write(f"web/{name}", b'{"theirs": 1}')
    assert bench.run(("uri: out", f"uri: {bench.folder}/web/out")).tokens


def test_the_folders_above_are_looked_at_by_name_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much is in them: nothing is listed."""
    calls: list[str] = []
    monkeypatch.setattr(LocalStore, "list", lambda self, prefix="": calls.append(prefix) or iter(()))
    refuse_nested_output(LocalStore(tmp_path / "a" / "b"))
    assert calls == []


def test_an_output_inside_another_on_a_bucket_is_refused_with_a_call_a_parent(fake: FakeGcs) -> None:
    fake.put("team/data/_tokenization/plan", b"")
    names = dict(fake.objects)
    with pytest.raises(SpecError, match=r"OutputNested: gs://bucket/team/data/x/y lies in gs://bucket/team/data"):
        refuse_nested_output(GcsStore("gs://bucket/team/data/x/y"))
    assert fake.objects.keys() == names.keys()
    with pytest.raises(SpecError, match="OutputNested"):
        refuse_nested_output(GcsStore("gs://bucket/other/_tokenization/x"))
    refuse_nested_output(GcsStore("gs://bucket/team/data"))
    refuse_nested_output(GcsStore("gs://bucket/team/data2"))


def test_an_output_in_a_bucket_that_is_an_output_is_refused(fake: FakeGcs) -> None:
    fake.put("_tokenization/plan", b"")
    fake.put("corpus/a.jsonl", json.dumps({"text": "some text"}).encode())
    job = TokenizationJob.from_yaml(
        "{apiVersion: tokenization.dev/v1alpha1, kind: TokenizationJob, metadata: {name: x}, spec: {"
        "source: {uris: ['gs://bucket/corpus']}, tokenizer: {name: bytes}, output: {uri: 'gs://bucket/out'}}}"
    )
    with pytest.raises(SpecError, match="OutputNested"):
        run_job(job, options=Options(processes=1), executor=inline())
    assert not any(name.startswith("out/") for name in fake.objects)
