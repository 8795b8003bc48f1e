"""Tracks whether the ServiceAccounts in use exist. The operator may read one by name, and may not watch them.

Once a ServiceAccount is deleted, the API server rejects its tokens and creates no Pod with it; no watch reports that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

POLL_S = 5.0
"""Between two polls of the accounts in use: a status reports a deleted or recreated account within seconds."""

_MOST_A_SECOND = 10
_CACHED_S = 15.0
_IN_USE_S = 150.0
"""An account unused for this long is dropped: every unfinished job asks for its account once a minute."""

Account = tuple[str, str]
"""Namespace and name."""


class Accounts:
    """Caches the existence of ServiceAccounts. `read` asks the API server."""

    def __init__(self, read: Callable[[str, str], Awaitable[bool]], clock: Callable[[], float]) -> None:
        self._read = read
        self._clock = clock
        self._known: dict[Account, tuple[float, bool]] = {}  # time of the read, result
        self._asked_at: dict[Account, float] = {}

    @property
    def pause_s(self) -> float:
        """Seconds until the next poll; longer with very many accounts."""
        return max(POLL_S, len(self._asked_at) / _MOST_A_SECOND)

    async def exists(self, namespace: str, name: str) -> bool:
        """Whether Pods can be created with this account. A missing account is read at every call."""
        account = namespace, name
        now = self._clock()
        self._asked_at[account] = now
        read_at, existed = self._known.get(account, (0.0, False))
        if existed and now - read_at < _CACHED_S + self.pause_s:
            return True
        return await self._refresh(account)

    async def find_changes(self) -> tuple[set[str], Exception | None]:
        """Read all accounts in use. Returns the namespaces whose accounts have appeared or disappeared since the last
        read, and the last error; an error for one account does not stop the others."""
        now = self._clock()
        self._asked_at = {account: at for account, at in self._asked_at.items() if now - at < _IN_USE_S}
        self._known = {account: known for account, known in self._known.items() if account in self._asked_at}
        changed: set[str] = set()
        failed: Exception | None = None
        for account in list(self._asked_at):
            before = self._known.get(account)
            try:
                exists = await self._refresh(account)
            except Exception as error:  # noqa: BLE001  the caller knows the client and logs it
                failed = error
                continue
            if before is not None and before[1] != exists:
                changed.add(account[0])
        return changed, failed

    async def _refresh(self, account: Account) -> bool:
        exists = await self._read(*account)
        self._known[account] = self._clock(), exists
        return exists
