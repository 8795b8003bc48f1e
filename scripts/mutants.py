"""Break the guarantees of the product on purpose, one line at a time, and see that tests notice.

    python scripts/mutants.py [--jobs 2] [NAME ...]

Each mutant is a copy of the package in a temporary folder in which one piece of text is replaced; the tests that
should notice run against it and must fail. Exits with 1 if a mutant survives, or if its text is no longer there (or
there more than once): then the table below is out of date. The checkout is never written to.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGES = {"worker": "tokenization_worker", "operator": "tokenization_operator"}
"""By source root, which is also where the tests of a package are."""

TIMEOUT_S = 300
"""A mutant that makes a test wait for ever has been noticed, too."""


@dataclass(frozen=True)
class Mutant:
    """What is replaced in a module, and the tests that must notice: arguments of pytest below `tests/ROOT`."""

    name: str
    module: str
    old: str
    new: str
    tests: tuple[str, ...]
    root: str = "worker"


TABLE = "test_fault_table.py"
RUNS = "test_fault_runs.py"
GCS = "test_storage_gcs.py"
LOCAL = "test_storage_local.py"


def _of(file: str, words: str) -> tuple[str, ...]:
    return (file, "-k", words)


MUTANTS = (
    Mutant(
        "upload: no precondition",
        "storage/gcs_upload.py",
        "            if_generation_match=self._generation,\n            checksum",
        "            checksum",
        _of(TABLE, "create-over-another"),
    ),
    Mutant(
        "resumable upload: no precondition",
        "storage/gcs_upload.py",
        "if_generation_match=self._generation, checksum=None",
        "checksum=None",
        _of(TABLE, "stays and large"),
    ),
    Mutant(
        "delete: no precondition",
        "storage/gcs_upload.py",
        "blob.delete(if_generation_match=int(version), retry=retry)",
        "blob.delete(retry=retry)",
        _of(TABLE, "stays and delete"),
    ),
    Mutant(
        "upload: no checksum sent",
        "storage/gcs_upload.py",
        'checksum="crc32c"',
        "checksum=None",
        _of(TABLE, "create-upload and sent"),
    ),
    Mutant(
        "resumable upload: no checksum sent",
        "storage/gcs_upload.py",
        '        headers["x-goog-hash"] = f"crc32c={crc32c_text(crc32c)}"\n',
        "",
        _of(TABLE, "create-large-last and sent"),
    ),
    Mutant(
        "upload: what the store says it has is not compared",
        "storage/gcs_upload.py",
        "        if (entry.size, entry.crc32c) != (self._size, self._crc32c):\n",
        "        if False:\n",
        _of(TABLE, "create-upload and wrong_CRC"),
    ),
    Mutant(
        "refused upload: any object counts as ours",
        "storage/gcs_upload.py",
        "                if found is None or (found.size, found.crc32c) != (self._size, self._crc32c):",
        "                if found is None:",
        _of(TABLE, "create-over-another"),
    ),
    Mutant(
        "refused upload: none counts as ours",
        "storage/gcs_upload.py",
        "                if found is None or (found.size, found.crc32c) != (self._size, self._crc32c):",
        "                if True:",
        _of(TABLE, "create-upload and after"),
    ),
    Mutant(
        "refused chunk: 412 ignored",
        "storage/gcs_upload.py",
        "                self._refused = True",
        "                pass",
        _of(TABLE, "create-large-over-another or (create-large and 412)"),
    ),
    Mutant(
        "resumable upload: chunk sent again from its start only",
        "storage/gcs_upload.py",
        "        self._offset = persisted\n",
        "        self._offset += len(data)\n",
        _of(GCS, "kept_in_part"),
    ),
    Mutant(
        "abandoned upload: not cancelled",
        "storage/gcs_upload.py",
        "            self._session.cancel()\n",
        "",
        _of(GCS, "cancelled"),
    ),
    Mutant(
        "upload: not repeated",
        "storage/gcs_upload.py",
        '            checksum="crc32c",\n            retry=self._store.retry,',
        '            checksum="crc32c",\n            retry=None,',
        _of(TABLE, "create-upload and 503"),
    ),
    Mutant(
        "whole read: no checksum compared",
        "storage/gcs_client.py",
        'checksum="crc32c", retry=retry, timeout=READ_TIMEOUT_S)\n'
        "    if crc32c_number(blob.crc32c) != google_crc32c.value(data):",
        "checksum=None, retry=retry, timeout=READ_TIMEOUT_S)\n    if False:",
        _of(TABLE, "read-read"),
    ),
    Mutant(
        "whole read: trusted without a checksum",
        "storage/gcs_client.py",
        "if crc32c_number(blob.crc32c) != google_crc32c.value(data):",
        "if blob.crc32c and crc32c_number(blob.crc32c) != google_crc32c.value(data):",
        _of(GCS, "without_a_checksum"),
    ),
    Mutant(
        "store range: length not checked",
        "storage/gcs_store.py",
        "        if len(data) < end - start:\n",
        "        if False:\n",
        _of(TABLE, "read-range and truncated"),
    ),
    Mutant(
        "listing: not repeated",
        "storage/gcs_store.py",
        "fields=_FIELDS, retry=self.retry",
        "fields=_FIELDS, retry=None",
        _of(TABLE, "list-list and 503"),
    ),
    Mutant(
        "delete: version not compared",
        "storage/gcs_store.py",
        "if found is not None and version in (None, found.version):",
        "if found is not None:",
        _of(TABLE, "delete-another-version"),
    ),
    Mutant(
        "source range: length not checked",
        "storage/gcs_reader.py",
        "if len(data) != end - start:",
        "if False:",
        _of(TABLE, "source-read and truncated"),
    ),
    Mutant(
        "source: a whole file not compared with its checksum",
        "storage/gcs_reader.py",
        "self._crc32c not in (None, self._crc32c_so_far)",
        "False",
        _of(TABLE, "source-read and flipped"),
    ),
    Mutant(
        "source: read without its generation",
        "storage/gcs_reader.py",
        "blob(name, generation=self._generation)",
        "blob(name)",
        _of("test_sources.py", "replaced_while_it_is_read"),
    ),
    Mutant(
        "commit: an equal object is never looked for",
        "commit.py",
        "            if is_same(found):\n                return found\n",
        "",
        _of("test_commit.py", "equal_object"),
    ),
    Mutant(
        "commit: any object is the same",
        "commit.py",
        "            if is_same(found):\n",
        "            if True:\n",
        ("test_commit.py",),
    ),
    Mutant(
        "commit: no second look at the epoch",
        "commit.py",
        "                    require_current()\n                except Voided:",
        "                    pass\n                except Voided:",
        _of("test_epochs.py", "taken_back"),
    ),
    Mutant(
        "commit: not create-only",
        "commit.py",
        "        with store.upload(path) as upload:",
        "        with store.upload(path, expect=(lambda e: e.version if e else '')(store.stat(path))) as upload:",
        _of("test_epochs.py", "cannot_be"),
    ),
    Mutant(
        "commit: two writers may differ",
        "commit.py",
        "    if difference is not None:\n",
        "    if False:\n",
        _of("test_commit.py", "disagree"),
    ),
    Mutant(
        "commit: refused for ever",
        "commit.py",
        "    for _ in range(_TRIES):\n        if create_bytes",
        "    while True:\n        if create_bytes",
        _of("test_commit.py", "without_end"),
    ),
    Mutant(
        "record: checksum not compared",
        "records.py",
        "if not is_proven and expected != _checksum(fields):",
        "if False:",
        ("test_records.py",),
    ),
    Mutant(
        "segment: footer not compared with its receipt",
        "segments.py",
        'if tail["digest"][0].tobytes().hex() != digest:',
        "if False:",
        ("test_segments.py",),
    ),
    Mutant(
        "segment: checksum of a block not compared",
        "segments.py",
        'if google_crc32c.extend(int(row["crc32c_start"]), data) != int(row["crc32c"]):',
        "if False:",
        ("test_segments.py",),
    ),
    Mutant(
        "segment: checksum of the footer not compared",
        "segments.py",
        'if _footer_crc(self._blocks, tail) != int(tail["crc32c"][0]):',
        "if False:",
        ("test_segments.py",),
    ),
    Mutant(
        "quarantine: list not compared with its name",
        "quarantine.py",
        "    if found.hexdigest()[:32] == digest:\n        return\n",
        "    return\n",
        _of("test_quarantine.py", "changed"),
    ),
    Mutant(
        "quarantine: what came not compared with what the store has",
        "quarantine.py",
        "if entry.crc32c not in (None, crc32c):",
        "if False:",
        _of(RUNS, "unusable"),
    ),
    Mutant(
        "verdict: a file judged at the first look",
        "range_work.py",
        "            self._require_damaged_again(source, damage)\n",
        "",
        _of("test_policy.py", "looks_damaged_once"),
    ),
    Mutant(
        "finish: shards not looked at again",
        "finish.py",
        "    _check_shards(store, shards)\n",
        "",
        ("test_finish.py",),
    ),
    Mutant(
        "s3 source: read without its version",
        "storage/s3_source.py",
        '            "IfMatch": f\'"{file.version.removeprefix(_ETAG)}"\',\n',
        "",
        _of("test_sources_s3.py", "replaced_while"),
    ),
    Mutant(
        "hf source: an expired address is believed",
        "storage/hf_client.py",
        "if response.status_code not in _EXPIRED:",
        "if True:",
        _of("test_sources_hf.py", "expired"),
    ),
    Mutant(
        "retry: the process's random numbers",
        "storage/retry.py",
        "_CHANCE = random.Random()",
        "_CHANCE = random",
        _of("test_retry.py", "stay_its_own"),
    ),
    Mutant(
        "isolation: a first death is enough",
        "isolation.py",
        "if process.is_fresh and death.is_evidence:",
        "if True:",
        _of("test_isolation.py", "survives_alone"),
    ),
    Mutant(
        "isolation: a stop from outside blames the document",
        "isolation.py",
        "if death.is_stop:",
        "if False:",
        _of("test_isolation.py", "stopped_from_outside"),
    ),
    Mutant(
        "schedule: ranges before shards",
        "schedule.py",
        "        while self._to_build:\n            shard",
        "        while self._to_build and not self._to_tokenize:\n            shard",
        _of("test_scale.py", "go_before_ranges"),
    ),
    Mutant(
        "schedule: a range that lost its worker is not isolated",
        "schedule.py",
        "            self._isolated.add(task.range_id)\n",
        "            pass\n",
        _of("test_lost_workers.py", "isolated"),
    ),
    Mutant(
        "lanes: a dead worker keeps its lane",
        "lanes.py",
        'it has read last."""\n        self._held.pop(worker, None)\n',
        'it has read last."""\n',
        _of("test_lanes.py", "died"),
    ),
    Mutant(
        "gs:// range: longer than asked for",
        "storage/gcs_client.py",
        "    if len(data) > end - start:\n",
        "    if False:\n",
        _of("test_gcs_reads.py", "ignored"),
    ),
    Mutant(
        "isolation: an error of the system kills",
        "isolated_engine.py",
        "            except MemoryError:\n                raise\n",
        "            except (MemoryError, OSError):\n                raise\n",
        _of("test_isolation.py", "error_of_the_system"),
    ),
    Mutant(
        "Ray: a node whose workers cannot start does not rest",
        "executors/ray_workers.py",
        "time.monotonic() + _REST_S * self._failed[worker.node_id]",
        "0.0",
        _of("test_ray_workers.py", "rests or hangs_from"),
    ),
    Mutant(
        "Ray: a head that hangs is asked to end",
        "executors/on_ray.py",
        "has_head = not ray.is_initialized() or list_nodes() is not None",
        "has_head = True",
        _of("test_ray_workers.py", "hangs_from_the_start"),
    ),
    Mutant(
        "processes: a fork may answer its parent's signals",
        "processes.py",
        "before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)",
        "before = signal.pthread_sigmask(signal.SIG_BLOCK, ())",
        ("test_processes.py",),
    ),
    Mutant(
        "local: file not flushed before its name",
        "storage/local.py",
        "                os.fsync(self._fd)\n",
        "                pass\n",
        _of(LOCAL, "on_the_disk"),
    ),
    Mutant(
        "local: folder not flushed after the name",
        "storage/local.py",
        "        if self._durable:\n            sync_folder(self._target.parent)",
        "        return",
        _of(LOCAL, "on_the_disk"),
    ),
    *(
        Mutant(f"operator: {name}", module, old, new, tests, "operator")
        for name, module, old, new, tests in (
            (
                "made on the word of an old sight",
                "reconciler.py",
                "                await self._cluster.require_current(found)\n",
                "                pass\n",
                _of("test_decide.py", "sees_what_was"),
            ),
            (
                "a namesake's commit is believed",
                "ending.py",
                "(found.job_uid, found.run, found.run_key) != (case.seen.uid, run.number, run.run_key)",
                "found.run != run.number",
                _of("test_decide.py", "namesakes_commit"),
            ),
            (
                "an attempt begins beside what is left of the last",
                "attempts.py",
                "    if case.has_children(but_plan=True):\n        before",
                "    if False:\n        before",
                ("test_waiting.py",),
            ),
            (
                "a run begins beside what is left of the last",
                "runs.py",
                "case.before.run is not None and case.has_children()",
                "False",
                _of("test_decide.py", "new_token"),
            ),
            (
                "an open dashboard is kept",
                "answers.py",
                """    return "authOptions" in""",
                """    return True or "authOptions" in""",
                _of("test_cluster.py", "taken_back"),
            ),
            (
                "what no watch has told is gone",
                "reconciler.py",
                "        if seen.ray_job is None and seen.status.plan is not None:\n",
                "        if False:\n",
                _of("test_decide.py", "has_not_brought"),
            ),
            (
                "a key has two workers",
                "workqueue.py",
                "self._again if key in self._busy else self._due",
                "self._due",
                _of("test_workqueue.py", "one_worker_at_a_time"),
            ),
            (
                "a key that is named while it is looked at is forgotten",
                "workqueue.py",
                "                self._want(key, self._again.pop(key))\n",
                "                self._again.pop(key)\n",
                _of("test_workqueue.py", "one_worker_at_a_time"),
            ),
            (
                "a checkpoint is changed by an old sight",
                "cluster.py",
                """for name in ("resourceVersion", "uid")""",
                """for name in ("uid",)""",
                _of("test_cluster.py", "pointed"),
            ),
            (
                "every failure is forgiven",
                "failures.py",
                "    if ranges_done > (before.ranges_completed or 0):\n",
                "    if True:\n",
                _of("test_decide.py", "without_progress"),
            ),
            (
                "a part that has ended leaves a zombie",
                "handlers.py",
                "            self.has_failed = True\n            self.stop_flag.set()\n",
                "            self.has_failed = True\n",
                ("test_resync.py",),
            ),
            (
                "time in a queue counts",
                "runs.py",
                "    run = after.run and after.run.model_copy",
                "    return after\n    run = after.run and after.run.model_copy",
                ("test_waiting.py",),
            ),
        )
    ),
    Mutant(
        "a found receipt may be of another plan",
        "commit.py",
        "    require_plan(store.uri, path, found.plan_id, plan_id)\n",
        "",
        _of("test_tasks.py", "another_plan"),
    ),
    Mutant(
        "the receipt that was there first may be of another plan",
        "commit.py",
        "    require_plan(store.uri, path, found.plan_id, receipt.plan_id)\n",
        "",
        _of("test_tasks.py", "another_plan"),
    ),
    Mutant(
        "the ledger may hold another plan's receipts",
        "ledger.py",
        """        require_plan(store.uri, path, record["plan_id"], plan.plan_id)\n""",
        "",
        _of("test_tasks.py", "another_plan"),
    ),
    Mutant(
        "verdict on a document: one's own counts",
        "poison.py",
        "        return _poison_of(found)\n",
        "        return _poison_of(verdict)\n",
        _of("test_tasks.py", "verdict_on_a_document"),
    ),
    Mutant(
        "verdict on a file: one's own counts",
        "range_work.py",
        """        return found["outcome"], found["detail"]\n""",
        """        return damage.outcome, damage.detail\n""",
        _of("test_tasks.py", "verdict_on_a_damaged_file"),
    ),
    Mutant(
        "the plan's sample is counted in a process with threads",
        "estimate.py",
        "    if can_copy():\n        return _count_in_copies(engine, samples)\n",
        "    if not can_copy():\n        return [_encode_sample(engine, texts) for texts in samples]\n",
        _of("test_isolation.py", "sample_of_a_plan"),
    ),
    Mutant(
        "a plan's checksum is not compared",
        "plan.py",
        "if checksum != _checksum(data):",
        "if False:",
        _of("test_identity.py", "plan_may_change"),
    ),
    Mutant(
        "verify does not compare the plan's checksum",
        "verification/tables.py",
        '    if google_crc32c.value(data[:-4]) != int.from_bytes(data[-4:], "little"):',
        "    if False:",
        _of("test_identity.py", "plan_that_was_changed"),
    ),
    Mutant(
        "Ray: a node is there as long as Ray believes so",
        "executors/ray_workers.py",
        "        if answers(node):\n",
        "        if True:\n",
        _of("test_ray_workers.py", "does_not_answer_is_gone"),
    ),
    Mutant(
        "Ray: a proxy is asked for the way to a cluster",
        "executors/ray_connection.py",
        'init_grpc_channel(address, options=[("grpc.enable_http_proxy", 0)])',
        "init_grpc_channel(address)",
        _of("test_ray_workers.py", "no_proxy"),
    ),
    Mutant(
        "gs://: connections of calls at once are not kept",
        "storage/gcs_client.py",
        "super().__init__(pool_maxsize=CONNECTIONS)",
        "super().__init__()",
        _of("test_gcs_connections.py", "as_many"),
    ),
    Mutant(
        "gs://: every chunk has a connection of its own",
        "storage/gcs_upload.py",
        "@cache\ndef _http(",
        "def _http(",
        _of("test_gcs_connections.py", "chunks"),
    ),
    Mutant(
        "hf://: a rate limit is not waited for",
        "storage/retry.py",
        "wait = asked + step",
        "wait = step",
        _of("test_sources_hf.py", "rate_limit"),
    ),
)


def make_copy(mutant: Mutant, folder: Path) -> str | None:
    """Copy the package with the mutant into `folder`; what is wrong with the mutant's text, or None."""
    package = folder / PACKAGES[mutant.root]
    shutil.copytree(CHECKOUT / mutant.root / package.name, package, ignore=shutil.ignore_patterns("__pycache__"))
    path = package / mutant.module
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        return f"{mutant.module} has this text {text.count(mutant.old)} times: {mutant.old.strip()[:80]!r}"
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    return None


def run_tests(mutant: Mutant, folder: Path) -> tuple[int, str]:
    """Run the mutant's tests against the copy: pytest's exit code, and what it said last."""
    tests, options = [], []
    for argument in mutant.tests:
        (tests if argument.endswith(".py") else options).append(argument)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=line", *options]
    paths = os.pathsep.join([str(folder), *(str(CHECKOUT / root) for root in PACKAGES)])
    try:
        done = subprocess.run(
            [*command, *(str(CHECKOUT / "tests" / mutant.root / test) for test in tests)],
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, f"no end in {TIMEOUT_S} s"
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    if done.returncode == 1 and not failed:
        return 2, f"no test has failed, and yet: {done.stdout[-200:]}"  # what a test needs could not be had
    lines = failed or done.stdout.splitlines()
    return done.returncode, lines[-1] if lines else done.stderr[-200:]


def judge(mutant: Mutant) -> tuple[Mutant, bool, str, float]:
    """Whether tests noticed; a run without tests, or one that could not begin, is no notice."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        problem = make_copy(mutant, Path(name))
        if problem is not None:
            return mutant, False, problem, 0.0
        code, said = run_tests(mutant, Path(name))
    verdict = {0: "SURVIVED: all its tests pass", 1: said.removeprefix("FAILED ")}.get(
        code, f"pytest exit {code}: {said}"
    )
    return mutant, code == 1, verdict.replace(f"tests/{mutant.root}/", ""), time.monotonic() - started


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="only mutants whose name has one of these words in it")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if not options.names or any(word in mutant.name for word in options.names)]
    started = time.monotonic()
    survived = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, is_noticed, verdict, seconds in pool.map(judge, chosen):
            survived += not is_noticed
            print(f"{'red ' if is_noticed else 'BAD '} {seconds:5.1f} s  {mutant.name:52}  {verdict[:140]}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} mutants turn tests red, in {time.monotonic() - started:.0f} s")
    return 1 if survived or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
