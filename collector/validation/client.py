"""The analyst's side of the validator: a bounded queue, few questions ahead, an end to those that take too long."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import takewhile
from math import inf
from pathlib import Path

from msgspec import MsgspecError

from collector.config import ValidatorSettings
from collector.measures.validity import judgement
from collector.model import Judgement, RuleResult, ValidationTask
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
# Questions sent ahead of the one under way, so that the validator need not wait for the next. Answers come in order.
AHEAD = 32
AHEAD_BYTES = 1024 * 1024
# What timed out is not tried again for REMEMBERED seconds: the output at once, its schema after STRIKES outputs.
REMEMBERED = 300.0
STRIKES = 3
MEMORY = 1024  # outputs and schemas remembered
QUEUE_BYTES = 64 * 1024 * 1024  # texts and schemas that may wait, beside the bound in number

Verdict = tuple[str, str | None, tuple[RuleResult, ...]]
TIMED_OUT: Verdict = ("validator_timeout", None, ())
SKIPPED: Verdict = ("skipped", None, ())


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
        self._sent: deque[_Waiting] = deque()  # at most 1 + AHEAD; the first is under way
        self._sent_bytes = 0
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
            return task.result, None, ()
        text = task.text.encode("utf-8", "surrogatepass")
        now = self._monotonic()
        question = Question(task.kind, text, task.schema, None if task.rules is None else task.rules.text)
        if self._offenders.has(text, _asked_for(question), now):
            return TIMED_OUT
        size = len(text) + len(task.schema or b"") + len(question.rules or b"")
        is_full = (
            len(self._sent) + len(self._waiting) >= self._settings.queue or self._waiting_bytes + size > QUEUE_BYTES
        )
        if is_full or size > FRAME_CAP - ENVELOPE or self._is_lost(now):
            return SKIPPED
        verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(question, size, now, verdict)
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
        """Serves one connection; returns or raises when it is over. What is not answered then waits again, in order."""
        reader, writer = await asyncio.open_unix_connection(self._path)
        try:
            answers = _Answers(reader)
            self.pid = await answers.hello()
            self._unreachable_since = None
            while True:
                self._send(writer)
                if not self._sent:
                    self._arrived.clear()
                    await self._arrival_or_end(reader)
                    continue
                self._sent[0].attempts += 1
                self._skip_the_late()
                answer = await answers.within(self._settings.timeout)
                if answer is None:
                    self._kill()
                    self._finish(None)
                    return
                self._finish(answer)
        except ValidatorGoneError:
            # Killed from outside, most likely; but what ends it twice is no accident.
            if self._sent and self._sent[0].attempts >= ATTEMPTS:
                self._finish(None)
            raise
        finally:
            self._take_back()
            writer.close()

    def _send(self, writer: asyncio.StreamWriter) -> None:
        """Sends what may be sent, and waits for nothing: the validator may be too busy to read."""
        while self._waiting and len(self._sent) <= AHEAD and (not self._sent or self._sent_bytes < AHEAD_BYTES):
            first = self._pop()
            if self._is_late(first):
                first.settle(SKIPPED)
            if first.verdict.done():
                continue
            self._sent.append(first)
            self._sent_bytes += first.size
            writer.write(frame(first.question))

    def _skip_the_late(self) -> None:
        """Those that were sent in time but whose turn did not come; their answers are still read."""
        for waiting in takewhile(self._is_late, self._sent):
            waiting.settle(SKIPPED)

    def _is_late(self, waiting: _Waiting) -> bool:
        return self._monotonic() - waiting.since > PATIENCE

    def _take_back(self) -> None:
        self._waiting.extendleft(reversed(self._sent))
        self._waiting_bytes += self._sent_bytes
        self._sent.clear()
        self._sent_bytes = 0

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

    def _finish(self, answer: Answer | None) -> None:
        """Settles the question under way; None is one that the validator did not survive."""
        first = self._sent.popleft()
        self._sent_bytes -= first.size
        if answer is None:
            self._offenders.add(first.question.text, _asked_for(first.question), self._monotonic())
        first.settle(TIMED_OUT if answer is None else (answer.result, answer.keyword, answer.rules))

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


def _asked_for(question: Question) -> bytes | None:
    return question.schema if question.rules is None else (question.schema or b"") + question.rules


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


class _Answers:
    """What the validator says on one connection. A wait that is given up loses nothing of a frame."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._length: int | None = None  # of the frame whose header has been read

    async def hello(self) -> int:
        """The validator's process id. There is no time limit: it comes when the process has started."""
        try:
            pid = decode_hello(await self._frame()).pid
        except MsgspecError as error:
            raise ValidatorGoneError from error
        if pid <= 1 or pid == os.getpid():
            raise ValidatorGoneError
        return pid

    async def within(self, seconds: float) -> Answer | None:
        """The next answer; None where none comes in time. A loop that was itself late looks once more."""
        for limit in (seconds, SECOND_LOOK):
            try:
                async with asyncio.timeout(limit):
                    return decode_answer(await self._frame())
            except MsgspecError as error:
                raise ValidatorGoneError from error
            except TimeoutError:
                continue
        return None

    async def _frame(self) -> bytes:
        try:
            if self._length is None:
                length = int.from_bytes(await self._reader.readexactly(HEADER), "big")
                if length > FRAME_CAP:
                    raise ValidatorGoneError
                self._length = length
            body = await self._reader.readexactly(self._length)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise ValidatorGoneError from error
        self._length = None
        return body
