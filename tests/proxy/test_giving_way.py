"""A worker gives way to another: kept connections move over, what is under way ends where it began, no byte is lost."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from collector.config import Proxy, Settings
from collector.model import ProxyVitals
from collector.proxy.handing import Heir, received
from collector.proxy.worker import Worker

GET = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"


class Two:
    """A worker, and one that can take its place; their upstreams answer with the number of the worker."""

    def __init__(self, side: Any, directory: Path) -> None:
        self.side = side
        self.release = asyncio.Event()
        self.heir = directory / "heir"
        self._handed = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._handed.bind(str(self.heir))
        self._data = socket.create_server(("127.0.0.1", 0))
        self.port = self._data.getsockname()[1]
        self.stop = asyncio.Event()

    async def worker(self, number: int, handed: socket.socket | None = None, **proxy: Any) -> Worker:
        async def serve(peer: Any) -> None:
            while True:
                head, _ = await peer.request()
                if b"/slow" in head:
                    await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n%d\r\n" % number)
                    await self.release.wait()
                    await peer.send(b"0\r\n\r\n")
                else:
                    await peer.send(OK + b"w%d" % number)

        upstream = await self.side.upstream(serve)
        settings = Settings(upstream=f"http://127.0.0.1:{upstream.port}", proxy=Proxy(drain_timeout=0.5, **proxy))
        worker = Worker(settings, data=self._data.dup(), analyst=str(self.side.analyst.path), number=0, handed=handed)
        await worker.start()
        return worker

    async def begin(self, **proxy: Any) -> None:
        await self.side.analyst.start()
        self.old = await self.worker(1, **proxy)

    async def follow(self) -> None:
        self.new = await self.worker(2, self._handed.dup())

    def give_way(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.old.give_way(self.heir, self.stop))

    async def end(self) -> None:
        self.release.set()
        for worker in (self.old, getattr(self, "new", None)):
            if worker is not None:
                await worker.drain()
        self._handed.close()
        self._data.close()


@pytest.fixture
async def two(side: Any, tmp_path: Path) -> AsyncIterator[Two]:
    two = Two(side, tmp_path)
    await two.begin()
    yield two
    await two.end()


async def asked(peer: Any) -> bytes:
    await peer.send(GET)
    assert b"close" not in (await peer.head()).lower()
    answer: bytes = await peer.exactly(2)
    return answer


async def test_kept_connections_move_to_the_worker_that_follows(two: Two) -> None:
    used, fresh = await two.side.dial(two.port), await two.side.dial(two.port)
    assert await asked(used) == b"w1"
    await two.follow()
    await asyncio.wait_for(two.give_way(), 10)
    assert two.old.plane.clients == set()
    for _ in range(3):
        assert await asked(used) == await asked(fresh) == b"w2"
    assert two.new.plane.tap.forwarded == 6


async def test_what_is_under_way_ends_where_it_began_and_then_the_connection_moves(two: Two) -> None:
    peer = await two.side.dial(two.port)
    await peer.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
    await peer.until(b"1\r\n1\r\n")
    await two.follow()
    leaving = two.give_way()
    await asyncio.sleep(0.1)
    assert not leaving.done()
    two.release.set()
    await peer.until(b"0\r\n\r\n")
    await asyncio.wait_for(leaving, 10)
    assert await asked(peer) == b"w2"


async def test_requests_that_were_sent_behind_one_another_are_all_answered_in_order(two: Two) -> None:
    peer = await two.side.dial(two.port)
    await peer.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n" + GET + GET)
    await peer.until(b"1\r\n1\r\n")
    await two.follow()
    leaving = two.give_way()
    two.release.set()
    await peer.until(b"0\r\n\r\n")
    for _ in range(2):
        await peer.head()
        assert await peer.exactly(2) == b"w1"
    await asyncio.wait_for(leaving, 10)
    assert await asked(peer) == b"w2"


async def test_half_a_request_is_read_to_its_end_by_the_worker_that_began_it(two: Two) -> None:
    peer = await two.side.dial(two.port)
    await peer.send(GET[:20])
    await two.side.until(lambda: len(two.old.plane.clients) == 1)
    await two.follow()
    leaving = two.give_way()
    await asyncio.sleep(0.1)
    await peer.send(GET[20:])
    await peer.head()
    assert await peer.exactly(2) in (b"w1", b"w2")  # the kernel may have held the first half until it was handed on
    await asyncio.wait_for(leaving, 10)
    assert await asked(peer) == b"w2"


async def test_while_nobody_takes_them_connections_are_served_where_they_are(two: Two) -> None:
    peer = await two.side.dial(two.port)
    leaving = asyncio.create_task(two.old.give_way(two.heir.with_name("nobody"), two.stop))
    for _ in range(3):
        await asyncio.sleep(0.05)
        assert await asked(peer) == b"w1"
    assert not leaving.done()
    two.stop.set()
    await asyncio.wait_for(leaving, 10)


async def test_connections_that_were_handed_on_wait_for_who_takes_them(two: Two) -> None:
    peers = [await two.side.dial(two.port) for _ in range(5)]
    await two.side.until(lambda: len(two.old.plane.clients) == 5)
    leaving = two.give_way()
    await asyncio.wait_for(leaving, 10)
    await asyncio.gather(*(peer.send(GET) for peer in peers))
    await two.follow()
    for peer in peers:
        await peer.head()
        assert await peer.exactly(2) == b"w2"


async def test_more_connections_than_a_socket_holds_are_handed_on_bit_by_bit(two: Two) -> None:
    peers = [await two.side.dial(two.port) for _ in range(600)]
    await two.side.until(lambda: len(two.old.plane.clients) == 600)
    await two.follow()
    await asyncio.wait_for(two.give_way(), 20)
    await two.side.until(lambda: len(two.new.plane.clients) == 600)
    for peer in peers[::50]:
        assert await asked(peer) == b"w2"


async def test_the_last_totals_of_a_worker_that_gave_way_are_told(two: Two) -> None:
    peer = await two.side.dial(two.port)
    for _ in range(4):
        await asked(peer)
    await two.follow()
    await asyncio.wait_for(two.give_way(), 10)
    await two.old.drain()
    told = [event for event in two.side.analyst.events if isinstance(event, ProxyVitals)]
    last = [vitals for vitals in told if vitals.boot == two.old.plane.boot][-1]
    assert (last.forwarded, last.in_flight, sum(last.unobserved.values())) == (4, 0, 0)


# ---------------------------------------------------------------- descriptors


def test_a_connection_lives_on_when_its_first_descriptor_is_closed(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "heir"))
        listening.setblocking(False)
        one, other = socket.socketpair()
        assert Heir(tmp_path / "heir").takes(one.fileno())
        one.close()
        other.sendall(b"hello")
        [taken] = received(listening)
        assert taken.recv(10) == b"hello"
        taken.close()
        other.close()
        assert list(received(listening)) == []


def test_what_carries_no_descriptor_is_nothing(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "heir"))
        listening.setblocking(False)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(b"hello", str(tmp_path / "heir"))
        assert list(received(listening)) == []


def test_nobody_to_take_it_is_no_error(tmp_path: Path) -> None:
    read, write = os.pipe()
    assert not Heir(tmp_path / "nobody").takes(read)
    os.close(read)
    os.close(write)
