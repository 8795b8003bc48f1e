"""A stopped or refused run goes on with the same command: to the same bytes, and nothing is done twice."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.command_line import (
    MANIFEST,
    Bench,
    Result,
    byte_shards,
    dataset_of,
    ledger_of,
    live,
    read_table,
    sample_texts,
    shards_of,
)
from support.corpus import json_lines, zstd, zstd_frames
from support.engine.inline import inline
from support.runs import TOKJOB, files_below, leftovers, make_job, move_dataset, read_index, write_index
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.keys import run_key
from tokenization_worker.engine.dispatch import Stopped
from tokenization_worker.engine.task import Task
from tokenization_worker.errors import ChangedError, DataError, TemporaryError, WorkerDied
from tokenization_worker.output.plan_file import read_plan
from tokenization_worker.output.shard_check import find_changed_shards
from tokenization_worker.pipelines.tokenize.ledger import read_tokenize_ledger
from tokenization_worker.pipelines.tokenize.ranges.range_task import TokenizeTask
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.storage.base import Entry
from tokenization_worker.storage.local.store import LocalStore
from tokenization_worker.storage.source_file import iso_date

pytestmark = pytest.mark.slow

LONG = ("tokens: 12000", "tokens: 300000")
QUARANTINE = "_tokenization/quarantine.jsonl.zst"
RANGE_BYTES = ["--rangeBytes", "64Ki", "--processes", "1"]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def long_bench(bench: Bench) -> Bench:
    """Enough ranges that a driver whose events nobody reads stands still long before the end."""
    bench.texts["b.jsonl"] = sample_texts("b", 2500)
    (bench.source / "b.jsonl").write_bytes(json_lines(bench.texts["b.jsonl"]))
    bench.write("job.yaml", MANIFEST.replace(*LONG))
    return bench


def assert_told(result: Result, code: int, *words: str) -> None:
    assert "Traceback" not in result.err
    assert result.code == code, result.err
    for word in words:
        assert word in result.err, f"{word!r} is not in:\n{result.err}"


def assert_right(bench: Bench, documents: list[str] | None = None, shard_tokens: int = 12000) -> None:
    assert shards_of(bench.output) == byte_shards(documents or bench.documents, shard_tokens=shard_tokens)
    assert leftovers(bench.output) == []


# --- signals


@pytest.mark.sampled(2)
@pytest.mark.parametrize("group", [False, True], ids=["driver", "process-group"])
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)],
    ids=["SIGTERM", "SIGINT", "SIGHUP"],
)
def test_stopped_run_ends_with_its_code_and_the_same_command_goes_on(
    number: int, code: int, group: bool, long_bench: Bench
) -> None:
    if signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip("whoever started the tests ignores this signal, as nohup does")
    with live(long_bench, "job.yaml", *RANGE_BYTES) as run:
        run.wait_for_ranges(2)
        run.signal(number, group=group)
        result = run.finish()
    assert_told(
        result, code, "stopping after the ranges under way", "finished work is kept. The same command continues"
    )
    assert not (long_bench.output / "index.json").exists()
    assert not (long_bench.output / "_tokenization" / "tmp").exists()
    done = ledger_of(long_bench.output)
    assert len(done) >= 2

    again = long_bench.tokjob("run", "job.yaml", "--processes", "2")

    assert again.code == 0
    assert re.search(r"^resume +[1-9]\d* of \d+ ranges", again.out, re.MULTILINE)
    assert done.items() <= ledger_of(long_bench.output).items()
    assert_right(long_bench, shard_tokens=300_000)


@pytest.mark.parametrize("is_stopped", [True, False], ids=["after-a-signal", "by-itself"])
def test_worker_that_dies_by_the_signal_is_a_stop_and_by_itself_an_error(is_stopped: bool, bench: Bench) -> None:
    signalled: list[bool] = []

    def die(task: Task) -> None:
        signalled.append(is_stopped)  # a signal to the whole process group ends the workers first
        raise WorkerDied("WorkerDied", "a worker process was killed")

    with pytest.raises(Stopped if is_stopped else TemporaryError):
        run_job(
            make_job(bench.source, bench.output, tokenizer={"name": "bytes"}),
            executor=inline(die),
            should_stop=lambda: any(signalled),
        )


def test_second_signal_ends_at_once_and_the_same_command_goes_on(long_bench: Bench) -> None:
    with live(long_bench, "job.yaml", *RANGE_BYTES) as run:
        run.wait_for_ranges()
        run.signal(signal.SIGINT, group=False)
        run.wait_for_message("again to stop at once")
        run.signal(signal.SIGINT, group=False)
        assert_told(run.finish(), 130, "The same command continues")
    long_bench.run(LONG)
    assert_right(long_bench, shard_tokens=300_000)


def press_until_it_ends(process: subprocess.Popen[bytes]) -> bytes:
    """Ctrl-C, and again where nothing happens: one in the very moment before a system call leaves it asleep."""
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        asleep, looks = has_slept(process.pid), 0
        while process.poll() is None and looks < 200:  # one that waits for a core does not sleep
            time.sleep(0.1)
            before, asleep = asleep, has_slept(process.pid)
            looks = looks + 1 if asleep and asleep == before else 0
        if process.poll() is not None:
            return process.communicate()[1]
    raise AssertionError("it does not end")


def has_slept(pid: int) -> list[list[str]]:
    """Of each thread the time that it has run, if all of them sleep; else nothing."""
    found = []
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = thread.read_text(encoding="ascii").rpartition(") ")[2].split()
            if fields[0] != "S":
                return []
            found.append(fields[11:13])
    return found


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["run", "slow"], "tokjob: stopped; the same command continues where this one stopped\n"),
        (["plan", "slow"], "tokjob: stopped\n"),
    ],
    ids=["run", "plan"],
)
def test_ctrl_c_before_anything_is_done_is_no_traceback(command: list[str], told: str, bench: Bench) -> None:
    slow = bench.folder / "slow"
    os.mkfifo(slow)
    with subprocess.Popen(
        [TOKJOB, *command],
        cwd=bench.folder,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where a shell started us with `&`
    ) as process:
        writer = os.open(slow, os.O_WRONLY)  # returns when the command has opened it
        try:
            errors = press_until_it_ends(process)
        finally:
            process.kill()
            os.close(writer)
    assert (process.returncode, errors.decode()) == (130, told)


@pytest.mark.parametrize("command", ["verify", "show"])
def test_ctrl_c_while_a_store_does_not_answer_is_no_traceback(command: str, bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        with subprocess.Popen(
            [TOKJOB, command, "gs://bucket/out"],
            cwd=bench.folder,
            env=os.environ | {"STORAGE_EMULATOR_HOST": endpoint},
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(
                signal.SIGINT, signal.SIG_DFL
            ),  # ignored where a shell started us with `&`
        ) as process:
            connection = server.accept()[0]  # returns when the command asks
            try:
                errors = press_until_it_ends(process)
            finally:
                process.kill()
                connection.close()
    assert (process.returncode, errors.decode()) == (130, "tokjob: stopped\n")


def test_reader_of_events_that_goes_away_is_no_success_and_the_same_command_goes_on(long_bench: Bench) -> None:
    with live(long_bench, "job.yaml", *RANGE_BYTES) as run:
        run.wait_for_ranges()
        run.close_events()
        result = run.finish()
    assert result.code == 128 + signal.SIGPIPE
    assert result.err == ""
    assert not (long_bench.output / "index.json").exists()
    long_bench.run(LONG)
    assert_right(long_bench, shard_tokens=300_000)


def kept_files(bench: Bench) -> set[str]:
    """Without what workers are writing: their tasks go on, and end, while the driver stands still."""
    return {path for path in files_below(bench.folder) if "/tmp/" not in path}


def test_run_that_stands_still_is_running_and_cannot_be_cleaned(long_bench: Bench) -> None:
    with live(long_bench, "job.yaml", *RANGE_BYTES) as run:
        run.wait_for_ranges()
        status = long_bench.tokjob("status", "out")
        assert status.out.startswith("Running ")
        assert re.search(r"[1-9]\d* of \d+ ranges", status.out)
        before = kept_files(long_bench)
        for option in ([], ["--dry-run"]):
            assert_told(
                long_bench.tokjob("clean", "out", *option), 3, "OutputLive", "a run is writing there now", "stop it"
            )
        other = long_bench.tokjob("run", "job.yaml", *RANGE_BYTES, "--source.idField", "key")
        assert_told(other, 3, "OutputConflict", "unfinished run of other data", "wait until it has ended")
        assert "clean" not in other.err
        assert before <= kept_files(long_bench)
        assert run.finish().code == 0
    assert_right(long_bench, shard_tokens=300_000)


# --- the source between two starts


@pytest.fixture
def stopped(bench: Bench) -> Bench:
    """A run that stopped because one document is unusable; `FINISH` ends it."""
    bench.stop()
    return bench


FINISH = ["run", "job.yaml", "--maxQuarantined", "1"]
MORE = "  maxQuarantined: 1\n"


def test_changed_file_stops_the_next_start_until_it_is_put_back(stopped: Bench) -> None:
    path = stopped.source / "a.jsonl"
    before, status = path.read_bytes(), path.stat()
    path.write_bytes(before.replace(b"a1 ", b"a1."))
    changed = path.stat()
    done = ledger_of(stopped.output)

    for command in ("run", "plan"):
        assert_told(
            stopped.tokjob(command, *FINISH[1:]),
            3,
            f"SourceChanged: {path} changed since the plan was made",
            f"was {len(before):,} bytes, modified {iso_date(status.st_mtime_ns)}",
            f"is {len(before):,} bytes, modified {iso_date(changed.st_mtime_ns)}",
            f"put the planned file back with its modification time (cp -p, rsync -t; where its bytes are the planned "
            f"ones: touch -d {iso_date(status.st_mtime_ns)} {path})",
            "start the same command again",
            "or start a new run",
        )
    assert ledger_of(stopped.output) == done

    path.write_bytes(before)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    stopped.run(more=MORE)
    assert_right(stopped)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{src}", ["c.jsonl changed since the plan was made", "it no longer exists"]),
        (
            "{src}/a.jsonl, {src}/b.jsonl, {src}/c.jsonl",
            ["c.jsonl changed since the plan was made", "it no longer exists", "c.jsonl' matches no file"],
        ),
    ],
    ids=["in-a-folder", "named"],
)
def test_deleted_file_stops_the_next_start_until_it_is_put_back(source: str, words: list[str], bench: Bench) -> None:
    uris = source.replace("{src}", str(bench.source))
    with pytest.raises(DataError, match="QuarantineExceeded"):
        (bench.source / "b.jsonl").write_bytes((bench.source / "b.jsonl").read_bytes() + b"not JSON\n")
        bench.run(("[src]", f"[{uris}]"))
    shutil.move(bench.source / "c.jsonl", bench.folder / "c.jsonl")

    result = bench.tokjob(*FINISH, "--source.uris", f"[{uris}]")
    assert_told(result, 3, "SourceChanged:", "put the planned file", *words)

    shutil.move(bench.folder / "c.jsonl", bench.source / "c.jsonl")
    bench.run(("[src]", f"[{uris}]"), more=MORE)
    assert_right(bench)


def test_new_files_are_a_warning_and_no_part_of_the_run(stopped: Bench) -> None:
    stopped.write("src/0.jsonl", json_lines(["new"]))
    stopped.write("src/d.jsonl", json_lines(["new"]))
    result = stopped.tokjob(*FINISH)
    assert result.code == 0
    assert (
        "warning    2 files appeared in the source after the plan was made; this run does not read them" in result.out
    )
    assert f"the first: {stopped.source}/0.jsonl; to read them, set a new rerunToken" in result.out
    assert_right(stopped)


@pytest.mark.parametrize(
    ("change", "is_now"),
    [
        (lambda path: path.write_bytes(path.read_bytes() + b"\n"), "is 40"),
        (lambda path: path.unlink(), "it no longer exists"),
        (lambda path: os.utime(path, ns=(0, 0)), "modified 1970-01-01T00:00:00.000000000Z"),
    ],
    ids=["longer", "gone", "time"],
)
def test_file_that_changes_while_the_run_goes_on_stops_it(
    change: Callable[[Path], object], is_now: str, bench: Bench
) -> None:
    path = bench.source / "c.jsonl"
    size = path.stat().st_size

    def before(task: Task) -> None:
        if isinstance(task, TokenizeTask) and path.stat().st_mtime_ns == planned:
            change(path)

    planned = path.stat().st_mtime_ns
    with pytest.raises(ChangedError, match=rf"{path} changed since this run listed it: was {size:,} bytes") as caught:
        run_job(make_job(bench.source, bench.output, tokenizer={"name": "bytes"}), executor=inline(before))
    assert is_now.replace("is 40", f"is {size + 1:,} bytes") in str(caught.value)
    assert not (bench.output / "index.json").exists()


def test_shards_of_an_unfinished_run_that_were_deleted_or_changed_are_written_again(stopped: Bench) -> None:
    names = sorted(shards_of(stopped.output))
    deleted, flipped, cut, touched = (stopped.output / name for name in names[:4])
    deleted.unlink()
    data = flipped.read_bytes()
    flipped.write_bytes(data[:-5] + bytes([data[-5] ^ 1]) + data[-4:])
    cut.write_bytes(cut.read_bytes()[:-2])
    os.utime(touched, ns=(1, 1))
    others = [stopped.output / name for name in names[3:]]
    before = [(path.stat().st_ino, path.stat().st_mtime_ns) for path in others]

    assert stopped.tokjob(*FINISH).code == 0

    assert_right(stopped)
    # Also the one that was only touched: its bytes are right.
    assert [(path.stat().st_ino, path.stat().st_mtime_ns) for path in others] == before


def test_sidecars_of_an_unfinished_run_that_were_deleted_or_changed_are_written_again(stopped: Bench) -> None:
    sidecars = sorted((stopped.output / "_tokenization" / "documents").rglob("0*"))
    before = {path: path.read_bytes() for path in sidecars}
    sidecars[0].unlink()
    sidecars[1].write_bytes(before[sidecars[1]][:-1] + b"!")
    sidecars[2].write_bytes(before[sidecars[2]][:-4])

    result = stopped.tokjob(*FINISH)

    assert result.code == 0
    assert "3 mismatched or missing shards written again" in result.out
    assert {path: path.read_bytes() for path in sidecars} == before
    assert_right(stopped)


def quarantine_lists(output: Path) -> list[Path]:
    return sorted((output / "_tokenization" / "ledger" / "0" / "quarantine").iterdir())


@pytest.mark.parametrize("has_segments", [True, False], ids=["segments there", "segments lost"])
def test_lost_quarantine_list_of_an_unfinished_run_is_written_again(has_segments: bool, stopped: Bench) -> None:
    [lost] = quarantine_lists(stopped.output)
    before, done = lost.read_bytes(), ledger_of(stopped.output)
    lost.unlink()
    if not has_segments:
        shutil.rmtree(stopped.output / "_tokenization" / "ledger" / "0" / "segments", ignore_errors=True)

    result = stopped.tokjob(*FINISH)

    assert_told(result, 0)
    assert lost.read_bytes() == before
    assert ledger_of(stopped.output) == done  # no receipt and no shard is another one
    assert_right(stopped)
    assert len(read_table(stopped.output, QUARANTINE)) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-9],
        lambda data: bytes([*data[:40], data[40] ^ 8, *data[41:]]),
        lambda data: zstd.compress(b'{"file":7}\n'),
    ],
    ids=["cut", "other", "of another job"],
)
def test_changed_quarantine_list_is_written_again_with_a_warning(
    change: Callable[[bytes], bytes], stopped: Bench
) -> None:
    [changed] = quarantine_lists(stopped.output)
    before = changed.read_bytes()
    changed.write_bytes(change(before))
    done = ledger_of(stopped.output)
    result = stopped.tokjob(*FINISH)
    assert_told(result, 0)
    assert f"{changed}, the list of unusable documents of range 0, is corrupt: " in result.out
    assert changed.read_bytes() == before
    assert ledger_of(stopped.output) == done  # no receipt and no shard is another one
    assert_right(stopped)
    assert len(read_table(stopped.output, QUARANTINE)) == 1


class ListingStore(LocalStore):
    """Notes what was listed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.listed: list[str] = []

    def list(self, prefix: str = "") -> Iterator[Entry]:
        self.listed += [entry.path for entry in super().list(prefix)]
        return super().list(prefix)


def test_shards_without_a_folder_are_looked_for_without_a_walk_of_all_that_is_ours(bench: Bench) -> None:
    bench.run(("shards:", 'path: "{split}_{index:04d}", splits: [{name: a, shards: 2}, {name: b}], shards:'))
    plan = read_plan(store := ListingStore(bench.output))
    assert plan is not None
    receipts = read_tokenize_ledger(store, plan, 0).shards.values()
    store.listed.clear()
    assert find_changed_shards(store, receipts) == []
    assert sorted(store.listed) == sorted(shards_of(bench.output))


def test_changed_shard_is_written_again_although_its_segment_is_torn(stopped: Bench) -> None:
    """Then the build fails first, and the receipt of the shard as it was must not be taken for its repair."""
    (stopped.output / sorted(shards_of(stopped.output))[0]).unlink()
    segments = stopped.output / "_tokenization" / "ledger" / "0" / "segments"
    segments.mkdir(exist_ok=True)
    (segments / "00000000").write_bytes(b"torn")
    assert stopped.tokjob(*FINISH).code == 0
    assert_right(stopped)


# --- the limits


def write_truncated(bench: Bench) -> Path:
    """b.jsonl.zst in place of b.jsonl, cut in its last frame: most of its documents could be read."""
    (bench.source / "b.jsonl").unlink()
    data = zstd_frames(json_lines(bench.texts.pop("b.jsonl")), frames=4)
    return bench.write("src/b.jsonl.zst", data[:-50])


def test_truncated_zst_stops_the_run_and_a_raised_limit_drops_it_whole(bench: Bench) -> None:
    damaged = write_truncated(bench)

    result = bench.tokjob("run", "job.yaml")

    assert_told(
        result,
        4,
        f"CorruptFile: {damaged}: ",
        ", near stored byte ",
        "1 of 3 files corrupt; maxCorruptFiles allows 0",
        "replace the file and start a new run; or raise maxCorruptFiles",
    )
    assert not (bench.output / "index.json").exists()
    assert bench.tokjob("status", "out").out.startswith("Failed ")
    assert bench.tokjob("run", "job.yaml").code == 4  # and again, from its verdict alone
    done = ledger_of(bench.output)

    again = bench.tokjob("run", "job.yaml", "--maxCorruptFiles", "1")

    assert again.code == 0
    assert "1 corrupt file left out" in again.out
    assert "3 files read, 1 of them corrupt and left out" in bench.tokjob("verify", "out").out
    assert done.items() <= ledger_of(bench.output).items()
    assert_right(bench)
    bench.run(("uri: out", f"uri: {bench.folder}/fresh"), more="  maxCorruptFiles: 1\n")
    assert dataset_of(bench.folder / "fresh") == dataset_of(bench.output)
    assert [(row["outcome"], row["read"]) for row in read_table(bench.output, "_tokenization/files.jsonl.zst")] == [
        ("Read", 40),
        ("CorruptFile", None),
        ("Read", 40),
    ]
    assert read_index(bench.output)["conservation"]["files"] == {"Read": 2, "CorruptFile": 1}


def test_too_many_unusable_documents_stop_the_run_and_a_raised_limit_redoes_nothing(bench: Bench) -> None:
    bad = b'{"text": 1}\n' * 3 + b"not JSON\n" * 2 + b"[1]\n"
    (bench.source / "b.jsonl").write_bytes(bad + (bench.source / "b.jsonl").read_bytes())

    result = bench.tokjob("run", "job.yaml", "--maxQuarantined", "4%")

    assert_told(
        result,
        4,
        "QuarantineExceeded: 6 of 126 documents are unusable (WrongTextType 3, InvalidJson 2, NotAnObject 1)",
        f"maxQuarantined allows 5; the first: {bench.source}/b.jsonl record 1, WrongTextType: ",
        "raise maxQuarantined and start again (no work is repeated), or correct the source and start a new run: write "
        "elsewhere or `tokjob clean` this output",
    )
    lists = list((bench.output / "_tokenization" / "ledger" / "0" / "quarantine").iterdir())
    assert sum(len(zstd.decompress(path.read_bytes()).splitlines()) for path in lists) == 6
    assert bench.tokjob("status", "out").out.startswith("Failed ")
    done = ledger_of(bench.output)

    again = bench.tokjob("run", "job.yaml", "--maxQuarantined", "5%")

    assert again.code == 0
    assert "126 read = 120 written + 6 quarantined" in again.out
    assert "(6, limit 6)" in again.out
    assert ledger_of(bench.output) == done
    assert_right(bench)
    rows = read_table(bench.output, "_tokenization/quarantine.jsonl.zst")
    assert [(row["record"], row["reason"]) for row in rows] == [
        *((line, "WrongTextType") for line in (1, 2, 3)),
        *((line, "InvalidJson") for line in (4, 5)),
        (6, "NotAnObject"),
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "0 read, 0 unusable"),
        (b" \n\r\n", "0 read, 0 unusable"),
        (b'{"text": 1}\nnot JSON\n', "2 read, 2 unusable (InvalidJson 1, WrongTextType 1; listed in"),
    ],
    ids=["no-bytes", "blank-lines", "all-unusable"],
)
def test_no_documents_are_an_error(content: bytes, words: str, bench: Bench) -> None:
    for name in "abc":
        (bench.source / f"{name}.jsonl").unlink()
    bench.write("src/only.jsonl", content)
    result = bench.tokjob("run", "job.yaml", "--maxQuarantined", "100%")
    assert_told(result, 4, "NoDocuments: no document was written:", words, "check source.uris and source.textField")
    assert not (bench.output / "index.json").exists()
    assert ("of 0 bytes, which hold no document, the first: " in result.out) is (not content)


# --- the same job again


def test_complete_run_is_found_without_looking_at_the_source(bench: Bench) -> None:
    bench.run()
    before = ledger_of(bench.output)
    shutil.rmtree(bench.source)
    result = bench.tokjob("run", "job.yaml")
    assert result.code == 0
    assert result.out.startswith("complete   120 read = 120 written + 0 quarantined")
    assert "nothing to do: this run was finished before" in result.out
    assert ledger_of(bench.output) == before


def rerun_files(output: Path) -> set[str]:
    return {path.name for path in (output / "_tokenization" / "reruns").glob("*")}


def key_of(bench: Bench, token: str) -> str:
    """The runKey of the bench's job with a rerunToken."""
    before = Path.cwd()
    os.chdir(bench.folder)
    try:
        job = TokenizationJob.from_yaml((bench.folder / "job.yaml").read_text() + f'  rerunToken: "{token}"\n')
        return run_key(job)
    finally:
        os.chdir(before)


def test_new_token_on_the_same_output_proves_it_and_mends_what_is_damaged(bench: Bench) -> None:
    bench.run(more='  rerunToken: "1"\n')
    whole, index = shards_of(bench.output), (bench.output / "index.json").read_bytes()
    assert rerun_files(bench.output) == set()

    assert bench.tokjob("run", "job.yaml", "--rerunToken", "2").code == 0
    assert rerun_files(bench.output) == {f"{key_of(bench, '2')}.json"}

    names = sorted(whole)
    sidecars = sorted((bench.output / "_tokenization" / "documents").rglob("0*"))
    before = {path: path.read_bytes() for path in sidecars}
    sidecars[2].write_bytes(before[sidecars[2]][:-1] + b"!")
    damaged = bytearray(whole[names[1]])
    damaged[-5] ^= 1
    (bench.output / names[1]).write_bytes(damaged)
    (bench.output / names[3]).unlink()
    (bench.output / names[4]).write_bytes(whole[names[4]][:-2])
    result = bench.tokjob("run", "job.yaml", "--rerunToken", "3")

    assert result.code == 0
    assert "4 mismatched or missing shards written again" in result.out
    assert shards_of(bench.output) == whole
    assert {path: path.read_bytes() for path in sidecars} == before
    assert (bench.output / "index.json").read_bytes() == index
    assert rerun_files(bench.output) == {f"{key_of(bench, token)}.json" for token in "23"}
    shutil.rmtree(bench.source)
    for token in "123":  # each is proven now, also an earlier one that comes back
        assert bench.run(more=f'  rerunToken: "{token}"\n').already


@pytest.mark.parametrize(
    "damaged",
    ["", "train/train_000001.npy", "_tokenization/documents/train/00000002"],
    ids=["none", "shard", "sidecar"],
)
def test_moved_dataset_is_proved_and_mended(damaged: str, bench: Bench) -> None:
    bench.run()
    moved = move_dataset(bench.output, bench.folder / "moved")
    if damaged:
        (moved / damaged).unlink()
    result = bench.tokjob("run", "job.yaml", "--output", "moved", "--rerunToken", "2")
    assert result.code == 0, result.err
    assert ("1 mismatched or missing shard written again" in result.out) == bool(damaged)
    assert dataset_of(moved) == dataset_of(bench.output)
    assert leftovers(moved) == [f"_tokenization/reruns/{name}" for name in rerun_files(moved)]
    assert bench.tokjob("verify", "moved", "--full").code == 0
    assert bench.tokjob("run", "job.yaml", "--output", "moved", "--rerunToken", "2").out.startswith("complete ")


def test_moved_dataset_is_not_mended_with_an_engine_that_was_voided_when_it_was_made(bench: Bench) -> None:
    changes = ("{name: bytes}", "{name: gpt2}"), ("{tokens: 12000}", "{tokens: 3000}")
    bench.run(*changes)
    moved = move_dataset(bench.output, bench.folder / "moved")
    index = read_index(moved)
    index["run"]["epochs"] = [{"epoch": 1, "engine": "reference", "voids": {"epoch": 0, "engine": "fastokens"}}]
    write_index(moved, index)
    (moved / "train" / "train_000001.npy").unlink()
    job = make_job(bench.source, moved, tokenizer={"name": "gpt2"}, output={"shards": {"tokens": 3000}})
    assert run_job(job, options=Options(engine="fastokens"), executor=inline()).rebuilt == 1
    assert json.loads((moved / "_tokenization" / "epochs" / "0000.json").read_bytes())["engine"] == "tiktoken"


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ["shards.jsonl.zst", "_tokenization/files.jsonl.zst", QUARANTINE])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: None, "TableMissing"),
        (lambda data: data[: len(data) // 2], "TableCorrupt"),
        (lambda data: zstd.compress(zstd.decompress(data)[:-20]), "TableCorrupt"),
        (lambda data: zstd.compress(b""), "TableCorrupt"),
    ],
    ids=["gone", "cut", "last row cut", "without rows"],
)
def test_new_token_does_not_prove_a_dataset_without_its_tables(
    name: str, damage: Callable[[bytes], bytes | None], reason: str, bench: Bench
) -> None:
    bench.write("src/b.jsonl", json_lines(bench.texts["b.jsonl"]) + b"not JSON\n")
    bench.run(more='  rerunToken: "1"\n' + MORE)
    table = bench.output / name
    left = damage(table.read_bytes())
    table.unlink() if left is None else table.write_bytes(left)

    result = bench.tokjob("run", "job.yaml", "--rerunToken", "2", "--maxQuarantined", "1")

    assert_told(result, 4, f"{reason}: {table}", "next: restore it from a copy, or delete index.json")
    assert rerun_files(bench.output) == set()


@pytest.mark.parametrize(
    ("name", "field"),
    [("shards.jsonl.zst", "crc32c"), (QUARANTINE, "detail"), ("_tokenization/files.jsonl.zst", "version")],
)
def test_new_token_does_not_prove_a_dataset_of_which_a_table_was_changed(name: str, field: str, bench: Bench) -> None:
    bench.write("src/b.jsonl", json_lines(bench.texts["b.jsonl"]) + b"not JSON\n")
    bench.run(more='  rerunToken: "1"\n' + MORE)
    table = bench.output / name
    rows = [json.loads(line) for line in zstd.decompress(table.read_bytes()).splitlines()]
    rows[0][field] = "00000000"
    table.write_bytes(zstd.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))

    result = bench.tokjob("run", "job.yaml", "--rerunToken", "2", "--maxQuarantined", "1")

    assert_told(result, 4, f"TableCorrupt: {table}", "next: restore it from a copy, or delete index.json")
    assert rerun_files(bench.output) == set()


def test_new_token_does_not_prove_a_dataset_whose_mended_shard_came_out_otherwise(bench: Bench) -> None:
    bench.run()
    moved = move_dataset(bench.output, bench.folder / "moved")
    (moved / "train/train_000000.npy").unlink()
    source = bench.source / "a.jsonl"
    status, data = source.stat(), source.read_bytes()
    source.write_bytes(data.replace(b"a0 Stra", b"a0 Gras", 1))
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))

    result = bench.tokjob("run", "job.yaml", "--output", "moved", "--rerunToken", "2")

    assert "NotDeterministic:" in result.err
    assert "shard 0 of split train was written again and differs from shards.jsonl.zst" in result.err
    assert result.code == 1
    assert not (moved / "train/train_000000.npy").exists()
    assert rerun_files(moved) == set()


def test_new_token_after_the_source_has_changed_is_a_conflict(bench: Bench) -> None:
    bench.run(more='  rerunToken: "1"\n')
    bench.write("src/d.jsonl", json_lines(["new"]))
    before = bench.files()
    result = bench.tokjob("run", "job.yaml", "--rerunToken", "2")
    assert_told(result, 3, "OutputConflict:", "of other data: the source", "another output.uri")
    assert bench.files() == before


def test_token_in_the_output_makes_a_dataset_of_its_own_and_lists_the_source_again(bench: Bench) -> None:
    command = ["run", "job.yaml", "--output", "sets/{rerunToken}", "--rerunToken"]
    assert bench.tokjob(*command, "1").code == 0
    bench.write("src/d.jsonl", json_lines(["new"]))
    assert bench.tokjob(*command, "1").out.startswith("complete ")
    assert bench.tokjob(*command, "2").code == 0
    assert shards_of(bench.folder / "sets" / "1") == byte_shards(bench.documents)
    assert shards_of(bench.folder / "sets" / "2") == byte_shards([*bench.documents, "new"])


def only_texts(bench: Bench, *texts: str) -> None:
    for path in bench.source.iterdir():
        path.unlink()
    (bench.source / "a.jsonl").write_bytes(json_lines(texts))


def test_texts_without_tokens_are_no_documents_and_not_a_matter_of_splits(bench: Bench) -> None:
    only_texts(bench, "")
    result = bench.tokjob("run", "job.yaml", "--tokenizer.delimiter.position", "None")
    assert_told(
        result,
        4,
        "NoDocuments: no token was written: every document is an empty text",
        "tokenizer.delimiter.position: Before",
    )


def test_texts_that_are_all_too_large_are_told_the_limit(bench: Bench) -> None:
    only_texts(bench, "x" * 5000, "y" * 5000)
    limits = ["--documents.maxBytes", "1Ki", "--maxQuarantined", "100%"]
    result = bench.tokjob("run", "job.yaml", *limits)
    assert_told(
        result, 4, "NoDocuments: no document was written", "every text is larger than documents.maxBytes: raise it"
    )
    assert bench.tokjob("clean", "out").code == 0
    assert bench.tokjob("run", "job.yaml", "--documents.maxBytes", "1Mi").code == 0
