"""The report of a training: its numbers against a naive program, its table, and `tokjob report`."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any
from unicodedata import category, name

import pytest
import tokenizers

from support import trainings
from support.corpus import json_lines, take_documents, zstd
from support.forked_commands import TOKJOB
from support.runs import make_job, run_command
from support.tokenizer_models import make_spec, train_byte_level, write_json
from support.trainings import few_texts as few_texts
from tokenization_worker import run_job
from tokenization_worker.cli.training_report import WIDTH, report_lines
from tokenization_worker.errors import TokenizationError
from tokenization_worker.inspect.training_report import report_training
from tokenization_worker.output import layout
from tokenization_worker.output.training_report import TrainingReport, read_report
from tokenization_worker.pipelines.train.holdout import read_held_out
from tokenization_worker.storage.open import open_store
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.training.fertility import measure_holdout, measure_tokenizer

SPECIALS = ["<|endoftext|>", "<|pad|>"]
SIZES = [400, 700]
HOLDOUT = Fraction(1, 5)

Groups = dict[str, list[str]]


def train(folder: Path, groups: Groups, **changes: Any) -> Path:
    """Train on groups of texts, a file each, in `folder`; returns the output."""
    source = []
    for group, texts in groups.items():
        path = folder / f"{group}.jsonl"
        path.write_bytes(json_lines(texts))
        source.append({"name": group, "uris": [str(path)]})
    spec: dict[str, Any] = {
        "source": {"groups": source},
        "tokenizer": {"vocabSize": SIZES, "specialTokens": SPECIALS},
        "holdout": f"{float(HOLDOUT * 100)}%",
    }
    trainings.train(folder, folder / "out", **(spec | changes))
    return folder / "out"


def report_of(output: Path) -> TrainingReport:
    report = read_report(open_store(str(output)))
    assert report is not None
    return report


def source_bytes(output: Path) -> int:
    counted = json.loads((output / "index.json").read_bytes())["documents"]["textBytes"]
    return round(counted / (1 - HOLDOUT))


# ---- numbers of a naive program

SENTENCES = {
    "Cyrillic": "Съешь же ещё этих мягких французских булок да выпей чаю",
    "Kana": "これはとてもながいテキストです",
    "Han": "天地玄黄宇宙洪荒日月盈昃辰宿列张",
    "Thai": "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
    "Hangul": "키스의 고유조건은 입술끼리 만나야 하고",
    "Other": "12 + 30 = 42; 1.5 ...",
}


def many_scripts(count: int, first: int) -> list[str]:
    """Short documents of every script, no two alike."""
    scripts = list(SENTENCES)
    return [f"{SENTENCES[scripts[number % 6]]} {number}\n" * (1 + number % 3) for number in range(first, first + count)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    texts = [*take_documents(90_000), "<|endoftext|> and <|pad|> are text"]
    return train(folder, {"code": texts, "talk": [*many_scripts(200, 0), *take_documents(9_000, first=500)]})


@pytest.fixture
def output(trained: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return shutil.copytree(trained, tmp_path / "out")


def naive_script(text: str) -> str:
    names = {"HIRAGANA": "Kana", "KATAKANA": "Kana", "CJK": "Han"}
    letters = [name(each).split()[0] for each in text if category(each)[0] == "L"]
    counts = Counter(names.get(each, each.capitalize()) for each in letters)
    return min(counts, key=lambda script: (-counts[script], script)) if counts else "Other"


def naive_report(output: Path) -> dict[str, Any]:
    facts = json.loads((output / "index.json").read_bytes())["tokenizers"]
    measured = [naive_numbers(output, each) for each in facts]
    shared = [{name: each.pop(name) for name in ("holdout", "cells")} for each in measured]
    assert shared == shared[:1] * len(SIZES)
    return {"formatVersion": 1, "sourceBytes": source_bytes(output), **shared[0], "tokenizers": measured}


def naive_numbers(output: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """Of one tokenizer, with `holdout` and `cells`."""
    library = tokenizers.Tokenizer.from_file(str(output / facts["file"]))
    library.encode_special_tokens = True
    cells: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    uses = Counter[int]()
    for line in zstd.decompress((output / "holdout.jsonl.zst").read_bytes()).split(b"\n")[:-1]:
        document = json.loads(line)
        text = document["text"]
        ids = library.encode(text, add_special_tokens=False).ids
        uses.update(ids)
        numbers = (len(text.encode()), len(text.split()), len(ids))
        cells.setdefault((document["group"], naive_script(text)), []).append(numbers)
    size = library.get_vocab_size()
    can_be_text = set(range(size)) - set(facts["specialTokens"].values())
    n_bytes = sum(size for documents in cells.values() for size, _, _ in documents)
    n_tokens = sum(uses.values())
    has_spaces = {"Latin", "Cyrillic", "Hangul"}
    return {
        "holdout": {"documents": sum(map(len, cells.values())), "bytes": n_bytes},
        "cells": [
            {
                "group": group,
                "script": script,
                "documents": len(cells[group, script]),
                "bytes": sum(size for size, _, _ in cells[group, script]),
                "words": sum(words for _, words, _ in cells[group, script]) if script in has_spaces else None,
            }
            for group, script in sorted(cells)
        ],
        "name": facts["file"],
        "vocabularySize": size,
        "fingerprint": facts["fingerprint"],
        "tokens": [sum(tokens for _, _, tokens in cells[key]) for key in sorted(cells)],
        "neverUsed": sum(uses[number] == 0 for number in can_be_text),
        "under100": sum(uses[number] < 100 for number in can_be_text),
        "sourceTokens": round(source_bytes(output) * n_tokens / n_bytes),
        "embedding": {"2048": size * 2048, "4096": size * 4096, "8192": size * 8192},
    }


def test_every_number_is_that_of_a_naive_program(trained: Path) -> None:
    found = json.loads((trained / "report.json").read_bytes())
    del found["checksum"]
    assert found == naive_report(trained)
    assert {cell["script"] for cell in found["cells"]} >= {"Latin", *SENTENCES}
    assert {cell["group"] for cell in found["cells"]} == {"code", "talk"}
    assert found["tokenizers"][0]["neverUsed"] < found["tokenizers"][0]["under100"] < 698


def test_rows_of_groups_and_of_scripts_are_sums_of_cells(trained: Path) -> None:
    """The table against sums made here: bytes a token, and tokens a word of text with spaces alone."""
    report = json.loads((trained / "report.json").read_bytes())
    sums: dict[str, Counter[str]] = {}
    for number, cell in enumerate(report["cells"]):
        for label in (cell["group"], cell["script"], "all text"):
            row = sums.setdefault(label, Counter())
            row.update(bytes=cell["bytes"], words=cell["words"] or 0)
            for size, tokenizer in zip(SIZES, report["tokenizers"], strict=True):
                tokens = tokenizer["tokens"][number]
                row.update({f"tokens {size}": tokens, f"spaced {size}": 0 if cell["words"] is None else tokens})
    assert sums["all text"]["bytes"] == report["holdout"]["bytes"]
    lines = [line.partition("<-")[0].split() for line in report_lines(report_of(trained))]
    for label, row in sums.items():
        expected = []
        for size in SIZES:
            a_word = f"{row[f'spaced {size}'] / row['words']:.2f}" if row["words"] else "-"
            expected += [f"{row['bytes'] / row[f'tokens {size}']:.2f}", a_word]
        found = [line[-4:] for line in lines if line[: len(label.split())] == label.split()]
        assert found == [expected] * (2 if label == "all text" else 1), label


def test_batches_and_threads_decide_nothing(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fertility = sys.modules["tokenization_worker.training.fertility"]
    monkeypatch.setattr(fertility, "_BATCH_BYTES", 3000)
    monkeypatch.setattr(fertility, "_ALONE_BYTES", 6000)
    held_out = read_held_out((trained / layout.HOLDOUT).read_bytes())
    holdout = measure_holdout((each.text, each.group) for each in held_out)
    tokenizer = load_tokenizer(make_spec(uri=trained / "700" / layout.TOKENIZER, token=SPECIALS[0]))
    measured = measure_tokenizer(tokenizer, holdout, name="700/tokenizer.json", threads=3)
    assert measured.tokens == report_of(trained).tokenizers[1].tokens
    assert measured.never_used == report_of(trained).tokenizers[1].never_used


def test_a_group_whose_words_take_twice_the_tokens_is_marked_and_no_other_row(tmp_path: Path) -> None:
    chance = random.Random(4)
    shifted = str.maketrans("abcdefghijklmnopqrstuvwxyz", "nopqrstuvwxyzabcdefghijklm")
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randrange(2, 8))) for _ in range(300)]

    def documents(count: int) -> list[str]:
        likely = [1 / (rank + 3) for rank in range(len(words))]
        return [" ".join(chance.choices(words, likely, k=120)) for _ in range(count)]

    odd = [text.translate(shifted) for text in documents(20)]
    groups = {"books": documents(250), "odd": odd, "web": documents(250)}
    lines = report_lines(report_of(train(tmp_path, groups, tokenizer={"vocabSize": 700})))
    (marked,) = [line for line in lines[:-1] if "<-" in line]
    assert marked.startswith("odd ")
    assert marked.endswith("  <- 2.3 x")
    assert lines[-1].startswith("<- N x")


# ---- the command


def tokjob(*arguments: object) -> tuple[int, str, str]:
    done = run_command([str(TOKJOB), *map(str, arguments)])
    return done.returncode, done.stdout, done.stderr


def test_the_command_shows_the_table_again_and_its_numbers(trained: Path) -> None:
    report = report_of(trained)
    code, told, error = tokjob("report", trained)
    assert (code, error) == (0, "")
    assert told.splitlines() == [f"training   {trained}", *report_lines(report)]
    fields = json.loads((trained / "report.json").read_bytes())
    assert json.loads(tokjob("report", trained, "--json")[1]) == {
        name: fields[name] for name in fields if name != "checksum"
    }


def test_other_tokenizers_stand_beside_it_on_the_same_text(trained: Path, tmp_path: Path) -> None:
    """One by name, the training's own by its file, and one without an end of text, which a job would refuse."""
    bare = write_json(tmp_path / "tokenizer.json", train_byte_level([]))
    own = trained / "700" / "tokenizer.json"
    others = ["--tokenizer", "bytes", "--tokenizer", own, "--tokenizer", bare]
    code, told, error = tokjob("report", trained, *others, "--json")
    assert (code, error) == (0, "")
    found = json.loads(told)
    smaller, mine, as_bytes, again, without = found["tokenizers"]
    assert as_bytes["tokens"] == [cell["bytes"] for cell in found["cells"]]
    assert (as_bytes["name"], as_bytes["vocabularySize"]) == ("bytes", 257)
    assert as_bytes["sourceTokens"] == found["sourceBytes"]
    assert again == mine | {"name": str(own)}
    assert (without["name"], without["vocabularySize"]) == (str(bare), 600)
    code, table, _ = tokjob("report", trained, *others)
    assert [line.split() for line in table.splitlines() if line.startswith("tokens in the vocabulary")] == [
        ["tokens", "in", "the", "vocabulary", "400", "700", "257", "700", "600"]
    ]
    assert max(map(len, table.splitlines()[1:])) <= WIDTH
    assert (
        tokjob("report", trained, "--json")[1]
        == f"{json.dumps(found | {'tokenizers': [smaller, mine]}, separators=(',', ':'))}\n"
    )


def test_a_report_needs_no_numba() -> None:
    program = "import sys; sys.modules['numba'] = None; import tokenization_worker.cli.report_command"
    subprocess.run([sys.executable, "-c", program], check=True)


# ---- refusals


def refusal(run: Callable[[], object]) -> TokenizationError:
    with pytest.raises(TokenizationError) as caught:
        run()
    assert caught.value.next_step
    return caught.value


def test_flags_of_the_other_report_are_refused(trained: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    run_job(make_job(trained.parent / "talk.jsonl", dataset, tokenizer={"name": "bytes"}))
    for flags, words in (
        ([trained, "--lengths", "512"], "--lengths is for the report of a dataset"),
        ([dataset, "--tokenizer", "bytes"], "--tokenizer is for the report of a training"),
        ([tmp_path / "none", "--tokenizer", "bytes"], "does not exist"),
        ([trained, "--tokenizer", trained / "700" / "ranks.tiktoken"], "holds the ranks of no known encoding"),
        ([trained, "--tokenizer", "gtp2"], "did you mean 'gpt2'"),
    ):
        code, told, error = tokjob("report", *flags)
        assert (code, told, words in error, "next:" in error) == (2, "", True, True), error


def test_a_training_that_is_not_finished_or_held_nothing_out_has_no_report(tmp_path: Path) -> None:
    output = train(tmp_path, {"code": take_documents(20_000)}, holdout="0%", tokenizer={"vocabSize": 300})
    code, _, error = tokjob("report", output)
    assert (code, "no document was held out" in error, "--holdout 1%" in error) == (2, True, True)
    (output / "index.json").unlink()
    code, _, error = tokjob("report", output, "--tokenizer", "bytes")
    assert (code, "unfinished training" in error, f"tokjob status {output}" in error) == (2, True, True)


@pytest.mark.parametrize("change", ["gone", "flipped", "newer", "cells"])
def test_a_report_that_is_not_as_it_was_written_is_refused_in_words(change: str, output: Path) -> None:
    path = output / "report.json"
    data = path.read_bytes()
    if change == "gone":
        path.unlink()
    else:
        changes = {
            "flipped": (b'"documents":', b'"documents":1'),
            "newer": (b'"formatVersion":1', b'"formatVersion":2'),
        }
        changed = data.replace(*changes.get(change, (b'"cells":[', b'"cells":[{},')), 1)
        assert changed != data
        fields = json.loads(changed)
        if change != "flipped":
            from tokenization_worker.output.record import dump_record

            del fields["checksum"]
            changed = dump_record(fields)
        path.write_bytes(changed)
    error = refusal(lambda: report_training(output))
    reason = {"gone": "TokenizerChanged", "newer": "OutputConflict"}.get(change, "RecordCorrupt")
    assert (error.reason, str(path) in error.message) == (reason, True)
    assert "tokjob train" in error.next_step or change == "newer"


def test_the_damaged_index_of_a_copied_training_is_the_programs_own(output: Path) -> None:
    (output / "_tokenization").rename(output.parent / "not copied")
    path = output / "index.json"
    path.write_bytes(path.read_bytes()[:-100])
    code, _, error = tokjob("report", output)
    assert (code, "RecordCorrupt" in error, "do not delete index.json" in error) == (4, True, True)


@pytest.mark.parametrize("change", ["gone", "cut", "other"])
def test_held_out_documents_that_are_not_those_of_the_report_are_refused(change: str, output: Path) -> None:
    path = output / "holdout.jsonl.zst"
    data = path.read_bytes()
    path.unlink()
    if change != "gone":
        others = zstd.compress(zstd.decompress(data).partition(b"\n")[2])
        path.write_bytes(data[:-9] if change == "cut" else others)
    assert report_training(output).tokenizers
    error = refusal(lambda: report_training(output, ["bytes"]))
    assert (error.reason, str(path) in error.message) == ("TokenizerChanged", True)


def test_a_document_that_another_tokenizer_cannot_encode_is_named(trained: Path, tmp_path: Path) -> None:
    model = {"type": "WordLevel", "vocab": {"the": 0, "def": 1}, "unk_token": "<none>"}
    document = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model}
    words = write_json(tmp_path / "tokenizer.json", document)
    error = refusal(lambda: report_training(trained, [str(words)]))
    assert error.reason == "TokenizerLosesText"
    assert f"{words} cannot encode document 1 of the holdout, which begins " in error.message
    assert f"leave out --tokenizer {words}" in error.next_step
