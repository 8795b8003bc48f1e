"""No text is lost between a document and its tokens, and no pattern of one's own ends a run."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.corpus import json_lines
from support.engine.inline import inline
from support.runs import make_job, read_index
from support.tokenizer_models import (
    ADDED_FLAGS,
    LLAMA3_PATTERN,
    make_spec,
    train_byte_level,
    train_sentencepiece,
    write_json,
    write_letters,
)
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.errors import SpecError
from tokenization_worker.events import Event, Warned
from tokenization_worker.inspect.preview import preview_run
from tokenization_worker.planning import encoded_sample
from tokenization_worker.processes import compute_in_copy
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.tokenizers import tiktoken_engine
from tokenization_worker.tokenizers.base import KillsEngine
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.verification.report import VerifyMode
from tokenization_worker.verification.verify import verify

pytestmark = pytest.mark.usefixtures("few_code_points")

TEXTS = ["Hello, world! It's 3 o'clock.\n", "naïve café – 東京 \U0001f600", "\tdef f(x):  return x ** 2"]
BACKTRACKING = r"(?:a|aa)+(?!a)b|\s|\S"
"""Fine on most text; tiktoken gives up on a long run of a."""

HOPELESS = r"(?:a|a)+(?!a)b|\s|\S"
"""As above, and the `regex` package takes twice as long for every further a."""


def job_with(tmp_path: Path, tokenizer: dict[str, Any], texts: list[str] = TEXTS, **fields: Any) -> TokenizationJob:
    source = tmp_path / "source"
    source.mkdir(exist_ok=True)
    (source / "a.jsonl").write_bytes(json_lines(texts))
    return make_job(source, tmp_path / "out", tokenizer={"name": None} | tokenizer, **fields)


def ranks_with(ranks: Path, pattern: str) -> dict[str, Any]:
    return {"uri": str(ranks), "pattern": pattern, "specialTokens": {"<|endoftext|>": 5000}}


def started(job: TokenizationJob) -> list[Event]:
    events: list[Event] = []
    run_job(job, options=Options(engine="reference"), executor=inline(), on_progress=events.append)
    return events


def refusal(job: TokenizationJob) -> SpecError:
    """What `plan` and `run` both say, before anything is written."""
    with pytest.raises(SpecError) as planned:
        preview_run(job)
    with pytest.raises(SpecError) as caught:
        run_job(job, executor=inline())
    assert str(planned.value) == str(caught.value)
    assert not (Path(job.spec.output.uri) / "_tokenization" / "plan").exists()
    return caught.value


LOSING = {
    "punctuation and blanks": (r"\p{L}+|\p{N}", TEXTS, "Hello, world!", "Helloworld"),
    "no document shows it": (r"\p{L}+|\p{N}+|\s+|[!-/:-@\[-`{-~]+", ["plain words only, 1 2 3."], "½", ""),
    "only a rare character": (r"[^\u2042]+", ["plain"], "\u2042", ""),
    "a document alone shows it": (r"[^\u2603]+", ["snow \u2603 falls"], "snow \u2603 falls", "snow  falls"),
}


@pytest.mark.parametrize(("pattern", "texts", "lost", "left"), LOSING.values(), ids=LOSING)
def test_a_pattern_that_does_not_cover_the_text_is_refused(
    pattern: str, texts: list[str], lost: str, left: str, ranks: Path, tmp_path: Path
) -> None:
    error = refusal(job_with(tmp_path, ranks_with(ranks, pattern), texts))
    assert error.reason == "TokenizerLosesText"
    assert error.message.startswith(f"tokenizer.pattern: {pattern!r} does not cover all text: ")
    assert lost in error.message
    assert left in error.message
    assert r"|\s|\S" in error.next_step


COVERING = [LLAMA3_PATTERN, r"\p{L}+|\s|\S", r"(?s:.)", BACKTRACKING]


@pytest.mark.parametrize("pattern", COVERING)
def test_a_pattern_that_covers_the_text_is_not(pattern: str, ranks: Path, tmp_path: Path) -> None:
    assert [
        event for event in started(job_with(tmp_path, ranks_with(ranks, pattern))) if isinstance(event, Warned)
    ] == []


def test_a_tokenizer_file_that_leaves_characters_out_is_refused(tmp_path: Path) -> None:
    split = {"type": "Split", "pattern": {"Regex": r"\p{L}+"}, "behavior": "Removed", "invert": True}
    levels = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    document = train_byte_level(
        [{"content": "<|endoftext|>"}], pre_tokenizer={"type": "Sequence", "pretokenizers": [split, levels]}
    )
    error = refusal(job_with(tmp_path, {"uri": str(write_json(tmp_path / "tokenizer.json", document))}))
    assert error.reason == "TokenizerLosesText"
    assert "tokenizer.uri" in error.message
    assert "Hello, world!" in error.message
    assert "'Helloworld" in error.message


CHARACTERS = {
    "blanks are removed": ({"type": "Whitespace"}, {}, ["some text", "日本語"], "日本語"),
    "one text is one piece": (None, {}, ["some text", "a café"], "a café"),
    "a normalizer changes case": (None, {"normalizer": {"type": "Lowercase"}}, ["SOME text", "ABÉ"], "ABÉ"),
}


@pytest.mark.parametrize(("pre_tokenizer", "changes", "texts", "lost"), CHARACTERS.values(), ids=CHARACTERS)
def test_a_vocabulary_without_a_character_of_the_text_is_refused(
    pre_tokenizer: Any, changes: dict[str, Any], texts: list[str], lost: str, tmp_path: Path
) -> None:
    uri = str(write_letters(tmp_path, pre_tokenizer, **changes))
    error = refusal(job_with(tmp_path, {"uri": uri}, texts))
    assert error.reason == "TokenizerLosesText"
    assert f"{lost!r} in a document of {tmp_path}/source/a.jsonl" in error.message
    assert "unk_token" in error.next_step


def test_a_character_that_the_plan_has_not_seen_ends_the_run(tmp_path: Path) -> None:
    uri = str(write_letters(tmp_path, {"type": "Whitespace"}))
    texts = ["some text " * 10] * 20_000
    job = job_with(tmp_path, {"uri": uri}, [*texts, "one café", *texts])
    with pytest.raises(SpecError) as caught:
        started(job)
    assert caught.value.reason == "TokenizerLosesText"
    assert "'one café' in the document of" in caught.value.message


def write_bytes_without(folder: Path, letter: str, **model: Any) -> str:
    """A byte-level tokenizer.json without a token for `letter`, with changes of its model."""
    document = train_byte_level([{"content": "<|endoftext|>"}], **model.pop("document", {}))
    known = document["model"]
    known["vocab"] = {"zz" if name == letter else name: number for name, number in known["vocab"].items()}
    known["merges"] = [pair for pair in known["merges"] if letter not in "".join(pair)]
    document["model"] = {name: value for name, value in (known | model).items() if value != "absent"}
    return str(write_json(folder / "tokenizer.json", document))


def test_a_model_without_a_type_is_checked_as_what_the_library_makes_of_it(tmp_path: Path) -> None:
    """As the Hub's own file of GPT-2 has it, but without a token for q."""
    uri = write_bytes_without(tmp_path, "q", type="absent")
    error = refusal(job_with(tmp_path, {"uri": uri}, ["a quick quiz"]))
    assert error.reason == "TokenizerLosesText"
    assert "'a quick quiz'" in error.message
    assert "'a uick uiz'" in error.message


def test_a_normalizer_that_does_nothing_does_not_weaken_the_check(tmp_path: Path) -> None:
    uri = write_bytes_without(tmp_path, "q", document={"normalizer": {"type": "Sequence", "normalizers": []}})
    error = refusal(job_with(tmp_path, {"uri": uri}, ["plain words"]))  # the check's own text has a q
    assert error.reason == "TokenizerLosesText"


@pytest.mark.parametrize("names", [[], [f"<0x{byte:02X}>" for byte in range(128)]], ids=["no bytes", "ASCII alone"])
def test_byte_fallback_without_all_bytes_is_refused(names: list[str], tmp_path: Path) -> None:
    vocabulary = {name: number for number, name in enumerate([*"acfuteil ", *names])}
    document = {
        "version": "1.0",
        "added_tokens": [ADDED_FLAGS | {"id": len(vocabulary), "content": "<|endoftext|>"}],
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [], "byte_fallback": True},
    }
    error = refusal(job_with(tmp_path, {"uri": str(write_json(tmp_path / "t.json", document))}, ["café au lait"]))
    assert error.reason == "TokenizerLosesText"
    assert "is decoded from its tokens as 'caf au lait'" in error.message


def test_byte_fallback_beside_marks_of_words_is_refused(tmp_path: Path) -> None:
    uri = str(write_letters(tmp_path, None, model={"byte_fallback": True, "end_of_word_suffix": "</w>"}))
    error = refusal(job_with(tmp_path, {"uri": uri}))
    assert error.reason == "TokenizerUnsafe"
    assert "byte_fallback" in error.next_step


def write_words(folder: Path, kind: str) -> str:
    """A tokenizer.json of three words, which lacks its unknown token."""
    document = {
        "version": "1.0",
        "added_tokens": [ADDED_FLAGS | {"id": 3, "content": "<|endoftext|>"}],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": UNKNOWN_LACKING[kind] | {"type": kind},
    }
    return str(write_json(folder / "tokenizer.json", document))


WORDS = {"one": 0, "two": 1, "three": 2}
UNKNOWN_LACKING: dict[str, dict[str, Any]] = {
    "WordLevel": {"vocab": WORDS, "unk_token": "[UNK]"},
    "WordPiece": {
        "vocab": WORDS,
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 9,
    },
    "BPE": {
        "vocab": {"t": 0, "w": 1, "o": 2},
        "merges": [],
        "unk_token": "[UNK]",
    },
    "Unigram": {"vocab": [["t", -1.0], ["w", -1.0], ["o", -1.0]], "unk_id": None},
}


@pytest.mark.parametrize("kind", UNKNOWN_LACKING)
def test_documents_that_a_vocabulary_covers_need_no_unknown_token(kind: str, tmp_path: Path) -> None:
    started(job_with(tmp_path, {"uri": write_words(tmp_path, kind)}, ["two", "two two"]))
    assert read_index(tmp_path / "out")["conservation"]["written"] == 2


@pytest.mark.parametrize("kind", UNKNOWN_LACKING)
def test_a_document_that_needs_a_lacking_unknown_token_is_quarantined(kind: str, tmp_path: Path) -> None:
    job = job_with(tmp_path, {"uri": write_words(tmp_path, kind)}, ["two", "two four"], maxQuarantined=1)
    warnings = [event.message for event in started(job) if isinstance(event, Warned)]
    assert any("cannot encode 1 of 2 sampled documents, the first is in" in each for each in warnings)
    conservation = read_index(tmp_path / "out")["conservation"]
    assert (conservation["written"], conservation["quarantined"]) == (1, {"KillsWorker": 1})
    (poison,) = read_index(tmp_path / "out")["run"]["poison"]
    assert poison["detail"].startswith("the package tokenizers cannot encode it: ")
    assert verify(str(tmp_path / "out"), mode=VerifyMode.FULL, processes=1).findings == ()


KNOWN = {
    "letters and blanks": (None, {}, ["some text\nof two lines"]),
    "a token for what is unknown": (None, {"model": {"unk_token": "a"}}, ["a café"]),
    "a normalizer removes it": (
        None,
        {"normalizer": {"type": "Replace", "pattern": {"String": "é"}, "content": "e"}},
        ["a café"],
    ),
}


@pytest.mark.parametrize(("pre_tokenizer", "changes", "texts"), KNOWN.values(), ids=KNOWN)
def test_a_vocabulary_with_all_characters_is_not_refused(
    pre_tokenizer: Any, changes: dict[str, Any], texts: list[str], tmp_path: Path
) -> None:
    started(job_with(tmp_path, {"uri": str(write_letters(tmp_path, pre_tokenizer, **changes))}, texts))


def test_a_pre_tokenizer_that_removes_blanks_is_told(tmp_path: Path) -> None:
    job = job_with(tmp_path, {"uri": str(write_letters(tmp_path, {"type": "WhitespaceSplit"}))}, ["some text"])
    (warning,) = [event.message for event in started(job) if isinstance(event, Warned)]
    assert "its pre-tokenizer (WhitespaceSplit) drops the characters at which it splits" in warning


NORMALISING: dict[str, tuple[dict[str, Any], str]] = {
    "normalizer": ({"normalizer": {"type": "NFC"}}, "its normalizer (NFC) changes text"),
    "pre-tokenizer": ({"pre_tokenizer": {"type": "Whitespace"}}, "its pre-tokenizer (Whitespace) changes text"),
    "prefix": (
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}},
        "it puts a space before the text",
    ),
    "nothing": ({}, ""),
}


@pytest.mark.parametrize(("changes", "why"), NORMALISING.values(), ids=NORMALISING)
def test_a_plan_says_where_decoding_is_not_compared(changes: dict[str, Any], why: str, tmp_path: Path) -> None:
    document = train_byte_level([{"content": "<|endoftext|>"}], **changes)
    job = job_with(tmp_path, {"uri": str(write_json(tmp_path / "tokenizer.json", document))}, ["plain words"])
    assert preview_run(job).decoding == why
    started(job)


ADDED = ["éé", "<|user|>", "naïve", " the"]


def test_added_tokens_come_back_as_their_text(tmp_path: Path) -> None:
    """The library's own decoder takes "éé" for two bytes."""
    document = train_byte_level(
        [{"content": "<|endoftext|>"}, *({"content": text, "special": False} for text in ADDED)]
    )
    tokenizer = load_tokenizer(make_spec(uri=write_json(tmp_path / "tokenizer.json", document)))
    assert tokenizer.restore is not None
    text = "éé <|user|>naïve the\x00\u00a0\U0001f600"
    ids = tokenizer.reference.encode([text]).ids
    assert {601, 602, 603, 604} <= set(ids.tolist())
    assert tokenizer.restore(ids.tolist()) == text.encode()


def test_text_that_the_vocabulary_lacks_is_told_with_its_share(tmp_path: Path) -> None:
    model = train_sentencepiece(tmp_path / "small.model", byte_fallback=False)
    job = job_with(tmp_path, {"uri": str(model)}, ["the quick brown fox", "東京"])
    (warning,) = [event.message for event in started(job) if isinstance(event, Warned)]
    assert "1 of 2 sampled documents hold the unknown token" in warning
    assert "id 0" in warning
    assert f"{tmp_path}/source/a.jsonl" in warning


def test_text_that_the_vocabulary_has_is_not_told(tmp_path: Path) -> None:
    model = train_sentencepiece(tmp_path / "small.model", byte_fallback=False)
    job = job_with(tmp_path, {"uri": str(model)}, ["the quick brown fox"])
    assert [event for event in started(job) if isinstance(event, Warned)] == []


# ---- patterns that tiktoken cannot use


EMPTY = ["|", r"\p{L}*", r"\p{L}+|", "()", r"\b|.", r"(?=x)|\s|\S"]


@pytest.mark.parametrize("pattern", EMPTY)
def test_a_pattern_that_matches_nothing_is_refused(
    pattern: str, ranks: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    error = refusal(job_with(tmp_path, ranks_with(ranks, pattern)))
    assert error.reason == "TokenizerInvalid"
    assert error.message.startswith(f"tokenizer.pattern: {pattern!r} matches an empty text")
    assert "at least one character" in error.message
    assert "panicked" not in capfd.readouterr().err


def test_a_pattern_that_backtracks_on_ordinary_text_is_refused(ranks: Path, tmp_path: Path) -> None:
    pattern = r"(?:.|..)+(?!.)\u2603|\s|\S"
    error = refusal(job_with(tmp_path, ranks_with(ranks, pattern)))
    assert error.reason == "TokenizerInvalid"
    assert error.message.startswith(f"tokenizer.pattern: {pattern!r} cannot split ordinary text")
    assert "backtracking" in error.message
    assert "a+" in error.next_step


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited by RLIMIT_AS")
def test_a_pattern_that_repeats_itself_without_end_is_refused(ranks: Path, tmp_path: Path) -> None:
    pattern = r"(?R)|(?s:.)"

    def refuse() -> tuple[str, str, str]:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + (200 << 20), hard))  # or it takes 1 GB and 2 s
        error = refusal(job_with(tmp_path, ranks_with(ranks, pattern)))
        return error.reason, error.message, error.next_step

    reason, message, next_step = compute_in_copy(refuse)
    assert reason == "TokenizerInvalid"
    assert message.startswith(f"tokenizer.pattern: {pattern!r} recurses without end")
    assert "(?R)" in next_step


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def test_an_invalid_pattern_is_refused(ranks: Path, tmp_path: Path) -> None:
    error = refusal(job_with(tmp_path, ranks_with(ranks, "[")))
    assert (error.reason, error.message[:18]) == ("TokenizerInvalid", "tokenizer.pattern:")


def spoiled(length: int) -> list[str]:
    return ["before", "a" * length + "c", "after"]


@pytest.mark.parametrize("engine", ["reference", "accelerated"])
def test_text_on_which_a_pattern_backtracks_too_far_has_its_pieces_tokens(engine: str, ranks: Path) -> None:
    spec = make_spec(uri=ranks, pattern=BACKTRACKING, specials={"<|endoftext|>": 5000})
    tokenizer = load_tokenizer(spec)
    chosen = tokenizer.accelerated() if engine == "accelerated" else tokenizer.reference
    assert chosen is not None
    with pytest.raises(ValueError, match="backtracking"):
        tokenizer.reference.encode_plainly(spoiled(30)[1])  # type: ignore[attr-defined]
    ids, ends = chosen.encode(spoiled(25))
    expected = [tokenizer.reference.encode([text]).ids for text in ["before", *"a" * 25, "c", "after"]]
    assert ids.tolist() == np.concatenate(expected).tolist()
    assert len(ends) == 3


def test_a_run_goes_on_with_the_pieces_of_such_a_document(ranks: Path, tmp_path: Path) -> None:
    job = job_with(tmp_path, ranks_with(ranks, BACKTRACKING), spoiled(30))
    started(job)
    assert read_index(tmp_path / "out")["conservation"]["written"] == 3


def test_a_document_that_no_library_can_cut_is_quarantined(
    ranks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiktoken_engine, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(encoded_sample, "_LIMIT_S", 0.2)
    job = job_with(tmp_path, ranks_with(ranks, HOPELESS), spoiled(60), maxQuarantined=1)
    started(job)
    conservation = read_index(tmp_path / "out")["conservation"]
    assert (conservation["written"], conservation["quarantined"]) == (2, {"KillsWorker": 1})
    (poison,) = read_index(tmp_path / "out")["run"]["poison"]
    assert "tokenizer.pattern backtracks for more than" in poison["detail"]


def test_which_text_cannot_be_cut_is_said(ranks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiktoken_engine, "_PATIENCE_S", 0.2)
    spec = make_spec(uri=ranks, pattern=HOPELESS, specials={"<|endoftext|>": 5000})
    with pytest.raises(KillsEngine) as caught:
        load_tokenizer(spec).reference.encode(spoiled(60))
    assert caught.value.document == 1
