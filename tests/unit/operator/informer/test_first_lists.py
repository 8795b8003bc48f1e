"""Kopf does not list again what filled the cache: its watches go on from there."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tokenization_operator.informer.patient_watch import watch_from
from tokenization_operator.objects.kinds import Kind, list_path

JOBS = list_path(Kind.JOB, None)
OF_TEAM = list_path(Kind.JOB, "team")


class Server:
    """An API server that has one job and no longer knows the versions in `gone`."""

    def __init__(self, *gone: str) -> None:
        self._gone = gone
        self.asked: list[tuple[str, dict[str, str]]] = []

    async def answer(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        self.asked.append((request.path, query))
        version = query.get("resourceVersion", "now")
        if version in self._gone:
            return web.json_response({"code": 410}, status=410)
        items = [] if "fieldSelector" in query else [{"metadata": {"name": "demo"}}]
        return web.json_response({"items": items, "metadata": {"resourceVersion": version}})

    def get(self, listed: dict[str, str], *urls: str) -> list[dict[str, Any]]:
        """What each of these is answered, one after the other."""

        async def get() -> list[dict[str, Any]]:
            app = web.Application()
            app.router.add_get("/{path:.*}", self.answer)
            runner = web.AppRunner(app)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            try:
                async with aiohttp.ClientSession(middlewares=(watch_from(listed),)) as session:
                    answers = [await session.get(f"http://{host}:{port}{url}") for url in urls]
                    return [await answer.json() for answer in answers]
            finally:
                await runner.cleanup()

        return asyncio.run(get())


@pytest.mark.parametrize(
    ("path", "asked"), [(JOBS, list_path(Kind.JOB, "default")), (OF_TEAM, OF_TEAM)], ids=["all", "one namespace"]
)
def test_the_first_list_of_a_kind_is_empty_and_of_the_version_that_filled_the_cache(path: str, asked: str) -> None:
    server = Server()
    first, second = server.get({path: "7"}, f"{path}?limit=500", f"{path}?limit=500")
    assert first == {"items": [], "metadata": {"resourceVersion": "7"}}
    assert [item["metadata"]["name"] for item in second["items"]] == ["demo"]
    query = {"fieldSelector": "metadata.name=-", "resourceVersion": "7", "resourceVersionMatch": "Exact"}
    assert server.asked == [(asked, query), (path, {"limit": "500"})]


def test_a_version_that_is_gone_is_listed_as_usual() -> None:
    (found,) = Server("7").get({JOBS: "7"}, f"{JOBS}?limit=500")
    assert found["metadata"]["resourceVersion"] == "now"
    assert len(found["items"]) == 1


def test_watches_and_what_was_not_listed_are_left_alone() -> None:
    server = Server()
    server.get({JOBS: "7"}, f"{JOBS}?watch=true", f"{OF_TEAM}?limit=500")
    assert server.asked == [(JOBS, {"watch": "true"}), (OF_TEAM, {"limit": "500"})]
