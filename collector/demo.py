"""The demonstration: a simulated API with traffic, the sidecar between them, and a table of what it sees."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager

import aiohttp
import msgspec

from collector.admin_token import bearer, token_of
from collector.analyst.summary import Summary
from collector.config import AdminTls, Settings
from collector.programs import running
from collector.supervisor import Supervisor, bind_tcp
from collector.view import CLEAR, farewell, table

STARTING = 20.0  # seconds that the sidecar has to answer
REFRESH = 1.0  # seconds between tables
PLAIN_REFRESH = 5.0  # where the output is no terminal
LAST_RECORDS = 1.5  # seconds for the last exchanges to be judged
# What goes wrong in the demonstration, so that there is something to see; all of it can be switched while it runs.
FAULTS = {"invalid_json": 0.08, "stutter": 0.05, "overload": 0.03, "truncation": 0.02, "context_lost": 0.15}


async def run(settings: Settings, simulator: str | None, rate: float, duration: float | None) -> int:
    """Until `duration` seconds of traffic or a signal; 0 when the sidecar saw traffic, else 1.

    `simulator` is where the simulated API listens (None: a free port); `rate` is in requests a second.
    """
    listening = bind_tcp("simulator", simulator if simulator is not None else "127.0.0.1:0")
    host, port = listening.getsockname()[:2]
    api = f"http://{host}:{port}"
    settings = msgspec.structs.replace(
        settings, upstream=api, log_level="warning", objective_profile="strict", admin_tls=AdminTls()
    )
    supervisor = Supervisor(settings)
    addresses = supervisor.addresses
    settings = msgspec.structs.replace(settings, listen=addresses["listen"], admin=addresses["admin"])
    shown = bearer(token_of(settings.admin_auth, os.environ))
    began = time.monotonic()
    up = asyncio.Event()
    sidecar = asyncio.create_task(supervisor.run(up.set))
    admin = f"http://{settings.admin}"
    last: Summary | None = None
    try:
        async with _child("collector.simulator.api", _api_arguments(listening), (listening.fileno(),)):
            await up.wait()
            interrupted = _on_interrupt(supervisor)
            async with aiohttp.ClientSession(headers=shown) as session:
                await _wait_ready(session, admin, sidecar)
                began = time.monotonic()
                async with _child(
                    "collector.simulator.traffic", _traffic_arguments(settings, api, rate, duration)
                ) as traffic:
                    async for last in _summaries(session, admin, sidecar, traffic, interrupted):
                        _show(last, _addresses(settings, api), time.monotonic() - began)
                await asyncio.sleep(LAST_RECORDS)
                with contextlib.suppress(aiohttp.ClientError, OSError):
                    last = await _summary(session, admin)
    finally:
        supervisor.stop()
        await sidecar
        listening.close()
    if last is None:
        return 1
    sys.stdout.write(farewell(last, time.monotonic() - began))
    return 0 if last.totals.recorded else 1


def _api_arguments(listening: socket.socket) -> list[str]:
    faults = [f"{name}={share}" for name, share in FAULTS.items()]
    return ["--fd", str(listening.fileno()), *(part for fault in faults for part in ("--fault", fault))]


def _traffic_arguments(settings: Settings, api: str, rate: float, duration: float | None) -> list[str]:
    arguments = ["--base", f"http://{settings.listen}", "--faults-from", api, "--rate", f"{rate:g}"]
    return arguments if duration is None else [*arguments, "--duration", f"{duration:g}"]


def _addresses(settings: Settings, api: str) -> dict[str, str]:
    return {
        "sidecar": f"http://{settings.listen}  (in front of the simulated API at {api})",
        "metrics": f"http://{settings.admin}/metrics",
        "records": f"http://{settings.admin}/records?limit=5",
        "faults": f'curl -X POST {api}/-/faults -d \'{{"fault":"stall","share":0.5}}\'',
    }


def _child(
    module: str, arguments: Sequence[str], fds: tuple[int, ...] = ()
) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    return running((sys.executable, "-m", module, *arguments), fds=fds)


def _on_interrupt(supervisor: Supervisor) -> asyncio.Event:
    """Set at the first SIGINT or SIGTERM: the traffic ends first, so that the summary is whole. A second one stops."""
    interrupted = asyncio.Event()

    def on_signal() -> None:
        if interrupted.is_set():
            supervisor.stop()
        interrupted.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)  # in place of the supervisor's
    return interrupted


async def _wait_ready(session: aiohttp.ClientSession, admin: str, sidecar: asyncio.Task[int]) -> None:
    deadline = time.monotonic() + STARTING
    while time.monotonic() < deadline and not sidecar.done():
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with session.get(f"{admin}/readyz") as response:
                if response.status == 200:
                    return
        await asyncio.sleep(0.1)


async def _summary(session: aiohttp.ClientSession, admin: str) -> Summary:
    async with session.get(f"{admin}/summary") as response:
        return msgspec.json.decode(await response.read(), type=Summary)


async def _summaries(
    session: aiohttp.ClientSession,
    admin: str,
    sidecar: asyncio.Task[int],
    traffic: asyncio.subprocess.Process,
    interrupted: asyncio.Event,
) -> AsyncIterator[Summary]:
    """A summary each so often, until the traffic or the sidecar ends, or somebody interrupts."""
    every = REFRESH if sys.stdout.isatty() else PLAIN_REFRESH
    ends = {asyncio.create_task(traffic.wait()), asyncio.create_task(interrupted.wait()), sidecar}
    while not any(end.done() for end in ends):
        with contextlib.suppress(aiohttp.ClientError, OSError):
            yield await _summary(session, admin)
        await asyncio.wait(ends, timeout=every, return_when=asyncio.FIRST_COMPLETED)
    for end in ends - {sidecar}:
        end.cancel()


def _show(summary: Summary, addresses: dict[str, str], elapsed: float) -> None:
    text = table(summary, addresses, elapsed)
    sys.stdout.write((CLEAR if sys.stdout.isatty() else "\n") + text)
    sys.stdout.flush()
