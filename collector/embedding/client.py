"""The analyst's side of the embedder: asks for vectors, within a budget, and takes a dead embedder as an answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
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
from collector.model import Clock

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST_DELAY = 0.1  # seconds before connecting again, doubled each time up to LONGEST_DELAY
LONGEST_DELAY = 2.0
FIRST_COST = 0.001  # CPU seconds a text is expected to take, until some have been answered
COST_MEMORY = 0.1  # weight of the newest answer in the expected cost
MAX_UNSENT = MAX_FRAME  # bytes of requests that may wait in the socket

log = logging.getLogger("semhealth.analyst")


class Embedded(Struct, frozen=True):
    """Vectors, one row a text; or None and why: a reason of the catalogue's RELEVANCE_REASONS."""

    vectors: NDArray[np.float32] | None = None
    reason: Unavailable | None = None


class _Waiting(Struct, frozen=True, eq=False):
    texts: int
    expected: float  # CPU seconds
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
        self._next = 0
        # At most `settings.queue`: requests that no answer has come to, those whose time was up among them. So an
        # embedder that hangs costs no more than that.
        self._waiting: dict[int, _Waiting] = {}

    @property
    def ready(self) -> bool:
        """The embedder is connected and its model has loaded."""
        return self._ready

    def why_not(self) -> Unavailable | None:
        """Why `embed` would refuse now, None where it would try: to be asked before texts are put together."""
        writer = self._writer
        if writer is None or not self._ready or writer.is_closing():
            return "model_not_ready"
        if len(self._waiting) >= self._settings.queue or writer.transport.get_write_buffer_size() > MAX_UNSENT:
            return "budget"
        return None if self._budget.has_room(self._clock.monotonic()) else "budget"

    def spend(self, seconds: float) -> None:
        """Draw CPU seconds that the caller spent on scoring itself from the same budget."""
        self._budget.settle(0.0, seconds, self._clock.monotonic())

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
        expected = self._cost * len(texts)
        if not self._budget.take(expected, self._clock.monotonic()):
            return Embedded(reason="budget")
        self._next += 1
        waiting = _Waiting(len(texts), expected, asyncio.get_running_loop().create_future())
        self._waiting[self._next] = waiting
        writer.write(framed(Embed(self._next, list(texts))))
        try:
            async with asyncio.timeout(self._settings.timeout):
                return await waiting.answer
        except TimeoutError:
            return Embedded(reason="budget")

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Takes answers until the connection ends; True if the model was ready in between."""
        self._writer = writer
        was_ready = False
        try:
            while True:
                answer = decode_answer(await read_frame(reader))
                if isinstance(answer, Status):
                    self._ready = answer.ready
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
        now = self._clock.monotonic()
        if isinstance(answer, Refused):
            self._budget.settle(waiting.expected, 0.0, now)
            _answer(waiting, Embedded(reason=answer.reason))
            return
        self._budget.settle(waiting.expected, answer.cpu, now)
        if waiting.texts:
            self._cost += COST_MEMORY * (answer.cpu / waiting.texts - self._cost)
        rows = np.frombuffer(answer.rows, dtype=np.float32).reshape(waiting.texts, answer.dimensions)
        _answer(waiting, Embedded(vectors=rows))


def _answer(waiting: _Waiting, answer: Embedded) -> None:
    if not waiting.answer.done():
        waiting.answer.set_result(answer)
