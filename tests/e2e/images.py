"""Images without a registry: built from the Dockerfile on a Debian of one's own, and kept as archives.

`FROM python:3.11-slim-bookworm` is answered by a local image of Debian's bookworm and its Python 3.11.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from e2e.sandbox import CONTAINED
from testbed.programs import cache_folder, digest_of, locked

ROOT = Path(__file__).parents[2]
BASE = "localhost/python:3.11-slim-bookworm"
PAUSE = "localhost/pause:1"
REBUILT_VARIABLE = "E2E_REBUILT"
_PREFIX = "localhost/tokenization-"
_SUITE = "bookworm"
_PACKAGES = "ca-certificates,python3,python3-pip,python3-venv,netbase,tzdata"
_LIKE_THE_ORIGINAL = (
    "rm -f /usr/lib/python3*/EXTERNALLY-MANAGED; ln -sf /usr/bin/python3 /usr/local/bin/python;"
    "ln -sf /usr/bin/pip3 /usr/local/bin/pip; apt-get clean; rm -rf /var/log/* /var/cache/debconf/*"
)
_PATH = "PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
_BASE_DIGEST = sha256(f"{_SUITE} {_PACKAGES} {_LIKE_THE_ORIGINAL} {_PATH}".encode()).hexdigest()[:16]
_BASE_LABEL = "recipe"
_SOURCES = (
    *("Dockerfile", ".dockerignore", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"),
    *("operator", "worker"),
)
_MOST_LAYERS = 120
"""Of all builds, before those are removed that no image has: a build adds twenty, of a few megabytes to a gigabyte."""

_LENT = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pip.conf"))
"""Of this machine, for the time of the build: how it reaches a package registry. Nothing of them stays."""


class BuildFailed(Exception):
    """An image cannot be built; the message holds the end of what was said."""


@dataclass(frozen=True)
class Image:
    """`archive`: as `ctr images import` takes it."""

    name: str
    archive: Path

    @property
    def target(self) -> str:
        """Of the Dockerfile; empty for an image that is not made from it."""
        return self.name.partition(_PREFIX)[2].partition(":")[0]


def find_pause(program: Path) -> Image:
    """What holds a Pod's namespaces."""
    archive = _archive("pause", digest_of(program.parent, [program]))
    with locked(archive):
        if not archive.exists():
            container = _buildah("from", "scratch")
            _buildah("copy", "--quiet", container, str(program), "/pause")
            _buildah("config", "--entrypoint", '["/pause"]', container)
            _buildah("commit", "--quiet", "--rm", container, PAUSE)
            _export(PAUSE, archive)
    return Image(PAUSE, archive)


def find_image(target: str, *, tree: Path = ROOT, version: str = "", **arguments: str) -> Image:
    """The image of a target of a tree's Dockerfile, built with these arguments; its tag is the digest of its sources.

    `version`: what the image of another tree is called beside that of this one, `TARGET.VERSION`.
    """
    words = "".join(f" {name}={value}" for name, value in sorted(arguments.items()))
    digest = digest_of(tree, sources_of(tree), words + _BASE_DIGEST)
    called = f"{target}.{version}" if version else target
    name = f"{_PREFIX}{called}:{digest}"
    archive = _archive(f"{called}{words.replace(' ', '-').replace('=', '-')}", digest)
    with locked(archive):
        if not archive.exists():
            build(target, name, arguments, tree=tree)
            for old in archive.parent.glob(f"{archive.name.rpartition('-')[0]}-{'[0-9a-f]' * 16}.tar"):
                old.unlink()  # of other sources: a gigabyte each
            _remove_old(called, name)
            _export(name, archive)
    return Image(name, archive)


def find_rebuilt(target: str) -> Image:
    """The image of a target, built a second time from nothing but the base; its target is `TARGET.again`."""
    digest = digest_of(ROOT, sources_of(ROOT), _BASE_DIGEST)
    name = f"{_PREFIX}{target}.again:{digest}"
    archive = _archive(f"{target}.again", digest)
    with locked(archive):
        if not archive.exists():
            build(target, name, {}, use_layers=False)
            for old in archive.parent.glob(f"{target}.again-*.tar"):
                old.unlink()
            _export(name, archive)
            remove(name)
    return Image(name, archive)


def build(target: str, name: str, arguments: Mapping[str, str], *, use_layers: bool = True, tree: Path = ROOT) -> None:
    """Build an image in the local store; layers that are there are used, unless they are not to be."""
    with locked(_folder() / "base"):
        if not _has_base():
            _make_base()
    given = [word for each in arguments.items() for word in ("--build-arg", "=".join(each))]
    lent = [word for path in _LENT if path.exists() for word in ("--volume", f"{path}:{path}:ro")]
    _buildah(
        *("bud", "--isolation", "chroot", "--network", "host", "--pull-never", "--timestamp", "0"),
        *(("--layers",) if use_layers else ("--layers", "--no-cache")),
        *("--target", target, "--tag", name, *given, *lent, str(tree)),
    )


def _remove_old(target: str, newest: str) -> None:
    """Remove a target's other images, and, where there are very many, all layers that only make a build faster."""
    named = _buildah("images", "--format", "{{.Name}}:{{.Tag}}").split()
    old = [name for name in named if name.startswith(f"{_PREFIX}{target}:") and name != newest]
    if old:
        _buildah("rmi", *old)
    if len(_buildah("images", "--all", "--quiet").split()) > _MOST_LAYERS:
        _buildah("rmi", "--prune")


def size_of(name: str) -> int:
    """Bytes of an image in the local store, unpacked."""
    container = _buildah("from", "--pull-never", name)
    try:
        words = _run("sh", "-ec", 'du -sb "$(buildah mount "$1")"; buildah umount "$1" > /dev/null', "sh", container)
        return int(words.split()[0])
    finally:
        _buildah("rm", container)


def remove(name: str) -> None:
    """Remove an image from the local store."""
    _buildah("rmi", name)


def _make_base() -> None:
    root = _folder() / "base"
    shutil.rmtree(root, ignore_errors=True)
    _run("debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(root), *_mirror())
    _run("chroot", str(root), "sh", "-ec", _LIKE_THE_ORIGINAL)
    container = _buildah("from", "scratch")
    _buildah("add", "--quiet", container, str(root), "/")
    _buildah("config", "--env", _PATH, "--env", "LANG=C.UTF-8", "--cmd", "python3", container)
    _buildah("config", "--label", f"{_BASE_LABEL}={_BASE_DIGEST}", container)
    _buildah("commit", "--quiet", "--rm", container, BASE)
    shutil.rmtree(root)


def _mirror() -> list[str]:
    """That of this machine's own packages, where it has one of that suite; else debootstrap has its own."""
    if shutil.which("apt-get") is None:
        return []
    targets = ("indextargets", "--format", "$(SITE)", "Origin: Debian", f"Codename: {_SUITE}")
    return sorted(set(_run("apt-get", *targets).split()))[:1]


def _has_base() -> bool:
    label = f'{{{{index .OCIv1.Config.Labels "{_BASE_LABEL}"}}}}'
    return _call("buildah", "inspect", "--type", "image", "--format", label, BASE).stdout.strip() == _BASE_DIGEST


def _export(name: str, archive: Path) -> None:
    made = archive.with_suffix(".new")
    made.unlink(missing_ok=True)
    _buildah("push", "--quiet", name, f"docker-archive:{made}:{name}")
    made.rename(archive)


def _archive(target: str, digest: str) -> Path:
    return _folder() / f"{target}-{digest}.tar"


def sources_of(tree: Path) -> Iterator[Path]:
    """The files that images are made of."""
    yield from (tree / "scripts" / name for name in ("ray_command.py", "requirements.py"))
    for name in _SOURCES:
        path = tree / name
        found = [path] if path.is_file() else path.rglob("*")
        yield from (each for each in found if each.is_file() and "__pycache__" not in each.parts)


def _folder() -> Path:
    folder = cache_folder() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _buildah(*words: str) -> str:
    if words[0] in ("from", "commit", "bud", "push"):
        words = (words[0], "--signature-policy", str(_configuration() / "policy.json"), *words[1:])
    return _run("buildah", *words).strip()


def _run(*command: str) -> str:
    done = _call(*command)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise BuildFailed(f"{' '.join(command[:3])}... failed:\n{said[-4000:]}")
    return done.stdout


def _call(*command: str) -> subprocess.CompletedProcess[str]:
    configuration = _configuration()
    environment = {
        **os.environ,
        "CONTAINERS_STORAGE_CONF": str(configuration / "storage.conf"),
        "CONTAINERS_REGISTRIES_CONF": str(configuration / "registries.conf"),
        "BUILDAH_ISOLATION": "chroot",
    }
    return subprocess.run([*CONTAINED, *command], env=environment, capture_output=True, text=True, check=False)


def _configuration() -> Path:
    """A store of images of our own, and no registry to pull from."""
    folder = _folder() / "configuration"
    if not folder.exists():
        new = folder.with_suffix(f".{os.getpid()}")
        new.mkdir()
        store = _folder() / "store"
        (new / "storage.conf").write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{store}"\nrunroot = "{store}-run"\n', encoding="utf-8"
        )
        (new / "registries.conf").write_text("unqualified-search-registries = []\n", encoding="utf-8")
        (new / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}', encoding="utf-8")
        new.rename(folder)
    return folder
