"""A small HTTP server of our own before the emulator, which injects faults, call by call, as a script says.

`gcs_rules` serves the calls; here is what goes wrong with them. A `Fault` names a kind of call, which of those calls
it begins with and how many it takes, and what they get. `log` tells every call, and the fault it got: a test can see
that what it planned did happen, and a fault-free run says what there is to plan.
"""

from __future__ import annotations

import gc
import json
import select
import struct
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

from support.local_servers import Handler, serve
from support.stores.gcs_rules import Answer, Call, Request, Service

ALWAYS = 1 << 30
"""So many times that no call escapes."""

SLOW_STEPS = 6
SLOW_STEP_S = 0.02
"""A slow body comes in so many pieces, with this long between them: longer in all than a client's time-out."""

STALL_S = 60.0
"""How long a stalled body stalls if its client does not give up."""


class What(StrEnum):
    """What goes wrong."""

    TOO_MANY = "429 with Retry-After"
    INTERNAL = "500"
    UNAVAILABLE = "503"
    RESET = "connection reset"
    PRECONDITION = "412 without reason"
    SLOW = "slow body"
    STALLED = "stalled body"
    CUT = "truncated body"
    SHORT = "truncated body, its length consistent"
    FLIPPED = "a flipped byte in the answer"
    FLIPPED_SENT = "a flipped byte in what was sent"
    WRONG_CRC = "a wrong CRC"
    MISSING = "stale listing: the newest object is missing"
    GHOST = "stale listing: a deleted object is there"


STATUS = {What.TOO_MANY: 429, What.INTERNAL: 500, What.UNAVAILABLE: 503, What.PRECONDITION: 412}

READS = {Call.LIST, Call.STAT, Call.READ, Call.RANGE}
MEDIA = {Call.READ, Call.RANGE}
WRITES = {Call.UPLOAD, Call.LAST}

APPLIES: dict[What, set[Call]] = {
    What.TOO_MANY: set(Call),
    What.INTERNAL: set(Call),
    What.UNAVAILABLE: set(Call),
    What.RESET: set(Call),
    What.PRECONDITION: set(Call),
    What.SLOW: READS | WRITES,
    What.STALLED: set(Call),
    What.CUT: READS | WRITES,
    What.SHORT: READS | WRITES,
    What.FLIPPED: READS | WRITES,
    What.FLIPPED_SENT: WRITES | {Call.CHUNK},
    What.WRONG_CRC: MEDIA | WRITES,
    What.MISSING: {Call.LIST},
    What.GHOST: {Call.LIST},
}
"""Which calls can meet it. Answers without a body cannot be cut; numbers in a JSON answer have no checksum."""

SURVIVED = {
    What.TOO_MANY,
    What.INTERNAL,
    What.UNAVAILABLE,
    What.RESET,
    What.SLOW,
    What.STALLED,
    What.CUT,
}
"""What a call that is repeated gets over."""

MAY_COME_AFTER = frozenset(STATUS) | {What.RESET}
"""What can befall the answer to a call that was served all the same."""


def faults_of(call: Call) -> list[tuple[What, bool]]:
    """All that can befall a call, and whether after it was served: which makes no difference to one that only reads."""
    found = [(what, False) for what in What if call in APPLIES[what]]
    return found + [(what, True) for what, _ in found if what in MAY_COME_AFTER and call not in READS]


@dataclass(frozen=True)
class Fault:
    """What calls `nth` to `nth + times - 1` of a kind get; counted from 1, among those whose object has `name` in it.

    `after`: the call is served, only its answer is lost. `meanwhile`: what somebody else does right after the call.
    """

    what: What
    call: Call
    nth: int = 1
    times: int = 1
    after: bool = False
    name: str = ""
    meanwhile: Callable[[], object] | None = None

    def __str__(self) -> str:
        times = "always" if self.times == ALWAYS else f"{self.nth}" if self.times == 1 else f"{self.nth}+{self.times}"
        return f"{self.call}[{times}]{self.name and f'({self.name})'}: {self.what}{', after it' if self.after else ''}"


@dataclass
class Logged:
    """One call, and the status of its answer.

    `listed`, `ghosts`: objects in a listing, and deleted ones that it could show; `hurt`: the fault made a difference.
    """

    call: Call
    name: str
    fault: Fault | None = None
    listed: int = 0
    ghosts: int = 0
    status: int = 0
    hurt: bool = False


@dataclass
class FaultProxy:
    """The script, the log, and the service behind them."""

    service: Service
    url: str
    faults: list[Fault] = field(default_factory=list)
    log: list[Logged] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    _seen: dict[int, int] = field(default_factory=dict)

    def plan(self, faults: Sequence[Fault] = ()) -> None:
        """Begin a new script, and a new log."""
        with self.lock:
            self.faults, self.log, self._seen = list(faults), [], {}

    def enter(self, call: Call, name: str) -> Logged:
        """Log a call, and say which fault it gets: the first of the script that takes it."""
        with self.lock:
            logged = Logged(call, name)
            for number, fault in enumerate(self.faults):
                if fault.call is call and fault.name in name:
                    seen = self._seen[number] = self._seen.get(number, 0) + 1
                    if logged.fault is None and fault.nth <= seen < fault.nth + fault.times:
                        logged.fault = fault
            self.log.append(logged)
            return logged

    def read_timeout_s(self, short_s: float, long_s: float) -> float:
        """How long a client should wait: not long for the call that will stall, and patiently from then on."""
        with self.lock:
            stalls = [fault for fault in self.faults if fault.what in (What.SLOW, What.STALLED)]
            met = sum(logged.fault in stalls for logged in self.log)
            return short_s if met < sum(fault.times for fault in stalls) else long_s

    def injected(self) -> list[Logged]:
        """The calls that a fault has hurt, so far."""
        with self.lock:
            return [logged for logged in self.log if logged.hurt]


class _Handler(Handler):
    wbufsize = -1
    proxy: FaultProxy

    def finish(self) -> None:
        self.proxy.service.close_connection()
        super().finish()

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        request = Request(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        try:
            call, _, name = self.proxy.service.name_call(request)
        except (ValueError, LookupError) as error:
            self.proxy.unknown.append(str(error))
            self._send(Answer(501))
            return
        logged = self.proxy.enter(call, name)
        if logged.fault is None:
            self._send(self._serve(request, logged))
        else:
            self._serve_badly(request, logged, logged.fault)

    do_GET = do_POST = do_PUT = do_DELETE = _handle

    def _serve(self, request: Request, logged: Logged) -> Answer:
        answer = self.proxy.service.serve(request)
        logged.status = answer.status
        if logged.call is Call.LIST and answer.is_success:
            logged.listed = len(json.loads(answer.body).get("items", []))
            logged.ghosts = len(self._ghosts(request))
        return answer

    def _ghosts(self, request: Request) -> list[dict[str, Any]]:
        """Objects that a stale listing could still show."""
        _, bucket, prefix = self.proxy.service.name_call(request)
        deleted = dict(self.proxy.service.deleted)
        return [found for (where, name), found in deleted.items() if where == bucket and name.startswith(prefix)]

    def _serve_badly(self, request: Request, logged: Logged, fault: Fault) -> None:
        what = fault.what
        logged.hurt = True
        if what is What.FLIPPED_SENT:
            logged.hurt = bool(request.body)
            request = replace(request, body=_flip_sent(request))
        if what in MAY_COME_AFTER:
            if fault.after:
                self._serve(request, logged)
            if fault.meanwhile is not None:
                fault.meanwhile()
            if what is What.RESET:
                self._reset()
            else:
                self._send(_refusal(what))
            return
        answer = self._serve(request, logged)
        match what:
            case What.STALLED:
                self._send(answer, stall=True)
            case What.CUT:
                logged.hurt = bool(answer.body)
                self._send(answer, cut=True)
            case What.SLOW:
                self._send(answer, slow=True)
            case _:
                spoiled = self._spoil(what, answer, request, logged)
                logged.hurt = spoiled != answer if what is not What.FLIPPED_SENT else logged.hurt
                self._send(spoiled)

    def _spoil(self, what: What, answer: Answer, request: Request, logged: Logged) -> Answer:
        if not answer.is_success and what not in (What.SHORT, What.FLIPPED):
            return answer
        match what:
            case What.SHORT:
                return replace(answer, body=answer.body[: len(answer.body) // 2])
            case What.FLIPPED:
                at = len(answer.body) // 2 if logged.call in MEDIA else 0  # JSON that is none any more
                return replace(answer, body=_flip(answer.body, at))
            case What.WRONG_CRC if logged.call in MEDIA:
                return replace(answer, headers=answer.headers | {"x-goog-hash": "crc32c=AAAAAQ=="})
            case What.WRONG_CRC:
                return replace(answer, body=json.dumps(json.loads(answer.body) | {"crc32c": "AAAAAQ=="}).encode())
            case What.MISSING:
                return _without_newest(answer)
            case What.GHOST:
                return _with_more(answer, self._ghosts(request))
        return answer

    def _send(self, answer: Answer, *, slow: bool = False, stall: bool = False, cut: bool = False) -> None:
        body = answer.body
        if stall and not body:
            self._wait_for_hang_up()
            return
        self.send_response(answer.status)
        for key, value in answer.headers.items():
            self.send_header(key, value)
        if answer.status != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if slow:
            steps = [len(body) * step // SLOW_STEPS for step in range(SLOW_STEPS + 1)]
            for start, end in pairwise(steps):
                self.wfile.write(body[start:end])
                self.wfile.flush()
                if select.select([self.connection], [], [], SLOW_STEP_S)[0]:
                    break  # the client hung up
            return
        self.wfile.write(body[: len(body) // 2] if stall or cut else body)
        self.wfile.flush()
        if stall:
            self._wait_for_hang_up()
        elif cut:
            self.close_connection = True

    def _wait_for_hang_up(self) -> None:
        select.select([self.connection], [], [], STALL_S)
        self.close_connection = True

    def _reset(self) -> None:
        """Close the connection the hard way: the client sees ECONNRESET."""
        self.connection.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True


def _refusal(what: What) -> Answer:
    status = STATUS[what]
    headers = {"content-type": "application/json"} | ({"retry-after": "0"} if what is What.TOO_MANY else {})
    return Answer(status, headers, json.dumps({"error": {"code": status, "message": f"injected: {what}"}}).encode())


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x04]) + data[at + 1 :] if data else data


def _flip_sent(request: Request) -> bytes:
    """A byte of the content is flipped: in a multipart body it stands between the last empty line and the boundary."""
    if "multipart" not in request.headers.get("content-type", ""):
        return _flip(request.body, len(request.body) // 2)
    start = request.body.index(b"\r\n\r\n", request.body.index(b"\r\n\r\n") + 4) + 4
    end = request.body.rindex(b"\r\n--")
    return _flip(request.body, (start + end) // 2) if end > start else request.body


def _without_newest(answer: Answer) -> Answer:
    listing = json.loads(answer.body)
    items = listing.get("items", [])
    if items:
        items.remove(max(items, key=lambda item: int(item["generation"])))
    return _relist(answer, items)


def _with_more(answer: Answer, ghosts: list[dict[str, Any]]) -> Answer:
    items = json.loads(answer.body).get("items", []) + ghosts
    return _relist(answer, sorted(items, key=lambda item: item["name"]))


def _relist(answer: Answer, items: list[dict[str, Any]]) -> Answer:
    """The listing with these objects; the same answer where they are the same."""
    listing = json.loads(answer.body)
    if items == listing.get("items", []):
        return answer
    return replace(answer, body=json.dumps(listing | {"items": items}).encode())


@contextmanager
def serve_faults(host: str) -> Iterator[FaultProxy]:
    """A running proxy before the emulator at `host`, until the end of the block."""
    handler = type("_ProxyHandler", (_Handler,), {})
    try:
        with serve(handler) as port:
            url = f"http://127.0.0.1:{port}"
            proxy = FaultProxy(Service(host, url), url)
            handler.proxy = proxy  # type: ignore[attr-defined]
            yield proxy
    finally:
        with warnings.catch_warnings():  # here, and not in whatever test comes next: connections that requests left
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    assert not proxy.unknown, proxy.unknown
