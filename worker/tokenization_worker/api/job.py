"""The TokenizationJob: its spec, and how a manifest becomes one.

Owns the root of the manifest and the rules that span blocks. `DATA_FIELDS` names the fields that, with
the contents of the source, fix every output byte; all others say how a run is executed, `OPERATOR_FIELDS` on a
cluster. `resolve.py` turns the first into the frozen values that the worker uses.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Never

import yaml
from pydantic import Field, StringConstraints

from tokenization_worker.api.groups import PATH_RULES
from tokenization_worker.api.manifest.keywords import Text, manifest_of
from tokenization_worker.api.manifest.load import KEYWORDS, load_manifest, validate_manifest
from tokenization_worker.api.metadata import NAME_PATTERN, NAME_WORDS, JobMeta
from tokenization_worker.api.output import RERUN_PLACEHOLDER, Output
from tokenization_worker.api.pod.extras import Pods
from tokenization_worker.api.pod.template import EnvFromSource, EnvVar, ImagePullSecret
from tokenization_worker.api.source import Documents, Source
from tokenization_worker.api.status import JobStatus
from tokenization_worker.api.tokenizer import Delimiter, JobTokenizer, Tokenizer
from tokenization_worker.api.types.fields import Count, Flag, LimitValue, PositiveCount, Quantity
from tokenization_worker.api.types.kubernetes_names import DnsName, Image
from tokenization_worker.api.types.model import Rule, SpecBlock
from tokenization_worker.api.workers import Head, Workers
from tokenization_worker.errors import SpecError
from tokenization_worker.messages.counts import counted

WORKER_ACCOUNT: Final = "tokenization-worker"
"""The ServiceAccount of jobs' Pods, where neither the job nor the operator names another one."""
DATA_FIELDS = ("source", "documents", "tokenizer", "output")
OPERATOR_FIELDS = (
    "workers",
    "head",
    "pods",
    "env",
    "env_from",
    "image",
    "image_pull_policy",
    "image_pull_secrets",
    "service_account_name",
    "suspend",
    "backoff_limit",
    "infra_retry_limit",
    "active_deadline_seconds",
    "startup_deadline_seconds",
    "stall_timeout_seconds",
    "ttl_seconds_after_finished",
)
"""Fields of a spec, by their names here, that mean nothing to a run on one machine."""

_SAFE_TOKEN = r"^[A-Za-z0-9][A-Za-z0-9._:+-]*$"

_PLANNED = "has(oldSelf.status) && has(oldSelf.status.plan)"


def _same(block: str, fields: Iterable[str]) -> str:
    """In CEL: whether these fields of a block of `spec`, which may be absent, are as they were."""
    places = [(f"self.spec.{block}.{name}", f"oldSelf.spec.{block}.{name}") for name in fields]
    return " && ".join(f"(has({now}) ? has({was}) && {now} == {was} : !has({was}))" for now, was in places)


def _field_names(model: type[SpecBlock], *, but: str) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items() if name != but]


_POSITIONS = [
    f"(has({place}) ? {place} : 'Before')"
    for place in ("self.spec.tokenizer.delimiter.position", "oldSelf.spec.tokenizer.delimiter.position")
]
_SAME_TOKENIZER = " && ".join(
    (
        _same("tokenizer", _field_names(Tokenizer, but="delimiter")),
        _same("tokenizer.delimiter", _field_names(Delimiter, but="position")),
        " == ".join(_POSITIONS),
    )
)
"""Version 0.2 stored the default position in every job: a manifest without it is the same data."""
_SAME_DATA = " && ".join(
    _SAME_TOKENIZER if name == "tokenizer" else f"self.spec.{name} == oldSelf.spec.{name}" for name in DATA_FIELDS
)
_NEW_TOKEN = (
    "has(self.spec.rerunToken) && (!has(oldSelf.spec.rerunToken) || self.spec.rerunToken != oldSelf.spec.rerunToken)"
)
_NEW_PLACE = f"self.spec.output.uri != oldSelf.spec.output.uri || self.spec.output.uri.contains('{RERUN_PLACEHOLDER}')"


class PullPolicy(StrEnum):
    """When a node pulls the image."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class JobSpec(SpecBlock):
    """What to tokenize and how to run it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            'output.uri holds {rerunToken}, which is not set: add rerunToken: "1", or take {rerunToken} out '
            "of output.uri",
            cel=f"!self.output.uri.contains('{RERUN_PLACEHOLDER}') || has(self.rerunToken)",
            holds=lambda s: RERUN_PLACEHOLDER not in s.output.uri or s.rerun_token is not None,
            field="rerunToken",
        ),
        Rule(
            "rerunToken becomes a part of output.uri: write letters, digits, . _ : + - only, beginning with "
            "a letter or digit",
            cel=f"!self.output.uri.contains('{RERUN_PLACEHOLDER}') || !has(self.rerunToken) || "
            f"self.rerunToken.matches(r'{_SAFE_TOKEN}')",
            holds=lambda s: (
                RERUN_PLACEHOLDER not in s.output.uri
                or s.rerun_token is None
                or bool(re.fullmatch(_SAFE_TOKEN, s.rerun_token))
            ),
            field="rerunToken",
        ),
        *PATH_RULES,
    )

    source: Source = Field(description="The text: where it is, and the layout of its records.")
    documents: Documents = Field(default=Documents(), description="Which documents are usable.")
    tokenizer: JobTokenizer = Field(description="The tokenizer: by name, or as a file.")
    output: Output = Field(description="The dataset: where to write it, and its layout.")

    max_quarantined: LimitValue = Field(
        default="0.1%",
        description=(
            "How many documents may be unusable: a count, or a percentage of the documents read and of their bytes "
            "(both rounded down, checked at the end). After QuarantineExceeded, a higher value resumes the run."
        ),
        examples=[100],
    )
    max_corrupt_files: LimitValue = Field(
        default=0,
        description=(
            "How many corrupt files may be left out: a count, or a percentage of the files. After a corrupt file "
            "failed a run, a higher value resumes it."
        ),
        examples=["1%"],
    )
    range_bytes: Quantity = Field(
        default="256Mi",
        description=(
            "The stored bytes of one range, the unit of work and retry. A gzip or zstd file has at most 32 ranges; "
            "a range of a Parquet file has at least one row group. "
            "It does not change the output."
        ),
        examples=["64Mi"],
    )
    workers: Workers = Field(default=Workers(), description="The worker Pods. `tokjob run` ignores it.")
    head: Head = Field(
        default=Head(), description="The Pod of the driver, which leads the run. `tokjob run` ignores it."
    )
    pods: Pods | None = Field(
        default=None,
        description="Labels, annotations and volumes of all Pods of the job. `tokjob run` ignores it.",
        examples=[{"labels": {"cost-center": "research"}}],
    )
    env: Annotated[list[EnvVar], Field(max_length=128)] = Field(
        default=[],
        description="Environment variables of all Pods of the job.",
        examples=[[{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "huggingface", "key": "token"}}}]],
    )
    env_from: Annotated[list[EnvFromSource], Field(max_length=32)] = Field(
        default=[],
        description="Secrets and ConfigMaps whose keys become environment variables.",
        examples=[[{"secretRef": {"name": "huggingface"}}]],
    )
    image: Image | None = Field(
        default=None,
        description=(
            "The worker image. Default: the chart's. It is pinned when a run starts; a change applies to the"
            " next attempt."
        ),
        examples=["registry.example/tokenization-worker:1.2.0"],
    )
    image_pull_policy: PullPolicy | None = Field(
        default=None,
        description="When a node pulls the image. Default: the chart's.",
        examples=["IfNotPresent"],
    )
    image_pull_secrets: Annotated[list[ImagePullSecret], Field(max_length=16)] | None = Field(
        default=None,
        description="The Secrets for pulling the image. Default: the chart's.",
        examples=[[{"name": "registry"}]],
    )
    service_account_name: DnsName | None = Field(
        default=None,
        description=(
            "The ServiceAccount of all Pods, which may read the source and write the output. Default: the chart's."
        ),
        examples=["tokenization-worker"],
    )
    suspend: Flag = Field(
        default=False,
        description=(
            "Stop the job, and keep finished work. A new job is planned, shows files, tokens, time and cost, and waits."
        ),
        examples=[True],
    )
    rerun_token: (
        Annotated[
            str,
            StringConstraints(min_length=1, max_length=128),
            Rule(
                "write quoted text in one line",
                cel=r"!self.matches(r'[\x00-\x1f\x7f]')",
                holds=lambda token: not re.search(r"[\x00-\x1f\x7f]", token),
            ),
        ]
        | None
    ) = Field(
        default=None,
        description=(
            "Any new value (quoted text) starts a new run: it lists the source again, then verifies or rebuilds the "
            "output. Removing it starts nothing."
        ),
        examples=["2026-11-21"],
    )
    backoff_limit: Count = Field(
        default=3,
        description="How many application failures in a row, without progress between them, end the run.",
        examples=[0],
    )
    infra_retry_limit: Count = Field(
        default=10,
        description="How many other failures (lost machines, deadlines, a stall) end the run.",
        examples=[50],
    )
    active_deadline_seconds: PositiveCount | None = Field(
        default=None,
        description="The longest time of a run, in seconds, from its start, its admission by a queue, or the end of a "
        "suspension. Absent: no limit.",
        examples=[86400],
    )
    startup_deadline_seconds: PositiveCount = Field(
        default=3600,
        description=(
            "How long an attempt waits for its Pods, in seconds. Then the operator retries, with fewer if "
            "workers.minReplicas allows it."
        ),
        examples=[7200],
    )
    stall_timeout_seconds: PositiveCount = Field(
        default=1800,
        description="The operator restarts an attempt that finishes no range for this many seconds.",
        examples=[600],
    )
    ttl_seconds_after_finished: Count | None = Field(
        default=None,
        description=(
            "Delete the job this many seconds after it finished; outputs stay. Absent: never. Ignored for "
            "jobs that Argo CD, Flux or Helm manage."
        ),
        examples=[604800],
    )


def fields_for_operator(spec: JobSpec) -> list[str]:
    """The fields, as a manifest names them, that are not at their defaults and that a run on one machine ignores."""
    fields = JobSpec.model_fields
    changed = [name for name in OPERATOR_FIELDS if getattr(spec, name) != fields[name].default]
    return [fields[name].alias or name for name in changed]


class TokenizationJob(SpecBlock):
    """A text corpus and the token shards to make from it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        # The schema of metadata is Kubernetes' own: CEL checks a name from the root, Python at the name.
        Rule(
            NAME_WORDS,
            cel=f"self.metadata.name.size() <= 36 && self.metadata.name.matches(r'{NAME_PATTERN}')",
            holds=None,
        ),
        Rule(
            "this job is planned: source, documents, tokenizer and output change only together with a new "
            "rerunToken (quoted text) and a new output.uri, or one that holds {rerunToken}. Change all of it"
            " in one step, or make a new job",
            cel=f"!({_PLANNED}) || ({_SAME_DATA}) || (({_NEW_TOKEN}) && ({_NEW_PLACE}))",
            holds=None,
        ),
    )

    api_version: Literal["tokenization.dev/v1alpha1"]
    kind: Literal["TokenizationJob"]
    metadata: JobMeta
    spec: JobSpec = Field(description="What to tokenize and how to run it.")
    status: JobStatus | None = Field(default=None, description="What the operator reports; not written by users.")

    @classmethod
    def from_yaml(cls, path_or_text: str | Path) -> TokenizationJob:
        """Read a manifest from a file, or from text that holds a line break or a colon and a space.

        Raises SpecError with every mistake in the manifest, each with the path of its field.
        """
        return load_manifest(cls, path_or_text)

    @classmethod
    def from_object(
        cls, manifest: dict[str, Any], *, origin: str = "the manifest", is_stored: bool = False
    ) -> TokenizationJob:
        """Read a manifest that is already a dictionary; raises like `from_yaml`. `origin` names it in
        messages; `is_stored`: the API server has accepted it, perhaps under an earlier version's rules.
        """
        if isinstance(manifest, str | os.PathLike):
            raise SpecError(
                "SpecInvalid",
                f"from_object takes the dictionary of a manifest, found {type(manifest).__name__}",
                next_step="for a path or a text, use TokenizationJob.from_yaml(...)",
            )
        return validate_manifest(cls, manifest, origin=origin, is_stored=is_stored)

    @classmethod
    def of(
        cls,
        *positional: Never,
        source: Text | Sequence[Text] | Mapping[str, Any] | None = None,
        tokenizer: Text | Mapping[str, Any] | None = None,
        output: Text | Mapping[str, Any] | None = None,
        name: str = "laptop",
        **fields: Any,
    ) -> TokenizationJob:
        """A job from keywords: the fields of `spec` by their names in a manifest, as values, blocks, or dotted paths.

        `source` may be a pattern or a list of them, `tokenizer` a name or a file, `output` a URI; each may be its
        block. Raises as `from_yaml` does.
        """
        if positional:
            raise SpecError(
                "SpecInvalid",
                f"{KEYWORDS} takes keyword arguments only, found {counted(len(positional), 'value')} without a keyword",
                next_step="write TokenizationJob.of(source=..., tokenizer=..., output=...)",
            )
        given = {"source": source, "tokenizer": tokenizer, "output": output}
        fields |= {path: value for path, value in given.items() if value is not None}
        return validate_manifest(cls, manifest_of(name, fields, origin=KEYWORDS), origin=KEYWORDS)

    def to_yaml(self) -> str:
        """Return the manifest as it was written, without what is only a default."""
        return yaml.safe_dump(self.to_manifest(), sort_keys=False, allow_unicode=True)
