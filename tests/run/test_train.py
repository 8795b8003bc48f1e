"""`tokjob train`: counts and merges against naive programs, whatever the cut, the processes and the kills."""

from __future__ import annotations

import json
import os
import re
import signal
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from hashlib import blake2b
from itertools import count, islice, pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from support.corpus import json_lines, write_parquet
from support.faults.hostile import hostile_files
from support.forked_commands import TOKJOB
from support.runs import Running, make_job, run_command
from support.trainings import SPECIALS, VOCABULARY, inline, texts_of, train, training, write_source
from support.trainings import few_texts as few_texts
from tokenization_worker import run_job, verify
from tokenization_worker.api.data import hash_end
from tokenization_worker.api.training.manifest import TokenizerTraining
from tokenization_worker.engine.dispatch import Stopped
from tokenization_worker.errors import ChangedError, DataError, SpecError, TokenizationError
from tokenization_worker.events import Counted, CountsMerged, Event, MergesMade, TrainingFinished
from tokenization_worker.inspect.training_status import read_training_status
from tokenization_worker.pipelines.train import count_task
from tokenization_worker.planning import make_plan
from tokenization_worker.run.training import train as train_module
from tokenization_worker.run.training.train import TrainOptions, train_tokenizer
from tokenization_worker.training.pieces import Pieces


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_source(tmp_path_factory.mktemp("train") / "source")


def counts_of(output: Path) -> dict[bytes, int]:
    return dict(Pieces.from_bytes((output / "counts.npz").read_bytes()).items())


# ---- a naive program


def is_held_out(text: str, share: str) -> bool:
    digest = blake2b(text.encode(), digest_size=8, person=b"tokjob/holdout/1").digest()
    return int.from_bytes(digest, "big") < Fraction(share.rstrip("%")) / 100 * 2**64


def parts_of(text: str) -> list[str]:
    longest_first = sorted(SPECIALS, key=len, reverse=True)
    return [part for part in re.split("|".join(map(re.escape, longest_first)), text) if part]


def pre_tokenizer(pattern: str) -> Any:
    if pattern == "Gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    cl100k = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    )
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    before, behind = r"[^\r\n\p{L}\p{N}]?", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    o200k = (
        f"{before}{upper}*{lower}+{behind}|{before}{upper}+{lower}*{behind}|"
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    text = {"Cl100k": cl100k, "Llama3": cl100k, "O200k": o200k}[pattern]
    split = pre_tokenizers.Split(tokenizers.Regex(text), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def naive_counts(texts: list[str], pattern: str = "Gpt2") -> Counter[bytes]:
    cutter = pre_tokenizer(pattern)
    counts = Counter[bytes]()
    for text in texts:
        for part in parts_of(text):
            counts.update(part[start:end].encode() for _, (start, end) in cutter.pre_tokenize_str(part))
    return counts


def reference_merges(texts: list[str], pattern: str) -> list[list[str]]:
    """Hugging Face's own trainer, which is given the texts between special tokens."""
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizer(pattern)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY - len(SPECIALS), initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator((part for text in texts for part in parts_of(text)), trainer)
    merges: list[list[str]] = json.loads(library.to_str())["model"]["merges"]
    return merges


ALL = [text for part in range(3) for text in texts_of(part)]


# ---- same as the reference


@pytest.mark.parametrize("pattern", ["Gpt2", "Cl100k", "Llama3", "O200k"])
def test_counts_and_merges_are_those_of_the_library(pattern: str, source: Path, tmp_path: Path) -> None:
    finished = train(source, tmp_path / "out", holdout="0%", tokenizer__pattern=pattern)
    assert counts_of(tmp_path / "out") == naive_counts(ALL, pattern)
    written = json.loads((tmp_path / "out" / "tokenizer.json").read_bytes())
    assert written["model"]["merges"] == reference_merges(ALL, pattern)
    assert [token["content"] for token in written["added_tokens"]] == SPECIALS
    assert finished.documents_read == finished.documents_counted == len(ALL)


def sizes_of(finished: TrainingFinished) -> list[int]:
    return [made.vocab_size for made in finished.tokenizers]


def test_what_is_held_out_is_not_counted_and_kept(source: Path, tmp_path: Path) -> None:
    finished = train(source, tmp_path / "out", holdout="12.5%")
    counted = [text for text in ALL if not is_held_out(text, "12.5%")]
    held_out = [text for text in ALL if is_held_out(text, "12.5%")]
    assert counts_of(tmp_path / "out") == naive_counts(counted)
    packed = (tmp_path / "out" / "holdout.jsonl.zst").read_bytes()
    from tokenization_worker.pipelines.train.holdout import read_held_out

    assert sorted(document.text for document in read_held_out(packed)) == sorted(held_out)
    assert (finished.documents_counted, finished.documents_held_out) == (len(counted), len(held_out))


def test_groups_give_their_shares(source: Path, tmp_path: Path) -> None:
    groups = [
        {"name": "web", "uris": [str(source / "a.jsonl"), str(source / "b.jsonl.zst")], "share": "30%"},
        {"name": "code", "uris": [str(source / "c.jsonl.gz")]},
    ]
    train(source, tmp_path / "out", source={"groups": groups}, holdout="0%")
    end = hash_end(Fraction(3, 10))

    def is_in(text: str) -> bool:
        return int.from_bytes(blake2b(text.encode(), digest_size=8, person=b"tokjob/group/1").digest(), "big") < end

    texts = [text for part in (0, 1) for text in texts_of(part) if is_in(text)] + texts_of(2)
    assert counts_of(tmp_path / "out") == naive_counts(texts)


# ---- one digest


def test_one_digest_for_any_cut_name_process_and_table(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = train(source, tmp_path / "out", holdout="20%").counts_digest
    small = train(source, tmp_path / "small", rangeBytes=3000, holdout="20%")
    renamed = tmp_path / "renamed"
    renamed.mkdir()
    for number, path in enumerate(sorted(source.iterdir(), reverse=True)):
        (renamed / f"{number}{''.join(path.suffixes)}").write_bytes(path.read_bytes())
    two = train_tokenizer(
        training(renamed, tmp_path / "two", rangeBytes=20_000, holdout="20%"), options=TrainOptions(processes=2)
    )
    monkeypatch.setattr(count_task.CountContext, "__init__", _with_tables(count_task.CountContext.__init__, 50_000))
    spilled = train(source, tmp_path / "spilled", holdout="20%")
    assert {digest} == {small.counts_digest, two.counts_digest, spilled.counts_digest}
    for name in ("tokenizer.json", "counts.npz", "holdout.jsonl.zst", "report.json"):
        assert len({(tmp_path / folder / name).read_bytes() for folder in ("out", "small", "two", "spilled")}) == 1


def _with_tables(original: Callable[..., None], size: int) -> Callable[..., None]:
    def init(self: Any, *arguments: Any, **fields: Any) -> None:
        original(self, *arguments, **{**fields, "table_bytes": size})

    return init


@pytest.mark.exhaustive
def test_tables_of_64_mib_are_written_and_others_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    letters = np.random.default_rng(3).integers(97, 123, (2000, 1000, 10), np.uint8)
    letters[:, :, 9] = ord(" ")
    documents = [words.tobytes().decode() for words in letters]
    (tmp_path / "words.jsonl").write_bytes(json_lines(documents))
    fields: dict[str, Any] = {"holdout": "0%", "rangeBytes": "1Gi", "until_counts": True}
    whole = train(tmp_path / "words.jsonl", tmp_path / "whole", **fields)
    monkeypatch.setattr(count_task.CountContext, "__init__", _with_tables(count_task.CountContext.__init__, 64 << 20))
    monkeypatch.setattr(make_plan, "choose_range_bytes", lambda wanted, *_: wanted)
    cut = train(tmp_path / "words.jsonl", tmp_path / "cut", **fields)
    assert cut.counts_digest == whole.counts_digest
    [receipt] = (tmp_path / "cut").glob("_tokenization/ledger/0/counted/**/*.json")
    assert json.loads(receipt.read_bytes())["distinct"] < cut.distinct


def test_a_killed_training_goes_on_and_ends_with_the_same(source: Path, tmp_path: Path) -> None:
    """Killed at each third event, until a start comes to its end."""
    changes = {"rangeBytes": 5_000, "holdout": "20%"}
    expected = train(source, tmp_path / "expected", **changes)

    def start(most_events: int) -> None:
        left = iter(range(most_events))

        def kill(event: Event) -> None:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        train_tokenizer(training(source, tmp_path / "out", **changes), executor=inline(), on_progress=kill)

    for kills in count():
        process = get_context("fork").Process(target=start, args=(2 + 3 * kills,))
        process.start()
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert kills >= 4
    for name in ("tokenizer.json", "counts.npz", "holdout.jsonl.zst", "report.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "expected" / name).read_bytes()
    index = json.loads((tmp_path / "out" / "index.json").read_bytes())
    assert index["counts"]["digest"] == expected.counts_digest


def test_a_command_that_was_killed_with_its_processes_goes_on(source: Path, tmp_path: Path) -> None:
    flags = ["train", "--source", str(source), "--vocab-size", "300", "--rangeBytes", "5000", "--processes", "2"]
    command = [str(TOKJOB), *flags, "--output", str(tmp_path / "out"), "--json"]
    reading, writing = os.pipe()
    running = Running(command, tmp_path / "log", stdout=writing)
    os.close(writing)
    with os.fdopen(reading) as lines:
        assert len(list(islice(lines, 4))) == 4
        running.kill()
    assert run_command(command).returncode == 0
    assert run_command([*command[:-2], str(tmp_path / "whole")]).returncode == 0
    for name in ("tokenizer.json", "counts.npz"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_lost_and_torn_scratch_is_made_again(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    expected = train(source, tmp_path / "expected", rangeBytes=30_000).counts_digest
    harmed: list[str] = []

    def harm(task: Any) -> None:
        """Before the first merge one object is cut and another one removed."""
        if "merged" in task.product and not harmed:
            scratch = sorted((output / "_tokenization/ledger/0/counts").iterdir())
            scratch[0].write_bytes(scratch[0].read_bytes()[:-40])
            scratch[1].unlink()
            harmed.extend(path.name for path in scratch[:2])

    assert train(source, output, inline(harm), rangeBytes=30_000).counts_digest == expected
    assert len(harmed) == 2
    assert not any(path.is_file() for path in (output / "_tokenization/ledger/0/counts").glob("*"))


def test_counts_serve_another_size(source: Path, tmp_path: Path) -> None:
    output, tasks = tmp_path / "out", []
    counted = train(source, output, until_counts=True)
    assert counted.is_counts_only
    assert not (output / "index.json").exists()
    smaller = train(source, output, inline(lambda task: tasks.append(task)), tokenizer__vocabSize=400)
    assert not tasks
    assert (smaller.counts_digest, sizes_of(smaller)) == (counted.counts_digest, [400])
    assert train(source, output, tokenizer__vocabSize=400).already
    with pytest.raises(ChangedError, match=r"tokenizer\.vocabSize: 700 is asked for, it was made with 400"):
        train(source, output)
    with pytest.raises(ChangedError, match=r"holdout: 2\.5% is asked for, it was made with 1%"):
        train(source, output, holdout="2.5%")


def test_a_stop_between_merges_keeps_the_counts(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenization_worker.training.merging._WORK", 1000)
    seen: list[Event] = []
    with pytest.raises(Stopped):
        train_tokenizer(
            training(source, tmp_path / "out"),
            executor=inline(),
            on_progress=seen.append,
            should_stop=lambda: any(isinstance(event, MergesMade) for event in seen),
        )
    made = [event for event in seen if isinstance(event, MergesMade)]
    assert 0 < made[-1].merges_done < VOCABULARY - 256 - len(SPECIALS)
    again: list[Event] = []
    train_tokenizer(training(source, tmp_path / "out"), executor=inline(), on_progress=again.append)
    assert [event.ranges_done for event in again if isinstance(event, Counted)] == []
    assert [event.merges_done for event in again if isinstance(event, MergesMade)][-1] == 441


# ---- other ways


def test_ties_and_layout_of_the_course(source: Path, tmp_path: Path) -> None:
    """A naive program in the way of CS336: ids from 256 for special tokens, and of equal counts the largest bytes."""
    train(source, tmp_path / "out", holdout="0%", tokenizer__layout="BytesFirst", tokenizer__ties="LargestText")
    words = {tuple(bytes([byte]) for byte in piece): times for piece, times in naive_counts(ALL).items()}
    pairs = Counter[tuple[bytes, bytes]]()
    for word, times in words.items():
        for pair in pairwise(word):
            pairs[pair] += times
    expected = []
    for _ in range(VOCABULARY - 256 - len(SPECIALS)):
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        expected.append(best)
        merged: dict[tuple[bytes, ...], int] = {}
        for word, times in words.items():
            if best not in set(pairwise(word)):
                merged[word] = times
                continue
            new: list[bytes] = []
            for symbol in word:
                if new and (new[-1], symbol) == best:
                    new[-1] += symbol
                else:
                    new.append(symbol)
            for pair in pairwise(word):
                pairs[pair] -= times
            for pair in pairwise(new):
                pairs[pair] += times
            merged[tuple(new)] = merged.get(tuple(new), 0) + times
        words = merged
    ranks = [b64decode(line.split()[0]) for line in (tmp_path / "out" / "ranks.tiktoken").read_bytes().splitlines()]
    assert ranks[256:] == [left + right for left, right in expected]


def test_another_library_does_not_go_on_with_a_training(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(source, tmp_path / "out", until_counts=True)
    monkeypatch.setattr(train_module, "library_version", lambda: "tokenizers 9.9.9")
    error = refusal(lambda: train(source, tmp_path / "out"))
    assert (error.reason, "tokenizers 9.9.9" in error.message) == ("TokenizerChanged", True)
    error = refusal(lambda: train(source, tmp_path / "new"))  # a worker that has another one than the driver
    assert error.reason == "TokenizerChanged"


# ---- refusals


def refusal(run: Callable[[], object]) -> TokenizationError:
    with pytest.raises(TokenizationError) as caught:
        run()
    return caught.value


def test_a_corrupt_file_is_left_out_as_a_whole_or_ends_the_training(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    for path in source.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    write_parquet(folder / "d.parquet", texts_of(3), rows_per_group=4)
    whole = (folder / "d.parquet").read_bytes()
    end = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")  # of the last row group: its range alone finds it
    (folder / "d.parquet").write_bytes(whole[: end - 60] + bytes(40) + whole[end - 20 :])
    error = refusal(lambda: train(folder, tmp_path / "out", rangeBytes=4000))
    assert (error.reason, type(error)) == ("CorruptFile", DataError)
    assert "d.parquet" in error.message
    finished = train(folder, tmp_path / "out", rangeBytes=4000, maxCorruptFiles=1)
    assert finished.files_dropped == 1
    assert finished.counts_digest == train(source, tmp_path / "without").counts_digest


def test_hostile_files_get_what_the_policy_says(tmp_path: Path) -> None:
    """All of them at once, in two cuts: the same documents are counted, and the same files left out."""
    files = hostile_files()
    folder = tmp_path / "source"
    folder.mkdir()
    for number, file in enumerate(files):
        (folder / f"{number:03d}-{file.name}").write_bytes(file.content)
    limits = {"maxQuarantined": "100%", "maxCorruptFiles": "100%", "holdout": "0%", "tokenizer__vocabSize": 300}
    whole = train(folder, tmp_path / "whole", **limits)
    cut = train(folder, tmp_path / "cut", rangeBytes=500, **limits)
    assert whole.counts_digest == cut.counts_digest
    is_read = [file for file in files if file.outcome == "Read"]
    for finished in (whole, cut):
        assert finished.documents_counted == sum(file.documents for file in is_read)
        assert finished.documents_quarantined == sum(sum(file.quarantined.values()) for file in is_read)
        assert finished.files_dropped == len(files) - len(is_read)
    index = json.loads((tmp_path / "cut" / "index.json").read_bytes())
    assert index["documents"]["quarantined"] == dict(sum((Counter(file.quarantined) for file in is_read), Counter()))


def test_too_many_unusable_documents_end_the_training_until_they_are_allowed(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes((source / "a.jsonl").read_bytes() + b'{"text": 7}\nno json\n')
    error = refusal(lambda: train(folder, tmp_path / "out", maxQuarantined=1))
    assert error.reason == "QuarantineExceeded"
    assert "2 of" in error.message
    assert "WrongTextType" in error.message
    assert train(folder, tmp_path / "out", maxQuarantined=2).documents_quarantined == 2


def test_a_vocabulary_that_the_text_cannot_fill_is_refused_with_the_largest(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(json_lines(["abcd abcd abcd"]))
    error = refusal(lambda: train(folder, tmp_path / "out", holdout="0%"))
    assert error.reason == "VocabTooLarge"
    largest = int(re.findall(r"gives ([\d,]+) tokens", error.message)[0].replace(",", ""))
    sizes = [260, largest]
    assert sizes_of(train(folder, tmp_path / "out", holdout="0%", tokenizer__vocabSize=sizes)) == sizes


def test_memory_that_is_short_is_told_before_the_training(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokenization_worker.run.training.make.free_memory", lambda: 1 << 20)
    error = refusal(lambda: train(source, tmp_path / "out"))
    assert (error.reason, error.exit_code) == ("TrainMemory", 5)
    assert "0.2 GB" in error.message
    monkeypatch.undo()
    assert not train(source, tmp_path / "out").already


def test_counts_that_were_changed_are_refused_and_made_again_where_they_are_gone(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    digest = train(source, output, until_counts=True).counts_digest
    data = (output / "counts.npz").read_bytes()
    pieces = Pieces.from_bytes(data)
    others = Pieces(pieces.text, pieces.ends, pieces.counts + 1).to_bytes()  # whole, and of the same size
    for changed in (data[:500] + bytes([data[500] ^ 1]) + data[501:], others):
        (output / "counts.npz").write_bytes(changed)
        assert refusal(lambda: train(source, output)).reason == "CountsCorrupt"
    (output / "counts.npz").unlink()
    assert train(source, output).counts_digest == digest


def test_a_source_that_changed_ends_the_training(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes((source / "a.jsonl").read_bytes())
    train(folder, tmp_path / "out", until_counts=True)
    (folder / "a.jsonl").write_bytes((source / "a.jsonl").read_bytes() + b'{"text": "more"}\n')
    assert refusal(lambda: train(folder, tmp_path / "out")).reason == "SourceChanged"


def test_jobs_and_trainings_do_not_share_an_output(source: Path, tmp_path: Path) -> None:
    counts, done, job_output = tmp_path / "counts", tmp_path / "done", tmp_path / "job"
    train(source, counts, until_counts=True)
    train(source, done)
    run_job(make_job(source, job_output, tokenizer={"name": "bytes"}))
    for output in (counts, done):
        error = refusal(lambda output=output: run_job(make_job(source, output, tokenizer={"name": "bytes"})))
        assert error.reason == "OutputConflict"
        assert "training of a tokenizer" in error.message
    assert "holds a dataset" in refusal(lambda: train(source, job_output)).message
    assert refusal(lambda: verify(str(done))).exit_code == 2


def test_files_of_others_and_the_source_are_not_written_over(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "tokenizer.json").write_text("{}")
    assert refusal(lambda: train(source, tmp_path / "out")).reason == "OutputConflict"
    assert "would match" in refusal(lambda: train(tmp_path, tmp_path / "new")).message


def test_of_two_trainings_from_the_same_counts_one_writes_and_the_other_is_refused(
    source: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"

    def train_another(event: Event) -> None:
        if isinstance(event, CountsMerged):
            train(source, output, tokenizer__vocabSize=400)

    both = training(source, output)
    error = refusal(lambda: train_tokenizer(both, executor=inline(), on_progress=train_another))
    assert isinstance(error, ChangedError)
    assert "of 400 tokens" in error.message
    train(source, tmp_path / "alone", tokenizer__vocabSize=400)
    for name in ("tokenizer.json", "ranks.tiktoken"):
        assert (output / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_finished_training_whose_file_is_lost_is_told_and_made_again(
    damage: str, source: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    train(source, output)
    path = output / "ranks.tiktoken"
    was = path.read_bytes()
    path.unlink() if damage == "gone" else path.write_bytes(was[:-1])
    error = refusal(lambda: train(source, output))
    assert (error.reason, str(path) in error.message) == ("TokenizerChanged", True)
    assert "delete index.json" in error.next_step
    status = read_training_status(str(output))
    assert status is not None
    assert (status.phase, status.message) == (("Damaged", f"{path} is gone") if damage == "gone" else ("Complete", ""))
    (ledger := output / "_tokenization" / "ledger").rename(tmp_path / "ledger")
    assert "do not delete index.json" in refusal(lambda: train(source, output)).next_step
    (tmp_path / "ledger").rename(ledger)
    (output / "index.json").unlink()
    train(source, output)
    assert path.read_bytes() == was


@pytest.mark.parametrize("token", ["a", "\u0120the"])
def test_a_special_token_that_is_the_name_of_another_token_is_refused(token: str, source: Path, tmp_path: Path) -> None:
    error = refusal(lambda: train(source, tmp_path / "out", tokenizer__specialTokens=[token]))
    assert isinstance(error, SpecError)
    assert f"tokenizer.specialTokens: {token!r}" in error.message
    assert not (tmp_path / "out" / "tokenizer.json").exists()


def test_an_expression_that_the_library_refuses_is_refused_before_anything_is_written(
    source: Path, tmp_path: Path
) -> None:
    error = refusal(lambda: train(source, tmp_path / "out", tokenizer__regex="(a"))
    assert isinstance(error, SpecError)
    assert "tokenizer.regex" in error.message
    assert not (tmp_path / "out").exists()


# ---- the command


def tokjob(*arguments: object) -> tuple[int, str, str]:
    done = run_command([str(TOKJOB), *map(str, arguments)])
    return done.returncode, done.stdout, done.stderr


def test_the_command_trains_tells_and_is_known_to_status_and_clean(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    flags = ["train", "--source", source, "--vocab-size", 300, "--output", output]
    code, told, error = tokjob(*flags, "--until", "counts")
    assert (code, error) == (0, "")
    assert "different ones" in told
    status = tokjob("status", output)[1]
    assert "Interrupted" in status
    assert "without --until counts" in status
    assert json.loads(tokjob("status", output, "--json")[1])["is_merged"]
    code, told, _ = tokjob("clean", output)
    assert (code, list(tmp_path.glob("out/**/*"))) == (0, [])
    code, told, error = tokjob(*flags)
    assert (code, error) == (0, "")
    assert f'uri: "{output}/tokenizer.json"' in told
    assert "Complete" in tokjob("status", output)[1]
    assert "TrainingFinished" in tokjob("clean", output)[2]
    assert "nothing to do" in tokjob(*flags)[1]
    code, told, _ = tokjob(*flags, "--print-manifest")
    assert TokenizerTraining.from_yaml(told).spec.tokenizer.vocab_size == 300


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "no training given"),
        (["--source", "x", "--output", "y"], "--vocab-size missing"),
        (["--source", "x", "--output", "y", "--vocab-size", "100"], "at least 257"),
        (["--source", "x", "--output", "y", "--vocab-size", "300", "--holdout", "2"], "a share is a percentage: write"),
        (["--source", "x", "--output", "y", "--vocab-size", "300", "--tokenizer.pattern", "gpt2"], "Gpt2"),
        (["--sauce", "x"], "unknown flag --sauce"),
    ],
)
def test_mistakes_of_flags_are_told_with_the_next_step(flags: list[str], words: str, tmp_path: Path) -> None:
    code, _, error = tokjob("train", *flags)
    assert code == 2
    assert words in error
    assert "next:" in error


@pytest.mark.parametrize(
    ("command", "kind", "words"),
    [
        ("run", "TokenizerTraining", "tokjob train reads a TokenizerTraining"),
        ("plan", "TokenizerTraning", "tokjob train reads a TokenizerTraining"),
        ("train", "TokenizationJob", "tokjob run reads a TokenizationJob"),
        ("train", "Pod", "(every field: tokjob train --help)"),
        ("validate", "TokenizerTraning", 'did you mean "TokenizerTraining"'),
    ],
)
def test_a_manifest_of_another_kind_is_sent_to_its_command(command: str, kind: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    text = json.dumps(training(tmp_path, tmp_path / "out").to_manifest())
    path.write_text(text.replace('"TokenizerTraining"', f'"{kind}"'))
    code, _, error = tokjob(command, path)
    assert (code, words in error) == (2, True), error
