"""Words the errors of client libraries for messages: the fault, the address, and no secret."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from tokenization_worker.messages.redact import redact

_ADDRESS = re.compile(r"https?://[^\s\"'<>]+")
_NO_CONNECTION = re.compile(
    r"(?:<[^>]*>|\w+\(host='?(?P<host>[^',)]*)'?, port=(?P<port>\d+)\)): Failed to establish a new connection: "
)
"""How urllib3 begins, with a name of its own classes."""


def words_of(error: BaseException, service: str = "") -> str:
    """What is wrong and who was asked, with no more of a request's address than its host: the rest may hold a secret.
    At most 500 characters. `service`: an address, named where the error knows none.
    """
    inner = getattr(error.args[0], "reason", None) if error.args else None  # of what gave up connecting: why
    if isinstance(inner, Exception):
        return words_of(inner, service)
    parts = getattr(error, "kwargs", None)  # of botocore: what its sentence is made of, and it ends with an address
    if isinstance(parts, dict) and "endpoint_url" in parts:
        why = parts.get("error")
        text = f"no connection to {parts['endpoint_url']}: {_NO_CONNECTION.sub('', str(why or type(error).__name__))}"
    else:
        text = _NO_CONNECTION.sub(lambda found: f"no connection to {found['host']}:{found['port']}: ", str(error))
    text_shown = _ADDRESS.sub(_host_of, redact(text)) or type(error).__name__
    asked = _ADDRESS.sub(_host_of, redact(_asked_address(error) or service))
    if asked and asked.partition("://")[2] not in text_shown:
        text_shown = f"{asked}: {text_shown}"
    return text_shown[:500]


def _asked_address(error: BaseException) -> str:
    """Where an error of httpx came from: its text names no host. One of requests, an `OSError`, does so itself."""
    if isinstance(error, OSError):
        return ""
    try:
        return str(error.request.url)  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):  # of another library, or raised without a request
        return ""


def _host_of(address: re.Match[str]) -> str:
    """`https://host:443`, and what ends the sentence that it stands in."""
    ends = address[0][len(address[0].rstrip(".,:;)")) :]
    parts = urlsplit(address[0])
    return f"{parts.scheme}://{parts.netloc.rstrip('.,:;)')}{ends}"
