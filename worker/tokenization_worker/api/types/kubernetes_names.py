"""Names, labels and references that Kubernetes checks in a Pod, checked when a job is applied.

Invariant: each type accepts what a Pod of every supported version of Kubernetes may hold, and nothing that no Pod may
hold. So a job whose Pods could never be made is refused at once, and not when its machines are there. Rules are for new
values: a stored job keeps what it has. Lengths are bounded because the API server estimates the cost of each rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints

from tokenization_worker.api.types.fields import ShortText
from tokenization_worker.api.types.model import FORBIDDEN, Rule

_DNS_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_LABEL_PART: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LABEL_KEY: Final = rf"^({_SUBDOMAIN}/)?{_LABEL_PART}$"
LABEL_VALUE: Final = rf"^({_LABEL_PART})?$"
_ENV_NAME: Final = r"^[-._a-zA-Z][-._a-zA-Z0-9]*$"

_NAME_PART = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_REGISTRY = r"([A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+(:[0-9]+)?|[A-Za-z0-9-]+:[0-9]+|\[[0-9A-Fa-f:]+\](:[0-9]+)?)"
_DIGEST = r"(sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})"
IMAGE: Final = rf"^({_REGISTRY}/)?{_NAME_PART}(/{_NAME_PART})*(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(@{_DIGEST})?$"

LABEL_KEY_MESSAGE = (
    "the key of a label has at most 63 letters, digits, - _ and . and may follow a DNS name in lower case and a slash: "
    "write for example team or example.com/team"
)
LABEL_VALUE_MESSAGE = (
    "the value of a label has at most 63 letters, digits, - _ and . and begins and ends with a letter or a digit: "
    "write for example research-1"
)


def matching(pattern: str, message: str) -> Rule:
    """Return the rule that a text matches `pattern`, the same in RE2 and in Python."""
    return Rule(
        message,
        cel=f"self.matches(r'{pattern}')",
        holds=lambda text: re.fullmatch(pattern, text) is not None,
        is_for_new=True,
    )


def keys_matching(pattern: str, message: str) -> Rule:
    """Return the rule that each key of a map matches `pattern`; the message names the first that does not."""
    return _of_keys(f"k.matches(r'{pattern}')", lambda key: re.fullmatch(pattern, key) is not None, message)


def keys_without(prefixes: tuple[str, ...], names: tuple[str, ...], message: str) -> Rule:
    """Return the rule that no key of a map begins with one of `prefixes` or is one of `names`."""
    tests = [f"!k.startsWith('{prefix}')" for prefix in prefixes] + [f"k != '{name}'" for name in names]
    return _of_keys(
        " && ".join(tests), lambda key: not key.startswith(prefixes) and key not in names, message, FORBIDDEN
    )


def _of_keys(cel: str, holds: Callable[[str], bool], message: str, reason: str = "") -> Rule:
    def wrong(value: Mapping[str, Any]) -> list[str]:
        return [key for key in value if not holds(key)]

    return Rule(
        message,
        cel=f"self.all(k, {cel})",
        holds=lambda value: not wrong(value),
        reason=reason,
        found=f"'found \"' + self.filter(k, !({cel}))[0] + '\"'",
        shows=lambda value: f'found "{wrong(value)[0]}"',
        is_for_new=True,
    )


DnsName = Annotated[
    ShortText,
    matching(
        f"^{_SUBDOMAIN}$",
        "write a name of lower-case letters, digits, - and . that begins and ends with a letter or a digit, such as "
        "batch-low",
    ),
]
"""Of a ServiceAccount, a PriorityClass, a Secret, a ConfigMap or a claim."""

DnsLabel = Annotated[
    str,
    StringConstraints(min_length=1, max_length=63),
    matching(
        f"^{_DNS_LABEL}$",
        "write a name of lower-case letters, digits and - that begins and ends with a letter or a digit, such as cache",
    ),
]
"""Of a volume."""

KeyName = Annotated[
    ShortText,
    matching(r"^[-._a-zA-Z0-9]+$", "write a key of letters, digits, - _ and . such as token"),
]
"""Of a value in a Secret or a ConfigMap."""

EnvName = Annotated[
    ShortText,
    matching(
        _ENV_NAME,
        "write a name of letters, digits, - _ and . that does not begin with a digit, such as HF_TOKEN",
    ),
]
LabelKey = Annotated[ShortText, matching(LABEL_KEY, LABEL_KEY_MESSAGE)]
LabelValue = Annotated[str, StringConstraints(max_length=253), matching(LABEL_VALUE, LABEL_VALUE_MESSAGE)]
LabelMap = Annotated[dict[ShortText, LabelValue], Field(max_length=32), keys_matching(LABEL_KEY, LABEL_KEY_MESSAGE)]
Image = Annotated[
    str,
    StringConstraints(min_length=1, max_length=512),
    matching(
        IMAGE,
        "write REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:DIGEST without blanks; NAME has lower-case letters, digits "
        "and . _ - / only, a DIGEST 64 hexadecimal digits",
    ),
]
