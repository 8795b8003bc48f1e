"""Says at the end of the output what the formats' readers proved, and what could not be proved on this machine."""

from __future__ import annotations

from peers.table import PEERS


def pytest_terminal_summary(terminalreporter) -> None:  # type: ignore[no-untyped-def]
    results = {name: terminalreporter.stats.get(name, []) for name in ("passed", "failed", "skipped")}
    reports = [report for found in results.values() for report in found if "test_a_peer_reads" in report.nodeid]
    if not reports:
        return
    terminalreporter.section("what readers of the formats proved")
    for peer in PEERS:
        own = [report for report in reports if f"[{peer.name}-" in report.nodeid]
        if own:
            packages = ", ".join((*peer.packages, *(["Debian's torch"] if peer.torch else [])))
            terminalreporter.line(f"{peer.format:12} {peer.name:12} {_verdict(own)} ({packages})")


def _verdict(reports: list) -> str:  # type: ignore[type-arg]
    if all(report.passed for report in reports):
        return f"proved on {len(reports)} datasets"
    if any(report.failed for report in reports):
        return "FAILED"
    return f"NOT PROVED HERE: {reports[0].longrepr[2].removeprefix('Skipped: ')}"
