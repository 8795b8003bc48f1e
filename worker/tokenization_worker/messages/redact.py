"""Removes secrets from messages: user and password, signatures and tokens in addresses.

Every `TokenizationError`, warning and report passes through `redact`, and so does the text of a foreign exception where
it enters one of ours. It knows secrets by their place in a text, not by their value: it reads no environment, changes
nothing twice, and takes time linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tokenization_worker.messages.causes import chain_of

HIDDEN = "***"

_IN_QUOTES = r"'(?=\w)"  # a quote within a password, not the one that ends the address
_IPV6 = r"\[[0-9A-Fa-f:.]{2,45}\]"
_PASSWORD_OF_URL = re.compile(
    rf"(?<=://)(?!{_IPV6})[^\s/:@'\"<>]*:(?!//|[0-9]{{1,5}}[/?#])(?:[^\s'\"<>:]|:(?!//)|{_IN_QUOTES})*@"
)
"""Up to the last @: in a password / ? # and @ may not be percent-encoded, as keys of AWS are often pasted.

A colon before the first slash begins a password, unless a port follows it. So paths that hold an @ stay, but for those
behind a password: where that ends cannot be known.
"""

_USER_OF_URL = re.compile(rf"(?<=://)(?:[^\s/?#'\"<>]|{_IN_QUOTES})+@")

_USER_WITHOUT_SCHEME = re.compile(
    r"(?:(?<![\w/.@:+%~*-])|(?<=//)(?<![^\s'\"=(,]//))"
    r"[\w.+%~-]{1,128}:[^\s/@:'\"<>]{1,256}@(?=[\w.\[\]:-]{1,253}:\w)"
)
"""Before a host and its port: `serviceAccount:name@project` is no secret."""

_NAMES = (
    r"(?:[\w.-]{0,64}(?:signature|credential|security-token|(?:access|refresh|id)[_-]?token|secret|password|api[_-]?key)"
    r"|sig|token|key|upload_id|policy|key-pair-id|awsaccesskeyid)"
)
_PARAMETER = re.compile(rf"([?&;#]|%3F|%26)({_NAMES})(=|%3D)[^\s&;#'\"<>)\]]+", re.IGNORECASE)
_HEADER = re.compile(
    r"(authorization[\\'\"]{0,4} {0,4}[:=,] {0,4}b?[\\'\"]{0,4}(?:basic|bearer|token)) +(?!\*)[\w.~+/=-]+",
    re.IGNORECASE,
)
_CREDENTIAL = re.compile(
    r"\b(basic|bearer) +(?!\*)(?:"
    r"[\w.~+/-]{5,}={1,2}(?![\w.~+/=-])"  # base64, filled up
    r"|(?=[\w.~+/=-]{12})(?=[\w.~+/=-]*?[0-9])[\w.~+/=-]+"
    r"|(?=[\w.~+/=-]{20})(?=[\w.~+/=-]*?(?-i:[a-z][A-Z]))[\w.~+/=-]+"
    r")",
    re.IGNORECASE,
)
"""Without a header's name before it: what no word of a language looks like ("Basic knowledge of physics")."""

_SIGNED_HEADER = re.compile(
    r"\b(Credential=|Signature=|x-amz-security-token['\"]?: *['\"]?)(?!\*)[^\s,;&'\"]+", re.IGNORECASE
)
_HUB_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{20,}")


def redact(text: str) -> str:
    """`text` with `***` in place of what is secret in its addresses and headers."""
    if "@" in text:
        if "://" in text:
            text = _PASSWORD_OF_URL.sub(f"{HIDDEN}@", text)
            text = _USER_OF_URL.sub(f"{HIDDEN}@", text)
        text = _USER_WITHOUT_SCHEME.sub(f"{HIDDEN}@", text)
    if "=" in text or "%3" in text:
        text = _PARAMETER.sub(rf"\1\2\3{HIDDEN}", text)
    text = _HEADER.sub(rf"\1 {HIDDEN}", text)
    text = _CREDENTIAL.sub(rf"\1 {HIDDEN}", text)
    text = _SIGNED_HEADER.sub(rf"\1{HIDDEN}", text)
    return _HUB_TOKEN.sub(f"hf_{HIDDEN}", text) if "hf_" in text else text


def redact_address(value: str) -> str:
    """`value`, known to be meant as an address, without all that stands before its last `@`, however it is spelled."""
    before, at, host = value.rpartition("@")
    if not at:
        return redact(value)
    scheme, separator, _ = before.partition("://")
    return redact(f"{scheme}{separator}{HIDDEN}@{host}" if separator else f"{HIDDEN}@{host}")


@contextmanager
def causes_redacted() -> Iterator[None]:
    """Let an error that leaves this block show no secret by what has caused it: Python prints causes, too."""
    try:
        yield
    except Exception as error:
        if error.__cause__ is not None and _holds_secret(error.__cause__):
            cause = error.__cause__
            redacted = RuntimeError(redact(f"{type(cause).__name__}: {cause}"))
            error.__cause__ = redacted.with_traceback(cause.__traceback__)
        raise


def _holds_secret(error: BaseException) -> bool:
    return any(redact(str(each)) != str(each) for each in chain_of(error))


SECRET_FIELDS = ("env", "envFrom")


def is_secret_field(path: str) -> bool:
    """Whether a field of spec, by its dotted path, may hold secrets: no message shows a value below it."""
    return re.split(r"[.\[]", path.strip(), maxsplit=1)[0] in SECRET_FIELDS
