"""Text that a tokenizer loses in few documents only, which no plan samples: the run ends, and `verify` says so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.corpus import json_lines
from support.engine.inline import inline
from support.runs import make_job
from support.tokenizer_models import make_spec, train_byte_level, write_json, write_letters
from tokenization_worker.api.data import Delimiters
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.errors import SpecError
from tokenization_worker.pipelines.tokenize.ranges import block_writer, encode
from tokenization_worker.pipelines.tokenize.ranges.encode import Encoder, LosesText
from tokenization_worker.planning.sampled_files import SAMPLED_BYTES
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.tokenizers.base import Encoded, EngineMismatch, Tokenizer
from tokenization_worker.tokenizers.checks.sample import SAMPLE_ONE_IN
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.verification.report import Fault, VerifyMode
from tokenization_worker.verification.verify import verify

pytestmark = pytest.mark.usefixtures("few_code_points")

BEFORE_LINKS = r"https?://\S+|\S+|\s+(?!https?://)"
"""Loses the blank before a link, and nothing else."""

LOST = "see https://a.b/1 end"
KEPT = "seehttps://a.b/1 end"
HEAD = ["plain words of a document, and more of them. " * 500] * (2 * SAMPLED_BYTES // 22_000)
"""More than a plan looks at."""


def with_pattern(ranks: Path) -> dict[str, Any]:
    return {"name": None, "uri": str(ranks), "pattern": BEFORE_LINKS, "specialTokens": {"<|endoftext|>": 5000}}


def from_file(folder: Path) -> dict[str, Any]:
    """A tokenizer.json that leaves out the blanks before a link."""
    split = {"type": "Split", "pattern": {"Regex": r"\s+(?=https?://)"}, "behavior": "Removed", "invert": False}
    levels = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    document = train_byte_level(
        [{"content": "<|endoftext|>"}], pre_tokenizer={"type": "Sequence", "pretokenizers": [split, levels]}
    )
    return {"name": None, "uri": str(write_json(folder / "tokenizer.json", document))}


def job_of(tmp_path: Path, tokenizer: dict[str, Any], texts: Sequence[str]) -> TokenizationJob:
    source = tmp_path / "source"
    source.mkdir(exist_ok=True)
    (source / "a.jsonl").write_bytes(json_lines(list(texts)))
    return make_job(source, tmp_path / "out", tokenizer=tokenizer)


def place_of(texts: Sequence[str], text: str) -> int:
    return len(json_lines(list(texts[: texts.index(text)])))


@pytest.mark.parametrize("engine", ["reference", "fastokens"])
def test_one_document_that_a_pattern_shortens_ends_the_run(engine: Any, ranks: Path, tmp_path: Path) -> None:
    texts = [*HEAD, "naïve – 東京 https:/", LOST, "the last one"]
    job = job_of(tmp_path, with_pattern(ranks), texts)
    with pytest.raises(SpecError) as caught:
        run_job(job, options=Options(engine=engine), executor=inline())
    error = caught.value
    assert error.reason == "TokenizerLosesText"
    assert error.message.startswith(f"tokenizer.pattern: {BEFORE_LINKS!r} does not cover all text: ")
    assert f"the document of {tmp_path}/source/a.jsonl at {place_of(texts, LOST):,}" in error.message
    assert repr(LOST) in error.message
    assert repr(KEPT) in error.message
    assert not (tmp_path / "out" / "index.json").exists()


def test_one_document_that_a_file_shortens_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        run_job(job_of(tmp_path, from_file(tmp_path), [*HEAD, LOST]), executor=inline())
    assert caught.value.reason == "TokenizerLosesText"
    assert "tokenizer.uri" in caught.value.message
    assert repr(KEPT) in caught.value.message


def test_every_document_counts_where_text_can_be_lost_and_a_sample_where_it_cannot(ranks: Path, tmp_path: Path) -> None:
    """The second kind has all of the text in its pieces, and a token for every byte."""
    losing = [make_spec(uri=ranks, pattern=BEFORE_LINKS, specials={"<|endoftext|>": 5000}), from_file(tmp_path)["uri"]]
    whole = write_json(tmp_path / "whole.json", train_byte_level([{"content": "<|endoftext|>"}]))
    (tokenizer, file) = (load_tokenizer(losing[0]), load_tokenizer(make_spec(uri=Path(losing[1]))))
    for each in (tokenizer, file):
        assert each.byte_lengths is not None
        text = "naïve – 東京 \U0001f600 <|endoftext|>"
        assert each.byte_lengths[each.reference.encode([text]).ids].sum() == len(text.encode())
    for spec in (make_spec("gpt2"), make_spec("bytes"), make_spec(uri=whole)):
        assert load_tokenizer(spec).byte_lengths is None
        assert load_tokenizer(spec).restore is not None


def test_a_vocabulary_that_lacks_bytes_counts_as_one_that_loses_text(tmp_path: Path) -> None:
    document = train_byte_level([{"content": "<|endoftext|>"}])
    model = document["model"]
    model["vocab"] = {"zz" if token == "Z" else token: number for token, number in model["vocab"].items()}
    model["merges"] = [pair for pair in model["merges"] if "Z" not in "".join(pair)]
    tokenizer = load_tokenizer(make_spec(uri=write_json(tmp_path / "tokenizer.json", document)))
    assert tokenizer.byte_lengths is not None


def without_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs as they were before they looked at every document."""

    def encoder(**fields: Any) -> Encoder:
        return Encoder(**fields | {"restore": None, "byte_lengths": None, "drop": None})

    monkeypatch.setattr(block_writer, "Encoder", encoder)


@pytest.mark.parametrize("mode", [VerifyMode.SAMPLE, VerifyMode.FULL])
def test_verify_finds_the_documents_that_lost_text(
    mode: VerifyMode, ranks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [*HEAD, LOST, "the last one"]
    with monkeypatch.context() as patch:
        without_checks(patch)
        run_job(job_of(tmp_path, with_pattern(ranks), texts), executor=inline())
    monkeypatch.setattr("tokenization_worker.verification.verify.SAMPLE_LEAST", 1)  # else all of so few
    monkeypatch.setattr("tokenization_worker.verification.files.sample.is_chosen", lambda *place: True)
    report = verify(str(tmp_path / "out"), mode=mode, processes=1, sample_one_in=2)
    (finding,) = report.findings
    assert finding.fault is Fault.TEXT_LOST
    assert (finding.uri, finding.position) == (f"{tmp_path}/source/a.jsonl", place_of(texts, LOST))
    assert (finding.expected, finding.found) == (repr(LOST), repr(KEPT))
    assert finding.path == "train/train_000000.npy"
    assert "tokenizer.pattern" in report.next_step


def test_verify_stops_counting_documents_that_lost_text(
    ranks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        without_checks(patch)
        run_job(job_of(tmp_path, with_pattern(ranks), [*HEAD, *[LOST] * 60]), executor=inline())
    faults = [finding.fault for finding in verify(str(tmp_path / "out"), mode="full", processes=1).findings]
    assert faults == [Fault.TEXT_LOST] * 20


def test_verify_finds_characters_that_the_vocabulary_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [*HEAD, "one caf\u00e9", "the last one"]
    job = job_of(tmp_path, {"name": None, "uri": str(write_letters(tmp_path, {"type": "Whitespace"}))}, texts)
    with monkeypatch.context() as patch:
        without_checks(patch)
        run_job(job, executor=inline())
    (finding,) = verify(str(tmp_path / "out"), mode="full", processes=1).findings
    assert (finding.fault, finding.expected, finding.found) == (Fault.TEXT_LOST, "'one caf\u00e9'", "'one caf'")


# ---- the encoder alone


class Letters:
    """Ids are code points; a text of these letters loses its last one."""

    def __init__(self, name: str, losing: str = "") -> None:
        self.name = name
        self._losing = losing

    def encode(self, texts: Sequence[str]) -> Encoded:
        kept = [text[:-1] if text == self._losing else text for text in texts]
        ids = np.array([ord(c) for text in kept for c in text], dtype=np.uint32)
        return Encoded(ids, np.cumsum([len(text) for text in kept]))


def encoder_of(engine: Letters, reference: Letters, *, one_in: int, complete: bool) -> Encoder:
    lengths = np.ones(128, dtype=np.uint8) if complete else None
    return Encoder(
        engine=engine,
        reference=reference,
        vocab_size=128,
        delimiters=Delimiters(127, None),
        dtype=np.dtype("<u2"),
        sample_one_in=one_in,
        restore=lambda ids: bytes(ids),
        byte_lengths=lengths,
    )


def encode_all(encoder: Encoder, texts: list[str]) -> encode.EncodedDocuments:
    return encoder.encode(texts, np.arange(len(texts)), np.zeros(len(texts), dtype=np.int64))


TEXTS = ["", "one", "two", "", "three"]


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(("one_in", "complete"), [(1, False), (1 << 40, True)], ids=["sampled", "all"])
def test_the_document_that_lost_text_is_named(fast: bool, one_in: int, complete: bool) -> None:
    reference = Letters("reference", "two")
    engine = Letters("fast", "two") if fast else reference
    with pytest.raises(LosesText) as caught:
        encode_all(encoder_of(engine, reference, one_in=one_in, complete=complete), TEXTS)
    assert (caught.value.document, caught.value.kept) == (2, b"tw")


@pytest.mark.parametrize(("one_in", "complete"), [(1, False), (1 << 40, True)], ids=["sampled", "all"])
def test_text_that_the_fast_engine_alone_loses_is_a_mismatch(one_in: int, complete: bool) -> None:
    with pytest.raises(EngineMismatch) as caught:
        encode_all(encoder_of(Letters("fast", "two"), Letters("reference"), one_in=one_in, complete=complete), TEXTS)
    assert caught.value.document == 2


def test_a_run_restores_the_documents_that_it_samples_and_no_other() -> None:
    restored: list[bytes] = []

    def restore(ids: Sequence[int]) -> bytes:
        restored.append(bytes(ids))
        return restored[-1]

    reference = Letters("reference")
    texts = [str(number) for number in range(20 * SAMPLE_ONE_IN)]
    encoder = Encoder(
        engine=reference,
        reference=reference,
        vocab_size=128,
        delimiters=Delimiters(127, None),
        dtype=np.dtype("<u2"),
        sample_one_in=SAMPLE_ONE_IN,
        restore=restore,
    )
    assert encode_all(encoder, texts).samples == 0  # nothing to compare the reference with
    assert 0 < len(restored) < 60


def test_a_run_gives_its_encoder_what_restores(ranks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []

    def encoder(**fields: Any) -> Encoder:
        given.append(fields)
        return Encoder(**fields)

    monkeypatch.setattr(block_writer, "Encoder", encoder)
    run_job(job_of(tmp_path, {"name": "gpt2"}, ["some text"]), executor=inline())
    tokenizer: Tokenizer = load_tokenizer(make_spec("gpt2"))
    assert given[0]["restore"] == tokenizer.restore
    assert given[0]["byte_lengths"] is None
