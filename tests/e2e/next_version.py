"""A next minor version of this tree: what an upgrade brings, and a rollback meets.

It is this tree with another version number and new fields wherever an operator and a worker image of different versions
meet: in all parts of a checkpoint, in reports, in a job's status, and one that changes a dataset, in a job's spec. So a
pair of neighbouring versions is there without any history, also in a clone that has none.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from e2e.images import ROOT, sources_of
from testbed.programs import cache_folder, locked

NEXT_VARIABLE = "E2E_NEXT"
"""In the environment of tests: the folder of the tree."""

NOTE = "nextNote"
"""The field, and its value is `next`; older versions do not know it, and may ignore it."""

DATA_FIELD, BORN, OTHER = "order", "AsListed", "ByLength"
"""Of a job's `output`, with its default and another value; no older worker may ignore it."""

_CHART = Path("charts", "tokenization-operator")
_MODELS = Path("worker", "tokenization_worker", "api")
_NOTE = 'next_note: str | None = Field(default_factory=lambda: "next", description="Of the next version.")'
_DATA = f'{DATA_FIELD}: str = Field(default="{BORN}", description="Of the next version.", examples=["{OTHER}"])'
_FIELDS = {
    "checkpoint.py": {"RunSpec": _NOTE, "AttemptSpec": _NOTE, "Committed": _NOTE},
    "status.py": dict.fromkeys(("JobStatus", "RunStatus", "AttemptStatus", "PlanStatus", "ProgressStatus"), _NOTE),
    "output.py": {"Output": _DATA},
}
_GENERATE = "from tokenization_worker.cli.main import main; import sys; sys.exit(main(['crd', '--write', sys.argv[1]]))"


def version_of(tree: Path) -> str:
    """The version of a tree's packages."""
    found = re.search(r'^version = "(.+)"$', (tree / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, tree
    return found[1]


def make_next_version() -> Path:
    """Make the tree; its folder."""
    tree = cache_folder() / "next-version"
    with locked(tree):
        shutil.rmtree(tree, ignore_errors=True)
        chart = (path for path in (ROOT / _CHART).rglob("*") if path.is_file())
        for path in (*sources_of(ROOT), *chart):
            target = tree / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        _raise_version(tree)
        _add_fields(tree)
        crds = tree / _CHART / "files" / "crds"
        environment = {**os.environ, "PYTHONPATH": str(tree / "worker"), "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([sys.executable, "-c", _GENERATE, str(crds)], env=environment, check=True, capture_output=True)
        assert NOTE in (crds / "tokenization.dev_tokenizationjobs.yaml").read_text(encoding="utf-8")
    return tree


def _raise_version(tree: Path) -> None:
    before = version_of(tree)
    major, minor, _ = before.split(".")
    after = f"{major}.{int(minor) + 1}.0"
    _replace(tree / "pyproject.toml", f'version = "{before}"', f'version = "{after}"')
    _replace(tree / _CHART / "Chart.yaml", f"\nversion: {before}\n", f"\nversion: {after}\n")
    _replace(tree / _CHART / "Chart.yaml", f"\nappVersion: {before}\n", f"\nappVersion: {after}\n")


def _add_fields(tree: Path) -> None:
    for module, fields in _FIELDS.items():
        path = tree / _MODELS / module
        text = path.read_text(encoding="utf-8")
        for name, field in fields.items():
            text, count = re.subn(
                rf'(\nclass {name}\(\w+\):\n    """.*?"""\n)', rf"\1\n    {field}\n", text, flags=re.DOTALL
            )
            assert count == 1, (module, name)
        path.write_text(text, encoding="utf-8")
    _replace(
        tree / _MODELS / "version_skew.py",
        "LATER_FIELDS: Mapping[str, LaterField] = {",
        "LATER_FIELDS: Mapping[str, LaterField] = {"
        f'"run.output.{DATA_FIELD}": LaterField("{BORN}", "{version_of(tree)}"), '
        f'"run.{NOTE}": LaterField(None, None), "attempt.{NOTE}": LaterField(None, None), ',
    )
    dtype = '    "output.dtype": "Auto",\n'
    _replace(tree / _MODELS / "keys.py", dtype, f'{dtype}    "output.{DATA_FIELD}": "{BORN}",\n')
    prefix = '        "writerPodPrefix": writer_pod_prefix,\n'
    children = tree / "operator" / "tokenization_operator" / "build" / "children.py"
    _replace(children, prefix, f'{prefix}        "{NOTE}": "next",\n')


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{path}: {text.count(old)} times {old!r}"
    path.write_text(text.replace(old, new), encoding="utf-8")
