"""A manifest is read as it was meant: examples, defaults, nulls, YAML as the API server reads it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
import yaml

from support.manifests.api_manifests import DEFAULTS, MINIMAL, Manifest, with_spec
from support.permissions import open_folder, without_root
from tokenization_worker.api.data import DelimiterPosition, DType, OutputFormat, SourceFormat, SplitSpec
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.resolve import resolve_data, resolve_limits
from tokenization_worker.api.workers import hosts_per_slice
from tokenization_worker.errors import SpecError

SMALLEST = """
apiVersion: tokenization.dev/v1alpha1
kind: TokenizationJob
metadata: {name: fineweb-edu}
spec:
  source: {uris: ["gs://corpus/fineweb-edu/*.parquet"]}
  tokenizer: {name: cl100k_base}
  output: {uri: "gs://tokens/fineweb-edu"}
"""

EVERYTHING = """
apiVersion: tokenization.dev/v1alpha1
kind: TokenizationJob
metadata:
  name: fineweb-edu
  namespace: team-a
  labels: {kueue.x-k8s.io/queue-name: tpu}
  annotations: {argocd.argoproj.io/sync-wave: "1"}
  finalizers: [example.dev/keep]
spec:
  source:
    uris: ["gs://a/**/*.jsonl.zst", "s3://b/c", "hf://datasets/d/e", "file:///f/g.txt", "h/*.txt"]
    format: Text
    textField: doc.text
    idField: meta.id
    documentSeparator: "<|endoftext|>"
  documents:
    maxBytes: 64Mi
  tokenizer:
    name: null
    uri: gs://models/llama3/tokenizer.model
    pattern: '\\p{L}+|\\s+'
    specialTokens: {"<|end_of_text|>": 128001, "<|begin_of_text|>": 128000}
    delimiter:
      token: "<|begin_of_text|>"
      position: After
  output:
    uri: gs://tokens/fineweb-edu/{rerunToken}
    formats: [Npy]
    dtype: UInt32
    shards: {tokens: 100000000}
    path: "{split}/{split}_{index:06d}"
    splits:
      - {name: test, share: 0.5%}
      - {name: train}
  maxQuarantined: 0.1%
  maxCorruptFiles: 3
  rangeBytes: 256Mi
  workers:
    replicas: 16
    minReplicas: 8
    tpu: {accelerator: tpu-v5-lite-podslice, topology: 2x4, chipsPerHost: 8, share: Exclusive}
    capacity: Reservation
    reservationName: tpu-2026
    resources: {requests: {cpu: 100, memory: 180Gi}, limits: {memory: "180Gi"}}
    nodeSelector: {pool: tokenization}
    tolerations: [{key: dedicated, operator: Exists, effect: NoSchedule}]
    priorityClassName: batch
  head:
    resources: {requests: {cpu: 500m}}
    nodeSelector: {pool: system}
    tolerations: []
    priorityClassName: batch
  env:
    - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: huggingface, key: token, optional: true}}}
    - {name: RUST_LOG, value: "1"}
  envFrom: [{prefix: P_, configMapRef: {name: settings}}, {secretRef: {name: more}}]
  image: registry.example/worker@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
  imagePullPolicy: IfNotPresent
  imagePullSecrets: [{name: registry}]
  serviceAccountName: tokenization-worker
  suspend: false
  rerunToken: "2"
  backoffLimit: 3
  infraRetryLimit: 10
  activeDeadlineSeconds: 86400
  startupDeadlineSeconds: 3600
  stallTimeoutSeconds: 1800
  ttlSecondsAfterFinished: null
"""

JAXFORMER: Manifest = {
    "output": {
        "dtype": "UInt32",
        "path": "{split}/{split}_{index:04d}",
        "splits": [{"name": "test", "shards": 350}, {"name": "train"}],
    }
}
NANOGPT: Manifest = {
    "tokenizer": {"name": "gpt2"},
    "output": {
        "dtype": "UInt16",
        "path": "edufineweb_{split}_{shard:06d}",
        "splits": [{"name": "val", "shards": 1}, {"name": "train"}],
    },
}


def test_smallest_manifest_gets_the_documented_defaults() -> None:
    data = resolve_data(TokenizationJob.from_yaml(SMALLEST))
    assert data.source.uris == ("gs://corpus/fineweb-edu/*.parquet",)
    assert data.source.format is SourceFormat.AUTO
    assert (data.source.text_field, data.source.id_field, data.source.document_separator) == ("text", "id", None)
    assert data.max_document_bytes == 64 * 2**20
    assert data.tokenizer.name == "cl100k_base"
    assert data.tokenizer.delimiter_token is None
    assert data.tokenizer.delimiter_position is DelimiterPosition.BEFORE
    assert data.output.formats == (OutputFormat.NPY,)
    assert data.output.dtype is DType.AUTO
    assert data.output.shard_tokens == 100_000_000
    assert data.output.path == "{split}/{split}_{index:06d}"
    assert data.output.splits == (SplitSpec("train", None, None),)
    assert data.rerun_token is None


def test_every_field_of_the_manifest_is_understood() -> None:
    job = TokenizationJob.from_yaml(EVERYTHING)
    data, limits = resolve_data(job), resolve_limits(job)
    assert data.source.uris[1:4] == ("s3://b/c", "hf://datasets/d/e", "/f/g.txt")
    assert data.source.uris[4] == str(Path.cwd() / "h/*.txt")
    assert data.tokenizer.name is None
    assert data.tokenizer.special_tokens == (("<|begin_of_text|>", 128000), ("<|end_of_text|>", 128001))
    assert data.output.uri == "gs://tokens/fineweb-edu/2"
    assert data.output.splits == (SplitSpec("test", None, Fraction(1, 200)), SplitSpec("train", None, None))
    assert limits.max_quarantined.allowed(46_002) == 46
    assert limits.max_corrupt_files.allowed(1) == 3
    assert limits.range_bytes == 256 * 2**20
    assert job.spec.workers.tpu is not None
    assert hosts_per_slice(job.spec.workers.tpu) == 1
    assert job.metadata.labels == {"kueue.x-k8s.io/queue-name": "tpu"}
    assert hash(data.tokenizer) == hash(pickle.loads(pickle.dumps(data.tokenizer)))


@pytest.mark.parametrize("layout", [JAXFORMER, NANOGPT], ids=["jaxformer", "nanogpt"])
def test_seed_layouts_are_manifests(layout: Manifest) -> None:
    data = resolve_data(TokenizationJob.from_object(with_spec(layout)))
    assert data.output.path == layout["output"]["path"]
    assert [split.shards for split in data.output.splits] == [layout["output"]["splits"][0]["shards"], None]


def test_defaults_written_out_mean_the_same() -> None:
    written = TokenizationJob.from_object(with_spec(DEFAULTS))
    assert written == TokenizationJob.from_object(MINIMAL)
    assert resolve_data(written) == resolve_data(TokenizationJob.from_object(MINIMAL))


def test_null_means_absent_everywhere() -> None:
    nulls = {
        "source": {"format": None, "documentSeparator": None},
        "documents": None,
        "tokenizer": {"uri": None, "delimiter": {"token": None, "position": None}},
        "output": {"splits": None, "dtype": None},
        "workers": {"tpu": None},
        "rerunToken": None,
        "suspend": None,
    }
    assert TokenizationJob.from_object(with_spec(nulls)) == TokenizationJob.from_object(MINIMAL)


def test_values_are_kept_as_written_and_defaults_are_not_written() -> None:
    job = TokenizationJob.from_yaml(EVERYTHING)
    again = TokenizationJob.from_yaml(job.to_yaml())
    assert again == job
    assert job.to_manifest()["spec"]["rangeBytes"] == "256Mi"
    assert job.to_manifest()["spec"]["output"]["splits"] == [{"name": "test", "share": "0.5%"}, {"name": "train"}]
    assert TokenizationJob.from_object(MINIMAL).to_manifest() == MINIMAL


def test_manifest_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"---\n{SMALLEST}\n---\n", encoding="utf-8")
    assert TokenizationJob.from_yaml(path) == TokenizationJob.from_yaml(SMALLEST)
    assert TokenizationJob.from_yaml(str(path)) == TokenizationJob.from_yaml(SMALLEST)


def test_scalars_mean_what_they_mean_to_the_api_server() -> None:
    text = SMALLEST + "  rerunToken: 2026-11-21\n  image: 12:30\n"
    job = TokenizationJob.from_yaml(text)
    assert (job.spec.rerun_token, job.spec.image) == ("2026-11-21", "12:30")


@pytest.mark.parametrize(
    ("written", "resolved"),
    [
        ("out", "{cwd}/out"),
        ("./out/", "{cwd}/out"),
        ("/a/../b", "/b"),
        ("file:///x/y/", "/x/y"),
        ("~/z", "{home}/z"),
        ("gs://b/p/", "gs://b/p"),
        ("gs://b", "gs://b"),
    ],
    ids=str,
)
def test_output_uri_is_absolute_and_has_no_trailing_slash(written: str, resolved: str) -> None:
    expected = resolved.format(cwd=Path.cwd(), home=os.path.expanduser("~"))  # noqa: PTH111
    job = TokenizationJob.from_object(with_spec({"output": {"uri": written}}))
    assert resolve_data(job).output.uri == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("spec: [1, 2\n", "line 2, column 1"),
        ("a: b\n a: c\n", "line 2"),
        ("a: 1\nb: 2\na: 3\n", 'line 3, column 1: the field "a" stands twice'),
        ("a: &x {b: 1}\nc: !!python/object:os.system {}\n", "line 2"),
        ("- a\n- b\n", "expected the fields of a manifest"),
        (f"{SMALLEST}\n---\n{SMALLEST}", "found 2 YAML documents, expected one"),
        ("\n", "the manifest is empty"),
        ("", "the manifest is empty"),
        ("a: \x00\n", "not YAML"),
    ],
    ids=["unclosed", "indent", "twice", "tag", "list", "two", "empty", "nothing", "nul"],
)
def test_yaml_mistakes_say_where(text: str, words: str) -> None:
    with pytest.raises(SpecError, match=r"^SpecInvalid") as caught:
        TokenizationJob.from_yaml(text)
    assert words in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="No such file") as caught:
        TokenizationJob.from_yaml(tmp_path / "absent.yaml")
    assert caught.value.reason == "SpecNotFound"
    assert "absent.yaml" in str(caught.value)


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"kind: \xff")
    with pytest.raises(SpecError, match="not UTF-8 at byte 6"):
        TokenizationJob.from_yaml(path)


def test_printed_manifest_is_yaml_of_one_document() -> None:
    assert yaml.safe_load(TokenizationJob.from_object(MINIMAL).to_yaml()) == MINIMAL


def test_importing_the_job_imports_no_heavy_library() -> None:
    script = (
        "import sys, tokenization_worker.api.job, tokenization_worker.api.keys, tokenization_worker.api.checkpoint;"
        "print([m for m in ('numpy', 'tiktoken', 'google.cloud', 'rich', 'orjson', 'kubernetes') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_manifest_that_this_user_may_not_read_is_named() -> None:
    with open_folder() as folder:
        path = folder / "job.yaml"
        path.write_text("kind: TokenizationJob\n")
        path.chmod(0)
        with without_root(), pytest.raises(SpecError, match=f"SpecNotFound: this user may not read {path}"):
            TokenizationJob.from_yaml(path)
