"""What the sidecar costs: latency and CPU per request and per stream frame, beside a direct connection and nginx.

Each target runs alone; rounds are interleaved, and medians printed. CPU is what the scheduler counted for the target's
processes (/proc/PID/task/*/schedstat). nginx is measured where it is installed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import uvloop
from msgspec import Struct

REQUEST_BODY = b'{"model":"bench","stream":true,"messages":[{"role":"user","content":"hello there, how are you"}]}'
SETTLING = 0.5  # seconds until the analyst has nothing left to do
DEADLINE = 120.0  # seconds for one measurement


class Target(Struct, frozen=True):
    """Something to send requests to; `pids` by the part of it they are."""

    name: str
    port: int
    pids: dict[str, int]


class Measured(Struct, frozen=True):
    """One measurement. Seconds; `cpu` by part of the target."""

    latencies: list[float]
    elapsed: float
    units: int
    cpu: dict[str, float]


# ---------------------------------------------------------------- clients


class Client(asyncio.Protocol):
    """One keep-alive connection that sends a request and waits for the end of the answer."""

    def __init__(self) -> None:
        self._done: asyncio.Future[float] | None = None
        self._first: float | None = None
        self._tail = b""
        self._want = -1
        self._got = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment] # a TCP transport

    def data_received(self, data: bytes) -> None:
        if self._done is None:
            return
        if self._first is None:
            self._first = time.perf_counter()
            head = data.split(b"\r\n\r\n", 1)[0].lower()
            at = head.find(b"content-length:")
            self._want = int(head[at + 15 :].split(b"\r\n", 1)[0]) + len(head) + 4 if at >= 0 else -1
            self._got = 0
        self._got += len(data)
        self._tail = (self._tail + data)[-5:]
        if self._got == self._want or (self._want < 0 and self._tail == b"0\r\n\r\n"):
            done, self._done = self._done, None
            done.set_result(self._first)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError("the target closed the connection"))

    async def ask(self, path: str) -> tuple[float, float]:
        """Seconds to the first byte and to the end."""
        self._done = asyncio.get_running_loop().create_future()
        self._first, self._tail = None, b""
        began = time.perf_counter()
        self.transport.write(
            b"POST %b HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nAuthorization: Bearer sk-bench\r\n"
            b"User-Agent: bench\r\nAccept: */*\r\nContent-Length: %d\r\n\r\n%b"
            % (path.encode(), len(REQUEST_BODY), REQUEST_BODY)
        )
        first = await self._done
        return first - began, time.perf_counter() - began


async def load(port: int, path: str, clients: int, each: int, first_byte: bool) -> list[float]:
    """Latencies of `clients` connections that ask `each` times one after another."""
    loop = asyncio.get_running_loop()

    async def one() -> list[float]:
        _, client = await loop.create_connection(Client, "127.0.0.1", port)
        try:
            return [(await client.ask(path))[0 if first_byte else 1] for _ in range(each)]
        finally:
            client.transport.close()

    async with asyncio.timeout(DEADLINE):
        return [latency for part in await asyncio.gather(*(one() for _ in range(clients))) for latency in part]


def measure(target: Target, path: str, clients: int, each: int, units_per_answer: int, first_byte: bool) -> Measured:
    uvloop.run(load(target.port, path, clients, max(1, each // 10), first_byte))
    time.sleep(SETTLING)
    before, began = cpu(target), time.perf_counter()
    latencies = uvloop.run(load(target.port, path, clients, each, first_byte))
    elapsed = time.perf_counter() - began
    time.sleep(SETTLING)  # what is analysed after the answer counts too
    after = cpu(target)
    spent = {part: after[part] - before[part] for part in after}
    return Measured(latencies, elapsed, clients * each * units_per_answer, spent)


def cpu(target: Target) -> dict[str, float]:
    return {part: cpu_seconds(pid) for part, pid in target.pids.items()}


def cpu_seconds(pid: int) -> float:
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


# ---------------------------------------------------------------- targets


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield running
    finally:
        running.send_signal(signal.SIGTERM)
        try:
            running.wait(10)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def wait_port(port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port}")


def children(pid: int) -> dict[str, int]:
    """The sidecar's processes by the module they run."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == pid and b"-m" in command:
            found[command[command.index(b"-m") + 1].decode()] = int(entry.name)
    return found


def sidecar(stack: ExitStack, upstream: int, embedder: str) -> Target:
    """The whole sidecar. With the embedder, scoring takes its budgeted share of a core beside what is measured."""
    port, admin = free_port(), free_port()
    running = stack.enter_context(
        process(
            sys.executable, "-m", "collector.cli", "run", "--upstream", f"http://127.0.0.1:{upstream}",
            "--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}", "--set", f"embedder.kind={embedder}",
        )
    )  # fmt: skip
    wait_port(port)
    time.sleep(3.0)  # let the embedding model load
    named = {"collector.proxy.worker": "proxy", "collector.app": "analyst"}
    pids = {named[module]: pid for module, pid in children(running.pid).items() if module in named}
    return Target("semhealth", port, pids)


def nginx(stack: ExitStack, upstream: int, binary: str) -> Target:
    port = free_port()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    (folder / "nginx.conf").write_text(
        f"""worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log /dev/null;
        events {{ worker_connections 4096; }}
        http {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
          fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
          keepalive_requests 1000000;
          upstream api {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 1000000; }}
          server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://api; proxy_http_version 1.1;
            proxy_set_header Connection ""; proxy_buffering off; }} }} }}"""
    )
    master = stack.enter_context(process(binary, "-c", str(folder / "nginx.conf")))
    wait_port(port)
    workers = Path(f"/proc/{master.pid}/task/{master.pid}/children").read_text().split()
    return Target("nginx", port, {"proxy": int(workers[0])})


# ---------------------------------------------------------------- report


def report(title: str, unit: str, rounds: dict[str, list[Measured]]) -> None:
    print(f"\n{title}\n")
    print(f"| target | p50 µs | p99 µs | a second | CPU µs per {unit} | of it the analyst |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, measured in rounds.items():
        p50 = statistics.median(percentile(each.latencies, 0.5) for each in measured) * 1e6
        p99 = statistics.median(percentile(each.latencies, 0.99) for each in measured) * 1e6
        rate = statistics.median(each.units / each.elapsed for each in measured)
        proxy = statistics.median(each.cpu.get("proxy", 0.0) / each.units for each in measured) * 1e6
        analyst = statistics.median(each.cpu.get("analyst", 0.0) / each.units for each in measured) * 1e6
        cost = f"{proxy:.1f} + {analyst:.1f}" if analyst else f"{proxy:.1f}" if proxy else "–"
        print(f"| {name} | {p50:.0f} | {p99:.0f} | {rate:.0f} | {cost} | {analyst:.1f} |")


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=500, help="per connection and round, of 16 connections")
    parser.add_argument("--frames", type=int, default=100, help="per stream, 20 ms apart, of 100 streams")
    parser.add_argument("--embedder", choices=("none", "use"), default="none", help="whether relevance is scored too")
    given = parser.parse_args()
    upstream = free_port()
    paths = {
        "json": "/v1/chat/completions",
        "stream": f"/v1/chat/completions/stream/{given.frames}/20/chat/completions",
    }
    with ExitStack() as stack:
        stack.enter_context(process(sys.executable, "-m", "bench.upstream", "--port", str(upstream)))
        wait_port(upstream)
        targets = [Target("direct", upstream, {}), sidecar(stack, upstream, given.embedder)]
        binary = shutil.which("nginx")
        if binary is not None:
            targets.append(nginx(stack, upstream, binary))
        one: dict[str, list[Measured]] = {target.name: [] for target in targets}
        many: dict[str, list[Measured]] = {target.name: [] for target in targets}
        paced: dict[str, list[Measured]] = {target.name: [] for target in targets}
        for number in range(given.rounds):
            for target in targets if number % 2 == 0 else targets[::-1]:
                one[target.name].append(measure(target, paths["json"], 1, given.requests, 1, first_byte=False))
                many[target.name].append(measure(target, paths["json"], 16, given.requests, 1, first_byte=False))
                paced[target.name].append(measure(target, paths["stream"], 100, 1, given.frames, first_byte=True))
    print(f"{given.rounds} rounds, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    report("1 KB JSON, one connection", "request", one)
    report("1 KB JSON, 16 connections", "request", many)
    report(f"Streams of {given.frames} frames 20 ms apart, 100 at once (latency: to the first byte)", "frame", paced)
    return 0


if __name__ == "__main__":
    sys.exit(main())
