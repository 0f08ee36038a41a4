"""The analyst's end of the socket to the proxy workers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import cast

import msgspec

from collector.analyst.analyst import Analyst, Worker
from collector.model import Acknowledged, decode_events, encode_acknowledged

log = logging.getLogger("semhealth.analyst")

MAX_BATCH = 256 * 1024 * 1024  # bytes of one batch; more is no batch of ours
MOST_RECORDED = 20_000
OUT_OF_MEMORY = b"semhealth analyst: out of memory; it ends, to be started again\n"
SLICE = 0.003  # seconds of work before others have their turn


class Recorded:
    """Which exchanges were recorded or counted as lost lately, by the life of the worker that carried them,
    MOST_RECORDED of them.
    """

    def __init__(self, found: Iterable[tuple[str, int]] = ()) -> None:
        self._latest = deque(found, maxlen=MOST_RECORDED)

    def add(self, boot: str, ended: Iterable[int]) -> None:
        self._latest.extend((boot, number) for number in ended)

    def of(self, boot: str) -> list[int]:
        """The numbers of one worker's exchanges."""
        return [number for each, number in self._latest if each == boot]


class Receiver(asyncio.Protocol):
    """Takes batches off one worker's connection. The buffer holds one incomplete batch at most.

    Where records are kept in a log, `when_written` calls back, from any thread, once those so far are in it: only then
    is their exchange acknowledged, so that a killed analyst leaves none that is neither in the log nor counted. Nor is
    one both: a worker that connects is told which of its exchanges are `recorded` already. `left` is called when it
    has gone.
    """

    def __init__(
        self,
        analyst: Analyst,
        when_written: Callable[[Callable[[], None]], None] | None = None,
        recorded: Recorded | None = None,
        left: Callable[[], None] = lambda: None,
    ) -> None:
        self._analyst = analyst
        self._when_written = when_written
        self._left = left
        self._recorded = recorded if recorded is not None else Recorded()
        self._worker = Worker(self._acknowledge, self._greet)
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._analyst.connected(self._worker)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._read_batches()

    def _read_batches(self) -> None:
        """Take in what is there, for a slice of time; the rest waits until others have had their turn."""
        buffer = self._buffer
        until = time.monotonic() + SLICE
        at = 0
        waits = False
        while len(buffer) - at >= 4:
            size = int.from_bytes(buffer[at : at + 4], "big")
            if size > MAX_BATCH:
                self._hang_up("a batch over the bound")
                return
            if len(buffer) - at - 4 < size:
                break
            if time.monotonic() > until:
                waits = True
                break
            with memoryview(buffer) as view:
                try:
                    events = decode_events(view[at + 4 : at + 4 + size])
                except msgspec.MsgspecError as error:
                    self._hang_up(type(error).__name__)
                    return
            at += 4 + size
            self._analyst.take(self._worker, events)
        if at:
            del buffer[:at]
        # Reading is paused for an instant after a full slice: a loop that is never done reading serves nobody else.
        if self._transport is not None and not self._transport.is_closing() and (waits or time.monotonic() > until):
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._read_batches()

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, MemoryError):
            # The worker lives, and would count as lost what still waits here for a judge and is recorded afterwards.
            # An analyst that is started again knows from the log what was recorded.
            os.write(2, OUT_OF_MEMORY)
            with contextlib.suppress(MemoryError):
                self._left()  # keeps the totals
            os._exit(1)
        self._transport = None
        self._analyst.disconnected(self._worker)
        self._left()

    def hang_up(self) -> None:
        """Leave the worker to another analyst: what it has not finished telling, it counts itself."""
        self._worker.forget()
        if self._transport is not None:
            self._transport.close()

    def _acknowledge(self, batches: int, ended: list[int]) -> None:
        if self._when_written is None or not ended:
            self._send(batches, ended)
            return
        if batches:
            self._send(batches, [])
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody is there to be told
                loop.call_soon_threadsafe(self._send, 0, ended)

        self._when_written(tell)

    def _greet(self) -> None:
        self._put(Acknowledged(0, self._recorded.of(self._worker.boot), is_greeting=True))

    def _send(self, batches: int, ended: list[int]) -> None:
        self._recorded.add(self._worker.boot, ended)
        self._put(Acknowledged(batches, ended))

    def _put(self, answer: Acknowledged) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        body = encode_acknowledged(answer)
        self._transport.write(len(body).to_bytes(4, "big") + body)

    def _hang_up(self, why: str) -> None:
        log.error("hung up on a proxy worker, whose events could not be read: %s", why)
        self._worker.forget()  # the worker lives and counts them itself, as `analyst_lost`
        if self._transport is not None:
            self._transport.abort()
