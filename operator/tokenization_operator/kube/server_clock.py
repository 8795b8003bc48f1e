"""The API server's time, as its answers tell it, in place of this machine's: a machine's clock may be hours off.

`creationTimestamp` is the API server's, and so is every time in a status that is written with `ServerClock.now`:
deadlines compare times of one clock. Between two answers the machine's monotonic clock counts on.
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
"""What an answer's `Date` leaves out: it has whole seconds."""


class ServerClock:
    """Before the first answer it is this machine's clock.

    Each answer bounds the API server's time from both sides; what all of them allow is within a second of it. An answer
    that contradicts them (its clock was set, or another server with another clock has answered) begins anew.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = uptime_s,
        own: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._monotonic = monotonic
        self._own = own
        self._bounds: tuple[float, float] | None = None  # of the server's time less the monotonic one, in seconds

    def now(self) -> datetime:
        if self._bounds is None:
            return self._own()
        return datetime.fromtimestamp(0, UTC) + timedelta(seconds=self._monotonic() + sum(self._bounds) / 2)

    def update(self, date: str | None, asked_at: float) -> None:
        """Take the `Date` of an answer that has just come; `asked_at`: monotonic time of the question."""
        try:
            dated = parsedate_to_datetime(date or "").timestamp()
        except ValueError:  # a proxy answers without one
            return
        low, high = dated - self._monotonic(), dated + _DATE_S - asked_at
        if self._bounds is not None:
            both = max(low, self._bounds[0]), min(high, self._bounds[1])
            low, high = both if both[0] <= both[1] else (low, high)
        self._bounds = low, high

    async def time(self, asked: Awaitable[Any]) -> Any:
        """The answer, whose date is heard; also that of a refusal."""
        asked_at = self._monotonic()
        try:
            answer = await asked
        except ApiException as error:
            self.update((error.headers or {}).get("Date"), asked_at)
            raise
        self.update(answer.getheaders().get("Date"), asked_at)
        return answer


class TimedClient(client.ApiClient):  # type: ignore[misc]  # it has no types
    """A client whose answers set a clock."""

    def __init__(self, clock: ServerClock) -> None:
        super().__init__()
        self._server_clock = clock

    def request(self, *words: Any, **named: Any) -> Any:
        return self._server_clock.time(super().request(*words, **named))
