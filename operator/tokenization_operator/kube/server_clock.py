"""The API server's time, estimated from its answers: this machine's clock may be hours off.

The API server sets `creationTimestamp`, and statuses carry times of `ServerClock.now`, so deadlines compare times of
one clock. Between answers, the machine's monotonic clock counts on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from kubernetes.aio import client
from kubernetes.aio.client.exceptions import ApiException

from tokenization_operator.kube.fence import uptime_s

_DATE_S = 1.0
"""The resolution of an answer's `Date`: whole seconds."""


class ServerClock:
    """Estimates the API server's time; before the first answer it returns this machine's.

    Each answer bounds the time from both sides, and the intersection of the bounds is within a second of it. An answer
    that contradicts the bounds (the server's clock was set, or another server answered) resets them.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = uptime_s,
        own: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._monotonic = monotonic
        self._own = own
        self._bounds: tuple[float, float] | None = None  # on server time minus monotonic time, in seconds

    def now(self) -> datetime:
        if self._bounds is None:
            return self._own()
        return datetime.fromtimestamp(0, UTC) + timedelta(seconds=self._monotonic() + sum(self._bounds) / 2)

    def update(self, date: str | None, asked_at: float) -> None:
        """Narrow the bounds with the `Date` of an answer that has just arrived. `asked_at`: monotonic time of the
        request."""
        try:
            dated = parsedate_to_datetime(date or "").timestamp()
        except ValueError:  # the answer of a proxy has no date
            return
        low, high = dated - self._monotonic(), dated + _DATE_S - asked_at
        if self._bounds is not None:
            both = max(low, self._bounds[0]), min(high, self._bounds[1])
            low, high = both if both[0] <= both[1] else (low, high)
        self._bounds = low, high

    async def time(self, asked: Awaitable[Any]) -> Any:
        """Await an answer and update the clock from its date, also if it is an error."""
        asked_at = self._monotonic()
        try:
            answer = await asked
        except ApiException as error:
            self.update((error.headers or {}).get("Date"), asked_at)
            raise
        self.update(answer.getheaders().get("Date"), asked_at)
        return answer


class TimedClient(client.ApiClient):  # type: ignore[misc]  # it has no types
    """An API client whose answers update a clock."""

    def __init__(self, clock: ServerClock) -> None:
        super().__init__()
        self._server_clock = clock

    def request(self, *words: Any, **named: Any) -> Any:
        return self._server_clock.time(super().request(*words, **named))
