"""Break the guarantees of the product on purpose, one line at a time, and see that tests notice.

    python scripts/mutants.py [--jobs 2] [NAME ...]

Each mutant is a copy of the package in a temporary folder in which one piece of text is replaced; the tests that
should notice run against it and must fail. Exits with 1 if a mutant survives, or if its text is no longer there (or
there more than once): then the table below is out of date. The checkout is never written to.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGES = {"worker": "tokenization_worker", "operator": "tokenization_operator"}
"""By source root, which is also where the tests of a package are."""

TIMEOUT_S = 300
"""A mutant that makes a test wait for ever has been noticed, too."""


@dataclass(frozen=True)
class Mutant:
    """What is replaced in a module, and the tests that must notice: arguments of pytest below `tests/ROOT`."""

    name: str
    module: str
    old: str
    new: str
    tests: tuple[str, ...]
    root: str = "worker"


TABLE = "test_fault_table.py"
RUNS = "test_fault_runs.py"
GCS = "test_storage_gcs.py"
LOCAL = "test_storage_local.py"
FOREIGN = "test_foreign_files.py"


def _of(file: str, words: str) -> tuple[str, ...]:
    return (file, "-k", words)


MUTANTS = (
    Mutant(
        "progress: a check promises to take 0 s",
        "cli/progress.py",
        'return f", ~{seconds:.0f} s" if seconds >= 1 else ""',
        'return f", ~{seconds:.0f} s"',
        _of("test_backtracking.py", "promises"),
    ),
    Mutant(
        "backtracking: each piece has a limit of its own",
        "tokenizers/tiktoken_engine.py",
        "                if time.process_time() >= deadline.at:",
        "                if False:",
        _of("test_backtracking.py", "limit_is_one_for_all"),
    ),
    Mutant(
        "backtracking: a second way to cut a text has a second limit",
        "tokenizers/tiktoken_engine.py",
        "self._encode_pieces(text, deadline or self._deadline(text))",
        "self._encode_pieces(text, self._deadline(text))",
        _of("test_backtracking.py", "limit_is_one_for_both"),
    ),
    Mutant(
        "backtracking: the texts of a plan have a limit each",
        "tokenizers/tiktoken_engine.py",
        "self._left_s -= time.process_time() - self._began",
        "self._left_s -= 0",
        _of("test_backtracking.py", "limited_engine_have_one_limit"),
    ),
    Mutant(
        "backtracking: a killer among the risky texts has their number",
        "tokenizers/fast_engine.py",
        "raise KillsEngine(int(chosen[kill.document]), kill.detail) from kill",
        "raise",
        _of("test_backtracking.py", "names_the_document"),
    ),
    Mutant(
        "backtracking: a sample tries every document that kills",
        "estimate.py",
        "if killers < _MOST_KILLERS else []",
        "if True else []",
        _of("test_backtracking.py", "sample_tries"),
    ),
    Mutant(
        "batches: texts are not counted",
        "readers/batches.py",
        "len(self.texts) >= MAX_TEXTS or ",
        "",
        (*_of("test_segments.py", "without_bytes or short_pieces"), "test_readers_text.py"),
    ),
    Mutant(
        "blocks: a document counts nothing besides its bytes",
        "range_work.py",
        "batch.source_bytes + _DOCUMENT_BYTES * len(batch.texts)",
        "batch.source_bytes",
        _of("test_segments.py", "without_bytes"),
    ),
    Mutant(
        "backtracking: a run begins its batch anew after a document that kills",
        "range_work.py",
        "texts, owners = texts[number + 1 :], owners[number + 1 :]",
        "texts, owners = [*texts[:number], *texts[number + 1 :]], [*owners[:number], *owners[number + 1 :]]",
        _of("test_backtracking.py", "goes_on_behind"),
    ),
    Mutant(
        "backtracking: a tokenizer.json that gives up is a bug",
        "tokenizers/hf.py",
        "                if not is_refusal(error):",
        "                if error:",
        _of("test_backtracking.py", "a_file_"),
    ),
    Mutant(
        "versions: ranges that are done are believed without their epochs",
        "epochs.py",
        '    if not any("/ranges/" in entry.path for entry in store.list(layout.LEDGER)):',
        "    if True:",
        _of("test_library_versions.py", "not_believed_without"),
    ),
    Mutant(
        "metrics: of too many jobs those at work may be left out",
        "job_metrics.py",
        "    return sorted(newest_first, key=_rank)[:most]",
        "    return newest_first[:most]",
        _of("test_metrics.py", "too_many"),
        root="operator",
    ),
    Mutant(
        "metrics: a new attempt is late because of the one before",
        "job_metrics.py",
        '(progress.get("lastRangeTime"), attempt.get("runningTime"))',
        '(progress.get("lastRangeTime"),)',
        _of("test_metrics.py", "just_begun"),
        root="operator",
    ),
    Mutant(
        "metrics: what is due next week waits",
        "workqueue.py",
        "        return sum(at <= now for at in self._due.copy().values())",
        "        return sum(at <= now + 10**9 for at in self._due.copy().values())",
        _of("test_workqueue.py", "time_has_come"),
        root="operator",
    ),
    Mutant(
        "operator: what a stale view names is deleted",
        "reconciler.py",
        "            if decision.actions:",
        "            if any(isinstance(action, Create) for action in decision.actions):",
        _of("test_waiting.py", "frozen"),
        root="operator",
    ),
    Mutant(
        "operator: a checkpoint of other data is taken",
        "runs.py",
        "    if _is_of_other_data(case):",
        "    if False:",
        _of("test_waiting.py", "other_data"),
        root="operator",
    ),
    Mutant(
        "lost text: the bytes of a batch are not added up",
        "encode.py",
        "        if self.byte_lengths is None:",
        "        if True:",
        _of("test_lost_text.py", "pattern_shortens or file_shortens"),
    ),
    Mutant(
        "lost text: a sampled document of the reference is not restored",
        "encode.py",
        "if not is_other and self.restore is None:",
        "if not is_other:",
        _of("test_lost_text.py", "document_that_lost_text_is_named"),
    ),
    Mutant(
        "lost text: the fast engine keeps what the pattern does not match",
        "tokenizers/fast_engine.py",
        '"behavior": "Removed", "invert": True}',
        '"behavior": "Isolated", "invert": False}',
        _of("test_lost_text.py", "pattern_shortens"),
    ),
    Mutant(
        "lost text: a tokenizer.json that removes text is taken for one that cannot",
        "tokenizers/restoring.py",
        'step.get("behavior") == "Removed"',
        'step.get("behavior") == "removed"',
        _of("test_lost_text.py", "file_shortens"),
    ),
    Mutant(
        "lost text: verify trusts the tokens of a sample",
        "verification/files.py",
        "if lost or len(found)",
        "if len(found)",
        _of("test_lost_text.py", "verify_finds"),
    ),
    Mutant(
        "verify: remembers so many documents, however large",
        "verification/compare.py",
        "self._size > _REMEMBERED_TOKENS or ",
        "",
        _of("test_verify.py", "number_of_large_documents"),
    ),
    Mutant(
        "lost text: verify says nothing of it",
        "verification/compare.py",
        "if document.lost is not None and",
        "if document.lost is None and",
        _of("test_lost_text.py", "verify_finds"),
    ),
    Mutant(
        "lost text: characters that the vocabulary lacks are not looked for in a plan",
        "kept_text.py",
        "    if tokenizer.drop is not None:",
        "    if False:",
        _of("test_kept_text.py", "without_a_character"),
    ),
    Mutant(
        "lost text: characters that the vocabulary lacks are not looked for in a run",
        "encode.py",
        "        if self.drop is None:",
        "        if True:",
        _of("test_kept_text.py", "has_not_seen"),
    ),
    Mutant(
        "lost text: verify does not look for characters that the vocabulary lacks",
        "verification/files.py",
        "        elif self._drop is not None:",
        "        elif False:",
        _of("test_lost_text.py", "vocabulary_lacks"),
    ),
    Mutant(
        "hub: a token that no request can hold is sent",
        "storage/hf_client.py",
        '    if not os.environ.get("HF_TOKEN", "").isascii():',
        "    if False:",
        _of("test_sources_hf.py", "no_request_can_hold"),
    ),
    Mutant(
        "source: Parquet is read as text",
        "readers/kinds.py",
        "    if format is not SourceFormat.PARQUET and is_parquet:",
        "    if False:",
        _of("test_mistakes.py", "Parquet"),
    ),
    Mutant(
        "numbers: 010 is 8",
        "api/load.py",
        "        if _OTHER_BASE.fullmatch(node.value) and number:",
        "        if False:",
        ("test_number_forms.py",),
    ),
    Mutant(
        "flags: the last of two is taken",
        "cli/parser.py",
        "        if self.option_strings and self.dest in parser.given:",
        "        if False:",
        _of("test_mistakes.py", "twice"),
    ),
    Mutant(
        "fields: one that is given twice is taken",
        "api/keywords.py",
        "        if field in seen:",
        "        if False:",
        ("test_mistakes.py", "test_python_api.py", "-k", "two or twice"),
    ),
    Mutant(
        "messages: values below env are shown",
        "api/load.py",
        "if _is_hidden(loc) else _show(value)",
        "if False else _show(value)",
        ("test_secrets_of_env.py",),
    ),
    Mutant(
        "messages: what was typed after --env is shown",
        "cli/manifest.py",
        "if is_secret_field(path) else f",
        "if False else f",
        ("test_secrets_of_env.py",),
    ),
    Mutant(
        "flags: text that could mean two things is taken",
        "cli/typed_text.py",
        "    if meant != typed:",
        "    if False:",
        _of("test_cli_values.py", "two_things"),
    ),
    Mutant(
        "flags: text in quotes keeps them",
        "cli/typed_text.py",
        "            return found\n        if len(typed)",
        "            return typed\n        if len(typed)",
        _of("test_cli_values.py", "separator_says"),
    ),
    Mutant(
        "escapes: a line is printed as it is",
        "cli/escapes.py",
        'print(printable(text, "\\n\\t"), end',
        "print(text, end",
        _of("test_cli_foreign_text.py", "every_command_is_inert or an_error_that_names"),
    ),
    Mutant(
        "escapes: the bars show a line as it is",
        "cli/progress.py",
        'told = printable(describe(event, now - self._started), "\\n\\t")',
        "told = describe(event, now - self._started)",
        _of("test_cli_foreign_text.py", "bars_of_a_terminal"),
    ),
    Mutant(
        "redact: a variable that holds no address is shown whole",
        "storage/endpoints.py",
        "{redact_address(value)!r}",
        "{value!r}",
        _of("test_redact.py", "variable_that_holds_no_address"),
    ),
    Mutant(
        "redact: an address of Ray is shown whole",
        "executors/ray_connection.py",
        "{redact_address(address)!r}",
        "{address!r}",
        _of("test_redact.py", "ray_address_with_a_secret"),
    ),
    Mutant(
        "archives: a tar is text",
        "readers/archives.py",
        "    if _is_tar(content):",
        "    if False:",
        _of("test_readers_archives.py", "tar"),
    ),
    Mutant(
        "archives: a table is read as JSON lines",
        "readers/kinds.py",
        "    if format is SourceFormat.JSONL and content and not is_object:",
        "    if False:",
        _of("test_readers_archives.py", "table_of_rows"),
    ),
    Mutant(
        "archives: a tar without magic is text",
        "readers/archives.py",
        " or _has_tar_fields(header))",
        ")",
        _of("test_readers_archives.py", "v7"),
    ),
    Mutant(
        "archives: the sum of signed bytes is none",
        "readers/archives.py",
        "in (total, of_signed_bytes)",
        "== total",
        _of("test_readers_archives.py", "v7"),
    ),
    Mutant(
        "archives: a text may have the fields of a tar",
        "readers/archives.py",
        'header.find(b"\\0", 0, 100) > 0 and ',
        "",
        _of("test_readers_archives.py", "v7"),
    ),
    Mutant(
        "archives: fields of a tar may be letters",
        "readers/archives.py",
        " and all(map(_OCTAL.fullmatch, fields))",
        "",
        _of("test_readers_archives.py", "v7"),
    ),
    Mutant(
        "archives: verify takes a tar without magic for text",
        "verification/foreign.py",
        " or is_v7)",
        ")",
        _of("test_readers_archives.py", "v7"),
    ),
    Mutant(
        "strange files: a document called state.json is a companion",
        "source_check.py",
        '    if main == "Json":',
        "    if False:",
        _of("test_source_check.py", "may_be_meant"),
    ),
    Mutant(
        "strange files: a README among JSON is a document",
        "source_check.py",
        'not name.lower().endswith(".json") or ',
        "",
        _of("test_source_check.py", "named_with_the_way"),
    ),
    Mutant(
        "plan: Python's plan takes what a run refuses",
        "outlook.py",
        "if (error := prepared.strange or prepared.foreseen) is not None:",
        "if (error := None) is not None:",
        _of("test_python_api.py", "refuses"),
    ),
    Mutant(
        "redact: an address in the text of a library",
        "storage/waiting.py",
        "_host_of, redact(text))",
        "_host_of, text)",
        _of("test_redact.py", "connection_that_fails"),
    ),
    Mutant(
        "redact: an address in an error",
        "errors.py",
        "self.message = redact(message)",
        "self.message = message",
        _of("test_redact.py", "refused_address"),
    ),
    Mutant(
        "redact: the cause of an error",
        "storage/s3_client.py",
        "with causes_redacted(), _mapped",
        "with _mapped",
        _of("test_redact.py", "connection_that_fails"),
    ),
    Mutant(
        "redact: an address in a job's status",
        "reporter.py",
        'message=redact(f"{type(error).__name__}: {error}")',
        'message=f"{type(error).__name__}: {error}"',
        _of("test_redact.py", "foreign_error"),
    ),
    Mutant(
        "upload: no precondition",
        "storage/gcs_upload.py",
        "            if_generation_match=self._generation,\n            checksum",
        "            checksum",
        _of(TABLE, "create-over-another"),
    ),
    Mutant(
        "resumable upload: no precondition",
        "storage/gcs_upload.py",
        "if_generation_match=self._generation, checksum=None",
        "checksum=None",
        _of(TABLE, "stays and large"),
    ),
    Mutant(
        "delete: no precondition",
        "storage/gcs_upload.py",
        "blob.delete(if_generation_match=int(version), retry=retry)",
        "blob.delete(retry=retry)",
        _of(TABLE, "stays and delete"),
    ),
    Mutant(
        "upload: no checksum sent",
        "storage/gcs_upload.py",
        'checksum="crc32c"',
        "checksum=None",
        _of(TABLE, "create-upload and sent"),
    ),
    Mutant(
        "resumable upload: no checksum sent",
        "storage/gcs_upload.py",
        '        headers["x-goog-hash"] = f"crc32c={crc32c_text(crc32c)}"\n',
        "",
        _of(TABLE, "create-large-last and sent"),
    ),
    Mutant(
        "upload: what the store says it has is not compared",
        "storage/gcs_upload.py",
        "        if (entry.size, entry.crc32c) != (self._size, self._crc32c):\n",
        "        if False:\n",
        _of(TABLE, "create-upload and wrong_CRC"),
    ),
    Mutant(
        "refused upload: any object counts as ours",
        "storage/gcs_upload.py",
        "                if found is None or (found.size, found.crc32c) != (self._size, self._crc32c):",
        "                if found is None:",
        _of(TABLE, "create-over-another"),
    ),
    Mutant(
        "refused upload: none counts as ours",
        "storage/gcs_upload.py",
        "                if found is None or (found.size, found.crc32c) != (self._size, self._crc32c):",
        "                if True:",
        _of(TABLE, "create-upload and after"),
    ),
    Mutant(
        "refused chunk: 412 ignored",
        "storage/gcs_upload.py",
        "                self._refused = True",
        "                pass",
        _of(TABLE, "create-large-over-another or (create-large and 412)"),
    ),
    Mutant(
        "resumable upload: chunk sent again from its start only",
        "storage/gcs_upload.py",
        "        self._offset = persisted\n",
        "        self._offset += len(data)\n",
        _of(GCS, "kept_in_part"),
    ),
    Mutant(
        "abandoned upload: not cancelled",
        "storage/gcs_upload.py",
        "            self._session.cancel()\n",
        "",
        _of(GCS, "cancelled"),
    ),
    Mutant(
        "upload: not repeated",
        "storage/gcs_upload.py",
        '            checksum="crc32c",\n            retry=self._store.retry,',
        '            checksum="crc32c",\n            retry=None,',
        _of(TABLE, "create-upload and 503"),
    ),
    Mutant(
        "whole read: no checksum compared",
        "storage/gcs_client.py",
        'checksum="crc32c", retry=retry, timeout=READ_TIMEOUT_S)\n'
        "    if crc32c_number(blob.crc32c) != google_crc32c.value(data):",
        "checksum=None, retry=retry, timeout=READ_TIMEOUT_S)\n    if False:",
        _of(TABLE, "read-read"),
    ),
    Mutant(
        "whole read: trusted without a checksum",
        "storage/gcs_client.py",
        "if crc32c_number(blob.crc32c) != google_crc32c.value(data):",
        "if blob.crc32c and crc32c_number(blob.crc32c) != google_crc32c.value(data):",
        _of(GCS, "without_a_checksum"),
    ),
    Mutant(
        "store range: length not checked",
        "storage/gcs_store.py",
        "        if len(data) < end - start:\n",
        "        if False:\n",
        _of(TABLE, "read-range and truncated"),
    ),
    Mutant(
        "listing: not repeated",
        "storage/gcs_store.py",
        "fields=_FIELDS, retry=self.retry",
        "fields=_FIELDS, retry=None",
        _of(TABLE, "list-list and 503"),
    ),
    Mutant(
        "delete: version not compared",
        "storage/gcs_store.py",
        "if found is not None and version in (None, found.version):",
        "if found is not None:",
        _of(TABLE, "delete-another-version"),
    ),
    Mutant(
        "source range: length not checked",
        "storage/gcs_reader.py",
        "if len(data) != end - start:",
        "if False:",
        _of(TABLE, "source-read and truncated"),
    ),
    Mutant(
        "source: a whole file not compared with its checksum",
        "storage/gcs_reader.py",
        "self._crc32c not in (None, self._crc32c_so_far)",
        "False",
        _of(TABLE, "source-read and flipped"),
    ),
    Mutant(
        "source: read without its generation",
        "storage/gcs_reader.py",
        "blob(name, generation=self._generation)",
        "blob(name)",
        _of("test_sources.py", "replaced_while_it_is_read"),
    ),
    Mutant(
        "commit: an equal object is never looked for",
        "commit.py",
        "            if is_same(found):\n                return found\n",
        "",
        _of("test_commit.py", "equal_object"),
    ),
    Mutant(
        "commit: any object is the same",
        "commit.py",
        "            if is_same(found):\n",
        "            if True:\n",
        ("test_commit.py",),
    ),
    Mutant(
        "commit: no second look at the epoch",
        "commit.py",
        "                    require_current()\n                except Voided:",
        "                    pass\n                except Voided:",
        _of("test_epochs.py", "taken_back"),
    ),
    Mutant(
        "commit: not create-only",
        "commit.py",
        "        with store.upload(path) as upload:",
        "        with store.upload(path, expect=(lambda e: e.version if e else '')(store.stat(path))) as upload:",
        _of("test_epochs.py", "cannot_be"),
    ),
    Mutant(
        "commit: two writers may differ",
        "commit.py",
        "    if difference is not None:\n",
        "    if False:\n",
        _of("test_commit.py", "disagree"),
    ),
    Mutant(
        "commit: refused for ever",
        "commit.py",
        "    for _ in range(_TRIES):\n        if create_bytes",
        "    while True:\n        if create_bytes",
        _of("test_commit.py", "without_end"),
    ),
    Mutant(
        "record: checksum not compared",
        "records.py",
        "if not is_proven and expected != record_checksum(fields):",
        "if False:",
        ("test_records.py",),
    ),
    Mutant(
        "segment: footer not compared with its receipt",
        "segments.py",
        'if tail["digest"][0].tobytes().hex() != digest:',
        "if False:",
        ("test_segments.py",),
    ),
    Mutant(
        "segment: checksum of a block not compared",
        "segments.py",
        'if google_crc32c.extend(int(row["crc32c_start"]), data) != int(row["crc32c"]):',
        "if False:",
        ("test_segments.py",),
    ),
    Mutant(
        "segment: checksum of the footer not compared",
        "segments.py",
        'if _footer_crc(self._blocks, tail) != int(tail["crc32c"][0]):',
        "if False:",
        ("test_segments.py",),
    ),
    Mutant(
        "estimate: unknown treated as zero",
        "estimate.py",
        "unknown = total > 0 and not is_all and not tokens",
        "unknown = False",
        _of("test_estimate.py", "unknown"),
    ),
    Mutant(
        "estimate: no reading on for a first document",
        "sampling.py",
        "    if any(head.texts for _, head in samples):\n        return samples\n",
        "    return samples\n",
        _of("test_estimate.py", "read_to_its_end or behind_bad"),
    ),
    Mutant(
        "estimate: the reference at the speed of the accelerated engine",
        "estimate.py",
        'engine in (self.reference, "reference")',
        'engine == "reference"',
        _of("test_estimate.py", "speed"),
    ),
    Mutant(
        "plan: what is certain not refused",
        "outlook.py",
        "        raise prepared.foreseen\n",
        "        pass\n",
        _of("test_plan_refusals.py", "read_whole"),
    ),
    Mutant(
        "limits: percentage not applied to bytes",
        "limits.py",
        "too_large = size is not None",
        "too_large = False and size is not None",
        _of("test_quarantined_bytes.py", "most_of_the_bytes"),
    ),
    Mutant(
        "limits: a count also applied to bytes",
        "limits.py",
        "allowed_bytes = None if limit.share is None or read_bytes is None",
        "allowed_bytes = None if read_bytes is None",
        _of("test_quarantined_bytes.py", "count_limits_documents"),
    ),
    Mutant(
        "jsonl: blank lines are bytes of documents",
        "readers/jsonl.py",
        "                batch.other_bytes += after - begin + mark_bytes\n",
        "                pass\n",
        _of("test_document_bytes.py", "line_feed"),
    ),
    Mutant(
        "text: separators are bytes of documents",
        "readers/text.py",
        'return pieces * len(separator or b"") - missing + mark',
        "return mark",
        _of("test_document_bytes.py", "without_their_separator"),
    ),
    Mutant(
        "verify: bytes of documents not recounted",
        "verification/files.py",
        "if None not in claimed and sizes != claimed:",
        "if False:",
        _of("test_quarantined_bytes.py", "proves_the_sums"),
    ),
    Mutant(
        "quarantine: list not compared with its name",
        "quarantine.py",
        "    if is_whole and _has_digest(found, digest):\n        return\n",
        "    return\n",
        _of("test_quarantine.py", "changed"),
    ),
    Mutant(
        "quarantine: the lists of older versions are lost",
        "layout.py",
        "return quarantine_path(epoch, range_id, digest), plain_quarantine_path(epoch, range_id, digest)",
        "return quarantine_path(epoch, range_id, digest), quarantine_path(epoch, range_id, digest)",
        _of("test_quarantine.py", "older_version"),
    ),
    Mutant(
        "quarantine: a short list that unpacks to much is held",
        "quarantine.py",
        "rows = packed.read(_SHORT_ROWS_BYTES + 1)",
        "rows = packed.read(); return rows",
        _of("test_quarantine.py", "with_many_rows"),
    ),
    Mutant(
        "unusable: a range goes on whatever it finds",
        "unusable_limit.py",
        "return replace(task, room=self._room())",
        "return task",
        _of("test_unusable_limit.py", "goes_on_with_the_same_bytes and one"),
    ),
    Mutant(
        "unusable: all receipts are added up at each task",
        "unusable_limit.py",
        "        self._receipts_counted = len(ranges)\n",
        "        self._found = 0\n",
        _of("test_unusable_limit.py", "added_up_once and count"),
    ),
    Mutant(
        "unusable: receipts are added up where no number decides",
        "unusable_limit.py",
        "            return None  # whatever was found\n",
        "            self._count_new()\n            return None\n",
        _of("test_unusable_limit.py", "added_up_once and percentage"),
    ),
    Mutant(
        "unusable: documents of a file count that was dropped afterwards",
        "unusable_limit.py",
        "            self._found -= self._found_by_file.pop(file, 0)\n",
        "            self._found_by_file.pop(file, 0)\n",
        _of("test_unusable_limit.py", "of_a_dropped_file"),
    ),
    Mutant(
        "unusable: a file that may still be dropped ends the run",
        "limits.py",
        "if limit.count is None or may_drop_files:",
        "if limit.count is None:",
        _of("test_unusable_limit.py", "read_to_the_end"),
    ),
    Mutant(
        "unusable: what a range had found when it ended early is not shown",
        "unusable.py",
        "digests = _unfinished_lists(store, epoch, ledger)",
        "digests = dict[int, str]()",
        _of("test_unusable_limit.py", "goes_on_with_the_same_bytes and one"),
    ),
    Mutant(
        "quarantine: lists stored as plain lines",
        "quarantine.py",
        "zstd.ZstdCompressor(options=_ZSTD_OPTIONS)",
        "zstd.ZstdCompressor(level=-131072)",
        _of("test_quarantine.py", "few_bytes"),
    ),
    Mutant(
        "quarantine: what came not compared with what the store has",
        "quarantine.py",
        "if entry.crc32c not in (None, stored.crc32c):",
        "if False:",
        _of(RUNS, "unusable"),
    ),
    Mutant(
        "range list: the run stops at a damaged one",
        "run.py",
        '        if error.reason != "QuarantineCorrupt":\n',
        "        if True:\n",
        _of("test_cli_restarts.py", "changed_quarantine_list"),
    ),
    Mutant(
        "range list: digest not compared by a run",
        "quarantine.py",
        "len(rows) <= _SHORT_ROWS_BYTES and _has_digest(sha256(rows), digest)",
        "len(rows) <= _SHORT_ROWS_BYTES",
        _of("test_cli_restarts.py", "changed_quarantine_list"),
    ),
    Mutant(
        "ledger: damaged receipt believed",
        "listed.py",
        "                fields = load_record(data, is_proven=is_proven)\n",
        "                fields = load_record(data, is_proven=True)\n",
        _of("test_records.py", "made_again_with_a_warning"),
    ),
    Mutant(
        "ledger: damaged receipt deleted whatever has come in its place",
        "healing.py",
        "store.delete(record.path, version=record.version)",
        "store.delete(record.path)",
        _of("test_listed.py", "made_again_meanwhile"),
    ),
    Mutant(
        "ledger: record of a later version deleted",
        "listed.py",
        "            made = make(entry.path, fields)\n        yield made\n",
        "            try:\n                made = make(entry.path, fields)\n"
        "            except KeyError:\n                return\n        yield made\n",
        _of("test_listed.py", "another_version"),
    ),
    Mutant(
        "index: checksum not compared",
        "index.py",
        "        if expected not in (None, found := checksum_of(index)):\n",
        "        if False:\n            found = ''\n",
        _of("test_records.py", "checksum_is_wrong"),
    ),
    Mutant(
        "index: older one not checked by the digest",
        "tables.py",
        "    if checksum_in(index) is None and unusable <= _FEW:\n",
        "    if False:\n",
        _of("test_records.py", "older_index_is_checked"),
    ),
    Mutant(
        "open_dataset: digests of the shards table not compared",
        "tables.py",
        '        if digests[entry["name"]].hexdigest() != entry["digest"]:\n',
        "        if False:\n",
        _of("test_dataset.py", "shards_table"),
    ),
    Mutant(
        "open_dataset: digest of the files table not compared",
        "tables.py",
        "    if expected not in (None, digest.hexdigest()):\n",
        "    if False:\n",
        _of("test_cli_restarts.py", "of_which_a_table_was_changed"),
    ),
    Mutant(
        "open_dataset: header of a shard not compared",
        "token_stream.py",
        "        if header != npy.header(self.tokens, dtype):\n",
        "        if False:\n",
        _of("test_dataset.py", "another_header"),
    ),
    Mutant(
        "open_dataset: size of a shard not compared",
        "token_stream.py",
        "        if entry is None or entry.size != self.size_bytes:\n",
        "        if False:\n",
        _of("test_dataset.py", "another_size"),
    ),
    Mutant(
        "tables: no checksum in their frames",
        "finish.py",
        "options={zstd.CompressionParameter.checksum_flag: 1}",
        "options={}",
        _of("test_verify.py", "checksums_of_their_own"),
    ),
    Mutant(
        "verify: run.filesDigest not compared",
        "verification/tables.py",
        "    if listed not in (None, digest.hexdigest()):\n",
        "    if False:\n",
        _of("test_verify.py", "in_every_mode"),
    ),
    Mutant(
        "verify: every document of a missing shard is a finding",
        "verification/stream.py",
        " & (found[:both] != UNKNOWN))",
        ")",
        _of("test_verify.py", "missing_shard"),
    ),
    Mutant(
        "verify: digest of damaged bytes given out",
        "verification/verify.py",
        "    if digest is not None and not findings:\n",
        "    if digest is not None:\n",
        _of("test_verify_command.py", "digest_of_a_damaged"),
    ),
    Mutant(
        "verify: what another version of a library may have done is called damage",
        "verification/libraries.py",
        "    if libraries.was and not others:\n",
        "    if False:\n",
        _of("test_library_versions.py", "does_not_condemn"),
    ),
    Mutant(
        "verify: another version of a library is blamed for any damage",
        "verification/libraries.py",
        "        return bool(self.names) and finding.fault in _OF_TOKENS\n",
        "        return bool(self.names)\n",
        _of("test_library_versions.py", "no_version_of_a_tokenizer"),
    ),
    Mutant(
        "verify: a dataset of the same versions is not condemned",
        "verification/libraries.py",
        "        return bool(self.names) and finding.fault in _OF_TOKENS\n",
        "        return finding.fault in _OF_TOKENS\n",
        _of("test_library_versions.py", "verify_with_the_versions"),
    ),
    Mutant(
        "verify: empty documents held without end",
        "verification/files.py",
        "_DOCUMENT_BYTES = 256\n",
        "_DOCUMENT_BYTES = 0\n",
        _of("test_verify.py", "number_of_empty_documents"),
    ),
    Mutant(
        "verdict: a file judged at the first look",
        "range_work.py",
        "            self._require_damaged_again(source, damage)\n",
        "",
        _of("test_policy.py", "looks_damaged_once"),
    ),
    Mutant(
        "source: not looked at after its last byte",
        "readers/open.py",
        "        require_unchanged(stream)\n    except",
        "    except",
        _of("test_motion.py", "while_its_file_changed"),
    ),
    Mutant(
        "source: not looked at before the index",
        "finish.py",
        "    _require_sources_unchanged(plan, watch)\n",
        "",
        _of("test_motion.py", "after_it_was_read_is_not_committed"),
    ),
    Mutant(
        "source: a change time says nothing",
        "storage/source_file.py",
        "(is_known and self.ctime_ns != now.ctime_ns)",
        "False",
        _of("test_motion.py", "between_two_ranges"),
    ),
    Mutant(
        "source: bytes read not compared with the planned size",
        "storage/unchanged.py",
        "if file is not None and (self._position > file.size or (is_end and self._position < file.size)):",
        "if file is not None and file.size < 0:",
        _of("test_motion.py", "not_the_planned_one"),
    ),
    Mutant(
        "source: the plan is of a file that changed meanwhile",
        "planning.py",
        "            raise source_changed(was, now, _LISTED)\n        return found",
        "            break\n        return found",
        _of("test_motion.py", "while_the_plan_is_looked_at"),
    ),
    Mutant(
        "verdict: on a text that was never planned",
        "range_work.py",
        "                _open(source).close()",
        "                pass",
        _of("test_motion.py", "never_planned"),
    ),
    Mutant(
        "source: a decoder goes on in a file that was touched",
        "readers/content.py",
        "source.version, source.ctime_ns",
        "source.version, 0",
        _of("test_motion.py", "decoder"),
    ),
    Mutant(
        "source: two slashes are another file",
        "api/resolve.py",
        'return "/" + path.lstrip("/")',
        "return path",
        _of("test_one_name.py", "two-slashes"),
    ),
    Mutant(
        "hf source: a file once for every revision that names it",
        "storage/sources.py",
        "identity = hf_identity(file.uri, file.pin) if file.pin else file.uri",
        "identity = file.uri",
        _of("test_one_name.py", "names_its_commit"),
    ),
    Mutant(
        "finish: shards of earlier starts are believed",
        "run.py",
        "        rotten = find_rot(store, earlier, on_progress, should_stop)\n",
        "        rotten: frozenset[tuple[str, int]] = frozenset()\n",
        _of("test_rot.py", "rotten_shards"),
    ),
    Mutant(
        "finish: shards not looked at again",
        "finish.py",
        "    _check_shards(store, shards)\n",
        "",
        ("test_finish.py",),
    ),
    Mutant(
        "s3 source: read without its version",
        "storage/s3_source.py",
        '            "IfMatch": f\'"{file.version.removeprefix(_ETAG)}"\',\n',
        "",
        _of("test_sources_s3.py", "replaced_while"),
    ),
    Mutant(
        "hf source: an expired address is believed",
        "storage/hf_client.py",
        "if response.status_code not in _EXPIRED:",
        "if True:",
        _of("test_sources_hf.py", "expired"),
    ),
    Mutant(
        "retry: the process's random numbers",
        "storage/retry.py",
        "_CHANCE = random.Random()",
        "_CHANCE = random",
        _of("test_retry.py", "stay_its_own"),
    ),
    Mutant(
        "isolation: a first death is enough",
        "isolation.py",
        "if process.is_fresh and death.is_evidence:",
        "if True:",
        _of("test_isolation.py", "survives_alone"),
    ),
    Mutant(
        "isolation: a stop from outside blames the document",
        "isolation.py",
        "if death.is_stop:",
        "if False:",
        _of("test_isolation.py", "stopped_from_outside"),
    ),
    Mutant(
        "schedule: ranges before shards",
        "schedule.py",
        "        while self._to_build:\n            shard",
        "        while self._to_build and not self._to_tokenize:\n            shard",
        _of("test_scale.py", "go_before_ranges"),
    ),
    Mutant(
        "schedule: a range that lost its worker is not isolated",
        "schedule.py",
        "            self._isolated.add(task.range_id)\n",
        "            pass\n",
        _of("test_lost_workers.py", "isolated"),
    ),
    Mutant(
        "lanes: a dead worker keeps its lane",
        "lanes.py",
        'it has read last."""\n        self._held.pop(worker, None)\n',
        'it has read last."""\n',
        _of("test_lanes.py", "died"),
    ),
    Mutant(
        "gs:// range: longer than asked for",
        "storage/gcs_client.py",
        "    if len(data) > end - start:\n",
        "    if False:\n",
        _of("test_gcs_reads.py", "ignored"),
    ),
    Mutant(
        "isolation: an error of the system kills",
        "isolated_engine.py",
        "            except MemoryError:\n                raise\n",
        "            except (MemoryError, OSError):\n                raise\n",
        _of("test_isolation.py", "error_of_the_system"),
    ),
    Mutant(
        "Ray: a node whose workers cannot start does not rest",
        "executors/ray_workers.py",
        "time.monotonic() + _REST_S * self._failed[worker.node_id]",
        "0.0",
        _of("test_ray_workers.py", "rests or hangs_from"),
    ),
    Mutant(
        "Ray: a head that hangs is asked to end",
        "executors/on_ray.py",
        "has_head = not ray.is_initialized() or list_nodes() is not None",
        "has_head = True",
        _of("test_ray_workers.py", "hangs_from_the_start"),
    ),
    Mutant(
        "processes: a fork may answer its parent's signals",
        "processes.py",
        "before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)",
        "before = signal.pthread_sigmask(signal.SIG_BLOCK, ())",
        ("test_processes.py",),
    ),
    Mutant(
        "dataset: maps are never closed",
        "token_stream.py",
        "        while len(_maps) > most_maps():",
        "        while False:",
        _of("test_dataset.py", "few_at_a_time"),
    ),
    Mutant(
        "dataset: a stream from another process takes a number of this one",
        "token_stream.py",
        "        return Stream, (self.number, self.shards, self.dtype)",
        "        return object.__reduce_ex__(self, 2)",
        _of("test_dataset.py", "sent_alone"),
    ),
    Mutant(
        "main guard: a worker answers for itself",
        "main_guard.py",
        "    if process.name == _NAME:",
        "    if False:",
        _of("test_main_guard.py", "without_a_main_guard and not catch and run"),
    ),
    Mutant(
        "progress: bytes that wait to be encoded are done",
        "range_work.py",
        "self._tell(self.source_bytes - self._waiting_bytes, self.tokens)",
        "self._tell(self.source_bytes, self.tokens)",
        _of("test_progress.py", "when_their_tokens_are_there"),
    ),
    Mutant(
        "progress: a dropped file's bytes wait for ever",
        "range_work.py",
        "            self._waiting_bytes -= sum(batch.source_bytes for batch in batches)\n",
        "",
        _of("test_progress.py", "never_encoded"),
    ),
    Mutant(
        "progress: unusable documents wait for ever",
        "range_work.py",
        "                if batch.texts:\n                    self._waiting_bytes",
        "                if True:\n                    self._waiting_bytes",
        _of("test_progress.py", "never_encoded"),
    ),
    Mutant(
        "progress: 0:00 left while nothing moves",
        "cli/pace.py",
        "        is_overdue = seconds < now_s - self._moved_s\n",
        "        is_overdue = False\n",
        _of("test_progress.py", "nothing_moves"),
    ),
    Mutant(
        "progress: a range that is done again counts twice",
        "work.py",
        "if isinstance(task, TokenizeTask) and task.range_id not in self._ledger.ranges",
        "if isinstance(task, TokenizeTask)",
        _of("test_progress.py", "counted_once"),
    ),
    Mutant(
        "progress: a range is done before its receipt",
        "advance.py",
        "stored_bytes * _MOST // 100",
        "stored_bytes",
        _of("test_progress.py", "before_its_receipt"),
    ),
    Mutant(
        "progress: a task that has ended still counts as a part",
        "executors/local.py",
        "            self._advances.pop(worker, None)\n",
        "",
        _of("test_progress.py", "bar_moves and fork"),
    ),
    Mutant(
        "progress: a Ray worker's last task counts for its next",
        "executors/ray_advances.py",
        "            if running.get(worker) is task:",
        "            if worker in running:",
        _of("test_progress.py", "counts_for_no_other"),
    ),
    Mutant(
        "local: file not flushed before its name",
        "storage/local.py",
        "                os.fsync(self._fd)\n",
        "                pass\n",
        _of(LOCAL, "on_the_disk"),
    ),
    Mutant(
        "local: folder not flushed after the name",
        "storage/local.py",
        "        if self._durable:\n            sync_folder(folder)",
        "        return",
        _of(LOCAL, "on_the_disk"),
    ),
    Mutant(
        "local: links below _tokenization are followed",
        "storage/folders.py",
        "        flags = _ENTER | os.O_NOFOLLOW if to_write or is_ours else _ENTER\n",
        "        flags = _ENTER\n",
        _of(FOREIGN, "linked_folder_below"),
    ),
    Mutant(
        "local: a pipe in scratch is waited for",
        "storage/scratch.py",
        "            with listable(parent, name) as folder:\n",
        "            os.close(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=parent))\n"
        "            with listable(parent, name) as folder:\n",
        _of(FOREIGN, "pipe_in_scratch"),
    ),
    Mutant(
        "local: scratch with a second name is written over",
        "storage/scratch.py",
        "found.st_nlink == 1 and ",
        "",
        _of(FOREIGN, "written_over"),
    ),
    Mutant(
        "local: folders of another user are written",
        "storage/folders.py",
        "            if to_write and is_ours:\n",
        "            if False:\n",
        _of(FOREIGN, "another_user"),
    ),
    Mutant(
        "local: a pipe is a file",
        "storage/folders.py",
        "    if stat.S_ISREG(mode):\n        return fd\n",
        "    return fd\n",
        _of(FOREIGN, "neither_read"),
    ),
    *(
        Mutant(f"operator: {name}", module, old, new, tests, "operator")
        for name, module, old, new, tests in (
            (
                "never create children from a stale read",
                "reconciler.py",
                "                await self._cluster.require_current(found)\n",
                "                pass\n",
                _of("test_decide.py", "sees_what_was"),
            ),
            (
                "a namesake's commit is believed",
                "ending.py",
                "(found.job_uid, found.run, found.run_key) != (case.seen.uid, run.number, run.run_key)",
                "found.run != run.number",
                _of("test_decide.py", "namesakes_commit"),
            ),
            (
                "an attempt begins beside what is left of the last",
                "attempts.py",
                "    if case.has_children(but_plan=True):\n        before",
                "    if False:\n        before",
                ("test_waiting.py",),
            ),
            (
                "a run begins beside what is left of the last",
                "runs.py",
                "case.before.run is not None and case.has_children()",
                "False",
                _of("test_decide.py", "new_token"),
            ),
            (
                "an open dashboard is kept",
                "answers.py",
                """    return "authOptions" in""",
                """    return True or "authOptions" in""",
                _of("test_cluster.py", "taken_back"),
            ),
            (
                "what no watch has told is gone",
                "reconciler.py",
                "        if seen.ray_job is None and seen.status.plan is not None:\n",
                "        if False:\n",
                _of("test_decide.py", "has_not_brought"),
            ),
            (
                "a key has two workers",
                "workqueue.py",
                "self._again if key in self._busy else self._due",
                "self._due",
                _of("test_workqueue.py", "one_worker_at_a_time"),
            ),
            (
                "a key that is named while it is looked at is forgotten",
                "workqueue.py",
                "                self._want(key, self._again.pop(key))\n",
                "                self._again.pop(key)\n",
                _of("test_workqueue.py", "one_worker_at_a_time"),
            ),
            (
                "a checkpoint is changed by an old sight",
                "cluster.py",
                """for name in ("resourceVersion", "uid")""",
                """for name in ("uid",)""",
                _of("test_cluster.py", "pointed"),
            ),
            (
                "every failure is forgiven",
                "failures.py",
                "    if ranges_done > (before.ranges_completed or 0):\n",
                "    if True:\n",
                _of("test_decide.py", "without_progress"),
            ),
            (
                "a part that has ended leaves a zombie",
                "handlers.py",
                "            self.has_failed = True\n            self.stop_flag.set()\n",
                "            self.has_failed = True\n",
                ("test_resync.py",),
            ),
            (
                "time in a queue counts",
                "runs.py",
                "    run = after.run and after.run.model_copy",
                "    return after\n    run = after.run and after.run.model_copy",
                ("test_waiting.py",),
            ),
        )
    ),
    Mutant(
        "a found receipt may be of another plan",
        "commit.py",
        "    require_plan(store.uri, path, found.plan_id, plan_id)\n",
        "",
        _of("test_tasks.py", "another_plan"),
    ),
    Mutant(
        "the receipt that was there first may be of another plan",
        "commit.py",
        "    require_plan(store.uri, path, found.plan_id, receipt.plan_id)\n",
        "",
        _of("test_tasks.py", "another_plan"),
    ),
    Mutant(
        "the ledger may hold another plan's receipts",
        "ledger.py",
        """        require_plan(store.uri, path, record["plan_id"], plan.plan_id)\n""",
        "",
        _of("test_tasks.py", "another_plan"),
    ),
    Mutant(
        "verdict on a document: one's own counts",
        "poison.py",
        "        return _poison_of(found)\n",
        "        return _poison_of(verdict)\n",
        _of("test_tasks.py", "verdict_on_a_document"),
    ),
    Mutant(
        "verdict on a file: one's own counts",
        "range_work.py",
        """        return found["outcome"], found["detail"]\n""",
        """        return damage.outcome, damage.detail\n""",
        _of("test_tasks.py", "verdict_on_a_damaged_file"),
    ),
    Mutant(
        "versions: a driver's are not compared",
        "run.py",
        "        require_same_tokenizer(store, context, prepared.tokenizer, on_progress)\n",
        "        pass\n",
        _of("test_library_versions.py", "resume_under or receipts_are_made"),
    ),
    Mutant(
        "versions: a driver's are not compared before damaged receipts are made again",
        "run.py",
        "        encodes = bool(damaged) or redoes_receipts(ledger, plan.n_ranges)\n",
        "        encodes = bool(damaged)\n",
        _of("test_library_versions.py", "receipts_are_made"),
    ),
    Mutant(
        "versions: what pyarrow reads is not compared",
        "samples.py",
        "    if samples.parquet and parquet_digest() != samples.parquet:\n",
        "    if False:\n",
        _of("test_library_versions.py", "another_pyarrow_is_compared"),
    ),
    Mutant(
        "versions: a pyarrow that was not compared is called proven",
        "samples.py",
        "    if samples.parquet:\n        return",
        "    if True:\n        return",
        _of("test_library_versions.py", "say_nothing_of or may_be_parquet"),
    ),
    Mutant(
        "versions: pyarrow counts in a source without Parquet",
        "run.py",
        "    return without_pyarrow(versions)\n",
        "    return versions\n",
        _of("test_library_versions.py", "decides_nothing"),
    ),
    Mutant(
        "versions: every plan imports pyarrow",
        "samples.py",
        """        parquet=parquet_digest() if has_parquet and has_pyarrow() else "",\n""",
        """        parquet=parquet_digest(),\n""",
        _of("test_library_versions.py", "imports_no_pyarrow"),
    ),
    Mutant(
        "versions: lost samples are taken for an old run",
        "samples.py",
        "    if samples is None or find_changes(was, samples.versions):\n",
        "    if samples is None:\n        return None\n    if find_changes(was, samples.versions):\n",
        _of("test_library_versions.py", "samples_that_are_lost"),
    ),
    Mutant(
        "versions: samples of other versions prove",
        "samples.py",
        "    if samples is None or find_changes(was, samples.versions):\n",
        "    if samples is None:\n",
        _of("test_library_versions.py", "samples_of_other_versions"),
    ),
    Mutant(
        "repair: a moved dataset is taken for one of this process's libraries",
        "repair.py",
        "    if not recorded or same_as_any(now, recorded):\n",
        "    if True:\n",
        _of("test_library_versions.py", "versions_that_wrote_it"),
    ),
    Mutant(
        "repair: libraries are compared after something was written",
        "repair.py",
        "        require_proof(store, repair.versions, now)\n",
        "",
        _of("test_library_versions.py", "versions_that_wrote_it"),
    ),
    Mutant(
        "repair: an epoch counts that the dataset's run did not write",
        "repair.py",
        "    return epoch if epoch.sealed else None\n",
        "    return epoch\n",
        _of("test_library_versions.py", "proved_by_any_version"),
    ),
    Mutant(
        "repair: receipts of an earlier repair count whatever its libraries",
        "repair.py",
        "    if trusted is None:\n        return []\n",
        "    if True:\n        return []\n",
        _of("test_library_versions.py", "names_no_versions"),
    ),
    Mutant(
        "repair: a wrong shard gets its name",
        "build.py",
        "        if self._task.expected not in (None, found):\n",
        "        if False:\n",
        _of("test_library_versions.py", "names_no_versions"),
    ),
    Mutant(
        "repair: two writers disagree, and nothing is said of their versions",
        "run.py",
        "            if changed is None:\n",
        "            if True:\n",
        _of("test_library_versions.py", "no_sample_shows"),
    ),
    Mutant(
        "versions: a worker's are not compared",
        "range_work.py",
        "        require_same_tokenizer(store, context, tokenizer)\n",
        "",
        _of("test_library_versions.py", "worker_with"),
    ),
    Mutant(
        "versions: sampled documents are compared, code points are not",
        "samples.py",
        "        return first_change(tokenizer, samples.behaviour)\n",
        "        return None\n",
        _of("test_library_versions.py", "resume_under and point"),
    ),
    Mutant(
        "versions: the writer of the epoch counts, not the writer of the samples",
        "samples.py",
        "    return mine if found is None else Samples.from_bytes(found, store.uri)\n",
        "    return mine\n",
        _of("test_library_versions.py", "two_first_starts"),
    ),
    Mutant(
        "engine: not checked on a worker's machine",
        "range_work.py",
        "        require_same_tokenizer(store, context, tokenizer)\n",
        "",
        _of("test_engine_checks.py", "worker_on_another_node"),
    ),
    Mutant(
        "engine: not checked on the machine of a resume",
        "tokenizer_check.py",
        "    if (verdict := find_difference(tokenizer, context.engine, telling_of_check(watch))) is not None:\n",
        "    if (verdict := None) is not None:\n",
        _of("test_engine_checks.py", "machine_of_a_resume or resume_on_another"),
    ),
    Mutant(
        "lost text: sampled documents are not looked at",
        "kept_text.py",
        "    for document in documents:\n        kept",
        "    for document in ():\n        kept",
        _of("test_kept_text.py", "does_not_cover and alone"),
    ),
    Mutant(
        "lost text: code points are not looked at",
        "kept_text.py",
        "    if spec.pattern is not None:\n        texts",
        "    if False:\n        texts",
        _of("test_kept_text.py", "does_not_cover and rare"),
    ),
    Mutant(
        "a model on the Hub is not read at its commit",
        "tokenizers/load.py",
        "    return replace(spec, revision=planned or _find_commit(spec.name))\n",
        "    return spec\n",
        _of("test_tokenizers_hub.py", "moves_during"),
    ),
    Mutant(
        "the plan's sample is counted in a process with threads",
        "estimate.py",
        "    name = tokenizer.reference.name\n    with Isolation",
        "    return [EncodedSample(t, *_encode_sample(tokenizer.reference, t, time.perf_counter)) for t in shortened]\n"
        "    name = tokenizer.reference.name\n    with Isolation",
        _of("test_isolation.py", "sample_of_a_plan"),
    ),
    Mutant(
        "a plan's checksum is not compared",
        "plan.py",
        "if checksum != _checksum(data):",
        "if False:",
        _of("test_identity.py", "plan_may_change"),
    ),
    Mutant(
        "readers: every blank line is judged",
        "readers/jsonl.py",
        "after, skipped = skip_blank_lines(data, min(stop + 1, end), end, parsed_bytes)",
        "after, skipped = min(stop + 1, end), 0",
        _of("test_readers_blank.py", "cost_a_scan and run and documents"),
    ),
    Mutant(
        "readers: passed blank lines are not counted",
        "readers/blank_lines.py",
        'lines += data.count(b"\\n", begin, stop)',
        "lines += 1",
        _of("test_readers_blank.py", "only_whole"),
    ),
    Mutant(
        "readers: fields are looked for in all lines of a head",
        "readers/head.py",
        "first_lines(content, _FIELD_LINES)",
        'content.split(b"\\n")',
        _of("test_readers_blank.py", "parses_few"),
    ),
    Mutant(
        "readers: a look at the first lines stops at blank ones",
        "readers/text_fields.py",
        "in first_lines(content, _MOST_RECORDS)",
        'in content.removeprefix(UTF8_BOM).split(b"\\n", _MOST_RECORDS)[:_MOST_RECORDS]',
        _of("test_readers_blank.py", "parses_few"),
    ),
    Mutant(
        "empty documents: read one by one",
        "readers/text.py",
        'b"(?:%b)++"',
        'b"%b"',
        _of("test_empty_documents.py", "looks_once"),
    ),
    Mutant(
        "empty documents: each has the first one's place",
        "readers/text.py",
        "            positions.extend(found)\n",
        "            positions.extend([position] * len(found))\n",
        _of("test_empty_documents.py", "one_by_one"),
    ),
    Mutant(
        "empty documents: given to tiktoken",
        "tokenizers/tiktoken_engine.py",
        "            if not text:",
        "            if False:",
        _of("test_empty_documents.py", "tiktoken_is_not_asked"),
    ),
    Mutant(
        "empty documents: a plan looks at all of a head",
        "samples.py",
        "            if len(chosen) == MOST_DOCUMENTS:\n                break\n",
        "            chosen = chosen[:MOST_DOCUMENTS]\n",
        _of("test_empty_documents.py", "no_more_texts"),
    ),
    Mutant(
        "empty documents: each is hashed for its split",
        "range_work.py",
        " if text else empty for text in texts]",
        " for text in texts]",
        _of("test_empty_documents.py", "stream_is_looked_up_once"),
    ),
    Mutant(
        "empty documents: verify turns each of them back",
        "verification/files.py",
        " if text or start < end else self._empty",
        "",
        _of("test_empty_documents.py", "turns_none_of_them_back"),
    ),
    Mutant(
        "empty documents: verify takes no look at what an engine made of them",
        "verification/files.py",
        " if text or start < end else self._empty",
        " if text else self._empty",
        _of("test_empty_documents.py", "turns_none_of_them_back"),
    ),
    Mutant(
        "readers: a decoder for each small frame",
        "readers/decompress.py",
        "known.add(frame, content)",
        "pass",
        _of("test_readers_blank.py", "no_decoder and run"),
    ),
    Mutant(
        "readers: rows of Parquet by their average",
        "readers/parquet_pages.py",
        "share = self._dictionary_bytes / REPEATED_BYTES",
        "share = decoded_bytes / max(1, rows) / PAGE_TEXT_BYTES",
        _of("test_parquet_bombs.py", "pointers_count"),
    ),
    Mutant(
        "readers: rows of pointers decoded one by one",
        "readers/parquet_pages.py",
        "few = max(stored // 4 + (64 << 10), _POINTER_BYTES * self.rows)",
        "few = stored // 4 + (64 << 10)",
        _of("test_parquet_bombs.py", "no_more_than_pointers"),
    ),
    Mutant(
        "readers: many rows of pages of which nothing is known",
        "readers/parquet_pages.py",
        "        return max(1, rows)",
        "        return max(1, rows or most)",
        _of("test_parquet_bombs.py", "no_page_is_known"),
    ),
    Mutant(
        "verify: all rows of the quarantine table are held",
        "verification/refused.py",
        "        for row in _rows(store):",
        "        for row in list(_rows(store)):",
        _of("test_verify_refused.py", "no_pass and sums"),
    ),
    Mutant(
        "verify: rows of the quarantine table out of place count",
        "verification/refused.py",
        "        if number == found:",
        "        if found >= 0:",
        _of("test_verify_refused.py", "out_of_place"),
    ),
    Mutant(
        "verify: the footer says what pages decode to",
        "verification/rows.py",
        "return size is not None and size <= most",
        "return True",
        _of("test_parquet_bombs.py", "lying_footer"),
    ),
    Mutant(
        "readers: what Parquet cannot hold is damage",
        "readers/parquet.py",
        '        raise MemoryError(f"Parquet: {error}") from error',
        "        raise DamagedFile(FileOutcome.CORRUPT_FILE, source.taken, str(error)) from error",
        _of("test_parquet_bombs.py", "no_damage"),
    ),
    Mutant(
        "verify does not compare the plan's checksum",
        "verification/tables.py",
        '    if google_crc32c.value(data[:-4]) != int.from_bytes(data[-4:], "little"):',
        "    if False:",
        _of("test_identity.py", "plan_that_was_changed"),
    ),
    Mutant(
        "Ray: a node is there as long as Ray believes so",
        "executors/ray_workers.py",
        "        if answers(node):\n",
        "        if True:\n",
        _of("test_ray_workers.py", "does_not_answer_is_gone"),
    ),
    Mutant(
        "Ray: a proxy is asked for the way to a cluster",
        "executors/ray_connection.py",
        'init_grpc_channel(address, options=[("grpc.enable_http_proxy", 0)])',
        "init_grpc_channel(address)",
        _of("test_ray_workers.py", "no_proxy"),
    ),
    Mutant(
        "gs://: connections of calls at once are not kept",
        "storage/gcs_client.py",
        "super().__init__(pool_maxsize=CONNECTIONS)",
        "super().__init__()",
        _of("test_gcs_connections.py", "as_many"),
    ),
    Mutant(
        "gs://: every chunk has a connection of its own",
        "storage/gcs_upload.py",
        "@cache\ndef _http(",
        "def _http(",
        _of("test_gcs_connections.py", "chunks"),
    ),
    Mutant(
        "hf://: a rate limit is not waited for",
        "storage/retry.py",
        "wait = asked + step",
        "wait = step",
        _of("test_sources_hf.py", "rate_limit"),
    ),
    Mutant(
        "nested: a new run inside another output",
        "run.py",
        "            refuse_nested_output(store)\n",
        "",
        _of("test_nested_outputs.py", "inside_another_is_refused_and and run"),
    ),
    Mutant(
        "nested: a dataset without its plan is no output",
        "adoption.py",
        "        return read_index(store) is not None\n    except (ForeignIndex",
        "        return False\n    except (ForeignIndex",
        _of("test_nested_outputs.py", "moved_without_its_plan"),
    ),
    Mutant(
        "nested: a run that began there is refused",
        "run.py",
        "    plan = read_plan(store)\n    if plan is None:\n        if index",
        "    refuse_nested_output(store)\n    plan = read_plan(store)\n    if plan is None:\n        if index",
        _of("test_nested_outputs.py", "that_began_inside"),
    ),
    Mutant(
        "nested: no call for the plan of a prefix",
        "adoption.py",
        "if open_store(parent).stat(layout.PLAN) is not None:",
        "if False:",
        _of("test_nested_outputs.py", "bucket"),
    ),
    Mutant(
        "clean: a foreign file of a shard's size",
        "own_files.py",
        "    return None if found == npy.header(tokens, dtype) else",
        "    return None if found else",
        _of("test_clean.py", "of-a-shards-size"),
    ),
    Mutant(
        "clean: a foreign file of any size",
        "own_files.py",
        "    if rest or not 0 < tokens <= naming.shard_tokens:",
        "    if rest:",
        _of("test_clean.py", "too-many-tokens"),
    ),
    Mutant(
        "clean: a damaged shard that a receipt names",
        "own_files.py",
        "receipted = _receipted_paths(store, own) if found.ours else set()",
        "receipted: set[str] = set()",
        _of("test_clean.py", "receipt_names or earlier_epochs"),
    ),
    Mutant(
        "clean: every name below ours",
        "own_files.py",
        "        if layout.is_own_name(entry.path):",
        "        if True:",
        _of("test_clean.py", "below_ours"),
    ),
    Mutant(
        "clean: what lies in an output inside",
        "own_files.py",
        "    found = sort_nested(store, list(shards))",
        "    found = Sorted(list(shards), [])",
        _of("test_clean.py", "inside_this_one"),
    ),
    Mutant(
        "commit: a foreign file of a shard's name",
        "finish.py",
        "    if others:\n        raise ChangedError(",
        "    if False:\n        raise ChangedError(",
        _of(FOREIGN, "before_the_index"),
    ),
    Mutant(
        "commit: all other shards are the voided engine's",
        "finish.py",
        "    ours = sort_shards(store, naming, named, receipts).ours",
        "    ours = named",
        _of("test_epochs.py", "foreign_file_beside"),
    ),
    Mutant(
        "index: of another program",
        "index.py",
        "    except ForeignIndex as error:\n        raise SpecError(",
        "    except ZeroDivisionError as error:\n        raise SpecError(",
        _of("test_clean.py", "foreign-index"),
    ),
    Mutant(
        "manifest: a pipe without a writer is an empty manifest",
        "api/manifest_file.py",
        "    if not data and stat.S_ISFIFO(status.st_mode):",
        "    if False:",
        _of("test_cli_errors.py", "pipe_without_a_writer"),
    ),
    Mutant(
        "log: a command prints warnings as they are",
        "cli/dispatch.py",
        'import_module("tokenization_worker.cli.logged").escape_warnings()',
        'import_module("tokenization_worker.cli.logged")',
        _of("test_cli_logged.py", "waited_for"),
    ),
    Mutant(
        "log: spawned workers print warnings as they are",
        "main_guard.py",
        "        self._first = _first",
        "        self._first = None",
        _of("test_cli_logged.py", "spawned"),
    ),
    Mutant(
        "endpoint: what follows the first @ of a password is the host",
        "storage/endpoints.py",
        'if "@" in value.replace(parts.netloc, "", 1) or parts.netloc.count("@") > 1:',
        "if False:",
        _of("test_endpoints.py", "not_percent_encoded"),
    ),
    Mutant(
        "redact: a password ends at its first @",
        "redact.py",
        "text = _PASSWORD_OF_URL.sub(",
        "text = re.compile(r'(?<=://)[^\\s/@]*@').sub(",
        _of("test_redact.py", "what_is_secret"),
    ),
    Mutant(
        "redact: a port is the beginning of a password",
        "redact.py",
        "(?!//|[0-9]{{1,5}}[/?#])",
        "(?!//)",
        _of("test_redact.py", "what_is_no_secret"),
    ),
)


def make_copy(mutant: Mutant, folder: Path) -> str | None:
    """Copy the package with the mutant into `folder`; what is wrong with the mutant's text, or None."""
    package = folder / PACKAGES[mutant.root]
    shutil.copytree(CHECKOUT / mutant.root / package.name, package, ignore=shutil.ignore_patterns("__pycache__"))
    path = package / mutant.module
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        return f"{mutant.module} has this text {text.count(mutant.old)} times: {mutant.old.strip()[:80]!r}"
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    return None


def run_tests(mutant: Mutant, folder: Path) -> tuple[int, str]:
    """Run the mutant's tests against the copy: pytest's exit code, and what it said last."""
    tests, options = [], []
    for argument in mutant.tests:
        (tests if argument.endswith(".py") else options).append(argument)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=line", *options]
    paths = os.pathsep.join([str(folder), *(str(CHECKOUT / root) for root in PACKAGES)])
    try:
        done = subprocess.run(
            [*command, *(str(CHECKOUT / "tests" / mutant.root / test) for test in tests)],
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, f"no end in {TIMEOUT_S} s"
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    if done.returncode == 1 and not failed:
        return 2, f"no test has failed, and yet: {done.stdout[-200:]}"  # what a test needs could not be had
    lines = failed or done.stdout.splitlines()
    return done.returncode, lines[-1] if lines else done.stderr[-200:]


def judge(mutant: Mutant) -> tuple[Mutant, bool, str, float]:
    """Whether tests noticed; a run without tests, or one that could not begin, is no notice."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        problem = make_copy(mutant, Path(name))
        if problem is not None:
            return mutant, False, problem, 0.0
        code, said = run_tests(mutant, Path(name))
    verdict = {0: "SURVIVED: all its tests pass", 1: said.removeprefix("FAILED ")}.get(
        code, f"pytest exit {code}: {said}"
    )
    return mutant, code == 1, verdict.replace(f"tests/{mutant.root}/", ""), time.monotonic() - started


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="only mutants whose name has one of these words in it")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if not options.names or any(word in mutant.name for word in options.names)]
    started = time.monotonic()
    survived = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, is_noticed, verdict, seconds in pool.map(judge, chosen):
            survived += not is_noticed
            print(f"{'red ' if is_noticed else 'BAD '} {seconds:5.1f} s  {mutant.name:52}  {verdict[:140]}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} mutants turn tests red, in {time.monotonic() - started:.0f} s")
    return 1 if survived or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
