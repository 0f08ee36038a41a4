"""The connection to an upstream: hands what it reads to the exchange that uses it, or to none, and is dropped."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, cast

from collector.forward_proxy import ForwardProxy
from collector.proxy.outbound import dial, tunnel
from collector.proxy.plane import Plane, report_fault
from collector.proxy.routes import Origin

if TYPE_CHECKING:
    from collector.proxy.exchange import Exchange

KEEP_ALIVE_IDLE = 60  # seconds without a byte, after which the kernel asks whether the other side is still there
KEEP_ALIVE_INTERVAL = 15
KEEP_ALIVE_PROBES = 4
CLOSING_PATIENCE = 30.0  # seconds in which an upstream may take what its client sent into a tunnel before it left


class UpstreamConnection(asyncio.Protocol):
    """One connection; `exchange` is None while it waits in the pool."""

    __slots__ = ("_paused", "_plane", "_transport", "exchange", "idle_since", "is_full", "opened_at", "origin", "write")

    def __init__(self, plane: Plane, origin: Origin) -> None:
        self._plane = plane
        self.origin = origin
        self.exchange: Exchange | None = None
        self.opened_at = plane.loop.time()
        self.idle_since = 0.0
        self.is_full = False  # it does not take more bytes at the moment
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.write = self._transport.write
        keep_alive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            self._plane.pool.forget(self)
            self._transport.abort()
            return
        try:
            exchange.from_upstream(data)
        except Exception as error:  # noqa: BLE001 - the boundary of this connection: the worker lives on
            report_fault(error, f"on route {exchange.destination.route}")
            exchange.cut()

    def eof_received(self) -> bool:
        exchange = self.exchange
        if exchange is None:
            self._plane.pool.forget(self)
        elif self._transport.can_write_eof() and exchange.upstream_finished():
            return True  # it stays open for what the client still says; TLS knows no such state
        else:
            exchange.upstream_closed(reset=False)
        self._transport.abort()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        exchange = self.exchange
        if exchange is None:
            self._plane.pool.forget(self)
        else:
            exchange.upstream_closed(reset=exc is not None)

    def pause_writing(self) -> None:
        self.is_full = True
        if self.exchange is not None:
            self.exchange.upstream_full()

    def resume_writing(self) -> None:
        self.is_full = False
        if self.exchange is not None:
            self.exchange.upstream_drained()

    def pause(self) -> None:
        """Read nothing until `resume`."""
        if not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def finish_writing(self) -> None:
        """Send what is queued, then say that no more comes (for a tunnel)."""
        if not self._transport.is_closing() and self._transport.can_write_eof():
            self._transport.write_eof()

    def is_usable(self) -> bool:
        return not self._transport.is_closing()

    def close(self) -> None:
        """Close once what was written is sent, for which there are CLOSING_PATIENCE seconds."""
        if not self._transport.is_closing():
            self._transport.close()
            self._plane.loop.call_later(CLOSING_PATIENCE, self._transport.abort)

    def abort(self) -> None:
        """Close at once, dropping what was not sent."""
        self._transport.abort()


async def connect(plane: Plane, origin: Origin) -> UpstreamConnection:
    """A new connection; the name is looked up each time. OSError, or TimeoutError after `connect_timeout`."""
    tls = plane.tls if origin.scheme == "https" else None
    async with asyncio.timeout(plane.settings.connect_timeout):
        if origin.proxy is not None:
            return await _connect_through(plane, origin, origin.proxy, tls)
        _, connection = await plane.loop.create_connection(
            lambda: UpstreamConnection(plane, origin),
            origin.host,
            origin.port,
            ssl=tls,
            server_hostname=None if tls is None else origin.host,
        )
    return connection


async def _connect_through(
    plane: Plane, origin: Origin, proxy: ForwardProxy, tls: ssl.SSLContext | None
) -> UpstreamConnection:
    loop = plane.loop
    through = await (dial(loop, proxy) if tls is None else tunnel(loop, proxy, origin.host, origin.port))
    try:
        _, connection = await loop.create_connection(
            lambda: UpstreamConnection(plane, origin),
            sock=through,
            ssl=tls,
            server_hostname=None if tls is None else origin.host,
        )
    except BaseException:
        through.close()
        raise
    return connection


def keep_alive(connection: socket.socket) -> None:
    """Let the kernel find out about a peer that vanished, since no stream has a time-out of ours."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_IDLE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEP_ALIVE_INTERVAL)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEP_ALIVE_PROBES)
