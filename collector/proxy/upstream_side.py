"""The connection to an upstream: hands what it reads to the exchange that uses it, or to none, and is dropped."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, cast

from collector.proxy.plane import Plane, report_fault
from collector.proxy.routes import Origin

if TYPE_CHECKING:
    from collector.proxy.exchange import Exchange

KEEP_ALIVE_IDLE = 60  # seconds without a byte, after which the kernel asks whether the other side is still there
KEEP_ALIVE_INTERVAL = 15
KEEP_ALIVE_PROBES = 4


class UpstreamConnection(asyncio.Protocol):
    """One connection; `exchange` is None while it waits in the pool."""

    __slots__ = ("_paused", "_plane", "_transport", "exchange", "idle_since", "is_full", "origin", "write")

    def __init__(self, plane: Plane, origin: Origin) -> None:
        self._plane = plane
        self.origin = origin
        self.exchange: Exchange | None = None
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

    def eof_received(self) -> None:
        exchange = self.exchange
        if exchange is None:
            self._plane.pool.forget(self)
        else:
            exchange.upstream_closed(reset=False)
        self._transport.abort()

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

    def abort(self) -> None:
        """Close at once, dropping what was not sent."""
        self._transport.abort()


async def connect(plane: Plane, origin: Origin) -> UpstreamConnection:
    """A new connection; the name is looked up each time. OSError, or TimeoutError after `connect_timeout`."""
    async with asyncio.timeout(plane.settings.connect_timeout):
        is_tls = origin.scheme == "https"
        _, connection = await plane.loop.create_connection(
            lambda: UpstreamConnection(plane, origin),
            origin.host,
            origin.port,
            ssl=plane.tls if is_tls else None,
            server_hostname=origin.host if is_tls else None,
        )
    return connection


def keep_alive(connection: socket.socket) -> None:
    """Let the kernel find out about a peer that vanished, since no stream has a time-out of ours."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_IDLE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEP_ALIVE_INTERVAL)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEP_ALIVE_PROBES)
