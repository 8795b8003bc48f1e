"""An engine caught with a wrong token is never committed: the run stops, and the next one is the reference's."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from support import oracle
from support.corpus import Corpus, json_lines, take_documents
from support.engine.inline import inline
from support.places import PROGRAMS
from support.programs.flipping_run import FLIP, LATE, STUTTER
from support.runs import Running, command, difference, files_below, leftovers, make_job, read_index, shard_files
from tokenization_worker.api.data import Delimiters, DType
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.engine.task import Task
from tokenization_worker.errors import DataError, TemporaryError, TokenizationError
from tokenization_worker.events import Event, Progress
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import place
from tokenization_worker.output.ledger.epochs import current_epoch, seal_epoch, start_epoch, void_engine
from tokenization_worker.output.record import dump_record
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.ranges.encode import Encoder
from tokenization_worker.pipelines.tokenize.shard_builder import BuildTask
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.storage.local.store import LocalStore
from tokenization_worker.tokenizers.base import Encoded, EngineMismatch
from tokenization_worker.tokenizers.checks.sample import is_sampled

pytestmark = pytest.mark.slow

SHARD_TOKENS = 15_000
ONE_IN = 64
NEVER = 2**62
DEADLINE_S = 120
EPOCH_1 = "_tokenization/epochs/0001.json"


@dataclass(frozen=True)
class Trap:
    """A corpus with wrong documents: an early one that no sample sees, and a late one that is compared."""

    corpus: Corpus
    late_file: Path
    late_position: int
    late_text: str
    reference: Path

    def job(self, output: Path) -> TokenizationJob:
        return make_job(
            self.corpus.folder,
            output,
            output={"shards": {"tokens": SHARD_TOKENS}, "splits": [{"name": "val", "shards": 2}, {"name": "train"}]},
            rangeBytes="64Ki",
        )

    def start_flipping(
        self, output: Path, log: Path, *more: str, processes: int = 1, sample_one_in: int = ONE_IN
    ) -> Running:
        manifest = command(self.job(output), log.parent / log.name)[2]
        options = ["--processes", str(processes), "--sample-one-in", str(sample_one_in), *more]
        return Running([sys.executable, str(PROGRAMS / "flipping_run.py"), manifest, *options], log)

    def start_ordinary(self, output: Path, log: Path) -> Running:
        options = ["--processes", "2", "--json"]
        return Running(command(self.job(output), log.parent / log.name, *options), log)


def with_mistakes(
    texts: list[str], file: int, mark: str, numbers: Sequence[int], *, compared: bool
) -> tuple[list[str], int, int]:
    """`texts` with `mark` in the first of `numbers` that is compared (or is not); its number and position."""
    for number in numbers:
        position = len(json_lines(texts[:number]))
        is_compared = is_sampled(np.array([position]), np.array([file]), ONE_IN)[0]
        if is_compared == compared and len(texts[number]) > 100:
            return [*texts[:number], texts[number] + mark, *texts[number + 1 :]], number, position
    raise AssertionError("no document is where it is wanted")


def make_trap(folder: Path, mark: str) -> Trap:
    early = take_documents(400_000, odd=False)
    late = take_documents(400_000, first=700, odd=False)
    early, _, _ = with_mistakes(early, 0, mark, range(3, 100), compared=False)
    late, number, position = with_mistakes(late, 1, mark + LATE, range(len(late) // 2, len(late)), compared=True)
    source = folder / "source"
    source.mkdir(parents=True)
    (source / "0.jsonl").write_bytes(json_lines(early))
    (source / "1.jsonl").write_bytes(json_lines(late))
    trap = Trap(
        Corpus(source, [*early, *late]), source / "1.jsonl", position, late[number], reference=folder / "reference"
    )
    run_job(trap.job(trap.reference), options=Options(engine="reference"), executor=inline())
    return trap


@pytest.fixture(scope="module")
def trap(tmp_path_factory: pytest.TempPathFactory) -> Trap:
    return make_trap(tmp_path_factory.mktemp("flip"), FLIP)


@pytest.fixture(scope="module")
def stuttering_trap(tmp_path_factory: pytest.TempPathFactory) -> Trap:
    """A wrong engine that makes more tokens, and so more shards."""
    return make_trap(tmp_path_factory.mktemp("stutter"), STUTTER)


def require_reference(trap: Trap, output: Path) -> None:
    assert difference(output, trap.reference) is None
    assert read_index(output)["digest"] == read_index(trap.reference)["digest"]
    assert read_index(output)["run"]["engine"] in ("reference", "tiktoken")


def until(condition: Callable[[], bool], running: Running) -> None:
    """Until `condition` holds; it may come true with the end of the run."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if running.has_ended:
            assert condition(), running.errors
            return
        assert time.monotonic() < deadline
        time.sleep(0.0005)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_late_mismatch_stops_the_run_with_the_evidence(trap: Trap, processes: int, tmp_path: Path) -> None:
    output = tmp_path / "out"
    after_shards = ["--late-gate", str(output), "*/*.npy"]
    voided = trap.start_flipping(output, tmp_path / "voided", *after_shards, processes=processes)
    assert voided.wait() == 5
    assert "EngineVoided" in voided.errors
    assert EPOCH_1 in voided.errors
    assert not (output / "index.json").exists()

    evidence = json.loads((output / EPOCH_1).read_bytes())
    assert evidence["epoch"] == 1
    assert evidence["engine"] == "reference"
    assert evidence["voids"] == {"epoch": 0, "engine": "fastokens"}
    assert evidence["document"]["uri"] == str(trap.late_file)
    assert evidence["document"]["position"] == trap.late_position
    assert evidence["document"]["excerpt"] == trap.late_text[:200]
    assert evidence["expected"] == oracle.encoding("gpt2").encode_ordinary(trap.late_text)
    wrong = [i for i, (a, b) in enumerate(zip(evidence["found"], evidence["expected"], strict=True)) if a != b]
    assert wrong == [evidence["firstDifference"]]

    written = shard_files(output)
    assert written, "the mismatch must come after shards are written"
    assert any((output / path).read_bytes() != (trap.reference / path).read_bytes() for path in written)


def test_the_next_start_ends_with_the_references_bytes(trap: Trap, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert trap.start_flipping(output, tmp_path / "voided", processes=2).wait() == 5
    again = trap.start_ordinary(output, tmp_path / "again")
    assert again.wait() == 0, again.errors
    require_reference(trap, output)
    assert leftovers(output) == []
    history = read_index(output)["run"]["epochs"]
    assert [entry["voids"] for entry in history] == [{"epoch": 0, "engine": "fastokens"}]


def test_a_foreign_file_beside_shards_of_a_voided_engine_stays_and_is_refused(
    context: RunContext, stuttering_trap: Trap, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    assert stuttering_trap.start_flipping(output, tmp_path / "wrong", sample_one_in=NEVER).wait() == 0
    (output / "index.json").unlink()
    (output / EPOCH_1).unlink()
    void(LocalStore(output), context)
    theirs = output / "train" / "train_000900.npy"
    theirs.write_bytes(b"named like a shard")
    refused = stuttering_trap.start_ordinary(output, tmp_path / "refused")
    assert refused.wait() == 3
    assert "OutputConflict" in refused.errors
    assert str(theirs) in refused.errors
    assert theirs.read_bytes() == b"named like a shard"
    theirs.unlink()
    again = stuttering_trap.start_ordinary(output, tmp_path / "again")
    assert again.wait() == 0, again.errors
    require_reference(stuttering_trap, output)


def test_shards_that_only_the_voided_engine_had_are_removed(
    context: RunContext, stuttering_trap: Trap, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    # Nobody compares, so the wrong run writes all of its shards; then it is as if it had ended before the commit.
    wrong = stuttering_trap.start_flipping(output, tmp_path / "wrong", sample_one_in=NEVER)
    assert wrong.wait() == 0
    (output / "index.json").unlink()
    (output / EPOCH_1).unlink()
    extra = shard_files(output) - shard_files(stuttering_trap.reference)
    number = int(max(extra).removesuffix(".npy")[-6:])
    (output / f"_tokenization/ledger/0/shards/train/{number:08}.json").unlink()  # as if it was killed there
    void(LocalStore(output), context)
    theirs = output / "mine" / "other_000099.npy"
    theirs.parent.mkdir()
    theirs.write_bytes(b"named almost like a shard")
    again = stuttering_trap.start_ordinary(output, tmp_path / "again")
    assert again.wait() == 0, again.errors
    theirs.unlink()
    require_reference(stuttering_trap, output)
    assert leftovers(output) == []
    sidecars = {path for path in files_below(output) if "/documents/" in path}
    assert sidecars == {path for path in files_below(stuttering_trap.reference) if "/documents/" in path}


ASLEEP: dict[str, Callable[[set[str]], bool]] = {
    "before its first task": lambda files: any("/epochs/0000" in path for path in files),
    "after a few ranges": lambda files: sum("/ranges/" in path for path in files) >= 3,
    "after its first shards": lambda files: sum(path.endswith(".npy") for path in files) >= 2,
    "with temporary files": lambda files: sum("/tmp/" in path and "lock" not in path for path in files) >= 2,
}

SLEEPS = [
    ("before its first task", "after the next run has ended"),
    ("after a few ranges", "while the next run works"),
    ("after its first shards", "while the next run works"),
    ("after its first shards", "after the next run has ended"),
    ("with temporary files", "after the next run has ended"),
]


@pytest.fixture(params=["trap", "stuttering_trap"], ids=["one wrong token", "more tokens"])
def any_trap(request: pytest.FixtureRequest) -> Trap:
    chosen: Trap = request.getfixturevalue(request.param)
    return chosen


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("moment", "wakes"), SLEEPS)
def test_a_sleeping_process_of_the_voided_epoch_cannot_harm(
    moment: str, wakes: str, any_trap: Trap, tmp_path: Path
) -> None:
    trap = any_trap
    output, gate = tmp_path / "out", tmp_path / "gate"
    in_time = ["--late-gate", str(tmp_path), gate.name]
    sleeper = trap.start_flipping(output, tmp_path / "sleeper", *in_time, processes=2, sample_one_in=NEVER)
    until(lambda: output.exists() and ASLEEP[moment](files_below(output)), sleeper)
    sleeper.signal(signal.SIGSTOP)
    gate.touch()
    assert trap.start_flipping(output, tmp_path / "voided").wait() == 5
    assert (output / EPOCH_1).exists()

    good = trap.start_ordinary(output, tmp_path / "good")
    if wakes == "while the next run works":
        until(lambda: (output / "_tokenization" / "ledger" / "1" / "ranges").exists(), good)
        sleeper.signal(signal.SIGCONT)
    assert good.wait() == 0, good.errors
    sleeper.signal(signal.SIGCONT)
    # One that has not chosen its epoch yet works in the new one.
    assert sleeper.wait() in ((0, 5) if moment == "before its first task" else (5,)), sleeper.errors
    require_reference(trap, output)
    run_job(trap.job(output))
    require_reference(trap, output)
    assert leftovers(output) == []


@pytest.mark.sampled(2)
def test_a_process_of_the_voided_epoch_that_keeps_writing_cannot_harm(any_trap: Trap, tmp_path: Path) -> None:
    trap = any_trap
    output, gate = tmp_path / "out", tmp_path / "gate"
    slow = trap.start_flipping(output, tmp_path / "slow", "--gate", str(gate), "--gate-after", "8", sample_one_in=NEVER)
    until(lambda: len(shard_files(output)) >= 1, slow)
    assert trap.start_flipping(output, tmp_path / "voided").wait() == 5
    good = trap.start_ordinary(output, tmp_path / "good")
    until(lambda: (output / "_tokenization" / "ledger" / "1" / "ranges").exists(), good)
    gate.touch()
    assert good.wait() == 0, good.errors
    assert slow.wait() == 5, slow.errors
    require_reference(trap, output)
    run_job(trap.job(output))
    require_reference(trap, output)
    assert leftovers(output) == []


def voided_on_the_way(tmp_path: Path, context: RunContext) -> Exception:
    return void(LocalStore(tmp_path), context)


def store_fails_on_the_way(tmp_path: Path, context: RunContext) -> Exception:
    return TemporaryError("StorageFailed", "no answer")


@pytest.mark.parametrize(
    ("what", "is_kept"), [(voided_on_the_way, False), (store_fails_on_the_way, True)], ids=["voided", "another error"]
)
def test_only_what_is_created_while_the_epoch_is_voided_is_taken_back(
    what: Callable[[Path, RunContext], Exception], is_kept: bool, context: RunContext, tmp_path: Path
) -> None:
    store = LocalStore(tmp_path)
    start_epoch(store, "fastokens")
    errors: list[Exception] = []

    def fail_after_the_first_look() -> None:
        if errors:
            raise errors[0]
        errors.append(what(tmp_path, context))

    with pytest.raises(TemporaryError) as caught:
        place(
            store,
            "train_000023.npy",
            lambda upload: upload.write(b"wrong"),
            is_same=lambda found: False,
            allow_replace=fail_after_the_first_look,
            require_current=fail_after_the_first_look,
        )
    assert caught.value is errors[0]
    assert (store.stat("train_000023.npy") is not None) == is_kept


def test_a_build_of_a_voided_epoch_creates_nothing(context: RunContext, trap: Trap, tmp_path: Path) -> None:
    output = tmp_path / "out"

    def void_first(task: Task) -> None:
        if isinstance(task, BuildTask):
            void(LocalStore(output), context)

    with pytest.raises(TemporaryError) as caught:
        run_job(trap.job(output), executor=inline(void_first))
    assert caught.value.reason == "EngineVoided"
    assert [path for path in files_below(output) if path.endswith(".npy") or "/documents/" in path] == []


def test_a_later_epoch_replaces_even_what_is_right(context: RunContext, trap: Trap, tmp_path: Path) -> None:
    """Its voided writer may be about to take it back, that version."""
    output = tmp_path / "out"
    run_job(trap.job(output), options=Options(engine="reference"), executor=inline())
    (output / "index.json").unlink()
    (output / EPOCH_1).unlink()
    void(LocalStore(output), context)
    store = LocalStore(output)
    old = {path: store.stat(path) for path in files_below(output) if path.endswith(".npy") or "/documents/" in path}
    run_job(trap.job(output), executor=inline())
    require_reference(trap, output)
    assert [path for path, entry in old.items() if store.stat(path) == entry] == []


class ListEngine:
    """An engine that gives these ids, whatever the texts."""

    def __init__(self, name: str, *documents: list[int]) -> None:
        self.name = name
        self._documents = documents

    def encode(self, texts: Sequence[str]) -> Encoded:
        chosen = [self._documents[int(text)] for text in texts]
        return Encoded(
            np.array([i for ids in chosen for i in ids], dtype=np.uint32), np.cumsum([len(ids) for ids in chosen])
        )


def encode_unsampled(engine: ListEngine, reference: ListEngine) -> None:
    """Encode three documents of which none is compared; the vocabulary has 100 ids, 99 is the delimiter."""
    encoder = Encoder(engine, reference, 100, Delimiters(99, None), np.dtype("<u2"), NEVER)
    encoder.encode(["0", "1", "2"], np.arange(1, 4), np.zeros(3, dtype=np.int64))


IMPOSSIBLE = {"the delimiter": [7, 99], "an id outside of the vocabulary": [7, 100]}


@pytest.mark.parametrize("ids", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_impossible_id_is_a_mismatch_even_where_no_sample_is_taken(ids: list[int]) -> None:
    with pytest.raises(EngineMismatch) as caught:
        encode_unsampled(ListEngine("fast", [1], [], ids), ListEngine("reference", [1], [], [7, 8]))
    assert (caught.value.document, caught.value.found, caught.value.expected) == (2, ids, [7, 8])


@pytest.mark.parametrize(
    ("ids", "reason"), [([7, 99], "TokenizerUnsafe"), ([7, 100], "TokenizerBroken")], ids=IMPOSSIBLE
)
@pytest.mark.parametrize("name", ["fast", "reference"])
def test_an_impossible_id_of_the_reference_is_the_tokenizers_fault(name: str, ids: list[int], reason: str) -> None:
    reference = ListEngine("reference", [1], ids, [3])
    with pytest.raises(TokenizationError) as caught:
        encode_unsampled(ListEngine("fast", [1], ids, [3]) if name == "fast" else reference, reference)
    assert caught.value.reason == reason


MISMATCH = EngineMismatch(0, [1, 2, 4], [1, 2, 3])


def void(store: LocalStore, context: RunContext) -> TemporaryError:
    """Void epoch 0 as a task would that sees a mismatch."""
    try:
        return void_engine(store, context.epoch, context.engine, MISMATCH, uri="/source", position=7, text="some text")
    finally:
        store.close_scratch()


@pytest.fixture
def context(trap: Trap) -> RunContext:
    return RunContext(resolve_data(trap.job(Path("/nowhere"))), "plan", 0, "fastokens", DType.UINT16, 1, "")


def test_a_voided_epoch_cannot_be_sealed(context: RunContext, tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    start_epoch(store, "fastokens")
    assert "differs from the reference at token 2" in str(void(store, context))
    with pytest.raises(TemporaryError) as caught:
        seal_epoch(store, 0)
    assert caught.value.reason == "EngineVoided"
    epoch = current_epoch(store)
    assert (epoch.number, epoch.engine, epoch.sealed) == (1, "reference", False)


def test_a_sealed_epoch_cannot_be_voided(context: RunContext, tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    start_epoch(store, "fastokens")
    seal_epoch(store, 0)
    seal_epoch(store, 0)  # a second run, or a second start, seals again
    assert "complete already" in str(void(store, context))
    epoch = current_epoch(store)
    assert (epoch.number, epoch.engine, epoch.sealed) == (0, "fastokens", True)


DAMAGED_ENTRIES: dict[str, tuple[int, dict[str, object]]] = {
    "a seal that nothing precedes": (0, {"epoch": 0, "sealed": 0}),
    "a seal of what comes before the first": (0, {"epoch": 0, "sealed": -1}),
    "a seal of another epoch": (1, {"epoch": 1, "sealed": 1}),
    "another epoch's entry": (1, {"epoch": 2, "engine": "reference"}),
    "not a number": (0, {"engine": "reference"}),
    "no engine": (0, {"epoch": 0}),
}


@pytest.mark.parametrize(("number", "content"), DAMAGED_ENTRIES.values(), ids=DAMAGED_ENTRIES)
def test_an_entry_that_cannot_be_one_is_a_damaged_record(
    number: int, content: dict[str, object], tmp_path: Path
) -> None:
    store = LocalStore(tmp_path)
    start_epoch(store, "fastokens")
    (tmp_path / layout.epoch_path(number)).write_bytes(dump_record(content))
    with pytest.raises(DataError, match=rf"RecordCorrupt: .*/000{number}.json is corrupt: .*\n.*tokjob clean"):
        current_epoch(store)


def test_of_a_seal_and_a_void_at_the_same_time_one_wins(context: RunContext, tmp_path: Path) -> None:
    for number in range(60):
        folder = tmp_path / str(number)
        start_epoch(LocalStore(folder), "fastokens")
        barrier = threading.Barrier(2)
        sealed: list[bool] = []

        def seal(folder: Path = folder, barrier: threading.Barrier = barrier, sealed: list[bool] = sealed) -> None:
            barrier.wait()
            try:
                seal_epoch(LocalStore(folder), 0)
            except TemporaryError:
                sealed.append(False)
            else:
                sealed.append(True)

        thread = threading.Thread(target=seal)
        thread.start()
        barrier.wait()
        voided = "complete already" not in str(void(LocalStore(folder), context))
        thread.join()
        assert sealed == [not voided]
        assert current_epoch(LocalStore(folder)).number == (1 if voided else 0)


def test_a_run_that_is_voided_after_its_last_shard_does_not_commit(
    context: RunContext, trap: Trap, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    store = LocalStore(output)

    def void_at_the_end(event: Event) -> None:
        if isinstance(event, Progress) and event.shards_done == event.shards:
            void(store, context)

    with pytest.raises(TemporaryError) as caught:
        run_job(trap.job(output), options=Options(processes=2, engine="fastokens"), on_progress=void_at_the_end)
    assert caught.value.reason == "EngineVoided"
    assert not (output / "index.json").exists()

    run_job(trap.job(output), options=Options(processes=2))
    require_reference(trap, output)
    assert leftovers(output) == []


def test_what_a_voided_run_left_at_the_commit_is_replaced(context: RunContext, trap: Trap, tmp_path: Path) -> None:
    """The wrong run got as far as its tables: they are created before the seal."""
    output = tmp_path / "out"
    wrong = trap.start_flipping(output, tmp_path / "wrong", sample_one_in=NEVER)
    assert wrong.wait() == 0
    assert difference(output, trap.reference) is not None, "nothing was compared, so the wrong tokens are there"
    (output / "index.json").unlink()
    (output / EPOCH_1).unlink()
    void(LocalStore(output), context)
    run_job(trap.job(output), options=Options(processes=2))
    require_reference(trap, output)
    assert leftovers(output) == []
    for path in files_below(trap.reference):
        if "/documents/" in path or path.endswith(".jsonl.zst"):
            assert (output / path).read_bytes() == (trap.reference / path).read_bytes(), path


LONG_S = ["it'ſ", "'ſ", "a'ſ'So", "T'ſ'ms and I'ſ'LLs", "ſ", "'ſ'ſx'ſ ", "Weſt'ſ  'ſt"]
"""After "'ſ" the accelerated engine alone would take "'S" for a contraction that tiktoken does not see."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("engine", ["reference", "fastokens"])
def test_o200k_with_the_long_s_is_tiktokens_through_the_whole_run(engine: str, tmp_path: Path) -> None:
    texts = take_documents(150_000, odd=True)
    texts = [text + LONG_S[number % len(LONG_S)] if number % 3 == 0 else text for number, text in enumerate(texts)]
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.jsonl").write_bytes(json_lines([*LONG_S, *texts]))
    job = make_job(
        tmp_path / "source",
        tmp_path / "out",
        tokenizer={"name": "o200k_base"},
        output={"shards": {"tokens": 5_000}},
        rangeBytes="64Ki",
    )
    run_job(job, options=Options(processes=2, engine=engine, sample_one_in=1))
    oracle.write_one_split(
        tmp_path / "oracle", [*LONG_S, *texts], name="o200k_base", dtype=np.uint32, shard_tokens=5_000
    )
    assert difference(tmp_path / "out", tmp_path / "oracle") is None
    assert shard_files(tmp_path / "out")
    assert not (tmp_path / "out" / layout.epoch_path(1)).exists() or read_index(tmp_path / "out")["run"]["epochs"] == []
