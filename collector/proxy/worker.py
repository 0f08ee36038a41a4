"""A proxy worker: the process that carries the traffic, from its command line to its last byte."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import socket
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import uvloop

from collector.config import ConfigError, Settings
from collector.control import Control, Note, ends_at_signals
from collector.model import Clock, ProxyVitals
from collector.proxy.client_side import ClientConnection
from collector.proxy.handing import Heir, received
from collector.proxy.health import HealthConnection
from collector.proxy.listening import Listener
from collector.proxy.plane import LOG, Plane, report_fault
from collector.proxy.routes import routes_to
from collector.proxy.upstream_side import keep_alive

TICK = 0.25  # seconds between looks at the loop's lag
VITALS_DELAY = 1.0  # totals that changed are told at most so often,
VITALS_REPEAT = 5.0  # and unchanged ones so often, since gauges that are not told vanish
FLUSH_PATIENCE = 1.0
GIVE_AWAY = 0.02  # seconds between looks for connections that can be handed on
SETTLING = 300.0  # seconds that a worker which gave way waits for an analyst to take in what it was told
LONGEST_FAREWELL = 3600.0  # seconds that a worker which gives way carries what it has


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


class Worker:
    """Serves the given listening sockets until it is drained. ConfigError or OSError where settings are unusable."""

    def __init__(
        self,
        settings: Settings,
        *,
        data: socket.socket,
        health: socket.socket | None = None,
        analyst: str | None = None,
        number: int = 0,
        clock: Clock | None = None,
        handed: socket.socket | None = None,
    ) -> None:
        self.settings = settings
        self._data = data
        self._health = health
        self._handed = handed
        self._listeners: list[Listener] = []
        self._tick: asyncio.TimerHandle | None = None
        self._expected = 0.0
        self._told_at = 0.0
        self._told: ProxyVitals | None = None
        self.plane = Plane(
            asyncio.get_running_loop(),
            settings,
            routes_to(settings, os.environ),
            SystemClock() if clock is None else clock,
            number=number,
            boot=uuid.uuid4().hex,
            analyst=analyst,
        )

    async def start(self) -> None:
        """Listen, and look for the analyst; traffic is served whether or not there is one."""
        plane = self.plane
        keep_alive(self._data)  # connections inherit it
        plane.tap.open()
        self._listeners.append(Listener(plane.loop, self._data, self._take, plane.count_starvation))
        if self._health is not None:
            self._listeners.append(Listener(plane.loop, self._health, self._take_probe, plane.count_starvation))
        for listener in self._listeners:
            listener.open()
        if self._handed is not None:
            self._handed.setblocking(False)
            plane.loop.add_reader(self._handed.fileno(), self._take_handed)
        self._expected = plane.loop.time() + TICK
        self._tick = plane.loop.call_at(self._expected, self._on_tick)

    async def give_way(self, heir: Path, stop: asyncio.Event) -> None:
        """Leave new connections, and those on which nothing is under way, to the workers that take them at `heir`.

        Returns when every connection has been handed on or has ended, at most after LONGEST_FAREWELL, or at `stop`.
        """
        plane = self.plane
        plane.heir = Heir(heir)
        for listener in self._listeners:
            listener.close()
        if self._handed is not None:
            plane.loop.remove_reader(self._handed.fileno())
        deadline = plane.loop.time() + LONGEST_FAREWELL
        while plane.loop.time() < deadline:
            self._take_handed()  # what was on its way to this worker
            if not (plane.clients or plane.turned_away or plane.tasks):
                break
            for client in list(plane.clients):
                client.give_way()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GIVE_AWAY):
                    await stop.wait()
            if stop.is_set():
                return
        await self._settle(stop)

    async def _settle(self, stop: asyncio.Event) -> None:
        """Wait until an analyst has taken in all it was told, however busy it is, and then the last totals."""
        tap = self.plane.tap
        deadline = self.plane.loop.time() + SETTLING
        for is_last in (False, True):
            if is_last:
                tap.report(self.plane.vitals())
                tap.flush()
            while not (tap.connected and tap.is_settled):
                if stop.is_set() or self.plane.loop.time() >= deadline:
                    return
                await asyncio.sleep(GIVE_AWAY)

    def _take_handed(self) -> None:
        """Take the connections that workers before this one hand on."""
        if self._handed is None:
            return
        for connection in received(self._handed):
            self._take(connection)

    def _take(self, connection: socket.socket) -> None:
        self._serve(connection, ClientConnection)

    def _take_probe(self, connection: socket.socket) -> None:
        self._serve(connection, HealthConnection)

    def _serve(self, connection: socket.socket, protocol: Callable[[Plane], asyncio.Protocol]) -> None:
        plane = self.plane
        accepted = plane.loop.create_task(self._attach(connection, protocol))
        plane.tasks.add(accepted)
        accepted.add_done_callback(plane.tasks.discard)

    async def _attach(self, connection: socket.socket, protocol: Callable[[Plane], asyncio.Protocol]) -> None:
        plane = self.plane
        try:
            await plane.loop.connect_accepted_socket(lambda: protocol(plane), connection)
        except OSError:  # its client left meanwhile
            connection.close()

    async def drain(self) -> None:
        """Stop accepting, let answers finish until `drain_timeout`, cut the rest, flush what the analyst gets."""
        plane = self.plane
        plane.draining = True
        # The health port stays open to the end, so that a probe sees the 503.
        self._listeners[0].close()
        for client in list(plane.clients):
            client.drain()
        deadline = plane.loop.time() + self.settings.proxy.drain_timeout
        # A last answer may still be on its way to a client that reads slowly.
        while plane.in_flight or not all(client.is_flushed() for client in plane.clients):
            if plane.loop.time() >= deadline:
                break
            await asyncio.sleep(0.01)
        for client in [*plane.clients, *plane.turned_away]:
            client.cut()
        plane.pool.close()
        if self._tick is not None:
            self._tick.cancel()
        await plane.tap.close(FLUSH_PATIENCE)
        for listener in self._listeners:
            listener.close()
        await asyncio.sleep(0)

    def _on_tick(self) -> None:
        plane = self.plane
        now = plane.loop.time()
        plane.lag = max(plane.lag, now - self._expected)
        if now - self._told_at >= VITALS_DELAY:
            self._tell_vitals(now)
        self._expected = now + TICK
        self._tick = plane.loop.call_at(self._expected, self._on_tick)

    def _tell_vitals(self, now: float) -> None:
        plane = self.plane
        told = self._told
        if told is not None and now - self._told_at < VITALS_REPEAT:
            tap = plane.tap
            same = (told.forwarded, told.in_flight) == (tap.forwarded, plane.in_flight)
            if same and told.unobserved == tap.unobserved and told.refused == plane.refused:
                return
        self._told = plane.vitals()
        self._told_at = now
        plane.tap.report(self._told)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one worker as the supervisor starts it; 0 when it ended as asked, 2 when it could not start."""
    parser = argparse.ArgumentParser(prog="collector.proxy.worker")
    parser.add_argument("--runtime", type=Path, required=True, help="directory with settings.json and analyst.sock")
    parser.add_argument("--worker", type=int, required=True, help="number of this worker")
    parser.add_argument(
        "--fd", action="append", default=[], metavar="NAME=N", help="inherited sockets: data, health, handed, control"
    )
    arguments = parser.parse_args(argv)
    try:
        settings = msgspec.json.decode((arguments.runtime / "settings.json").read_bytes(), type=Settings)
        sockets = _inherited(arguments.fd)
        data = sockets["data"]
    except (OSError, ValueError, KeyError, msgspec.MsgspecError) as error:
        sys.stderr.write(f"semhealth proxy: cannot start: {type(error).__name__}: {error}\n")
        return 2
    logging.basicConfig(
        stream=sys.stderr,
        level=settings.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    try:
        return uvloop.run(_serve(settings, data, sockets, arguments.runtime, arguments.worker))
    except (ConfigError, OSError) as error:
        sys.stderr.write(f"semhealth proxy: cannot start: {error}\n")
        return 2


async def _serve(
    settings: Settings, data: socket.socket, sockets: dict[str, socket.socket], runtime: Path, number: int
) -> int:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_on_fault)
    worker = Worker(
        settings,
        data=data,
        health=sockets.get("health"),
        analyst=str(runtime / "analyst.sock"),
        number=number,
        handed=sockets.get("handed"),
    )
    control = await Control.on(sockets["control"]) if "control" in sockets else None
    if control is not None:
        control.say(Note("ready"))
        if not await control.has_heard("go"):
            return 2
    stop, leave = ends_at_signals()
    await worker.start()
    if control is not None:
        control.say(Note("serving"))
    # What lives now lives to the end: a full collection need not look at it again. A pause of 1 to 8 ms less.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    LOG.info("worker %d serves", number)
    await leave.wait()
    if not stop.is_set():
        LOG.info("worker %d gives way", number)
        await worker.give_way(runtime / "heir", stop)
    await worker.drain()
    LOG.info("worker %d ended", number)
    return 0


def _on_fault(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """What no boundary caught. The context may hold bytes that passed through, so only the fault's name is told."""
    error = context.get("exception")
    if isinstance(error, ConnectionError | TimeoutError):
        return  # somebody left; the connection concerned was told
    if isinstance(error, BaseException):
        report_fault(error, "in a callback of the event loop")
    else:
        LOG.error("the event loop reports a fault without an exception")


def _inherited(given: list[str]) -> dict[str, socket.socket]:
    sockets: dict[str, socket.socket] = {}
    for entry in given:
        name, _, number = entry.partition("=")
        sockets[name] = socket.socket(fileno=int(number))
    return sockets


if __name__ == "__main__":
    raise SystemExit(main())
