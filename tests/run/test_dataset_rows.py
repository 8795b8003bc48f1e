"""Rows as data loaders read them: by threads, forks and other processes, near and far, with the masks of a loop."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.engine.inline import inline
from support.forks import exit_code_of_fork
from support.runs import TOKJOB, files_below, make_job, run_command
from support.stores.gcs_fake import FakeGcs
from tokenization_worker import open_dataset, run_job
from tokenization_worker.dataset import Rows, token_stream
from tokenization_worker.dataset.parts_file import PartsFile
from tokenization_worker.errors import DataError

LENGTH = 32
TEXTS = ["", "a", "bc" * 40, "", "def", "x" * 31, "ghij" * 25, "k", "lm", ""] * 4


def make_dataset(folder: Path, delimiter: dict[str, Any] | None = None, shard_rows: int = 3) -> Path:
    """Rows of bytes, of two files that each begin a new row."""
    for number in range(2):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS[number:])
        (folder / f"{number}.jsonl").write_text(lines, encoding="utf-8")
    job = make_job(
        folder / "*.jsonl",
        folder / "out",
        {"tokenizer": {"name": "bytes", **({} if delimiter is None else {"delimiter": delimiter})}},
        output={
            "formats": ["Npy", "Raw"],
            "sequence": {"length": LENGTH, "scope": "File", "pad": {"id": 300}},
            "shards": {"sequences": shard_rows},
        },
    )
    run_job(job, executor=inline())
    return folder / "out"


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(tmp_path_factory.mktemp("rows"))


def loss_mask_of(row: list[int], documents: list[tuple[int, int] | None], position: str) -> list[bool]:
    """One target after the other. `documents`: of each token which one it is of, and its place there; None: padding."""
    counts = []
    for before, after in pairwise(documents):
        if after is None:
            counts.append(False)
        elif before is not None and before[0] == after[0]:
            counts.append(True)
        else:
            counts.append(position == "Before" and after[1] == 0)
    assert len(counts) == len(row) - 1
    return counts


@pytest.mark.parametrize("position", ["Before", "After", "None"])
def test_masks_of_a_dataset_are_those_of_a_loop_over_its_documents(tmp_path: Path, position: str) -> None:
    output = make_dataset(tmp_path, {"position": position})
    end = {"Before": ([256], []), "After": ([], [256]), "None": ([], [])}[position]
    rows = open_dataset(output)["train"].rows
    row = 0
    for number in range(2):
        owners: list[tuple[int, int]] = []
        tokens: list[int] = []
        for document, text in enumerate(TEXTS[number:]):
            own = [*end[0], *text.encode(), *end[1]]
            owners += [(document, place) for place in range(len(own))]
            tokens += own
        for at in range(0, len(tokens), LENGTH):
            padding = max(0, at + LENGTH - len(tokens))
            places = [*owners[at : at + LENGTH], *[None] * padding]
            expected = tokens[at : at + LENGTH] + [300] * padding
            assert rows[row].tolist() == expected
            assert rows.loss_mask(row).tolist() == loss_mask_of(expected, places, position)
            owner = [None if place is None else place[0] for place in places]
            starts = [n for n in range(LENGTH) if owner[n] is not None and (not n or owner[n] != owner[n - 1])]
            ids = [sum(start <= n for start in starts) if places[n] else 0 for n in range(LENGTH)]
            assert rows.segment_ids(row).tolist() == ids
            positions = [n - max(start for start in starts if start <= n) if places[n] else 0 for n in range(LENGTH)]
            assert rows.positions(row).tolist() == positions
            assert rows.cu_seqlens(row).tolist() == [*starts, LENGTH - padding]
            row += 1
    assert row == len(rows)


def test_rows_are_sent_as_the_name_of_their_dataset(tmp_path: Path) -> None:
    """However many shards there are: a loader gets this once for each of its processes."""
    rows = open_dataset(make_dataset(tmp_path, shard_rows=1))["train"].rows
    assert len(rows) > 50
    rows.parts(5), rows[9], rows.examples()[3]
    kept = pickle.dumps(rows.examples())
    assert len(kept) < 5000
    again = pickle.loads(kept)
    assert [again.rows[number].tolist() for number in range(len(rows))] == rows[:].tolist()
    order = rows.order(seed=1, epoch=2)[7:]
    assert len(pickle.dumps(order)) < 300
    assert list(pickle.loads(pickle.dumps(order))) == list(order)


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads take turns a thousand times as often as they do, so that they meet in the middle of each other's work."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(before / 1000)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_threads")
def test_threads_and_forks_read_the_same_rows_and_parts(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where few files may be open at once."""
    monkeypatch.setattr(token_stream, "most_maps", lambda: 2)
    expected = list(map(read_example, every_row(output)))
    rows = open_dataset(output)["train"].rows

    def is_right(row: int) -> bool:
        return repr(rows.example(row)) == expected[row]

    numbers = np.random.default_rng(0).integers(0, len(rows), size=400).tolist()
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(is_right, numbers)
        assert exit_code_of_fork(lambda: all(map(is_right, numbers))) == 0, "forked while threads read"
        assert all(answers)
    assert exit_code_of_fork(lambda: all(map(is_right, numbers))) == 0


def every_row(output: Path) -> list[tuple[Rows, int]]:
    rows = open_dataset(output)["train"].rows
    return [(rows, number) for number in range(len(rows))]


def read_example(of: tuple[Rows, int]) -> str:
    return repr(of[0].example(of[1]))


def test_a_process_that_starts_anew_reads_the_same(output: Path) -> None:
    asked = every_row(output)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert list(pool.map(read_example, asked)) == list(map(read_example, asked))


def test_few_files_stay_open(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of parts as of tokens; none stay open when rows and dataset are gone."""

    def opened() -> int:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        return len({line.split()[-1] for line in lines if str(output) in line})

    before = opened()
    monkeypatch.setattr(token_stream, "most_maps", lambda: 6)
    dataset = open_dataset(output)
    rows = dataset["train"].rows
    assert len(dataset["train"].shards) > 10
    for number in range(len(rows)):
        rows.example(number)
    assert opened() - before == 6 + 3
    del dataset, rows
    assert opened() == before


def answers_of(uri: str, number: int) -> list[str]:
    """The examples of the rows of one shard."""
    split = open_dataset(uri)["train"]
    first = split.shards[number].start // LENGTH
    return [repr(split.rows.example(row)) for row in range(first, first + split.shards[number].rows)]


@pytest.mark.parametrize("place", ["local", "gs"])
def test_no_changed_bit_of_a_file_of_parts_changes_an_example(
    output: Path, tmp_path: Path, fake: FakeGcs, place: str
) -> None:
    """300 bits, one after the other, anywhere in the files of parts: each one is refused."""
    copy = tmp_path / "out"
    shutil.copytree(output, copy)
    for path in files_below(copy):
        fake.put(f"out/{path}", (copy / path).read_bytes())
    uri = str(copy) if place == "local" else "gs://bucket/out"
    shards = open_dataset(uri)["train"].shards
    chance = np.random.default_rng(7)
    for number in chance.integers(0, len(shards), size=300).tolist():
        path = shards[number].parts.path
        data = bytearray((output / path).read_bytes())
        bit = int(chance.integers(0, 8 * len(data)))
        data[bit // 8] ^= 1 << bit % 8
        (copy / path).write_bytes(data)
        fake.put(f"out/{path}", bytes(data))
        with pytest.raises(DataError, match=rf"ShardDamaged: {uri}/{path} (is corrupt: its CRC32C|has another header)"):
            answers_of(uri, number)
        (copy / path).write_bytes((output / path).read_bytes())
        fake.put(f"out/{path}", (output / path).read_bytes())
    for number in range(len(shards)):
        assert len(answers_of(uri, number)) == shards[number].rows


def test_a_file_of_parts_is_checked_once_in_a_process(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it is closed and opened again meanwhile."""
    checked: list[int] = []
    check = PartsFile.check
    monkeypatch.setattr(PartsFile, "check", lambda file, crc32c: (checked.append(crc32c), check(file, crc32c))[1])
    monkeypatch.setattr(token_stream, "most_maps", lambda: 4)
    split = open_dataset(output)["train"]
    for row in [*range(len(split.rows))] * 2:
        split.rows.example(row)
    assert checked == [shard.parts.crc32c for shard in split.shards]


MANY_GROUPS = """
import os, resource, sys
from tokenization_worker import open_dataset

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
datasets = [open_dataset(sys.argv[1]) for _ in range(2)]
groups = [part.rows for dataset in datasets for part in dataset["train"].groups.values()]
for number in range(max(map(len, groups))):
    for rows in groups:
        if number < len(rows):
            rows.example(number)
maps = [line.split()[-1] for line in open("/proc/self/maps") if sys.argv[1] in line]
print(len({path for path in maps if "/parts/" not in path}), len({path for path in maps if "/parts/" in path}))
"""


def test_a_loader_of_many_groups_stays_below_the_limit_of_open_files(tmp_path: Path) -> None:
    """Each group, and each dataset, is a stream of its own; all of them share a quarter and an eighth of the limit."""
    groups = []
    for number in range(12):
        source = tmp_path / f"{number}.jsonl"
        source.write_text(json.dumps({"text": "ab" * 150}) + "\n", encoding="utf-8")
        groups.append({"name": f"g{number}", "uris": [str(source)]})
    output = {
        "path": "{group}/{split}_{index:06d}",
        "sequence": {"length": LENGTH},
        "shards": {"sequences": 1},
    }
    tokenizer = {"tokenizer": {"name": "bytes"}}
    source_block = {"uris": None, "groups": groups}
    run_job(make_job(tmp_path, tmp_path / "out", tokenizer, source=source_block, output=output), executor=inline())
    done = run_command([sys.executable, "-c", MANY_GROUPS, str(tmp_path / "out")])
    assert done.returncode == 0, done.stderr
    shards, parts = map(int, done.stdout.split())
    assert 0 < shards <= 16
    assert 0 < parts <= 8


def test_rows_in_a_bucket_are_read_by_ranges(output: Path, fake: FakeGcs) -> None:
    """A row is a range of its shard and one of its parts; no shard, and no file of parts, is read whole."""
    for path in files_below(output):
        fake.put(f"out/{path}", (output / path).read_bytes())
    near, far = open_dataset(output)["train"].rows, open_dataset("gs://bucket/out")["train"].rows
    expected = [repr(near.example(number)) for number in range(len(near))]
    assert [repr(far.example(number)) for number in range(len(far))] == expected
    assert far[3:9].tolist() == near[3:9].tolist()
    fake.requests.clear()
    fake.ranges.clear()
    assert [repr(far.example(number)) for number in reversed(range(len(far)))] == expected[::-1]
    gets = [request for request in fake.requests if "alt=media" in request]
    assert len(gets) == len(fake.ranges) == 2 * len(far), "two ranges each, and no object whole"
    of_tokens = [end - start for (start, end), get in zip(fake.ranges, gets, strict=True) if "parts" not in get]
    assert of_tokens == [LENGTH * 2] * len(far)
    again = pickle.loads(pickle.dumps(far))
    assert repr(again.example(1)) == expected[1]


REFUSED = {
    "a seed that is text": (lambda rows: rows.order(seed="a", epoch=0), "seed: expected a whole number, found 'a'"),
    "a seed that is a bool": (lambda rows: rows.order(seed=True, epoch=0), "seed: expected a whole number, found True"),
    "no epoch": (lambda rows: rows.order(seed=0, epoch=None), "epoch: expected a whole number, found None"),
    "no world": (lambda rows: rows.order(seed=0, epoch=0, world=0), "world: found 0, expected 1 or more"),
    "a rank below 0": (lambda rows: rows.order(seed=0, epoch=0, rank=-1), "rank: found -1, expected 0 or more"),
    "half a place": (lambda rows: rows.order(seed=0, epoch=0)[1.5], "an order: expected a whole number or a slice"),
    "masks of a slice": (lambda rows: rows.segment_ids(slice(2)), "row: expected a whole number, found slice(None, 2"),
    "an example of text": (lambda rows: rows.example("7"), "row: expected a whole number, found '7'"),
    "rows by text": (lambda rows: rows["7"], "rows of 'train': expected a whole number or a slice, found '7'"),
}


@pytest.mark.parametrize(("ask", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_row_and_no_number_is_named(ask: Callable[[Any], object], words: str, output: Path) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(words)):
        ask(open_dataset(output)["train"].rows)


def test_an_order_prints_what_it_is_made_of(output: Path) -> None:
    rows = open_dataset(output)["train"].rows
    order = rows.order(seed=np.int64(2**40), epoch=2, rank=1, world=2)
    assert repr(order[3:]) == "Order(rows=58, seed=1099511627776, epoch=2, places=range(7, 59, 2))"
    assert list(order) == list(rows.order(seed=2**40, epoch=2, rank=1, world=2))


@pytest.mark.parametrize("number", [-1, 2, 99])
def test_a_source_file_that_is_not_there_is_named(number: int, output: Path) -> None:
    dataset = open_dataset(output)
    assert dataset.source_uri(np.uint32(1)) == str(output.parent / "1.jsonl")
    with pytest.raises(IndexError, match=f"file {number}: expected 0 <= file < 2, the source files of {output}"):
        dataset.source_uri(number)
    with pytest.raises(TypeError, match="file: expected a whole number, found 'a'"):
        dataset.source_uri("a")  # type: ignore[arg-type]
    with pytest.raises(KeyError, match=f"source file 'a': expected one of the 2 source files of {output}"):
        dataset.source_file("a")


def show(output: Path, *arguments: str) -> str:
    done = run_command([str(TOKJOB), "show", str(output), *arguments])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_show_marks_parts_and_padding(output: Path) -> None:
    """Of every row: what its parts are, between which tokens, and what is padding; together they are the texts."""
    shown = [json.loads(line) for line in show(output, "--row", "0", "--count", "1000", "--json").splitlines()]
    rows = open_dataset(output)["train"].rows
    assert [(row["split"], row["row"]) for row in shown] == [("train", number) for number in range(len(rows))]
    assert [row["tokens"] for row in shown] == rows[:].tolist()
    texts: dict[tuple[str, int], str] = {}
    for row in shown:
        ends = [0, *(part["end"] for part in row["parts"])]
        assert [part["start"] for part in row["parts"]] == ends[:-1]
        assert row["padding"] == LENGTH - ends[-1] == row["tokens"].count(300)
        for part in row["parts"]:
            before = texts.get((part["uri"], part["position"]))
            assert part["offset"] == (0 if before is None else 1 + len(before))
            texts[part["uri"], part["position"]] = (before or "") + part["text"]
    assert list(texts.values()) == [*TEXTS, *TEXTS[1:]]


def test_show_prints_a_line_for_each_part(output: Path) -> None:
    source = output.parent / "0.jsonl"
    assert show(output, "--row", "28") == (
        "── train row 28  32 tokens  4 parts\n"
        f"── [0, 10)  {source}  position 1,237  after 91 tokens of the document\n"
        "ijghijghij\n"
        f"── [10, 12)  {source}  position 1,350\n"
        "k\n"
        f"── [12, 15)  {source}  position 1,364\n"
        "lm\n"
        f"── [15, 16)  {source}  position 1,379\n"
        "\n"
        "── [16, 32)  padding: 16 times token 300\n"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--row", "58"], "RowUnknown: split 'train' of {output} has no row 58\n  next: give a number from 0 to 57"),
        (["--row", "1", "--token", "7"], "--token shows documents, and --row shows rows: give one of them"),
        (
            ["--row", "1", "--quarantined"],
            "--quarantined lists all unusable documents: --split, --group, --token, --row,",
        ),
    ],
)
def test_rows_that_cannot_be_shown_are_refused(output: Path, arguments: list[str], words: str) -> None:
    done = run_command([str(TOKJOB), "show", str(output), *arguments])
    assert done.returncode == 2
    assert words.format(output=output) in done.stderr


def test_a_dataset_without_rows_shows_none(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "words"}\n', encoding="utf-8")
    run_job(make_job(tmp_path / "a.jsonl", tmp_path / "out", {"tokenizer": {"name": "bytes"}}), executor=inline())
    done = run_command([str(TOKJOB), "show", str(tmp_path / "out"), "--row", "0"])
    assert done.returncode == 2
    assert "RowUnknown: split 'train' of" in done.stderr
    assert "show its documents instead, without --row; a job with output.sequence makes rows" in done.stderr


def test_the_begin_of_another_document_is_not_learned_where_ends_are(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one two"}\n' * 9, encoding="utf-8")
    delimiter = {"begin": "<|fim_prefix|>", "end": "<|endoftext|>"}
    tokenizer = {"tokenizer": {"name": "cl100k_base", "delimiter": delimiter}}
    output = {"sequence": {"length": 10}}
    run_job(make_job(tmp_path / "a.jsonl", tmp_path / "out", tokenizer, output=output), executor=inline())
    rows = open_dataset(tmp_path / "out")["train"].rows
    begin, end = 100258, 100257
    assert rows[0].tolist() == [begin, 606, 1403, end] * 2 + [begin, 606]
    assert rows.loss_mask(0).tolist() == [True, True, True, False] * 2 + [True]
