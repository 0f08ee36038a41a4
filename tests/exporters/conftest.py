"""A clock that tests move, exporters on it, and a served /metrics."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from exporters.prometheus import PrometheusExporter

from .otlp_receiver import OtlpReceiver


@dataclass
class ManualClock:
    at: float = 1_000.0
    unix: float = 1_700_000_000.0

    def monotonic(self) -> float:
        return self.at

    def wall(self) -> float:
        return self.unix

    def pass_time(self, seconds: float) -> None:
        self.at += seconds
        self.unix += seconds


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make_exporter(clock: ManualClock) -> Callable[..., PrometheusExporter]:
    def make(extra_labels: tuple[str, ...] = (), window: float = 300.0, max_series: int = 5000) -> PrometheusExporter:
        return PrometheusExporter(extra_labels, window, max_series, clock)

    return make


@pytest.fixture
def exporter(make_exporter: Callable[..., PrometheusExporter]) -> PrometheusExporter:
    return make_exporter()


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def receive() -> Iterator[Callable[..., OtlpReceiver]]:
    receivers: list[OtlpReceiver] = []

    def start(*arguments: Any, **named: Any) -> OtlpReceiver:
        receivers.append(OtlpReceiver(*arguments, **named))
        return receivers[-1]

    yield start
    for receiver in receivers:
        receiver.close()


@pytest.fixture
def serve() -> Iterator[Callable[[PrometheusExporter], int]]:
    """Serves an exporter's /metrics on loopback; gives the port."""
    servers: list[ThreadingHTTPServer] = []

    def start(exporter: PrometheusExporter) -> int:
        class Metrics(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body, content_type = exporter.render(self.headers.get("Accept", ""))
                self.send_response(200)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return int(server.server_address[1])

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
