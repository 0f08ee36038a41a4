"""A real Prometheus on loopback, for as long as a test needs it."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

START_SECONDS = 30.0


class PrometheusServer:
    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The instant vector of an expression: labels and value of each element."""
        url = f"{self._base}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own, on loopback
            result = json.load(answer)["data"]["result"]
        return [(element["metric"], float(element["value"][1])) for element in result]

    def exemplars(self, expression: str, start: float, end: float) -> list[tuple[dict[str, str], list[dict[str, Any]]]]:
        """The labels of each series that has some, and its exemplars between two times in Unix seconds."""
        asked = urllib.parse.urlencode({"query": expression, "start": start, "end": end})
        with urllib.request.urlopen(f"{self._base}/api/v1/query_exemplars?{asked}", timeout=10) as answer:  # noqa: S310 - our own, on loopback
            return [(series["seriesLabels"], series["exemplars"]) for series in json.load(answer)["data"]]

    def wait_for(self, expression: str, seconds: float = 30.0) -> list[tuple[dict[str, str], float]]:
        """Ask until there is an answer."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if result := self.query(expression):
                return result
            time.sleep(0.1)
        raise AssertionError(f"Prometheus has no answer to {expression} after {seconds} s")

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._base}/-/ready", timeout=1) as answer:  # noqa: S310 - our own, on loopback
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def running_prometheus(binary: str, directory: Path, target: int, *flags: str) -> Iterator[PrometheusServer]:
    """Scrapes 127.0.0.1:target four times a second."""
    config = directory / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 250ms, scrape_timeout: 250ms}\n"
        "scrape_configs:\n"
        f"  - {{job_name: semhealth, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}\n"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    said = directory / "prometheus.log"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [binary, f"--config.file={config}", f"--storage.tsdb.path={directory / 'data'}",
             f"--web.listen-address=127.0.0.1:{port}", *flags],
            stdout=output, stderr=output,
        )  # fmt: skip
        try:
            server = PrometheusServer(port)
            deadline = time.monotonic() + START_SECONDS
            while not server.is_ready():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"Prometheus did not start: {said.read_text()[-2000:]}")
                time.sleep(0.1)
            yield server
        finally:
            process.terminate()
            process.wait(timeout=30)
