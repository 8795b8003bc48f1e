"""Kopf's HTTP session: waits for kinds that are not served, and skips lists that the cache has done already.

Kinds disappear and return while the operator runs, for example when KubeRay is reinstalled. Kopf would end the operator
with a traceback on a watch's 404.

Kopf lists a kind before it watches it, although the operator has just filled its cache from the same list. With 10,000
finished jobs the second list took 40 s of the start (2026-11-24). So the first list of each kind is answered with no
objects and the version of the operator's own list, and Kopf watches from there.
"""

from __future__ import annotations

import asyncio
import logging

import aiohttp
import kopf

from tokenization_operator.objects.kinds import PLACES, WATCHED

log = logging.getLogger(__name__)

RETRY_S = 5.0
_LISTS = tuple(f"/{PLACES[kind].plural}" for kind in WATCHED)


async def wait_for_kind(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Repeat lists and watches of a kind while the API server answers 404."""
    is_logged = False
    while True:
        response = await handler(request)
        if response.status != 404 or not request.url.path.endswith(_LISTS):
            return response
        response.release()
        if not is_logged:
            log.warning("the API server does not serve %s any more: waiting for it", request.url.path)
            is_logged = True
        await asyncio.sleep(RETRY_S)


def watch_from(listed: dict[str, str]) -> aiohttp.ClientMiddlewareType:
    """Answer the first list of each path in `listed` with no objects and the version given there.

    The request filters for a name that no object can have: a dash. If the API server no longer has the version, Kopf
    lists as usual.
    """

    async def continue_list(
        request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        path = request.url.path
        version = "" if "watch" in request.url.query else listed.pop(path, "")
        if not version:
            return await handler(request)
        if "/namespaces/" not in path:
            group, _, plural = path.rpartition("/")
            path = f"{group}/namespaces/default/{plural}"
        query = {"fieldSelector": "metadata.name=-", "resourceVersion": version, "resourceVersionMatch": "Exact"}
        response = await request.session.get(request.url.with_path(path).with_query(query))
        if response.status == 200:
            return response
        response.release()
        return await handler(request)

    return continue_list


def patient_session(known: kopf.ConnectionInfo, listed: dict[str, str]) -> kopf.AiohttpSession:
    """A session with these credentials, which Kopf closes. `listed`: as for `watch_from`."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=known.as_ssl_context()),
        headers=known.as_http_headers(),
        trust_env=known.trust_env,
        middlewares=(wait_for_kind, watch_from(listed)),
    )
    return kopf.AiohttpSession(
        server=known.server,
        default_namespace=known.default_namespace,
        priority=known.priority,
        expiration=known.expiration,
        aiohttp_session=session,
    )
