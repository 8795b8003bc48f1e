"""A source whose text is elsewhere is refused with the field that holds it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tokenization_worker.cli.main import main
from tokenization_worker.readers.lines.text_fields import text_advice

PROSE = "some words of a text that is long enough. "


def lines(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


@pytest.mark.parametrize(
    ("records", "words"),
    [
        pytest.param([{"content": PROSE, "url": "u"}], "did you mean source.textField: content?", id="one"),
        pytest.param(
            [{"url": "http://u", "content": PROSE}], "(strings, longest first: content, url)", id="longest first"
        ),
        pytest.param([{"doc": {"body": PROSE}}], "did you mean source.textField: doc.body?", id="below an object"),
        pytest.param([{"a": {"b": {"c": PROSE}}}], "did you mean source.textField: a.b.c?", id="further below"),
        pytest.param([{"Text": PROSE}], "did you mean source.textField: Text?", id="case"),
        pytest.param([{"n": 1, "tokens": [1, 2]}], "no field holds a string", id="none"),
        pytest.param([{"a.b": PROSE, "c": "x"}], "did you mean source.textField: a.b?", id="a dot in a name"),
        pytest.param([{"d": {"a.b": PROSE}, "c": "x"}], "source.textField: c?", id="a dot in a name below an object"),
    ],
)
def test_fields_with_strings_are_named(records: list[dict[str, Any]], words: str) -> None:
    assert words in text_advice(lines(*records), "a.jsonl")


CHAT = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello there"}], "id": "1"}
SHAREGPT = {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello there"}]}
PARTS = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}


@pytest.mark.parametrize(
    ("record", "field"), [(CHAT, "messages"), (SHAREGPT, "conversations")], ids=["messages", "conversations"]
)
def test_a_chat_is_explained_with_a_command_that_joins_it(record: dict[str, Any], field: str, tmp_path: Path) -> None:
    advice = text_advice(lines(record, record), "IN.jsonl")
    assert f"{field} is a list of chat messages" in advice
    assert "did you mean" not in advice
    command = advice[advice.index("python3 -c ") :].partition("; then give the new file")[0]
    (tmp_path / "IN.jsonl").write_bytes(lines(record, record))
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True, timeout=60)
    made = [json.loads(line) for line in (tmp_path / "text-IN.jsonl").read_text().splitlines()]
    assert [each["text"] for each in made] == [
        "user: Hi\nassistant: Hello there" if field == "messages" else "human: Hi\ngpt: Hello there"
    ] * 2
    assert made[0].get("id") == record.get("id")


def test_records_over_lines_with_a_list_are_no_list_of_records() -> None:
    record = json.dumps({"authors": [{"name": "A"}], "text": PROSE}, indent=1).encode() + b"\n"
    assert "jq -c . < " in text_advice(record * 3, "a.jsonl")
    assert "did you mean source.textField: body?" in text_advice(
        lines({"authors": [{"name": "A"}], "body": PROSE}), "a.jsonl"
    )


def test_messages_of_parts_are_no_simple_chat() -> None:
    assert "python3 -c" not in text_advice(lines(PARTS), "a.jsonl")


@pytest.mark.parametrize("record", [{"content": PROSE}, CHAT], ids=["field", "chat"])
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_command_tells_it(
    command: str,
    record: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").write_bytes(lines(*[record] * 5))
    assert main([command, "--source", "a.jsonl", "--tokenizer", "bytes", "--output", "out"]) == 2
    told = capsys.readouterr().err
    assert "SourceInvalid" in told
    assert "has a text at 'text'" in told
    assert ("did you mean source.textField: content?" if "content" in record else "chat messages") in told


def test_parquet_columns_that_hold_text_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"n": [1], "content": [PROSE], "url": ["u"]}), tmp_path / "a.parquet")
    assert main(["plan", "--source", "a.parquet", "--tokenizer", "bytes", "--output", "out"]) == 4
    assert "did you mean source.textField: content, or url?" in capsys.readouterr().err
