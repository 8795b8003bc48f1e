"""Identity: data fields change keys, others do not, defaults written out change nothing, and old keys stay."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

import pytest

from support.manifests.api_manifests import DEFAULTS, MINIMAL, Manifest, canonical, load, with_spec, with_value
from support.manifests.api_tables import delimiter
from tokenization_worker.api.changes import asked_fields, describe_changes
from tokenization_worker.api.data import Delimiters, DType
from tokenization_worker.api.job import DATA_FIELDS, JobSpec
from tokenization_worker.api.keys import (
    ASSERTED,
    FROZEN_DEFAULTS,
    KEY_VERSION,
    attempt_digest,
    canonical_data,
    data_key,
    field_digests,
    normalise_data,
    plan_id,
    run_key,
)
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.api.types.walk import iter_fields

FILES = [("gs://corpus/a.parquet", 10, "1"), ("gs://corpus/b.parquet", 20, "2")]


class Flip(NamedTuple):
    """A field and a value that it does not have in `base`; what must change."""

    path: str
    value: object
    run_key: bool
    data_key: bool
    base: Manifest = MINIMAL


RANKS = with_spec(
    {"tokenizer": {"name": None, "uri": "gs://m/a.tiktoken", "pattern": "p", "specialTokens": {"<|end|>": 5}}}
)
TEXT = with_spec({"source": {"format": "Text", "documentSeparator": "x"}})
SPLITS = with_spec({"output": {"splits": [{"name": "test", "shards": 2}, {"name": "train"}]}})
SHARES = with_spec({"output": {"splits": [{"name": "test", "share": "1%"}, {"name": "train"}]}})
TPU = with_spec({"workers": {"tpu": {"accelerator": "tpu-v5-lite-podslice", "topology": "4x4", "chipsPerHost": 4}}})
RESERVED = with_spec({"workers": {"capacity": "Reservation", "reservationName": "r"}})
SECRET = {"name": "huggingface", "key": "token"}


def with_volume(kind: str, volume: Manifest) -> Manifest:
    mount = {"name": "v", "mountPath": "/v"}
    return with_spec({"pods": {"volumes": [{"name": "v", kind: volume}], "volumeMounts": [mount]}})


def data(path: str, value: object, base: Manifest = MINIMAL) -> Flip:
    return Flip(path, value, run_key=True, data_key=True, base=base)


def address(path: str, value: object, base: Manifest = MINIMAL) -> Flip:
    return Flip(path, value, run_key=True, data_key=False, base=base)


def running(path: str, value: object, base: Manifest = MINIMAL) -> Flip:
    return Flip(path, value, run_key=False, data_key=False, base=base)


PAIR = with_spec({"tokenizer": {"delimiter": {"begin": "<s>", "end": "</s>"}}})
ROWS = with_spec({"output": {"sequence": {"length": 2049}}})


def with_pad(pad: Manifest) -> Manifest:
    return with_spec({"output": {"sequence": {"length": 2049, "pad": pad}}})


GROUP = {"name": "code", "uris": ["gs://corpus/code"]}


def with_group(more: Manifest) -> Manifest:
    return with_spec({"source": {"uris": None, "groups": [GROUP | more]}})


FLIPS = [
    address("source.uris", ["gs://corpus/other/*.parquet"]),  # the files themselves are in the dataKey
    data("source.groups[].name", "web", with_group({})),
    address("source.groups[].uris", ["gs://corpus/other"], with_group({})),
    data("source.groups[].share", "30%", with_group({"share": "31%"})),
    data("source.groups[].tokens", "10e9", with_group({"tokens": "11e9"})),
    data("source.format", "Parquet"),
    data("source.textField", "content"),
    data("source.idField", "url"),
    data("source.documentSeparator", "y", TEXT),
    data("documents.maxBytes", "1Mi"),
    data("tokenizer.name", "gpt2"),
    address("tokenizer.uri", "gs://m/b.tiktoken", RANKS),  # what the file does is in the fingerprint
    data("tokenizer.pattern", "q", RANKS),
    data("tokenizer.specialTokens", {"<|end|>": 6}, RANKS),
    data("tokenizer.delimiter.token", "<|endoftext|>"),
    data("tokenizer.delimiter.position", "After"),
    data("tokenizer.delimiter.begin", "<bos>", PAIR),
    data("tokenizer.delimiter.end", "<eot>", PAIR),
    running("tokenizer.fingerprint", "ab" * 32),  # asserted, and in no key
    address("output.uri", "gs://tokens/other"),
    # One format exists today, so the list itself cannot differ; its place in the keys is tested below.
    data("output.dtype", "UInt16"),
    data("output.shards.tokens", 1000),
    data("output.shards.sequences", 7, ROWS),
    data("output.sequence.length", 2048, ROWS),
    data("output.sequence.scope", "File", ROWS),
    data("output.sequence.packing", "BestFit", ROWS),
    data(
        "output.sequence.longDocuments",
        "Truncate",
        with_spec({"output": {"sequence": {"length": 9, "packing": "BestFit"}}}),
    ),
    data("output.sequence.maxDocuments", 9, with_spec({"output": {"sequence": {"length": 9, "packing": "BestFit"}}})),
    data("output.sequence.pad.token", "<pad>", with_pad({"token": "<|pad|>"})),
    data("output.sequence.pad.id", 8, with_pad({"id": 9})),
    data("output.shuffle.seed", 1, with_spec({"output": {"shuffle": {"seed": 0}}})),
    data("output.shuffle.unit", "Document", with_spec({"output": {"sequence": {"length": 9}, "shuffle": {"seed": 0}}})),
    data("output.path", "{split}_{shard:06d}"),
    data("output.splits", [{"name": "train2"}]),
    data("output.splits[].name", "val", SPLITS),
    data("output.splits[].shards", 3, SPLITS),
    data("output.splits[].share", "2%", SHARES),
    address("rerunToken", "2"),
    running("maxQuarantined", 5),
    running("maxCorruptFiles", "1%"),
    running("rangeBytes", "1Mi"),
    running("workers.replicas", 7),
    running("workers.minReplicas", 1),
    running("workers.tpu.accelerator", "tpu-v6e-slice", TPU),
    running("workers.tpu.topology", "2x4", TPU),
    running("workers.tpu.chipsPerHost", 8, TPU),
    running("workers.tpu.share", "HostCpu", TPU),
    running("workers.capacity", "Spot"),
    running("workers.reservationName", "s", RESERVED),
    *(
        flip
        for block in ("workers", "head")
        for flip in (
            running(f"{block}.resources.requests", {"cpu": 1}),
            running(f"{block}.resources.limits", {"cpu": 1}),
            running(f"{block}.nodeSelector", {"a": "b"}),
            running(f"{block}.tolerations", [{"key": "a", "operator": "Exists"}]),
            running(f"{block}.affinity", {"podAffinity": {}}),
            running(f"{block}.topologySpreadConstraints", [{"maxSkew": 1}]),
            running(f"{block}.schedulerName", "a"),
            running(f"{block}.runtimeClassName", "a"),
            running(f"{block}.priorityClassName", "a"),
        )
    ),
    running("env[].name", "B", with_spec({"env": [{"name": "A"}]})),
    running("env[].value", "1", with_spec({"env": [{"name": "A"}]})),
    *(
        running(
            f"env[].valueFrom.{kind}.{field}", value, with_spec({"env": [{"name": "A", "valueFrom": {kind: SECRET}}]})
        )
        for kind in ("secretKeyRef", "configMapKeyRef")
        for field, value in (("name", "b"), ("key", "b"), ("optional", True))
    ),
    *(
        running(
            f"env[].valueFrom.fieldRef.{field}",
            value,
            with_spec({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]}),
        )
        for field, value in (("fieldPath", "status.hostIP"), ("apiVersion", "v1"))
    ),
    *(
        running(f"envFrom[].{field}", value, with_spec({"envFrom": [{kind: {"name": "a"}}]}))
        for kind in ("secretRef", "configMapRef")
        for field, value in ((f"{kind}.name", "b"), (f"{kind}.optional", True), ("prefix", "P_"))
    ),
    running("image", "registry.example/other:1"),
    running("imagePullPolicy", "Always"),
    running("imagePullSecrets[].name", "b"),
    running("serviceAccountName", "other"),
    running("pods.labels", {"team": "a"}),
    running("pods.annotations", {"team": "a"}),
    running("pods.temporaryVolume.sizeLimit", "1Gi"),
    running("pods.volumes[].name", "w", with_spec({"pods": {"volumes": [{"name": "v", "emptyDir": {}}]}})),
    *(
        running(f"pods.volumeMounts[].{field}", value, with_volume("emptyDir", {}))
        for field, value in (("mountPath", "/w"), ("subPath", "a"), ("readOnly", True))
    ),
    *(
        running(f"pods.volumes[].{kind}", {"name": "b"}, with_volume(kind, {"name": "a"}))
        for kind in ("configMap", "secret", "emptyDir", "persistentVolumeClaim", "projected", "ephemeral", "csi")
    ),
    running("pods.volumes[].downwardAPI", {"items": []}, with_volume("downwardAPI", {})),
    running("suspend", True),
    running("backoffLimit", 0),
    running("infraRetryLimit", 0),
    running("activeDeadlineSeconds", 60),
    running("startupDeadlineSeconds", 60),
    running("stallTimeoutSeconds", 60),
    running("ttlSecondsAfterFinished", 60),
]


@pytest.mark.parametrize("flip", FLIPS, ids=lambda flip: flip.path)
def test_only_data_fields_change_keys(flip: Flip) -> None:
    before, after = load(flip.base), load(with_value(flip.path, flip.value, flip.base))
    assert before != after, "the row changes nothing"
    assert (run_key(before) != run_key(after)) is flip.run_key
    assert (data_key(canonical(before), FILES) != data_key(canonical(after), FILES)) is flip.data_key
    was, now = canonical(before), canonical(after)
    assert bool(describe_changes(was, now, asked_fields(before), asked_fields(after))) is flip.data_key
    assert bool(describe_changes(was, now, {}, asked_fields(after))) is flip.data_key


def test_every_field_has_a_row_in_the_table() -> None:
    rows = {flip.path for flip in FLIPS}
    leaves = {entry.path for entry in iter_fields(JobSpec) if entry.block is None}
    assert leaves - rows == {
        "output.formats",
        "pods.volumeMounts[].name",  # no other name than that of a volume
        "pods.volumes[].hostPath",  # refused
    }


def test_data_fields_are_data_in_the_table_too() -> None:
    for flip in FLIPS:
        is_data = flip.path.split(".")[0] in DATA_FIELDS or flip.path == "rerunToken"
        is_data = is_data and flip.path != ASSERTED
        assert flip.run_key is is_data, flip.path


def test_formats_are_part_of_both_keys() -> None:
    job = load(MINIMAL)
    assert normalise_data(job)["output.formats"] == ["Npy"]
    assert "'formats': ['Npy']" in str(canonical(job))


@pytest.mark.parametrize("path", sorted(DEFAULTS), ids=str)
def test_default_written_out_changes_no_key(path: str) -> None:
    written = load(with_spec({path: DEFAULTS[path]}))
    assert run_key(written) == run_key(load(MINIMAL))
    assert canonical(written) == canonical(load(MINIMAL))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"documents": {"maxBytes": "2Mi"}}, {"documents": {"maxBytes": 2 * 2**20}}),
        ({"documents": {"maxBytes": "2Mi"}}, {"documents": {"maxBytes": "2048Ki"}}),
        ({"source": {"uris": ["/a/b"]}}, {"source": {"uris": ["file:///a/b"]}}),
        ({"source": {"uris": ["a/b"]}}, {"source": {"uris": [str(Path.cwd() / "a/b")]}}),
        ({"output": {"uri": "gs://a/b"}}, {"output": {"uri": "gs://a/b/"}}),
        (
            {"output": {"splits": [{"name": "a", "share": "0.50%"}, {"name": "b"}]}},
            {"output": {"splits": [{"name": "a", "share": "0.5%"}, {"name": "b", "share": None}]}},
        ),
        ({"tokenizer": {"delimiter": {}}}, {"tokenizer": {"delimiter": None}}),
        ({"tokenizer": {"delimiter": {}}}, {"tokenizer": {"delimiter": {"position": "Before"}}}),
        (delimiter(begin="<s>"), delimiter(token="<s>")),
        (delimiter(begin="<s>"), delimiter(token="<s>", position="Before")),
        (delimiter(end="</s>"), delimiter(token="</s>", position="After")),
        (
            {"source": {"uris": None, "groups": [GROUP | {"share": "100%"}]}},
            {"source": {"uris": None, "groups": [GROUP | {"uris": ["gs://corpus/code"]}]}},
        ),
        (
            {"source": {"uris": None, "groups": [GROUP | {"tokens": "10e9"}]}},
            {"source": {"uris": None, "groups": [GROUP | {"tokens": "10G"}]}},
        ),
    ],
    ids=[
        "quantity",
        "unit",
        "file-scheme",
        "relative",
        "slash",
        "share",
        "empty-block",
        "position",
        "begin",
        "begin-before",
        "end",
        "whole-group",
        "budget",
    ],
)
def test_two_ways_to_write_one_thing_have_one_key(one: Manifest, other: Manifest) -> None:
    first, second = load(with_spec(one)), load(with_spec(other))
    assert run_key(first) == run_key(second)
    assert data_key(canonical(first), FILES) == data_key(canonical(second), FILES)
    assert attempt_digest(first) == attempt_digest(second) or "delimiter" not in str(one)


def test_begin_and_end_are_data_of_their_own() -> None:
    pair = canonical(load(PAIR))
    assert pair["tokenizer"]["delimiter"] == {"begin": 3, "end": 4}  # type: ignore[index]
    turned = load(with_spec(delimiter(begin="</s>", end="<s>")))
    others = [load(with_spec(delimiter(begin="<s>"))), load(with_spec(delimiter(end="</s>"))), load(MINIMAL), turned]
    keys = {(run_key(job), data_key(canonical(job), FILES), attempt_digest(job)) for job in (load(PAIR), *others)}
    assert len({first for first, _, _ in keys}) == len({second for _, second, _ in keys}) == 5
    assert len({third for _, _, third in keys}) == 5
    assert run_key(load(PAIR)) == "95fad3dd07870f16cb2f6b0b08e43748d27ba78c6be3628ae85d066c1d717c32"
    assert data_key(pair, FILES) == "6a5e809780de488f44ad2c6dae5a698e1969f8be2cfa3ed5be69a4006a5d97d2"


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        (
            MINIMAL,
            PAIR,
            [
                "tokenizer.delimiter.begin: the job says <s>, the output has absent",
                "tokenizer.delimiter.end: the job says </s>, the output has absent",
            ],
        ),
        (
            with_spec(delimiter(token="<s>", position="After")),
            PAIR,
            [
                "tokenizer.delimiter.position: the job says absent, the output has After",
                "tokenizer.delimiter.begin: the job says <s>, the output has absent",
                "tokenizer.delimiter.end: the job says </s>, the output has absent",
                "tokenizer.delimiter.token: the job says absent, the output has <s>",
            ],
        ),
        (
            PAIR,
            with_spec(delimiter(begin="<s>", end="<eot>")),
            ["tokenizer.delimiter.end: the job says <eot>, the output has </s>"],
        ),
        (
            PAIR,
            with_spec(delimiter(begin="<s>")),
            ["tokenizer.delimiter.end: the job says absent, the output has </s>"],
        ),
        (
            with_spec(delimiter(token="<bos>")),
            with_spec(delimiter(begin="<s>")),
            [
                "tokenizer.delimiter.begin: the job says <s>, the output has absent",
                "tokenizer.delimiter.token: the job says absent, the output has <bos>",
            ],
        ),
    ],
    ids=["default", "after", "end", "begin-of-two", "begin-alone"],
)
def test_a_message_names_the_delimiters_that_changed(was: Manifest, now: Manifest, expected: list[str]) -> None:
    old, new = load(was), load(now)
    assert describe_changes(canonical(old), canonical(new), asked_fields(old), asked_fields(new)) == expected


def test_a_message_of_an_output_without_asked_fields_names_ids() -> None:
    old, new = load(MINIMAL), load(PAIR)
    assert describe_changes(canonical(old), canonical(new), {}, asked_fields(new)) == [
        "tokenizer.delimiter.begin: the job says the token with id 3, the output has absent",
        "tokenizer.delimiter.end: the job says the token with id 4, the output has absent",
    ]


def test_frozen_defaults_equal_the_defaults_of_today() -> None:
    written = {"source.uris", "tokenizer.name", "output.uri", "output.sequence.length"}
    today = {path: value for path, value in normalise_data(load(ROWS)).items() if path not in written}
    assert today == FROZEN_DEFAULTS


def test_no_default_is_part_of_what_an_attempt_was_made_of() -> None:
    """The API server writes them out in one version, and another version reads them: failed jobs would start again."""
    job = load(MINIMAL)
    written = {
        "source.uris": job.spec.source.uris,
        "tokenizer.name": job.spec.tokenizer.name,
        "output.uri": job.spec.output.uri,
    }
    payload = json.dumps(written, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(f"tokenization.dev/attemptKey/{KEY_VERSION}\n{payload}".encode()).hexdigest()
    assert attempt_digest(job) == digest
    dumped = job.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert attempt_digest(load(with_spec(dumped))) == digest
    assert attempt_digest(load(with_spec({"backoffLimit": 4}))) != digest


def test_golden_keys() -> None:
    assert KEY_VERSION == 1
    job = load(MINIMAL)
    assert run_key(job) == "a3bd735354ac81908aeabfc4f85284c86017aa5d423279e1263feb1fa0c83293"
    everything = load(
        with_spec(
            {
                "source": {"uris": ["gs://c/a", "s3://c/ü"], "format": "Text", "documentSeparator": "<|e|>"},
                "documents": {"maxBytes": "1Mi"},
                "output": {"uri": "gs://o/{rerunToken}", "dtype": "UInt32"}
                | {"splits": [{"name": "test", "share": "0.5%"}, {"name": "train"}], "shards": {"tokens": 4096}},
                "tokenizer": {"delimiter": {"token": "<|endoftext|>", "position": "After"}},
                "rerunToken": "7",
            }
        )
    )
    assert run_key(everything) == "1e90f8ae9a56b690d6400ae8d65c4dee3c9f63ab6f257acd41383942d8ef765d"
    known = canonical_data(
        resolve_data(job), tokenizer_fingerprint="f" * 64, delimiters=Delimiters(100257, None), dtype=DType.UINT32
    )
    key = data_key(known, FILES)
    assert key == "c8f63a938910eee7921063292419fea5b8523ae3c106e1feedd4b0de1e4f4753"
    assert plan_id(key, b"\x00\x01") == "b958eac92762bd5a70f6b7a0bf2e4838fe1d9b8834d91d9fe1683a2feac34b9e"


def test_golden_keys_of_a_shuffle() -> None:
    """They came with version 0.3.0."""
    shuffled = load(with_spec({"output": {"shuffle": {"seed": 5}}}))
    assert run_key(shuffled) == "8900f02fd12534087f85e8172b355f1fdc4017369ee0caf0fe26b04cfed0f826"
    known = canonical_data(
        resolve_data(shuffled), tokenizer_fingerprint="f" * 64, delimiters=Delimiters(100257, None), dtype=DType.UINT32
    )
    assert known["output"]["shuffle"] == {"seed": 5, "unit": "Document"}  # type: ignore[index]
    assert run_key(load(with_spec({"output": {"shuffle": {"seed": 5, "unit": "Document"}}}))) == run_key(shuffled)
    assert data_key(known, FILES) == "6321ef7dd29300e2f2ae3d5fb9c299d065eb3565f69949724c223d7172aa4b4d"


def test_golden_keys_of_rows() -> None:
    """They came with version 0.3.0."""
    rows = load(with_spec({"output": {"sequence": {"length": 2049, "scope": "File", "pad": {"id": 7}}}}))
    assert run_key(rows) == "725b1d6e2b2dd11128d709353beeacfab52778da5ba62e366bd4583dc0bec5d1"
    known = canonical_data(
        resolve_data(rows),
        tokenizer_fingerprint="f" * 64,
        delimiters=Delimiters(100257, None),
        dtype=DType.UINT32,
        pad_id=7,
    )
    assert data_key(known, FILES) == "7eb4f0c1efe511c3c853ed799a323a049e595cfc18bc7ddb9e0dec4b1517998b"


@pytest.mark.parametrize(
    "files",
    [
        FILES[:1],
        FILES[::-1],
        [("gs://corpus/a.parquet", 11, "1"), FILES[1]],
        [("gs://corpus/a.parquet", 10, "2"), FILES[1]],
        [("gs://corpus/c.parquet", 10, "1"), FILES[1]],
        [],
    ],
    ids=["fewer", "order", "size", "version", "uri", "none"],
)
def test_every_file_is_part_of_the_data_key(files: list[tuple[str, int, str]]) -> None:
    known = canonical(load(MINIMAL))
    assert data_key(known, iter(files)) != data_key(known, iter(FILES))


def test_cut_is_part_of_the_plan_id() -> None:
    assert len({plan_id("a", b"1"), plan_id("a", b"2"), plan_id("b", b"1")}) == 3


def test_the_digest_of_a_field_stays_and_is_named_by_at_most_two_words() -> None:
    """An operator of another version compares it."""
    asked = {"workers": {"replicas": 2, "resources": {"requests": {"cpu": "8", "memory": "16Gi"}}}, "suspend": True}
    known = field_digests(load(MINIMAL))
    found = field_digests(load(with_spec(asked | {"env": [{"name": "A", "value": "b"}], "backoffLimit": 9})))
    changed = {name: digest for name, digest in found.items() if known.get(name) != digest}
    assert changed == {"env": "23b52992", "workers.replicas": "23acd258", "workers.resources": "730e6c5f"}
    assert known.keys() <= found.keys()


def test_removing_the_token_is_another_key_than_any_token() -> None:
    keys = {run_key(load(with_spec({"rerunToken": token}))) for token in (None, "1", "2")}
    assert len(keys) == 3


def test_no_delimiter_has_no_id_in_the_data() -> None:
    job = load(with_spec({"tokenizer": {"delimiter": {"position": "None"}}}))
    assert canonical(job)["tokenizer"] == canonical(job)["tokenizer"] | {"delimiter": {"id": None, "position": "None"}}  # type: ignore[operator]


def test_golden_keys_of_groups() -> None:
    web = {"name": "web", "uris": ["gs://c/w"], "share": "30%"}
    code = {"name": "code", "uris": ["gs://c/a", "gs://c/b"]}
    job = load(with_spec({"source": {"uris": None, "groups": [web, code]}}))
    assert run_key(job) == "0675b271649d4a4ea929af44cdcc1fe24f48a50ff40f1584be5560e817580461"
    known = canonical_data(
        resolve_data(job), tokenizer_fingerprint="f" * 64, delimiters=Delimiters(100257, None), dtype=DType.UINT32
    )
    files = [("gs://c/w/1", 10, "1", "web"), ("gs://c/a", 20, "2", "code")]
    assert data_key(known, files) == "820bae9f694114bdba7a21274b0c7bb4ffb0cd8bee4a577c7cd3aaf9bc810ecf"
    assert data_key(known, [files[0], (*files[1][:3], "web")]) != data_key(known, files)
