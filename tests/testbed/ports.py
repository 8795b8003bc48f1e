"""Ports for servers of tests."""

from __future__ import annotations

import socket

_HELD: list[socket.socket] = []


def hold_ports(count: int) -> list[int]:
    """So many ports of loopback that stay bound as long as this process lives, so that nobody else is given one of
    them; a server may still listen there, as long as it sets SO_REUSEADDR (those of Go, Python and gRPC do)."""
    made = [socket.socket() for _ in range(count)]
    for each in made:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind(("127.0.0.1", 0))
    _HELD.extend(made)
    return [int(each.getsockname()[1]) for each in made]
