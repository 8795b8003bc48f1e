"""Manifests that the API tests share, as plain dictionaries."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

from tokenization_worker.api.data import DataSpec, Delimiters, DType
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.keys import canonical_data
from tokenization_worker.api.resolve import resolve_data

Manifest = dict[str, Any]

MINIMAL: Manifest = {
    "apiVersion": "tokenization.dev/v1alpha1",
    "kind": "TokenizationJob",
    "metadata": {"name": "fineweb-edu"},
    "spec": {
        "source": {"uris": ["gs://corpus/fineweb-edu/*.parquet"]},
        "tokenizer": {"name": "cl100k_base"},
        "output": {"uri": "gs://tokens/fineweb-edu"},
    },
}

DEFAULTS: Manifest = {
    "source": {"format": "Auto", "textField": "text", "idField": "id"},
    "documents": {"maxBytes": "64Mi"},
    "tokenizer": {"delimiter": {}},
    "output": {
        "formats": ["Npy"],
        "dtype": "Auto",
        "shards": {"tokens": 100_000_000},
        "path": "{split}/{split}_{index:06d}",
        "splits": [{"name": "train"}],
    },
    "maxQuarantined": "0.1%",
    "maxCorruptFiles": 0,
    "rangeBytes": "256Mi",
    "workers": {"replicas": 1, "capacity": "Any", "resources": {}},
    "head": {"resources": {}},
    "env": [],
    "envFrom": [],
    "suspend": False,
    "backoffLimit": 3,
    "infraRetryLimit": 10,
    "startupDeadlineSeconds": 3600,
    "stallTimeoutSeconds": 1800,
}


def with_spec(patch: Manifest, base: Manifest = MINIMAL) -> Manifest:
    """Return `base` with the fields of `patch` merged into its spec (lists replaced, None kept)."""
    merged = copy.deepcopy(base)
    _merge(merged["spec"], copy.deepcopy(patch))
    return merged


def with_value(path: str, value: object, base: Manifest = MINIMAL) -> Manifest:
    """Return `base` with the field at `path` (from the spec; `[]` is the first item of a list) set to `value`."""
    merged = copy.deepcopy(base)
    place: Any = merged["spec"]
    *parents, last = path.split(".")
    for part in parents:
        name = part.removesuffix("[]")
        place = place.setdefault(name, [{}] if part.endswith("[]") else {})
        if part.endswith("[]"):
            place = place[0]
    place[last] = copy.deepcopy(value)
    return merged


def _merge(into: Manifest, patch: Manifest) -> None:
    for name, value in patch.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = value


def load(manifest: Manifest) -> TokenizationJob:
    return TokenizationJob.from_object(manifest)


def canonical(job: TokenizationJob) -> dict[str, object]:
    """Canonical data with a stand-in for the tokenizer: its behaviour is its name, pattern and special tokens."""
    data: DataSpec = resolve_data(job)
    spec, sequence = data.tokenizer, data.output.sequence
    ids = [0 if token is None else len(token) for token in (spec.delimiter_token, spec.end_token)]
    behaviour = repr((spec.name, spec.pattern, spec.special_tokens))
    return canonical_data(
        data,
        tokenizer_fingerprint=hashlib.sha256(behaviour.encode()).hexdigest(),
        delimiters=Delimiters.at(spec.delimiter_position, ids[0]) if spec.end_token is None else Delimiters(*ids),
        dtype=DType.UINT32 if data.output.dtype is DType.AUTO else data.output.dtype,
        pad_id=None if sequence is None else sequence.pad_id or len(sequence.pad_token or ""),
    )
