"""Which ServiceAccounts are there, of those that jobs use now. The operator may read one by name, and watch none.

As soon as a ServiceAccount is deleted, the API server refuses its tokens and makes no Pod with it. No watch tells so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

POLL_S = 5.0
"""Between two looks at the accounts in use: a job says within seconds that its own is gone, or there again."""

_MOST_A_SECOND = 10
_CACHED_S = 15.0
_IN_USE_S = 150.0
"""Every job that is not finished is looked at each minute, and asks for its account then."""

Account = tuple[str, str]
"""Namespace and name."""


class Accounts:
    """`read`: whether an account is there now, by a request."""

    def __init__(self, read: Callable[[str, str], Awaitable[bool]], clock: Callable[[], float]) -> None:
        self._read = read
        self._clock = clock
        self._known: dict[Account, tuple[float, bool]] = {}  # when it was read, and what was found
        self._asked_at: dict[Account, float] = {}

    @property
    def pause_s(self) -> float:
        """Until the next look: longer for very many accounts."""
        return max(POLL_S, len(self._asked_at) / _MOST_A_SECOND)

    async def exists(self, namespace: str, name: str) -> bool:
        """Whether Pods can be made with it; one that is awaited is read each time."""
        account = namespace, name
        now = self._clock()
        self._asked_at[account] = now
        read_at, existed = self._known.get(account, (0.0, False))
        if existed and now - read_at < _CACHED_S + self.pause_s:
            return True
        return await self._refresh(account)

    async def find_changes(self) -> tuple[set[str], Exception | None]:
        """Read all that are in use: the namespaces of those that have come or gone since they were read last, and why
        one could not be read, which keeps no other from being read."""
        now = self._clock()
        self._asked_at = {account: at for account, at in self._asked_at.items() if now - at < _IN_USE_S}
        self._known = {account: known for account, known in self._known.items() if account in self._asked_at}
        changed: set[str] = set()
        failed: Exception | None = None
        for account in list(self._asked_at):
            before = self._known.get(account)
            try:
                exists = await self._refresh(account)
            except Exception as error:  # noqa: BLE001  told by the caller, who knows the client
                failed = error
                continue
            if before is not None and before[1] != exists:
                changed.add(account[0])
        return changed, failed

    async def _refresh(self, account: Account) -> bool:
        exists = await self._read(*account)
        self._known[account] = self._clock(), exists
        return exists
