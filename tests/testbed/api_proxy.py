"""Stands between a client and the API server: counts requests, and answers some of them in its place.

Speaks HTTP without TLS on loopback; clients are known by their tokens, which are handed on.
"""

from __future__ import annotations

import asyncio
import json
import selectors
import ssl
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
from aiohttp import web
from kubernetes import client

T = TypeVar("T")

_PATIENCE_S = 120.0
_EXPIRED = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}
_HOP = ("host", "content-length", "transfer-encoding", "connection", "content-encoding", "accept-encoding")


@dataclass(frozen=True)
class Asked:
    """A request; `path` without its query."""

    method: str
    path: str
    is_watch: bool
    is_dry_run: bool = False


Answer = Callable[[Asked], int | None]


class ApiProxy:
    """`answer` a request with a status code in place of the API server, or None to hand it on. A context manager.

    `skew_s`: how far the clock of what answers is ahead, by the `Date` of its answers.
    """

    def __init__(self, server: str, certificate: str) -> None:
        self._server = server
        self._tls = ssl.create_default_context(cafile=certificate)
        self._sockets = selectors.DefaultSelector()
        self._loop = asyncio.SelectorEventLoop(self._sockets)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._watches: dict[web.StreamResponse, web.Request] = {}
        self.asked: list[Asked] = []
        self.answer: Answer = lambda asked: None
        self.skew_s = 0.0
        self.url = ""
        self._is_whole = asyncio.Event()

    @classmethod
    def of(cls, api: client.ApiClient) -> Self:
        """Before the API server that a client knows."""
        return cls(api.configuration.host, api.configuration.ssl_ca_cert)

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def open_watches(self) -> int:
        return sum(map(_is_open, list(self._watches.values())))

    def cut(self) -> None:
        """Answer nothing until `heal`, as a network does that loses all packets."""
        self._do(self._cut())

    def heal(self) -> None:
        self._loop.call_soon_threadsafe(self._is_whole.set)

    def end_watches(self, *, expired: bool = False) -> int:
        """End all open watches, as a connection does that breaks, or with 410 Gone; how many there were."""
        return self._do(self._end_watches(expired=expired))

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(2 * _PATIENCE_S)

    async def _start(self) -> None:
        self._is_whole.set()
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False, skip_auto_headers=["Accept-Encoding"]
        )
        application = web.Application(client_max_size=64 << 20)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def _stop(self) -> None:
        self._is_whole.set()
        await self._end_watches(expired=False)
        await self._runner.cleanup()
        await self._session.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:  # whose other side has gone
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        async with asyncio.timeout(_PATIENCE_S):
            while len(self._sockets.get_map()) > 1:  # but for the one that wakes the loop
                await asyncio.sleep(0.01)

    async def _cut(self) -> None:
        self._is_whole.clear()

    async def _end_watches(self, *, expired: bool) -> int:
        ended = [each for each in self._watches.items() if _is_open(each[1])]
        for watch, request in ended:
            if expired and _is_open(request):
                await watch.write(json.dumps({"type": "ERROR", "object": _EXPIRED}).encode() + b"\n")
            if request.transport is not None:
                request.transport.close()
        return len(ended)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._hand_on(request)
        except (aiohttp.ClientError, ConnectionResetError) as error:  # one of the two sides has gone
            return web.Response(status=502, text=str(error))

    async def _hand_on(self, request: web.Request) -> web.StreamResponse:
        is_watch = request.query.get("watch") in ("1", "true")
        asked = Asked(request.method, request.path, is_watch, "dryRun" in request.query)
        self.asked.append(asked)
        await self._is_whole.wait()
        status = self.answer(asked)
        if status is not None:
            said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "message": "injected"}
            headers = {"Retry-After": "1"} if status == 429 else {}
            return web.json_response(said, status=status, headers=headers)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        async with self._session.request(
            request.method,
            self._server + request.path_qs,
            headers=headers,
            data=await request.read() or None,
            ssl=self._tls,
        ) as given:
            answer = web.StreamResponse(status=given.status)
            answer.content_type = given.content_type
            answer.headers["Date"] = format_datetime(datetime.now(UTC) + timedelta(seconds=self.skew_s), usegmt=True)
            for name in ("Retry-After", "Warning"):
                if name in given.headers:
                    answer.headers[name] = given.headers[name]
            await answer.prepare(request)
            if asked.is_watch:
                self._watches[answer] = request
            try:
                async for chunk in given.content.iter_any():
                    await self._is_whole.wait()
                    await answer.write(chunk)
            finally:
                self._watches.pop(answer, None)
            await answer.write_eof()
            return answer


def _is_open(request: web.Request) -> bool:
    """Whether the client still listens."""
    return request.transport is not None and not request.transport.is_closing()
