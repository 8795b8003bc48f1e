"""The group, version and metadata of every object of this API."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import ConfigDict, Field

from tokenization_worker.api.types.model import Rule, SpecBlock

API_GROUP: Final = "tokenization.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "tokenization.dev/v1alpha1"

NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
NAME_WORDS = (
    "write a name of at most 36 lower-case letters, digits and -, beginning with a letter, ending with a "
    "letter or digit, such as fineweb-edu"
)


class ObjectMeta(SpecBlock):
    """The metadata of a Kubernetes object, as far as it is read here; Kubernetes checks the rest."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(description="The name of the object, unique in its namespace.")
    namespace: str | None = None
    uid: str | None = None
    generation: int | None = None
    resource_version: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = Field(default={})
    annotations: dict[str, str] = Field(default={})


class JobMeta(ObjectMeta):
    """The metadata of a job: names of its runs and attempts begin with its name, and KubeRay allows 47 letters."""

    name: Annotated[
        str,
        Rule(NAME_WORDS, cel=None, holds=lambda name: len(name) <= 36 and bool(re.fullmatch(NAME_PATTERN, name))),
    ] = Field(description="The name of the job, unique in its namespace.", examples=["fineweb-edu"])
