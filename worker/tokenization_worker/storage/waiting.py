"""Calls that are tried again: what they wait for, and whether to go on waiting.

A user who waits for minutes reads why in a warning of `logging`, which Python prints to standard error unless the
program says otherwise. A command that is asked to stop (`stop`) gives such calls up. How often and how long a call is
tried is left to `retry` and to the clients.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tokenization_worker.messages.redact import redact
from tokenization_worker.stop import current_stop

TELL_AFTER_S = 4.0
"""Do not warn about shorter failures; busy stores reject calls routinely."""

TELL_AGAIN_S = 30.0
"""Between two warnings of a process: of a store that is away, all its calls would speak."""

_LOG = logging.getLogger(__name__)
_next_warning = 0.0
_lock = threading.Lock()


class _Call(threading.local):
    what = "reach a service"
    service = ""
    may_be_given_up = True


_call = _Call()


@contextmanager
def calling(what: str, *, service: str = "", may_be_given_up: bool = True) -> Iterator[None]:
    """Name what this thread's calls within are about to do: a verb and a URI.

    `service`: the address of who is asked, for errors that name none. `may_be_given_up`: nothing is lost if the command
    ends while such a call is repeated.
    """
    before = _call.what, _call.service, _call.may_be_given_up
    _call.what, _call.service, _call.may_be_given_up = what, service, may_be_given_up
    try:
        yield
    finally:
        _call.what, _call.service, _call.may_be_given_up = before


class Waiting:
    """One call and its tries, as a context, for `limit_s` in all. It is told of every error that a try follows, and of
    another limit where a service asks for patience.

    Raises `KeyboardInterrupt` then, if there is to be no further try.
    """

    def __init__(self, limit_s: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._begin = clock()
        self._stop = current_stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if self._stop is not None:
            self._stop.end_wait(self)

    def __call__(self, error: Exception, limit_s: float | None = None) -> None:
        if self._stop is not None and _call.may_be_given_up:
            self._stop.begin_wait(self)
        waited_s = self._clock() - self._begin
        if waited_s >= TELL_AFTER_S and _may_warn():
            limit_s = self._limit_s if limit_s is None else limit_s
            more = "" if limit_s is None else f" for {max(0.0, limit_s - waited_s):.0f} s more"
            words = words_of(error, _call.service)
            _LOG.warning("cannot %s yet: %s; waited %.0f s, trying again%s", redact(_call.what), words, waited_s, more)


def _may_warn() -> bool:
    global _next_warning  # of the process: its threads fail together
    with _lock:
        now = time.monotonic()
        if now < _next_warning:
            return False
        _next_warning = now + TELL_AGAIN_S
        return True


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
    told = _ADDRESS.sub(_host_of, redact(text)) or type(error).__name__
    asked = _ADDRESS.sub(_host_of, redact(_asked_address(error) or service))
    if asked and asked.partition("://")[2] not in told:
        told = f"{asked}: {told}"
    return told[:500]


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
