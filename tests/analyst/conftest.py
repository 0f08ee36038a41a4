"""Exchanges played through the fold."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from collector.analyst.accumulate import digest_of
from collector.analyst.answer import Limits
from collector.analyst.fold import ExchangeFold, RouteFacts, Rules
from collector.app import DIALECTS
from collector.measures.cost import Tables
from collector.model import (
    BytesSeen,
    ClientBlocked,
    Exchange,
    ExchangeEnded,
    HowEnded,
    RequestSeen,
    ResponseSeen,
)

WALL = 1_787_150_000.0  # when every exchange begins, in Unix seconds
CHAT = "POST /v1/chat/completions HTTP/1.1\r\nHost: api.example\r\nContent-Type: application/json\r\n"
MESSAGES = "POST /v1/messages HTTP/1.1\r\nHost: api.example\r\nContent-Type: application/json\r\n"


def rules(limits: Limits | None = None, prices: Tables = ()) -> Rules:
    return Rules(DIALECTS, limits if limits is not None else Limits(), digest_of("sha256", b""), prices)


Piece = bytes | tuple[float, bytes]  # response bytes, 0.01 s after what came before or the time given


def fold(
    pieces: Iterable[Piece] = (),
    *,
    request: str = CHAT,
    body: bytes = b'{"model":"asked"}',
    head: str | None = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n",
    how: HowEnded = "complete",
    host: str = "api.example",
    limits: Limits | None = None,
    blocked: Iterable[tuple[int, float]] = (),
    status: int | None = None,
    prices: Tables = (),
) -> Exchange:
    """One exchange: forwarded at 1.0 s, answered at 1.1 s. `blocked` are (before the piece of this number, seconds)."""
    at, waits = 1.1, dict(blocked)
    played = ExchangeFold(
        "x", RequestSeen(1, 0.9, WALL, "r", f"{request}\r\n".encode()), RouteFacts("r", host), rules(limits, prices)
    )
    played.bytes_seen(BytesSeen(1, 0.95, False, body))
    if head is not None:
        played.response_seen(ResponseSeen(1, at, 1.0, 0.02, f"{head}\r\n".encode("latin-1")))
    for number, piece in enumerate(pieces):
        if number in waits:
            at += waits[number]
            played.client_blocked(ClientBlocked(1, at, waits[number]))
        after, data = piece if isinstance(piece, tuple) else (0.01, piece)
        at += after
        played.bytes_seen(BytesSeen(1, at, True, data))
    return played.ended(ExchangeEnded(1, at + 0.5, how, 0.0001, status, 1.0, 0.02))


Fold = Callable[..., Exchange]


@pytest.fixture(scope="session")
def play() -> Fold:
    return fold
