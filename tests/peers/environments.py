"""Virtual environments of peers, made on demand below the user's cache and used again by later runs."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from peers.table import Peer
from testbed.programs import locked

_TORCH = "python3-torch"
_INSTALL_S = 600


class PeerUnavailable(Exception):
    """Why a peer cannot be installed on this machine."""


@dataclass(frozen=True, slots=True)
class Environment:
    """An interpreter, and the variables that it needs beside ours."""

    python: Path
    variables: Mapping[str, str]


def find_environment(peer: Peer) -> Environment:
    """The environment of a peer, made first where it is missing (seconds; with torch half a minute).

    Raises `PeerUnavailable`.
    """
    torch = find_debian_torch() if peer.torch else None
    words = repr((sys.version, peer.packages, str(torch)))
    folder = _cache_folder() / f"{peer.name}-{hashlib.sha256(words.encode()).hexdigest()[:16]}"
    python, stamp = folder / "bin" / "python", folder / ".installed"
    with locked(folder):
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)
            _call([sys.executable, "-m", "venv", str(folder)])
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _call([*pip, "--no-deps", "--only-binary", ":all:", *peer.packages])
            if torch is not None:
                _add_path(python, torch / "usr/lib/python3/dist-packages")
            stamp.touch()
    return Environment(python, {} if torch is None else {"LD_LIBRARY_PATH": os.pathsep.join(library_folders(torch))})


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tokenization-peers"


def find_debian_torch() -> Path:
    """The root below which Debian's python3-torch and all that it needs are unpacked: a build for CPUs (630 MB).

    Packages that this machine has are not among them. Nothing is installed, so it takes no root.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise PeerUnavailable("torch comes from Debian's packages, and this machine has no apt-get and dpkg-deb")
    planned = _call(["apt-get", "install", "--simulate", "--no-install-recommends", _TORCH])
    names = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
    if _TORCH not in names:
        raise PeerUnavailable(f"{_TORCH} is installed on this machine: only a copy of it is used here")
    root = _cache_folder() / f"torch-{hashlib.sha256(planned.encode()).hexdigest()[:16]}"
    with locked(root):
        if not root.exists():
            _unpack(names, root)
    own = f"_C.cpython-{sys.version_info.major}{sys.version_info.minor}-*.so"
    if not list((root / "usr/lib/python3/dist-packages/torch").glob(own)):
        raise PeerUnavailable(f"Debian's {_TORCH} is for another Python than {platform.python_version()}")
    return root


def _unpack(names: Sequence[str], root: Path) -> None:
    made, archives = root.with_suffix(".new"), root.with_suffix(".debs")
    for folder in (made, archives):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    _call(["apt-get", "download", "--quiet", *names], cwd=archives)
    for archive in archives.iterdir():
        _call(["dpkg-deb", "--extract", str(archive), str(made)])
    shutil.rmtree(archives)
    made.rename(root)


def library_folders(root: Path) -> list[str]:
    """Where the libraries of Debian's torch are, for the dynamic linker."""
    machine = f"{platform.machine()}-linux-gnu"
    below = [f"lib/{machine}", "usr/lib", *(f"usr/lib/{machine}{end}" for end in ("", "/blas", "/lapack"))]
    return [str(root / folder) for folder in below]


def _add_path(python: Path, folder: Path) -> None:
    """Let the environment find packages there, behind its own."""
    site = _call([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
    Path(site, "debian.pth").write_text(f"{folder}\n", encoding="utf-8")


def _call(command: Sequence[str], cwd: Path | None = None) -> str:
    """Standard output of a command; raises `PeerUnavailable` with its last words where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_INSTALL_S, cwd=cwd)
    except subprocess.TimeoutExpired as error:
        raise PeerUnavailable(f"{command[0]} took more than {_INSTALL_S} s") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise PeerUnavailable(f"{' '.join(command[:4])} ...: {said[-1] if said else f'exit code {done.returncode}'}")
    return done.stdout
