"""The real sidecar as processes, in front of the simulated API or a scripted upstream; all are ended by their ids."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 30.0  # seconds after which a test gives up waiting; a busy machine may need many
START_PATIENCE = 20.0

T = TypeVar("T")


def wait_until(claim: Callable[[], T], what: str, seconds: float = PATIENCE, pause: float = 0.05) -> T:
    """Ask until the answer is true; gives that answer."""
    deadline = time.monotonic() + seconds
    while not (answer := claim()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(pause)
    return answer


@dataclass(frozen=True)
class Answer:
    """A whole HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def call(
    url: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    method: str | None = None,
    timeout: float = PATIENCE,
) -> Answer:
    """One request on a connection of its own; a body that is not bytes is sent as JSON. Raises OSError."""
    parts = urlsplit(url)
    sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        told = {"Content-Type": "application/json"} if sent is not None else {}
        connection.request(method or ("GET" if sent is None else "POST"), target, sent, {**told, **(headers or {})})
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


class Metrics:
    """What one scrape said."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._samples = [s for family in text_string_to_metric_families(text) for s in family.samples]

    def values(self, name: str, **labels: str) -> list[float]:
        return [
            sample.value for sample in self._samples if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def total(self, name: str, **labels: str) -> float:
        return sum(self.values(name, **labels))


class Process:
    """A process of ours, whose output goes to a file."""

    def __init__(self, command: list[str], directory: Path, env: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self._stdout, self._stderr = directory / "stdout", directory / "stderr"
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "SEMHEALTH_"))}
        with self._stdout.open("wb") as out, self._stderr.open("wb") as err:
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                # What a killed process leaves behind goes with the directory.
                env={**clean, "PYTHONPATH": str(ROOT), "TMPDIR": str(directory), **(env or {})},
                cwd=directory,
            )

    @property
    def stdout(self) -> str:
        return self._stdout.read_text("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self._stderr.read_text("utf-8", "replace")

    def wait_for_output(self, pattern: str) -> re.Match[str]:
        def said() -> re.Match[str] | None:
            found = re.search(pattern, self.stdout + self.stderr)
            if found is None and self.popen.poll() is not None:
                raise AssertionError(f"ended with {self.popen.returncode}: {self.stdout}{self.stderr}")
            return found

        found = wait_until(said, f"output like {pattern!r}", START_PATIENCE, 0.01)
        assert found is not None
        return found

    def wait(self, seconds: float = PATIENCE) -> int:
        return self.popen.wait(timeout=seconds)

    def end(self) -> int:
        """SIGTERM, and SIGKILL to whom that does not end; gives the exit code."""
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        return self.popen.returncode


class Simulator(Process):
    """The simulated API; its answers are the same for the same request."""

    def __init__(self, directory: Path, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        super().__init__(
            [sys.executable, "-m", "collector.simulator.api", "--listen", "127.0.0.1:0", *arguments], directory, env
        )
        self.base = self.wait_for_output(r"simulated LLM API on (http://\S+)")[1]

    def switch(self, **shares: float | dict[str, object]) -> None:
        """Switch faults on: `overload=0.5`, or `overload={"share": 1, "mode": "model"}`."""
        rows = [
            {"fault": name, **(share if isinstance(share, dict) else {"share": share})}
            for name, share in shares.items()
        ]
        assert call(f"{self.base}/-/faults", rows).status == 200

    def clear(self) -> None:
        assert call(f"{self.base}/-/faults", method="DELETE").status == 200

    def counts(self) -> dict[str, Any]:
        counts: dict[str, Any] = call(f"{self.base}/-/counts").json()
        return counts


class Sidecar(Process):
    """`semhealth run`, ready when this returns. `base` is for the service, `admin` for the operator."""

    def __init__(self, directory: Path, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self.log_path = directory / "exchanges.jsonl"
        began = time.monotonic()
        super().__init__(
            [
                sys.executable, "-m", "collector.cli", "run", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
                "--exchange-log", str(self.log_path), *arguments,
            ],
            directory,
            env,
        )  # fmt: skip
        said = self.wait_for_output(r"listening on (\S+) \(.*\); admin on ([^\s;]+)(?:; health on (\S+))?")
        self.base, self.admin, self.health = said[1], said[2], said[3]
        wait_until(self._is_ready, "the sidecar is ready", START_PATIENCE, 0.01)
        self.ready_after = time.monotonic() - began

    def _is_ready(self) -> bool:
        assert self.popen.poll() is None, f"ended with {self.popen.returncode}: {self.stderr}"
        return all(is_ok(f"{address}{path}") for address, path in ((self.admin, "/readyz"), (self.base, "/-/readyz")))

    def metrics(self) -> Metrics:
        answer = call(f"{self.admin}/metrics")
        assert answer.status == 200
        return Metrics(answer.body.decode())

    def metrics_when(self, claim: Callable[[Metrics], object], what: str, seconds: float = PATIENCE) -> Metrics:
        """The first scrape for which the claim holds; the analyst may be away meanwhile."""

        def told() -> Metrics | None:
            try:
                metrics = self.metrics()
            except (OSError, http.client.HTTPException):
                return None
            return metrics if claim(metrics) else None

        found = wait_until(told, what, seconds, 0.1)
        assert found is not None
        return found

    def records(self, query: str = "") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = call(f"{self.admin}/records?limit=1000{query}").json()["records"]
        return found

    def record_of(self, request_id: str) -> dict[str, Any]:
        """The record of a request that carried this id, when it is there."""

        def look() -> dict[str, Any] | None:
            answer = call(f"{self.admin}/records/{request_id}")
            return answer.json() if answer.status == 200 else None

        found = wait_until(look, f"a record of {request_id}")
        assert found is not None
        return found

    def logged(self) -> list[dict[str, Any]]:
        """Every record of the exchange log."""
        if not self.log_path.exists():
            return []
        return [json.loads(line) for line in self.log_path.read_bytes().splitlines()]

    def summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = call(f"{self.admin}/summary").json()
        return summary

    def settled(self, forwarded: int | None = None) -> Metrics:
        """The metrics when nothing is running any more, every forwarded exchange is told and the log stands still."""
        before = -1

        def is_still(metrics: Metrics) -> bool:
            nonlocal before
            lines = self.log_path.read_bytes().count(b"\n")
            told = metrics.total("semantic_health_forwarded_total")
            was, before = before, lines
            return (
                was == lines
                and metrics.values("semantic_health_in_flight") != []
                and metrics.total("semantic_health_in_flight") == 0
                and (forwarded is None or told == forwarded)
            )

        self.metrics_when(is_still, f"settled at {forwarded} forwarded")
        time.sleep(1.2)  # the proxy tells its totals once a second
        return self.metrics_when(is_still, f"settled at {forwarded} forwarded")

    def pids(self) -> dict[str, int]:
        """The ids of the sidecar's processes by the module that they run."""
        return children_of(self.popen.pid)

    def pids_of_all(self) -> list[int]:
        """The ids of every process of the sidecar but the supervisor; there may be several of a kind."""
        children = Path(f"/proc/{self.popen.pid}/task/{self.popen.pid}/children")
        return [pid for pid in map(int, children.read_text().split()) if is_running(pid)]

    def pid(self, module: str) -> int:
        """The id of one process, when it runs."""
        return wait_until(lambda: self.pids().get(module, 0), f"{module} runs")


def is_ok(url: str) -> bool:
    try:
        return call(url, timeout=5.0).status == 200
    except (OSError, http.client.HTTPException):
        return False


def children_of(parent: int) -> dict[str, int]:
    """Process ids by what follows `-m` in their command line; those about to start, or ended, are left out."""
    found = {}
    children = Path(f"/proc/{parent}/task/{parent}/children")
    for pid in children.read_text().split() if children.exists() else []:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"--runtime" in words:
                found[words[words.index(b"-m") + 1].decode()] = int(pid)
    return found


def is_running(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


# ---------------------------------------------------------------- scripted upstreams

Script = Callable[[socket.socket, bytes, bytes], None]  # connection, request head, request body


class Upstream:
    """Serves each connection with a script, in threads; whoever calls asks once per connection."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.heads: list[bytes] = []
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = int(self._listening.getsockname()[1])
        self.base = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, ValueError):
            received = b""
            while b"\r\n\r\n" not in received:
                more = connection.recv(65536)
                if not more:
                    return
                received += more
            head, _, body = received.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            while length is not None and len(body) < int(length[1]):
                body += connection.recv(65536)
            self.heads.append(head)
            self.script(connection, head, body)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


def respond(connection: socket.socket, body: bytes, status: str = "200 OK", *headers: str) -> None:
    """A whole answer with a stated length, after which the connection closes."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    connection.sendall("\r\n".join(lines).encode() + body)


# ---------------------------------------------------------------- fixtures


@pytest.fixture(scope="session")
def new_directory() -> Iterator[Callable[[], Path]]:
    with tempfile.TemporaryDirectory(prefix="semhealth-end-to-end-") as parent:
        yield lambda: Path(tempfile.mkdtemp(dir=parent))


@pytest.fixture(scope="session")
def simulator(new_directory: Callable[[], Path]) -> Iterator[Simulator]:
    """One simulated API for all; a test that switches faults clears them again."""
    simulator = Simulator(new_directory(), "--fast", "--requests-per-minute", "1000000")
    yield simulator
    assert simulator.end() == 0


@pytest.fixture
def faults(simulator: Simulator) -> Iterator[Simulator]:
    """The shared simulator, with no fault left on afterwards."""
    yield simulator
    simulator.clear()


@pytest.fixture(scope="session")
def sidecar(simulator: Simulator, new_directory: Callable[[], Path]) -> Iterator[Sidecar]:
    """One sidecar in front of the shared simulator, for tests that do not disturb it."""
    sidecar = Sidecar(new_directory(), "--upstream", simulator.base)
    yield sidecar
    assert sidecar.end() == 0, sidecar.stderr


@pytest.fixture
def start(new_directory: Callable[[], Path]) -> Iterator[Callable[..., Sidecar]]:
    """Starts a sidecar of the test's own, without an embedder unless asked; ended afterwards if it still runs."""
    started: list[Sidecar] = []

    def begin(*arguments: str, env: Mapping[str, str] | None = None, embedder: bool = False) -> Sidecar:
        without = () if embedder else ("--set", "embedder.kind=none")
        started.append(Sidecar(new_directory(), *arguments, *without, env=env))
        return started[-1]

    yield begin
    for each in started:
        if each.popen.poll() is None:
            # A process that a test had stopped could not end.
            for pid in each.pids().values():
                os.kill(pid, signal.SIGCONT)
        each.end()


@pytest.fixture
def upstream() -> Iterator[Callable[[Script], Upstream]]:
    """Starts scripted upstreams."""
    started: list[Upstream] = []

    def begin(script: Script) -> Upstream:
        started.append(Upstream(script))
        return started[-1]

    yield begin
    for each in started:
        each.close()


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
