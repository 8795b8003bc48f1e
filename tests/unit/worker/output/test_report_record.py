"""report.json of a training: its bytes, its numbers, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from tokenization_worker.errors import ChangedError, DataError
from tokenization_worker.output import layout
from tokenization_worker.output.record import dump_record, load_record
from tokenization_worker.output.training_report import (
    TrainingReport,
    add_tokenizers,
    dump_report,
    make_report,
    read_report,
)
from tokenization_worker.storage.local.store import LocalStore
from tokenization_worker.training.fertility import Cell, Fertility, MeasuredHoldout, measure_holdout

CELLS = (Cell("web", "Latin", 3, 40, 7), Cell("web", "Thai", 1, 20, None))
NOTHING = measure_holdout([]).numbers
MEASURED = Fertility("tokenizer.json", 1000, "f" * 64, (10, 4), 900, 997)
REPORT = make_report(MeasuredHoldout(CELLS, (), NOTHING), 1011, [MEASURED])


def test_its_bytes() -> None:
    assert dump_report(REPORT) == (
        b'{"cells":[{"bytes":40,"documents":3,"group":"web","script":"Latin","words":7},'
        b'{"bytes":20,"documents":1,"group":"web","script":"Thai","words":null}],"checksum":"70bced4d",'
        b'"formatVersion":1,"holdout":{"bytes":60,"documents":4},"sourceBytes":1011,"tokenizers":['
        b'{"embedding":{"2048":2048000,"4096":4096000,"8192":8192000},'
        b'"fingerprint":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff","name":"tokenizer.json",'
        b'"neverUsed":900,"sourceTokens":236,"tokens":[10,4],"under100":997,"vocabularySize":1000}]}\n'
    )


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert read_report(store) is None
    more = add_tokenizers(REPORT, [MEASURED])
    (tmp_path / layout.REPORT).write_bytes(dump_report(more))
    assert read_report(store) == more != REPORT


def test_empty_documents_have_a_report() -> None:
    report = make_report(measure_holdout([("", "")]), 0, [Fertility("t", 1000, "f", (0,), 999, 999)])
    assert report.tokenizers[0].source_tokens == 0
    assert convert(load_record(dump_report(report)), TrainingReport) == report


@pytest.mark.parametrize(
    "changes",
    [
        {"holdout": {"documents": 4, "bytes": 61}},
        {"cells": []},
        {"sourceBytes": -1},
        {"tokenizers": [{}]},
        {"tokenizers": [json.loads(dump_report(REPORT))["tokenizers"][0] | {"embedding": {}}]},
        {"tokenizers": [json.loads(dump_report(REPORT))["tokenizers"][0] | {"tokens": [10]}]},
        {"tokenizers": [json.loads(dump_report(REPORT))["tokenizers"][0] | {"tokens": [10, "4"]}]},
    ],
    ids=["sums", "cells", "below 0", "no fields", "embedding", "tokens", "a text"],
)
def test_numbers_that_do_not_fit_each_other_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / layout.REPORT).write_bytes(dump_record(REPORT.fields() | changes))
    with pytest.raises(DataError, match=r"report\.json is corrupt") as caught:
        read_report(LocalStore(tmp_path))
    assert caught.value.reason == "RecordCorrupt"
    assert "do not delete index.json" in caught.value.next_step
    for path in (layout.PLAN, f"{layout.epoch_ledger(0)}{layout.COUNTED_RECEIPTS}00000000.json"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    with pytest.raises(DataError, match=r"report\.json is corrupt") as caught:
        read_report(LocalStore(tmp_path))
    assert "start the same `tokjob train` again" in caught.value.next_step


def test_a_flipped_digit_and_a_later_version_are_refused(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    (tmp_path / layout.REPORT).write_bytes(dump_report(REPORT).replace(b'"tokens":[10,4]', b'"tokens":[10,5]'))
    with pytest.raises(DataError, match="its checksum is 70bced4d"):
        read_report(store)
    (tmp_path / layout.REPORT).write_bytes(dump_record({"formatVersion": 2}))
    with pytest.raises(ChangedError, match="has format version 2; this program reads version 1"):
        read_report(store)
