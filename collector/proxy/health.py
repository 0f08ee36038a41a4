"""The health port: `/-/healthz` and `/-/readyz`, and nothing else."""

from __future__ import annotations

import asyncio
from typing import cast

from collector.proxy.answers import Problem, health_answer, problem_answer
from collector.proxy.heads import END, HeadError, read_request
from collector.proxy.plane import Plane

MAX_HEAD = 8192
PATIENCE = 5.0  # seconds in which a probe sends its request

NOTHING_HERE = Problem(404, "not_found", "this port of semhealth answers /-/healthz and /-/readyz")
NOT_READABLE = Problem(400, "bad_request", "this is no request for a health check")


class HealthConnection(asyncio.Protocol):
    """One probe: a request, an answer, closed."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._timer = self._plane.loop.call_later(PATIENCE, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        self._received += data
        end = self._received.find(END)
        if end >= 0:
            self._transport.write(self._answer(self._received[: end + len(END)]))
            self._transport.close()
        elif len(self._received) > MAX_HEAD:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()

    def _answer(self, raw: bytes) -> bytes:
        try:
            head = read_request(raw)
        except HeadError:
            return problem_answer(NOT_READABLE, close=True)
        bodyless = head.method == b"HEAD"
        answer = None
        if head.method in (b"GET", b"HEAD"):
            answer = health_answer(head.target, ready=not self._plane.draining, bodyless=bodyless, close=True)
        return problem_answer(NOTHING_HERE, bodyless=bodyless, close=True) if answer is None else answer
