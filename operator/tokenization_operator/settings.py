"""What the chart tells the operator, from its environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class SettingsInvalid(Exception):
    """A setting that the operator cannot work with; the message names it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`namespaces`: those that are watched; none means all of them. Times in seconds."""

    image: str
    ray_version: str
    namespaces: tuple[str, ...] = ()
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    service_account: str = "tokenization-worker"
    low_priority_class: str = ""
    price_per_chip_hour: float | None = None
    currency: str = "USD"
    plan_deadline_s: int = 3600
    resync_s: float = 30.0
    retry_delay_s: float = 10.0
    retry_delay_max_s: float = 600.0
    commit_grace_s: float = 60.0
    pod_resources: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read `TOKENIZATION_*`; raises `SettingsInvalid`."""
        return cls(
            image=_required(environment, "TOKENIZATION_WORKER_IMAGE"),
            ray_version=_required(environment, "TOKENIZATION_RAY_VERSION"),
            namespaces=_words(environment, "TOKENIZATION_NAMESPACES"),
            image_pull_policy=environment.get("TOKENIZATION_IMAGE_PULL_POLICY") or "IfNotPresent",
            image_pull_secrets=_words(environment, "TOKENIZATION_IMAGE_PULL_SECRETS"),
            service_account=environment.get("TOKENIZATION_SERVICE_ACCOUNT") or "tokenization-worker",
            price_per_chip_hour=_number(environment, "TOKENIZATION_PRICE_PER_CHIP_HOUR"),
            currency=environment.get("TOKENIZATION_CURRENCY") or "USD",
            plan_deadline_s=int(_number(environment, "TOKENIZATION_PLAN_DEADLINE_SECONDS") or 3600),
            resync_s=_number(environment, "TOKENIZATION_RESYNC_SECONDS") or 30.0,
            retry_delay_s=_number(environment, "TOKENIZATION_RETRY_DELAY_SECONDS") or 10.0,
            pod_resources=_object(environment, "TOKENIZATION_PLAN_RESOURCES"),
        )


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise SettingsInvalid(f"{name} is not set")
    return value


def _words(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(word for word in environment.get(name, "").replace(",", " ").split() if word)


def _number(environment: Mapping[str, str], name: str) -> float | None:
    value = environment.get(name)
    if not value:
        return None
    try:
        number = float(value)
    except ValueError:
        raise SettingsInvalid(f"{name} is {value!r}, expected a number") from None
    if number <= 0:
        raise SettingsInvalid(f"{name} is {value!r}, expected a number above 0")
    return number


def _object(environment: Mapping[str, str], name: str) -> Mapping[str, Any]:
    value = environment.get(name)
    if not value:
        return {}
    try:
        found = json.loads(value)
    except json.JSONDecodeError as error:
        raise SettingsInvalid(f"{name} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise SettingsInvalid(f"{name} is {value!r}, expected a JSON object")
    return found
