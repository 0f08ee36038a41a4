"""An ASGI application that says back what it was asked, for uvicorn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """`/chunks` streams, `/status/N` answers with it, `/large` gives 1 MiB; else the request is told as JSON."""
    if scope["type"] == "websocket":
        await _talk(scope, receive, send)
    elif scope["type"] == "http":
        await _answer(scope, receive, send)


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    path: str = scope["path"]
    if path == "/chunks":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for number in range(20):
            await send({"type": "http.response.body", "body": b"data: %d\n\n" % number, "more_body": True})
            await asyncio.sleep(0.002)
        await send({"type": "http.response.body"})
        return
    told = {
        "method": scope["method"],
        "raw_path": scope["raw_path"].decode("latin-1"),
        "query": scope["query_string"].decode("latin-1"),
        "version": scope["http_version"],
        "headers": [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]],
        "bytes": len(body),
    }
    said = b"x" * (1 << 20) if path == "/large" else json.dumps(told).encode()
    status = int(path.rpartition("/")[2]) if path.startswith("/status/") else 200
    if status in (204, 304):
        said = b""
    headers = [(b"X-Odd-CASE", b"1"), (b"x-twice", b"1"), (b"x-twice", b"2")]
    if status not in (204, 304):
        headers.append((b"content-length", b"%d" % len(said)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": said})


async def _talk(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    subprotocol = scope["subprotocols"][0] if scope["subprotocols"] else None
    await send({"type": "websocket.accept", "subprotocol": subprotocol})
    while (message := await receive())["type"] == "websocket.receive":
        if message.get("text") == "close":
            await send({"type": "websocket.close", "code": 4321, "reason": "as asked"})
            return
        await send({"type": "websocket.send", "text": message.get("text"), "bytes": message.get("bytes")})
