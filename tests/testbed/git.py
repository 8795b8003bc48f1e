"""Git repositories of manifests, for GitOps tools."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_WHO = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false")


class WorkingCopy:
    """A new repository in a folder, with one branch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def commit(self, files: Mapping[str, Mapping[str, Any]], words: str) -> str:
        """Write manifests and commit them; the commit."""
        for path, manifest in files.items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            whole = target.with_suffix(".new")  # others read the folder at any time
            whole.write_text(yaml.safe_dump(dict(manifest)), encoding="utf-8")
            whole.replace(target)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", words)
        return self.git("rev-parse", "HEAD").strip()

    def git(self, *words: str) -> str:
        """What git prints; raises `CalledProcessError`."""
        command = ["git", *_WHO, "-C", str(self.folder), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
