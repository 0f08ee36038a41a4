"""A real Prometheus and a real Alertmanager with the shipped files, and a receiver, all on loopback."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

START_SECONDS = 30.0
PATIENCE = 60.0


class Server:
    """A program that answers `/-/ready`."""

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"

    def get(self, path: str, **query: str) -> Any:
        url = f"http://{self.address}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)

    def query(self, expression: str) -> list[float]:
        """The values of an instant vector or scalar, asked of Prometheus."""
        found = self.get("/api/v1/query", query=expression)["data"]
        return [float(each["value"][1]) for each in found["result"]]

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class Receiver:
    """Takes webhook notifications; `alerts` are those received so far, by the path they came to."""

    def __init__(self) -> None:
        self.alerts: list[tuple[str, dict[str, Any]]] = []
        received = self.alerts

        class Webhook(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                received.extend((self.path, alert) for alert in body["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Webhook)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def named(self, path: str) -> set[str]:
        return {alert["labels"]["alertname"] for at, alert in self.alerts if at == path}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: Sequence[str], port: int, log: Path) -> Iterator[Server]:
    """A program until the block ends; AssertionError with its last words where it does not start."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            server = Server(port)
            deadline = time.monotonic() + START_SECONDS
            while not server.is_ready():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"{command[0]} did not start: {log.read_text()[-2000:]}")
                time.sleep(0.1)
            yield server
        finally:
            process.terminate()
            process.wait(timeout=30)


def eventually(claim: Callable[[], bool], otherwise: Callable[[], object]) -> None:
    """Wait until a claim holds; fails with what is so instead."""
    deadline = time.monotonic() + PATIENCE
    while not claim():
        assert time.monotonic() < deadline, f"after {PATIENCE:g} s: {otherwise()}"
        time.sleep(0.2)
