"""Peak memory of every process of `tokjob run` on inputs that must not matter to it, and on those that do.

    python benchmarks/memory.py                  # up to 5 GB of input at a time, twice as much of output
    python benchmarks/memory.py --scale 0.01     # does the script work?

The peak of a process is VmHWM of /proc/<pid>/status, read every 20 ms for all processes of the run's session; what the
kernel reports at the end for the largest of them (ru_maxrss) covers what came after the last reading. RSS counts shared
pages in every process that maps them, so forked workers are charged for the driver's tokenizer, too. The verdict on the
engine is kept in a cache of its own: the first input makes every tokenizer run the probe, the others find its verdict.
A document that is one run of letters or blanks has a higher bar: BPE over one piece needs memory for each of its bytes.
Prints Markdown; exits with 1 if any process needed more than its bar. Linux only.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import orjson
from memory_inputs import BAR_BYTES, INPUTS, RUN_BYTES, Input
from processes import CommandFailed, run_command
from report import heading, note, table

INTERVAL_S = 0.02
MIN_SCALE = 0.005  # below it the long line would be a document like any other
ROOM_BYTES = 20_000_000_000
TOKJOB = Path(sys.executable).with_name("tokjob")


class Peaks(NamedTuple):
    """Bytes. `workers`: every other process of the session, largest first; `largest`: of all, the kernel's word too."""

    driver: int
    workers: list[int]
    largest: int


class Result(NamedTuple):
    """One run."""

    input: Input
    tokenizer: str
    engine: str
    peaks: Peaks
    seconds: float
    bar_bytes: int

    @property
    def is_kept(self) -> bool:
        return self.peaks.largest <= self.bar_bytes


class SessionPeaks:
    """Reads VmHWM of every process of a session until its leader ends."""

    def __init__(self) -> None:
        self._leader = 0
        self._peaks: dict[int, int] = {}

    def watch(self, leader: int) -> None:
        self._leader = leader
        while os.waitid(os.P_PID, leader, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            for pid in list_session(leader):
                self._peaks[pid] = max(self._peaks.get(pid, 0), read_peak(pid))
            time.sleep(INTERVAL_S)

    def summarize(self, peak_rss_bytes: int) -> Peaks:
        """`peak_rss_bytes`: what the kernel says of the largest process once all have ended."""
        workers = sorted((peak for pid, peak in self._peaks.items() if pid != self._leader), reverse=True)
        driver = self._peaks.get(self._leader, 0)
        return Peaks(driver, workers, max(driver, *workers, peak_rss_bytes))


def list_session(leader: int) -> list[int]:
    """Processes whose session is `leader`'s."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            after_name = Path(entry.path, "stat").read_bytes().rpartition(b")")[2]
        except OSError:  # it has ended
            continue
        if int(after_name.split()[3]) == leader:
            found.append(int(entry.name))
    return found


def read_peak(pid: int) -> int:
    """VmHWM in bytes; 0 for a process that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    lines = [line.split() for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0][1]) * 1024 if lines else 0


def main() -> int:
    options = parse_arguments()
    options.work_dir.mkdir(parents=True, exist_ok=True)
    room, needed = shutil.disk_usage(options.work_dir).free, int(ROOM_BYTES * options.scale)
    if room < needed:
        print(f"memory: {options.work_dir}: {needed / 1e9:.1f} GB needed, {room / 1e9:.1f} GB free", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="memory-", dir=options.work_dir))
    try:
        results = measure(options, folder)
    except CommandFailed as error:
        print(f"memory: {error}", file=sys.stderr)
        return 1
    finally:
        if options.keep:
            note(f"kept: {folder}")
        else:
            shutil.rmtree(folder)
    shrunk = "" if options.scale == 1 else f", inputs times {options.scale:g}: only a check of the script"
    print(heading("Memory" + shrunk))
    bar = f"{BAR_BYTES / 1e6:.0f} MB for every process, and {RUN_BYTES} bytes for each byte of the longest run"
    print(f"- {options.processes} worker processes; MB is 10^6 bytes; bar: {bar}\n")
    header = ["input", "tokenizer", "engine", "driver, MB", "workers, MB", "largest, MB", "s", "bar"]
    print(table(header, [describe(result) for result in results]))
    return 0 if all(result.is_kept for result in results) else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [chosen.name for chosen in INPUTS]
    add = parser.add_argument
    add("--scale", type=float, default=1.0, help="shrinks all inputs; below 1 the result means nothing")
    add("--tokenizers", default="gpt2,cl100k_base,o200k_base", help="(gpt2,cl100k_base,o200k_base)")
    add("--processes", type=int, default=2, help="worker processes (2)")
    add("--engine", default="fastokens", choices=["auto", "reference", "fastokens"], help="(fastokens: it needs most)")
    add("--only", default=",".join(names), help=f"inputs, of {','.join(names)}")
    add("--work-dir", type=Path, help="for inputs and outputs (TMPDIR/tokenization-bench)")
    add("--keep", action="store_true", help="keep inputs and logs")
    options = parser.parse_args()
    options.tokenizers = options.tokenizers.split(",")
    options.work_dir = (options.work_dir or Path(tempfile.gettempdir(), "tokenization-bench")).resolve()
    if not MIN_SCALE <= options.scale <= 1:
        parser.error(f"--scale: between {MIN_SCALE} and 1")
    if unknown := set(options.only.split(",")) - set(names):
        parser.error(f"--only: {', '.join(sorted(unknown))}: not of {', '.join(names)}")
    options.inputs = [chosen for chosen in INPUTS if chosen.name in options.only.split(",")]
    if not Path("/proc/self/status").exists():
        parser.error("this needs /proc: Linux only")
    return options


def measure(options: argparse.Namespace, folder: Path) -> list[Result]:
    """Every input with every tokenizer; an input is gone before the next one is made."""
    results = []
    for chosen in options.inputs:
        note(f"making     {chosen.name}")
        source = folder / chosen.name
        source.mkdir()
        make_apart(chosen, source, options.scale)
        for name in options.tokenizers:
            result = run_once(chosen, source, name, folder, options)
            note(f"{chosen.name:<10} {name:<12} {result.peaks.largest / 1e6:6.0f} MB  {result.seconds:.1f} s")
            results.append(result)
        if not options.keep:
            shutil.rmtree(source)
    return results


def make_apart(chosen: Input, folder: Path, scale: float) -> None:
    """In a process of its own: a large parent would show in what the kernel reports of its children."""
    maker = multiprocessing.get_context("spawn").Process(target=chosen.make, args=(folder, scale))
    maker.start()
    maker.join()
    if maker.exitcode != 0:
        raise CommandFailed(f"{chosen.name}: its input could not be made (exit code {maker.exitcode})")


def run_once(chosen: Input, source: Path, tokenizer: str, folder: Path, options: argparse.Namespace) -> Result:
    """One run, its output checked and removed."""
    output = folder / "output"
    command: list[str | Path] = [TOKJOB, "run", "--source", source, "--tokenizer", tokenizer, "--output", output]
    command += ["--processes", str(options.processes), *chosen.arguments(options.scale)]
    command += ["--engine", options.engine]
    session = SessionPeaks()
    cost = run_command(
        command,
        log=folder / f"{chosen.name}-{tokenizer}.log",
        environment={"XDG_CACHE_HOME": str(folder / "cache")},
        watch=session.watch,
    )
    index = orjson.loads((output / "index.json").read_bytes())
    quarantined = sum(index["conservation"]["quarantined"].values())
    expected = chosen.quarantined(options.scale)
    if quarantined != expected:
        raise CommandFailed(f"{chosen.name}: {quarantined} documents quarantined, expected {expected}")
    shutil.rmtree(output)
    peaks = session.summarize(cost.peak_rss_bytes)
    return Result(chosen, tokenizer, index["run"]["engine"], peaks, cost.seconds, chosen.bar_bytes(options.scale))


def describe(result: Result) -> list[str]:
    peaks = result.peaks
    workers = ", ".join(f"{peak / 1e6:.0f}" for peak in peaks.workers)
    verdict = "kept" if result.is_kept else "**over**"
    sizes = [f"{peaks.driver / 1e6:.0f}", workers, f"{peaks.largest / 1e6:.0f}"]
    return [result.input.title, result.tokenizer, result.engine, *sizes, f"{result.seconds:.1f}", verdict]


if __name__ == "__main__":
    sys.exit(main())
