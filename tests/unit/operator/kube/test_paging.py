"""Lists come in pages, and go on where the API server no longer has their version."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from kubernetes.aio.client.exceptions import ApiException

from tokenization_operator.kube.paging import pages


class Paged:
    """A list of an API server; `expires_at`: the pages, by number, before which the token has expired."""

    def __init__(self, items: int, *, expires_at: tuple[int, ...] = (), with_token: bool = True) -> None:
        self._items = [{"metadata": {"uid": str(number)}} for number in range(items)]
        self._expires_at = list(expires_at)
        self._with_token = with_token
        self.asked: list[dict[str, Any]] = []

    async def ask(self, query: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(query)
        begin = int(query.get("continue", "at-0").rpartition("-")[2])
        number = begin // query["limit"]
        if number in self._expires_at and query["continue"].startswith("at-"):
            self._expires_at.remove(number)
            metadata = {"continue": f"anew-{begin}"} if self._with_token else {}
            error = ApiException(status=410, reason="Expired")
            error.body = json.dumps({"code": 410, "metadata": metadata})
            raise error
        end = begin + query["limit"]
        token = {"continue": f"at-{end}"} if end < len(self._items) else {}
        return {"items": self._items[begin:end], "metadata": {"resourceVersion": f"v{number}", **token}}

    def read(self, size: int) -> list[list[str]]:
        async def read() -> list[list[str]]:
            return [[each["metadata"]["uid"] for each in page] async for page in pages(self.ask, size)]

        return asyncio.run(read())


def test_a_list_is_read_page_by_page() -> None:
    listed = Paged(5)
    assert listed.read(2) == [["0", "1"], ["2", "3"], ["4"]]
    assert listed.asked == [{"limit": 2}, {"limit": 2, "continue": "at-2"}, {"limit": 2, "continue": "at-4"}]


def test_the_next_page_is_under_way_while_this_one_is_used() -> None:
    listed = Paged(5)

    async def read() -> list[int]:
        asked = []
        async for _ in pages(listed.ask, 2):
            await asyncio.sleep(0)
            asked.append(len(listed.asked))
        return asked

    assert asyncio.run(read()) == [2, 3, 3]


def test_a_watch_goes_on_from_the_version_of_the_first_page() -> None:
    versions: list[str] = []

    async def read() -> None:
        async for _ in pages(Paged(5, expires_at=(1,)).ask, 2, versions.append):
            pass

    asyncio.run(read())
    assert versions == ["v0"]


def test_a_list_whose_version_has_expired_goes_on_where_it_was() -> None:
    listed = Paged(5, expires_at=(1,))
    assert listed.read(2) == [["0", "1"], ["2", "3"], ["4"]]
    assert [each.get("continue") for each in listed.asked] == [None, "at-2", "anew-2", "at-4"]


def test_a_list_that_has_expired_without_another_token_begins_anew() -> None:
    assert Paged(3, expires_at=(1,), with_token=False).read(2) == [["0", "1"], ["0", "1"], ["2"]]


def test_a_list_that_expires_time_and_again_fails() -> None:
    class Expired(Paged):
        async def ask(self, query: dict[str, Any]) -> dict[str, Any]:
            if "continue" in query:
                self.asked.append(query)
                error = ApiException(status=410, reason="Expired")
                error.body = '{"metadata": {"continue": "at-2"}}'
                raise error
            return await super().ask(query)

    listed = Expired(3)
    with pytest.raises(ApiException):
        listed.read(2)
    assert len(listed.asked) < 10


def test_what_fails_otherwise_fails() -> None:
    async def ask(query: dict[str, Any]) -> dict[str, Any]:
        raise ApiException(status=410 if "continue" not in query else 500)

    async def read() -> None:
        async for _ in pages(ask):
            pass

    with pytest.raises(ApiException):
        asyncio.run(read())


def test_a_list_of_nothing_is_null_or_empty() -> None:
    async def ask(query: dict[str, Any]) -> dict[str, Any]:
        return {"items": None}

    async def read() -> list[list[Any]]:
        return [page async for page in pages(ask)]

    assert asyncio.run(read()) == [[]]
