"""SentencePiece models from counts: the library's own, the same in any process and cut, and lossless in a job."""

from __future__ import annotations

import io
import json
import os
import random
import re
import signal
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from pydantic import ValidationError

from support.corpus import json_lines, take_documents
from support.counted import pieces_of
from support.forked_commands import TOKJOB
from support.runs import make_job, run_command
from support.tokenizer_models import make_spec
from support.trainings import SPECIALS as TRAINED_SPECIALS
from support.trainings import few_texts as few_texts
from support.trainings import train, write_source
from tokenization_worker import run_job, verify
from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.training.patterns import PieceCounter
from tokenization_worker.training.pieces import Pieces
from tokenization_worker.training.sentencepiece_models.model_trainer import (
    BPE,
    UNIGRAM,
    VocabularyTooLarge,
    VocabularyTooSmall,
    clashing_names,
    memory_needed,
    train_sentencepiece,
)
from tokenization_worker.training.sentencepiece_models.training_process import train_apart

SPECIALS = ("<|endoftext|>", '<|a,"b"|>', "</s>")
VOCABULARY = 700

BOTH = pytest.mark.parametrize("algorithm", [UNIGRAM, BPE])


@cache
def documents() -> list[str]:
    tabs = "\tif a:\n\t\treturn\tb\n\t\t\t\tc\n\n" * 40
    odd = "▅▅ <|endoftext|> ▅▅▅ <unk><0x41> </s>" * 9 + "日本語の文\0\x1f\r" * 9 + "x" * 5000
    return [*take_documents(30_000), tabs, odd]


@cache
def pieces() -> Pieces:
    counter = PieceCounter("Gpt2", None, is_compiled=True)
    counter.count([text.encode() for text in documents()])
    return counter.take().sort()


@cache
def model(algorithm: str) -> bytes:
    return train_sentencepiece(pieces(), algorithm, VOCABULARY, SPECIALS)


def load(data: bytes) -> Any:
    return sentencepiece.SentencePieceProcessor(model_proto=data)


def random_words(letters: str) -> dict[bytes, int]:
    numbers = random.Random(0)
    words = {" " + "".join(numbers.choices(letters, k=numbers.randrange(1, 7))) for _ in range(200)}
    return encoded({word: numbers.choice([1, 2, 3, 50, 1000]) for word in sorted(words)})


def encoded(counts: dict[str, int]) -> dict[bytes, int]:
    return {text.encode(): count for text, count in counts.items()}


def scores(data: bytes) -> dict[str, float]:
    library = load(data)
    return {library.id_to_piece(each): library.get_score(each) for each in range(library.get_piece_size())}


# ---- the same as the library, and the same again


@BOTH
def test_the_same_bytes_again_and_with_other_hashes_on_one_core(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train_sentencepiece(pieces(), algorithm, VOCABULARY, SPECIALS) == model(algorithm)
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert train_apart(pieces(), algorithm, VOCABULARY, SPECIALS) == model(algorithm)
    finally:
        os.sched_setaffinity(0, cores)


@BOTH
def test_a_count_stands_for_as_many_lines_of_text(algorithm: str) -> None:
    """The library's own model of all lines; only Unigram's sums are rounded in another order."""
    counts = random_words("abcdé日")
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([word for word, count in sorted(counts.items()) for _ in range(count)]),
        model_writer=file,
        model_type="unigram" if algorithm == UNIGRAM else "bpe",
        vocab_size=330,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        byte_fallback=True,
        split_by_whitespace=False,
        split_by_unicode_script=False,
        split_by_number=False,
        allow_whitespace_only_pieces=True,
        bos_id=-1,
        eos_id=-1,
        num_threads=16,
        minloglevel=3,
    )
    expected = scores(file.getvalue())
    found = scores(train_sentencepiece(pieces_of(counts), algorithm, 330, ()))
    assert found.keys() == expected.keys()
    assert found == pytest.approx(expected, abs=1e-4 if algorithm == UNIGRAM else 0)
    assert found != scores(train_sentencepiece(pieces_of(dict.fromkeys(counts, 1)), algorithm, 330, ()))


def test_nothing_is_printed_and_no_path_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    data = train_sentencepiece(pieces_of({b"a b": 1, b"abc": 2, b"x" * 3000: 1}), BPE, 266, SPECIALS)
    with pytest.raises(VocabularyTooLarge):
        train_sentencepiece(pieces_of({b"abc": 1}), UNIGRAM, 600, SPECIALS)
    assert capfd.readouterr() == ("", "")
    assert b"/" not in data.replace(b"</s>", b"")


# ---- the tokens


@BOTH
def test_tabs_and_all_other_text_come_back(algorithm: str) -> None:
    library = load(model(algorithm))
    assert {"\t", "▅", "\n"} <= scores(model(algorithm)).keys()
    assert any("\t\t" in piece for piece in scores(model(algorithm)))
    assert not any(ord(character) >= 0xF0000 for piece in scores(model(algorithm)) for character in piece)
    numbers = random.Random(0)
    alphabet = [
        *" \t\n\r\0\x1f\x85\u00a0▅\u2047\ufeff\u3000\u0301\u200d\U0001f600\U0010fffd日é'<>",
        "  ",
        *SPECIALS,
        "<unk>",
    ]
    for _ in range(2000):
        text = "".join(numbers.choices(alphabet, k=numbers.randrange(1, 30)))
        ids = library.encode(text)
        assert library.decode(ids) == text
        assert not any(library.is_control(each) or library.is_unknown(each) for each in ids)
    assert library.decode(library.encode("a▁b")) == "a b"


@BOTH
def test_special_tokens_have_the_first_ids_and_the_first_one_ends_text(algorithm: str) -> None:
    library = load(model(algorithm))
    assert [library.id_to_piece(each) for each in range(5)] == ["<unk>", *SPECIALS, "<0x00>"]
    assert [library.is_control(each) for each in range(5)] == [False, True, True, True, False]
    assert (library.unk_id(), library.eos_id(), library.bos_id(), library.pad_id()) == (0, 1, -1, -1)
    assert load(train_sentencepiece(pieces(), BPE, VOCABULARY, ())).eos_id() == -1
    assert clashing_names(("<unk>", "<0x0A>", "<0x0a>", "<s>")) == ["<unk>", "<0x0A>"]


@BOTH
def test_a_job_takes_the_model(algorithm: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model(algorithm))
    tokenizer = load_tokenizer(make_spec(uri=path, token=SPECIALS[0]))
    assert tokenizer.special_tokens == {token: number for number, token in enumerate(SPECIALS, 1)}
    assert tokenizer.vocab_size == VOCABULARY
    (tmp_path / "source.jsonl").write_bytes(json_lines(documents()))
    job = make_job(tmp_path / "source.jsonl", tmp_path / "out", tokenizer={"name": None, "uri": str(path)})
    assert run_job(job).documents_written == len(documents())
    assert not verify(str(tmp_path / "out")).findings


# ---- by `tokjob train`


@BOTH
def test_models_of_two_sizes_are_the_same_for_other_processes_cuts_and_hashes(algorithm: str, tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    fields = {"tokenizer__algorithm": algorithm, "tokenizer__vocabSize": [600, 700], "holdout": "20%"}
    whole = train(source, tmp_path / "whole", **fields)
    if algorithm == UNIGRAM:
        flags = ["--source", str(source), "--vocab-size", "600,700", "--tokenizer.algorithm", algorithm]
        flags += ["--holdout", "20%", "--rangeBytes", "5000", "--processes", "2", "--output", str(tmp_path / "cut")]
        flags += ["--tokenizer.specialTokens", json.dumps(TRAINED_SPECIALS)]
        done = run_command([str(TOKJOB), "train", *flags], PYTHONHASHSEED="7")
        assert done.returncode == 0, done.stderr
        assert "by the package sentencepiece" in done.stdout
    else:  # in this process, which tries the models on fewer texts
        train(source, tmp_path / "cut", rangeBytes=5000, **fields)
    for name in ("600/tokenizer.model", "700/tokenizer.model", "report.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()
    index = json.loads((tmp_path / "whole" / "index.json").read_bytes())
    assert sorted(index["files"]) == ["600/tokenizer.model", "700/tokenizer.model", "report.json"]
    for size, made, facts in zip((600, 700), whole.tokenizers, index["tokenizers"], strict=True):
        library = load((tmp_path / "whole" / str(size) / "tokenizer.model").read_bytes())
        assert library.get_piece_size() == size == made.vocab_size
        assert facts["specialTokens"] == {token: number for number, token in enumerate(TRAINED_SPECIALS, 1)}
    job = make_job(source, tmp_path / "dataset", tokenizer={"name": None, "uri": whole.tokenizers[0].uri})
    assert run_job(job).documents_written
    made_with = json.loads((tmp_path / "dataset" / "index.json").read_bytes())["tokenizer"]["fingerprint"]
    assert made_with == whole.tokenizers[0].fingerprint
    assert not verify(str(tmp_path / "dataset")).findings


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokenizer__layout": "BytesFirst"}, "layout is for algorithm: BPE"),
        ({"tokenizer__ties": "LargestText"}, "ties is for algorithm: BPE"),
        ({"tokenizer__specialTokens": ["<0x0A>"]}, "'<0x0A>': each SentencePiece model has a token of its own"),
        ({"tokenizer__vocabSize": 260}, "special tokens and frequent characters of the text are "),
        ({"tokenizer__vocabSize": 1 << 20}, "tokenizer.vocabSize: the text gives "),
    ],
)
def test_what_no_model_has_is_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines(documents()))
    with pytest.raises((SpecError, ValidationError), match=re.escape(words)):
        train(tmp_path / "a.jsonl", tmp_path / "out", tokenizer__algorithm=UNIGRAM, **changes)


def test_memory_that_is_short_is_told_before_a_model_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines(documents()))
    monkeypatch.setattr("tokenization_worker.run.training.make.free_memory", lambda: 1 << 20)
    with pytest.raises(TemporaryError, match=r"needs about 0\.\d GB") as caught:
        train(tmp_path / "a.jsonl", tmp_path / "out", tokenizer__algorithm=UNIGRAM)
    assert caught.value.reason == "TrainMemory"


# ---- what cannot be trained


@BOTH
def test_the_largest_and_the_least_vocabulary_are_named(algorithm: str) -> None:
    counted = pieces_of({b"hello": 3, b" world": 2, b"\n\n": 4, b"hell": 1})
    with pytest.raises(VocabularyTooLarge) as too_large:
        train_sentencepiece(counted, algorithm, 1000, SPECIALS)
    assert too_large.value.largest is not None
    library = load(train_sentencepiece(counted, algorithm, too_large.value.largest, SPECIALS))
    assert library.get_piece_size() == too_large.value.largest
    with pytest.raises(VocabularyTooSmall) as too_small:
        train_sentencepiece(counted, algorithm, 262, SPECIALS)
    least = too_small.value.least
    assert load(train_sentencepiece(counted, algorithm, least, SPECIALS)).get_piece_size() == least
    with pytest.raises(VocabularyTooLarge) as nothing:
        train_sentencepiece(pieces_of({b"\0": 5}), algorithm, 300, SPECIALS)
    assert nothing.value.largest is None


@BOTH
def test_rare_characters_leave_half_of_a_small_vocabulary(algorithm: str) -> None:
    """Of 308 characters 250 would be tokens, and the vocabulary has 40 places beside the bytes."""
    rare = {chr(0x4E00 + number): 1 for number in range(300)}
    data = train_sentencepiece(pieces_of(random_words("abcdefg") | encoded(rare)), algorithm, 257 + 40, ())
    assert sum(len(piece) == 1 for piece in scores(data)) == 20


@pytest.mark.exhaustive
def test_a_piece_that_the_trainer_cannot_learn_from_is_cut() -> None:
    letters = "".join(random.Random(0).choices("abcdefgh", k=200_000)).encode()
    assert load(train_sentencepiece(pieces_of({letters: 1, b"ab": 7}), UNIGRAM, 300, ())).get_piece_size() == 300


def test_memory_follows_distinct_text_and_for_unigram_all_text() -> None:
    once, often = pieces_of({b"a": 1, "é b".encode(): 1}), pieces_of({b"a": 1, "é b".encode(): 2**50})
    assert memory_needed(once, BPE, 1000) == memory_needed(often, BPE, 1000)
    assert memory_needed(once, UNIGRAM, 1000) < 200e6 < 6e9 < memory_needed(often, UNIGRAM, 1000) < 8e9


# ---- a process of its own


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that are started."""
    start, processes = subprocess.Popen, list[subprocess.Popen[bytes]]()

    def begin(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        processes.append(start(*arguments, **options))
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", begin)
    return processes


def test_a_stop_ends_the_training(started: list[subprocess.Popen[bytes]]) -> None:
    waits = iter(range(3))

    def stop() -> None:
        assert started[0].poll() is None
        if next(waits, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_apart(slow_pieces(), UNIGRAM, 8000, SPECIALS, while_waiting=stop)
    assert [process.poll() for process in started] == [-signal.SIGKILL]


def test_a_process_that_dies_and_an_error_in_it_are_the_callers(started: list[subprocess.Popen[bytes]]) -> None:
    with pytest.raises(TemporaryError, match="trains the tokenizer died: killed by SIGKILL"):
        train_apart(slow_pieces(), UNIGRAM, 8000, SPECIALS, while_waiting=lambda: started[0].kill())
    with pytest.raises(VocabularyTooLarge) as caught:
        train_apart(pieces_of({b"abc": 1}), BPE, 1000, ())
    assert caught.value.largest == 263


@cache
def slow_pieces() -> Pieces:
    numbers = random.Random(0)
    return pieces_of({numbers.randbytes(20).hex().encode(): 1 for _ in range(100_000)})
