"""Patterns that backtrack: no text takes for ever, a document is quarantined, and a plan says which pattern it is."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.corpus import json_lines
from support.engine.inline import inline
from support.runs import make_job, read_index
from support.tokenizer_models import make_spec, train_byte_level, write_json
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.cli.progress import describe
from tokenization_worker.errors import ChangedError, SpecError
from tokenization_worker.events import CheckingEngine, Event, RecordingReference
from tokenization_worker.inspect.preview import preview_run
from tokenization_worker.output import versions
from tokenization_worker.output.ledger.version_samples import SampledText, Samples, keep_samples, require_same_tokens
from tokenization_worker.planning import encoded_sample
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.storage.local.store import LocalStore
from tokenization_worker.tokenizers import rank_tokenizer, tiktoken_engine
from tokenization_worker.tokenizers.base import Encoded, KillsEngine, Tokenizer
from tokenization_worker.tokenizers.byte_engine import ByteEngine
from tokenization_worker.tokenizers.checks import behaviour, engine_check
from tokenization_worker.tokenizers.checks.engine_check import choose_engine, compare_engines
from tokenization_worker.tokenizers.fast_engine import FastokensEngine
from tokenization_worker.tokenizers.isolation.engine_process import Role
from tokenization_worker.tokenizers.isolation.supervisor import Isolation
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.tokenizers.tiktoken_engine import TiktokenEngine
from tokenization_worker.verification.verify import verify

pytestmark = pytest.mark.copies

FOR_EVER = 1e9
"""Seconds. A test whose limit is not obeyed never ends."""

BEFORE_DIGITS = r"(?:a|aa)+(?=\d)|\S|\s+"
BACKTRACKING = r"(?:a|aa)+(?!a)b|\s|\S"
HOPELESS = r"(?:a|a)+(?!a)b|\s|\S"
BLANKS = " " * 120_001
HARD = "a" * 60 + "c"


@pytest.fixture(autouse=True)
def few_code_points(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Long runs stay long: patterns backtrack on them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(behaviour, "_DENSE", (range(0x2000, 0x2100),))
    monkeypatch.setattr(behaviour, "_THIN", ())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of a run has no limit, what a plan tries has a short one."""
    monkeypatch.setattr(tiktoken_engine, "_PATIENCE_S", FOR_EVER)
    monkeypatch.setattr(behaviour, "_LIMIT_S", 0.2)
    monkeypatch.setattr(engine_check, "_LIMIT_S", 0.2)
    monkeypatch.setattr(rank_tokenizer, "_LIMIT_S", 0.2)
    monkeypatch.setattr(encoded_sample, "_LIMIT_S", 0.2)


@pytest.fixture
def time_only_within_a_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """The `regex` package has a clock of its own, for each match. So only a match that does not end takes too long, and
    not all that come before it together, which take 0.4 ms each at most."""
    monkeypatch.setattr(time, "process_time", lambda: 0.0)


def with_pattern(ranks: Path, pattern: str, special: str = "<|endoftext|>") -> dict[str, Any]:
    return {"name": None, "uri": str(ranks), "pattern": pattern, "specialTokens": {special: 5000}}


def tokenizer_of(ranks: Path, pattern: str) -> Tokenizer:
    return load_tokenizer(make_spec(uri=ranks, pattern=pattern, specials={"<|endoftext|>": 5000}))


def job_of(tmp_path: Path, tokenizer: dict[str, Any], texts: Sequence[str], **fields: Any) -> TokenizationJob:
    source = tmp_path / "source"
    source.mkdir(exist_ok=True)
    (source / "a.jsonl").write_bytes(json_lines(list(texts)))
    if "<|endoftext|>" not in str(tokenizer) and "specialTokens" in tokenizer:
        tokenizer = {**tokenizer, "delimiter": {"token": next(iter(tokenizer["specialTokens"]))}}
    return make_job(source, tmp_path / "out", tokenizer=tokenizer, **fields)


# ---- one text


def test_a_text_with_a_long_run_of_blanks_has_a_limit_too(ranks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiktoken_engine, "_PATIENCE_S", 0.2)
    with pytest.raises(KillsEngine, match=r"backtracks for more than 0\.2 s") as caught:
        tokenizer_of(ranks, BEFORE_DIGITS).reference.encode(["fine", f"{'a' * 60}!{BLANKS}b"])
    assert caught.value.document == 1


class Ticks:
    """A clock of a second for each look at it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, patience_s: float) -> None:
        self._numbers = itertools.count()
        self.looks = 0
        monkeypatch.setattr(tiktoken_engine, "_PATIENCE_S", patience_s)
        monkeypatch.setattr(time, "process_time", self._look)

    def _look(self) -> float:
        self.looks += 1
        return float(next(self._numbers))


def test_the_limit_is_one_for_all_pieces_of_a_text(ranks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's own limit begins anew with each piece."""
    reference = tokenizer_of(ranks, BACKTRACKING).reference
    expected = reference.encode(["a" * 30 + "c"]).ids
    ticks = Ticks(monkeypatch, 20)
    with pytest.raises(KillsEngine, match="backtracks for more than 20 s"):
        reference.encode(["a" * 30 + "c"])
    assert 20 <= ticks.looks < 25
    Ticks(monkeypatch, 1000)
    assert reference.encode(["a" * 30 + "c"]).ids.tolist() == expected.tolist()


def test_the_limit_is_one_for_both_ways_to_cut_a_text(ranks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Around the blanks first, and when tiktoken refuses what is left, all of it; each alone is within the limit."""
    text = f"{'b ' * 40}{'a' * 30}c{BLANKS[:1]}{'!' * 5}\n{BLANKS}"
    pieces = 80 + 25 + 1 + 1 + 5 + 1 + len(BLANKS)
    reference = tokenizer_of(ranks, r"(?:a|aa)+(?!a)b|\s+|\S").reference
    pieces = len(text) - len(BLANKS)
    Ticks(monkeypatch, 1.5 * pieces)
    with pytest.raises(KillsEngine):
        reference.encode([text])
    Ticks(monkeypatch, 3.0 * pieces)
    reference.encode([text])


def test_a_very_large_text_has_more_time(ranks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a pattern that does not backtrack, too, all is cut in Python where there is a long run of blanks."""
    monkeypatch.setattr(tiktoken_engine, "_PATIENCE_CHARACTERS", 1000)
    reference = tokenizer_of(ranks, r"\s+|\S+").reference
    Ticks(monkeypatch, 20)
    reference.encode(["b " * 500 + BLANKS])


def test_a_pattern_that_only_tiktoken_knows_kills_and_is_no_bug(ranks: Path) -> None:
    """What no package knows is enough here."""
    reference = tokenizer_of(ranks, BACKTRACKING).reference
    assert isinstance(reference, TiktokenEngine)
    engine = TiktokenEngine(reference._encoding, "(?P<")
    with pytest.raises(KillsEngine, match="is none for the package regex"):
        engine.encode([f"x{BLANKS}y"])


@pytest.mark.parametrize("texts", [["fine", HARD, "it's"], ["it'\u017f", "fine", HARD], [HARD + "'\u017f", "fine"]])
def test_the_fast_engine_names_the_document_that_the_reference_gives_up_on(
    texts: list[str], ranks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the reference has only the risky texts of a batch, or all others."""
    monkeypatch.setattr(tiktoken_engine, "_PATIENCE_S", 0.2)
    accelerated = tokenizer_of(ranks, HOPELESS).accelerated()
    assert isinstance(accelerated, FastokensEngine)
    hard = next(number for number, text in enumerate(texts) if text.startswith(HARD))
    with pytest.raises(KillsEngine) as caught:
        accelerated.encode(texts)
    assert caught.value.document == hard


def test_all_texts_of_a_limited_engine_have_one_limit(ranks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tokenizer_of(ranks, r"(?:a|a)+(?!a)b|\s+|\S")
    monkeypatch.setattr(tiktoken_engine, "_PATIENCE_S", FOR_EVER)
    engine = tokenizer.limited_reference(1.0)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(time, "process_time", lambda: 0.0)  # takes no time, on a slow machine either
        assert len(engine.encode([f"x{BLANKS}y"]).ids)
    assert engine.encode(["fine"]).ids.tolist() == tokenizer.reference.encode(["fine"]).ids.tolist()
    for text in (HARD, f"x{BLANKS}y"):  # the second one takes little time, and there is none left
        with pytest.raises(KillsEngine, match="backtracks for more than 1 s"):
            engine.encode([text])
    assert engine.encode(["fine"]).ids.tolist() == tokenizer.reference.encode(["fine"]).ids.tolist()


# ---- what a plan tries


def refusal(job: TokenizationJob) -> SpecError:
    with pytest.raises(SpecError) as planned:
        preview_run(job)
    with pytest.raises(SpecError) as caught:
        run_job(job, executor=inline())
    # of a chapter's texts the faster of the two may get one further
    words, again = (re.sub(r"(test text \([^:]*): .*\):", r"\1):", str(error.value)) for error in (planned, caught))
    assert words == again
    return caught.value


TRIED = {
    "text": (r"(?:[a-z]|[a-z][a-z]|[a-z][a-z][a-z])+(?=QQ)|\S|\s+", "mixtures of scripts"),
    "blanks": (r"(?:\s|\s\s)+(?=\d)|\S+|\s+", "long runs of blanks"),
}


@pytest.mark.usefixtures("impatient", "time_only_within_a_match")
@pytest.mark.parametrize(("pattern", "chapter"), TRIED.values(), ids=TRIED)
def test_a_pattern_that_backtracks_on_a_text_that_is_tried_is_refused(
    pattern: str, chapter: str, ranks: Path, tmp_path: Path
) -> None:
    error = refusal(job_of(tmp_path, with_pattern(ranks, pattern), ["hi there"]))
    assert error.reason == "TokenizerInvalid"
    assert error.message.startswith(f"tokenizer.pattern: {pattern!r} cannot split a test text ({chapter}: ")
    assert "backtracks for more than 0.2 s" in error.message
    assert "(?:a|aa)+ as a+" in error.next_step


def test_a_pattern_that_is_slow_on_all_texts_that_are_tried_is_refused(
    ranks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = tokenizer_of(ranks, r"\s+|\S+")
    monkeypatch.setattr(behaviour, "_LIMIT_S", 3.0)
    Ticks(monkeypatch, FOR_EVER)
    monkeypatch.setattr(behaviour, "_LONG_RUN", 1000)
    with pytest.raises(SpecError, match=r"all test texts together take more than 3 s"):
        behaviour.behaviour_of(tokenizer)


@pytest.mark.usefixtures("impatient")
def test_a_pattern_that_backtracks_on_a_special_token_is_refused(ranks: Path, tmp_path: Path) -> None:
    special = f"<|{HARD}|>"
    error = refusal(job_of(tmp_path, with_pattern(ranks, HOPELESS, special), ["hi there"]))
    assert error.reason == "TokenizerInvalid"
    assert f"tokenizer.pattern: {HOPELESS!r} cannot split the text of a special token" in error.message


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (RecordingReference("tiktoken", 0.5), "tokenizer  recording what tiktoken does, once"),
        (RecordingReference("tokenizers", 3.0), "tokenizer  recording what tokenizers does, ~3 s, once"),
        (CheckingEngine("fastokens", "tiktoken", 5.0), "engine     checking fastokens against tiktoken, ~5 s, once"),
    ],
    ids=["less than a second", "seconds", "engine"],
)
def test_the_line_before_a_check_promises_no_time_of_0_s(event: Event, line: str) -> None:
    assert describe(event, 0.0) == line


def test_processes_wait_longer_for_a_record_than_it_can_take() -> None:
    """Else each of them would do the same work at once."""
    assert 2 * behaviour._LIMIT_S < behaviour._PATIENCE_S
    assert 2 * engine_check._LIMIT_S < engine_check._PATIENCE_S


def test_looking_for_empty_matches_has_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = Ticks(monkeypatch, FOR_EVER)
    assert rank_tokenizer._find_empty_match(r"\S|\s|", "x" * 1000) is None
    assert ticks.looks < 10


@pytest.mark.usefixtures("impatient")
def test_a_plan_does_not_wait_for_its_samples(ranks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behaviour, "_LONG_RUN", 1000)
    monkeypatch.setattr(behaviour, "_LIMIT_S", FOR_EVER)  # none of the texts that are tried is hard
    job = job_of(tmp_path, with_pattern(ranks, HOPELESS), ["fine text", HARD, "more of it"] * 20)
    assert preview_run(job).tokens


class Refusing:
    """Bytes; gives up on texts that begin so, and notes in a file what it is given, for that a copy can do as well."""

    name = "bytes"

    def __init__(self, log: Path) -> None:
        self._log = log

    def encode(self, texts: Sequence[str]) -> Encoded:
        for number, text in enumerate(texts):
            with self._log.open("a") as log:
                log.write(f"{text}\n")
            if text.startswith("<hard"):
                raise KillsEngine(number, "it backtracks")
        return ByteEngine().encode(texts)

    def times(self, text: str) -> int:
        return self._log.read_text().split("\n").count(text)


def test_a_sample_tries_a_document_that_kills_once(tmp_path: Path) -> None:
    engine = Refusing(tmp_path / "log")
    texts = [f"text {number}" for number in range(256)]
    texts[200] = "<hard 1>"
    (found,) = encoded_sample._encode_in_copies(engine, [texts])
    assert engine.times("<hard 1>") == 1
    assert found.texts == [*texts[:200], *texts[201:]]
    assert bytes(found.ids.tolist()).decode() == "".join(found.texts)


def test_a_sample_tries_few_documents_that_kill(tmp_path: Path) -> None:
    engine = Refusing(tmp_path / "log")
    (found,) = encoded_sample._encode_in_copies(engine, [["first", *[f"<hard {number}>" for number in range(50)]]])
    assert sum(engine.times(f"<hard {number}>") for number in range(50)) == 4
    assert found.texts == ["first"]


def test_an_isolated_sample_has_the_limit_too(ranks: Path, tmp_path: Path) -> None:
    data = resolve_data(job_of(tmp_path, with_pattern(ranks, HOPELESS), ["x"]))
    with Isolation(data, "tiktoken", limit_s=0.2) as isolation:
        engine = isolation.engine("tiktoken", Role.REFERENCE)
        with pytest.raises(KillsEngine, match=r"backtracks for more than 0\.2 s"):
            engine.encode([HARD])


# ---- other places that encode


def test_a_run_goes_on_behind_each_document_that_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Refusing(tmp_path / "log")
    texts = ["first", "<hard 1>", "second", "<hard 2>", "third", "<hard 3>", "last"]
    job = job_of(tmp_path, {"name": "bytes"}, texts, maxQuarantined=3)
    tokenizer = load_tokenizer(resolve_data(job).tokenizer)
    monkeypatch.setattr(encoded_sample, "can_copy", lambda: False)  # the plan's sample is not this engine's
    monkeypatch.setattr(tokenizer, "reference", engine)
    run_job(job, executor=inline())
    assert read_index(tmp_path / "out")["conservation"]["quarantined"] == {"KillsWorker": 3}
    assert [engine.times(text) for text in ("first", "<hard 1>", "second", "last")] == [2, 1, 2, 2]


class GivesUp:
    """Another version of an engine, or a slower machine."""

    name = "bytes"

    def encode(self, texts: Sequence[str]) -> Encoded:
        for number, text in enumerate(texts):
            if text.startswith("hard"):
                raise KillsEngine(number, "it backtracks")
        return ByteEngine().encode(texts)


def test_verify_names_a_document_that_the_reference_gives_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(tmp_path, {"name": "bytes"}, ["first", "hard one", "last"])
    run_job(job, executor=inline())
    monkeypatch.setattr(load_tokenizer(resolve_data(job).tokenizer), "reference", GivesUp())
    with pytest.raises(SpecError) as caught:
        verify(str(tmp_path / "out"), mode="full", processes=1)
    assert caught.value.reason == "TokenizerInvalid"
    place = len(json_lines(["first"]))
    assert caught.value.message == (
        f"{tmp_path}/source/a.jsonl @ {place}: the reference engine cannot encode this document: it backtracks"
    )
    assert "checksums" in caught.value.next_step


def test_another_version_that_gives_up_on_a_sample_gives_other_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path / "out")
    tokenizer = load_tokenizer(make_spec("bytes"))
    ids = tokenizer.reference.encode(["hard one"]).ids
    with monkeypatch.context() as then:
        then.setattr(versions, "_parser_versions", lambda: {"orjson": "0.0.1"})
        kept = keep_samples(store, tokenizer, [SampledText("a.jsonl", "hard one", ids)])
    assert isinstance(kept, Samples)
    monkeypatch.setattr(tokenizer, "reference", GivesUp())
    with pytest.raises(ChangedError) as caught:
        require_same_tokens(store.uri, "plan", tokenizer, "orjson 0.0.1")
    assert caught.value.reason == "TokenizerChanged"
    assert "a document of a.jsonl" in caught.value.message
    store.close_scratch()


def test_an_engine_is_not_used_where_the_reference_gives_up_on_a_text() -> None:
    verdict = compare_engines(GivesUp(), ByteEngine(), ["fine", "hard one"])
    assert not verdict.identical
    assert verdict.difference == "bytes cannot encode 'hard one': it backtracks"
    assert verdict.text == "hard one"


@pytest.mark.usefixtures("impatient")
def test_a_job_with_such_a_text_in_the_probe_runs_with_the_reference(ranks: Path) -> None:
    choice = choose_engine(tokenizer_of(ranks, HOPELESS), "auto", 1 << 40)
    assert choice.name == "tiktoken"
    assert "backtracks for more than 0.2 s" in choice.reason


# ---- a tokenizer.json


def split_by(pattern: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    levels = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return train_byte_level(
        [{"content": "<|endoftext|>"}], pre_tokenizer={"type": "Sequence", "pretokenizers": [split, levels]}
    )


def test_a_document_on_which_a_file_backtracks_is_quarantined(tmp_path: Path) -> None:
    file = write_json(tmp_path / "tokenizer.json", split_by(BEFORE_DIGITS))
    texts = ["before", f"{'a' * 60}! ", "after"]
    job = job_of(tmp_path, {"name": None, "uri": str(file)}, texts, maxQuarantined=1)
    run_job(job, options=Options(engine="reference"), executor=inline())
    index = read_index(tmp_path / "out")
    assert (index["conservation"]["written"], index["conservation"]["quarantined"]) == (2, {"KillsWorker": 1})
    (poison,) = index["run"]["poison"]
    assert poison["detail"].startswith("the tokenizer.json's pattern backtracks too far: ")
    report = verify(str(tmp_path / "out"), mode="full", processes=1)
    assert report.is_clean


def test_a_file_that_backtracks_goes_on_with_the_next_document(tmp_path: Path) -> None:
    reference = load_tokenizer(make_spec(uri=write_json(tmp_path / "a.json", split_by(BEFORE_DIGITS)))).reference
    expected = reference.encode(["after"]).ids
    with pytest.raises(KillsEngine) as caught:
        reference.encode(["fine", f"{'a' * 60}! "])
    assert caught.value.document == 1
    assert np.array_equal(reference.encode(["after"]).ids, expected)


def test_a_file_that_backtracks_on_ordinary_text_is_refused(tmp_path: Path) -> None:
    file = write_json(tmp_path / "tokenizer.json", split_by(r"(?:.|..)+(?!.)\u2603|\s|\S".replace(r"\u2603", "☃")))
    error = refusal(job_of(tmp_path, {"name": None, "uri": str(file)}, ["hi there"]))
    assert error.reason == "TokenizerInvalid"
    assert error.message.startswith(f"tokenizer.uri: {file}: it cannot split ordinary text: ")
    assert "backtracks too far" in error.message
