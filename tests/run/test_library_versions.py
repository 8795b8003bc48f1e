"""A dataset has the tokens of one behaviour of its libraries, whichever versions worked on it."""

from __future__ import annotations

import io
import json
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from packaging.requirements import Requirement

from support.corpus import json_lines, take_documents, zstd
from support.engine.inline import inline
from support.places import CHECKOUT
from support.runs import difference, files_below, make_job, move_dataset, read_index, write_index
from support.tokenizer_models import make_spec, train_byte_level, write_json
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.engine.task import Task
from tokenization_worker.errors import ChangedError, DataError
from tokenization_worker.events import Event, Warned
from tokenization_worker.inspect.preview import preview_run
from tokenization_worker.output import layout, versions
from tokenization_worker.output.ledger.version_samples import (
    MOST_CHARACTERS,
    MOST_DOCUMENTS,
    SampledText,
    Samples,
    choose_texts,
)
from tokenization_worker.output.record import dump_record, load_record
from tokenization_worker.output.versions import find_changes
from tokenization_worker.readers import parser_check
from tokenization_worker.readers.parquet import version_check
from tokenization_worker.run.run import run_job
from tokenization_worker.storage.local.store import LocalStore
from tokenization_worker.tokenizers import hf
from tokenization_worker.tokenizers.base import IdArray
from tokenization_worker.tokenizers.checks import behaviour
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.verification.report import Fault
from tokenization_worker.verification.verify import verify

NOW = "0.23.3"
THEN = "0.22.0"


FEW = (range(0xA780, 0xA800), range(0x11DE0, 0x11E00), range(0x16E80, 0x16EC0))
"""The code points that are shown in these tests; what is really shown is tested below."""


class Libraries:
    """`tokenizers` as this process has it, or as another version that treats some text otherwise."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._encode_one = hf.HuggingFaceEngine._encode_one
        self.become(NOW)

    def become(self, version: str, **replaced: str) -> None:
        """Be a version that takes each of these texts for another one."""

        def encode_one(engine: hf.HuggingFaceEngine, text: str) -> IdArray:
            for name, value in replaced.items():
                text = text.replace(name, value)
            return self._encode_one(engine, text)

        self._patch.setattr(hf, "version", lambda package: version if package == "tokenizers" else "1")
        self._patch.setattr(hf.HuggingFaceEngine, "_encode_one", encode_one)
        load_tokenizer.cache_clear()


@pytest.fixture
def libraries(few_code_points: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Libraries]:
    monkeypatch.setattr(behaviour, "_DENSE", FEW)
    yield Libraries(monkeypatch)
    load_tokenizer.cache_clear()


@pytest.fixture
def job(tmp_path: Path) -> TokenizationJob:
    """Two files, four ranges or so, and a tokenizer.json that lowers letters."""
    source = tmp_path / "source"
    source.mkdir()
    for number in range(2):
        texts = take_documents(60_000, first=100 * number, odd=False)
        (source / f"{number}.jsonl").write_bytes(json_lines(["It jumped over the lazy dog.", *texts]))
    document = train_byte_level([{"content": "<|endoftext|>"}], normalizer={"type": "Lowercase"})
    uri = write_json(tmp_path / "tokenizer.json", document)
    return make_job(
        source,
        tmp_path / "out",
        rangeBytes="32Ki",
        tokenizer={"name": None, "uri": str(uri)},
        output={"shards": {"tokens": 9000}},
    )


class Killed(Exception):
    """Stands for a signal."""


def begin(job: TokenizationJob, tasks: int = 1) -> None:
    """Run some tasks, then be killed."""
    left = [tasks]

    def count(task: Task) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    with pytest.raises(Killed):
        run_job(job, executor=inline(count))


def warnings_of(job: TokenizationJob) -> list[str]:
    events: list[Event] = []
    run_job(job, executor=inline(), on_progress=events.append)
    return [event.message for event in events if isinstance(event, Warned)]


def output_of(job: TokenizationJob) -> Path:
    return Path(job.spec.output.uri)


NOT_LOWERED = {"\ua7ce": "\ua7e0"}
CHANGED = {
    "one code point that no document has": {"\ua7ce": "\ua7e0"},
    "one code point beyond the first plane": {"\U00016ea0": "\U00016ee0"},
    "a digit of a new script": {"\U00011de0": "0"},
    "words of a sampled document": {"jumped over the lazy": "jumped  over the lazy"},
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("changed", CHANGED.values(), ids=CHANGED)
def test_a_resume_under_a_library_that_gives_other_tokens_is_refused(
    changed: dict[str, str], job: TokenizationJob, libraries: Libraries
) -> None:
    libraries.become(THEN, **changed)
    begin(job)
    libraries.become(NOW)
    with pytest.raises(ChangedError) as caught:
        run_job(job, executor=inline())
    error = caught.value
    assert error.reason == "TokenizerChanged"
    assert f"began with tokenizers {THEN}" in error.message
    assert f"this process has tokenizers {NOW}" in error.message
    assert f"pip install 'tokenizers=={THEN}'" in error.next_step
    assert "another output.uri" in error.next_step
    assert not (output_of(job) / "index.json").exists()
    with pytest.raises(ChangedError) as planned:
        preview_run(job, 1)
    assert (planned.value.reason, planned.value.message) == (error.reason, error.message)

    libraries.become(THEN, **changed)  # the way out that the message names
    assert warnings_of(job) == []
    assert list(read_index(output_of(job))["run"]["rangesByVersions"]) == [versions_of(job)]


@pytest.mark.parametrize("lost", [("epochs",), ("epochs", "samples")], ids=" and ".join)
@pytest.mark.parametrize("version", [THEN, NOW])
def test_ranges_that_are_done_are_not_believed_without_their_epochs(
    version: str, lost: tuple[str, ...], job: TokenizationJob, libraries: Libraries
) -> None:
    """Nothing else says which versions, and which engine, the tokens are of."""
    libraries.become(THEN, **NOT_LOWERED)
    begin(job)
    own = output_of(job) / "_tokenization"
    shutil.rmtree(own / "epochs")
    if "samples" in lost:
        (own / "samples").unlink()
    libraries.become(version, **(NOT_LOWERED if version == THEN else {}))
    before = files_below(output_of(job))
    with pytest.raises(DataError, match=r"epochs/0000\.json is missing, but the run") as caught:
        run_job(job, executor=inline())
    assert caught.value.reason == "RecordCorrupt"
    assert "tokjob clean" in caught.value.next_step
    assert files_below(output_of(job)) - before <= {"_tokenization/failure.json"}


def test_a_run_that_was_killed_before_its_epoch_goes_on(job: TokenizationJob, libraries: Libraries) -> None:
    begin(job, tasks=0)
    shutil.rmtree(output_of(job) / "_tokenization" / "epochs")
    assert warnings_of(job) == []


def test_verify_says_that_two_versions_wrote_a_dataset(job: TokenizationJob, libraries: Libraries) -> None:
    run_job(job, executor=inline())
    index = read_index(output_of(job))
    (now,) = index["run"]["rangesByVersions"]
    index["run"]["rangesByVersions"] = {now: 3, now.replace(NOW, THEN): 1}
    write_index(output_of(job), index)
    assert verify(str(output_of(job)), mode="full", processes=1).findings == ()
    libraries.become(NOW, jumped="jump ed")
    with pytest.raises(ChangedError, match=f"some ranges .* tokenizers {THEN}, others with tokenizers {NOW}") as caught:
        verify(str(output_of(job)), mode="full", processes=1)
    assert "tokenize the source again" in caught.value.next_step


def test_a_library_that_changes_the_fingerprint_is_named_with_both_versions(
    job: TokenizationJob, libraries: Libraries
) -> None:
    libraries.become(THEN, SLEEP="slee p")
    begin(job)
    libraries.become(NOW)
    for start in (lambda: preview_run(job, 1), lambda: run_job(job, executor=inline())):
        with pytest.raises(ChangedError, match=f"TokenizerChanged: .*with tokenizers {THEN}; .* tokenizers {NOW}"):
            start()


def versions_of(job: TokenizationJob) -> str:
    tokenizer = load_tokenizer(make_spec(uri=Path(str(job.spec.tokenizer.uri))))
    return versions.describe_versions(tokenizer.libraries)


def test_the_message_names_the_characters_that_differ(job: TokenizationJob, libraries: Libraries) -> None:
    libraries.become(THEN, **NOT_LOWERED)
    begin(job)
    libraries.become(NOW)
    with pytest.raises(ChangedError, match=r"other tokens for a character of U\+A7[0-9A-F]{2} to U\+A[78]"):
        run_job(job, executor=inline())


def test_a_resume_under_a_library_that_gives_the_same_tokens_goes_on_with_a_warning(
    job: TokenizationJob, libraries: Libraries, tmp_path: Path
) -> None:
    libraries.become(THEN)
    begin(job)
    libraries.become(NOW)
    (warning,) = warnings_of(job)
    assert f"began with tokenizers {THEN} and continues with tokenizers {NOW}" in warning
    assert "encoded again and gives the same tokens" in warning
    index = read_index(output_of(job))
    wrote = index["run"]["rangesByVersions"]
    assert [f"tokenizers {version}" in text for version, text in zip((THEN, NOW), sorted(wrote), strict=True)] == [
        True
    ] * 2
    assert wrote[min(wrote)] == 1

    whole = make_job(
        tmp_path / "source",
        tmp_path / "whole",
        rangeBytes="32Ki",
        tokenizer={"name": None, "uri": str(job.spec.tokenizer.uri)},
        output={"shards": {"tokens": 9000}},
    )
    assert warnings_of(whole) == []
    assert difference(output_of(job), output_of(whole)) is None
    again = read_index(output_of(whole))
    assert (again["digest"], again["dataKey"]) == (index["digest"], index["dataKey"])


def test_a_worker_with_a_library_that_gives_other_tokens_stops_the_run(
    job: TokenizationJob, libraries: Libraries
) -> None:
    """As one on another node, which has loaded the tokenizer itself."""
    seen: list[Task] = []

    def be_another_node(task: Task) -> None:
        seen.append(task)
        if len(seen) == 2:
            libraries.become(THEN, **NOT_LOWERED)

    with pytest.raises(ChangedError, match=f"began with tokenizers {NOW}; this process has tokenizers {THEN}"):
        run_job(job, executor=inline(be_another_node))
    assert not (output_of(job) / "index.json").exists()


def test_of_two_first_starts_with_two_versions_only_one_counts(job: TokenizationJob, libraries: Libraries) -> None:
    """Either process may write the samples first; the other one compares, though it may write the epoch."""
    libraries.become(THEN, **NOT_LOWERED)
    begin(job, tasks=0)
    (output_of(job) / layout.epoch_path(0)).unlink()
    libraries.become(NOW)
    with pytest.raises(ChangedError, match="TokenizerChanged"):
        run_job(job, executor=inline())


def test_what_an_older_version_of_this_program_began_goes_on_with_a_warning(
    job: TokenizationJob, libraries: Libraries
) -> None:
    begin(job, tasks=2)
    make_old(output_of(job))
    libraries.become("0.23.4")
    (warning,) = warnings_of(job)
    assert "did not record its library versions" in warning
    assert "tokenizers 0.23.4" in warning
    wrote = read_index(output_of(job))["run"]["rangesByVersions"]
    assert wrote["unknown"] == 2
    assert len(wrote) == 2


def make_old(output: Path) -> None:
    """Take out what versions of this program before this one did not write."""
    (output / layout.SAMPLES).unlink()
    for path in [output / layout.epoch_path(0), *(output / layout.LEDGER / "0" / "ranges").iterdir()]:
        fields = load_record(path.read_bytes())
        del fields["versions"]
        path.write_bytes(dump_record(fields))


def test_samples_that_are_lost_are_no_proof(job: TokenizationJob, libraries: Libraries) -> None:
    libraries.become(THEN)
    begin(job)
    (output_of(job) / layout.SAMPLES).unlink()
    libraries.become(NOW)
    with pytest.raises(ChangedError, match=r"TokenizerChanged: .*no samples") as caught:
        run_job(job, executor=inline())
    require_both_versions(caught.value)
    libraries.become(THEN)  # needs no proof
    assert warnings_of(job) == []


def test_samples_of_other_versions_than_the_run_are_no_proof(job: TokenizationJob, libraries: Libraries) -> None:
    libraries.become(THEN)
    begin(job)
    path = output_of(job) / layout.epoch_path(0)
    entry = load_record(path.read_bytes())
    path.write_bytes(dump_record(entry | {"versions": entry["versions"].replace(THEN, "0.21.0")}))
    libraries.become(NOW)
    with pytest.raises(ChangedError, match=r"TokenizerChanged: .*began with tokenizers 0\.21\.0; .*no samples"):
        run_job(job, executor=inline())


def require_both_versions(error: ChangedError) -> None:
    assert error.reason == "TokenizerChanged"
    assert f"began with tokenizers {THEN}" in error.message
    assert f"this process has tokenizers {NOW}" in error.message
    assert f"pip install 'tokenizers=={THEN}'" in error.next_step


def test_damaged_samples_are_refused_where_they_are_needed(job: TokenizationJob, libraries: Libraries) -> None:
    libraries.become(THEN)
    begin(job)
    path = output_of(job) / layout.SAMPLES
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    libraries.become(NOW)
    with pytest.raises(DataError, match=r"RecordCorrupt: .*_tokenization/samples is corrupt"):
        run_job(job, executor=inline())


def test_a_token_that_no_vocabulary_holds_is_damage_of_the_samples(job: TokenizationJob) -> None:
    begin(job)
    store = LocalStore(output_of(job))
    record = load_record(zstd.decompress(store.read(layout.SAMPLES)))
    record["documents"][0][2] = [-1]
    with pytest.raises(DataError, match=r"RecordCorrupt: .*_tokenization/samples is corrupt"):
        Samples.from_bytes(zstd.compress(dump_record(record)), store.uri)


def lenient(line: bytes) -> object:
    """Another parser."""
    try:
        return json.loads(line, strict=False)
    except RecursionError as error:
        raise ValueError from error


def test_another_parser_is_compared_by_its_answers(
    job: TokenizationJob, libraries: Libraries, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = versions._parser_versions()
    monkeypatch.setattr(versions, "_parser_versions", lambda: found | {"orjson": "3.0.0"})
    begin(job)
    monkeypatch.setattr(versions, "_parser_versions", lambda: found)
    load_tokenizer.cache_clear()
    other = parser_check.parser_digest(lenient)
    assert other != parser_check.parser_digest()
    monkeypatch.setattr("tokenization_worker.output.ledger.version_samples.parser_digest", lambda: other)
    with pytest.raises(
        ChangedError, match=r"began with orjson 3\.0\.0; .* other tokens for lines that are not strict JSON"
    ):
        run_job(job, executor=inline())


def test_the_same_versions_are_not_compared(
    job: TokenizationJob, libraries: Libraries, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(job)
    (output_of(job) / layout.SAMPLES).write_bytes(b"never read")
    assert warnings_of(job) == []


def test_the_samples_hold_texts_and_tokens_that_the_reference_gave(job: TokenizationJob, libraries: Libraries) -> None:
    begin(job)
    store = LocalStore(output_of(job))
    samples = Samples.from_bytes(store.read(layout.SAMPLES), store.uri)
    reference = load_tokenizer(make_spec(uri=Path(str(job.spec.tokenizer.uri)))).reference
    assert len({sample.uri for sample in samples.documents}) == 3  # two files and the probe
    for sample in samples.documents:
        assert reference.encode([sample.text]).ids.tolist() == sample.tokens.tolist()
    assert f"tokenizers {NOW}" in samples.versions


@pytest.mark.parametrize("sizes", [[], [[1] * 100], [[1] * 100, [1] * 3], [[1 << 17] * 5, [10]], [[1 << 20], [5]]])
def test_sampled_texts_are_few_small_and_of_every_file(sizes: list[list[int]]) -> None:
    nothing = np.empty(0, np.uint32)
    files = [[SampledText(str(number), "x" * size, nothing) for size in file] for number, file in enumerate(sizes)]
    chosen = choose_texts(files)
    assert len(chosen) <= MOST_DOCUMENTS
    assert sum(len(each.text) for each in chosen) <= MOST_CHARACTERS
    fitting = {each.uri for file in files for each in file[:1] if len(each.text) <= MOST_CHARACTERS}
    assert {each.uri for each in chosen} == fitting


# ---- a complete dataset


LOST_SHARD, LOST_SIDECAR = "train/train_000000.npy", "_tokenization/documents/train/00000000"


@pytest.fixture
def moved(job: TokenizationJob, libraries: Libraries, tmp_path: Path) -> TokenizationJob:
    """A dataset that another version wrote, which treats some of its documents otherwise, in another folder without
    plan, samples, epochs and ledger."""
    (tmp_path / "source" / "0.jsonl").write_bytes(json_lines([f"{number} \ua7ce" for number in range(900)]))
    libraries.become(THEN, **NOT_LOWERED)
    run_job(job, executor=inline())
    move_dataset(output_of(job), tmp_path / "moved")
    libraries.become(NOW)
    return job_at(tmp_path / "moved", job)


def job_at(output: Path, job: TokenizationJob, rerun_token: str = "2") -> TokenizationJob:
    """The same data at `output`, asked for anew."""
    return make_job(
        Path(job.spec.source.uris[0]),
        output,
        rerunToken=rerun_token,
        rangeBytes="32Ki",
        tokenizer={"name": None, "uri": str(job.spec.tokenizer.uri)},
        output={"shards": {"tokens": 9000}},
    )


def lose_shard(output: Path) -> None:
    (output / LOST_SHARD).unlink()


def lose_sidecar(output: Path) -> None:
    (output / LOST_SIDECAR).unlink()


def flip_shard(output: Path) -> None:
    data = bytearray((output / LOST_SHARD).read_bytes())
    data[-1] ^= 1
    (output / LOST_SHARD).write_bytes(data)


DAMAGES = {"shard lost": lose_shard, "sidecar lost": lose_sidecar, "shard flipped": flip_shard}


def contents(output: Path) -> dict[str, bytes]:
    return {name: (output / name).read_bytes() for name in files_below(output)}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_moved_dataset_is_repaired_with_the_versions_that_wrote_it_alone(
    damage: Callable[[Path], None], moved: TokenizationJob, job: TokenizationJob, libraries: Libraries
) -> None:
    output = output_of(moved)
    damage(output)
    before = contents(output)
    with pytest.raises(ChangedError) as caught:
        run_job(moved, executor=inline())
    require_both_versions(caught.value)
    assert contents(output) == before

    libraries.become(THEN, **NOT_LOWERED)  # the way out that the message names
    assert run_job(moved, executor=inline()).rebuilt == 1
    assert difference(output, output_of(job)) is None


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_dataset_that_names_no_versions_gets_no_wrong_shard(
    damage: Callable[[Path], None], moved: TokenizationJob, job: TokenizationJob, libraries: Libraries
) -> None:
    output = output_of(moved)
    index = read_index(output)
    del index["run"]["rangesByVersions"], index["run"]["libraries"]
    write_index(output, index)
    damage(output)
    before = contents(output)
    events: list[Event] = []
    with pytest.raises(ChangedError, match=r"TokenizerChanged: .*does not record which library versions") as caught:
        run_job(moved, executor=inline(), on_progress=events.append)
    assert f"tokenizers {NOW}" in caught.value.message
    (warning,) = [event.message for event in events if isinstance(event, Warned)]
    assert "does not record which library versions" in warning
    after = contents(output)
    assert {name: after.get(name) for name in before} == before
    assert (LOST_SHARD in after, LOST_SIDECAR in after) == (LOST_SHARD in before, LOST_SIDECAR in before)

    libraries.become(THEN, **NOT_LOWERED)  # what the first attempt left does not stand in the way
    assert run_job(moved, executor=inline()).rebuilt == 1
    assert difference(output, output_of(job)) is None


def test_an_index_from_before_ranges_had_versions_tells_them_of_its_tokenizer(
    moved: TokenizationJob, libraries: Libraries
) -> None:
    index = read_index(output_of(moved))
    del index["run"]["rangesByVersions"]
    write_index(output_of(moved), index)
    lose_shard(output_of(moved))
    with pytest.raises(ChangedError) as caught:
        run_job(moved, executor=inline())
    require_both_versions(caught.value)


def test_a_whole_dataset_that_was_moved_is_proved_by_any_version_and_repaired_by_its_own(
    moved: TokenizationJob, job: TokenizationJob, libraries: Libraries
) -> None:
    """The plan, samples and epoch that are written then are of versions that did not write the dataset."""
    output = output_of(moved)
    assert run_job(moved, executor=inline()).rebuilt == 0
    lose_shard(output)
    again = job_at(output, job, "3")
    with pytest.raises(ChangedError) as caught:
        run_job(again, executor=inline())
    require_both_versions(caught.value)
    libraries.become(THEN, **NOT_LOWERED)
    assert run_job(again, executor=inline()).rebuilt == 1
    assert difference(output, output_of(job)) is None


def test_a_moved_dataset_is_repaired_by_another_version_that_its_samples_prove(
    job: TokenizationJob, libraries: Libraries, tmp_path: Path
) -> None:
    libraries.become(THEN)
    run_job(job, executor=inline())
    output = move_dataset(output_of(job), tmp_path / "moved")
    shutil.copy(output_of(job) / layout.SAMPLES, output / layout.SAMPLES)
    lose_shard(output)
    libraries.become(NOW)
    (warning,) = warnings_of(job_at(output, job))
    assert "encoded again and gives the same tokens" in warning
    assert difference(output, output_of(job)) is None


def test_a_dataset_in_place_whose_samples_are_lost_is_repaired_with_its_own_versions_alone(
    job: TokenizationJob, libraries: Libraries
) -> None:
    libraries.become(THEN)
    run_job(job, executor=inline())
    (output_of(job) / layout.SAMPLES).unlink()
    lose_shard(output_of(job))
    libraries.become(NOW)
    again = job_at(output_of(job), job)
    with pytest.raises(ChangedError) as caught:
        run_job(again, executor=inline())
    require_both_versions(caught.value)
    libraries.become(THEN)
    assert run_job(again, executor=inline()).rebuilt == 1


def test_a_difference_that_no_sample_shows_is_told_with_both_versions(
    job: TokenizationJob, libraries: Libraries, tmp_path: Path
) -> None:
    """Of two versions of which only one treats a word otherwise, far behind the texts that are sampled."""
    path = tmp_path / "source" / "0.jsonl"
    many = ["a short document"] * 2 * MOST_DOCUMENTS
    path.write_bytes(path.read_bytes() + json_lines([*many, "a word zyxwvu that no sample has"]))
    libraries.become(THEN, zyxwvu="zyxw vu")
    run_job(job, executor=inline())
    output = output_of(job)
    before = contents(output)
    for shard in output.glob("train/*.npy"):
        shard.unlink()
    libraries.become(NOW)
    with pytest.raises(ChangedError) as caught:
        run_job(job_at(output, job), executor=inline())
    require_both_versions(caught.value)
    assert all(before[name] == data for name, data in contents(output).items() if name.endswith(".npy"))


def test_libraries_are_compared_before_damaged_receipts_are_made_again(
    job: TokenizationJob, libraries: Libraries
) -> None:
    libraries.become(THEN, **NOT_LOWERED)
    run_job(job, executor=inline())
    (output_of(job) / layout.range_receipt_path(0, 0)).write_bytes(b"damaged")
    libraries.become(NOW)
    started: list[Task] = []
    with pytest.raises(ChangedError) as caught:
        run_job(job_at(output_of(job), job), executor=inline(started.append))
    require_both_versions(caught.value)
    assert started == []


# ---- verify


def written_then(job: TokenizationJob, libraries: Libraries, **replaced: str) -> str:
    """A dataset that another version wrote, which treats each of these texts otherwise; returns where it is."""
    libraries.become(THEN, **replaced)
    run_job(job, executor=inline())
    libraries.become(NOW)
    return str(output_of(job))


@pytest.mark.parametrize("mode", ["sample", "full"])
def test_verify_does_not_condemn_a_dataset_that_another_version_wrote(
    mode: str, job: TokenizationJob, libraries: Libraries
) -> None:
    uri = written_then(job, libraries, jumped="jum ped")
    with pytest.raises(ChangedError, match=r"TokenizerChanged: .*TokensDiffer: ") as caught:
        verify(uri, mode=mode, processes=1, sample_one_in=1)
    error = caught.value
    assert f"written with tokenizers {THEN}" in error.message
    assert f"this process has tokenizers {NOW}" in error.message
    assert f"pip install 'tokenizers=={THEN}'" in error.next_step
    assert verify(uri, mode="checksums", processes=1).is_clean
    libraries.become(THEN, jumped="jum ped")  # the way out that the message names
    assert verify(uri, mode=mode, processes=1, sample_one_in=1).is_clean


def test_verify_with_another_version_that_gives_the_same_tokens_proves(
    job: TokenizationJob, libraries: Libraries
) -> None:
    report = verify(written_then(job, libraries), mode="full", processes=1)
    assert report.is_clean
    assert report.next_step == ""


def test_verify_with_another_version_reports_damage_and_names_both_versions(
    job: TokenizationJob, libraries: Libraries
) -> None:
    uri = written_then(job, libraries, jumped="jum ped")
    flip_shard(output_of(job))
    report = verify(uri, mode="full", processes=1)
    assert {Fault.SHARD_CHECKSUM, Fault.TOKENS_DIFFER} <= {finding.fault for finding in report.findings}
    assert "run the job again with a new rerunToken" in report.next_step
    for words in (f"tokenizers {THEN}", f"tokenizers {NOW}", f"pip install 'tokenizers=={THEN}'"):
        assert words in report.next_step
    (output_of(job) / LOST_SHARD).write_bytes(b"")  # and nothing of versions where no version can be the cause
    assert THEN not in verify(uri, mode="checksums", processes=1).next_step


def test_verify_reports_what_no_version_of_a_tokenizer_can_change(job: TokenizationJob, libraries: Libraries) -> None:
    uri = written_then(job, libraries)
    table = output_of(job) / layout.QUARANTINE_TABLE
    rows = [{"uri": f"{job.spec.source.uris[0]}/0.jsonl", "position": 0, "record": 1, "reason": "InvalidJson"}]
    table.write_bytes(zstd.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    report = verify(uri, mode="full", processes=1)
    assert Fault.QUARANTINE_DIFFERS in {finding.fault for finding in report.findings}
    assert THEN not in report.next_step


def test_verify_with_the_versions_that_wrote_the_dataset_condemns_it(
    job: TokenizationJob, libraries: Libraries
) -> None:
    written_then(job, libraries, jumped="jum ped")
    libraries.become(THEN)
    report = verify(str(output_of(job)), mode="full", processes=1)
    assert {finding.fault for finding in report.findings} == {Fault.TOKENS_DIFFER}
    assert "keep the dataset and report it" in report.next_step


def test_verify_names_both_versions_where_the_fingerprint_is_another_one(
    job: TokenizationJob, libraries: Libraries
) -> None:
    uri = written_then(job, libraries, SLEEP="slee p")
    with pytest.raises(ChangedError, match=r"TokenizerChanged: .*fingerprint") as caught:
        verify(uri, processes=1)
    assert f"written with tokenizers {THEN}; this process has tokenizers {NOW}" in caught.value.message
    assert f"pip install 'tokenizers=={THEN}'" in caught.value.next_step


def test_verify_of_an_index_that_names_no_versions_says_so(job: TokenizationJob, libraries: Libraries) -> None:
    uri = written_then(job, libraries, jumped="jum ped")
    index = read_index(output_of(job))
    del index["run"]["rangesByVersions"], index["run"]["libraries"]
    write_index(output_of(job), index)
    report = verify(uri, mode="full", processes=1)
    assert {finding.fault for finding in report.findings} == {Fault.TOKENS_DIFFER}
    assert "index.json does not record which library versions wrote the dataset" in report.next_step
    assert "this process has" in report.next_step
    assert f"tokenizers {NOW}" in report.next_step


# ---- pyarrow


@pytest.fixture
def parquet_job(tmp_path: Path) -> TokenizationJob:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(2):
        table = pa.table({"text": take_documents(60_000, first=100 * number, odd=False)})
        pq.write_table(table, source / f"{number}.parquet", row_group_size=10)
    document = train_byte_level([{"content": "<|endoftext|>"}], normalizer={"type": "Lowercase"})
    uri = write_json(tmp_path / "tokenizer.json", document)
    return make_job(source, tmp_path / "out", rangeBytes="8Ki", tokenizer={"name": None, "uri": str(uri)})


class Pyarrow:
    """`pyarrow` of this process, as far as its version goes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._found = versions._parser_versions()
        self.become("20.0.0")

    def become(self, version: str) -> None:
        self._patch.setattr(versions, "_parser_versions", lambda: self._found | {"pyarrow": version})
        load_tokenizer.cache_clear()


@pytest.fixture
def pyarrow(libraries: Libraries, monkeypatch: pytest.MonkeyPatch) -> Pyarrow:
    return Pyarrow(monkeypatch)


def test_another_pyarrow_is_compared_by_what_it_reads(
    parquet_job: TokenizationJob, pyarrow: Pyarrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(parquet_job)
    pyarrow.become("26.0.1")
    answer = version_check._answer
    with monkeypatch.context() as patch:
        patch.setattr(version_check, "_answer", lambda name: "other" if name == "delta" else answer(name))
        with pytest.raises(
            ChangedError, match=r"began with pyarrow 20\.0\.0; .* pyarrow 26\.0\.1, .* Parquet"
        ) as caught:
            run_job(parquet_job, executor=inline())
    assert caught.value.reason == "TokenizerChanged"
    assert "pip install 'pyarrow==20.0.0'" in caught.value.next_step
    (warning,) = warnings_of(parquet_job)
    assert "pyarrow 20.0.0 and continues with pyarrow 26.0.1" in warning
    assert "small Parquet files give the same texts" in warning


def test_a_pyarrow_that_older_samples_say_nothing_of_is_not_called_proven(
    parquet_job: TokenizationJob, pyarrow: Pyarrow
) -> None:
    begin(parquet_job)
    path = output_of(parquet_job) / layout.SAMPLES
    record = load_record(zstd.decompress(path.read_bytes()))
    del record["parquet"]
    path.write_bytes(zstd.compress(dump_record(record)))
    pyarrow.become("26.0.1")
    (warning,) = warnings_of(parquet_job)
    assert "pyarrow was not compared" in warning
    assert "small Parquet files" not in warning


def test_another_pyarrow_decides_nothing_of_a_source_without_parquet(
    job: TokenizationJob, pyarrow: Pyarrow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version_check, "_answer", refuse_to_read)
    begin(job)
    pyarrow.become("26.0.1")
    assert warnings_of(job) == []
    moved = job_at(move_dataset(output_of(job), tmp_path / "moved"), job)
    lose_shard(output_of(moved))
    pyarrow.become("27.0.0")
    assert warnings_of(moved) == []
    assert verify(str(output_of(moved)), mode="full", processes=1).is_clean


@pytest.mark.parametrize("suffix", ["", ".jsonl", ".txt.gz"])
def test_a_source_that_is_not_named_parquet_imports_no_pyarrow(
    suffix: str, job: TokenizationJob, libraries: Libraries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version_check, "_answer", refuse_to_read)
    folder = Path(job.spec.source.uris[0])
    for path in folder.iterdir():
        path.rename(folder / f"{path.stem}{suffix}")
    begin(job)
    store = LocalStore(output_of(job))
    assert Samples.from_bytes(store.read(layout.SAMPLES), store.uri).parquet == ""


def test_a_file_that_may_be_parquet_is_compared_by_the_version_of_pyarrow(
    job: TokenizationJob, pyarrow: Pyarrow
) -> None:
    for path in Path(job.spec.source.uris[0]).iterdir():
        path.rename(path.with_suffix(""))
    begin(job)
    pyarrow.become("26.0.1")
    (warning,) = warnings_of(job)
    assert "pyarrow was not compared" in warning


def refuse_to_read(name: str) -> object:
    raise AssertionError(f"{name} is read, which imports pyarrow")


def test_a_moved_dataset_of_parquet_is_repaired_with_its_own_pyarrow_alone(
    parquet_job: TokenizationJob, pyarrow: Pyarrow, tmp_path: Path
) -> None:
    run_job(parquet_job, executor=inline())
    output = move_dataset(output_of(parquet_job), tmp_path / "moved")
    lose_shard(output)
    again = make_job(
        Path(parquet_job.spec.source.uris[0]),
        output,
        rerunToken="2",
        tokenizer={"name": None, "uri": str(parquet_job.spec.tokenizer.uri)},
    )
    pyarrow.become("26.0.1")
    with pytest.raises(ChangedError, match=r"began with pyarrow 20\.0\.0; .* pyarrow 26\.0\.1, and tokjob has no"):
        run_job(again, executor=inline())
    pyarrow.become("20.0.0")
    assert run_job(again, executor=inline()).rebuilt == 1


ENCODINGS = {
    "plain": ("PLAIN", "UNCOMPRESSED"),
    "plain with nulls": ("PLAIN", "UNCOMPRESSED"),
    "bytes that are not UTF-8": ("PLAIN", "UNCOMPRESSED"),
    "dictionary": ("RLE_DICTIONARY", "UNCOMPRESSED"),
    "dictionary with nulls": ("RLE_DICTIONARY", "UNCOMPRESSED"),
    "delta lengths": ("DELTA_LENGTH_BYTE_ARRAY", "UNCOMPRESSED"),
    "delta": ("DELTA_BYTE_ARRAY", "UNCOMPRESSED"),
    "snappy": ("PLAIN", "SNAPPY"),
    "zstd": ("PLAIN", "ZSTD"),
    "struct": ("PLAIN", "UNCOMPRESSED"),
}


def test_every_encoding_of_texts_is_among_the_probes_files() -> None:
    found = {}
    for name in version_check._FILES:
        column = pq.ParquetFile(io.BytesIO(version_check.sample_file(name))).metadata.row_group(0).column(0)
        (encoding,) = set(column.encodings) & {wanted for wanted, _ in ENCODINGS.values()} - (
            {"PLAIN"} if "RLE_DICTIONARY" in column.encodings else set()
        )
        found[name] = (encoding, column.compression)
    assert found == ENCODINGS


@pytest.mark.parametrize("name", ENCODINGS)
def test_the_texts_of_the_probes_files_are_read(name: str) -> None:
    texts, refused = version_check._answer(name)
    assert texts
    assert {reason for _, reason in refused} == {
        "plain with nulls": {"NullText"},
        "dictionary with nulls": {"NullText"},
        "struct": {"NullText"},
        "bytes that are not UTF-8": {"InvalidUtf8"},
    }.get(name, set())


# ---- behaviour


def test_what_a_reference_does_is_found_out_once_for_each_host_and_version(
    job: TokenizationJob, libraries: Libraries
) -> None:
    spec = make_spec(uri=Path(str(job.spec.tokenizer.uri)))
    told: list[str] = []
    first = behaviour.behaviour_of(load_tokenizer(spec), lambda: told.append("first"))
    assert behaviour.behaviour_of(load_tokenizer(spec), lambda: told.append("again")) == first
    libraries.become(THEN, **NOT_LOWERED)
    other = behaviour.behaviour_of(load_tokenizer(spec), lambda: told.append("other version"))
    assert told == ["first", "other version"]
    assert sum(a != b for a, b in zip(first.digests, other.digests, strict=True)) == 1


LOWERED = [0xA7CE, 0xA7D2, 0xA7D4, *range(0x16EA0, 0x16EB9)]
"""Code points that Lowercase treats otherwise in tokenizers 0.22.0 and 0.23.3, found by trying every one."""

NUMERIC = [*range(0x11DE0, 0x11DEA), *range(0x16FF4, 0x16FF7)]
"""The same for Digits."""


def test_every_code_point_that_two_real_versions_treat_differently_is_shown() -> None:
    points = {ord(c) for _, texts in behaviour._code_point_chapters() for text in texts for c in text}
    assert set(LOWERED + NUMERIC) <= points
    assert {*range(0x3400), *range(0xA000, 0xAC00), *range(0xF900, 0x17000), *range(0x18800, 0x20000)} <= points


# ---- versions


@pytest.mark.parametrize(
    ("was", "now", "changes"),
    [
        ("", "regex 1", []),
        ("regex 1, tiktoken 2", "regex 1, tiktoken 2", []),
        ("regex 1, tiktoken 2", "regex 2, tiktoken 2", [("regex", "1", "2")]),
        ("fastokens 1, regex 1", "fastokens 2, regex 1", []),
        ("orjson 3.1, pyarrow 20", "orjson 3.1", []),
    ],
)
def test_versions_are_compared_by_what_both_name(was: str, now: str, changes: list[tuple[str, str, str]]) -> None:
    assert find_changes(was, now) == changes


DECIDING = ("tokenizers", "tiktoken", "sentencepiece", "regex", "orjson", "pyarrow", "huggingface_hub", "fastokens")


def project() -> dict[str, Any]:
    return tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("library", DECIDING)
def test_a_library_that_decides_bytes_has_an_upper_bound_which_admits_the_one_in_use(library: str) -> None:
    extras = project()["optional-dependencies"].values()
    lines = [*project()["dependencies"], *(line for extra in extras for line in extra)]
    (wanted,) = {str(Requirement(line)) for line in lines if Requirement(line).name == library}
    limits = Requirement(wanted).specifier
    assert any(limit.operator in ("<", "==") for limit in limits), wanted
    constraints = (CHECKOUT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    (used,) = [line.partition("==")[2] for line in constraints if line.partition("==")[0] == library]
    assert limits.contains(used)
    if library == "tokenizers":
        assert not limits.contains("1.0.0")
