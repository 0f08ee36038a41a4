"""Load for the benchmarks: keep-alive connections that ask, wait for the end of the answer, and time what they read."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Self

from msgspec import Struct

from bench.upstream import STAMP

BODY = b'{"model":"bench","stream":false,"messages":[{"role":"user","content":"hello there, how are you"}]}'
STREAM_BODY = BODY.replace(b"false", b"true")
LARGE_BODY = BODY.replace(b"hello", b"hello " * 350_000)  # 2 MB
# The lines that the official Python client sends.
REQUEST_LINES = (
    b"Host: bench\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\nAccept: application/json\r\n"
    b"Content-Type: application/json\r\nUser-Agent: OpenAI/Python 1.99.0\r\nX-Stainless-Lang: python\r\n"
    b"X-Stainless-Package-Version: 1.99.0\r\nX-Stainless-OS: Linux\r\nX-Stainless-Arch: x64\r\n"
    b"X-Stainless-Runtime: CPython\r\nX-Stainless-Runtime-Version: 3.11.2\r\nAuthorization: Bearer sk-bench\r\n"
    b"X-Stainless-Async: false\r\nx-stainless-retry-count: 0\r\nx-stainless-read-timeout: 600\r\n"
)
DEADLINE = 180.0  # seconds for one measurement

_STAMPED = re.compile(STAMP + rb"([0-9]{9,})")


class Timed(Struct):
    """What one load saw, in seconds: to the first byte of a body, to the end, and from write to read of each frame."""

    first: list[float]
    whole: list[float]
    chunks: list[float]
    elapsed: float = 0.0


class Client(asyncio.Protocol):
    """One connection. `chunks` grows with the delay of each frame that carries the time it was written."""

    def __init__(self, chunks: list[float]) -> None:
        self._chunks = chunks
        self._done: asyncio.Future[tuple[float, float]] | None = None
        self._first: float | None = None
        self._tail = b""
        self._want = -1
        self._got = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment] # a TCP transport

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if self._done is None:
            return
        if self._want < 0 and STAMP in data:
            self._chunks += [(now - int(written)) / 1e9 for written in _STAMPED.findall(data)]
        if not self._got:
            self._read_head(data)
        if self._first is None and (self._want >= 0 or b"data:" in data):
            self._first = now / 1e9
        self._got += len(data)
        if self._want < 0:
            self._tail = (self._tail + data)[-5:]
        if self._got == self._want or self._tail == b"0\r\n\r\n":
            done, self._done = self._done, None
            done.set_result((now / 1e9 if self._first is None else self._first, now / 1e9))

    def _read_head(self, data: bytes) -> None:
        head = data.split(b"\r\n\r\n", 1)[0]
        if not head.startswith(b"HTTP/1.1 200"):
            raise ConnectionError(f"the target answered {head[:40]!r}")
        at = head.lower().find(b"content-length:")
        self._want = int(head[at + 15 :].split(b"\r\n", 1)[0]) + len(head) + 4 if at >= 0 else -1

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError("the target closed the connection"))

    async def ask(self, request: bytes) -> tuple[float, float]:
        """Seconds to the first byte of the body and to its end."""
        self._done = asyncio.get_running_loop().create_future()
        self._first, self._tail, self._got, self._want = None, b"", 0, -1
        began = time.monotonic()
        self.transport.write(request)
        first, end = await self._done
        return first - began, end - began


def request(path: str, body: bytes) -> bytes:
    """A request as the official Python client writes it."""
    return b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (path.encode(), REQUEST_LINES, len(body), body)


async def load(port: int, raw: bytes, clients: int, each: int, spread: float = 0.0) -> Timed:
    """`clients` connections that ask `each` times one after another, begun within `spread` seconds."""
    loop = asyncio.get_running_loop()
    timed = Timed([], [], [])

    async def one(number: int) -> None:
        _, client = await loop.create_connection(lambda: Client(timed.chunks), "127.0.0.1", port)
        try:
            await asyncio.sleep(spread * number / clients)
            for _ in range(each):
                first, whole = await client.ask(raw)
                timed.first.append(first)
                timed.whole.append(whole)
        finally:
            client.transport.close()

    async with asyncio.timeout(DEADLINE):
        began = time.monotonic()
        await asyncio.gather(*(one(number) for number in range(clients)))
        timed.elapsed = time.monotonic() - began
    return timed


class IdleStreams:
    """Streams that were begun and say nothing more, as a context."""

    def __init__(self, port: int, raw: bytes, number: int) -> None:
        self._port = port
        self._raw = raw
        self._number = number
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        for _ in range(self._number):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            self._writers.append(writer)
            writer.write(self._raw)
            await reader.readuntil(STAMP)
        return self

    async def __aexit__(self, *_: object) -> None:
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0.2)
