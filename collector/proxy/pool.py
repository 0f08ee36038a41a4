"""Idle upstream connections, kept for the next request; the last one put back is the first one taken."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol, TypeVar, cast

from collector.proxy.routes import Origin


class Idle(Protocol):
    """A connection that nobody uses at the moment."""

    origin: Origin
    opened_at: float
    idle_since: float

    def is_usable(self) -> bool: ...
    def abort(self) -> None: ...


Connection = TypeVar("Connection", bound=Idle)


class Pool:
    """At most `size` idle connections per origin, each for at most `idle` seconds, and none older than `age`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, size: int, idle: float, age: float) -> None:
        self._loop = loop
        self._size = size
        self._idle = idle
        self._age = age
        self._kept: dict[Origin, deque[Idle]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def take(self, origin: Origin, kind: type[Connection]) -> Connection | None:
        """The connection that was idle for the shortest time, or None."""
        kept = self._kept.get(origin)
        while kept:
            connection = kept.pop()
            if connection.is_usable() and self._loop.time() - connection.idle_since < self._idle:
                return cast(Connection, connection)  # one pool holds one kind
            connection.abort()
        return None

    def put(self, connection: Idle) -> None:
        """Keep a connection; the one idle for longest makes room."""
        now = self._loop.time()
        if self._size == 0 or now - connection.opened_at >= self._age:
            connection.abort()
            return
        connection.idle_since = now
        kept = self._kept.get(connection.origin)
        if kept is None:
            kept = self._kept[connection.origin] = deque()
        elif len(kept) >= self._size:
            kept.popleft().abort()
        kept.append(connection)
        if self._timer is None:
            self._timer = self._loop.call_later(self._idle, self._expire)

    def forget(self, connection: Idle) -> None:
        """Its upstream closed it, or sent what nobody asked for."""
        kept = self._kept.get(connection.origin)
        if kept is not None and connection in kept:
            kept.remove(connection)

    def close(self) -> None:
        """Close all, and keep none from now on."""
        self._size = 0
        if self._timer is not None:
            self._timer.cancel()
        for kept in self._kept.values():
            while kept:
                kept.pop().abort()

    def _expire(self) -> None:
        now = self._loop.time()
        for kept in self._kept.values():
            while kept and now - kept[0].idle_since >= self._idle:
                kept.popleft().abort()
        oldest = [kept[0].idle_since for kept in self._kept.values() if kept]
        self._timer = self._loop.call_later(min(oldest) + self._idle - now, self._expire) if oldest else None
