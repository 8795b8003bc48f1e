"""Repeats requests that fail for a while, to every store; `gcs.client.RETRY` says which errors of gs:// may pass.

Waits grow from one try to the next and are random below that, so that a thousand workers do not come back at
once. A service that says how long to wait (a rate limit's window) is waited for, beyond the usual end where need be.
A user who waits for minutes reads why in a warning of `logging`, which Python prints to standard error unless the
program says otherwise. A command that is asked to stop (`stop`) gives such calls up.
"""

from __future__ import annotations

import logging
import math
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Self, TypeVar

from tokenization_worker.messages.client_errors import words_of
from tokenization_worker.messages.redact import redact
from tokenization_worker.stop import current_stop

T = TypeVar("T")

_CHANCE = random.Random()  # its own: the random numbers of the process are whoever seeded them

MOST_ASKED_S = 330.0
"""What a service may ask for in all: rate limits count in windows of 300 s, and more is not worth holding a worker."""


def asked_wait(retry_after: str | None, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> float:
    """The seconds that a service asks for in a Retry-After header, a number or a date; 0 for none, or for nonsense."""
    text = (retry_after or "").strip()
    if text.isdecimal() and text.isascii():
        return float(text)
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - now()).total_seconds())


@dataclass(frozen=True, slots=True)
class Retry:
    """How long to go on: no try begins later than `limit_s` after the first one, but for waits that were asked for."""

    limit_s: float = 120.0
    first_s: float = 1.0
    most_s: float = 20.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = _CHANCE.random
    pace: WarningPace | None = None

    def call(self, attempt: Callable[[], T], wait_of: Callable[[Exception], float | None]) -> T:
        """What `attempt` returns. `wait_of` an error: None to raise it, else the seconds that were asked for, or 0.

        Of a host that no name server knows see `giving_up_unknown_hosts`.
        """
        begin = self.clock()
        end = begin + self.limit_s
        last = end + MOST_ASKED_S
        step = self.first_s
        with Waiting(self.limit_s, self.clock, self.pace) as warn:
            while True:
                try:
                    return attempt()
                except Exception as error:  # `wait_of` judges it
                    asked = wait_of(error)
                    if asked is None:
                        raise
                    wait = asked + step * (0.5 + self.chance() / 2)
                    end = min(end + asked, last)
                    if self.clock() + wait > min(end, begin + _patience_with(error)):
                        raise
                    warn(error, end - begin)
                self.sleep(wait)
                step = min(2 * step, self.most_s)


UNKNOWN_HOST_S = 10.0

_patience_s: ContextVar[float | None] = ContextVar("patience with unknown hosts", default=None)


@contextmanager
def giving_up_unknown_hosts() -> Iterator[None]:
    """Within: calls to a host that does not exist end after `UNKNOWN_HOST_S`, for a person who waits: a wrong name
    stays wrong. A run repeats them as long as others, since name servers may also deny a host that exists."""
    token = _patience_s.set(UNKNOWN_HOST_S)
    try:
        yield
    finally:
        _patience_s.reset(token)


def _patience_with(error: BaseException) -> float:
    """Seconds after the first try; a name server that fails for a while is an error like any other."""
    patience_s = _patience_s.get()
    below: BaseException | None = error
    while below is not None and not isinstance(below, socket.gaierror):
        below = below.__cause__ or below.__context__
    is_unknown = below is not None and below.errno != socket.EAI_AGAIN
    return patience_s if is_unknown and patience_s is not None else math.inf


TELL_AFTER_S = 4.0
"""Do not warn about shorter failures; busy stores reject calls routinely."""

TELL_AGAIN_S = 30.0
"""Between two warnings of one pace: of a store that is away, all calls would speak."""

_LOG = logging.getLogger(__name__)


class WarningPace:
    """Lets one warning pass each `TELL_AGAIN_S`, of all the calls that share it. Safe for threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._next: float | None = None

    def may_warn(self) -> bool:
        """Whether a warning may be given now; it is counted then."""
        with self._lock:
            now = self._clock()
            if self._next is not None and now < self._next:
                return False
            self._next = now + TELL_AGAIN_S
            return True


SHARED_PACE = WarningPace()
"""Of the calls that are given no other one: the threads of a process fail together."""


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
    another limit where a service asks for patience. `pace`: that of its warnings; None for the shared one.

    Raises `KeyboardInterrupt` then, if there is to be no further try.
    """

    def __init__(
        self, limit_s: float | None, clock: Callable[[], float] = time.monotonic, pace: WarningPace | None = None
    ) -> None:
        self._pace = pace or SHARED_PACE
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
        if waited_s >= TELL_AFTER_S and self._pace.may_warn():
            limit_s = self._limit_s if limit_s is None else limit_s
            more = "" if limit_s is None else f" for {max(0.0, limit_s - waited_s):.0f} s more"
            words = words_of(error, _call.service)
            _LOG.warning("cannot %s yet: %s; waited %.0f s, trying again%s", redact(_call.what), words, waited_s, more)
