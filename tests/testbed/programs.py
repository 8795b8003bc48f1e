"""The programs of the test bed, built from the Go module proxy and kept by the digest of what they are made of."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent / "go"
GO_AT_LEAST = (1, 26)
_KUBERAY = "github.com/ray-project/kuberay/ray-operator"
_FLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly")
_ENVIRONMENT = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOGC": "400"}


class Unavailable(Exception):
    """The programs are not there and cannot be built; the message says why."""


@dataclass(frozen=True)
class Programs:
    """Where they are."""

    folder: Path

    @property
    def control_plane(self) -> Path:
        return self.folder / "controlplane"

    @property
    def kuberay(self) -> Path:
        return self.folder / "ray-operator"

    @property
    def kuberay_crds(self) -> Path:
        """KubeRay's CustomResourceDefinitions, a file each."""
        return self.folder / "crds"


def find_programs() -> Programs:
    """Those in the cache, built first where they are not (6 minutes on 2 cores). Raises `Unavailable`."""
    go = _go_version()
    target = _cache() / _digest(go)
    with _lock(target):
        if not target.exists():
            _build(target)
    return Programs(target)


def _cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "tokenization-testbed"


def _go_version() -> str:
    try:
        words = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"Go is not installed: {error}") from error
    found = re.match(r"go(\d+)\.(\d+)", words)
    if found is None or (int(found[1]), int(found[2])) < GO_AT_LEAST:
        raise Unavailable(f"Go {'.'.join(map(str, GO_AT_LEAST))} or newer is needed, found {words}")
    return words


def _digest(go: str) -> str:
    """Of everything that the programs are made of."""
    digest = hashlib.sha256(repr((go, _FLAGS, _ENVIRONMENT)).encode())
    for path in sorted(path for path in SOURCES.rglob("*") if path.is_file()):
        digest.update(f"\n{path.relative_to(SOURCES)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def _lock(target: Path) -> Iterator[None]:
    """Let one process build at a time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(target: Path) -> None:
    """Build into a folder beside `target` and move it there, so that what is there is whole."""
    made = target.with_suffix(".new")
    shutil.rmtree(made, ignore_errors=True)
    kubernetes = _go("controlplane", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes").strip()
    version = "-X k8s.io/component-base/version.gitVersion=" + kubernetes  # else it says v0.0.0-master
    _compile("controlplane", ".", made / "controlplane", version)
    _compile("kuberay", _KUBERAY, made / "ray-operator")
    module = Path(_go("kuberay", "list", "-m", "-f", "{{.Dir}}", _KUBERAY).strip())
    shutil.copytree(module / "config" / "crd" / "bases", made / "crds", copy_function=shutil.copyfile)
    made.rename(target)


def _compile(module: str, package: str, program: Path, linker: str = "") -> None:
    _go(module, "build", *_FLAGS, f"-ldflags=-s -w {linker}".rstrip(), "-o", str(program), package)


def _go(module: str, *arguments: str) -> str:
    """What the go command prints, run in a module of the test bed."""
    ended = subprocess.run(
        ["go", *arguments],
        cwd=SOURCES / module,
        env={**os.environ, **_ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise Unavailable(f"go {arguments[0]} of the test bed's {module} failed: {ended.stderr.strip()[-2000:]}")
    return ended.stdout
