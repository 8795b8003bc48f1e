"""What our images say of themselves and hold, read from their archives."""

from __future__ import annotations

import json
import os
import re
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from hashlib import sha256
from typing import IO, Any

import pytest

from e2e.images import BASE, REBUILT_VARIABLE, ROOT, Image
from e2e.inside import images_of

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


@pytest.mark.skipif(REBUILT_VARIABLE not in os.environ, reason="images are built twice for all of e2e alone")
def test_two_builds_of_an_image_are_equal(images: dict[str, Image]) -> None:
    """With nothing kept of the first, at another time: the same layers, and the same configuration."""
    [again] = images_of([os.environ[REBUILT_VARIABLE]])
    first = images[again.target.removesuffix(".again")]
    digests = [digests_of(image) for image in (first, again)]
    assert digests[0] == digests[1], list(differences(first, again))


def digests_of(image: Image) -> tuple[str, list[str]]:
    """SHA-256 of the configuration and of each layer, unpacked."""
    with tarfile.open(image.archive) as archive:
        [manifest] = json.loads(_read(archive, "manifest.json"))
        parts = [manifest["Config"], *manifest["Layers"]]
        config, *layers = [sha256(_read(archive, part)).hexdigest() for part in parts]
        return config, layers


def differences(first: Image, again: Image) -> Iterator[str]:
    """Paths whose content differs, or that only one of two images has."""
    with opened(first) as (_, one), opened(again) as (_, other):
        for path in sorted(one.keys() | other.keys()):
            contents = [files[path]() if path in files and is_file(files[path]) else b"" for files in (one, other)]
            if contents[0] != contents[1] or (path in one) != (path in other):
                yield path


def is_file(read: Callable[[], bytes]) -> bool:
    return isinstance(read, partial) and bool(read.args[1].isreg())


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
