"""Kopf's way to the API server, on which a kind that is not served is waited for.

Kinds go and come back while the operator runs: KubeRay is installed anew, say. Kopf takes a 404 on a watch for the end
of the operator, with a traceback.
"""

from __future__ import annotations

import asyncio
import logging

import aiohttp
import kopf

from tokenization_operator.objects.kinds import PLACES

log = logging.getLogger(__name__)

LOOK_S = 5.0
_LISTS = tuple(f"/{place.plural}" for place in PLACES.values())


async def wait_for_kind(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Ask again and again while lists and watches of a kind are answered with 404."""
    is_told = False
    while True:
        response = await handler(request)
        if response.status != 404 or not request.url.path.endswith(_LISTS):
            return response
        response.release()
        if not is_told:
            log.warning("the API server does not serve %s any more: waiting for it", request.url.path)
            is_told = True
        await asyncio.sleep(LOOK_S)


def patient_session(known: kopf.ConnectionInfo) -> kopf.AiohttpSession:
    """A session with these credentials; Kopf closes it."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=known.as_ssl_context()),
        headers=known.as_http_headers(),
        trust_env=known.trust_env,
        middlewares=(wait_for_kind,),
    )
    return kopf.AiohttpSession(
        server=known.server,
        default_namespace=known.default_namespace,
        priority=known.priority,
        expiration=known.expiration,
        aiohttp_session=session,
    )
