"""The connection from the service: finds requests in its bytes, refuses what cannot be forwarded, keeps their order."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import cast

from collector.proxy.answers import HEALTH_PREFIX, Problem, health_answer, problem_answer
from collector.proxy.exchange import EVERY_REASON, PIPELINE, Exchange
from collector.proxy.heads import (
    END,
    PREFACE,
    ClientHead,
    HeadError,
    can_begin_request,
    has_bare_line_feed,
    read_request,
)
from collector.proxy.peer import is_held
from collector.proxy.plane import MOST_TURNED_AWAY, Plane, report_fault
from collector.proxy.prepared import Prepared, Remembered, prepare, remembered
from collector.proxy.routes import Destination
from collector.proxy.signed import SignedExchange, why_unsigned

HELD_BYTES = 64 * 1024  # of the next request, read ahead so that a client that leaves is noticed
LINGER = 2.0  # seconds in which the rest of a refused upload is read and dropped, so that the answer arrives
PAUSED_CHECK = 1.0  # seconds between looks whether a client that is not read is still there
HALF_CLOSE_CHECKS = (0.01, 0.05, 0.25)  # seconds between looks whether a client that finished sending is still there

TCP_ESTABLISHED = 1  # of the kernel's enum, as TCP_INFO tells it

# Every reason is of the catalogue's REFUSED_REASONS.
NO_ROUTE = Problem(404, "no_route", "no route of this semhealth sidecar leads to this path")
RESERVED = Problem(404, "no_route", "paths under /-/ belong to semhealth; it answers /-/healthz and /-/readyz")
HEAD_OVER_CAP = Problem(431, "head_over_cap", "the request's head is longer than proxy.max_head allows")
NOT_HTTP = Problem(400, "bad_request", "this is not HTTP/1.1; semhealth listens without TLS")
BARE_LINE_FEED = Problem(400, "bad_request", "a line of the request's head ends without a carriage return")
HTTP2 = Problem(505, "unsupported_protocol", "semhealth speaks HTTP/1.1 only: HTTP/2 and gRPC are not forwarded")
OVER_CONNECTIONS = Problem(503, "over_connections", "more connections than proxy.max_connections allows")
DRAINING = Problem(503, "draining", "this semhealth sidecar is shutting down")


class ClientConnection(asyncio.Protocol):
    """One connection of the service; at most one exchange at a time, requests behind it wait their turn."""

    __slots__ = (
        "_closing",
        "_eof",
        "_exchange",
        "_handling",
        "_idle_since",
        "_paused",
        "_paused_timer",
        "_plane",
        "_remembered",
        "_rest",
        "_searched",
        "_timer",
        "_transport",
        "_write",
        "blocked_since",
        "is_blocked",
    )

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._exchange: Exchange | None = None
        self._rest = b""  # bytes that belong to no exchange yet; at most max_head, or HELD_BYTES and one read
        self._searched = 0
        self._remembered: Remembered | None = None  # the last request
        self._paused = 0  # reasons, see exchange
        self._eof = False
        self._closing = False  # nothing more is answered; what arrives is dropped
        self._handling = False
        self._idle_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._paused_timer: asyncio.TimerHandle | None = None
        self.is_blocked = False
        self.blocked_since = 0.0

    # ------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plane = self._plane
        self._transport = cast(asyncio.Transport, transport)
        self._write = self._transport.write
        if len(plane.clients) >= plane.settings.max_connections:
            self._turn_away()
            return
        plane.clients.add(self)
        self._idle_since = plane.loop.time()
        self._watch_idleness(plane.settings.keep_alive)

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        try:
            if exchange is not None:
                exchange.from_client(data)
            elif not self._closing:
                self._rest += data
                self._read_requests()
        except Exception as error:  # noqa: BLE001 - the boundary of this connection: the worker lives on
            report_fault(error, "while reading a request")
            self.cut()

    def eof_received(self) -> bool:
        self._eof = True
        exchange = self._exchange
        if exchange is None:
            return False
        if not exchange.request_done or not self._is_held():
            exchange.client_gone()
            self._exchange = None
            self._transport.abort()
            return False
        exchange.client_finished()
        self._plane.loop.call_later(HALF_CLOSE_CHECKS[0], self._check_half_closed, exchange, 1)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._plane.clients.discard(self)
        self._plane.turned_away.discard(self)
        for timer in (self._timer, self._paused_timer):
            if timer is not None:
                timer.cancel()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.client_gone()

    def pause_writing(self) -> None:
        self.is_blocked = True
        self.blocked_since = self._plane.monotonic()
        if self._exchange is not None:
            self._exchange.client_blocked()

    def resume_writing(self) -> None:
        self.is_blocked = False
        if self._exchange is not None:
            self._exchange.client_unblocked(self.blocked_since)

    # ------------------------------------------------------------ what an exchange asks for

    def send(self, data: bytes) -> None:
        """Write to the client; dropped once it is gone, of which `connection_lost` tells."""
        if data and not self._transport.is_closing():
            self._write(data)

    def hold(self, data: bytes) -> None:
        """Keep bytes of the next request until this one is answered."""
        self._rest += data
        if len(self._rest) > HELD_BYTES:
            self.pause(PIPELINE)

    def take_held(self) -> bytes:
        """What was held: after an upgrade it belongs to the tunnel."""
        held, self._rest = self._rest, b""
        return held

    def pause(self, reason: int) -> None:
        """Read nothing until every reason is gone."""
        if not self._paused and not self._transport.is_closing():
            self._transport.pause_reading()
            if self._paused_timer is None:
                self._paused_timer = self._plane.loop.call_later(PAUSED_CHECK, self._check_paused)
        self._paused |= reason

    def resume(self, reason: int) -> None:
        """This reason is gone."""
        if not self._paused:
            return
        self._paused &= ~reason
        if not self._paused and not self._transport.is_closing() and not self._eof:
            self._transport.resume_reading()

    def finish_writing(self) -> None:
        """Send what is queued, then say that no more comes."""
        if not self._transport.is_closing():
            self._transport.write_eof()

    def exchange_over(self, *, keep: bool, linger: bool = False) -> None:
        """The answer is written. Go on with the next request, or close; `linger` if the client may still be sending."""
        self._exchange = None
        if not keep:
            self._close(linger=linger)
            return
        self._idle_since = self._plane.loop.time()
        if self._paused:
            self.resume(EVERY_REASON)
        if not self._handling:
            if self._rest or self._eof:
                self._read_requests()
            if self._plane.heir is not None:
                self._plane.loop.call_soon(self.give_way)  # once the answer has been written

    def break_off(self, *, reset: bool) -> None:
        """Close with the answer unfinished, so that the client sees it was; what was written still goes out."""
        self._exchange = None
        self._closing = True
        if self._transport.is_closing():
            return
        if reset:
            # A closed socket that does not linger resets its peer instead of ending well.
            connection = self._transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.close()
        self._watch_closing(self._plane.settings.keep_alive)

    # ------------------------------------------------------------ what the worker asks for

    def is_flushed(self) -> bool:
        """Whether the kernel has taken all that was written."""
        return self._transport.is_closing() or self._transport.get_write_buffer_size() == 0

    def give_way(self) -> None:
        """Hand the connection on to the heir, where nothing is under way on it and the kernel has all that was said."""
        heir, transport = self._plane.heir, self._transport
        is_busy = self._exchange is not None or self._handling or bool(self._rest) or transport.is_closing()
        if heir is None or is_busy or self._closing or self._eof or transport.get_write_buffer_size():
            return
        transport.pause_reading()  # what arrives from now on is the heir's to read
        if heir.takes(transport.get_extra_info("socket").fileno()):
            self._closing = True
            transport.abort()  # closes our descriptor; the connection lives in the other one
        else:
            transport.resume_reading()

    def drain(self) -> None:
        """Close once the current answer is done; at once when there is none."""
        if self._exchange is None and not self._closing:
            self._close(linger=False)

    def cut(self) -> None:
        """Close now, whatever goes on."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.cut()
        self._closing = True
        self._transport.abort()

    # ------------------------------------------------------------ requests

    def _read_requests(self) -> None:
        """Begin the requests that are complete, one at a time."""
        self._handling = True
        try:
            while self._exchange is None and not self._closing and self._rest:
                if not self._read_request():
                    break
        finally:
            self._handling = False
        if self._eof and self._exchange is None and not self._closing:
            self._close(linger=False)

    def _read_request(self) -> bool:
        """Take one request off the held bytes; False when its head is not complete."""
        rest = self._rest
        if rest[0] in b"\r\n":
            rest = rest.lstrip(b"\r\n")  # an empty line before a request is passed over (RFC 9112, 2.2)
            self._rest = rest
            if not rest:
                return False
        end = rest.find(END, self._searched) + len(END)
        if not len(END) <= end <= self._plane.settings.max_head:
            return self._wait_for_head(rest)
        self._searched = 0
        self._rest = b""
        raw, rest = rest[:end], rest[end:]
        last = self._remembered
        asked = None if last is None or self._plane.draining else last.again(raw)
        if asked is not None:
            self._begin(asked, rest)
            return True
        try:
            head = read_request(raw)
        except HeadError as error:
            return self._refuse(Problem(error.status, error.reason, error.message), error.reason)
        self._receive(head, rest)
        return True

    def _wait_for_head(self, rest: bytes) -> bool:
        """Read on, unless what came so far can never become a head that is forwarded."""
        if not can_begin_request(rest[0]):
            return self._refuse(NOT_HTTP, "bad_request")
        if rest.startswith(PREFACE):
            return self._refuse(HTTP2, "unsupported_protocol")
        if len(rest) > self._plane.settings.max_head:
            return self._refuse(HEAD_OVER_CAP, "head_over_cap")
        if has_bare_line_feed(rest):
            return self._refuse(BARE_LINE_FEED, "bad_request")
        self._searched = max(0, len(rest) - 3)
        return False

    def _receive(self, head: ClientHead, rest: bytes) -> None:
        """A request that was read: find out who is to have it."""
        plane = self._plane
        if head.target.startswith(HEALTH_PREFIX):
            self._answer_health(head, rest)
            return
        destination = plane.routes.find(head.target)
        if destination is None:
            self._refuse(NO_ROUTE, "no_route", bodyless=head.method == b"HEAD")
        elif plane.draining:
            self._refuse(DRAINING, "draining", bodyless=head.method == b"HEAD")
        elif destination.sign is not None:
            self._begin_signed(head, destination, rest)
        else:
            asked = prepare(head, destination, rewrites_trace=plane.settings.trace_parent)
            self._begin(asked, rest)
            self._remembered = remembered(asked)

    def _begin(self, asked: Prepared, rest: bytes) -> None:
        self._exchange = exchange = Exchange(self._plane, self, asked)
        exchange.begin(rest)

    def _begin_signed(self, head: ClientHead, destination: Destination, rest: bytes) -> None:
        problem = why_unsigned(self._plane, head)
        if problem is None:
            asked = prepare(head, destination, rewrites_trace=self._plane.settings.trace_parent)
            self._exchange = SignedExchange(self._plane, self, asked)
            self._exchange.begin(rest)
        else:
            self._refuse(problem, problem.type, bodyless=head.method == b"HEAD")

    def _answer_health(self, head: ClientHead, rest: bytes) -> None:
        ready = not self._plane.draining
        close = head.wants_close or head.framing != "none" or not ready
        bodyless = head.method == b"HEAD"
        answer = health_answer(head.target, ready=ready, bodyless=bodyless, close=close)
        if answer is None or head.method not in (b"GET", b"HEAD"):
            self._refuse(RESERVED, "no_route", bodyless=bodyless)
            return
        self.send(answer)
        if close:
            self._close(linger=head.framing != "none")
        else:
            self._idle_since = self._plane.loop.time()
            self._rest = rest

    def _refuse(self, problem: Problem, reason: str, *, bodyless: bool = False) -> bool:
        """Answer a request that is not forwarded, and close: where the next one begins may be unknown."""
        self._plane.refused[reason] += 1
        self.send(problem_answer(problem, bodyless=bodyless, close=True))
        self._close(linger=True)
        return False

    def _turn_away(self) -> None:
        plane = self._plane
        if len(plane.turned_away) < MOST_TURNED_AWAY:
            plane.turned_away.add(self)
            self._refuse(OVER_CONNECTIONS, "over_connections")
        else:
            plane.refused["over_connections"] += 1
            self._closing = True
            self._transport.abort()

    # ------------------------------------------------------------ closing

    def _close(self, *, linger: bool) -> None:
        self._closing = True
        self._rest = b""
        if self._transport.is_closing():
            return
        if linger and not self._eof:
            self.resume(EVERY_REASON)
            self._transport.write_eof()
            self._watch_closing(LINGER)
        else:
            self._transport.close()
            self._watch_closing(self._plane.settings.keep_alive)

    def _watch_closing(self, patience: float) -> None:
        """A client that takes nothing for so long is not waited for."""
        if self._timer is not None:
            self._timer.cancel()
        left = self._transport.get_write_buffer_size()
        self._timer = self._plane.loop.call_later(patience, self._check_closing, patience, left)

    def _check_closing(self, patience: float, before: int) -> None:
        if 0 < self._transport.get_write_buffer_size() < before:
            self._watch_closing(patience)
        else:
            self._transport.abort()

    def _watch_idleness(self, patience: float) -> None:
        self._timer = self._plane.loop.call_later(patience, self._check_idleness)

    def _check_idleness(self) -> None:
        """Close a connection on which no request became complete for `keep_alive` seconds."""
        keep_alive = self._plane.settings.keep_alive
        left = keep_alive
        if self._exchange is None:
            left = self._idle_since + keep_alive - self._plane.loop.time()
            if left <= 0:
                self._close(linger=False)
                return
        self._watch_idleness(max(left, 0.01))

    def _check_half_closed(self, exchange: Exchange, step: int) -> None:
        """A client that finished sending waits for its answer; one that closed since then does not."""
        if self._exchange is not exchange:
            exchange_now = self._exchange
            if exchange_now is None or self._closing:
                return
            exchange = exchange_now
        if self._is_held():
            delay = HALF_CLOSE_CHECKS[min(step, len(HALF_CLOSE_CHECKS) - 1)]
            self._plane.loop.call_later(delay, self._check_half_closed, exchange, step + 1)
        else:
            self._exchange = None
            exchange.client_gone()
            self._transport.abort()

    def _check_paused(self) -> None:
        """The end of a client that is not read goes unseen by the loop; the kernel knows of it."""
        self._paused_timer = None
        exchange = self._exchange
        if not self._paused or exchange is None or self._transport.is_closing():
            return
        connection = self._transport.get_extra_info("socket")
        state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        # Who closed a tunnel may have sent more than has been read: its end is seen after that.
        if state != TCP_ESTABLISHED and not exchange.is_tunnel and not self._is_held():
            self._exchange = None
            exchange.client_gone()
            self._transport.abort()
        else:
            self._paused_timer = self._plane.loop.call_later(PAUSED_CHECK, self._check_paused)

    def _is_held(self) -> bool:
        peer = self._transport.get_extra_info("peername")
        own = self._transport.get_extra_info("sockname")
        return bool(peer and own) and is_held(peer[:2], own[:2])
