"""A worker on loopback with a scripted upstream on one side, raw clients on the other, and an analyst that listens."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from collector.config import Proxy, Route, Settings
from collector.model import (
    Acknowledged,
    BytesSeen,
    ClientBlocked,
    Event,
    ExchangeDropped,
    ExchangeEnded,
    ProxyVitals,
    RequestSeen,
    ResponseSeen,
    decode_events,
    encode_acknowledged,
)
from collector.proxy.worker import Worker

PATIENCE = 10.0  # seconds after which a test gives up waiting

Serve = Callable[["Peer"], Awaitable[None]]


class Peer:
    """One raw TCP connection, read and written as a test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *pieces: bytes, pause: float = 0.0) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(pause)

    async def send_bytewise(self, data: bytes) -> None:
        """Each byte in a segment of its own, as far as the kernel lets it."""
        for at in range(len(data)):
            self.writer.write(data[at : at + 1])
            await asyncio.sleep(0)

    async def until(self, end: bytes) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(end), PATIENCE)

    async def head(self) -> bytes:
        return await self.until(b"\r\n\r\n")

    async def exactly(self, size: int) -> bytes:
        return await asyncio.wait_for(self.reader.readexactly(size), PATIENCE)

    async def everything(self) -> bytes:
        """All bytes until the other side ends well; ConnectionError if it resets."""
        return await asyncio.wait_for(self.reader.read(), PATIENCE)

    async def request(self) -> tuple[bytes, bytes]:
        """One request with a stated length or none: head and body."""
        head = await self.head()
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line[15:])
        return head, await self.exactly(length)

    def finish(self) -> None:
        self.writer.write_eof()

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        connection = self.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def is_gone(self) -> bool:
        """Whether the other side went away within the test's patience."""
        try:
            while await asyncio.wait_for(self.reader.read(65536), PATIENCE):
                pass
        except ConnectionError:
            return True
        return True


class Upstream:
    """Serves each connection with what the test scripted; `connections` are all that came."""

    def __init__(self, serve: Serve) -> None:
        self.serve = serve
        self.connections: list[Peer] = []
        self.failure: BaseException | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, **options: object) -> None:
        options = {"host": "127.0.0.1", "port": 0, **options}
        self._server = await asyncio.start_server(self._accept, limit=1 << 24, **options)

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        self.connections.append(peer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self.serve(peer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        except AssertionError as failure:
            self.failure = failure
        finally:
            writer.close()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.failure is not None:
            raise self.failure


class Analyst:
    """An analyst that keeps every event; it can hold its acknowledgements back, stop reading, or die."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events: list[Event] = []
        self.batches = 0
        self.acknowledges = True
        self.recorded: list[int] = []  # what an analyst before this one recorded
        self.keeps_bytes = True
        self.reads = asyncio.Event()
        self.reads.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self.path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._accept, self.path, limit=1 << 26)

    async def die(self) -> None:
        """Hang up without a word, and be gone."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        for writer in self.writers:
            writer.transport.abort()
        self.path.unlink(missing_ok=True)
        await asyncio.sleep(0.05)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.writers.append(writer)
        is_greeted = False
        try:
            while True:
                await self.reads.wait()
                size = int.from_bytes(await reader.readexactly(4), "big")
                events = decode_events(await reader.readexactly(size))
                self.batches += 1
                self.events += [e for e in events if self.keeps_bytes or not isinstance(e, BytesSeen)]
                if self.acknowledges and not is_greeted:
                    is_greeted = True
                    self._put(writer, Acknowledged(0, self.recorded, is_greeting=True))
                if self.acknowledges:
                    self.acknowledge(writer, 1, [e.id for e in events if isinstance(e, ExchangeEnded)])
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    def acknowledge(self, writer: asyncio.StreamWriter, batches: int, ended: list[int]) -> None:
        self._put(writer, Acknowledged(batches, ended))

    def _put(self, writer: asyncio.StreamWriter, answer: Acknowledged) -> None:
        body = encode_acknowledged(answer)
        writer.write(len(body).to_bytes(4, "big") + body)

    def of(self, exchange: int) -> list[Event]:
        """The events of one exchange, in order."""
        return [event for event in self.events if not isinstance(event, ProxyVitals) and event.id == exchange]

    def body(self, exchange: int, *, from_upstream: bool) -> bytes:
        return b"".join(
            event.data
            for event in self.of(exchange)
            if isinstance(event, BytesSeen) and event.from_upstream is from_upstream
        )

    def one(self, exchange: int, kind: type[Event]) -> Event:
        (event,) = [event for event in self.of(exchange) if isinstance(event, kind)]
        return event

    async def ended(self, exchange: int = 1) -> ExchangeEnded:
        """The end of an exchange, once it was told."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for event in self.of(exchange):
                if isinstance(event, ExchangeEnded):
                    return event
            await asyncio.sleep(0.005)
        raise AssertionError(f"exchange {exchange} did not end; told: {[type(e).__name__ for e in self.of(exchange)]}")


class Side:
    """All of it together: start what a test needs, and it is stopped afterwards."""

    PATIENCE = PATIENCE
    kinds = (RequestSeen, ResponseSeen, BytesSeen, ClientBlocked, ExchangeEnded, ExchangeDropped)

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.analyst = Analyst(directory / "analyst.sock")
        self.worker: Worker | None = None
        self.port = 0
        self.health_port = 0
        self._upstreams: list[Upstream] = []
        self._peers: list[Peer] = []

    async def upstream(self, serve: Serve, **options: object) -> Upstream:
        upstream = Upstream(serve)
        await upstream.start(**options)
        self._upstreams.append(upstream)
        return upstream

    async def start(
        self,
        upstream: str | int | None = None,
        *,
        routes: tuple[Route, ...] = (),
        analyst: bool = True,
        **proxy: object,
    ) -> Worker:
        """A worker in front of an upstream, a URL or a port of this machine; the rest are settings of `proxy`."""
        if analyst:
            await self.analyst.start()
        url = f"http://127.0.0.1:{upstream}" if isinstance(upstream, int) else upstream
        proxy.setdefault("drain_timeout", 1.0)
        settings = Settings(upstream=url, routes=routes, proxy=Proxy(**proxy))  # type: ignore[arg-type]
        data, health = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
        self.port, self.health_port = data.getsockname()[1], health.getsockname()[1]
        self.worker = Worker(settings, data=data, health=health, analyst=str(self.analyst.path))
        await self.worker.start()
        await asyncio.sleep(0)
        return self.worker

    async def serve(self, serve: Serve, **proxy: object) -> Upstream:
        """An upstream with a worker in front of it."""
        upstream = await self.upstream(serve)
        await self.start(upstream.port, **proxy)  # type: ignore[arg-type]
        return upstream

    async def dial(self, port: int | None = None, **options: object) -> Peer:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            self.port if port is None else port,
            limit=1 << 24,
            **options,  # type: ignore[arg-type]
        )
        peer = Peer(reader, writer)
        self._peers.append(peer)
        return peer

    async def ask(self, raw: bytes) -> bytes:
        """Send bytes on a connection of their own and read until it is closed."""
        peer = await self.dial()
        await peer.send(raw)
        return await peer.everything()

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            await asyncio.sleep(0.005)

    def balance(self) -> tuple[int, int]:
        """Both sides of the account that must always agree."""
        assert self.worker is not None
        tap = self.worker.plane.tap
        return tap.forwarded, tap.acknowledged + sum(tap.unobserved.values()) + tap.unacknowledged

    async def stop(self) -> None:
        for peer in self._peers:
            peer.writer.transport.abort()
        if self.worker is not None:
            await self.worker.drain()
        await self.analyst.die() if self.analyst._server is not None else None
        for upstream in self._upstreams:
            await upstream.stop()


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Any]:
    """Tests of the proxy run on the loop that it runs on in production."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Side]:
    side = Side(tmp_path)
    yield side
    await side.stop()
