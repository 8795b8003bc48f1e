"""`plan` refuses what `run` would refuse: certain is an error, likely is a warning with numbers."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from support.command_line import Bench
from support.corpus import json_lines
from support.runs import read_index
from support.tokenizer_models import make_spec, train_byte_level, write_json
from tokenization_worker.readers.detection.encodings import guess_encoding, is_binary
from tokenization_worker.tokenizers.load import load_tokenizer

FRENCH = "Les élèves étudiaient déjà à l'école où l'été était gâché par la grêle. " * 20
QUOTED = "He said “no – it’s over” and left. " * 20
JAPANESE = "これは日本語の文章です。とても短いですが、文字はたくさんあります。" * 20
CHINESE = "这是一个用中文写的句子，用来检查编码的猜测是否正确。" * 20
RUSSIAN = "Это предложение написано по-русски и проверяет угадывание кодировки. " * 20


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def assert_refused(bench: Bench, *words: str, arguments: tuple[str, ...] = (), code: int = 4) -> str:
    """The plan is refused with these words, leaves nothing, and the run ends with the same reason."""
    before = bench.files()
    planned = bench.tokjob("plan", "job.yaml", *arguments)
    assert planned.code == code, planned
    for text in (*words, "\n  next: "):
        assert text in planned.err, planned.err
    assert bench.files() == before
    ran = bench.tokjob("run", "job.yaml", *arguments)
    assert ran.code == code, ran
    assert planned.err.split()[1] == ran.err.split()[1], "another reason"
    if "convert it: " in planned.err:
        assert planned.err.partition("convert it: ")[2].splitlines()[0] in ran.err, "run lost the hint of plan"
    return planned.err


def test_a_source_that_was_read_whole_is_judged_as_the_run_judges_it(bench: Bench) -> None:
    with (bench.source / "b.jsonl").open("ab") as file:
        file.write(b"not JSON\n" * 2)
    assert_refused(
        bench,
        "QuarantineExceeded: 2 of 122 documents are unusable (InvalidJson 2); maxQuarantined allows 1; the first: ",
        f"the first: {bench.source}/b.jsonl record 41, InvalidJson",
        arguments=("--maxQuarantined", "1%"),
    )
    assert bench.tokjob("plan", "job.yaml", "--output", "new", "--maxQuarantined", "2%").code == 0
    assert bench.tokjob("plan", "job.yaml", "--output", "new", "--maxQuarantined", "2").code == 0


def test_bytes_are_judged_in_the_plan_too(bench: Bench) -> None:
    (bench.source / "d.jsonl").write_bytes(b'{"text": ' + b"7" * 60_000 + b"\n")
    assert_refused(bench, "1 of 121 documents is unusable", "it holds 60,010 of", arguments=("--maxQuarantined", "1%"))


def test_a_source_whose_texts_are_empty_is_told_with_its_other_fields(bench: Bench) -> None:
    for path in bench.source.iterdir():
        path.write_bytes(b'{"text": "", "content": "a page", "url": "x"}\n' * 40)
    for command in ("plan", "run"):
        shown = bench.tokjob(command, "job.yaml", "--output", "new")
        assert shown.code == 0, shown.err
        warning = f"{bench.source}/a.jsonl: the text at 'text' is empty in all 120 sampled documents"
        assert f"{warning}; other fields: content, url; source.textField" in " ".join((shown.out + shown.err).split())


BYTES = load_tokenizer(make_spec("bytes")).fingerprint


def test_another_tokenizer_than_the_job_asserts_is_refused_before_and_after_the_run(bench: Bench) -> None:
    other = ("--set", f"tokenizer.fingerprint={'ab' * 32}")
    words = f"FingerprintDiffers: tokenizer.fingerprint: the job says {'ab' * 32}, "
    assert_refused(bench, f"{words}bytes has {BYTES}", arguments=other, code=2)
    assert bench.tokjob("run", "job.yaml").code == 0
    assert_refused(bench, f"{words}the dataset at {bench.output} has {BYTES}", arguments=other, code=2)
    same = bench.tokjob("run", "job.yaml", "--set", f"tokenizer.fingerprint={BYTES}")
    assert (same.code, "complete" in same.out) == (0, True), "an assertion makes no other run"


def test_plan_tells_of_a_tokenizer_that_was_replaced_also_where_the_job_asserts_the_old_one(bench: Bench) -> None:
    path = write_json(bench.folder / "t.json", train_byte_level([{"content": "<|endoftext|>"}]))
    flags = ("job.yaml", "--tokenizer", str(path))
    assert bench.tokjob("run", *flags).code == 0
    fingerprint = read_index(bench.output)["tokenizer"]["fingerprint"]
    write_json(path, train_byte_level([{"content": "<|endoftext|>"}, {"content": "<|x|>"}]))
    planned = bench.tokjob("plan", *flags, "--set", f"tokenizer.fingerprint={fingerprint}")
    assert planned.code == 0
    assert f"tokenizer.uri: {path} gives other tokens" in " ".join((planned.out + planned.err).split())


def test_some_empty_texts_are_not_told(bench: Bench) -> None:
    with (bench.source / "b.jsonl").open("ab") as file:
        file.write(b'{"text": ""}\n' * 50)
    planned = bench.tokjob("plan", "job.yaml")
    assert (planned.code, "is empty in all" in planned.out) == (0, False), planned.out


def large(bench: Bench, bad: int) -> None:
    """A file of which the plan sees the beginning, with `bad` unusable records there."""
    texts = [f"document {number} " * 60 for number in range(3000)]
    lines = json_lines(texts).splitlines(keepends=True)
    for number in range(bad):
        lines.insert(5 + number * 8, b"not JSON\n")
    (bench.source / "b.jsonl").write_bytes(b"".join(lines))


@pytest.mark.parametrize("limit", ["3", "0%", "0"])
def test_a_count_that_the_beginning_exceeds_is_certain(limit: str, bench: Bench) -> None:
    large(bench, 4)
    allowed = limit.rstrip("%")
    error = assert_refused(bench, "QuarantineExceeded: 4 of ", arguments=("--maxQuarantined", limit))
    assert (
        f"documents in the beginnings of 3 of 3 files are unusable (InvalidJson 4); maxQuarantined allows {allowed}"
        in error
    )


def test_a_share_that_is_clearly_above_the_limit_is_a_warning_with_numbers(bench: Bench) -> None:
    large(bench, 6)
    planned = bench.tokjob("plan", "job.yaml", "--maxQuarantined", "0.5%")
    assert planned.code == 0, planned.err
    assert "warning    QuarantineExceeded is likely: 6 of " in planned.out
    assert "maxQuarantined allows 0.5 %; the first: " in planned.out
    assert "of the bytes" in planned.out
    assert bench.tokjob("run", "job.yaml", "--maxQuarantined", "0.5%").code == 0, "only likely"


@pytest.mark.parametrize("bad", [0, 1])
def test_a_share_that_chance_explains_is_no_warning(bad: int, bench: Bench) -> None:
    large(bench, bad)
    planned = bench.tokjob("plan", "job.yaml", "--maxQuarantined", "0.5%")
    assert (planned.code, "warning" in planned.out) == (0, False), planned.out


def test_a_count_is_not_certain_where_files_may_be_dropped(bench: Bench) -> None:
    large(bench, 4)
    planned = bench.tokjob("plan", "job.yaml", "--maxQuarantined", "3", "--maxCorruptFiles", "1")
    assert planned.code == 0, planned.err
    assert "warning    QuarantineExceeded is likely: 4 of " in planned.out


@pytest.mark.parametrize("damage", ["cut", "flipped", "garbage behind"])
def test_a_damaged_small_file_is_refused_or_told(damage: str, bench: Bench) -> None:
    noise = random.Random(1)
    packed = gzip.compress(json_lines([noise.randbytes(100).hex() for _ in range(500)]))  # more than one small read
    damaged = {
        "cut": packed[:-9],
        "flipped": packed[:-6] + bytes([packed[-6] ^ 1]) + packed[-5:],
        "garbage behind": packed + b"garbage",
    }[damage]
    (bench.source / "b.jsonl").unlink()
    (bench.source / "b.jsonl.gz").write_bytes(damaged)
    assert_refused(
        bench,
        f"CorruptFile: {bench.source}/b.jsonl.gz: ",
        "(1 of 3 files corrupt; maxCorruptFiles allows 0)",
        "raise maxCorruptFiles",
    )
    told = bench.tokjob("plan", "job.yaml", "--output", "new", "--maxCorruptFiles", "1")
    assert told.code == 0, told.err
    assert f"warning    CorruptFile: {bench.source}/b.jsonl.gz: " in told.out
    assert "the run leaves this file out, as maxCorruptFiles allows" in told.out


@pytest.mark.parametrize(
    ("text", "encoding", "guess"),
    [
        (FRENCH, "latin-1", "ISO-8859-1"),
        (QUOTED, "cp1252", "CP1252"),
        (JAPANESE, "shift_jis", "SHIFT_JIS"),
        (CHINESE, "gb18030", "GB18030"),
        (FRENCH, "utf-16-le", "UTF-16LE"),
        (QUOTED, "utf-16-be", "UTF-16BE"),
        (RUSSIAN, "cp1251", None),
        (RUSSIAN, "koi8-r", None),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 20 else "",
)
def test_encodings_are_guessed_or_not(text: str, encoding: str, guess: str | None) -> None:
    data = text.encode(encoding)
    assert not is_binary(data) or encoding.startswith("utf-16")
    assert guess_encoding(data) == guess
    if guess is not None:
        assert data.decode(guess.lower()) == text
    assert guess_encoding(data[1:-1]) in (
        guess,
        None,
        {"UTF-16LE": "UTF-16BE", "UTF-16BE": "UTF-16LE"}.get(guess or ""),
    )


@pytest.mark.parametrize("size", [1, 60_000], ids=["small", "longer than what the plan reads"])
def test_text_that_is_not_utf8_is_refused_with_the_command_that_converts_it(size: int, bench: Bench) -> None:
    for path in bench.source.iterdir():
        path.unlink()
    bench.write("src/roman.txt", (FRENCH * size)[:40_000_000].encode("latin-1"))
    assert_refused(
        bench,
        "QuarantineExceeded: 1 of 1 document is unusable (InvalidUtf8 1)",
        "is not UTF-8 and looks like ISO-8859-1 (a guess: check the result); convert it: iconv -f ISO-8859-1 -t UTF-8 "
        f"< {bench.source}/roman.txt > {bench.source}/utf8-roman.txt",
    )


def test_many_texts_none_of_which_is_utf8_are_refused_at_once(bench: Bench) -> None:
    for path in bench.source.iterdir():
        path.unlink()
    for number in range(5):
        bench.write(f"src/{number}.txt", JAPANESE.encode("shift_jis"))
    for command in ("plan", "run"):
        refused = bench.tokjob(command, "job.yaml")
        assert refused.code == 2
        assert "expected documents that are UTF-8 text, found none in 5 sampled files (InvalidUtf8)" in refused.err
        assert f"iconv -f SHIFT_JIS -t UTF-8 < {bench.source}/0.txt > {bench.source}/utf8-0.txt" in refused.err
    assert not (bench.output / "_tokenization").exists()


def test_lines_of_json_that_are_not_utf8_get_the_hint(bench: Bench) -> None:
    lines = "".join(f'{{"text": "{FRENCH[:100]}{number}"}}\n' for number in range(50))
    (bench.source / "b.jsonl").write_bytes(lines.encode("latin-1"))
    assert_refused(bench, "(InvalidJson 50)", "iconv -f ISO-8859-1 -t UTF-8 < ", "/utf8-b.jsonl")


@pytest.mark.parametrize("name", ["b.txt", "b.jsonl"])
@pytest.mark.parametrize(
    ("good", "bad"),
    [(FRENCH[:60], FRENCH[:60].encode("latin-1")), (JAPANESE[:30], QUOTED[:60].encode("cp1252"))],
    ids=["Latin-1 in French", "CP1252 in Japanese"],
)
def test_utf8_with_a_few_other_lines_is_not_to_be_converted(good: str, bad: bytes, name: str, bench: Bench) -> None:
    for path in bench.source.iterdir():
        path.unlink()
    line = b'{"text": "%s"}\n' if name.endswith(".jsonl") else b"%s\n"
    (bench.source / name).write_bytes(line % good.encode() * 300 + line % bad.replace(b'"', b"") * 5)
    error = assert_refused(
        bench, f"5 of 305 non-ASCII lines at the beginning of {bench.source}/{name} are not UTF-8", "show --quarantined"
    )
    assert "iconv" not in error


@pytest.mark.parametrize(("valid", "is_converted"), [(1, True), (2, False)])
def test_one_valid_line_in_a_hundred_is_chance(valid: int, is_converted: bool, bench: Bench) -> None:
    for path in bench.source.iterdir():
        path.unlink()
    lines = [FRENCH[:60].encode("latin-1")] * 99 + ["\u00e9t\u00e9".encode()] * valid
    bench.write("src/b.txt", b"\n".join(lines))
    assert ("iconv -f ISO-8859-1" in assert_refused(bench, "InvalidUtf8 1")) == is_converted


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("word", ["words", "\u00e9t\u00e9"])
def test_utf16_without_a_mark_as_json_lines_gets_the_command(encoding: str, word: str, bench: Bench) -> None:
    name = encoding.upper().replace("16-", "16")
    (bench.source / "b.jsonl").write_bytes(f'{{"text": "{word}"}}\n'.encode(encoding) * 50)
    assert_refused(bench, f"looks like {name} (a guess", f"iconv -f {name} -t UTF-8 < ", "/utf8-b.jsonl")


def test_a_run_that_is_there_is_told_of_and_not_refused(bench: Bench) -> None:
    bench.stop()
    planned = bench.tokjob("plan", "job.yaml")
    assert planned.code == 0, planned.err
    assert "warning    this run would end with QuarantineExceeded: 1 of 121 documents is unusable" in planned.out
    assert "an unfinished run of this job" in planned.out
    assert bench.tokjob("run", "job.yaml", "--maxQuarantined", "1").code == 0
    complete = bench.tokjob("plan", "job.yaml")
    assert (complete.code, "warning" in complete.out) == (0, False)
    assert "time       none\n" in complete.out


def test_a_large_run_warns_at_its_start_and_lists_at_its_end(bench: Bench) -> None:
    large(bench, 4)
    ran = bench.tokjob("run", "job.yaml", "--maxQuarantined", "3")
    assert ran.code == 4
    assert "warning    this run will end with QuarantineExceeded: 4 of " in ran.out
    assert "\n4 unusable documents\n" in bench.tokjob("show", "--quarantined", "out").out


def test_a_large_text_that_is_not_utf8_among_small_ones_is_told(bench: Bench) -> None:
    for path in bench.source.iterdir():
        path.unlink()
    for number in range(15):
        bench.write(f"src/{number:02}.txt", FRENCH)
    bench.write("src/roman.txt", (FRENCH * 2000).encode("latin-1"))
    planned = bench.tokjob("plan", "job.yaml")
    assert planned.code == 0, planned.err
    assert "warning    QuarantineExceeded is likely: 1 of 16 documents" in planned.out
    assert "roman.txt is not UTF-8 and looks like ISO-8859-1" in planned.out
    assert bench.tokjob("run", "job.yaml").code == 4


def test_random_bytes_are_in_no_encoding() -> None:
    data = random.Random(7).randbytes(4096)
    assert (guess_encoding(data), is_binary(data)) == (None, True)
