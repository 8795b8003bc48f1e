"""What else may stand at an output: links, pipes, sockets, files of others. None of it is followed, waited for, written
to or deleted; every command names it and ends.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command_line import Bench, assert_told
from support.permissions import open_folder, without_root
from support.runs import TOKJOB
from support.stores.storage_contract import paths, put
from tokenization_worker.dataset.dataset import open_dataset
from tokenization_worker.errors import ChangedError, SpecError
from tokenization_worker.inspect.clean import clean_output
from tokenization_worker.inspect.status import read_status
from tokenization_worker.output import layout
from tokenization_worker.storage.local.scratch import SCRATCH, has_live_writers
from tokenization_worker.storage.local.store import LocalStore
from tokenization_worker.verification.verify import verify

OWN = layout.OWN.rstrip("/")
LINKED = {
    "all": OWN,
    "ledger": f"{OWN}/ledger",
    "segments": f"{OWN}/ledger/0/segments",
    "receipts": f"{OWN}/ledger/0/ranges",
    "epochs": f"{OWN}/epochs",
    "scratch": SCRATCH,
    "spare": f"{SCRATCH}/spare",
}
CHANGING = {
    "run": ["run", "job.yaml", "--maxQuarantined", "3", "--processes", "1"],
    "clean": ["clean", "out"],
}
LOOKING = {"status": ["status", "out"], "plan": ["plan", "job.yaml"]}
READING = {"verify": ["verify", "out"], "show": ["show", "out", "--token", "0"]}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def put_link(bench: Bench, path: str) -> dict[str, bytes]:
    """Let a link to a shared folder stand where a folder of ours is; returns what is in that folder."""
    shared = bench.folder / "shared"
    place = bench.output / path
    if place.is_dir():
        place.rename(shared)
    else:
        shared.mkdir()
        place.parent.mkdir(parents=True, exist_ok=True)
    for name in ("thesis.txt", "00000000", "host-1-0.lock", "host-1-0/thesis.txt"):
        (shared / name).parent.mkdir(exist_ok=True)
        if not (shared / name).exists():
            (shared / name).write_bytes(b"foreign\n" * 1000)
    place.symlink_to(shared)
    return contents(shared)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", CHANGING)
@pytest.mark.parametrize("place", LINKED)
def test_a_linked_folder_below_ours_is_refused_and_its_target_stays(place: str, command: str, bench: Bench) -> None:
    bench.stop()
    foreign = put_link(bench, LINKED[place])
    assert_told(
        bench.tokjob(*CHANGING[command]), 2, "OutputUnsafe", f"{bench.output / LINKED[place]} is a link", "output.uri"
    )
    assert contents(bench.folder / "shared") == foreign
    assert (bench.output / LINKED[place]).is_symlink()


@pytest.mark.parametrize("command", LOOKING)
@pytest.mark.parametrize("place", ["all", "ledger", "epochs"])
def test_who_only_looks_follows_no_link_either(place: str, command: str, bench: Bench) -> None:
    bench.stop()
    if command == "plan":
        place = "all"  # it does not look deeper
    put_link(bench, LINKED[place])
    assert_told(bench.tokjob(*LOOKING[command]), 2, "OutputUnsafe", f"{bench.output / LINKED[place]} is a link")


def link_plan(bench: Bench) -> None:
    plan = bench.output / layout.PLAN
    plan.rename(bench.folder / "plan")
    plan.symlink_to(bench.folder / "plan")


def test_a_linked_file_of_ours_is_refused(bench: Bench) -> None:
    bench.stop()
    link_plan(bench)
    with pytest.raises(SpecError, match=r"_tokenization/plan is a link"):
        read_status(str(bench.output))


def test_a_linked_file_that_a_dataset_does_not_need_is_not_followed(bench: Bench) -> None:
    bench.run()
    link_plan(bench)
    status = read_status(str(bench.output))
    assert (status.phase, status.plan_id) == ("Complete", "")


PIPES = {
    "index": layout.INDEX,
    "plan": layout.PLAN,
    "epoch": layout.epoch_path(0),
    "receipt": layout.range_receipt_path(0, 0),
    "files": layout.FILES_TABLE,
    "shards": layout.SHARDS_TABLE,
    "sidecar": layout.documents_path("train", 0),
    "shard": "train/train_000000.npy",
    "lock": f"{SCRATCH}/host-1-0.lock",
}
OPENING = [
    *[(place, command) for place in ("index", "plan") for command in ("run", "clean", "status", "plan")],
    *[(place, command) for place in ("epoch", "receipt") for command in ("run", "clean", "status")],
    ("lock", "run"),
    ("lock", "clean"),
    *[(place, "verify") for place in ("index", "plan", "files", "shards", "sidecar", "shard")],
    *[(place, "show") for place in ("index", "files", "shards", "sidecar", "shard")],
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("place", "command"), OPENING)
def test_a_pipe_in_place_of_a_file_is_named_and_not_waited_for(place: str, command: str, bench: Bench) -> None:
    if command in READING:
        bench.run()
    else:
        bench.stop()
    path = bench.output / PIPES[place]
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    assert_told(
        bench.tokjob(*{**CHANGING, **LOOKING, **READING}[command]), 2, "OutputUnsafe", f"{path} is a pipe", f"rm {path}"
    )


def test_a_pipe_in_place_of_a_shard_is_not_opened_by_a_loader(bench: Bench) -> None:
    bench.run()
    shard = bench.output / PIPES["shard"]
    shard.unlink()
    os.mkfifo(shard)
    dataset = open_dataset(bench.output)
    for read in (dataset["train"].shards[0].open, lambda: dataset["train"].tokens(0, 10)):
        with pytest.raises(SpecError, match=r"train_000000\.npy is a pipe"):
            read()


def make_socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # a socket's path may have 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(before)


@pytest.mark.parametrize(("kind", "make"), [("pipe", os.mkfifo), ("socket", make_socket)])
@pytest.mark.parametrize("path", ["a", layout.PLAN])
def test_what_is_no_file_is_neither_read_nor_taken_for_nothing(
    path: str, kind: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    store = LocalStore(tmp_path)
    (tmp_path / path).parent.mkdir(exist_ok=True)
    make(tmp_path / path)
    for attempt in (
        lambda: store.read(path),
        lambda: store.read_range(path, 0, 1),
        lambda: list(store.read_ranges(path, [(0, 1)])),
        lambda: store.stat(path),
        lambda: store.local_path(path),
        lambda: put(store, path, b"x"),
    ):
        with pytest.raises(SpecError, match=f"{tmp_path / path} is a {kind}"):
            attempt()
    assert paths(store, "b") == []


def spare_files(root: Path) -> list[Path]:
    return list((root / SCRATCH / "spare").iterdir())


def discard_one(store: LocalStore) -> Path:
    """Leave a file to be written over."""
    with store.upload("old", durable=False) as upload:
        upload.write(b"old")
        upload.commit()
    store.discard("old")
    (spare,) = spare_files(store.root)
    return spare


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe"])
def test_scratch_is_written_over_only_where_it_is_a_file_of_ours_alone(kind: str, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "out")
    spare = discard_one(store)
    foreign = tmp_path / "thesis.txt"
    foreign.write_bytes(b"foreign")
    spare.unlink()
    {"link": spare.symlink_to, "hard link": spare.hardlink_to}.get(kind, lambda _: os.mkfifo(spare))(foreign)
    with store.upload("new", durable=False) as upload:
        upload.write(b"new")
        upload.commit()
    assert foreign.read_bytes() == b"foreign"
    assert store.read("new") == b"new"
    assert spare_files(tmp_path / "out") == []


def test_scratch_of_ours_is_still_written_over(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    inode = discard_one(store).stat().st_ino
    with store.upload("new", durable=False) as upload:
        upload.commit()
    assert (tmp_path / "new").stat().st_ino == inode


def test_a_dead_writers_folder_that_is_a_link_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "thesis.txt").write_bytes(b"foreign")
    scratch = tmp_path / "out" / SCRATCH
    scratch.mkdir(parents=True)
    (scratch / "host-1-0.lock").touch()
    (scratch / "host-1-0").symlink_to(tmp_path / "shared")
    with pytest.raises(SpecError, match="host-1-0 is a link"):
        LocalStore(tmp_path / "out").close_scratch()
    assert contents(tmp_path / "shared") == {"thesis.txt": b"foreign"}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("command", [*CHANGING, "plan"])
@pytest.mark.parametrize("place", ["spare", "host-1-0", "host-1-0/000001"])
def test_a_pipe_in_scratch_is_removed_and_not_waited_for(place: str, command: str, bench: Bench) -> None:
    if command == "clean":
        bench.stop()
    pipe = bench.output / SCRATCH / place
    pipe.parent.mkdir(parents=True, exist_ok=True)
    (bench.output / SCRATCH / "host-1-0.lock").touch()
    if pipe.name == "spare" and pipe.is_dir():
        pipe.rmdir()
    os.mkfifo(pipe)
    done = subprocess.run(
        [TOKJOB, *(CHANGING | LOOKING)[command]], cwd=bench.folder, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert not pipe.exists() or command == "plan"


def test_scratch_is_removed_with_what_is_in_it_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "thesis.txt").write_bytes(b"foreign")
    dead = tmp_path / "out" / SCRATCH / "host-1-0"
    (dead / "folder" / "inner").mkdir(parents=True)
    (dead / "folder" / "inner" / "file").touch()
    (dead / "link").symlink_to(tmp_path / "shared")
    dead.with_name("host-1-0.lock").touch()
    LocalStore(tmp_path / "out").close_scratch()
    assert not (tmp_path / "out" / SCRATCH).exists()
    assert contents(tmp_path / "shared") == {"thesis.txt": b"foreign"}


@pytest.mark.parametrize("path", ["{split}/{split}_{index:06d}", "train/x_{index:06d}"], ids=["whole", "prefix"])
@pytest.mark.parametrize("begins", [True, False], ids=["new", "unfinished"])
def test_a_linked_folder_for_shards_is_refused_in_the_plan_and_by_clean(begins: bool, path: str, bench: Bench) -> None:
    """Such a link can only lead to the same disk, and the files behind it are not ours."""
    if not begins:
        bench.stop()
        (bench.output / "train").rename(bench.folder / "away")
    shared = bench.folder / "shared"
    shared.mkdir()
    for name in ("train_000000.npy", "x_000000.npy"):
        (shared / name).write_bytes(b"foreign")
    bench.output.mkdir(exist_ok=True)
    (bench.output / "train").symlink_to(shared)
    before = contents(shared)
    manifest = (bench.folder / "job.yaml").read_text()
    if begins:
        (bench.folder / "job.yaml").write_text(manifest.replace("uri: out", f"uri: out, path: '{path}'"))
    for command in ("run", "plan"):
        told = bench.tokjob(*{**CHANGING, **LOOKING}[command])
        assert_told(told, 2, "OutputUnsafe", f"{bench.output / 'train'} is a link", "output.uri")
    if not begins:
        assert bench.tokjob("clean", "out").code == 0
        assert not (bench.output / OWN).exists()
    assert contents(shared) == before


def test_shards_of_a_finished_dataset_may_be_moved_away_and_linked(bench: Bench) -> None:
    """A dataset that is spread over disks by links is read as before; nothing is written through a link."""
    bench.run()
    (bench.output / "train").rename(bench.folder / "disk")
    (bench.output / "train").symlink_to(bench.folder / "disk")
    assert verify(str(bench.output), processes=1).is_clean
    assert len(open_dataset(bench.output)["train"].shards[0].open())
    (bench.folder / "disk" / "train_000000.npy").write_bytes(b"damaged")
    damaged = contents(bench.folder / "disk")
    with pytest.raises(SpecError, match=r"out/train is a link"):
        bench.run(more="  rerunToken: again\n")
    assert contents(bench.folder / "disk") == damaged


def test_an_output_that_is_a_link_is_an_output(bench: Bench) -> None:
    """Its place is the user's to choose."""
    (bench.folder / "disk").mkdir()
    bench.output.symlink_to(bench.folder / "disk")
    bench.stop()
    clean_output(str(bench.output), dry_run=False)
    bench.source.joinpath("b.jsonl").write_bytes(b'{"text": "a"}\n')
    bench.run()
    assert verify(str(bench.folder / "disk"), processes=1).is_clean


@pytest.mark.parametrize("path", ["train/train_000050.npy", "val/val_1.npy"])
def test_a_foreign_file_of_a_shards_name_is_refused_before_the_index(path: str, bench: Bench) -> None:
    """It came after the plan, which would have refused it; a training job would read it."""
    bench.stop()
    foreign = bench.write(f"out/{path}", b"x\n")
    with pytest.raises(ChangedError, match=f"OutputConflict: {bench.output}/{path} has a name") as raised:
        bench.run(more="  maxQuarantined: 3\n")
    assert "move it away or remove it" in raised.value.next_step
    assert not (bench.output / layout.INDEX).exists()
    assert foreign.read_bytes() == b"x\n"
    foreign.unlink()
    bench.run(more="  maxQuarantined: 3\n")
    assert verify(str(bench.output), processes=1).is_clean


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user")
_OTHER, _GROUP = 12345, 54321


def own_folders(root: Path) -> list[Path]:
    return [root / OWN, *(path for path in (root / OWN).rglob("*") if path.is_dir())]


def put_ours(root: Path) -> None:
    store = LocalStore(root)
    for path in (layout.PLAN, layout.epoch_path(0)):
        put(store, path, b"x")
    store.close_scratch()


def attempts(root: Path) -> list[Callable[[], object]]:
    return [
        lambda: put(LocalStore(root), layout.epoch_path(1), b"x"),
        lambda: LocalStore(root).delete(layout.PLAN),
        lambda: LocalStore(root).discard(layout.PLAN),
    ]


@needs_root
def test_folders_of_another_user_are_read_and_neither_written_nor_emptied() -> None:
    with open_folder() as root:
        put_ours(root)
        for folder in own_folders(root):
            os.chown(folder, _OTHER, _OTHER)
            folder.chmod(0o777)
        with without_root():
            assert LocalStore(root).read(layout.PLAN) == b"x"
            assert not has_live_writers(root)
            for attempt in attempts(root):
                with pytest.raises(SpecError, match=rf"(?s)belongs to user {_OTHER}.*as user 65534.*group") as raised:
                    attempt()
                assert raised.value.reason == "OutputUnsafe"
        assert (root / layout.PLAN).read_bytes() == b"x"


@needs_root
@pytest.mark.parametrize("owner", ["root", "group", "disk"])
def test_folders_that_are_trusted_or_shared_with_our_group_are_written(
    owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`disk`: one that shows every file, also those we make, as another user's, such as a share of another machine."""
    with open_folder() as root:
        put_ours(root)
        for folder in own_folders(root):
            folder.chmod(0o777 if owner == "root" else 0o2775)
            if owner == "group":
                os.chown(folder, _OTHER, _GROUP)
            if owner == "disk":
                os.chown(folder, 65534, 65534)
        groups = os.getgroups()
        os.setgroups([_GROUP])
        try:
            with without_root(), monkeypatch.context() as patched:
                if owner == "disk":
                    patched.setattr(os, "geteuid", lambda: _OTHER)
                for attempt in attempts(root):
                    attempt()
        finally:
            os.setgroups(groups)
