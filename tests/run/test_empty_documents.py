"""Millions of empty documents fit into a small file: each has its delimiter, and costs next to nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import oracle
from support.engine.inline import inline
from support.runs import make_job
from tokenization_worker.output.ledger.version_samples import MOST_DOCUMENTS, SampledText, choose_texts
from tokenization_worker.pipelines.tokenize.ranges import block_writer
from tokenization_worker.readers.lines import text
from tokenization_worker.readers.lines.record_splitter import split_runs
from tokenization_worker.readers.lines.text import read_text
from tokenization_worker.run.run import run_job
from tokenization_worker.tokenizers.base import Encoded, join_encoded
from tokenization_worker.tokenizers.tiktoken_engine import TiktokenEngine
from tokenization_worker.verification.files import encode
from tokenization_worker.verification.verify import verify

MANY = 20_000
NOTHING = np.empty(0, np.uint32)


# --- what they become


@pytest.mark.parametrize("position", ["Before", "After", "None"])
def test_empty_and_other_documents_are_tokenized_and_verified_as_they_stand(position: str, tmp_path: Path) -> None:
    documents = [*[""] * 70, "a", "", "", "b c", "", " ", *[""] * 300, "é", *[""] * 9]
    source = tmp_path / "src"
    source.mkdir()
    (source / "a.txt").write_text("".join(document + "<>" for document in documents))
    job = make_job(
        source,
        tmp_path / "out",
        source={"format": "Text", "documentSeparator": "<>"},
        tokenizer={"delimiter": {"position": position}},
    )
    finished = run_job(job, executor=inline())
    assert finished.documents_written == len(documents)
    (shard,) = (tmp_path / "out").rglob("*.npy")
    assert np.load(shard).tolist() == oracle.delimited("gpt2", documents, position)
    assert verify(str(tmp_path / "out"), mode="full", processes=1).findings == ()


@given(
    parts=st.lists(st.sampled_from(["x", "y", "<>", "<><>", "<", ">", "<>" * 70, "\xff"]), max_size=12),
    separator=st.sampled_from(["<>", "x", "<"]),
    block=st.integers(1, 300),
)
def test_runs_of_separators_are_the_empty_documents_that_they_are_one_by_one(
    parts: list[str], separator: str, block: int
) -> None:
    content, cut = "".join(parts).encode("latin-1"), separator.encode()
    pieces = content.split(cut)
    positions = [0]
    for piece in pieces:
        positions.append(positions[-1] + len(piece) + len(cut))
    whole = pieces if pieces[-1] else pieces[:-1]
    expected = [(at, piece.decode()) for at, piece in zip(positions, whole, strict=False) if b"\xff" not in piece]

    found, records, other = [], 0, 0
    blocks = iter([content[at : at + block] for at in range(0, len(content), block)])
    for batch in read_text(split_runs(blocks, 0, -1, cut, 2000), cut, 2000):
        found += zip(batch.positions.tolist(), batch.texts, strict=True)
        records += batch.records
        other += batch.other_bytes
    assert found == expected
    assert records == len(whole)
    assert other == len(content) - sum(map(len, whole))


# --- what they cost


def test_a_reader_looks_once_at_many_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    original = text._end_of_repeated

    def counted(*arguments: Any) -> int:
        nonlocal looks
        looks += 1
        return original(*arguments)

    monkeypatch.setattr(text, "_end_of_repeated", counted)
    batches = list(read_text(split_runs(iter([b"\n" * MANY]), 0, -1, b"\n", 1000), b"\n", 1000))
    assert sum(len(batch.texts) for batch in batches) == MANY
    assert looks == 1


class Encoding:
    """A token for each text that it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode_to_numpy(self, asked: str, disallowed_special: Sequence[str]) -> Any:
        self.asked.append(asked)
        return np.array([7], np.uint32)


def test_tiktoken_is_not_asked_for_them() -> None:
    encoding = Encoding()
    engine = TiktokenEngine(encoding, "")  # type: ignore[arg-type]
    ids, ends = engine.encode(["", "a", *[""] * 5, "b", ""])
    assert encoding.asked == ["a", "b"]
    assert ids.tolist() == [7, 7]
    assert ends.tolist() == [0, 1, 1, 1, 1, 1, 1, 2, 2]
    for texts in ([""] * 3, []):
        ids, ends = engine.encode(texts)
        assert (ids.dtype, ids.tolist(), ends.dtype, ends.tolist()) == (np.uint32, [], np.int64, [0] * len(texts))


def test_a_plan_looks_at_no_more_texts_than_it_keeps() -> None:
    looked_at = 0

    def texts() -> Iterator[SampledText]:
        nonlocal looked_at
        for _ in range(MANY):
            looked_at += 1
            yield SampledText("", "", NOTHING)

    assert len(choose_texts([texts(), texts()])) == MOST_DOCUMENTS
    assert looked_at <= MOST_DOCUMENTS + 2


def test_their_stream_is_looked_up_once_for_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    original = block_writer.stream_of

    def counted(document: bytes, thresholds: list[int]) -> int:
        asked.append(document)
        return original(document, thresholds)

    monkeypatch.setattr(block_writer, "stream_of", counted)
    source = tmp_path / "src"
    source.mkdir()
    (source / "a.txt").write_bytes(b"\n" * MANY + b"".join(b"%d\n" % number for number in range(30)))
    splits = [{"name": "val", "share": "30%"}, {"name": "train"}]
    separated = {"format": "Text", "documentSeparator": "\n"}
    shards = {"splits": splits, "shards": {"tokens": 8000}}
    job = make_job(source, tmp_path / "out", source=separated, tokenizer={"name": "bytes"}, output=shards)
    assert run_job(job, executor=inline()).documents_written == MANY + 30
    assert 30 <= len(asked) <= 35


@dataclass
class Reference:
    """An engine that gives an empty text the tokens that a test says it gives."""

    of_nothing: tuple[int, ...] = ()

    def encode(self, texts: Sequence[str]) -> Encoded:
        return join_encoded([np.array([*each.encode()] if each else self.of_nothing, np.uint32) for each in texts])


@pytest.mark.parametrize(
    ("delimiters", "expected"),
    [
        ((9, None), [[9], [9, 97], [9]]),
        ((None, 9), [[9], [97, 9], [9]]),
        ((8, 9), [[8, 9], [8, 97, 9], [8, 9]]),
        ((None, None), [[], [97], []]),
    ],
)
def test_verify_turns_none_of_them_back(
    delimiters: tuple[int | None, int | None], expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    restored: list[int] = []

    def restore(ids: list[int]) -> bytes:
        restored.append(len(ids))
        return bytes(ids)

    facts: Any = SimpleNamespace(tokenizer=None, begin_id=delimiters[0], end_id=delimiters[1], longest_document=None)
    tokenizer = SimpleNamespace(reference=Reference(), restore=restore, drop=None)
    monkeypatch.setattr(encode, "load_tokenizer", lambda spec: tokenizer)
    encoder = encode.Encoder(facts)
    found = encoder.encode("f", [0] * 3, ["", "a", ""])
    assert [(item.tokens.tolist(), item.lost) for item in found] == [(tokens, None) for tokens in expected]
    del restored[:]
    assert len(encoder.encode("f", [0] * MANY, [""] * MANY)) == MANY
    assert restored == []

    tokenizer.reference.of_nothing = (120,)  # what no engine may do
    assert [item.lost for item in encoder.encode("f", [0], [""])] == [("", "x")]
