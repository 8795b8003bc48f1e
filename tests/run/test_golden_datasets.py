"""This code makes of twelve tiny jobs what earlier code made of them, and finishes what earlier code left half done.

Earlier code wrote the outputs in `tests/golden/data`. They stand for those of all users: where a test here fails,
change the code, not the data. `golden/places.py` says how a stored output gets back its URIs, versions and times;
`golden/make.py` says what is stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

from golden.apart import run_apart
from golden.places import DATA, Bucket, Disk, Place, is_in_bucket, source_of
from golden.prints import is_receipt, prints_of
from support.engine.inline import inline
from support.stores.gcs_fake import serve_fake_gcs
from tokenization_worker import Options, TokenizationJob, open_dataset, run_job, verify
from tokenization_worker.engine.task import Task
from tokenization_worker.events import Finished
from tokenization_worker.storage.open import _open_store
from tokenization_worker.storage.sources import _source_without_pins
from tokenization_worker.tokenizers.load import load_tokenizer

CASES = {path.name: path for path in sorted(DATA.iterdir())}
COMPLETE = [name for name, case in CASES.items() if (case / "complete.zip").exists()]
HALF = [name for name, case in CASES.items() if (case / "half.zip").exists()]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/thread-self/cwd").exists(), reason="the paths in the data need Linux"),
]


@dataclass(frozen=True)
class Golden:
    """A job where it was when its outputs were written, with its source. `expected`: what `make.py` has noted."""

    case: Path
    place: Place
    expected: dict[str, Any]

    @property
    def manifest(self) -> Path:
        return self.case / "job.yaml"

    def run(self, tasks: list[Task] | None = None, *, rerun: str | None = None) -> Finished:
        """Run the job in this process. `tasks`: takes what is done."""
        job = TokenizationJob.from_yaml(self.manifest)
        if rerun is not None:
            job = job.model_copy(update={"spec": job.spec.model_copy(update={"rerun_token": rerun})})
        done: list[Task] = [] if tasks is None else tasks
        return run_job(job, options=Options(processes=1, engine="reference"), executor=inline(done.append))

    def require_finished(self, files: dict[str, str]) -> None:
        """The output is whole, proved from its source, and each file is one of `files`, by its print."""
        found = self.place.files()
        index = json.loads(found["index.json"])
        keys = {"digest": index["digest"], "dataKey": index["dataKey"]}
        keys |= {name: index["run"][name] for name in ("runKey", "planId")}
        assert keys == {name: self.expected[name] for name in keys}
        assert prints_of(found) == files
        self.require_proven()

    def require_proven(self) -> None:
        report = verify(self.place.output, mode="full", processes=1)
        assert report.findings == ()
        assert report.digest == self.expected["digest"]


@pytest.fixture
def golden(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Golden]:
    """The job that the test names."""
    case = CASES[request.param]
    expected = json.loads((case / "expected.json").read_text(encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    with ExitStack() as life:
        place: Place = Disk(tmp_path)
        if is_in_bucket(case / "job.yaml"):
            fake = life.enter_context(serve_fake_gcs())
            monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake.url)
            place = Bucket(fake, case.name, tmp_path)
        for cached in (_open_store, _source_without_pins, load_tokenizer):  # the same URIs, and not the same place
            cached.cache_clear()
            life.callback(cached.cache_clear)
        place.put_source(source_of(case))
        yield Golden(case, place, expected)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("golden", CASES, indirect=True)
def test_a_dataset_made_from_its_source_is_the_one_that_earlier_code_made(golden: Golden) -> None:
    if golden.expected.get("crashes"):
        run_apart(golden.place, golden.manifest, crashes=True)
    else:
        assert not golden.run().already
    golden.require_finished(golden.expected["files"])


@pytest.mark.parametrize("golden", COMPLETE, indirect=True)
def test_a_complete_output_of_earlier_code_is_read_proved_and_complete(golden: Golden) -> None:
    golden.place.restore(golden.case / "complete.zip")
    before = golden.place.files()
    assert golden.run().already
    golden.require_proven()
    dataset = open_dataset(golden.place.output)
    tokens = {name: sha256(np.asarray(dataset[name]).tobytes()).hexdigest() for name in dataset}
    assert tokens == golden.expected["tokens"]
    assert golden.place.files() == before

    tasks: list[Task] = []
    assert golden.run(tasks, rerun="another").rebuilt == 0
    assert tasks == []
    after = golden.place.files()
    assert {path: content for path, content in after.items() if path in before} == before
    assert [path.rpartition("/")[0] for path in after.keys() - before.keys()] == ["_tokenization/reruns"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("golden", HALF, indirect=True)
def test_a_half_done_output_of_earlier_code_is_finished_and_nothing_of_it_is_done_again(golden: Golden) -> None:
    golden.place.restore(golden.case / "half.zip")
    before, stamps = golden.place.files(), golden.place.stamps()
    tasks: list[Task] = []

    assert not golden.run(tasks).already

    resumed = golden.expected["files"] | golden.expected["resumed"]
    golden.require_finished({path: value for path, value in resumed.items() if value is not None})
    after = golden.place.files()
    done = [path for path in before if is_receipt(path)]
    assert {path: after.get(path) for path in done} == {path: before[path] for path in done}
    assert {path: golden.place.stamps()[path] for path in done} == {path: stamps[path] for path in done}
    new = [json.loads(after[path]) for path in after.keys() - before.keys() if is_receipt(path)]
    assert len(tasks) == len(new), "a task for each receipt that was missing, and no other"
    epoch = max(receipt["epoch"] for receipt in new)
    built = {path: stamps[path] for path in before if path.endswith(".npy") and not _is_voided(before, path, epoch)}
    assert {path: golden.place.stamps()[path] for path in built} == built, "shards that were there stay as they are"


def _is_voided(files: dict[str, bytes], shard: str, epoch: int) -> bool:
    """Whether no receipt of this epoch names the shard."""
    prefix = f"_tokenization/ledger/{epoch}/shards/"
    receipts = [json.loads(content) for path, content in files.items() if path.startswith(prefix)]
    return shard not in {receipt["path"] for receipt in receipts}


STATES = {
    "ranges are done, no shard is": ("bytes-jsonl", ["ledger/0/ranges/00000000"], ["ledger/0/shards/"]),
    "shards are built": ("gpt2-gzip-leading-splits", ["shards/val/00000001"], ["shards/train/"]),
    "killed": ("cl100k-zstd-shares", ["_tokenization/tmp/"], []),
    "killed after all ranges": ("gpt2-separated-text-rerun", ["_tokenization/alive/", "ranges/00000002"], []),
    "a list of unusable documents": ("bytes-quarantine", ["ledger/0/quarantine/"], []),
    "a verdict on a file": ("gpt2-corrupt-file", ["_tokenization/files/00000001.json"], []),
    "an epoch that was voided": ("gpt2-voided-engine", ["epochs/0001", "ledger/0/ranges", "ledger/1/ranges"], []),
    "a shard of an epoch that was voided": ("gpt2-voided-engine", ["ledger/0/shards/train/00000000"], []),
    "a verdict on a document": ("bytes-crashing-document", ["_tokenization/poison/"], []),
    "in a bucket": ("gpt2-mixed-bucket", [".objects.json", "ledger/0/shards/"], []),
}


@pytest.mark.parametrize(("name", "has", "has_not"), STATES.values(), ids=STATES)
def test_the_half_done_outputs_are_in_the_states_that_a_run_can_be_left_in(
    name: str, has: list[str], has_not: list[str]
) -> None:
    with ZipFile(CASES[name] / "half.zip") as packed:
        paths = packed.namelist()
    assert "index.json" not in paths
    assert [part for part in has if not any(part in path for path in paths)] == []
    assert [part for part in has_not if any(part in path for path in paths)] == []


def test_the_output_of_the_voided_epoch_has_shards_with_wrong_tokens() -> None:
    case = CASES["gpt2-voided-engine"]
    right = json.loads((case / "expected.json").read_text(encoding="utf-8"))["files"]
    with ZipFile(case / "half.zip") as packed:
        shards = {path: packed.read(path) for path in packed.namelist() if path.endswith(".npy")}
    assert [path for path, content in shards.items() if sha256(content).hexdigest() != right[path]]
