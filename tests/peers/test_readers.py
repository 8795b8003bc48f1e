"""Each peer's reader finds in our files the tokens that a serial loop over the source finds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from peers.datasets import ROW_LENGTH, TOKENIZERS, expected_content, make_dataset
from peers.environments import Environment, PeerUnavailable, find_environment
from peers.table import PEERS, Peer

pytestmark = pytest.mark.peers

READERS = Path(__file__).parent / "readers"
MARKS = {peer: [pytest.mark.core] if peer.core else [] for peer in PEERS}
CASES = [
    pytest.param(peer, layout, id=f"{peer.name}-{layout}", marks=MARKS[peer])
    for peer in PEERS
    for layout in peer.layouts
]

Folder = Callable[[str, str, str], Path]


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The folder of a split by format, dtype and layout, made when it is first asked for."""
    return cache(lambda *of: make_dataset(*of, tmp_path_factory.mktemp("-".join(of))))


@cache
def environment_or_reason(peer: Peer) -> Environment | str:
    try:
        return find_environment(peer)
    except PeerUnavailable as error:
        return str(error)


def environment_of(peer: Peer) -> Environment:
    """Skips the test where the peer cannot be installed."""
    found = environment_or_reason(peer)
    if isinstance(found, str):
        pytest.skip(found)
    return found


def read(peer: Peer, folder: Path, dtype: str, layout: str) -> subprocess.CompletedProcess[str]:
    """Run the peer's script: its standard output is a JSON object."""
    environment = environment_of(peer)
    variables = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    length = str(ROW_LENGTH if layout == "rows" else 0)
    return subprocess.run(
        [environment.python, READERS / f"read_{peer.name}.py", folder, dtype.lower(), length],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=folder,
        env=variables | {"PYTHONDONTWRITEBYTECODE": "1"} | environment.variables,
    )


@pytest.mark.parametrize("dtype", TOKENIZERS)
@pytest.mark.parametrize(("peer", "layout"), CASES)
def test_a_peer_reads_what_the_source_holds(peer: Peer, layout: str, dtype: str, dataset: Folder) -> None:
    done = read(peer, dataset(peer.format, dtype, layout), dtype, layout)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    content = expected_content(dtype, layout)
    assert len(content.shards) > 3
    assert content.shards[-1] < content.shards[0], "a short last shard is missing"
    assert found.keys() == {"tokens", *peer.sees}
    for name in sorted(peer.sees):
        assert found[name] == getattr(content, name)
    assert len(found["tokens"]) == len(content.tokens)
    different = np.flatnonzero(np.array(found["tokens"]) != np.array(content.tokens))
    assert not len(different), f"first at token {different[0]}"


@pytest.mark.parametrize("peer", [pytest.param(peer, id=peer.name, marks=MARKS[peer]) for peer in PEERS])
def test_changed_bytes_do_not_go_unnoticed(peer: Peer, dataset: Folder, tmp_path: Path) -> None:
    """The tokens come from these files: where bytes are others, the reader fails or gives others.

    Of a tar 600 bytes are more than what fills a block."""
    layout = peer.layouts[0]
    expected = expected_content("UInt16", layout).tokens
    folder = shutil.copytree(dataset(peer.format, "UInt16", layout), tmp_path / "train")
    whole = read(peer, folder, "UInt16", layout)
    assert json.loads(whole.stdout)["tokens"] == expected, whole.stderr
    victim = max(folder.iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(victim.read_bytes())
    data[2000:2600] = bytes(byte ^ 1 for byte in data[2000:2600])
    victim.write_bytes(data)
    damaged = read(peer, folder, "UInt16", layout)
    assert damaged.returncode != 0 or json.loads(damaged.stdout)["tokens"] != expected
