"""Write `tests/golden/data` by the code of this checkout.

    PYTHONPATH=tests python -m golden.make FOLDER [NAME ...]

The stored data was written by version 0.2.0. It is evidence only while it stays as it is: use this program to add a
job, never to write one again that is there. Runs call `run_job` (`stopped_run.py`) with one process and the reference
engine. A wrong engine and a crashing document come from the programs that other tests use for them.

For each job FOLDER/NAME gets `job.yaml`, `files/` (the source, and a tokenizer), and

    expected.json   `digest` (as `tokjob verify --digest` prints it), `dataKey`, `runKey`, `planId`; `tokens`: SHA-256
                    of each split's tokens; `files`: SHA-256 of each file at the output (`prints.py`); `resumed`: where
                    the output of the stopped run, once finished, differs from `files` (null: it has no such file);
                    `crashes`: whether a document must kill the tokenizer
    complete.zip    the whole output
    half.zip        an output of a run that was stopped or killed
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from golden.apart import run_apart, verify_apart, void_engine
from golden.datasets import DATASETS, Dataset
from golden.places import BUCKET, DISK, Bucket, Disk, Place
from golden.prints import prints_of
from support.corpus import zstd
from support.local_servers import ask_without_proxies
from support.stores.gcs_fake import serve_fake_gcs


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    wanted = parser.parse_args()
    ask_without_proxies()
    for dataset in DATASETS:
        if not wanted.names or dataset.name in wanted.names:
            make(dataset, wanted.folder.resolve() / dataset.name)
            print(dataset.name, flush=True)
    return 0


def make(dataset: Dataset, case: Path) -> None:
    """Write all that is kept of a job into the new folder `case`."""
    case.mkdir(parents=True)
    manifest = case / "job.yaml"
    manifest.write_text(yaml.safe_dump(manifest_of(dataset), sort_keys=False, allow_unicode=True), encoding="utf-8")
    for path, content in dataset.make_files().items():
        (case / "files" / path).parent.mkdir(parents=True, exist_ok=True)
        (case / "files" / path).write_bytes(content)
    with place_for(dataset) as place:
        place.put_source(dataset.make_files())
        run_apart(place, manifest, crashes=dataset.crashes)
        expected = expectation(place)
        if dataset.crashes:
            expected["crashes"] = True
        if verify_apart(place) != expected["digest"]:
            raise RuntimeError(f"{dataset.name}: verify computes another digest")
        if dataset.rerun:
            run_apart(place, manifest, rerun=dataset.rerun)
        if dataset.keeps_complete:
            place.save(case / "complete.zip")
        if dataset.stop is not None:
            place.clear()
            stop(dataset, place, manifest)
            place.save(case / "half.zip")
            run_apart(place, manifest)
            finished = expectation(place)
            if finished["digest"] != expected["digest"]:
                raise RuntimeError(f"{dataset.name}: the output that was stopped has another digest")
            expected["resumed"] = differing(expected["files"], finished["files"])
    (case / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


def stop(dataset: Dataset, place: Place, manifest: Path) -> None:
    """Leave a run of a job half done."""
    assert dataset.stop is not None
    if dataset.flips:
        void_engine(place, manifest)
    run_apart(place, manifest, stop=dataset.stop, crashes=dataset.crashes)


def manifest_of(dataset: Dataset) -> dict[str, Any]:
    """The job, with the URIs that it has wherever it runs."""
    root = f"{BUCKET}/{dataset.name}" if dataset.in_bucket else DISK
    spec = json.loads(json.dumps(dataset.spec).replace("{root}", root))
    spec["source"] = {"uris": [f"{root}/source"], **spec.get("source", {})}
    spec["output"] = {"uri": f"{root}/out", **spec["output"]}
    head = {"apiVersion": "tokenization.dev/v1alpha1", "kind": "TokenizationJob"}
    return {**head, "metadata": {"name": dataset.name}, "spec": spec}


@contextmanager
def place_for(dataset: Dataset) -> Iterator[Place]:
    """An empty place of the job's kind, until the end of the block."""
    with tempfile.TemporaryDirectory() as folder:
        if not dataset.in_bucket:
            yield Disk(Path(folder))
            return
        with serve_fake_gcs() as fake:
            yield Bucket(fake, dataset.name, Path(folder))


def expectation(place: Place) -> dict[str, Any]:
    """What is kept of a finished output."""
    files = place.files()
    index = json.loads(files["index.json"])
    return {
        "digest": index["digest"],
        "dataKey": index["dataKey"],
        "runKey": index["run"]["runKey"],
        "planId": index["run"]["planId"],
        "tokens": {split["name"]: tokens_print(files, split["name"]) for split in index["splits"]},
        "files": prints_of(files),
    }


def tokens_print(files: dict[str, bytes], split: str) -> str:
    """SHA-256 of a split's tokens, of all shards after another; their headers have 128 bytes."""
    rows = [json.loads(line) for line in zstd.decompress(files["shards.jsonl.zst"]).splitlines()]
    return sha256(b"".join(files[row["path"]][128:] for row in rows if row["split"] == split)).hexdigest()


def differing(expected: dict[str, str], found: dict[str, str]) -> dict[str, str | None]:
    """The files of `found` that `expected` has not so; None for those that are only there."""
    paths = sorted(expected.keys() | found.keys())
    return {path: found.get(path) for path in paths if expected.get(path) != found.get(path)}


if __name__ == "__main__":
    sys.exit(main())
