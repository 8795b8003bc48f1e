"""Names of fields with dots in them: read by plan, run, verify and show alike, and a second meaning is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.engine.inline import inline
from support.runs import make_job
from tokenization_worker import verify
from tokenization_worker.errors import DataError
from tokenization_worker.events import Event, Warned
from tokenization_worker.inspect.preview import make_plan
from tokenization_worker.inspect.show import show_documents
from tokenization_worker.run.run import run_job

FLAT = {"page.id": "one", "page.text": "flat"}
BOTH = {**FLAT, "page": {"text": "nested", "id": "two"}}


def write(path: Path, record: dict[str, Any]) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([record] * 2), path)
    else:
        path.write_text(f"{json.dumps(record)}\n" * 2)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("record", "text", "name", "warnings"), [(FLAT, "flat", "one", 0), (BOTH, "nested", "two", 1)], ids=["flat", "both"]
)
def test_a_name_with_a_dot_is_read_unless_a_nested_field_has_that_path(
    suffix: str, record: dict[str, Any], text: str, name: str, warnings: int, tmp_path: Path
) -> None:
    write(tmp_path / f"a.{suffix}", record)
    fields = {"source": {"textField": "page.text", "idField": "page.id"}, "tokenizer": {"name": "bytes"}}
    job = make_job(tmp_path / f"a.{suffix}", tmp_path / "out", fields)
    told: list[Event] = []
    run_job(job, executor=inline(), on_progress=told.append)
    shown = show_documents(str(tmp_path / "out"), "train", 0, count=2)
    assert [(each.text, each.id) for each in shown] == [(text, name)] * 2
    said = [event.message for event in told if isinstance(event, Warned) and "which is read" in event.message]
    assert len(said) == warnings
    assert not verify(str(tmp_path / "out"), mode="full").findings


def test_a_plan_says_that_two_columns_have_the_name(tmp_path: Path) -> None:
    text = pa.array(["left", "right"])
    pq.write_table(pa.table([text, text], names=["text", "text"]), tmp_path / "a.parquet")
    job = make_job(tmp_path / "a.parquet", tmp_path / "out", {"tokenizer": {"name": "bytes"}})
    with pytest.raises(DataError, match="2 columns are called 'text', and one is needed"):
        make_plan(job)
