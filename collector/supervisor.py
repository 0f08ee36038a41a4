"""The supervisor: binds the sockets, starts the processes, restarts what dies, and takes them along when it ends."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import functools
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from collector.config import Settings, parse_address

log = logging.getLogger("semhealth")

FIRST_DELAY = 0.05  # seconds before a restart, doubled each time up to LONGEST_DELAY
LONGEST_DELAY = 5.0
GOOD_LIFE = 5.0  # a process that lived so long starts anew with FIRST_DELAY
BACKLOG = 1024
LAST_WORDS = 8.0  # seconds that the analyst has to flush before it is killed


PR_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


class StartError(Exception):
    """Something the sidecar needs cannot be had; the message says what and what to do."""


class Program(Struct, frozen=True):
    """One process: what to run, which sockets it inherits under which names, and how far it steps back for others."""

    name: str
    module: str
    sockets: dict[str, socket.socket]
    arguments: tuple[str, ...] = ()
    niceness: int = 0


def bind_tcp(name: str, address: str) -> socket.socket:
    """A listening TCP socket; StartError in one clear sentence when it cannot be had."""
    host, port = parse_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listening.close()
        number = error.errno if isinstance(error, OSError) else None
        if number == errno.EADDRINUSE:
            remedy = f"another process listens there; stop it, or choose another with --{name}"
        elif number == errno.EACCES:
            remedy = "ports below 1024 need the right to bind them; choose another"
        elif number == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
            remedy = f"this machine has no such address; choose another with --{name}"
        else:
            remedy = str(error.strerror if isinstance(error, OSError) else error)
        raise StartError(f"{name}: cannot listen on {address}: {remedy}") from error
    listening.setblocking(False)
    return listening


def runtime_directory(prefix: str) -> Path:
    """A new private directory for settings and sockets; StartError when there is no place for one."""
    try:
        return Path(tempfile.mkdtemp(prefix=prefix))
    except OSError as error:
        raise StartError(f"cannot make a runtime directory: {error}; set TMPDIR to one that can be written") from error


def bind_unix(path: Path) -> socket.socket:
    """A private listening socket; StartError when it cannot be had."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(str(path))
        path.chmod(0o600)
    except OSError as error:  # most likely the path has more than the 107 bytes that the kernel takes
        listening.close()
        raise StartError(f"cannot make a socket at {path}: {error}; set TMPDIR to a short path") from error
    listening.listen(BACKLOG)
    listening.setblocking(False)
    return listening


class Supervisor:
    """Runs the programs of one sidecar until it is told to stop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stopping = asyncio.Event()
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._runtime = runtime_directory("semhealth-")
        self._sockets: list[socket.socket] = []
        self.addresses: dict[str, str] = {}  # where it really listens by name, for settings that ask for port 0
        self._ended: dict[str, asyncio.Event] = {}
        try:
            self._programs = self._prepare()
        except BaseException:
            self.clean_up()
            raise

    def clean_up(self) -> None:
        for each in self._sockets:
            each.close()
        shutil.rmtree(self._runtime, ignore_errors=True)

    @property
    def pids(self) -> dict[str, int]:
        """The process ids by program name, of those that run."""
        return {name: process.pid for name, process in self._processes.items()}

    def stop(self) -> None:
        """Begin to stop: proxies first, then those that listen to them."""
        self._stopping.set()

    async def run(self, started: Callable[[], None] = lambda: None) -> int:
        """Until `stop`, SIGTERM or SIGINT. SIGHUP goes to the analyst, which reopens its log."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self._signal, "analyst", signal.SIGHUP)
        try:
            async with asyncio.TaskGroup() as group:
                for program in self._programs:
                    self._ended[program.name] = asyncio.Event()
                    group.create_task(self._keep(program))
                started()
                await self._stopping.wait()
                await self._take_down()
        finally:
            self.clean_up()
        return 0

    # ------------------------------------------------------------ preparing

    def _prepare(self) -> list[Program]:
        settings = self._settings
        data = self._listen("listen", settings.listen)
        admin = self._listen("admin", settings.admin)
        proxy_sockets = {"data": data}
        if settings.health is not None:
            proxy_sockets["health"] = self._listen("health", settings.health)
        secret = self._runtime / "settings.json"
        secret.touch(mode=0o600)
        secret.write_bytes(msgspec.json.encode(settings))
        events, requests, questions = (
            self._keep_open(bind_unix(self._runtime / f"{name}.sock")) for name in ("analyst", "embedder", "validator")
        )
        programs = []  # in the order they are started: traffic first
        for number in range(settings.proxy.workers):
            # The health port is answered by the first worker only; all share the data port.
            sockets = proxy_sockets if number == 0 else {"data": data}
            arguments = ("--worker", str(number))
            programs.append(Program(f"proxy-{number}", "collector.proxy.worker", sockets, arguments))
        programs.append(Program("analyst", "collector.app", {"events": events, "admin": admin}))
        programs.append(Program("validator", "collector.validation.process", {"requests": questions}, niceness=5))
        if settings.embedder.kind != "none":
            embedder = Program("embedder", "collector.embedding.process", {"requests": requests}, niceness=10)
            programs.append(embedder)
        return programs

    def _listen(self, name: str, address: str) -> socket.socket:
        listening = self._keep_open(bind_tcp(name, address))
        self.addresses[name] = f"{address.rpartition(':')[0]}:{listening.getsockname()[1]}"
        return listening

    def _keep_open(self, listening: socket.socket) -> socket.socket:
        self._sockets.append(listening)
        return listening

    # ------------------------------------------------------------ running

    async def _keep(self, program: Program) -> None:
        """Start the program, and again whenever it dies, until the sidecar stops."""
        delay = FIRST_DELAY
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                process = await self._start(program)
            except OSError as error:
                log.error("%s cannot be started: %s", program.name, error)
                code: int | None = None
            else:
                self._processes[program.name] = process
                code = await process.wait()
                self._processes.pop(program.name, None)
            if self._stopping.is_set():
                break
            if time.monotonic() - began >= GOOD_LIFE:
                delay = FIRST_DELAY
            log.warning("%s ended with %s; starting it again in %.2g s", program.name, _said(code), delay)
            self._note_restart(program.name)
            try:
                async with asyncio.timeout(delay):
                    await self._stopping.wait()
            except TimeoutError:
                delay = min(delay * 2, LONGEST_DELAY)
        self._ended[program.name].set()

    async def _start(self, program: Program) -> asyncio.subprocess.Process:
        handed = {name: each.fileno() for name, each in program.sockets.items()}
        command = [sys.executable, "-m", program.module, "--runtime", str(self._runtime), *program.arguments]
        for name, number in handed.items():
            command += ["--fd", f"{name}={number}"]
        # A group of its own: Ctrl-C is for the supervisor, which stops the others in order.
        return await asyncio.create_subprocess_exec(
            *command,
            pass_fds=tuple(handed.values()),
            stdin=asyncio.subprocess.DEVNULL,
            env=child_environment(os.environ),
            process_group=0,
            preexec_fn=functools.partial(prepare_child, program.niceness),
        )

    def _note_restart(self, name: str) -> None:
        try:
            with (self._runtime / "restarts").open("a") as file:
                file.write(f"{name.split('-', maxsplit=1)[0]}\n")
        except OSError as error:
            log.warning("a restart could not be noted: %s", error)

    def _signal(self, name: str, number: int) -> None:
        process = self._processes.get(name)
        if process is not None and process.returncode is None:
            process.send_signal(number)

    async def _take_down(self) -> None:
        """Proxies drain first; then the analyst settles and flushes; the rest has nothing to lose."""
        proxies = [name for name in self._ended if name.startswith("proxy")]
        await self._end(proxies, self._settings.proxy.drain_timeout + 3.0)
        await self._end(["analyst"], LAST_WORDS)
        await self._end([name for name in self._ended if name in ("embedder", "validator")], 1.0)

    async def _end(self, names: list[str], patience: float) -> None:
        for name in names:
            self._signal(name, signal.SIGTERM)
        try:
            async with asyncio.timeout(patience):
                for name in names:
                    await self._ended[name].wait()
        except TimeoutError:
            for name in names:
                self._signal(name, signal.SIGKILL)
            for name in names:
                await self._ended[name].wait()


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The processes run the same code from wherever the supervisor was started."""
    root = str(Path(__file__).resolve().parent.parent)
    return {**environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, environ.get("PYTHONPATH"))))}


def prepare_child(niceness: int = 0) -> None:
    """Runs in a new process: step back for others, and ask Linux for a SIGTERM when the parent dies unannounced."""
    os.nice(niceness)
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _said(code: int | None) -> str:
    if code is None:
        return "no process"
    if code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"
