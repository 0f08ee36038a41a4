"""The supervisor: sockets, restarts, signals, and an end that takes everything along."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from collector import children as module
from collector.children import Adopted, Child, Program, child_environment
from collector.config import EmbedderSettings, Proxy, Settings, ValidatorSettings
from collector.supervisor import Outcome, ReloadState, StartError, Supervisor, bind_tcp, bind_unix

PATIENCE = 20.0

SETTINGS = Settings(upstream="http://127.0.0.1:1", listen="127.0.0.1:0", admin="127.0.0.1:0")

# A child that leaves its id and then does as told; it stands for the real programs.
CHILD = """
import json, pathlib, os, signal, socket, sys, time
runtime = pathlib.Path(sys.argv[sys.argv.index("--runtime") + 1])
name = sys.argv[sys.argv.index("--name") + 1]
with (runtime / "began").open("a") as file: file.write(name + "\\n")
def said(number, _): (runtime / f"{name}.{signal.Signals(number).name}").touch()
signal.signal(signal.SIGHUP, said)
mode = sys.argv[sys.argv.index("--mode") + 1]
if mode == "die": sys.exit(3)
if mode == "stubborn": signal.signal(signal.SIGTERM, said)
control = next((word.split("=")[1] for word in sys.argv if word.startswith("control=")), None)
if control is None:
    (runtime / f"{name}.up").touch()
    while True: time.sleep(0.05)
lines = socket.socket(fileno=int(control)).makefile("rw")
def say(kind, **more): print(json.dumps({"kind": kind, **more}), file=lines, flush=True)
say("ready")
for line in lines:
    kind = json.loads(line)["kind"]
    if kind == "go":
        say("serving")
        (runtime / f"{name}.up").touch()
    elif kind == "take" and mode != "mute":
        say("taken", text=mode.partition(":")[2])
"""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Supervisor]]:
    """Supervisors that make their runtime directory under `tmp_path`, cleaned up afterwards."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    supervisors: list[Supervisor] = []
    yield supervisors
    for each in supervisors:
        each.clean_up()


def programs(directory: Path, modes: dict[str, str]) -> list[Program]:
    """Programs of our own under the names of the real ones."""
    (directory / "child_program.py").write_text(CHILD)
    return [
        Program(
            name, "child_program", {}, ("--name", name, "--mode", mode),
            has_control=name == "analyst" or name.startswith("proxy-"),
        )
        for name, mode in modes.items()
    ]  # fmt: skip


@asynccontextmanager
async def running(supervisor: Supervisor) -> AsyncIterator[asyncio.Task[int]]:
    """The supervisor runs; at the end it is stopped."""
    task = asyncio.create_task(supervisor.run())
    try:
        yield task
    finally:
        supervisor.stop()
        async with asyncio.timeout(PATIENCE):
            await task


async def until(path: Path, text: str | None = None, times: int = 1) -> None:
    async with asyncio.timeout(PATIENCE):
        while not path.exists() or (text is not None and path.read_text().count(text) < times):
            await asyncio.sleep(0.01)


@pytest.fixture
def with_programs(made: list[Supervisor], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Supervisor]:
    code = tmp_path / "code"
    code.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(code))

    def make(**modes: str) -> Supervisor:
        named = {name.replace("_", "-"): mode for name, mode in ({"analyst": "live"} | modes).items()}
        monkeypatch.setattr(Supervisor, "_programs", lambda *_: programs(code, named))
        made.append(Supervisor(msgspec.structs.replace(SETTINGS, proxy=Proxy(drain_timeout=0.5))))
        return made[-1]

    return make


def programs_of(supervisor: Supervisor) -> list[Program]:
    return supervisor._programs(supervisor._settings, supervisor._sockets)


def runtime_of(tmp_path: Path) -> Path:
    [directory] = tmp_path.glob("semhealth-*")
    return directory


# ---------------------------------------------------------------- sockets


def test_a_port_that_is_taken_is_named_with_the_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StartError, match=f"admin: cannot listen on {address}: another process .* --admin"):
            bind_tcp("admin", address)


def test_an_address_of_another_machine_is_named_with_the_remedy() -> None:
    with pytest.raises(StartError, match=r"listen: cannot listen on 192\.0\.2\.1:0: this machine has no such address"):
        bind_tcp("listen", "192.0.2.1:0")


def test_a_port_is_free_again_at_once_after_a_restart() -> None:
    first = bind_tcp("listen", "127.0.0.1:0")
    address = f"127.0.0.1:{first.getsockname()[1]}"
    client = socket.create_connection(first.getsockname())
    first.setblocking(True)
    served, _ = first.accept()
    served.close()  # the server closes first: its side waits in TIME_WAIT
    first.close()
    client.close()
    bind_tcp("listen", address).close()


def test_ipv6_addresses_are_understood() -> None:
    try:
        listening = bind_tcp("listen", "[::1]:0")
    except StartError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            pytest.skip("this machine has no IPv6 loopback")  # containers often have none
        raise
    assert listening.family == socket.AF_INET6
    listening.close()


def test_unix_sockets_are_private(tmp_path: Path) -> None:
    with bind_unix(tmp_path / "a.sock"):
        assert stat.S_IMODE((tmp_path / "a.sock").stat().st_mode) == 0o600


def test_children_run_the_code_of_their_supervisor() -> None:
    root = str(Path(module.__file__).resolve().parent.parent)
    assert child_environment({"A": "1"}) == {"A": "1", "PYTHONPATH": root}
    assert child_environment({"PYTHONPATH": "/else"})["PYTHONPATH"] == f"{root}{os.pathsep}/else"


# ---------------------------------------------------------------- preparing


def test_the_runtime_directory_is_private_and_holds_the_settings(made: list[Supervisor], tmp_path: Path) -> None:
    made.append(Supervisor(SETTINGS))
    runtime = runtime_of(tmp_path)
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
    assert stat.S_IMODE((runtime / "settings.json").stat().st_mode) == 0o600
    assert msgspec.json.decode((runtime / "settings.json").read_bytes(), type=Settings) == SETTINGS
    assert (runtime / "heir").resolve().is_socket()
    assert {each.name for each in runtime.glob("*.sock")} == {"analyst.sock", "embedder.sock", "validator.sock"}


def test_port_0_becomes_the_port_that_was_found(made: list[Supervisor]) -> None:
    made.append(Supervisor(msgspec.structs.replace(SETTINGS, health="127.0.0.1:0")))
    assert set(made[0].addresses) == {"listen", "admin", "health"}
    ports = {int(address.removeprefix("127.0.0.1:")) for address in made[0].addresses.values()}
    assert len(ports) == 3
    assert 0 not in ports
    for port in ports:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()


def test_nothing_is_left_when_a_socket_cannot_be_had(made: list[Supervisor], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StartError):
            Supervisor(msgspec.structs.replace(SETTINGS, admin=address))
    assert list(tmp_path.glob("semhealth-*")) == []


def test_a_runtime_directory_that_is_too_deep_is_an_error_with_its_remedy(
    made: list[Supervisor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(StartError, match=r"cannot make a socket at .*: .*; set TMPDIR to a short path"):
        Supervisor(SETTINGS)
    assert list(deep.iterdir()) == []
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(StartError, match=r"cannot make a runtime directory: .*; set TMPDIR"):
        Supervisor(SETTINGS)


def test_the_health_port_is_given_to_the_first_worker_only(made: list[Supervisor]) -> None:
    settings = msgspec.structs.replace(SETTINGS, health="127.0.0.1:0", proxy=Proxy(workers=3))
    made.append(Supervisor(settings))
    handed = {program.name: set(program.sockets) for program in programs_of(made[0])}
    assert handed["proxy-0"] == {"data", "handed", "health"}
    assert handed["proxy-1"] == handed["proxy-2"] == {"data", "handed"}


def test_without_an_embedder_none_is_started(made: list[Supervisor]) -> None:
    made.append(Supervisor(msgspec.structs.replace(SETTINGS, embedder=EmbedderSettings(kind="none"))))
    assert "embedder" not in {program.name for program in programs_of(made[0])}


# ---------------------------------------------------------------- running


async def test_what_dies_is_started_again_with_growing_waits(
    with_programs: Callable[..., Supervisor], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = with_programs(validator="die", analyst="live")
    runtime = runtime_of(tmp_path)
    with caplog.at_level(logging.WARNING, logger="semhealth"):
        async with running(supervisor):
            await until(runtime / "began", "validator\n", 4)
            assert (runtime / "restarts").read_text().splitlines()[:3] == ["validator"] * 3
            assert (runtime / "began").read_text().count("analyst\n") == 1
    waits = [message.rpartition(" in ")[2] for message in caplog.messages if message.startswith("validator")]
    assert waits[:3] == ["0.05 s", "0.1 s", "0.2 s"]
    assert "exit code 3" in caplog.messages[0]


async def test_a_killed_process_is_named_with_its_signal(
    with_programs: Callable[..., Supervisor], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = with_programs(proxy_0="live")
    runtime = runtime_of(tmp_path)
    with caplog.at_level(logging.WARNING, logger="semhealth"):
        async with running(supervisor):
            await until(runtime / "proxy-0.up")
            os.kill(supervisor.pids["proxy-0"], signal.SIGKILL)
            await until(runtime / "began", "proxy-0\n", 2)
            assert (runtime / "restarts").read_text() == "proxy\n"
    assert "proxy-0 ended with SIGKILL; starting it again in 0.05 s" in caplog.messages


async def test_stopping_ends_every_process_and_removes_the_runtime_directory(
    with_programs: Callable[..., Supervisor], tmp_path: Path
) -> None:
    supervisor = with_programs(proxy_0="live", analyst="live", embedder="live", validator="live")
    runtime = runtime_of(tmp_path)
    async with running(supervisor) as task:
        for name in ("proxy-0", "analyst", "embedder", "validator"):
            await until(runtime / f"{name}.up")
        pids = supervisor.pids
        assert len(pids) == 4
    assert task.result() == 0
    assert not runtime.exists()
    for pid in pids.values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_who_does_not_end_when_asked_is_killed(with_programs: Callable[..., Supervisor], tmp_path: Path) -> None:
    supervisor = with_programs(proxy_0="stubborn")
    runtime = runtime_of(tmp_path)
    async with running(supervisor) as task:
        await until(runtime / "proxy-0.up")
        pid = supervisor.pids["proxy-0"]
        supervisor.stop()
        await until(runtime / "proxy-0.SIGTERM")
        async with asyncio.timeout(PATIENCE):
            await task
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_stopping_waits_for_no_restart(with_programs: Callable[..., Supervisor], tmp_path: Path) -> None:
    supervisor = with_programs(validator="die")
    runtime = runtime_of(tmp_path)
    async with running(supervisor) as task:
        await until(runtime / "began", "validator\n", 5)  # the next wait is 0.8 s or longer
        began = asyncio.get_running_loop().time()
        supervisor.stop()
        await task
        assert asyncio.get_running_loop().time() - began < 0.7


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signals_stop_the_supervisor(
    number: signal.Signals, with_programs: Callable[..., Supervisor], tmp_path: Path
) -> None:
    supervisor = with_programs(analyst="live")
    async with running(supervisor) as task:
        await until(runtime_of(tmp_path) / "analyst.up")
        os.kill(os.getpid(), number)
        async with asyncio.timeout(PATIENCE):
            assert await task == 0


async def test_sighup_is_passed_to_an_analyst_that_serves_and_to_nobody_else(
    with_programs: Callable[..., Supervisor], tmp_path: Path
) -> None:
    supervisor = with_programs(analyst="live", validator="live")
    runtime = runtime_of(tmp_path)
    async with running(supervisor):
        for name in ("analyst", "validator"):
            await until(runtime / f"{name}.up")
        os.kill(os.getpid(), signal.SIGHUP)
        await until(runtime / "analyst.SIGHUP")
        assert not (runtime / "validator.SIGHUP").exists()


async def test_a_program_that_cannot_be_started_is_tried_again(
    with_programs: Callable[..., Supervisor],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    supervisor = with_programs(validator="live")
    runtime = runtime_of(tmp_path)
    python = sys.executable
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with caplog.at_level(logging.ERROR, logger="semhealth"):
        async with running(supervisor):
            async with asyncio.timeout(PATIENCE):
                while not caplog.messages:
                    await asyncio.sleep(0.01)
            monkeypatch.setattr(sys, "executable", python)
            await until(runtime / "validator.up")
    assert any(message.startswith("validator cannot be started: ") for message in caplog.messages)


# ---------------------------------------------------------------- reloading


class Reloading:
    """A supervisor whose settings and programs can be changed, and reloaded."""

    def __init__(self, made: list[Supervisor], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        code = tmp_path / "code"
        code.mkdir()
        monkeypatch.setenv("PYTHONPATH", str(code))
        self.modes = {"proxy-0": "live", "analyst": "live", "validator": "live"}
        monkeypatch.setattr(Supervisor, "_programs", lambda *_: programs(code, self.modes))
        self.settings = msgspec.structs.replace(SETTINGS, proxy=Proxy(drain_timeout=0.5))
        self.supervisor = Supervisor(self.settings, lambda: self.settings)
        made.append(self.supervisor)
        self.runtime = runtime_of(tmp_path)

    async def up(self) -> dict[str, int]:
        for name in self.modes:
            await until(self.runtime / f"{name}.up")
        return self.supervisor.pids

    async def reload(self) -> Outcome:
        answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.supervisor.reload(answered.set_result)
        async with asyncio.timeout(PATIENCE):
            return await answered

    def change_route(self, path: str = "/v2") -> None:
        self.settings = msgspec.structs.replace(self.settings, upstream=f"http://127.0.0.1:1{path}")

    def written(self) -> Settings:
        return msgspec.json.decode((self.runtime / "settings.json").read_bytes(), type=Settings)

    def state(self) -> ReloadState:
        return msgspec.json.decode((self.runtime / "reload.json").read_bytes(), type=ReloadState)


@pytest.fixture
def reloading(made: list[Supervisor], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Reloading:
    return Reloading(made, monkeypatch, tmp_path)


async def test_other_routes_are_taken_by_new_workers_and_by_the_analyst_that_is_there(reloading: Reloading) -> None:
    async with running(reloading.supervisor):
        before = await reloading.up()
        reloading.change_route()
        outcome = await reloading.reload()
        assert outcome == Outcome(200, "reloaded: the analyst has taken it, 1 new workers are started\n")
        assert reloading.written() == reloading.settings
        await _gone(before["proxy-0"])
        after = reloading.supervisor.pids
        assert (after["analyst"], after["validator"]) == (before["analyst"], before["validator"])
        assert after["proxy-0"] != before["proxy-0"]
    assert not (reloading.runtime / "restarts").exists()


async def test_a_worker_that_cannot_start_with_new_settings_leaves_all_as_it_was(reloading: Reloading) -> None:
    async with running(reloading.supervisor):
        before = await reloading.up()
        good, state = reloading.settings, reloading.state()
        reloading.change_route()
        reloading.modes["proxy-0"] = "die"
        outcome = await reloading.reload()
        assert outcome.status == 500
        assert outcome.text.startswith("a new proxy-0 could not be started with it")
        assert reloading.supervisor.pids == before
        assert reloading.written() == good
        assert reloading.state() == ReloadState(False, state.at)
        reloading.modes["proxy-0"] = "live"
        assert (await reloading.reload()).status == 200
        assert reloading.state().successful


async def test_an_analyst_that_cannot_take_new_settings_is_followed_by_another(reloading: Reloading) -> None:
    reloading.modes["analyst"] = "live:the labels differ"
    async with running(reloading.supervisor):
        before = await reloading.up()
        outcome = await reloading.reload()
        assert outcome.text == "reloaded: a new analyst is started (the labels differ), the workers stay\n"
        await _gone(before["analyst"])
        after = reloading.supervisor.pids
        assert after["proxy-0"] == before["proxy-0"]
        assert after["analyst"] != before["analyst"]


async def test_an_address_that_cannot_be_had_refuses_the_reload(reloading: Reloading) -> None:
    async with running(reloading.supervisor):
        before = await reloading.up()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            reloading.settings = msgspec.structs.replace(reloading.settings, listen=address)
            outcome = await reloading.reload()
        assert outcome.status == 500
        assert outcome.text.startswith(f"listen: cannot listen on {address}: another process listens there")
        assert reloading.supervisor.pids == before


async def test_another_address_is_taken_and_the_former_one_left(reloading: Reloading) -> None:
    async with running(reloading.supervisor):
        await reloading.up()
        former = reloading.supervisor.addresses["listen"]
        with socket.create_server(("127.0.0.1", 0)) as probe:
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        reloading.settings = msgspec.structs.replace(reloading.settings, listen=address)
        assert (await reloading.reload()).status == 200
        assert reloading.supervisor.addresses["listen"] == address
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=5).close()
        bind_tcp("listen", former).close()


async def test_other_settings_of_the_validator_bring_another_one_without_a_restart_being_counted(
    reloading: Reloading,
) -> None:
    async with running(reloading.supervisor):
        before = await reloading.up()
        changed = ValidatorSettings(timeout=2.0)
        reloading.settings = msgspec.structs.replace(reloading.settings, validator=changed)
        assert (await reloading.reload()).status == 200
        await _gone(before["validator"])
        await until(reloading.runtime / "began", "validator\n", 2)
    assert not (reloading.runtime / "restarts").exists()


async def test_one_reload_at_a_time(reloading: Reloading) -> None:
    async with running(reloading.supervisor):
        await reloading.up()
        reloading.change_route()
        first, second = await asyncio.gather(reloading.reload(), reloading.reload())
        assert (first.status, second.status) == (200, 409)


async def test_a_signal_that_comes_during_a_reload_is_not_forgotten(reloading: Reloading) -> None:
    async with running(reloading.supervisor):
        await reloading.up()
        reloading.change_route("/v2")
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(PATIENCE):
            while (reloading.runtime / "began").read_text().count("proxy-0\n") < 2:
                await asyncio.sleep(0.01)
            reloading.change_route("/v3")
            os.kill(os.getpid(), signal.SIGHUP)
            while reloading.written() != reloading.settings or reloading.supervisor._is_at_work:
                await asyncio.sleep(0.01)


async def test_a_sidecar_that_no_command_started_refuses_to_be_handed_over(
    reloading: Reloading, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(reloading.supervisor):
        before = await reloading.up()
        os.kill(os.getpid(), signal.SIGUSR2)
        async with asyncio.timeout(PATIENCE):
            while not any("SIGUSR2" in message for message in caplog.messages):
                await asyncio.sleep(0.01)
        assert reloading.supervisor.pids == before


async def _gone(pid: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
            await asyncio.sleep(0.01)


# ---------------------------------------------------------------- processes of another image


async def test_an_adopted_process_is_waited_for_and_told_of() -> None:
    for script, code in (("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", -9)):
        pid = os.posix_spawn(sys.executable, [sys.executable, "-c", script], os.environ)
        async with asyncio.timeout(PATIENCE):
            assert await Adopted(pid).wait() == code


async def test_an_adopted_process_that_dies_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [program] = programs(tmp_path, {"validator": "live"})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)"], os.environ)
    restarted: list[str] = []
    child = Child(program, tmp_path, restarted.append, process=Adopted(pid))
    keeping = asyncio.create_task(child.keep())
    os.kill(pid, signal.SIGKILL)
    await until(tmp_path / "validator.up")
    await child.end(signal.SIGTERM, PATIENCE)
    await keeping
    assert restarted == ["validator"]
