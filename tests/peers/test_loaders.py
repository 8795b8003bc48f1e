"""A small GPT on packed rows learns the same through PyTorch's DataLoader, grain, and a loop over files: to the bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from peers.environments import Environment, PeerUnavailable, find_debian_torch, find_environment, library_folders
from peers.table import GRAIN
from support.corpus import json_lines, take_documents
from support.engine.inline import inline
from support.runs import make_job
from tokenization_worker import run_job

pytestmark = pytest.mark.peers

LOSSES = Path(__file__).parent / "loaders" / "losses.py"
STEPS = 200


@pytest.fixture(scope="module")
def torch_root() -> Path:
    try:
        return find_debian_torch()
    except PeerUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def grain() -> Environment:
    try:
        return find_environment(GRAIN)
    except PeerUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of documents, some of which go on in the next one, with padding at the end of each file."""
    folder = tmp_path_factory.mktemp("rows")
    for number in range(3):
        texts = [text[:300] for text in take_documents(200_000, first=300 * number)]
        (folder / f"{number}.jsonl").write_bytes(json_lines(texts))
    output = {
        "formats": ["Npy", "Raw"],
        "sequence": {"length": 65, "scope": "File"},
        "shards": {"sequences": 300},
    }
    job = make_job(folder / "*.jsonl", folder / "out", {"tokenizer": {"name": "bytes"}}, output=output)
    run_job(job, executor=inline())
    return folder / "out"


def losses_of(
    loader: str, dataset: Path, steps: int, checkpoint: Path, torch_root: Path, site: Path | None = None
) -> list[float]:
    """Run the loop up to step `steps`, from the checkpoint if there is one."""
    paths = [torch_root / "usr/lib/python3/dist-packages", *([] if site is None else [site])]
    done = subprocess.run(
        [sys.executable, LOSSES, loader, dataset, str(steps), checkpoint, *paths],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=os.environ | {"LD_LIBRARY_PATH": os.pathsep.join(library_folders(torch_root))},
    )
    assert done.returncode == 0, done.stderr
    return [float.fromhex(loss) for loss in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def expected(dataset: Path, torch_root: Path, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses by a loop that reads files with numpy and makes masks token by token."""
    losses = losses_of("naive", dataset, STEPS, tmp_path_factory.mktemp("naive") / "checkpoint", torch_root)
    assert len(losses) == STEPS
    assert losses[-1] < losses[0] - 1, "nothing was learned"
    return losses


def test_pytorch_with_two_workers_learns_the_same(
    dataset: Path, torch_root: Path, expected: list[float], tmp_path: Path
) -> None:
    """Also where it is stopped in the middle and goes on from its checkpoint."""
    checkpoint = tmp_path / "checkpoint"
    first = losses_of("torch", dataset, STEPS // 2 + 7, checkpoint, torch_root)
    assert first + losses_of("torch", dataset, STEPS, checkpoint, torch_root) == expected


def test_grain_with_two_workers_learns_the_same(
    dataset: Path, torch_root: Path, grain: Environment, expected: list[float], tmp_path: Path
) -> None:
    """Also where it is stopped in the middle and grain's own state is set."""
    site = next(grain.python.parents[1].glob("lib/python*/site-packages"))
    checkpoint = tmp_path / "checkpoint"
    first = losses_of("grain", dataset, STEPS // 2 + 7, checkpoint, torch_root, site)
    assert first + losses_of("grain", dataset, STEPS, checkpoint, torch_root, site) == expected
