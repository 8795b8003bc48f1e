"""Two drivers of one job on one `gs://` output at the same time: one dataset, and both end well."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest

from support.corpus import Corpus
from support.engine.inline import inline
from support.faults.ray_nodes import ray_nodes
from support.runs import Held, command, make_job, read_index
from support.stores.gcs_emulator import gcs_bucket, gcs_host, gcs_uri
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.storage.open import open_store
from tokenization_worker.verification.verify import verify

pytestmark = pytest.mark.slow

__all__ = ["gcs_bucket", "gcs_host", "gcs_uri"]

OUTPUT = {"shards": {"tokens": 50_000}, "splits": [{"name": "val", "shards": 2}, {"name": "train"}]}


def job_of(mixed: Corpus, output: str, **more: object) -> TokenizationJob:
    limits = {"maxQuarantined": mixed.quarantined}
    return make_job(mixed.folder, Path("unused"), limits, more, output=OUTPUT | {"uri": output})


@pytest.fixture(scope="module")
def alone(mixed: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of a run that had its output, on a local disk, for itself."""
    output = tmp_path_factory.mktemp("alone") / "out"
    run_job(job_of(mixed, str(output)), options=Options(engine="reference"), executor=inline())
    return output


def run_both(mixed: Corpus, output: str, logs: Path, *options: Sequence[str]) -> None:
    """Start both, let each do a range while the other is at work, then let both go on; both must succeed."""
    drivers = []
    for name, more in zip("ab", options, strict=True):
        job = job_of(mixed, output, rangeBytes="64Ki")
        drivers.append(Held(command(job, logs / name, "--engine", "reference", "--json", *more), logs / name))
    for driver in drivers:
        driver.wait_for_ranges(1)
    assert open_store(output).stat("index.json") is None
    with ThreadPoolExecutor(len(drivers)) as pool:
        codes = list(pool.map(Held.wait, drivers))
    assert codes == [0, 0], [driver.errors for driver in drivers]


def require_one_dataset(output: str, alone: Path) -> None:
    store = open_store(output)
    index = orjson.loads(store.read("index.json"))
    assert index["digest"] == read_index(alone)["digest"]
    entries = [entry.path for entry in store.list()]
    mine = {path: store.read(path) for path in entries if path.endswith(".npy")}
    theirs = {str(path.relative_to(alone)): path.read_bytes() for path in alone.rglob("*.npy")}
    assert mine == theirs
    assert not [path for path in entries if "/segments/" in path or path.endswith("/probe")]
    assert verify(output, mode="checksums", processes=1).is_clean


def test_two_drivers_make_one_dataset(mixed: Corpus, alone: Path, gcs_uri: str, tmp_path: Path) -> None:
    output = f"{gcs_uri}/out"
    run_both(mixed, output, tmp_path, ["--processes", "1"], ["--processes", "2"])
    require_one_dataset(output, alone)


@pytest.mark.exhaustive
def test_a_driver_here_and_one_on_ray_make_one_dataset(
    mixed: Corpus, alone: Path, gcs_uri: str, tmp_path: Path
) -> None:
    output = f"{gcs_uri}/out"
    with ray_nodes(1) as nodes:
        run_both(mixed, output, tmp_path, ["--processes", "1"], ["--ray-address", nodes.address])
    require_one_dataset(output, alone)
