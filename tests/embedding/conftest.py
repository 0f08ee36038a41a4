"""A real embedder process behind a real socket, as the supervisor starts it."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from collector.config import EmbedderSettings, Settings


class Supervised:
    """Holds the listening socket through the life and death of the process."""

    def __init__(self, runtime: Path, settings: EmbedderSettings) -> None:
        self.runtime = runtime
        self.path = runtime / "embedder.sock"
        self.settings = settings
        (runtime / "settings.json").write_bytes(msgspec.json.encode(Settings(embedder=settings)))
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(self.path))
        self._listening.listen(16)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        number = self._listening.fileno()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "collector.embedding.process",
                "--runtime",
                str(self.runtime),
                "--fd",
                f"requests={number}",
            ],
            pass_fds=[number],
            stderr=subprocess.PIPE,
        )
        return self.process

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate()

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
        self._listening.close()


@pytest.fixture
def supervised() -> Iterator[Callable[..., Supervised]]:
    """Makes processes that are gone after the test. The directory is short: paths of Unix sockets are bounded."""
    made: list[Supervised] = []

    def make(**settings: object) -> Supervised:
        runtime = Path(tempfile.mkdtemp(prefix="semhealth-"))
        made.append(Supervised(runtime, msgspec.convert(settings, EmbedderSettings)))
        return made[-1]

    yield make
    for one in made:
        one.close()
        shutil.rmtree(one.runtime)
