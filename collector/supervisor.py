"""The supervisor: binds the sockets, starts the processes, changes them for others, and takes them along at the end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from collector.changes import files_of_admin, files_of_workers, for_workers, forget_files, keep_files
from collector.children import Adopted, Child, Program
from collector.config import ConfigError, Settings, parse_address
from collector.control import Note
from collector.handover import Inherited, InheritedProcess, InheritedSocket, execute, let_signals_in, rehearse

log = logging.getLogger("semhealth")

BACKLOG = 1024
LAST_WORDS = 8.0  # seconds that the analyst has to flush before it is killed
MOST_RETIRED = 64  # workers that still finish what they carry; with more of them nothing is changed
STARTING = 30.0  # seconds that a new process has to be ready, and then to serve
TAKING = 10.0  # seconds that the analyst has to take new settings

SETTINGS_FILE, RELOAD_FILE = "settings.json", "reload.json"  # in the runtime directory
WORKERS_STAY = "workers stay"  # said with `take` where no worker is changed for a new one
HEIR = "heir"  # there, a link to the socket that takes connections of workers that end


class StartError(Exception):
    """Something the sidecar needs cannot be had; the message says what and what to do."""


class Bound(Struct, frozen=True):
    """A listening socket, and the address or path that it was asked for."""

    address: str
    socket: socket.socket


class Outcome(Struct, frozen=True):
    """How a reload went: a status of HTTP, and a text."""

    status: int
    text: str


class _Change(Struct, frozen=True):
    """A change that holds, and is still to be brought in: what was begun for it, and all programs of it."""

    begun: tuple[Child, ...]
    programs: tuple[Program, ...]
    old: Settings
    new: Settings
    everything: bool


class ReloadState(Struct, frozen=True):
    """What the analyst tells of reloads. `at` are the Unix seconds of the last one that succeeded."""

    successful: bool
    at: float


Answer = Callable[[Outcome], None]


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


def bind_unix(path: Path, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    """A private listening socket; StartError when it cannot be had."""
    listening = socket.socket(socket.AF_UNIX, kind)
    try:
        listening.bind(str(path))
        path.chmod(0o600)
    except OSError as error:  # most likely the path has more than the 107 bytes that the kernel takes
        listening.close()
        raise StartError(f"cannot make a socket at {path}: {error}; set TMPDIR to a short path") from error
    if kind == socket.SOCK_STREAM:
        listening.listen(BACKLOG)
    listening.setblocking(False)
    return listening


class Supervisor:
    """Runs the programs of one sidecar until it is told to stop.

    `reread` gives the settings as they are written now, for a reload; it raises ConfigError or StartError. `command`
    is executed at SIGUSR2. `inherited` is what the image before this one handed on: its processes go on running, and
    are changed for new ones as by a reload.
    """

    def __init__(
        self,
        settings: Settings,
        reread: Callable[[], Settings] | None = None,
        command: Sequence[str] | None = None,
        inherited: Inherited | None = None,
    ) -> None:
        self._settings = settings
        self._reread = reread if reread is not None else lambda: settings
        self._command = command
        self._stopping = asyncio.Event()
        self._children: list[Child] = []  # those that run, the retired among them
        self._sockets: dict[str, Bound] = {}
        self._work: asyncio.Task[None] | None = None  # a reload or hand-over, one at a time
        self._reload_again = False
        self._hand_over_next = False
        self._inherited = inherited
        self._files: tuple[dict[str, str], dict[str, str]] = ({}, {})  # of workers and admin port, as they were read
        self._generation = 0 if inherited is None else inherited.generation
        self._runtime = runtime_directory("semhealth-") if inherited is None else Path(inherited.runtime)
        if inherited is not None:
            self._sockets = {name: _taken_over(each) for name, each in inherited.sockets.items()}
            return
        try:
            self._prepare()
        except BaseException:
            self.clean_up()
            raise

    def clean_up(self) -> None:
        for bound in self._sockets.values():
            bound.socket.close()
        shutil.rmtree(self._runtime, ignore_errors=True)

    @property
    def addresses(self) -> dict[str, str]:
        """Where it really listens by name, for settings that ask for port 0."""
        return {
            name: f"{bound.address.rpartition(':')[0]}:{bound.socket.getsockname()[1]}"
            for name, bound in self._sockets.items()
            if name in ("listen", "admin", "health")
        }

    @property
    def pids(self) -> dict[str, int]:
        """The process ids by program name, of those that run and are not retired."""
        return {
            child.program.name: child.process.pid
            for child in self._children
            if child.process is not None and not child.is_retired
        }

    def stop(self) -> None:
        """Begin to stop: proxies first, then those that listen to them."""
        self._stopping.set()

    async def run(self, started: Callable[[], None] = lambda: None) -> int:
        """Until `stop`, SIGTERM or SIGINT. SIGHUP reloads the configuration, SIGUSR2 hands over to new code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        loop.add_signal_handler(signal.SIGUSR2, self.hand_over)
        let_signals_in()
        try:
            async with asyncio.TaskGroup() as self._group:
                self._begin()
                started()
                await self._stopping.wait()
                if self._work is not None:
                    self._work.cancel()
                await self._take_down()
        finally:
            self.clean_up()
        return 0

    def reload(self, answer: Answer = lambda _: None) -> None:
        """Take the configuration as it is written now, or refuse it whole; `answer` is called once."""
        if self._is_at_work:
            answer(Outcome(409, "another reload is under way; try again"))
        else:
            self._start_work(lambda: self._reload(answer))

    def hand_over(self) -> None:
        """Become new code, if a rehearsal shows that it would start; all goes on as it was if not."""
        if self._is_at_work:
            self._hand_over_next = True
        else:
            self._start_work(self._become_new)

    # ------------------------------------------------------------ preparing

    def _prepare(self) -> None:
        self._sockets = self._bound_for(self._settings, self._generation, with_heir=True)
        kept = keep_files(self._settings, self._runtime, self._generation)
        self._files = _files_of(self._settings)
        self._write(SETTINGS_FILE, msgspec.json.encode(kept))
        self._point_to_heir()
        self._note_reload(successful=True)

    def _bound_for(self, settings: Settings, generation: int, *, with_heir: bool) -> dict[str, Bound]:
        """The sockets for these settings; those that there are already stay. StartError where one cannot be had."""
        wanted = {"listen": settings.listen, "admin": settings.admin}
        if settings.health is not None:
            wanted["health"] = settings.health
        bound: dict[str, Bound] = {}
        try:
            for name, address in wanted.items():
                known = self._sockets.get(name)
                has = known is not None and known.address == address
                bound[name] = known if has and known is not None else Bound(address, bind_tcp(name, address))
            for name in ("analyst", "embedder", "validator"):
                path = self._runtime / f"{name}.sock"
                known = self._sockets.get(name)
                bound[name] = known if known is not None else Bound(str(path), bind_unix(path))
            heir = self._sockets.get(HEIR)
            if with_heir or heir is None:
                path = self._runtime / f"{HEIR}-{generation}"
                heir = Bound(str(path), bind_unix(path, socket.SOCK_DGRAM))
            bound[HEIR] = heir
        except BaseException:
            self._close(bound.values())
            raise
        return bound

    def _close(self, bound: Iterable[Bound]) -> None:
        """Close those that are not in use."""
        in_use = {id(each.socket) for each in self._sockets.values()}
        for each in bound:
            if id(each.socket) not in in_use:
                each.socket.close()
                if Path(each.address).name.startswith(f"{HEIR}-"):
                    Path(each.address).unlink(missing_ok=True)

    def _point_to_heir(self) -> None:
        """Connections that workers hand on go to the workers of this generation from now on."""
        new = self._runtime / f"{HEIR}.new"
        new.unlink(missing_ok=True)
        new.symlink_to(Path(self._sockets[HEIR].address).name)
        new.replace(self._runtime / HEIR)

    def _write(self, name: str, content: bytes) -> None:
        """A private file of the runtime directory, changed in one step. StartError where it cannot be written."""
        new = self._runtime / f"{name}.new"
        try:
            new.touch(mode=0o600)
            new.write_bytes(content)
            new.replace(self._runtime / name)
        except OSError as error:
            raise StartError(f"cannot write {self._runtime / name}: {error.strerror}") from error

    def _programs(self, settings: Settings, sockets: dict[str, Bound]) -> list[Program]:
        """In the order they are started: traffic first."""
        of = {name: bound.socket for name, bound in sockets.items()}
        programs = []
        for number in range(settings.proxy.workers):
            handed = {"data": of["listen"], "handed": of[HEIR]}
            if number == 0 and settings.health is not None:
                handed["health"] = of["health"]  # answered by the first worker only; all share the data port
            arguments = ("--worker", str(number))
            programs.append(Program(f"proxy-{number}", "collector.proxy.worker", handed, arguments, has_control=True))
        listening = {"events": of["analyst"], "admin": of["admin"]}
        programs.append(Program("analyst", "collector.app", listening, has_control=True))
        programs.append(Program("validator", "collector.validation.process", {"requests": of["validator"]}, niceness=5))
        if settings.embedder.kind != "none":
            programs.append(
                Program("embedder", "collector.embedding.process", {"requests": of["embedder"]}, niceness=10)
            )
        return programs

    # ------------------------------------------------------------ running

    def _begin(self) -> None:
        """Start what is to run; what an image before this one started goes on running, and is then changed."""
        running = () if self._inherited is None else self._inherited.processes
        current = {each.name: Adopted(each.pid) for each in running if not each.is_retired}
        for program in self._programs(self._settings, self._sockets):
            self._keep(program, process=current.pop(program.name, None))
        for name, process in [
            *current.items(),
            *((each.name, Adopted(each.pid)) for each in running if each.is_retired),
        ]:
            self._keep(Program(name, "", {}), process=process).retire(signal.SIGUSR1)
        if self._inherited is not None:
            self._start_work(lambda: self._reload(lambda _: None, everything=True))

    def _keep(self, program: Program, *, process: Adopted | None = None, is_held: bool = False) -> Child:
        child = Child(program, self._runtime, self._note_restart, self._hear, process=process, is_held=is_held)
        self._children.append(child)

        async def keep() -> None:
            await child.keep()
            self._children.remove(child)

        self._group.create_task(keep())
        return child

    def _current(self, name: str) -> Child | None:
        """The child of this name that is not retired."""
        return next((each for each in self._children if each.program.name == name and not each.is_retired), None)

    def _note_restart(self, name: str) -> None:
        try:
            with (self._runtime / "restarts").open("a") as file:
                file.write(f"{name.split('-', maxsplit=1)[0]}\n")
        except OSError as error:
            log.warning("a restart could not be noted: %s", error)

    def _note_reload(self, *, successful: bool) -> None:
        now = time.time()
        if not successful:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                now = msgspec.json.decode((self._runtime / RELOAD_FILE).read_bytes(), type=ReloadState).at
        try:
            self._write(RELOAD_FILE, msgspec.json.encode(ReloadState(successful, now)))
        except StartError as error:
            log.warning("a reload could not be noted: %s", error)

    def _hear(self, child: Child, note: Note) -> None:
        if note.kind == "reload":
            self.reload(lambda outcome: child.tell(Note("answer", outcome.text, outcome.status)))

    def _hang_up(self) -> None:
        """SIGHUP: the exchange log is opened anew in any case, as rotation needs; then all that is configured."""
        analyst = self._current("analyst")
        if analyst is not None and analyst.serving.is_set():
            analyst.send(signal.SIGHUP)
        if self._is_at_work:
            self._reload_again = True
        else:
            self.reload()

    # ------------------------------------------------------------ reloading

    @property
    def _is_at_work(self) -> bool:
        return self._work is not None and not self._work.done()

    def _start_work(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        async def do() -> None:
            await work()
            while self._reload_again or self._hand_over_next:
                if self._hand_over_next:
                    self._hand_over_next = False
                    await self._become_new()
                else:
                    self._reload_again = False
                    await self._reload(lambda _: None)

        if not self._stopping.is_set():
            self._work = self._group.create_task(do())

    async def _reload(self, answer: Answer, *, everything: bool = False) -> None:
        """`everything`: each process is changed for a new one, whatever is configured."""
        try:
            settings = await asyncio.to_thread(self._reread)
            change = await self._change_to(settings, answer, everything=everything)
        except ConfigError as error:
            self._refuse(Outcome(400, str(error)), answer)
        except StartError as error:
            self._refuse(Outcome(500, str(error)), answer)
        except Exception as error:
            log.exception("fault in a reload")
            self._refuse(Outcome(500, f"unexpected {type(error).__name__}; the log of semhealth says more"), answer)
        else:
            await self._bring_in(change)

    def _refuse(self, outcome: Outcome, answer: Answer) -> None:
        log.error("the configuration is not reloaded, nothing has changed: %s", "; ".join(outcome.text.splitlines()))
        self._note_reload(successful=False)
        answer(outcome)

    async def _change_to(self, settings: Settings, answer: Answer, *, everything: bool) -> _Change:
        """All of it or nothing: up to the answer what was there is untouched. Raises StartError or ConfigError."""
        old = self._settings
        kept = await asyncio.to_thread(keep_files, settings, self._runtime, self._generation + 1)
        files = await asyncio.to_thread(_files_of, settings)
        changes_workers = everything or files[0] != self._files[0] or for_workers(old) != for_workers(settings)
        retired = sum(each.is_retired for each in self._children)
        if changes_workers and retired + old.proxy.workers > MOST_RETIRED:
            raise StartError(f"{retired} workers of earlier settings still finish what they carry; try again later")
        sockets = self._bound_for(settings, self._generation + 1, with_heir=changes_workers)
        before = (self._runtime / SETTINGS_FILE).read_bytes()
        begun: list[Child] = []
        try:
            self._write(SETTINGS_FILE, msgspec.json.encode(kept))
            programs = self._programs(settings, sockets)
            if changes_workers:
                workers = [each for each in programs if each.name.startswith("proxy-")]
                begun = [self._keep(each, is_held=True) for each in workers]
                await self._all_come_to_ready(begun)
            analyst = None if everything else self._current("analyst")
            if analyst is None:
                reason = ""
            elif files[1] != self._files[1]:
                reason = "the files of admin_tls differ"
            else:
                reason = await self._taken_by(analyst, WORKERS_STAY if not begun else "")
            if analyst is None or reason:
                successor = self._keep(next(each for each in programs if each.name == "analyst"), is_held=True)
                begun.append(successor)
                await self._all_come_to_ready([successor])
        except BaseException:
            for child in begun:
                child.retire(signal.SIGKILL)
            self._write(SETTINGS_FILE, before)
            self._close(sockets.values())
            raise
        self._take_sockets(sockets)
        self._settings = settings
        self._files = files
        self._generation += 1
        self._note_reload(successful=True)
        logging.getLogger().setLevel(settings.log_level.upper())
        done = _described(begun, reason)
        log.info("the configuration is reloaded: %s", done)
        answer(Outcome(200, f"reloaded: {done}\n"))
        return _Change(tuple(begun), tuple(programs), old, settings, everything)

    async def _all_come_to_ready(self, children: Iterable[Child]) -> None:
        for child in children:
            if not await child.comes_to(child.ready, STARTING):
                name = child.program.name
                raise StartError(f"a new {name} could not be started with it; its own line in the log says why")

    async def _taken_by(self, analyst: Child, workers: str) -> str:
        """Why the analyst has to be changed for a new one; empty where it has taken the new settings."""
        taken = await analyst.ask(Note("take", workers), "taken", TAKING)
        return "it did not answer" if taken is None else taken.text

    def _take_sockets(self, sockets: dict[str, Bound]) -> None:
        dropped = [bound for name, bound in self._sockets.items() if sockets.get(name) is not bound]
        self._sockets = sockets
        self._close(dropped)

    async def _bring_in(self, change: _Change) -> None:
        """Let the new processes serve and the old ones end, so that there is always one to take what comes."""
        old, new = change.old, change.new
        for child in change.begun:
            if child.program.name == "analyst":
                await self._succeed_analyst(child)
        workers = [child for child in change.begun if child.program.name.startswith("proxy-")]
        if workers:
            leaving = [
                child
                for child in self._children
                if child.program.name.startswith("proxy-") and not child.is_retired and child not in workers
            ]
            for child in workers:
                child.let_go()
            for child in workers:
                if not await child.comes_to(child.serving, STARTING):
                    log.error("%s does not serve yet; it is started again", child.program.name)
            self._point_to_heir()
            for child in leaving:
                child.retire(signal.SIGUSR1)
        for name, changed in (
            ("validator", old.validator != new.validator),
            ("embedder", (old.embedder, old.log_level) != (new.embedder, new.log_level)),
        ):
            if change.everything or changed:
                await self._replace(name, change.programs)
        forget_files(self._runtime, self._generation)

    async def _succeed_analyst(self, successor: Child) -> None:
        """One analyst at a time has the exchange log and the admin port: the old one ends before the new one begins."""
        for child in [each for each in self._children if each.program.name == "analyst" and each is not successor]:
            await child.end(signal.SIGUSR1, LAST_WORDS)
        successor.let_go()
        if not await successor.comes_to(successor.serving, STARTING):
            log.error("the new analyst does not serve yet; it is started again")

    async def _replace(self, name: str, programs: Sequence[Program]) -> None:
        child = self._current(name)
        if child is not None:
            await child.end(signal.SIGTERM, 1.0)
        program = next((each for each in programs if each.name == name), None)
        if program is not None:
            self._keep(program)

    # ------------------------------------------------------------ new code

    async def _become_new(self) -> None:
        if self._command is None:
            log.error("SIGUSR2: this sidecar was not started by a command that could be executed anew")
            return
        log.info("the hand-over to new code is rehearsed")
        problem = await rehearse(self._command, os.environ)
        if not problem:
            while any(child.is_starting for child in self._children):
                await asyncio.sleep(0.005)
            try:
                execute(self._command, os.environ, self._handed_on())
            except OSError as error:
                problem = f"{self._command[0]} cannot be executed: {error.strerror}"
        log.error("the hand-over is refused, nothing has changed: %s", problem)
        self._note_reload(successful=False)

    def _handed_on(self) -> Inherited:
        return Inherited(
            runtime=str(self._runtime),
            generation=self._generation,
            sockets={
                name: InheritedSocket(bound.address, bound.socket.fileno()) for name, bound in self._sockets.items()
            },
            processes=tuple(
                InheritedProcess(child.program.name, child.process.pid, child.is_retired)
                for child in self._children
                if child.process is not None
            ),
        )

    # ------------------------------------------------------------ the end

    async def _take_down(self) -> None:
        """Proxies drain first; then the analyst settles and flushes; the rest has nothing to lose."""
        await self._end("proxy", self._settings.proxy.drain_timeout + 3.0)
        await self._end("analyst", LAST_WORDS)
        await self._end("", 1.0)

    async def _end(self, kind: str, patience: float) -> None:
        children = [each for each in self._children if each.program.name.startswith(kind)]
        await asyncio.gather(*(child.end(signal.SIGTERM, patience) for child in children))


def settings_in(inherited: Inherited) -> Settings | None:
    """The settings by which inherited processes run; None where an image before this one wrote them another way."""
    try:
        return msgspec.json.decode((Path(inherited.runtime) / SETTINGS_FILE).read_bytes(), type=Settings)
    except (OSError, msgspec.MsgspecError):
        return None


def _files_of(settings: Settings) -> tuple[dict[str, str], dict[str, str]]:
    return files_of_workers(settings), files_of_admin(settings)


def _taken_over(inherited: InheritedSocket) -> Bound:
    taken = socket.socket(fileno=inherited.number)
    taken.setblocking(False)
    os.set_inheritable(inherited.number, False)
    return Bound(inherited.address, taken)


def _described(begun: Sequence[Child], reason: str) -> str:
    """What is done about a reload, in a line."""
    names = [child.program.name for child in begun]
    done = []
    if "analyst" not in names:
        done.append("the analyst has taken it")
    elif reason:
        done.append(f"a new analyst is started ({reason})")
    else:
        done.append("a new analyst is started")
    workers = sum(name.startswith("proxy-") for name in names)
    done.append(f"{workers} new workers are started" if workers else "the workers stay")
    return ", ".join(done)
