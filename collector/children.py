"""The processes of a sidecar: started by exec, started again when they die, until they are retired."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from collector.control import Control, Kind, Note

log = logging.getLogger("semhealth")

FIRST_DELAY = 0.05  # seconds before a restart, doubled each time up to LONGEST_DELAY
LONGEST_DELAY = 5.0
GOOD_LIFE = 5.0  # a process that lived so long starts anew with FIRST_DELAY
LOOK_AROUND = 0.05  # seconds between looks whether a process that another image started has ended

PR_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


class Program(Struct, frozen=True):
    """One process: what to run, which sockets it inherits under which names, and how far it steps back for others.

    One that `has_control` talks to the supervisor: it says when it is ready, and serves when it is told to.
    """

    name: str
    module: str
    sockets: dict[str, socket.socket]
    arguments: tuple[str, ...] = ()
    niceness: int = 0
    has_control: bool = False


class Running(Protocol):
    """A process, as a child needs it."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...
    def send_signal(self, signal: int) -> None: ...


class Adopted:
    """A child process that was started before this image of the supervisor was executed."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    async def wait(self) -> int:
        """Its exit code, the negative number of a signal; 0 where somebody else took it."""
        while self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)  # noqa: ASYNC222 - it does not wait
            except ChildProcessError:
                self.returncode = 0
            else:
                if pid == self.pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
                else:
                    await asyncio.sleep(LOOK_AROUND)
        return self.returncode

    def send_signal(self, signal: int) -> None:
        """Before `wait` has given its code the id cannot be another's."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal)


class Child:
    """One program that runs. `restarted` is told each time it is started again, `heard` what it says of itself.

    `is_held`: it is started, and does not serve before `let_go`. `process` is one that runs already.
    """

    def __init__(
        self,
        program: Program,
        runtime: Path,
        restarted: Callable[[str], None],
        heard: Callable[[Child, Note], None] = lambda _, __: None,
        *,
        process: Running | None = None,
        is_held: bool = False,
    ) -> None:
        self.program = program
        self.process = process
        self._runtime = runtime
        self._restarted = restarted
        self._heard = heard
        self._may_serve = not is_held
        self._control: Control | None = None
        self._answers: dict[Kind, asyncio.Future[Note]] = {}  # one at most of each kind
        self._over = asyncio.Event()
        self._last_word: signal.Signals = signal.SIGTERM
        self.is_starting = False  # a process may exist whose id is not known yet
        self.ready = asyncio.Event()
        self.serving = asyncio.Event()
        self.ended = asyncio.Event()
        if process is not None:
            self.ready.set()
            self.serving.set()

    @property
    def is_retired(self) -> bool:
        """It is not started again."""
        return self._over.is_set()

    async def keep(self) -> None:
        """Start the program, and again whenever it dies, until it is retired."""
        delay = FIRST_DELAY
        while not self._over.is_set() or self.process is not None:
            began = time.monotonic()
            code: int | None = None
            try:
                if self.process is None:
                    self.is_starting = True
                    self.process = await self._start()
                    self.is_starting = False
            except OSError as error:
                self.is_starting = False
                log.error("%s cannot be started: %s", self.program.name, error)
            else:
                if self._over.is_set():
                    self.send(self._last_word)
                code = await self.process.wait()
            self._clear()
            if self._over.is_set():
                if code not in (0, None, -self._last_word):
                    log.warning("%s ended with %s", self.program.name, said(code))
                break
            if time.monotonic() - began >= GOOD_LIFE:
                delay = FIRST_DELAY
            log.warning("%s ended with %s; starting it again in %.2g s", self.program.name, said(code), delay)
            self._restarted(self.program.name)
            try:
                async with asyncio.timeout(delay):
                    await self._over.wait()
            except TimeoutError:
                delay = min(delay * 2, LONGEST_DELAY)
        self.ended.set()

    def retire(self, number: signal.Signals) -> None:
        """Let it end by this signal, and not come back."""
        self._last_word = number
        self._over.set()
        self.send(number)

    def send(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    def let_go(self) -> None:
        """It may serve, now and whenever it is started again."""
        self._may_serve = True
        if self.ready.is_set():
            self.tell(Note("go"))

    def tell(self, note: Note) -> None:
        if self._control is not None:
            self._control.say(note)

    async def ask(self, question: Note, kind: Kind, patience: float) -> Note | None:
        """Its answer of that kind; None where it does not answer in time, or ends."""
        if self._control is None:
            return None
        answer: asyncio.Future[Note] = asyncio.get_running_loop().create_future()
        self._answers[kind] = answer
        self.tell(question)
        try:
            async with asyncio.timeout(patience):
                return await answer
        except TimeoutError:
            return None
        finally:
            self._answers.pop(kind, None)

    async def comes_to(self, state: asyncio.Event, patience: float) -> bool:
        """Whether it gets to `ready` or `serving` without dying, within `patience` seconds."""
        deadline = time.monotonic() + patience
        started = self.process
        while not state.is_set() and time.monotonic() < deadline:
            if started is not None and self.process is not started:
                return False
            started = self.process
            await asyncio.sleep(0.005)
        return state.is_set()

    async def end(self, number: signal.Signals, patience: float) -> None:
        """Retire it, and kill it where it has not ended after so many seconds."""
        self.retire(number)
        try:
            async with asyncio.timeout(patience):
                await self.ended.wait()
        except TimeoutError:
            self.retire(signal.SIGKILL)
            await self.ended.wait()

    # ------------------------------------------------------------ one life

    async def _start(self) -> Running:
        program = self.program
        handed = {name: each.fileno() for name, each in program.sockets.items()}
        own_end, its_end = socket.socketpair() if program.has_control else (None, None)
        if its_end is not None:
            handed["control"] = its_end.fileno()
        command = [sys.executable, "-m", program.module, "--runtime", str(self._runtime), *program.arguments]
        for name, number in handed.items():
            command += ["--fd", f"{name}={number}"]
        try:
            # A group of its own: Ctrl-C is for the supervisor, which stops the others in order.
            process = await asyncio.create_subprocess_exec(
                *command,
                pass_fds=tuple(handed.values()),
                stdin=asyncio.subprocess.DEVNULL,
                env=child_environment(os.environ),
                process_group=0,
                preexec_fn=functools.partial(prepare_child, program.niceness),
            )
        except OSError:
            if own_end is not None:
                own_end.close()
            raise
        finally:
            if its_end is not None:
                its_end.close()
        if own_end is not None:
            self._control = await Control.on(own_end)
            self._listening = asyncio.create_task(self._listen(self._control))
        return process

    async def _listen(self, control: Control) -> None:
        while (note := await control.hear()) is not None and control is self._control:
            if note.kind == "ready":
                self.ready.set()
                if self._may_serve:
                    control.say(Note("go"))
            elif note.kind == "serving":
                self.serving.set()
            answer = self._answers.get(note.kind)
            if answer is not None and not answer.done():
                answer.set_result(note)
            self._heard(self, note)

    def _clear(self) -> None:
        self.process = None
        self.ready.clear()
        self.serving.clear()
        control, self._control = self._control, None
        if control is not None:
            self._listening.cancel()
            control.close()


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The processes run the same code from wherever the supervisor was started."""
    root = str(Path(__file__).resolve().parent.parent)
    return {**environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, environ.get("PYTHONPATH"))))}


def prepare_child(niceness: int = 0) -> None:
    """Runs in a new process: step back for others, and ask Linux for a SIGTERM when the parent dies unannounced."""
    os.nice(niceness)
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def said(code: int | None) -> str:
    """How a process ended, in words."""
    if code is None:
        return "no process"
    if code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"
