"""What our images say of themselves and hold, read from their archives."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import IO, Any

import pytest

from e2e.images import BASE, ROOT, Image

pytestmark = [pytest.mark.e2e, pytest.mark.core]

HOME = "opt/tokenization"
Files = dict[str, Callable[[], bytes]]


@contextmanager
def opened(image: Image) -> Iterator[tuple[dict[str, Any], Files]]:
    """Its configuration, and its files by their paths; an upper layer's hide those of lower ones."""
    with ExitStack() as stack:
        archive = stack.enter_context(tarfile.open(image.archive))
        [manifest] = json.loads(_read(archive, "manifest.json"))
        files: Files = {}
        for name in manifest["Layers"]:
            layer = stack.enter_context(tarfile.open(fileobj=_member(archive, name)))
            for each in layer.getmembers():
                files[each.name.removeprefix("./")] = partial(_read, layer, each)
        yield json.loads(_read(archive, manifest["Config"])), files


@pytest.mark.parametrize(("target", "most"), [("operator", 500_000_000), ("worker", 1_000_000_000)])
def test_an_image_stays_small(target: str, most: int, images: dict[str, Image]) -> None:
    sizes = {}
    with tarfile.open(images[target].archive) as archive:
        for name in json.loads(_read(archive, "manifest.json"))[0]["Layers"]:
            with tarfile.open(fileobj=_member(archive, name)) as layer:
                sizes[name] = sum(each.size for each in layer.getmembers())
    assert sum(sizes.values()) < most, sizes


def _member(archive: tarfile.TarFile, name: str | tarfile.TarInfo) -> IO[bytes]:
    found = archive.extractfile(name)
    assert found is not None, name
    return found


def _read(archive: tarfile.TarFile, name: str | tarfile.TarInfo) -> bytes:
    return _member(archive, name).read()


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.lower().split("==") for line in lines if "==" in line)


@pytest.mark.parametrize(
    ("target", "has", "has_not"),
    [
        ("operator", {"kopf", "kubernetes"}, {"ray", "numpy"}),
        ("worker", {"ray", "tiktoken", "numpy", "pyarrow"}, {"kopf", "mypy"}),
    ],
    ids=["operator", "worker"],
)
def test_an_image_says_what_it_is_and_holds_what_it_says(
    target: str, has: set[str], has_not: set[str], images: dict[str, Image]
) -> None:
    with opened(images[target]) as (configuration, files):
        settings = configuration["config"]
        assert settings["User"] == "1000:1000"
        assert b"tokenization:x:1000:1000" in files["etc/passwd"]()
        labels = {name.rpartition(".")[2]: text for name, text in settings["Labels"].items()}
        assert labels["title"] == f"tokenization-{target}"
        assert labels["licenses"] == "Apache-2.0"
        assert BASE.endswith(labels["name"]), "the base it is built on"
        bill = json.loads(files[f"{HOME}/sbom.cdx.json"]())
        assert bill["bomFormat"] == "CycloneDX"
        listed = {each["name"].lower(): each["version"] for each in bill["components"]}
        assert listed.pop("tokenization") == labels["version"]
        assert has <= listed.keys()
        assert not has_not & listed.keys()
        assert listed.items() <= pinned().items(), "what is installed is what is pinned"
        assert installed(files) == {re.sub(r"[-_.]+", "-", name) for name in listed} | {"tokenization"}
        assert ("tiktoken" in listed) == any(path.startswith(f"{HOME}/share/tokenization/tiktoken/") for path in files)


def installed(files: Files) -> set[str]:
    """Distributions of our environment, by the folders that installing them makes."""
    found = (
        re.fullmatch(rf"{HOME}/lib/[^/]+/site-packages/([^/]+)-[^/-]+\.dist-info/METADATA", path) for path in files
    )
    return {re.sub(r"[-_.]+", "-", match[1]).lower() for match in found if match}
