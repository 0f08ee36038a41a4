"""The analyst's side of the validator: a bounded queue, one question at a time, an end to those that take too long."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from hashlib import sha256
from math import inf
from pathlib import Path

from msgspec import MsgspecError

from collector.config import ValidatorSettings
from collector.measures.validity import judgement
from collector.model import Judgement, ValidationTask
from collector.validation.protocol import (
    ENVELOPE,
    FRAME_CAP,
    HEADER,
    Answer,
    Question,
    decode_answer,
    decode_hello,
    frame,
)

# A question that nobody could take in this time is `skipped`: longer than a restart of the validator takes.
PATIENCE = 5.0
LOOK_AROUND = 0.5  # seconds between two looks whether the validator has been away for too long
RECONNECT = 0.05  # seconds between two tries
SECOND_LOOK = 0.02  # seconds in which an answer that has come in already may still be read, after its time
ATTEMPTS = 2  # how often one question may be under way when the validator dies
# What timed out is not tried again for REMEMBERED seconds: the output at once, its schema after STRIKES outputs.
REMEMBERED = 300.0
STRIKES = 3
MEMORY = 1024  # outputs and schemas remembered
QUEUE_BYTES = 64 * 1024 * 1024  # texts and schemas that may wait, beside the bound in number

Verdict = tuple[str, str | None]
TIMED_OUT: Verdict = ("validator_timeout", None)
SKIPPED: Verdict = ("skipped", None)


class ValidatorGoneError(Exception):
    """The validator closed its socket, or spoke not as agreed."""


class ValidatorClient:
    """Puts tasks to the validator process.

    `run()` is to be kept running in a task of its own; `judge()` may be called from any number of tasks. `path` is the
    validator's socket, on which the supervisor listens, so that connecting works while the process is being restarted.
    `monotonic` gives seconds.
    """

    def __init__(
        self, path: Path | str, settings: ValidatorSettings, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = str(path)
        self._settings = settings
        self._monotonic = monotonic
        self._waiting: deque[_Waiting] = deque()  # at most settings.queue and QUEUE_BYTES
        self._waiting_bytes = 0
        self._arrived = asyncio.Event()
        self._offenders = Offenders()
        self._unreachable_since: float | None = monotonic()
        self.pid: int | None = None  # of the validator; None while none has said hello

    async def judge(self, tasks: Sequence[ValidationTask]) -> tuple[Judgement, ...]:
        """One judgement per task, in order. Never raises for what a task holds, and ends in bounded time.

        A task that is decided keeps its result. `validator_timeout` are those that took too long or ended the
        validator; `skipped` those beyond the queue, or that no validator was there for.
        """
        asked = [self._ask(task) for task in tasks]
        try:
            verdicts = [each if isinstance(each, tuple) else await each for each in asked]
        finally:
            for each in asked:
                if not isinstance(each, tuple):
                    each.cancel()  # of no effect on those that are done
        return tuple(judgement(task, *verdict) for task, verdict in zip(tasks, verdicts, strict=True))

    def _ask(self, task: ValidationTask) -> Verdict | asyncio.Future[Verdict]:
        if task.result is not None:
            return task.result, None
        text = task.text.encode("utf-8", "surrogatepass")
        now = self._monotonic()
        if self._offenders.has(text, task.schema, now):
            return TIMED_OUT
        size = len(text) + (0 if task.schema is None else len(task.schema))
        is_full = len(self._waiting) >= self._settings.queue or self._waiting_bytes + size > QUEUE_BYTES
        if is_full or size > FRAME_CAP - ENVELOPE or self._is_lost(now):
            return SKIPPED
        verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(Question(task.kind, text, task.schema), size, now, verdict)
        self._waiting.append(waiting)
        self._waiting_bytes += size
        self._arrived.set()
        return waiting.verdict

    def _is_lost(self, now: float) -> bool:
        return self._unreachable_since is not None and now - self._unreachable_since > PATIENCE

    async def run(self) -> None:
        """Keeps a connection to the validator and works off the queue, until cancelled."""
        giving_up = asyncio.create_task(self._give_up_on_the_lost())
        try:
            while True:
                with contextlib.suppress(OSError, ValidatorGoneError):
                    await self._connection()
                self.pid = None
                if self._unreachable_since is None:
                    self._unreachable_since = self._monotonic()
                await asyncio.sleep(RECONNECT)
        finally:
            giving_up.cancel()
            self.pid = None
            self._unreachable_since = -inf
            self._skip_all()

    async def _give_up_on_the_lost(self) -> None:
        while True:
            await asyncio.sleep(LOOK_AROUND)
            if self._is_lost(self._monotonic()):
                self._skip_all()

    def _skip_all(self) -> None:
        while self._waiting:
            self._pop().settle(SKIPPED)

    def _pop(self) -> _Waiting:
        first = self._waiting.popleft()
        self._waiting_bytes -= first.size
        return first

    async def _connection(self) -> None:
        """Serves one connection; returns or raises when it is over. The question under way stays first in the queue."""
        reader, writer = await asyncio.open_unix_connection(self._path)
        try:
            self.pid = await _hello(reader)
            self._unreachable_since = None
            while True:
                waiting = await self._next(reader)
                waiting.attempts += 1
                answering = asyncio.create_task(_put(waiting.question, reader, writer))
                try:
                    if not await _ends_in(answering, self._settings.timeout):
                        self._kill()
                        self._finish(waiting, None)
                        return
                    self._finish(waiting, await answering)
                except ValidatorGoneError:
                    # Killed from outside, most likely; but what ends it twice is no accident.
                    if waiting.attempts >= ATTEMPTS:
                        self._finish(waiting, None)
                    raise
                finally:
                    answering.cancel()
        finally:
            writer.close()

    async def _next(self, reader: asyncio.StreamReader) -> _Waiting:
        """The first question in the queue that someone still waits for; it stays there until it is finished."""
        while True:
            while self._waiting:
                first = self._waiting[0]
                if not first.verdict.done():
                    if self._monotonic() - first.since <= PATIENCE:
                        return first
                    first.settle(SKIPPED)
                self._pop()
            self._arrived.clear()
            await self._arrival_or_end(reader)

    async def _arrival_or_end(self, reader: asyncio.StreamReader) -> None:
        """Waits for a question; raises ValidatorGoneError when the connection ends first, so that a new one is made."""
        arrival = asyncio.create_task(self._arrived.wait())
        ending = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait({arrival, ending}, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                raise ValidatorGoneError
        finally:
            for task in (arrival, ending):
                task.cancel()
            await asyncio.gather(arrival, ending, return_exceptions=True)

    def _finish(self, waiting: _Waiting, answer: Answer | None) -> None:
        """Settles the question under way; None is one that the validator did not survive."""
        if self._waiting and self._waiting[0] is waiting:
            self._pop()
        if answer is None:
            self._offenders.add(waiting.question.text, waiting.question.schema, self._monotonic())
        waiting.settle(TIMED_OUT if answer is None else (answer.result, answer.keyword))

    def _kill(self) -> None:
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)


class _Waiting:
    """A question in the queue."""

    def __init__(self, question: Question, size: int, since: float, verdict: asyncio.Future[Verdict]) -> None:
        self.question = question
        self.size = size
        self.since = since
        self.verdict = verdict
        self.attempts = 0

    def settle(self, verdict: Verdict) -> None:
        if not self.verdict.done():
            self.verdict.set_result(verdict)


class Offenders:
    """Outputs that the validator did not survive, and schemas that keep bringing such; forgotten after a while."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, tuple[int, float]] = OrderedDict()  # digest: strikes, until; at most MEMORY

    def has(self, text: bytes, schema: bytes | None, now: float) -> bool:
        """Whether an output would be tried in vain, at `now` seconds."""
        if not self._known:
            return False
        by_schema, by_output = _digests(text, schema)
        return self._strikes(by_output, now) > 0 or self._strikes(by_schema, now) >= STRIKES

    def add(self, text: bytes, schema: bytes | None, now: float) -> None:
        """Remembers an output, and counts it against its schema."""
        for digest in _digests(text, schema):
            self._known[digest] = self._strikes(digest, now) + 1, now + REMEMBERED
            self._known.move_to_end(digest)
        while len(self._known) > MEMORY:
            self._known.popitem(last=False)

    def _strikes(self, digest: bytes, now: float) -> int:
        strikes, until = self._known.get(digest, (0, now))
        if until > now:
            return strikes
        self._known.pop(digest, None)
        return 0


def _digests(text: bytes, schema: bytes | None) -> tuple[bytes, bytes]:
    by_schema = sha256(b"" if schema is None else schema).digest()
    return by_schema, sha256(by_schema + text).digest()


async def _ends_in(task: asyncio.Task[Answer], seconds: float) -> bool:
    """Whether a task ends in time. A loop that was itself late looks once more before it blames the validator."""
    await asyncio.wait({task}, timeout=seconds)
    if not task.done():
        await asyncio.wait({task}, timeout=SECOND_LOOK)
    return task.done()


async def _put(question: Question, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer:
    try:
        writer.write(frame(question))
        await writer.drain()
        return decode_answer(await _read(reader))
    except (OSError, MsgspecError) as error:
        raise ValidatorGoneError from error


async def _hello(reader: asyncio.StreamReader) -> int:
    """The validator's process id. There is no time limit: it comes when the process has started."""
    try:
        pid = decode_hello(await _read(reader)).pid
    except (OSError, MsgspecError) as error:
        raise ValidatorGoneError from error
    if pid <= 1 or pid == os.getpid():
        raise ValidatorGoneError
    return pid


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        length = int.from_bytes(await reader.readexactly(HEADER), "big")
        if length > FRAME_CAP:
            raise ValidatorGoneError
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        raise ValidatorGoneError from error
