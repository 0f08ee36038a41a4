"""The analyst's socket: whole batches in, acknowledgements out, and junk hung up on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from collector.analyst.receiver import MAX_BATCH, Receiver, Recorded
from collector.model import (
    Acknowledged,
    BytesSeen,
    Event,
    ExchangeEnded,
    ProxyVitals,
    RequestSeen,
    decode_acknowledged,
    encode_events,
)

PATIENCE = 20.0


class Takes:
    """An analyst that only takes: it acknowledges each batch with the exchanges that ended in it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.connections = 0

    def connected(self, worker: Any) -> None:
        self.connections += 1

    def disconnected(self, worker: Any) -> None:
        self.connections -= 1

    def take(self, worker: Any, events: Iterable[Event]) -> None:
        taken = list(events)
        self.events += taken
        for event in taken:
            if isinstance(event, ProxyVitals):
                worker.boot = event.boot
                worker.greet()
        worker.acknowledge(1, [event.id for event in taken if isinstance(event, ExchangeEnded)])


@asynccontextmanager
async def connected(
    path: Path, recorded: Recorded | None = None
) -> AsyncIterator[tuple[Takes, asyncio.StreamReader, asyncio.StreamWriter]]:
    analyst = Takes()
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: Receiver(analyst, None, recorded), str(path))  # type: ignore[arg-type]
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        yield analyst, reader, writer
    finally:
        writer.close()
        server.close()


def batch(*events: Event) -> bytes:
    body = encode_events(list(events))
    return len(body).to_bytes(4, "big") + body


async def acknowledged(reader: asyncio.StreamReader) -> Acknowledged:
    size = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), PATIENCE), "big")
    return decode_acknowledged(await reader.readexactly(size))


REQUEST = RequestSeen(1, 0.0, 0.0, "r", b"GET / HTTP/1.1\r\n\r\n")
END = ExchangeEnded(1, 1.0, "complete", 0.0)


async def test_a_batch_is_taken_and_acknowledged(tmp_path: Path) -> None:
    async with connected(tmp_path / "s") as (analyst, reader, writer):
        writer.write(batch(REQUEST, END))
        assert await acknowledged(reader) == Acknowledged(1, [1])
        assert analyst.events == [REQUEST, END]


def vitals(boot: str) -> ProxyVitals:
    return ProxyVitals(0, boot, 0.0, 0, {}, {}, 0, 0, 0.0)


async def test_a_worker_is_greeted_with_what_was_recorded_of_it(tmp_path: Path) -> None:
    recorded = Recorded([("a", 1), ("b", 2), ("a", 3)])
    async with connected(tmp_path / "s", recorded) as (_, reader, writer):
        writer.write(batch(vitals("a")))
        assert await acknowledged(reader) == Acknowledged(0, [1, 3], is_greeting=True)
        assert await acknowledged(reader) == Acknowledged(1, [])
        writer.write(batch(REQUEST, END))
        assert await acknowledged(reader) == Acknowledged(1, [1])
    async with connected(tmp_path / "s2", recorded) as (_, reader, writer):
        writer.write(batch(vitals("a")))
        assert await acknowledged(reader) == Acknowledged(0, [1, 3, 1], is_greeting=True)


async def test_a_batch_may_come_in_pieces_and_many_at_once(tmp_path: Path) -> None:
    async with connected(tmp_path / "s") as (analyst, reader, writer):
        wire = batch(REQUEST) + batch() + batch(END)
        for at in range(len(wire)):
            writer.write(wire[at : at + 1])
            await writer.drain()
        writer.write(wire * 3)
        got = [await acknowledged(reader) for _ in range(12)]
        assert got == [Acknowledged(1, []), Acknowledged(1, []), Acknowledged(1, [1])] * 4
        assert analyst.events == [REQUEST, END] * 4


async def test_a_flood_of_large_batches_is_taken_in_full(tmp_path: Path) -> None:
    async with connected(tmp_path / "s") as (analyst, reader, writer):
        big = BytesSeen(1, 0.0, True, b"x" * 100_000)

        async def send() -> None:
            for _ in range(200):
                writer.write(batch(big))
                await writer.drain()

        sending = asyncio.ensure_future(send())
        for _ in range(200):
            assert await acknowledged(reader) == Acknowledged(1, [])
        await sending
        assert len(analyst.events) == 200


@pytest.mark.parametrize(
    "junk",
    [
        b"\x00\x00\x00\x03abc",
        b"\x00\x00\x00\x01\xc1",
        b"\x00\x00\x00\x04\x91\x91\xa1?",
        (MAX_BATCH + 1).to_bytes(4, "big"),
    ],
    ids=["text", "no msgpack", "no event", "too long"],
)
async def test_what_is_no_batch_is_hung_up_on(tmp_path: Path, junk: bytes) -> None:
    async with connected(tmp_path / "s") as (analyst, reader, writer):
        writer.write(batch(REQUEST) + junk)
        assert await acknowledged(reader) == Acknowledged(1, [])
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        assert analyst.events == [REQUEST]


async def test_a_worker_that_goes_is_told(tmp_path: Path) -> None:
    async with connected(tmp_path / "s") as (analyst, reader, writer):
        writer.write(batch(REQUEST))
        await acknowledged(reader)
        assert analyst.connections == 1
        writer.close()
        async with asyncio.timeout(PATIENCE):
            while analyst.connections:
                await asyncio.sleep(0.01)
