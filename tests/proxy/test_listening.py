"""Connections that cannot be accepted wait, and nothing turns in circles meanwhile."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from collector.proxy import listening
from collector.proxy.listening import Listener

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    """The limit of descriptors, put back afterwards."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def answer(peer: Any) -> None:
    while True:
        await peer.request()
        await peer.send(OK)


async def test_without_descriptors_connections_wait_at_no_cost_and_are_served_when_there_are_some(
    side: Any, limits: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    await side.serve(answer)
    served = await side.dial()
    await served.send(GET)
    assert await served.exactly(len(OK)) == OK
    waiting = [socket.socket() for _ in range(5)]
    for each in waiting:
        each.setblocking(False)
    resource.setrlimit(resource.RLIMIT_NOFILE, (5, limits[1]))  # fewer than are open
    with caplog.at_level(logging.WARNING, "semhealth.proxy"):
        for each in waiting:
            each.connect_ex(("127.0.0.1", side.port))
        began, cpu = time.monotonic(), time.process_time()
        while time.monotonic() - began < 1.0:
            await served.send(GET)  # whoever is there is served meanwhile
            assert await served.exactly(len(OK)) == OK
            await asyncio.sleep(0.1)
        assert time.process_time() - cpu < 0.3, "it must not turn in circles"
    assert 5 <= side.worker.plane.starved <= 12
    assert [record.getMessage().split(":")[1].split()[0] for record in caplog.records] == ["EMFILE"], "said once"
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for each in waiting:
        reader, writer = await asyncio.open_connection(sock=each)
        writer.write(GET)
        assert await asyncio.wait_for(reader.readexactly(len(OK)), side.PATIENCE) == OK
        writer.close()


async def test_a_listener_is_closed_while_it_pauses_and_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Starved(socket.socket):
        def accept(self) -> Any:
            raise OSError(errno.ENFILE, "too many")

    monkeypatch.setattr(listening, "PAUSE", 0.02)
    failures: list[OSError] = []
    own = Starved()
    own.bind(("127.0.0.1", 0))
    listener = Listener(asyncio.get_running_loop(), own, lambda connection: None, failures.append)
    listener.open()
    with socket.create_connection(own.getsockname()):
        while len(failures) < 3:
            await asyncio.sleep(0.005)
        assert {failure.errno for failure in failures} == {errno.ENFILE}
        listener.close()
        listener.close()
        number = len(failures)
        await asyncio.sleep(0.1)
        assert len(failures) == number
    assert own.fileno() == -1


async def test_a_client_that_left_while_it_waited_holds_up_nobody() -> None:
    class Aborted(socket.socket):
        left = 1

        def accept(self) -> Any:
            if self.left:
                self.left -= 1
                raise ConnectionAbortedError
            return super().accept()

    taken: list[socket.socket] = []
    failures: list[OSError] = []
    own = Aborted()
    own.bind(("127.0.0.1", 0))
    listener = Listener(asyncio.get_running_loop(), own, taken.append, failures.append)
    listener.open()
    with socket.create_connection(own.getsockname()):
        async with asyncio.timeout(5):
            while not taken:
                await asyncio.sleep(0.005)
    assert not failures
    listener.close()
    taken[0].close()
