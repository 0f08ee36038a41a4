"""What the machine and the neighbours do to a sidecar under load: no request is hurt, and the counts add up."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import re
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import Metrics, Script, Sidecar, Simulator, Upstream, call, respond, wait_until
from .load import Load, requests
from .test_survival import ANALYST, EMBEDDER, FORWARDED, PROXY, UNOBSERVED, VALIDATOR, nothing_was_hurt

RECORDED = "semantic_health_exchanges_total"
VALID = "semantic_health_output_validations_total"
SCORED = "semantic_health_context_relevance_count"
LOST_LINES = "semantic_health_exchange_log_lost_total"


@pytest.fixture(scope="module")
def spoiled(new_directory: Callable[[], Path]) -> Iterator[Simulator]:
    """A simulated API whose answers are now and then spoiled, and whose connections are whole."""
    simulator = Simulator(new_directory(), "--fast", "--requests-per-minute", "1000000")
    simulator.switch(invalid_json=0.2, stutter=0.1, overload=0.1, error_event=0.05)
    yield simulator
    simulator.end()


def resident(pid: int) -> int:
    """Bytes."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return 0 if found is None else int(found[1]) << 10


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def adds_up(sidecar: Sidecar, asked: int) -> Metrics:
    """The metrics when everything was told; forwarded = recorded + unobserved."""
    # Records may wait for a helper that is being started again, and the log stands still meanwhile.
    sidecar.metrics_when(lambda m: len(sidecar.logged()) + m.total(UNOBSERVED) >= asked, "every exchange is told")
    metrics = sidecar.settled(asked)
    assert metrics.total(FORWARDED) == asked
    assert len(sidecar.logged()) + metrics.total(UNOBSERVED) == asked
    return metrics


# ---------------------------------------------------------------- the sidecar's own processes


@pytest.mark.parametrize(("module", "works"), [(EMBEDDER, SCORED), (VALIDATOR, VALID)])
def test_a_hung_helper_holds_no_request_and_no_record_up(
    start: Callable[..., Sidecar], spoiled: Simulator, module: str, works: str
) -> None:
    sidecar = start("--upstream", spoiled.base, "--set", "embedder.cpu_share=1", embedder=True)
    sidecar.metrics_when(lambda m: m.total("semantic_health_relevance_ready") == 1, "the embedder is ready")
    hung = sidecar.pid(module)
    with Load(sidecar.base) as load:
        os.kill(hung, signal.SIGSTOP)
        began = time.monotonic()
        time.sleep(3)
        assert load.ended_between(began, time.monotonic()) > 20
        with contextlib.suppress(ProcessLookupError):  # a validator that does not answer in time is ended
            os.kill(hung, signal.SIGCONT)
        before = sidecar.metrics_when(lambda m: m.values(works), "a scrape").total(works)
        sidecar.metrics_when(lambda m: m.total(works) > before + 3, "it works again")
    nothing_was_hurt(load)
    assert adds_up(sidecar, len(load.outcomes)).total(UNOBSERVED) == 0


@pytest.mark.parametrize("module", [ANALYST, EMBEDDER, VALIDATOR])
def test_a_process_that_gets_no_more_memory_hurts_no_request(
    start: Callable[..., Sidecar], spoiled: Simulator, module: str
) -> None:
    sidecar = start("--upstream", spoiled.base, "--set", "embedder.cpu_share=1", embedder=True)
    sidecar.metrics_when(lambda m: m.total("semantic_health_relevance_ready") == 1, "the embedder is ready")
    pid = sidecar.pid(module)
    with Load(sidecar.base) as load:
        # Whatever it maps from now on fails: it goes on with what it has, or ends and is started again.
        _, most = resource.prlimit(pid, resource.RLIMIT_AS)
        resource.prlimit(pid, resource.RLIMIT_AS, (1, most))
        began = time.monotonic()
        time.sleep(4)
        assert load.ended_between(began, time.monotonic()) > 20
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_AS, (most, most))
        before = sidecar.metrics_when(lambda m: m.values(RECORDED), "a scrape").total(RECORDED)
        sidecar.metrics_when(lambda m: m.total(RECORDED) > before + 20, "exchanges are recorded")
    nothing_was_hurt(load)
    adds_up(sidecar, len(load.outcomes))


# ---------------------------------------------------------------- disks


def test_a_full_device_for_the_exchange_log_costs_its_lines_and_nothing_else(
    start: Callable[..., Sidecar], spoiled: Simulator
) -> None:
    sidecar = start("--upstream", spoiled.base, "--exchange-log", "/dev/full")
    with Load(sidecar.base) as load:
        sidecar.metrics_when(lambda m: m.total(LOST_LINES) > 20, "lines are lost")
    nothing_was_hurt(load)
    asked = len(load.outcomes)
    metrics = sidecar.metrics_when(
        lambda m: m.total(FORWARDED) == m.total(RECORDED) == m.total(LOST_LINES) == asked, "all are told"
    )
    assert metrics.total(UNOBSERVED) == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)], check=False, capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_log_whose_disk_is_full_goes_on_in_whole_lines_when_there_is_room(
    start: Callable[..., Sidecar], spoiled: Simulator, small_disk: Path
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(192 << 10))
    sidecar = start("--upstream", spoiled.base, "--exchange-log", str(small_disk / "x.jsonl"))
    sidecar.log_path = small_disk / "x.jsonl"
    with Load(sidecar.base) as load:
        sidecar.metrics_when(lambda m: m.total(LOST_LINES) > 5, "lines are lost")
        written = len(sidecar.logged())
        ballast.unlink()
        wait_until(lambda: sidecar.log_path.read_bytes().count(b"\n") > written + 10, "lines are written again")
    nothing_was_hurt(load)
    metrics = sidecar.settled(len(load.outcomes))
    lines = sidecar.logged()
    assert len({line["id"] for line in lines}) == len(lines)
    assert len(lines) + metrics.total(LOST_LINES) + metrics.total(UNOBSERVED) == len(load.outcomes)


# ---------------------------------------------------------------- neighbours


def lies(connection: socket.socket, _head: bytes, _body: bytes) -> None:
    respond(
        connection, b'{"data": "none of what was asked for", "partialSuccess": 7}', "200 OK", "Content-Type: text/html"
    )


def never_ends(connection: socket.socket, _head: bytes, _body: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n[")
    while True:
        connection.sendall(b"[0.1," * 100_000)


def says_nothing(connection: socket.socket, _head: bytes, _body: bytes) -> None:
    connection.settimeout(30)
    connection.recv(1)


# In parts, each is tried in tests/exporters/test_telemetry.py and tests/embedding/test_http.py.
@pytest.mark.parametrize(
    ("neighbour", "takes_telemetry"),
    # A status of 200 is all that an OTLP receiver has to say, whatever follows it.
    [(None, False), (lies, False), (says_nothing, False), (never_ends, True)],
    ids=["dead", "lies", "silent", "endless"],
)
def test_bad_endpoints_for_telemetry_and_vectors_hurt_no_request(
    start: Callable[..., Sidecar],
    spoiled: Simulator,
    upstream: Callable[..., Upstream],
    free_port: int,
    neighbour: Script | None,
    takes_telemetry: bool,
) -> None:
    at = f"http://127.0.0.1:{free_port}" if neighbour is None else upstream(neighbour).base
    settings = (
        f"exporters.otlp.endpoint={at}", "exporters.otlp.interval=300ms", "exporters.otlp.timeout=500ms",
        "embedder.kind=http", f"embedder.http.url={at}/v1/embeddings", "embedder.http.model=m",
        "embedder.http.timeout=500ms", "embedder.http.calibrated_as=all-MiniLM-L6-v2@53aa51172d14",
        "embedder.cpu_share=1",
    )  # fmt: skip
    words = (word for setting in settings for word in ("--set", setting))
    sidecar = start("--upstream", spoiled.base, *words, embedder=True)
    with Load(sidecar.base) as load:
        time.sleep(3)
    nothing_was_hurt(load)
    metrics = adds_up(sidecar, len(load.outcomes))
    assert metrics.total(UNOBSERVED) == 0
    assert metrics.total(SCORED) == 0
    assert metrics.total("semantic_health_relevance_unscored_total", reason="model_not_ready") > 0
    if not takes_telemetry:
        sidecar.metrics_when(lambda m: m.total("semantic_health_telemetry_dropped_total") > 0, "losses are counted")
    for module, pid in sidecar.pids().items():
        assert resident(pid) < 250 << 20, module


def test_an_upstream_that_comes_and_goes_is_used_as_soon_as_it_is_there(
    start: Callable[..., Sidecar], new_directory: Callable[[], Path], free_port: int
) -> None:
    path, body = requests(2)
    sidecar = start("--upstream", f"http://127.0.0.1:{free_port}")
    asked = 0
    for _ in range(4):
        answer = call(f"{sidecar.base}{path}", body)
        assert (answer.status, answer.headers["x-semhealth-error"]) == (502, "upstream_unreachable")
        serving = Simulator(new_directory(), "--fast", "--listen", f"127.0.0.1:{free_port}")
        # The connections that this leaves in the pool are dead in the next round.
        with Load(sidecar.base, pause=0) as load:
            time.sleep(0.7)
        assert serving.end() == 0
        nothing_was_hurt(load)
        asked += 1 + len(load.outcomes)
    metrics = adds_up(sidecar, asked)
    assert metrics.total(UNOBSERVED) == 0
    assert sidecar.pids().keys() == {ANALYST, VALIDATOR, PROXY}


# ---------------------------------------------------------------- descriptors


def drips(pieces: int) -> Callable[[socket.socket, bytes, bytes], None]:
    """Streams for 0.1 s a piece; anything but a stream is answered at once."""

    def serve(connection: socket.socket, head: bytes, _body: bytes) -> None:
        if not head.startswith(b"POST /stream "):
            respond(connection, b"{}", "200 OK", "Content-Type: application/json")
            return
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        for number in range(pieces):
            connection.sendall(b'data: {"n":%d}\n\n' % number)
            time.sleep(0.1)
        connection.sendall(b"data: [DONE]\n\n")

    return serve


@pytest.mark.parametrize("left", [3, -100], ids=["few", "fewer-than-are-open"])
def test_a_worker_out_of_descriptors_keeps_its_streams_and_serves_again_when_there_are_some(
    start: Callable[..., Sidecar], upstream: Callable[..., Upstream], left: int
) -> None:
    sidecar = start("--upstream", upstream(drips(40)).base)
    worker = sidecar.pid(PROXY)
    address = ("127.0.0.1", int(sidecar.base.rpartition(":")[2]))
    streams = [socket.create_connection(address, timeout=20) for _ in range(5)]
    for stream in streams:
        stream.sendall(b"POST /stream HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}")
    wait_until(lambda: sidecar.metrics().total("semantic_health_in_flight") == 5, "the streams run")
    limits = resource.prlimit(worker, resource.RLIMIT_NOFILE)
    resource.prlimit(worker, resource.RLIMIT_NOFILE, (max(1, _lowest_free(worker) + left), limits[1]))
    cpu = cpu_seconds(worker)
    crowd = [socket.create_connection(address, timeout=5) for _ in range(60)]
    time.sleep(2)
    # The crowd waits in the listening socket; the worker tries ten times a second whether it can accept one.
    assert cpu_seconds(worker) - cpu < 0.5, "it must not turn in circles"
    resource.prlimit(worker, resource.RLIMIT_NOFILE, limits)
    assert call(f"{sidecar.base}/json", {}).status == 200
    for stream in streams:
        received = _all_of(stream)
        assert received.count(b"data: ") == 41
        assert received.endswith(b"data: [DONE]\n\n")
    for connection in (*streams, *crowd):
        connection.close()
    for _ in range(20):
        assert call(f"{sidecar.base}/json", {}).status == 200
    assert sidecar.pid(PROXY) == worker
    assert adds_up(sidecar, 26).total("semantic_health_accept_failures_total") > 5


def test_connections_to_an_upstream_that_get_no_descriptor_are_a_502_and_no_more(
    start: Callable[..., Sidecar], upstream: Callable[..., Upstream]
) -> None:
    sidecar = start("--upstream", upstream(drips(1)).base)
    worker = sidecar.pid(PROXY)
    address = ("127.0.0.1", int(sidecar.base.rpartition(":")[2]))
    clients = [socket.create_connection(address, timeout=10) for _ in range(5)]
    ask = b"POST /json HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
    for client in clients:  # so that each is accepted
        client.sendall(b"GET /-/healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
    limits = resource.prlimit(worker, resource.RLIMIT_NOFILE)
    resource.prlimit(worker, resource.RLIMIT_NOFILE, (_lowest_free(worker), limits[1]))
    for client in clients:
        client.sendall(ask)
        assert client.recv(65536).startswith(b"HTTP/1.1 502 ")
    resource.prlimit(worker, resource.RLIMIT_NOFILE, limits)
    for client in clients:
        client.sendall(ask)
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        client.close()
    adds_up(sidecar, 10)
    assert sidecar.pid(PROXY) == worker


def _lowest_free(pid: int) -> int:
    """The number of the next descriptor of a process, once none comes or goes: with it for a limit there is none.

    (A connection that looked for the port may just close, and leave a gap among the numbers.)
    """
    before: set[int] = set()
    while (now := set(map(int, os.listdir(f"/proc/{pid}/fd")))) != before:
        before = now
        time.sleep(0.2)
    return next(number for number in itertools.count() if number not in now)


def _all_of(stream: socket.socket) -> bytes:
    """Everything until the connection ends."""
    received = b""
    while more := stream.recv(65536):
        received += more
    return received


# ---------------------------------------------------------------- slow readers


def test_fifty_stalled_clients_of_200_mb_each_take_little_memory(
    start: Callable[..., Sidecar], upstream: Callable[..., Upstream]
) -> None:
    piece, pieces, clients = bytes(1 << 20), 200, 50

    def serve(connection: socket.socket, _head: bytes, _body: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(piece) * pieces))
        for _ in range(pieces):
            connection.sendall(piece)

    sidecar = start("--upstream", upstream(serve).base)
    before = {module: resident(pid) for module, pid in sidecar.pids().items()}
    address = ("127.0.0.1", int(sidecar.base.rpartition(":")[2]))
    stalled = [socket.create_connection(address, timeout=20) for _ in range(clients)]
    for client in stalled:
        client.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
    sidecar.metrics_when(lambda m: m.total("semantic_health_in_flight") == clients, "all of them run")
    time.sleep(4)
    for module, pid in sidecar.pids().items():
        assert resident(pid) - before[module] < 100 << 20, module
    # One of them reads on, and gets all of it; the others hold nobody up.
    reader = http.client.HTTPResponse(stalled.pop())
    reader.begin()
    received = 0
    while more := reader.read(1 << 20):
        received += len(more)
    assert received == len(piece) * pieces
    for client in stalled:
        client.close()
    for module, pid in sidecar.pids().items():
        assert resident(pid) - before[module] < 100 << 20, module
    adds_up(sidecar, clients)
