"""The analyst's side of the embedder: asks for vectors, within a budget, and takes a dead embedder as an answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec import Struct

from collector.config import EmbedderSettings
from collector.embedding.budget import CpuBudget
from collector.embedding.messages import (
    MAX_FRAME,
    MAX_TEXTS,
    Embed,
    FrameOverCapError,
    Refused,
    Status,
    Unavailable,
    Vectors,
    decode_answer,
    framed,
    read_frame,
)
from collector.model import Clock, EmbeddingModel, Reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST_DELAY = 0.1  # seconds before connecting again, doubled each time up to LONGEST_DELAY
LONGEST_DELAY = 2.0
FIRST_COST = 0.001  # CPU seconds a text is expected to take, until some have been answered
COST_MEMORY = 0.1  # weight of the newest answer in the expected cost
PATIENCE = 3.0  # times the time-out, for which nothing was answered that had been asked: then the embedder hangs
MAX_UNSENT = MAX_FRAME  # bytes of requests that may wait in the socket

log = logging.getLogger("semhealth.analyst")


class Embedded(Struct, frozen=True):
    """Vectors, one row a text, and the CPU seconds they took; or None and why: of the catalogue's RELEVANCE_REASONS."""

    vectors: NDArray[np.float32] | None = None
    reason: Unavailable | None = None
    cpu: float = 0.0


class _Waiting(Struct, frozen=True, eq=False):
    texts: int
    expected: float  # CPU seconds
    since: float
    answer: asyncio.Future[Embedded]


class EmbeddingClient:
    """One connection to the embedder. `run` keeps it up; `embed` answers always, and in bounded time."""

    def __init__(self, socket_path: Path, settings: EmbedderSettings, clock: Clock) -> None:
        self._path = socket_path
        self._settings = settings
        self._clock = clock
        self._budget = CpuBudget(settings.cpu_share, clock.monotonic())
        self._cost = FIRST_COST
        self._writer: asyncio.StreamWriter | None = None
        self._ready = False
        self._pid: int | None = None
        self._answered = 0.0  # when it last said something, or was asked with nothing else under way
        self._next = 0
        self._spent = 0.0  # CPU seconds, of the embedder and of the caller
        self._texts = {"hit": 0, "miss": 0}
        self._failures: dict[str, int] = {}
        self._model: EmbeddingModel | None = None
        self._told: dict[str, float] = {}  # of these counts, what `readings` has told
        # At most `settings.queue`: requests that no answer has come to, those whose time was up among them. So an
        # embedder that hangs costs no more than that.
        self._waiting: dict[int, _Waiting] = {}

    @property
    def ready(self) -> bool:
        """The embedder is connected and its model has loaded."""
        return self._ready

    @property
    def model(self) -> EmbeddingModel | None:
        """What made the vectors that were last to be had; None before there were any."""
        return self._model

    def why_not(self) -> Unavailable | None:
        """Why `embed` would refuse now, None where it would try: to be asked before texts are put together."""
        writer = self._writer
        if writer is None or not self._ready or writer.is_closing():
            return "model_not_ready"
        if len(self._waiting) >= self._settings.queue or writer.transport.get_write_buffer_size() > MAX_UNSENT:
            self._end_what_hangs()
            return "budget"
        return None if self._budget.has_room(self._clock.monotonic()) else "budget"

    def fill(self) -> float:
        """How much more there is room for: 1 is all that can be, 0 and less nothing.

        The CPU allowance as far as it is filled, or less where the machine is too busy for the embedder to use it: then
        requests wait, and nothing more is taken on by the time that the oldest has waited for half of the time-out.
        """
        now = self._clock.monotonic()
        oldest = next(iter(self._waiting.values()), None)
        waited = 0.0 if oldest is None else (now - oldest.since) / self._settings.timeout
        return min(self._budget.fill(now), 1.0 - 2.0 * waited)

    def reserve(self, seconds: float) -> None:
        """Set CPU seconds aside for what is about to be asked; `spend` gives them back."""
        self._budget.settle(0.0, seconds, self._clock.monotonic())

    def spend(self, seconds: float, reserved: float = 0.0) -> None:
        """Draw CPU seconds that the caller spent on scoring itself from the same budget."""
        self._spent += seconds
        self._budget.settle(reserved, seconds, self._clock.monotonic())

    def readings(self) -> Iterator[Reading]:
        """What has been counted since this was last asked."""
        counts = {"spent": self._spent, **self._texts}
        before, self._told = self._told, counts
        yield Reading("semantic_health_relevance_cpu_seconds_total", counts["spent"] - before.get("spent", 0.0))
        for result in self._texts:
            number = counts[result] - before.get(result, 0.0)
            yield Reading("semantic_health_embedder_texts_total", number, (result,))
        failures, self._failures = self._failures, {}
        for failure, number in failures.items():
            yield Reading("semantic_health_embedder_failures_total", float(number), (failure,))

    async def run(self) -> None:
        """Connects, and connects again whenever the embedder went away, until cancelled."""
        if self._settings.kind == "none":
            return
        delay = FIRST_DELAY
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(self._path)
            except OSError:
                pass  # the supervisor has not bound it yet, or too many wait there
            else:
                if await self._listen(reader, writer):
                    delay = FIRST_DELAY
            await asyncio.sleep(delay)
            delay = min(delay * 2, LONGEST_DELAY)

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Vectors of at most MAX_TEXTS texts; never raises for what the embedder does or fails to do.

        `budget` where the share of CPU is used up, the queue is full or the time is up.
        """
        if len(texts) > MAX_TEXTS:
            raise ValueError(f"at most {MAX_TEXTS} texts are embedded at once, got {len(texts)}")
        refused = self.why_not()
        writer = self._writer
        if refused is not None or writer is None:
            return Embedded(reason=refused or "model_not_ready")
        expected, now = self._cost * len(texts), self._clock.monotonic()
        if not self._budget.take(expected, now):
            return Embedded(reason="budget")
        self._next += 1
        waiting = _Waiting(len(texts), expected, now, asyncio.get_running_loop().create_future())
        if not self._waiting:
            self._answered = now
        self._waiting[self._next] = waiting
        writer.write(framed(Embed(self._next, list(texts))))
        try:
            async with asyncio.timeout(self._settings.timeout):
                return await waiting.answer
        except TimeoutError:
            self._end_what_hangs()
            return Embedded(reason="budget")

    def _end_what_hangs(self) -> None:
        """A process that has answered nothing for long is killed; the supervisor starts another."""
        silent = self._clock.monotonic() - self._answered
        if self._pid is not None and self._writer is not None and silent >= PATIENCE * self._settings.timeout:
            log.warning("the embedder has answered nothing for %.0f s; it is killed and comes back", silent)
            pid, self._pid = self._pid, None
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Takes answers until the connection ends; True if the model was ready in between."""
        self._writer = writer
        was_ready = False
        try:
            while True:
                answer = decode_answer(await read_frame(reader))
                if isinstance(answer, Status):
                    self._ready, self._pid = answer.ready, answer.pid
                    self._model = self._model if answer.model is None else answer.model
                    was_ready = was_ready or answer.ready
                else:
                    self._take(answer)
        except (asyncio.IncompleteReadError, OSError):
            return was_ready
        except (FrameOverCapError, msgspec.MsgspecError, ValueError) as error:
            log.warning("hung up on the embedder, whose answer could not be read: %s", type(error).__name__)
            return was_ready
        finally:
            self._writer = None
            self._ready = False
            self._pid = None
            # What they cost is not known; it stays drawn from the budget at the expected cost.
            for waiting in self._waiting.values():
                _answer(waiting, Embedded(reason="model_not_ready"))
            self._waiting.clear()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _take(self, answer: Vectors | Refused) -> None:
        waiting = self._waiting.pop(answer.id, None)
        if waiting is None:
            return
        now = self._answered = self._clock.monotonic()
        if isinstance(answer, Refused):
            self._budget.settle(waiting.expected, 0.0, now)
            if answer.failure is not None:
                self._failures[answer.failure] = self._failures.get(answer.failure, 0) + 1
            _answer(waiting, Embedded(reason=answer.reason))
            return
        self._budget.settle(waiting.expected, answer.cpu, now)
        self._spent += answer.cpu
        if answer.hits is not None:
            self._texts["hit"] += answer.hits
            self._texts["miss"] += waiting.texts - answer.hits
        if waiting.texts:
            self._cost += COST_MEMORY * (answer.cpu / waiting.texts - self._cost)
        rows = np.frombuffer(answer.rows, dtype=np.float32).reshape(waiting.texts, answer.dimensions)
        _answer(waiting, Embedded(vectors=rows, cpu=answer.cpu))


def _answer(waiting: _Waiting, answer: Embedded) -> None:
    if not waiting.answer.done():
        waiting.answer.set_result(answer)
