"""The identity of a job's output: runKey, dataKey, planId.

    runKey   what the user asked for: the data fields as written, normalised, and rerunToken. Known before
             anything is listed, so a job that was recreated ends at once.
    dataKey  what fixes the bytes: the data fields resolved, the tokenizer by its behaviour, and every source
             file. Decides whether an output belongs to this job.
    planId   dataKey and the cut into ranges; in every receipt.

Invariant: a key that was ever computed stays the same for the same job, in every later version. Hence
`FROZEN_DEFAULTS` is a table of its own: a default that changes in the models changes nobody's key, and
a field that a later version adds is absent from keys while it has the value it was born with. A change
that cannot keep this raises `KEY_VERSION`. All keys are 64 lower-case hexadecimal characters of
SHA-256; they stand in file names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from tokenization_worker.api.data import DataSpec, Delimiters, DType, LongDocuments, OutputSpec, SourceSpec
from tokenization_worker.api.groups import Group
from tokenization_worker.api.job import DATA_FIELDS, TokenizationJob
from tokenization_worker.api.resolve import resolve_output_uri, resolve_uri
from tokenization_worker.api.types.quantities import parse_percentage, parse_quantity

KEY_VERSION = 1

FROZEN_DEFAULTS: dict[str, object] = {
    "source.format": "Auto",
    "source.textField": "text",
    "source.idField": "id",
    "documents.maxBytes": 67_108_864,
    "tokenizer.delimiter.position": "Before",
    "output.formats": ["Npy"],
    "output.dtype": "Auto",
    "output.shards.tokens": 100_000_000,
    "output.sequence.packing": "Concat",
    "output.sequence.longDocuments": "Split",
    "output.sequence.scope": "Stream",
    "output.path": "{split}/{split}_{index:06d}",
    "output.splits": [{"name": "train"}],
}
FROZEN_ATTEMPT_DEFAULTS: dict[str, object] = {
    **FROZEN_DEFAULTS,
    "documents.maxBytes": "64Mi",
    "maxQuarantined": "0.1%",
    "maxCorruptFiles": 0,
    "rangeBytes": "256Mi",
    "workers.replicas": 1,
    "workers.capacity": "Any",
    "workers.tpu.share": "Exclusive",
    "env": [],
    "envFrom": [],
    "backoffLimit": 3,
    "infraRetryLimit": 10,
    "startupDeadlineSeconds": 3600,
    "stallTimeoutSeconds": 1800,
}
_NOT_FOR_ATTEMPTS = ("rerun_token", "suspend", "ttl_seconds_after_finished")
LIMITS = (
    "activeDeadlineSeconds",
    "backoffLimit",
    "infraRetryLimit",
    "stallTimeoutSeconds",
    "startupDeadlineSeconds",
    "workers.minReplicas",
)
"""What only the operator reads, and at once. Frozen: another list would begin attempts anew at an upgrade."""
_DELIMITER = "tokenizer.delimiter"
ASSERTED = "tokenizer.fingerprint"
"""What a job only asserts: it is in no key."""
_WHOLE_VALUES = ("tokenizer.specialTokens",)  # a map whose keys are not field names


def run_key(job: TokenizationJob) -> str:
    """Return the digest of what the user asked for."""
    asked: dict[str, object] = {
        path: value for path, value in normalise_data(job).items() if FROZEN_DEFAULTS.get(path) != value
    }
    if job.spec.rerun_token is not None:
        asked["rerunToken"] = job.spec.rerun_token
    return _digest("run", _canonical_json(asked))


def attempt_digest(job: TokenizationJob) -> str:
    """Return the digest of all that matters for an attempt: a failed job goes on when it changes, and no later version
    of the operator may take it for changed.
    """
    return _digest("attempt", _canonical_json(_fields_of_attempt(job)))


def pods_digest(job: TokenizationJob) -> str:
    """Return the digest of the fields that an attempt's Pods are made of, or read: of those of `attempt_digest`, all
    but the limits that only the operator looks at, which take effect at once.
    """
    return _digest("pods", _canonical_json(_fields_of_pods(job)))


def field_digests(job: TokenizationJob) -> dict[str, str]:
    """Return a short digest of each field of `pods_digest` that has not its default, by its name: `env`,
    `workers.resources`.
    """
    fields: dict[str, dict[str, object]] = {}
    for path, value in _fields_of_pods(job).items():
        fields.setdefault(".".join(path.split(".")[:2]), {})[path] = value
    return {name: _digest("field", _canonical_json(value))[:8] for name, value in fields.items()}


def _fields_of_pods(job: TokenizationJob) -> dict[str, object]:
    return {path: value for path, value in _fields_of_attempt(job).items() if path not in LIMITS}


def _fields_of_attempt(job: TokenizationJob) -> dict[str, object]:
    """Those that matter for an attempt and have not their default, by dotted path."""
    spec = job.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=set(_NOT_FOR_ATTEMPTS))
    flat: dict[str, object] = {}
    for name, value in spec.items():
        flatten(name, value, flat)
    _normalise_delimiter(flat)
    return {path: value for path, value in flat.items() if FROZEN_ATTEMPT_DEFAULTS.get(path) != value}


def normalise_data(job: TokenizationJob) -> dict[str, object]:
    """Return the data fields by dotted path: quantities and shares as numbers, local paths absolute,
    nulls absent.
    """
    dumped = job.spec.model_dump(mode="json", by_alias=True, exclude_none=True, include=set(DATA_FIELDS))
    flat: dict[str, object] = {}
    for name in DATA_FIELDS:
        flatten(name, dumped[name], flat)
    flat.pop(ASSERTED, None)
    _normalise_delimiter(flat)
    flat["documents.maxBytes"] = parse_quantity(job.spec.documents.max_bytes)
    if job.spec.source.uris is not None:
        flat["source.uris"] = [resolve_uri(uri) for uri in job.spec.source.uris]
    if job.spec.source.groups is not None:
        flat["source.groups"] = [_normalise_group(group) for group in job.spec.source.groups]
    flat["output.uri"] = resolve_output_uri(job.spec.output.uri, job.spec.rerun_token)
    flat["output.splits"] = [
        split.model_dump(mode="json", by_alias=True, exclude_none=True)
        | ({"share": str(parse_percentage(split.share))} if split.share is not None else {})
        for split in job.spec.output.splits
    ]
    shuffle = job.spec.output.shuffle
    if shuffle is not None:
        flat["output.shuffle.unit"] = shuffle.unit_of(has_rows=job.spec.output.sequence is not None).value
    if job.spec.tokenizer.uri is not None:
        flat["tokenizer.uri"] = resolve_uri(job.spec.tokenizer.uri)
    return flat


def _normalise_delimiter(flat: dict[str, object]) -> None:
    """Put the one delimiter of a job under `token` and `position`, however it was written."""
    begin, end = flat.get(f"{_DELIMITER}.begin"), flat.get(f"{_DELIMITER}.end")
    if begin is not None and end is not None:
        return
    for name, token, position in (("begin", begin, "Before"), ("end", end, "After")):
        if token is not None:
            del flat[f"{_DELIMITER}.{name}"]
            flat |= {f"{_DELIMITER}.token": token, f"{_DELIMITER}.position": position}
    flat.setdefault(f"{_DELIMITER}.position", "Before")


def _normalise_group(group: Group) -> dict[str, object]:
    """A group whose `share` is left out is one of 100%."""
    share = None if group.share is None else parse_percentage(group.share)
    return {
        "name": group.name,
        "uris": [resolve_uri(uri) for uri in group.uris],
        **({} if share is None or share == 1 else {"share": str(share)}),
        **({} if group.tokens is None else {"tokens": group.tokens}),
    }


def canonical_data(
    data: DataSpec,
    *,
    tokenizer_fingerprint: str,
    delimiters: Delimiters,
    dtype: DType,
    pad_id: int | None = None,
    writers: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Return every data field that shapes bytes, resolved, as the index holds it; plain JSON values.

    The tokenizer is its fingerprint and a delimiter its id: a name is only a way to find them. Source
    patterns are absent because the files themselves are part of the dataKey. `dtype` is the one
    written, never Auto; `pad_id` fills rows, where there are rows. `writers`: of the formats whose bytes a library
    decides, the fingerprint of what it writes here. A field that a later version adds goes in only where it has not the
    value it was born with.
    """
    return {
        "source": canonical_source(data.source),
        "documents": {"maxBytes": data.max_document_bytes},
        "tokenizer": {
            "fingerprint": tokenizer_fingerprint,
            "delimiter": delimiters.to_json(),
        },
        "output": {
            "formats": [output_format.value for output_format in data.output.formats],
            "dtype": dtype.value,
            **_canonical_rows(data.output, pad_id),
            **_canonical_shuffle(data.output),
            **({"writers": dict(writers)} if writers else {}),
            "path": data.output.path,
            "splits": [
                {
                    "name": split.name,
                    "shards": split.shards,
                    "share": None if split.share is None else str(split.share),
                }
                for split in data.output.splits
            ],
        },
    }


def canonical_source(source: SourceSpec) -> dict[str, object]:
    """Return how documents are read, and what is taken of which group."""
    return {
        "format": source.format.value,
        "textField": source.text_field,
        "idField": source.id_field,
        "documentSeparator": source.document_separator,
        **_canonical_groups(source),
    }


def _canonical_groups(source: SourceSpec) -> dict[str, object]:
    """Names, order and shares of groups, and what was asked for in place of a share."""
    groups = [
        {
            "name": group.name,
            "share": None if group.share is None else str(group.share),
            **({} if group.tokens is None else {"tokens": group.tokens}),
        }
        for group in source.groups
    ]
    return {"groups": groups} if groups else {}


def _canonical_rows(output: OutputSpec, pad_id: int | None) -> dict[str, object]:
    """The size of shards: in tokens, or in rows with what these are."""
    sequence = output.sequence
    if sequence is None:
        return {"shards": {"tokens": output.shard_tokens}}
    return {
        "shards": {"sequences": output.shard_tokens // sequence.length},
        "sequence": {
            "length": sequence.length,
            "packing": sequence.packing.value,
            "scope": sequence.scope.value,
            "pad": pad_id,
            **({} if sequence.max_documents is None else {"maxDocuments": sequence.max_documents}),
            **(
                {}
                if sequence.long_documents is LongDocuments.SPLIT
                else {"longDocuments": sequence.long_documents.value}
            ),
        },
    }


def _canonical_shuffle(output: OutputSpec) -> dict[str, object]:
    """What is shuffled, and the seed; nothing where the source's order stays."""
    shuffle = output.shuffle
    return {} if shuffle is None else {"shuffle": {"seed": shuffle.seed, "unit": shuffle.unit.value}}


def data_key(canonical: dict[str, object], files: Iterable[tuple[str, int, str] | tuple[str, int, str, str]]) -> str:
    """Return the digest of what fixes the bytes; `files` are (uri, size in bytes, version, group) in plan
    order, streamed. The group is "" or absent where there are none.
    """
    digest = _new_digest("data")
    digest.update(_canonical_json(canonical))
    for uri, size, version, *group in files:
        digest.update(b"\n" + _canonical_json([uri, size, version, *filter(None, group)]))
    return digest.hexdigest()


def plan_id(data_key: str, cut_digest: bytes) -> str:
    """Return the digest of a dataKey and a cut into ranges (any digest of the cut, as bytes)."""
    return _digest("plan", _canonical_json([data_key, cut_digest.hex()]))


def key_of(kind: str, asked: Mapping[str, object]) -> str:
    """Return the digest of what was asked for, of a kind of key: plain JSON values."""
    return _digest(kind, _canonical_json(asked))


def flatten(path: str, value: object, into: dict[str, object]) -> None:
    """Put every value below a field into `into`, by its dotted path; a list is one value."""
    if isinstance(value, dict) and path not in _WHOLE_VALUES:
        for name, item in value.items():
            flatten(f"{path}.{name}", item, into)
    else:
        into[path] = value


def _canonical_json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _new_digest(kind: str) -> hashlib._Hash:
    return hashlib.sha256(f"tokenization.dev/{kind}Key/{KEY_VERSION}\n".encode())


def _digest(kind: str, payload: bytes) -> str:
    digest = _new_digest(kind)
    digest.update(payload)
    return digest.hexdigest()
