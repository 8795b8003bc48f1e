"""Reads lists page by page, so that neither the operator nor the API server holds more than a page in memory.

A list may take longer than the API server keeps its version (five minutes). The API server then answers 410 with a new
token, which continues at the same place in the newest version. An object that existed all the time is listed; one
created or deleted meanwhile may or may not be.

The next page is requested while the current one is processed: with 10,000 jobs, API server and operator each take half
of the time (2026-11-24).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from kubernetes.aio.client.exceptions import ApiException

from tokenization_operator.kube.api_errors import TIMEOUT_S
from tokenization_operator.objects.reading import Object

PAGE = 500
"""Objects per page, as in kubectl: 5 MB of RayJobs. A page of 100 takes the API server as long (2026-11-24)."""

_EXPIRED = 410
_MOST_EXPIRED = 3
"""Consecutive expired tokens before a list fails."""

WHOLE = "application/json"

Ask = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Requests one page of a list, by query parameters."""


def ask_of(api: Any, path: str, query: Mapping[str, str], form: str = WHOLE) -> Ask:
    """Return a function that requests pages of a list from an `ApiClient`. `form`: media type of the answer."""

    async def ask(page: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = await api.call_api(
            path,
            "GET",
            query_params=[*query.items(), *page.items()],
            header_params={"Accept": form},
            response_types_map={200: "object"},
            auth_settings=["BearerToken"],
            _return_http_data_only=True,
            _request_timeout=TIMEOUT_S,
        )
        return found

    return ask


async def pages(
    ask: Ask, size: int = PAGE, on_version: Callable[[str], None] = lambda version: None
) -> AsyncIterator[list[Object]]:
    """The objects of a list, page by page. Some appear twice if the token expires.

    `on_version` receives the version of the first page: a watch from there misses no change.
    """
    coming = asyncio.ensure_future(_page(ask, size, ""))
    try:
        found = await coming
        on_version(str((found.get("metadata") or {}).get("resourceVersion", "")))
        while token := (found.get("metadata") or {}).get("continue"):
            coming = asyncio.ensure_future(_page(ask, size, token))
            yield list(found.get("items") or ())  # null in a list of metadata without objects
            found = await coming
        yield list(found.get("items") or ())
    finally:
        coming.cancel()


async def _page(ask: Ask, size: int, token: str) -> dict[str, Any]:
    """Request the page at a token, or at the token with which the API server replaces an expired one."""
    expired = 0
    while True:
        try:
            return await ask({"limit": size} | ({"continue": token} if token else {}))
        except ApiException as error:
            expired += 1
            if error.status != _EXPIRED or not token or expired > _MOST_EXPIRED:
                raise
            token = _token_of(error)


def _token_of(error: ApiException) -> str:
    """The token that replaces the expired one; empty if the API server gives none."""
    try:
        return str(json.loads(error.body or "")["metadata"]["continue"])
    except (ValueError, KeyError, TypeError):
        return ""
