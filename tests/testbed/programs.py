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
_PACKAGES = {"controlplane": ".", "kuberay": _KUBERAY, "helm": "helm.sh/helm/v4/cmd/helm", "judges": "."}
_FLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly")
_ENVIRONMENT = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOGC": "400"}


class Unavailable(Exception):
    """A program is not there and cannot be built; the message says why."""


@dataclass(frozen=True)
class Programs:
    """Those of the control plane."""

    control_plane: Path
    kuberay: Path
    kuberay_crds: Path
    """KubeRay's CustomResourceDefinitions, a file each."""


def find_programs() -> Programs:
    """The control plane's, built first where they are not there (6 minutes on 2 cores). Raises `Unavailable`."""
    kuberay = _find("kuberay")
    return Programs(_find("controlplane") / _PROGRAM, kuberay / _PROGRAM, kuberay / _CRDS)


def find_helm() -> Path:
    """Helm itself; raises `Unavailable`."""
    return _find("helm") / _PROGRAM


def find_judges() -> Path:
    """What GitOps tools make of objects, see its source; raises `Unavailable`."""
    return _find("judges") / _PROGRAM


_PROGRAM = "program"
_CRDS = "crds"


def _find(module: str) -> Path:
    """The folder of what was built from a module of `SOURCES`."""
    target = _cache() / f"{module}-{_digest(module, _go_version())}"
    with _lock(target):
        if not target.exists():
            _build(module, target)
    return target


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


def _digest(module: str, go: str) -> str:
    """Of everything that a program is made of."""
    digest = hashlib.sha256(repr((go, _FLAGS, _ENVIRONMENT)).encode())
    for path in sorted((SOURCES / module).iterdir()):
        digest.update(f"\n{path.name}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def _lock(target: Path) -> Iterator[None]:
    """Let one process build at a time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(module: str, target: Path) -> None:
    """Build into a folder beside `target` and move it there, so that what is there is whole."""
    made = target.with_suffix(".new")
    shutil.rmtree(made, ignore_errors=True)
    linker = "-s -w"
    if module == "controlplane":  # else it says v0.0.0-master
        version = _go(module, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes").strip()
        linker += f" -X k8s.io/component-base/version.gitVersion={version}"
    _go(module, "build", *_FLAGS, f"-ldflags={linker}", "-o", str(made / _PROGRAM), _PACKAGES[module])
    if module == "kuberay":
        sources = Path(_go(module, "list", "-m", "-f", "{{.Dir}}", _KUBERAY).strip())
        shutil.copytree(sources / "config" / "crd" / "bases", made / _CRDS, copy_function=shutil.copyfile)
    made.rename(target)


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
