"""The minor version before that of this tree, as it was released: from its tag, where this clone has it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from e2e.images import ROOT
from e2e.next_version import version_of
from testbed.programs import cache_folder, locked

BEFORE_VARIABLE = "E2E_BEFORE"
"""In the environment of tests: the folder of the tree."""

_FIRST = (0, 2)
"""The first version that works beside another one."""

_TAG = re.compile(r"v(\d+)\.(\d+)\.(\d+)")


def find_version_before() -> Path | None:
    """Its tree; None where there is none, or where this clone has no tag of it (`git fetch --tags`)."""
    tag = choose_tag(version_of(ROOT), _git("tag", "--list", "v*").split())
    if tag is None:
        return None
    tree = cache_folder() / "version-before"
    with locked(tree):
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir(parents=True)
        archive = tree / "tree.tar"
        _git("archive", f"--output={archive}", tag)
        subprocess.run(["tar", "-xf", str(archive), "-C", str(tree)], check=True)
        archive.unlink()
    return tree


def choose_tag(version: str, tags: list[str]) -> str | None:
    """The tag of the newest release of the minor version before `version`."""
    major, minor, _ = (int(number) for number in version.split("."))
    wanted = (major, minor - 1)
    found = [tuple(map(int, match.groups())) for tag in tags if (match := _TAG.fullmatch(tag))]
    patches = [patch for *line, patch in found if tuple(line) == wanted]
    if wanted < _FIRST or not patches:
        return None
    return f"v{major}.{minor - 1}.{max(patches)}"


def _git(*words: str) -> str:
    """What git says; nothing where there is no history at all."""
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout if not done.returncode else ""
