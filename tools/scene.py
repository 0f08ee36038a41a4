"""A real sidecar between simulated traffic and a simulated API in which everything goes wrong, and a real Prometheus.

Dashboards are checked and drawn from it. Every fault is on the wire or on a process; nothing is told to a metric.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

SCRAPE = 1.0  # seconds
RATE_INTERVAL = "15s"  # stands for $__rate_interval
STARTING = 30.0  # seconds that a program has to answer
ANALYST_DIES_AFTER = 0.25  # of the time of the traffic
SLOW_CLIENT_AFTER = 0.4
VARIABLE = re.compile(r"\$\{?(\w+)\}?")

FAULTS = {
    "invalid_json": 0.1, "schema_drift": 0.25, "stutter": 0.15, "stall": 0.08, "truncation": 0.08, "overload": 0.15,
    "downgrade": 0.1, "cold_start": 0.08, "error_event": 0.05, "context_lost": 0.2, "context_cut": 0.1, "loop": 0.05,
    "empty": 0.04, "no_usage": 0.05, "correction": 0.08, "cache_loss": 0.1, "diagnostic": 0.05, "wrong_region": 1.0,
    "deprecation": 0.1, "drain": 0.012,
}  # fmt: skip
CONTRACT = {
    "rules": [
        {"name": "short", "cel": "size(text) <= 200", "severity": "warning"},
        {"name": "confident", "floor": {"at": "confidence_score", "value": 0.85}},
    ]
}
PRICES = {
    "date": "2026-11-29",
    "tables": {
        "simulated": {
            "sources": ["https://simulated.invalid/"],
            "models": {
                name: {"input": 3.0, "cached_input": 0.3, "output": 15.0}
                for name in ("sim-large", "sim-small", "sim-reasoner", "sim-opus", "sim-haiku")
            },
        }
    },
}
STEADY_ROUTE = "/steady"  # of one model and one question, so that a usual level is known soon
STEADY_PAUSE = 0.05
STEADY_QUESTION = "Who opened the sea lock, and when?"
STEADY_ANSWER = "Edda Finch opened the sea lock in 1871."
STEADY_PASSAGES = (
    "The sea lock was opened in 1871 by Edda Finch. It is forty metres long.",
    "The sea lock lies behind the old harbour. Edda Finch opened it in the spring of 1871.",
)
LOST_PASSAGES = ("The library lends books for four weeks. On Mondays it is closed.",)
LEVEL_SHARE = 0.8  # of the exchanges of a level, after which the passages are lost
MOST_LATER = 60.0  # seconds that the scene goes on for the usual level to be known
DRIFT = "semantic_health_relevance_drift_errors"
BIG_STREAM = 400  # chunks of 64 KiB: more than the buffers of sockets between upstream and client hold


class Scene(Struct, frozen=True):
    """Where Prometheus answers, and from when to when there was traffic (Unix seconds)."""

    prometheus: str
    began: float
    ended: float

    def range(self, expression: str, step: float = SCRAPE) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """Labels and points of every series of a panel's expression over the time of the traffic."""
        asked = {"query": self.filled(expression), "start": f"{self.began:.3f}", "end": f"{self.ended:.3f}",
                 "step": f"{step:g}"}  # fmt: skip
        found = _get_json(f"http://{self.prometheus}/api/v1/query_range?{urllib.parse.urlencode(asked)}")
        return [(each["metric"], [(at, float(value)) for at, value in each["values"]]) for each in _result(found)]

    def now(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of every series at the end of the traffic."""
        asked = {"query": self.filled(expression), "time": f"{self.ended:.3f}"}
        found = _get_json(f"http://{self.prometheus}/api/v1/query?{urllib.parse.urlencode(asked)}")
        return [(each["metric"], float(each["value"][1])) for each in _result(found)]

    def exemplars(self, selector: str) -> list[str]:
        """The trace ids that the buckets of a metric kept over the time of the traffic."""
        asked = {"query": selector, "start": f"{self.began:.3f}", "end": f"{self.ended:.3f}"}
        found = _get_json(f"http://{self.prometheus}/api/v1/query_exemplars?{urllib.parse.urlencode(asked)}")
        return [each["labels"]["trace_id"] for series in found["data"] for each in series["exemplars"]]

    def filled(self, expression: str, **values: str) -> str:
        """An expression with Grafana's variables filled in, each with everything unless `values` says otherwise."""
        known = {"__rate_interval": RATE_INTERVAL, "__range": f"{max(1, round(self.ended - self.began))}s", **values}
        return VARIABLE.sub(lambda found: known.get(found[1], ".+"), expression)


@contextmanager
def playing(directory: Path, seconds: float) -> Iterator[Scene]:
    """Plays the scene for so many seconds of traffic; Prometheus can be asked until the block ends.

    Needs `prometheus` on the path; RuntimeError where a program does not start.
    """
    binary = shutil.which("prometheus")
    if binary is None:
        raise RuntimeError("prometheus is not installed: apt-get install --no-install-recommends prometheus")
    with ExitStack() as stack:
        port = {name: _free_port() for name in ("api", "listen", "admin", "prometheus", "remote", "remote_admin")}
        odd = stack.enter_context(_serving(_Odd))
        ghosts = stack.enter_context(_serving(_Ghosts))
        stack.enter_context(_running(_module("collector.simulator.api", *_api_arguments(port["api"])), directory))
        config = _configuration(directory, port, odd)
        sidecar = stack.enter_context(_running(_module("collector.cli", "run", "--config", str(config)), directory))
        remote = _remote_configuration(directory, port, stack.enter_context(_serving(_Embeddings)))
        stack.enter_context(_running(_module("collector.cli", "run", "--config", str(remote)), directory))
        for admin in ("admin", "remote_admin"):
            _wait(f"http://127.0.0.1:{port[admin]}/readyz")
        scraping = _scraping(directory, {"semhealth": (port["admin"], port["remote_admin"]), "legacy-layer": (ghosts,)})
        prometheus = f"127.0.0.1:{port['prometheus']}"
        stack.enter_context(
            _running(
                (binary, f"--config.file={scraping}", f"--storage.tsdb.path={directory / 'data'}",
                 f"--web.listen-address={prometheus}", "--enable-feature=exemplar-storage"), directory
            )
        )  # fmt: skip
        _wait(f"http://{prometheus}/-/ready")
        time.sleep(2 * SCRAPE)  # so that counters are seen before they grow
        began = time.time()
        api, remote_base = f"http://127.0.0.1:{port['api']}", f"http://127.0.0.1:{port['remote']}"
        traffic = _module("collector.simulator.traffic", "--base", remote_base, "--faults-from", api, "--rate", "1")
        with _running(traffic, directory):
            listen, admin = (f"127.0.0.1:{port[name]}" for name in ("listen", "admin"))
            _play(listen, admin, api, sidecar.pid, seconds, directory)
        yield Scene(prometheus, began, time.time())


def _play(sidecar: str, admin: str, api: str, supervisor: int, seconds: float, directory: Path) -> None:
    end = time.monotonic() + seconds
    with ExitStack() as stack:
        stack.enter_context(_asking_steadily(sidecar, seconds * LEVEL_SHARE))
        for route, rate in (("/chat", "8"), ("/search", "8")):
            arguments = ("--base", f"http://{sidecar}{route}", "--faults-from", api, "--rate", rate)
            stack.enter_context(_running(_module("collector.simulator.traffic", *arguments), directory))
        slow = threading.Timer(seconds * SLOW_CLIENT_AFTER, _read_slowly, (sidecar, seconds / 4))
        slow.start()
        dies = time.monotonic() + seconds * ANALYST_DIES_AFTER
        turn = 0
        while (now := time.monotonic()) < end or (now < end + MOST_LATER and not _is_told(admin, DRIFT)):
            _odd_requests(sidecar, turn)
            turn += 1
            if dies is not None and time.monotonic() > dies:
                os.kill(_child(supervisor, "collector.app"), signal.SIGKILL)
                dies = float("inf")
            time.sleep(0.25)
        slow.join()
        time.sleep(2 * SCRAPE)  # for what ended last


# ---------------------------------------------------------------- what the simulated traffic does not do


def _odd_requests(sidecar: str, turn: int) -> None:
    """Early retries, a demand for a region, an unknown route, and limits under names that nobody knows."""
    question = {"model": "sim-large", "messages": [{"role": "user", "content": "What is a sea lock?"}]}
    _post(sidecar, "/chat/v1/chat/completions", question, {"x-stainless-retry-count": "1"})
    _post(sidecar, "/search/v1/chat/completions", question, {"X-Data-Residency": "eu"})
    _post(sidecar, "/nowhere", question, {})
    _post(sidecar, f"/odd/v1/chat/completions?turn={turn}", question, {})


@contextmanager
def _asking_steadily(sidecar: str, well_for: float) -> Iterator[None]:
    """Asks the same again and again until the block ends; after so many seconds with passages that do not help."""
    ended = threading.Event()
    lost_at = time.monotonic() + well_for

    def ask() -> None:
        turn = 0
        while not ended.wait(STEADY_PAUSE):
            turn += 1
            passages = STEADY_PASSAGES if time.monotonic() < lost_at else LOST_PASSAGES
            documents = f"<documents>\n<document>{passages[turn % len(passages)]}</document>\n</documents>"
            messages = [{"role": "system", "content": documents}, {"role": "user", "content": STEADY_QUESTION}]
            _post(sidecar, f"{STEADY_ROUTE}/v1/chat/completions", {"model": "steady", "messages": messages}, {})

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        ended.set()
        asking.join()


def _is_told(admin: str, metric: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{admin}/metrics", timeout=5) as answer:
            return f"\n{metric}{{".encode() in answer.read()
    except OSError:
        return False


def _post(sidecar: str, path: str, body: Mapping[str, object], headers: Mapping[str, str]) -> None:
    connection = http.client.HTTPConnection(sidecar, timeout=10)
    sampled = f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"  # W3C trace context: exemplars name its trace
    with contextlib.suppress(OSError, http.client.HTTPException):  # faults cut answers
        connection.request(
            "POST", path, json.dumps(body), {"Content-Type": "application/json", "traceparent": sampled, **headers}
        )
        connection.getresponse().read()
    connection.close()


def _read_slowly(sidecar: str, seconds: float) -> None:
    """A client that asks for a long stream and begins to read it so late."""
    host, port = sidecar.split(":")
    body = json.dumps({"model": "sim-large", "stream": True, "messages": [{"role": "user", "content": "Long."}]})
    head = f"POST /odd/big HTTP/1.1\r\nHost: {sidecar}\r\nContent-Type: application/json\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host, int(port)))
        client.sendall(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
        time.sleep(seconds)
        client.settimeout(10)
        with contextlib.suppress(OSError):
            while client.recv(1 << 16):
                pass


class _Odd(BaseHTTPRequestHandler):
    """An upstream with limits under unknown names, an endless-looking stream under /big, and one steady answer."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/big":
            self._stream()
            return
        _, _, turn = self.path.partition("?turn=")
        content = "A lock that opens to the sea." if turn else STEADY_ANSWER
        answer = {"id": "odd", "object": "chat.completion", "model": "odd-model",
                  "choices": [{"index": 0, "message": {"role": "assistant", "content": content},
                               "finish_reason": "stop"}],
                  "usage": {"prompt_tokens": 9, "completion_tokens": 8, "total_tokens": 17}}  # fmt: skip
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        if turn:
            self.send_header("x-ratelimit-mood", "7")
            for i in range(5):  # more names than the label `header` takes
                self.send_header(f"x-ratelimit-mood-{5 * int(turn) + i}", "7")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for _ in range(BIG_STREAM):
            delta = {"model": "odd-model", "object": "chat.completion.chunk",
                     "choices": [{"index": 0, "delta": {"content": "long " * 12_000}}]}  # fmt: skip
            self.wfile.write(b"data: " + json.dumps(delta).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


class _Embeddings(BaseHTTPRequestHandler):
    """A server of embeddings that tells their length and that it is ready, and then fails at its work."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        is_probe = all(text == "dimensions" or text.startswith("ready?") for text in asked)
        data = [{"index": i, "object": "embedding", "embedding": [1.0] * 512} for i in range(len(asked))]
        body = json.dumps({"object": "list", "model": "m", "data": data if is_probe else []}).encode()
        self.send_response(200 if is_probe else 500)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class _Ghosts(BaseHTTPRequestHandler):
    """What a retired layer's exporter still says, as it is renamed when it is scraped (R22)."""

    def do_GET(self) -> None:
        body = b"legacy_layer_errors_per_min 0\nlegacy_layer_eviction_rate 0\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


# ---------------------------------------------------------------- files and processes


def _configuration(directory: Path, port: Mapping[str, int], odd: int) -> Path:
    contract, prices, config = (directory / name for name in ("contract.yaml", "prices.yaml", "semhealth.yaml"))
    contract.write_text(yaml.safe_dump(CONTRACT))
    prices.write_text(yaml.safe_dump(PRICES))
    api = f"http://127.0.0.1:{port['api']}"
    settings: dict[str, Any] = {
        "listen": f"127.0.0.1:{port['listen']}",
        "admin": f"127.0.0.1:{port['admin']}",
        "log_level": "error",
        "objective_profile": "strict",
        "prices": str(prices),
        "routes": [
            {"name": "chat", "prefix": "/chat", "upstream": api, "cost_per_hour": 5.0},
            {"name": "search", "prefix": "/search", "upstream": api, "contract": str(contract)},
            {"name": "odd", "prefix": "/odd", "upstream": f"http://127.0.0.1:{odd}"},
            {"name": "steady", "prefix": STEADY_ROUTE, "upstream": f"http://127.0.0.1:{odd}"},
        ],
        "embedder": {"cpu_share": 1.0},
        "exporters": {
            "max_series": 20_000,
            # Nobody listens on the port of the first, and the second takes nothing.
            "otlp": {"endpoint": f"http://127.0.0.1:{_free_port()}", "interval": "2s"},
            "exchange_log": {"path": "/dev/full"},
        },
    }
    config.write_text(yaml.safe_dump(settings))
    return config


def _remote_configuration(directory: Path, port: Mapping[str, int], embeddings: int) -> Path:
    """Of a second instance, whose embedder is a server that fails."""
    config = directory / "remote.yaml"
    settings = {
        "listen": f"127.0.0.1:{port['remote']}",
        "admin": f"127.0.0.1:{port['remote_admin']}",
        "log_level": "error",
        "routes": [{"name": "remote", "prefix": "/", "upstream": f"http://127.0.0.1:{port['api']}"}],
        "embedder": {
            "kind": "http",
            "http": {
                "url": f"http://127.0.0.1:{embeddings}/v1/embeddings",
                "model": "m",
                "calibrated_as": "use-multilingual-3@3",
            },
        },
    }
    config.write_text(yaml.safe_dump(settings))
    return config


def _api_arguments(port: int) -> list[str]:
    faults = [part for name, share in FAULTS.items() for part in ("--fault", f"{name}={share}")]
    return ["--listen", f"127.0.0.1:{port}", "--first-token", "0.2", "--gap", "0.01", *faults]


def _scraping(directory: Path, jobs: Mapping[str, Sequence[int]]) -> Path:
    path = directory / "prometheus.yml"
    configuration = {
        "global": {"scrape_interval": f"{SCRAPE:g}s", "scrape_timeout": f"{SCRAPE:g}s"},
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}]}
            for job, ports in jobs.items()
        ],
    }
    path.write_text(yaml.safe_dump(configuration))
    return path


def _module(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", name, *arguments)


@contextmanager
def _running(command: Sequence[str], directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (directory / "output.log").open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def _serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


def _child(parent: int, module: str) -> int:
    """The process id of a child that runs a module; RuntimeError where there is none."""
    for each in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if module in Path(f"/proc/{each}/cmdline").read_text().split("\0"):
            return int(each)
    raise RuntimeError(f"no process of the sidecar runs {module}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(url: str) -> None:
    deadline = time.monotonic() + STARTING
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=1) as answer:  # noqa: S310 - an address made here
                if answer.status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError(f"{url} did not answer within {STARTING:g} s")


def _get_json(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - an address made here
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"Prometheus refused: {error.read().decode()[:500]}") from error


def _result(found: Any) -> Sequence[Any]:
    result: Sequence[Any] = found["data"]["result"]
    return result
