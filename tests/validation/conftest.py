"""A real validator process on a real socket, brought back when it dies as the supervisor would."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from collector.config import Settings, ValidatorSettings
from collector.validation import fast
from collector.validation.client import ValidatorClient


class Room:
    """A runtime directory with the listening socket, and the life of the process on it."""

    def __init__(self, directory: Path, settings: ValidatorSettings) -> None:
        self.settings = settings
        self.path = directory / "validator.sock"
        self.starts = 0
        self.process: asyncio.subprocess.Process | None = None
        (directory / "settings.json").write_bytes(msgspec.json.encode(Settings(validator=settings)))
        self._directory = directory
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(16)
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> asyncio.subprocess.Process:
        number = self._listener.fileno()
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "collector.validation.process",
            "--runtime", str(self._directory), "--fd", f"requests={number}",
            pass_fds=[number], stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self.starts += 1
        return self.process

    def keep_alive(self) -> None:
        self._keeping = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            await (await self.start()).wait()

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.communicate()
        self._listener.close()


@pytest.fixture
def directory() -> Iterator[Path]:
    # Not tmp_path: a Unix socket's path may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="validator-") as made:
        yield Path(made)


MakeRoom = Callable[..., Awaitable[tuple[Room, ValidatorClient]]]


@pytest.fixture
async def make_room(directory: Path) -> AsyncIterator[MakeRoom]:
    """Makes a room with a process that is kept alive, and a client that runs."""
    rooms: list[Room] = []
    running: list[asyncio.Task[None]] = []

    async def make(alive: bool = True, **settings: object) -> tuple[Room, ValidatorClient]:
        room = Room(directory, msgspec.convert(settings, ValidatorSettings))
        rooms.append(room)
        client = ValidatorClient(room.path, room.settings)
        running.append(asyncio.create_task(client.run()))
        if alive:
            room.keep_alive()
            async with asyncio.timeout(30):
                while client.pid is None:
                    await asyncio.sleep(0.01)
        return room, client

    yield make
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    for room in rooms:
        await room.close()


@pytest.fixture
async def room(directory: Path) -> AsyncIterator[Room]:
    """A room in which nothing runs yet."""
    made = Room(directory, ValidatorSettings(timeout=0.5))
    yield made
    await made.close()


@pytest.fixture
def jsonschema_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As where the extra `fast-validation` is not installed."""
    monkeypatch.setattr(fast, "ENGINE", None)
    fast.matcher.cache_clear()
    yield
    fast.matcher.cache_clear()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
