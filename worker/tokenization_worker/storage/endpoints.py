"""Checks addresses of services and proxies in environment variables, before a client library reads them."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from tokenization_worker.errors import SpecError
from tokenization_worker.messages.redact import redact_address

_ADDRESS = re.compile(r"https?://[^\s\"'<>\\^`{|}]+")
_PROXY = re.compile(r"(?:https?|socks(?:4a?|5h?))://[^\s\"'<>]+", re.IGNORECASE)

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
"""Variables that every client library reads, in one of the two spellings or in both."""


def endpoint_in(variable: str) -> str | None:
    """The address that an environment variable holds, without a slash at its end; None where it is unset or empty.

    Raises `SpecError("StorageNotUsable")` for what is not http:// or https:// with a host and, maybe, a port.
    """
    value = os.environ.get(variable)
    if not value:
        return None
    if not _is_address(value):
        raise not_usable(variable, value, "expected http://host:port or https://host:port")
    return value.rstrip("/")


def require_usable_proxies() -> None:
    """Raise `SpecError("StorageNotUsable")` for a variable that names a proxy and holds no address of one.

    A library would name the service instead of the variable, and show a part of the proxy's password. An address
    without a scheme is one of http://, as the libraries read it.
    """
    for variable in PROXIES:
        value = os.environ.get(variable)
        if value and not _is_address(value if "://" in value else f"http://{value}", _PROXY):
            raise not_usable(variable, value, "expected http://host:port, the address of a proxy")


def not_usable(variable: str, value: str, expected: str) -> SpecError:
    """The error for an address at which no service can be asked."""
    return SpecError(
        "StorageNotUsable",
        f"{variable} is {redact_address(value)!r}: {expected}",
        next_step=f"write it as http://host:port (a port from 1 to 65535; special characters of a password "
        f"percent-encoded), or unset {variable}",
    )


def _is_address(value: str, form: re.Pattern[str] = _ADDRESS) -> bool:
    try:
        parts = urlsplit(value)
        if "@" in value.replace(parts.netloc, "", 1) or parts.netloc.count("@") > 1:
            return False  # of a password that is not percent-encoded: what follows its first @ would be the host
        return form.fullmatch(value) is not None and bool(parts.hostname) and parts.port != 0
    except ValueError:  # no such port
        return False
