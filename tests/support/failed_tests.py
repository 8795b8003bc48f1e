"""Writes the ids of failed tests to a file, for a second run of these tests alone.

A pytest plugin. `scripts/run_tests.py` passes the option and reads the file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

OPTION = "--write-failed"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, metavar="FILE", help="write the id of every failed test to FILE, one a line")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption(OPTION)
    if path is not None and not hasattr(config, "workerinput"):  # a worker of xdist sends its reports to the controller
        config.pluginmanager.register(FailedTests(Path(path)))


class FailedTests:
    """Collects failures of tests, of their set-up and tear-down, and crashes of the worker that ran a test."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ids: dict[str, None] = {}  # in order, each one once

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._ids[report.nodeid] = None

    def pytest_sessionfinish(self) -> None:
        self._path.write_text("".join(f"{each}\n" for each in self._ids), encoding="utf-8")
