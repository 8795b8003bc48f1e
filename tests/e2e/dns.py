"""The names of a cluster: `SERVICE.NAMESPACE.svc.cluster.local`, of Services that are headless too."""

from __future__ import annotations

import argparse
import threading
import time
from contextlib import suppress
from typing import Any

from dnslib import QTYPE, RCODE, RR, A
from dnslib.server import BaseResolver, DNSHandler, DNSServer
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

ZONE = ".svc.cluster.local"
_LOOK_S = 0.5


class Names(BaseResolver):  # type: ignore[misc]  # it has no types
    """Addresses of the moment, asked of the API server at most twice a second."""

    def __init__(self, api: client.ApiClient) -> None:
        self._core: Any = client.CoreV1Api(api)
        self._discovery: Any = client.DiscoveryV1Api(api)
        self._lock = threading.Lock()
        self._asked_at = float("-inf")
        self._addresses: dict[str, list[str]] = {}

    def resolve(self, request: Any, handler: DNSHandler) -> Any:
        """The answer to a question; names of other zones are not there."""
        del handler
        reply = request.reply()
        found = self._look().get(str(request.q.qname).rstrip(".").lower())
        if found is None:
            reply.header.rcode = RCODE.NXDOMAIN
        elif request.q.qtype == QTYPE.A:
            for address in found:
                reply.add_answer(RR(request.q.qname, QTYPE.A, rdata=A(address), ttl=1))
        return reply

    def _look(self) -> dict[str, list[str]]:
        with self._lock:
            if time.monotonic() - self._asked_at > _LOOK_S:
                with suppress(ApiException, HTTPError):  # what it said last holds while the API server is away
                    self._addresses = self._ask()
                self._asked_at = time.monotonic()
            return self._addresses

    def _ask(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        headless: dict[str, bool] = {}  # and whether Pods that are not ready count
        for service in self._core.list_service_for_all_namespaces().items:
            name = f"{service.metadata.name}.{service.metadata.namespace}{ZONE}"
            address = service.spec.cluster_ip
            found[name] = [] if address in (None, "None") else [address]
            if address == "None":
                headless[name] = bool(service.spec.publish_not_ready_addresses)
        for part in self._discovery.list_endpoint_slice_for_all_namespaces().items:
            labels = part.metadata.labels or {}
            name = f"{labels.get('kubernetes.io/service-name')}.{part.metadata.namespace}{ZONE}"
            if name in headless and part.address_type == "IPv4":
                for each in part.endpoints or ():
                    if headless[name] or (each.conditions and each.conditions.ready is not False):
                        found[name] += each.addresses
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--listen", required=True)
    options = parser.parse_args()
    names = Names(config.new_client_from_config(options.kubeconfig))
    DNSServer(names, address=options.listen, port=53).start()


if __name__ == "__main__":
    main()
