"""Local folders as a store: the contract, scratch of the dead and the living, and errors of the disk."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from support.permissions import open_folder, without_root
from support.stores.storage_contract import StoreContract, paths, put, race
from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.inspect.clean import clean_output
from tokenization_worker.storage.base import PreconditionFailed, Store
from tokenization_worker.storage.local.scratch import SCRATCH, has_live_writers, remove_dead_scratch
from tokenization_worker.storage.local.store import LocalStore
from tokenization_worker.storage.open import open_store

WRITER = """
import os, sys
from pathlib import Path
from tokenization_worker.storage.local.store import LocalStore

store = LocalStore(Path(sys.argv[1]))
with store.upload("half") as upload:
    upload.write(b"half of it")
    print("writing", flush=True)
    sys.stdin.readline()
    upload.commit()
store.close_scratch()
"""

FORKING_WRITER = """
import os, sys
from pathlib import Path
from tokenization_worker.storage.local.store import LocalStore

store = LocalStore(Path(sys.argv[1]))
upload = store.upload("parent")
ready, tell = os.pipe()
if os.fork() == 0:
    with store.upload("child") as own:
        own.write(b"x")
        os.write(tell, b"!")
        sys.stdin.readline()
        own.commit()
    print("committed", flush=True)
    os._exit(0)
os.read(ready, 1)
print("writing", flush=True)
os.wait()
"""


class TestLocalStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return open_store(str(tmp_path / "deep" / "out"))


def test_relative_path_means_the_folder_the_process_is_in_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert open_store("out").uri == str(tmp_path / name / "out")
        assert open_store("out") is open_store(f"file://{tmp_path / name}/out")


def scratch_folders(root: Path) -> list[Path]:
    return [path for path in (root / "_tokenization" / "tmp").glob("*") if path.is_dir()]


@contextmanager
def writing_process(root: Path, program: str = WRITER) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of an upload."""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        try:
            yield process
        finally:
            process.kill()


def test_scratch_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    with writing_process(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert len(scratch_folders(tmp_path)) == 1
    store = LocalStore(tmp_path)
    assert paths(store) == []
    assert not has_live_writers(tmp_path)
    store.close_scratch()
    assert not (tmp_path / "_tokenization" / "tmp").exists()


def test_scratch_of_a_live_process_is_kept_and_its_upload_succeeds(tmp_path: Path) -> None:
    with writing_process(tmp_path) as process:
        LocalStore(tmp_path).close_scratch()
        assert has_live_writers(tmp_path)
        assert len(scratch_folders(tmp_path)) == 1
        process.communicate("go on\n", timeout=120)
        assert process.returncode == 0
    assert LocalStore(tmp_path).read("half") == b"half of it"
    assert not (tmp_path / "_tokenization" / "tmp").exists()


@pytest.mark.parametrize("looker", ["status", "run that ends"])
def test_who_looks_at_a_dead_lock_does_not_seem_to_be_its_owner(
    looker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / SCRATCH
    (scratch / "host-1-0").mkdir(parents=True)
    (scratch / "host-1-0.lock").touch()
    take_lock = fcntl.flock

    def take_lock_while_others_look(fd: int, kind: int) -> None:
        monkeypatch.undo()
        take_lock(fd, kind)
        assert not has_live_writers(tmp_path)
        remove_dead_scratch(tmp_path)
        assert not scratch.exists()

    monkeypatch.setattr(fcntl, "flock", take_lock_while_others_look)
    if looker == "status":
        assert not has_live_writers(tmp_path)
    else:
        remove_dead_scratch(tmp_path)
    assert not scratch.exists()


def test_a_writer_starts_while_others_remove_empty_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `plan` does after its probe of the output."""
    make_folder, removals = os.mkdir, count()

    def make_folder_late(path: Path, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        if path == "tmp" and next(removals) < 20:
            with suppress(OSError):
                (tmp_path / SCRATCH).parent.rmdir()
        make_folder(path, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", make_folder_late)
    put(LocalStore(tmp_path), "a", b"x")
    assert next(removals) > 20


def test_a_writer_whose_folder_cannot_be_made_lets_its_lock_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda size: "taken")
    folder = tmp_path / SCRATCH / f"{socket.gethostname()}-{os.getpid()}-taken"
    folder.mkdir(parents=True)
    with pytest.raises(SpecError, match="File exists"):
        put(LocalStore(tmp_path), "a", b"x")
    assert not has_live_writers(tmp_path)
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize("removals", [3, 10**9], ids=["then-stays", "for-ever"])
def test_a_lock_file_that_is_removed_before_it_is_locked_guards_nothing(
    removals: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_lock, attempts = fcntl.flock, count(1)

    def take_lock_late(fd: int, kind: int) -> None:
        attempt = next(attempts)
        assert attempt < 100_000
        if attempt <= removals:
            for path in (tmp_path / SCRATCH).iterdir():
                path.unlink()
        take_lock(fd, kind)

    monkeypatch.setattr(fcntl, "flock", take_lock_late)
    if removals < 100:
        put(LocalStore(tmp_path), "a", b"x")
        assert has_live_writers(tmp_path)
    else:
        with pytest.raises(SpecError, match="tokjob cannot create a folder there"):
            put(LocalStore(tmp_path), "a", b"x")


def race_cleaners(root: Path, cleaners: int, work: Callable[[], None]) -> None:
    """Run `work` while so many other runs clean up below `root`, again and again."""
    is_done = threading.Event()

    def clean_up() -> None:
        while not is_done.is_set():
            LocalStore(root).close_scratch()

    def work_to_the_end() -> None:
        try:
            work()
        finally:
            is_done.set()

    assert race([*[clean_up] * cleaners, work_to_the_end]) == cleaners + 1


def test_files_are_discarded_while_another_run_cleans_up(tmp_path: Path) -> None:
    """The folder that takes discarded files comes and goes all the time."""

    def discard_many() -> None:
        store = LocalStore(tmp_path)
        for number in range(300):
            put(store, f"{number}", b"x")
            store.discard(f"{number}")

    race_cleaners(tmp_path, 1, discard_many)
    assert paths(LocalStore(tmp_path)) == []


def test_files_of_another_process_are_discarded_while_two_runs_clean_up(tmp_path: Path) -> None:
    """As the driver does, which has no scratch of its own: nothing keeps any of the folders."""
    names = [f"{number}" for number in range(2000)]
    for name in names:
        (tmp_path / name).write_bytes(b"x")

    def discard_many() -> None:
        store = LocalStore(tmp_path)
        for name in names:
            store.discard(name)

    race_cleaners(tmp_path, 2, discard_many)
    assert paths(LocalStore(tmp_path)) == []


def test_scratch_that_goes_while_it_is_listed_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list_folder = os.listdir

    def list_too_late(folder: int) -> object:
        with suppress(FileNotFoundError):
            (tmp_path / SCRATCH).rmdir()
        return list_folder(folder)

    monkeypatch.setattr(os, "listdir", list_too_late)
    (tmp_path / SCRATCH).mkdir(parents=True)
    assert not has_live_writers(tmp_path)
    (tmp_path / SCRATCH).mkdir()
    remove_dead_scratch(tmp_path)


def test_a_forked_child_does_not_keep_its_killed_parents_scratch_alive(tmp_path: Path) -> None:
    with writing_process(tmp_path, FORKING_WRITER) as process:
        assert len(scratch_folders(tmp_path)) == 2
        process.send_signal(signal.SIGKILL)
        process.wait()
        LocalStore(tmp_path).close_scratch()
        assert len(scratch_folders(tmp_path)) == 1
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert process.stdout.readline() == "committed\n"
    assert LocalStore(tmp_path).read("child") == b"x"


def test_threads_of_one_process_share_one_scratch_folder(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert race([lambda n=n: put(store, f"{n}", b"x") for n in range(16)]) == 16  # type: ignore[misc]
    assert len(scratch_folders(tmp_path)) == 1
    store.close_scratch()
    assert scratch_folders(tmp_path) == []


def test_a_replacing_writer_waits_for_another_and_sees_what_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    version = put(store, "a", b"before").version
    take_lock = fcntl.flock
    folder = os.open(tmp_path, os.O_RDONLY)
    take_lock(folder, fcntl.LOCK_EX)
    asks, is_free = threading.Event(), threading.Event()

    def take_lock_of_the_folder(fd: int, kind: int) -> None:
        asks.set()
        take_lock(fd, kind)
        assert is_free.is_set()

    monkeypatch.setattr(fcntl, "flock", take_lock_of_the_folder)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(put, store, "a", b"late", version)
        assert asks.wait(timeout=120)
        (tmp_path / "a").write_bytes(b"another version")
        is_free.set()
        os.close(folder)
        with pytest.raises(PreconditionFailed):
            late.result()
    assert store.read("a") == b"another version"


def test_a_retracted_upload_that_was_replaced_meanwhile_stays(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with store.upload("a") as upload:
        upload.write(b"mine")
        newer = put(store, "a", b"mine", upload.commit().version)
        upload.retract()
    assert store.stat("a") == newer


@pytest.fixture
def on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is forced to the disk (`sync NAME`, "file" for a file without its name) and what gets a name, in order."""
    calls: list[str] = []
    sync = os.fsync

    def record_sync(fd: int) -> None:
        sync(fd)
        folders = [tmp_path, *(path for path in tmp_path.rglob("*") if path.is_dir())]
        names = [str(path.relative_to(tmp_path)) for path in folders if path.stat().st_ino == os.fstat(fd).st_ino]
        calls.append(f"sync {names[0] if names else 'file'}")

    def recorded(name: str) -> Callable[..., None]:
        call = getattr(os, name)

        def record(source: str, target: str, *, dst_dir_fd: int, **how: object) -> None:
            folder = os.fstat(dst_dir_fd).st_ino
            (path,) = (path for path in [tmp_path, *tmp_path.rglob("*")] if path.stat().st_ino == folder)
            calls.append(f"{name} {(path / target).relative_to(tmp_path)}")
            call(source, target, dst_dir_fd=dst_dir_fd, **how)

        return record

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "link", recorded("link"))
    monkeypatch.setattr(os, "rename", recorded("rename"))
    return calls


def test_what_a_commit_makes_is_on_the_disk_in_the_order_that_a_power_failure_needs(
    tmp_path: Path, on_disk: list[str]
) -> None:
    """The file before its name, and every folder that holds a new name before the commit returns."""
    store = LocalStore(tmp_path / "deep" / "out")
    with store.upload("a/b/c") as upload:
        assert on_disk == ["sync .", "sync deep", "sync deep/out", "sync deep/out/_tokenization"]
        on_disk.clear()
        version = upload.commit().version
    assert on_disk == ["sync file", "sync deep/out", "sync deep/out/a", "link deep/out/a/b/c", "sync deep/out/a/b"]
    on_disk.clear()
    put(store, "a/b/c", b"new", version)
    assert on_disk == ["sync file", "rename deep/out/a/b/c", "sync deep/out/a/b"]


@pytest.mark.parametrize("expect", ["", "another version"], ids=["create", "replace"])
def test_a_name_that_is_taken_is_on_the_disk_before_its_finder_relies_on_it(
    expect: str, tmp_path: Path, on_disk: list[str]
) -> None:
    """Its writer may have been killed between the two."""
    store = LocalStore(tmp_path)
    put(store, "a", b"first")
    on_disk.clear()
    with pytest.raises(PreconditionFailed):
        put(store, "a", b"second", expect)
    assert on_disk[-1] == "sync ."


def test_scratch_is_not_synced_and_the_folders_made_for_it_are(tmp_path: Path, on_disk: list[str]) -> None:
    store = LocalStore(tmp_path)
    for name in ("a/1", "a/2"):
        with store.upload(name, durable=False) as upload:
            upload.write(b"x")
            upload.commit()
    assert on_disk == ["sync .", "sync _tokenization", "sync .", "link a/1", "link a/2"]
    on_disk.clear()
    with pytest.raises(PreconditionFailed), store.upload("a/1", durable=False) as upload:
        upload.commit()
    assert on_disk == ["link a/1"]


def test_an_output_can_be_made_where_nothing_may_be_listed() -> None:
    with open_folder() as folder:
        folder.chmod(0o333)
        with without_root():
            put(LocalStore(folder / "out"), "a", b"x")
        folder.chmod(0o755)
        assert (folder / "out" / "a").read_bytes() == b"x"


def test_local_path_is_where_the_object_is(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    put(store, "a/b", b"x")
    path = store.local_path("a/b")
    assert path is not None and path.read_bytes() == b"x"


def test_free_bytes_are_known_before_the_folder_exists(tmp_path: Path) -> None:
    free = LocalStore(tmp_path / "not" / "yet").free_bytes()
    assert free is not None and free > 0
    assert not (tmp_path / "not").exists()


def test_links_to_folders_are_not_objects(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_bytes(b"x")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "link").symlink_to(tmp_path / "elsewhere")
    assert paths(LocalStore(tmp_path / "out")) == []


@contextmanager
def mounted_tmpfs(folder: Path, options: str) -> Iterator[Path]:
    """A file system of its own, small or read-only, which binds root too; skips where mounting is not allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_says_so_and_leaves_the_committed_whole(tmp_path: Path) -> None:
    with mounted_tmpfs(tmp_path / "small", "size=1m") as folder:
        store = LocalStore(folder)
        put(store, "first", b"x" * 400_000)
        with pytest.raises(TemporaryError, match="No space left") as raised, store.upload("second") as upload:
            for _ in range(8):
                upload.write(b"y" * 200_000)
            upload.commit()
        assert raised.value.reason == "OutputFull"
        assert str(folder / "second") in raised.value.message
        assert paths(store) == ["first"]
        assert store.read("first") == b"x" * 400_000
        put(store, "third", b"z" * 400_000)  # the room is free again


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [(None, TemporaryError), (PreconditionFailed, PreconditionFailed)],
    ids=["none", "lost-race"],
)
def test_an_error_at_close_is_told_unless_another_came_first(
    earlier: type[Exception] | None, expected: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = os.close

    def close_badly(fd: int) -> None:
        close(fd)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    store = LocalStore(tmp_path)
    with pytest.raises(expected) as raised, store.upload("a") as upload:
        upload.write(b"x")
        monkeypatch.setattr(os, "close", close_badly)
        if earlier is not None:
            raise earlier("a")
    monkeypatch.undo()
    assert earlier is not None or str(tmp_path / "a") in str(raised.value)
    assert [list(folder.iterdir()) for folder in scratch_folders(tmp_path)] == [[]]


def test_what_is_not_there_is_deleted_also_on_a_read_only_file_system(tmp_path: Path) -> None:
    with mounted_tmpfs(tmp_path / "fixed", "size=1m") as folder:
        store = LocalStore(folder)
        put(store, "a", b"x")
        store.close_scratch()
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        store.delete("absent")
        with pytest.raises(SpecError, match="Read-only file system"):
            store.delete("a")


def test_a_read_only_file_system_is_named(tmp_path: Path) -> None:
    with mounted_tmpfs(tmp_path / "fixed", "ro,size=1m") as folder:
        with pytest.raises(SpecError, match="Read-only file system") as raised:
            put(LocalStore(folder / "out"), "a", b"x")
        assert raised.value.reason == "OutputNotWritable"
        assert str(folder / "out") in raised.value.message


def test_a_folder_without_write_permission_is_named() -> None:
    with open_folder() as folder:
        folder.chmod(0o555)
        with without_root(), pytest.raises(SpecError, match="Permission denied") as raised:
            put(LocalStore(folder / "out"), "a", b"x")
        assert raised.value.reason == "OutputNotWritable"
        assert str(folder / "out") in raised.value.message


def test_a_place_that_may_not_be_read_is_named() -> None:
    with open_folder() as folder:
        store = LocalStore(folder / "out")
        put(store, "deep/a", b"x")
        for closed, attempt in (
            ("deep/a", lambda: store.read("deep/a")),
            ("deep", lambda: list(store.list())),
            ("deep", lambda: store.stat("deep/a")),
        ):
            (folder / "out" / closed).chmod(0)
            with without_root(), pytest.raises(SpecError, match=r"Permission denied as user \d+") as raised:
                attempt()
            (folder / "out" / closed).chmod(0o755)
            assert raised.value.reason == "OutputNotReadable"
            assert str(folder / "out" / closed) in raised.value.message


def test_lost_and_found_of_a_volume_is_left_out() -> None:
    with open_folder() as folder:
        store = LocalStore(folder)
        put(store, "a", b"x")
        (folder / "lost+found").mkdir(mode=0)
        with without_root():
            assert [entry.path for entry in store.list()] == ["a"]
        (folder / "lost+found").chmod(0o755)


@pytest.mark.parametrize("closed", ["", "host-1-0.lock"], ids=["folder", "lock"])
def test_scratch_that_may_not_be_looked_at_is_named(closed: str) -> None:
    with open_folder() as folder:
        scratch = folder / "out" / SCRATCH
        scratch.mkdir(parents=True)
        (scratch / "host-1-0.lock").touch()
        (scratch / closed).chmod(0)
        with without_root(), pytest.raises(SpecError, match=r"Permission denied as user \d+") as raised:
            clean_output(str(folder / "out"), dry_run=True)
        (scratch / closed).chmod(0o755)
    assert raised.value.reason == "OutputNotReadable"
    assert str(scratch) in raised.value.message


def test_a_circle_of_links_is_no_place_and_no_retry_helps(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "out")
    store = LocalStore(tmp_path / "out")
    for attempt in (lambda: store.read("a"), lambda: store.stat("a"), lambda: put(store, "a", b"x")):
        with pytest.raises(SpecError, match="is a link that leads back to itself"):
            attempt()


@pytest.mark.parametrize("what", ["link to nothing", "folder"])
def test_a_name_that_no_object_can_have_is_named(tmp_path: Path, what: str) -> None:
    if what == "folder":
        (tmp_path / "a").mkdir()
    else:
        (tmp_path / "a").symlink_to(tmp_path / "nowhere")
    with pytest.raises(SpecError) as caught:
        put(LocalStore(tmp_path), "a", b"x")
    assert caught.value.reason == "OutputNotWritable"
    assert f"{tmp_path}/a: it is a {what.split()[0]}" in str(caught.value)


@pytest.mark.parametrize("root", ["link", "link/below"])
def test_a_link_to_nothing_is_named(tmp_path: Path, root: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(SpecError) as caught:
        put(LocalStore(tmp_path / root), "a", b"x")
    assert caught.value.reason == "OutputNotWritable"
    assert f"{tmp_path}/link is a link to {tmp_path}/nowhere" in str(caught.value)


@pytest.mark.parametrize(
    ("root", "path"), [("file", "a"), ("file/below", "a"), (".", "file/a")], ids=["root", "above-root", "in-path"]
)
def test_a_file_where_a_folder_must_be_is_named(tmp_path: Path, root: str, path: str) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(SpecError) as raised:
        put(LocalStore(tmp_path / root), path, b"x")
    assert raised.value.reason == "OutputNotWritable"
    assert (tmp_path / "file").read_bytes() == b"x"


@pytest.mark.parametrize(
    "number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS], ids=lambda number: os.strerror(number)
)
def test_file_system_without_hard_links_is_named_with_a_way_out(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str, **how: object) -> None:
        raise OSError(number, os.strerror(number), source, None, target)

    monkeypatch.setattr(os, "link", refuse)
    store = LocalStore(tmp_path)
    with pytest.raises(SpecError, match=r"(?s)does not support hard links.*gs:// URI rather than a mounted bucket"):
        put(store, "new", b"x")
    store.close_scratch()
    assert list(tmp_path.rglob("*")) == [tmp_path / "_tokenization"]


@pytest.mark.parametrize("call", ["link", "rename"])
def test_a_folder_of_the_output_on_another_file_system_is_named_with_a_way_out(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str, **how: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source, None, target)

    store = LocalStore(tmp_path)
    version = put(store, "train/old", b"x").version
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(SpecError, match=r"(?s)is on another file system.*make output\.uri a folder there") as raised:
        put(store, *(("train/new", b"x") if call == "link" else ("train/old", b"y", version)))
    assert raised.value.reason == "OutputNotWritable"
    assert f"{tmp_path}/train/" in raised.value.message
