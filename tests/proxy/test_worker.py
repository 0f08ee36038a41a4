"""The process, started as the supervisor starts it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collector.config import Proxy, Settings
from collector.model import ProxyVitals

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Process:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = self.health_port = 0

    async def start(self, settings: Settings) -> None:
        (self.directory / "settings.json").write_bytes(msgspec.json.encode(settings))
        data, health = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
        self.port, self.health_port = data.getsockname()[1], health.getsockname()[1]
        with data, health:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "collector.proxy.worker", "--runtime", str(self.directory), "--worker", "3",
                "--fd", f"data={data.fileno()}", "--fd", f"health={health.fileno()}",
                pass_fds=(data.fileno(), health.fileno()), stderr=asyncio.subprocess.PIPE,
                cwd=Path(__file__).parents[2],
            )  # fmt: skip

    async def ended(self) -> tuple[int, str]:
        assert self.process.stderr is not None
        said = await self.process.stderr.read()
        return await asyncio.wait_for(self.process.wait(), 20), said.decode()


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Process]:
    process = Process(tmp_path)
    yield process
    if process.process.returncode is None:
        process.process.kill()
        await process.process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_worker_drains_at_a_signal_tells_its_last_totals_and_exits_0(
    side: Any, process: Process, number: signal.Signals
) -> None:
    release = asyncio.Event()

    async def serve(peer: Any) -> None:
        await peer.request()
        await peer.send(CHUNKED + b"2\r\nhi\r\n")
        await release.wait()
        await peer.send(b"0\r\n\r\n")

    upstream = await side.upstream(serve)
    await side.analyst.start()
    await process.start(Settings(upstream=f"http://127.0.0.1:{upstream.port}", proxy=Proxy(drain_timeout=10.0)))
    peer = await side.dial(process.port)
    await peer.send(GET)
    await peer.until(b"hi\r\n")
    process.process.send_signal(number)
    probe = b""
    while b" 503 " not in probe:
        checking = await side.dial(process.health_port)
        await checking.send(b"GET /-/readyz HTTP/1.1\r\nHost: a\r\n\r\n")
        probe = await checking.everything()
    release.set()
    assert await peer.everything() == b"0\r\n\r\n"
    code, said = await process.ended()
    assert code == 0
    assert "Traceback" not in said
    assert " WARNING " not in said
    assert " ERROR " not in said
    last = [event for event in side.analyst.events if isinstance(event, ProxyVitals)][-1]
    assert (last.worker, last.forwarded, last.in_flight) == (3, 1, 0)
    assert (await side.analyst.ended()).how == "complete"


async def test_a_worker_that_cannot_start_says_why_in_one_line_and_exits_2(process: Process) -> None:
    await process.start(Settings(upstream="ftp://nowhere"))
    code, said = await process.ended()
    assert code == 2
    assert len(said.splitlines()) == 1
    assert "cannot start" in said


async def test_traffic_flows_while_the_analyst_process_comes_and_goes(side: Any, process: Process) -> None:
    async def serve(peer: Any) -> None:
        while True:
            await peer.request()
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    upstream = await side.upstream(serve)
    await process.start(Settings(upstream=f"http://127.0.0.1:{upstream.port}"))
    stop = False

    async def load() -> int:
        peer = await side.dial(process.port)
        count = 0
        while not stop:
            await peer.send(GET)
            await peer.head()
            assert await peer.exactly(2) == b"ok"
            count += 1
        return count

    loads = [asyncio.ensure_future(load()) for _ in range(4)]
    for _ in range(3):
        await asyncio.sleep(0.15)
        await side.analyst.start()
        await side.until(lambda: bool(side.analyst.events))
        await asyncio.sleep(0.15)
        side.analyst.events.clear()
        await side.analyst.die()
    await side.analyst.start()
    stop = True
    total = sum(await asyncio.gather(*loads))
    await side.until(lambda: bool(side.analyst.events))
    os.kill(process.process.pid, signal.SIGTERM)
    assert (await process.ended())[0] == 0
    last = [event for event in side.analyst.events if isinstance(event, ProxyVitals)][-1]
    assert last.forwarded == total
    assert 0 < sum(last.unobserved.values()) < total
    assert last.unobserved["analyst_down"] > 0
