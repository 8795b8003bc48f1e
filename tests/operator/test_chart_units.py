"""The chart's own unit tests pass, and a release does not carry them."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from support.cluster.operators import CHART, helm
from testbed.programs import Unavailable, find_helm_unittest

pytestmark = pytest.mark.testbed


@pytest.fixture(scope="session")
def unittest() -> Path:
    try:
        return find_helm_unittest()
    except Unavailable as error:
        if os.environ.get("REQUIRE_TESTBED"):
            raise
        pytest.skip(str(error))


def test_the_unit_tests_of_the_chart_pass(unittest: Path) -> None:
    done = subprocess.run([str(unittest), "--color=false", str(CHART)], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout + done.stderr


def test_a_package_has_the_test_of_a_release_and_no_unit_test(tmp_path: Path) -> None:
    helm("package", str(CHART), "--destination", str(tmp_path))
    [package] = tmp_path.glob("*.tgz")
    with tarfile.open(package) as archive:
        names = archive.getnames()
    assert f"{CHART.name}/templates/tests/kinds.yaml" in names
    assert f"{CHART.name}/README.md" in names
    assert f"{CHART.name}/files/dashboard.json" in names
    assert not [name for name in names if name.endswith("_test.yaml")]
