"""The programs of the test bed, built from the Go module proxy and kept by the digest of what they are made of."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent / "go"
GO_AT_LEAST = (1, 26)
_KUBERAY = "github.com/ray-project/kuberay/ray-operator"
_KUSTOMIZE = "github.com/fluxcd/kustomize-controller"
_CRDS_OF = {"kuberay": _KUBERAY, "kustomize": _KUSTOMIZE}
"""Modules that have the CustomResourceDefinitions of a program."""

_RECIPES = {
    "controlplane": ("controlplane", "."),
    "kuberay": ("kuberay", _KUBERAY),
    "helm": ("helm", "helm.sh/helm/v4/cmd/helm"),
    "unittest": ("unittest", "github.com/helm-unittest/helm-unittest/cmd/helm-unittest"),
    "judges": ("judges", "."),
    "kustomize": ("gitops", _KUSTOMIZE),
    "argo": ("gitops", "github.com/argoproj/gitops-engine/agent"),
    "kubelet": ("controlplane", "k8s.io/kubernetes/cmd/kubelet"),
    "node": ("node", "tool", "./pause"),
}
"""What is built: of a module, its packages; `tool` are all that its go.mod names."""
_FLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly")
_ENVIRONMENT = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOGC": "400"}


class Unavailable(Exception):
    """A program is not there and cannot be built; the message says why."""


@dataclass(frozen=True)
class NodePrograms:
    """Those of a real node."""

    kubelet: Path
    folder: Path
    """containerd, its shim, `ctr`, the CNI plugins, and `pause`."""


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


def find_helm_unittest() -> Path:
    """What runs the chart's unit tests; raises `Unavailable`."""
    return _find("unittest") / _PROGRAM


def find_judges() -> Path:
    """What GitOps tools make of objects, see its source; raises `Unavailable`."""
    return _find("judges") / _PROGRAM


def find_kustomize_controller() -> tuple[Path, Path]:
    """Flux' controller of Kustomizations, and the folder of its CustomResourceDefinitions; raises `Unavailable`."""
    folder = _find("kustomize")
    return folder / _PROGRAM, folder / _CRDS


def find_argo_agent() -> Path:
    """The agent of Argo CD's engine; raises `Unavailable`."""
    return _find("argo") / _PROGRAM


def find_node_programs() -> NodePrograms:
    """Those of a real node; raises `Unavailable`."""
    return NodePrograms(_find("kubelet") / _PROGRAM, _find("node"))


_PROGRAM = "program"
_CRDS = "crds"


def _find(name: str) -> Path:
    """The folder of what was built by a recipe."""
    target = cache_folder() / f"{name}-{_digest(_RECIPES[name][0], _go_version())}"
    with locked(target):
        if not target.exists():
            began = time.monotonic()
            _say(f"building {name} from Go modules, once; this takes minutes")
            _build(name, target)
            _say(f"built {name} in {time.monotonic() - began:.0f} s")
    return target


def _say(line: str) -> None:
    print(line, file=sys.__stderr__, flush=True)  # pytest keeps what is printed to sys.stderr


def cache_folder() -> Path:
    """What is built once and used by all test beds."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "tokenization-testbed"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


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
    root = SOURCES / module
    return digest_of(root, (path for path in root.rglob("*") if path.is_file()), repr((go, _FLAGS, _ENVIRONMENT)))


def digest_of(root: Path, files: Iterable[Path], words: str = "") -> str:
    """Of these words, and of the names below `root` and the contents of these files."""
    digest = hashlib.sha256(words.encode())
    for path in sorted(files):
        digest.update(f"\n{path.relative_to(root)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Let one process at a time make `target`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(name: str, target: Path) -> None:
    """Build into a folder beside `target` and move it there, so that what is there is whole."""
    module, *packages = _RECIPES[name]
    made = target.with_suffix(".new")
    shutil.rmtree(made, ignore_errors=True)
    linker = "-s -w"
    if module == "controlplane":  # else they say v0.0.0-master
        version = _go(module, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes").strip()
        linker += f" -X k8s.io/component-base/version.gitVersion={version}"
    output = f"{made}/" if len(packages) > 1 else str(made / _PROGRAM)
    _go(module, "build", *_FLAGS, f"-ldflags={linker}", "-o", output, *packages)
    if name in _CRDS_OF:
        sources = Path(_go(module, "list", "-m", "-f", "{{.Dir}}", _CRDS_OF[name]).strip())
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
