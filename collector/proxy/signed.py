"""A request that is signed anew: held until its body is complete, since the signature covers it."""

from __future__ import annotations

import re

from collector.model import HowEnded
from collector.proxy.answers import Problem
from collector.proxy.exchange import Client, Exchange
from collector.proxy.heads import ClientHead
from collector.proxy.plane import Plane
from collector.proxy.prepared import Prepared
from collector.proxy.upstream_side import UpstreamConnection

MAX_BODY = 4 * 1024 * 1024  # bytes of a body that is held to be signed
MAX_HELD = 64 * 1024 * 1024  # bytes of all such bodies of one worker

# Every type is of the catalogue's REFUSED_REASONS.
WITHOUT_LENGTH = Problem(411, "bad_request", "a request that semhealth signs has to state its length")
TOO_LONG = Problem(413, "body_over_cap", "the request's body is longer than the 4 MiB that semhealth holds to sign it")
TOO_MANY = Problem(503, "body_over_cap", "semhealth holds as many bytes to sign as it may; try again in a moment")

_EXPECT = re.compile(rb"\r\nexpect:[^\r]*", re.IGNORECASE)
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def why_unsigned(plane: Plane, head: ClientHead) -> Problem | None:
    """Why a request cannot be held to be signed; None where it can."""
    if head.framing == "chunked":
        return WITHOUT_LENGTH
    if head.length > MAX_BODY:
        return TOO_LONG
    return TOO_MANY if plane.held + head.length > MAX_HELD else None


class SignedExchange(Exchange):
    """An exchange whose request goes on when its last byte has come."""

    __slots__ = ("_held", "_pieces", "_unsigned")

    def __init__(self, plane: Plane, client: Client, asked: Prepared) -> None:
        super().__init__(plane, client, asked)
        self._unsigned: bytes | None = None  # the head, while it waits for its body
        self._pieces: list[bytes] = []
        self._held = asked.length
        plane.held += self._held

    def from_client(self, data: bytes) -> None:
        super().from_client(data)
        if self._unsigned is not None and self.request_done and not self._ended:
            head, self._unsigned = self._unsigned, None
            body = b"".join(self._pieces)
            self._pieces = []
            self._added -= self._plane.monotonic() - self._seen_at  # the client took that time
            self._sign(head, body)

    def _launch(self, head: bytes, body: bytes) -> None:
        if _EXPECT.search(head) is not None:  # the upstream's leave would come too late
            head = _EXPECT.sub(b"", head)
            if not self.request_done:
                self._client.send(_CONTINUE)
        if self.request_done:
            self._sign(head, body)
        else:
            self._unsigned, self._pieces = head, [body]

    def _sign(self, head: bytes, body: bytes) -> None:
        sign = self.destination.sign
        assert sign is not None  # noqa: S101 - only such exchanges are signed
        super()._launch(sign(head, body, self._plane.clock.wall()), body)

    def _keep(self, data: bytes) -> None:
        if self._unsigned is not None:
            self._pieces.append(data)
        else:
            super()._keep(data)

    def _attach(self, upstream: UpstreamConnection) -> None:
        super()._attach(upstream)
        self._release()

    def _end(self, how: HowEnded, *, status: int | None = None, keep_upstream: bool = False) -> None:
        super()._end(how, status=status, keep_upstream=keep_upstream)
        self._unsigned, self._pieces = None, []
        self._release()

    def _release(self) -> None:
        self._plane.held -= self._held
        self._held = 0
