"""Small hand-written answers of each dialect, and what a whole exchange with one comes to."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from collector.analyst.accumulate import digest_of
from collector.analyst.fold import ExchangeFold, RouteFacts, Rules
from collector.app import DIALECTS
from collector.model import BytesSeen, Delta, Exchange, ExchangeEnded, RequestSeen, ResponseSeen, TextPiece

from ..wire.event_messages import event  # noqa: TID252 - the root is not on the path of plain pytest

RULES = Rules(DIALECTS, new_digest=digest_of("sha256", b""))
EVENT_STREAM = "application/vnd.amazon.eventstream"


def to_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def sse(*payloads: Any, names: bool = False) -> bytes:
    """Server-sent events; with `names`, payloads are pairs of an event's name and its data."""
    if names:
        return b"".join(b"event: %s\ndata: %s\n\n" % (name.encode(), to_bytes(data)) for name, data in payloads)
    return b"".join(b"data: %s\r\n\r\n" % to_bytes(payload) for payload in payloads)


def lines(*payloads: Any) -> bytes:
    return b"".join(to_bytes(payload) + b"\n" for payload in payloads)


def chunks(*payloads: Any) -> bytes:
    """What a model says in Bedrock's invoke streams: base64 in events of type `chunk`."""
    return b"".join(
        event("chunk", json.dumps({"bytes": b64encode(to_bytes(payload)).decode(), "p": "abc"}).encode())
        for payload in payloads
    )


def events(*named: tuple[str, Any]) -> bytes:
    """Converse's events."""
    return b"".join(event(name, to_bytes(payload)) for name, payload in named)


def exchange(
    path: str,
    *pieces: bytes,
    kind: str = "application/json",
    host: str = "api.example.test",
    request: Any = None,
    status: int = 200,
    headers: tuple[str, ...] = (),
    method: str = "POST",
    provider: str | None = None,
) -> Exchange:
    """One exchange whose response body comes in these pieces."""
    seen = RequestSeen(1, 0.0, 0.0, "r", f"{method} {path} HTTP/1.1\r\n\r\n".encode())
    fold = ExchangeFold("x", seen, RouteFacts("r", host, None, provider), RULES)
    if request is not None:
        fold.bytes_seen(BytesSeen(1, 0.0, False, to_bytes(request)))
    told = "".join(f"{line}\r\n" for line in (f"content-type: {kind}", *headers))
    fold.response_seen(ResponseSeen(1, 0.1, 0.0, None, f"HTTP/1.1 {status} \r\n{told}\r\n".encode()))
    for number, piece in enumerate(pieces):
        fold.bytes_seen(BytesSeen(1, 0.2 + number / 1000, True, piece))
    return fold.ended(ExchangeEnded(1, 9.0, "complete", 0.0))


def as_delta(said: Delta | TextPiece) -> Delta:
    """What a frame said in the one form, be it told as a bare piece of text or not."""
    return Delta(text=(said,)) if isinstance(said, TextPiece) else said
