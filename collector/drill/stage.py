"""What a drill runs on: simulated APIs, sidecars, a real Prometheus and a real Alertmanager, all on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web
from msgspec import Struct

from collector.drill.scaling import scaled_alertmanager, scaled_rules, told_at
from collector.programs import running

START = 40.0  # seconds that a program has to answer
PATIENCE = 15.0  # seconds that a program has to end
POLL = 0.5
_OF_A_SIDECAR = ("SEMHEALTH_", "OTEL_")  # how variables begin that settings are taken from
MOST_DELIVERIES = 100_000
GHOSTS = (
    "# TYPE layer_tbr_errors_per_min gauge\nlayer_tbr_errors_per_min 0\n# TYPE ro_full_ratio gauge\nro_full_ratio 0\n"
)
_PLACES = (  # in an installed wheel, and in a checkout
    Path(__file__).resolve().parents[1] / "shipped" / "alerts",
    Path(__file__).resolve().parents[2] / "alerts",
)


class DrillError(Exception):
    """The drill cannot be held; the message says why and what to do."""


class Delivery(Struct, frozen=True):
    """One alert as a receiver of Alertmanager got it; `at` is monotonic seconds."""

    at: float
    receiver: str
    labels: dict[str, str]


class Seen(Struct):
    """An alert as Prometheus has it firing; monotonic seconds."""

    labels: dict[str, str]
    first: float
    last: float


class Tempo(Struct, frozen=True):
    """How fast time goes: durations for Prometheus, what becomes of rules and routes, and seconds of an alert.

    `warm` is the least time of good traffic before a fault, `limit` the most that an alert may take from it,
    `at_once` how many alerts are tried side by side.
    """

    scrape: str
    evaluation: str
    resend: str
    rules: Callable[[Any], Any]
    routes: Callable[[Any], Any]
    warm: float
    limit: float
    at_once: int


SHORTENED = Tempo("500ms", "1s", "1s", scaled_rules, scaled_alertmanager, warm=0.0, limit=75.0, at_once=5)


class Alerting(Struct, frozen=True):
    """What Prometheus sends: `labels` of every alert, and to whom besides the drill's own Alertmanager.

    `besides` are entries of `alerting.alertmanagers`; the alerts named in `unsent` go to nobody.
    """

    labels: dict[str, str] = {}
    besides: tuple[dict[str, Any], ...] = ()
    unsent: tuple[str, ...] = ()


def shipped_alerts() -> Path:
    """The directory of the rules and of Alertmanager's configuration."""
    for place in _PLACES:
        if (place / "semhealth.rules.yml").is_file():
            return place
    raise DrillError(f"{_PLACES[0]}: the alert rules are missing; install semhealth again")


def binaries() -> tuple[str, str]:
    """Where Prometheus and Alertmanager are; DrillError where one is missing."""
    prometheus = shutil.which("prometheus")
    alertmanager = shutil.which("alertmanager") or shutil.which("prometheus-alertmanager")
    missing = [name for name, path in (("prometheus", prometheus), ("alertmanager", alertmanager)) if path is None]
    if prometheus is None or alertmanager is None:
        raise DrillError(
            f"{' and '.join(missing)} not found on PATH; install them, on Debian: "
            "apt-get install --no-install-recommends prometheus prometheus-alertmanager"
        )
    return prometheus, alertmanager


def free_port() -> int:
    """A port of loopback that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def reserved() -> socket.socket:
    """A port of loopback that nobody else can take, where nothing listens yet."""
    place = socket.socket()
    place.bind(("127.0.0.1", 0))
    return place


def port_of(place: socket.socket) -> int:
    return int(place.getsockname()[1])


@contextlib.asynccontextmanager
async def serving(handler: Any, place: socket.socket) -> AsyncIterator[None]:
    """An HTTP server of one handler for every path and method, at a reserved place."""
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.5)
    await runner.setup()
    await web.SockSite(runner, place).start()
    try:
        yield
    finally:
        await runner.cleanup()


class Sidecar:
    """One sidecar: where it is, and its process."""

    def __init__(self, directory: Path, config: dict[str, Any]) -> None:
        self.listen, self.admin = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.directory = directory
        directory.mkdir()
        self.config = directory / "semhealth.yaml"
        self.config.write_text(yaml.safe_dump({**config, "listen": self.listen, "admin": self.admin}))
        self.process: asyncio.subprocess.Process | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        command = (sys.executable, "-m", "collector.cli", "run", "--config", str(self.config))
        # What the environment says of a sidecar is said of another one, not of this.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_OF_A_SIDECAR)}
        log = self.directory / "log"
        async with running(command, log=log, patience=PATIENCE, environment=environment) as self.process:
            yield

    def signal(self, module: str | None, number: signal.Signals) -> bool:
        """Send a signal to the processes that run a module, or to the sidecar itself; whether there was one."""
        if self.process is None or self.process.returncode is not None:
            return False
        pids = [self.process.pid] if module is None else _children(self.process.pid, module)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return bool(pids)


def _children(parent: int, module: str) -> list[int]:
    """The children of a process whose command line names a Python module (Linux: /proc)."""
    try:
        pids = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    except OSError:
        return []
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append(int(pid))
    return found


class Watch:
    """Prometheus and Alertmanager, what fires, and what was delivered."""

    def __init__(
        self,
        directory: Path,
        session: aiohttp.ClientSession,
        targets: Sequence[str],
        tempo: Tempo,
        alerting: Alerting,
    ) -> None:
        self.deliveries: list[Delivery] = []
        self.seen: dict[tuple[tuple[str, str], ...], Seen] = {}
        self.ghosts, self._receiver = reserved(), reserved()
        self._session = session
        self._directory = directory
        self._tempo = tempo
        self._alerting = alerting
        self._prometheus, self._alertmanager = free_port(), free_port()
        self.state_targets(targets)
        self._write()

    def state_targets(self, targets: Sequence[str]) -> None:
        """What discovery finds from now on."""
        fresh = self._directory / "targets.new"
        fresh.write_text(json.dumps([{"targets": list(targets)}] if targets else []))
        fresh.replace(self._directory / "targets.json")

    def _write(self) -> None:
        shipped = shipped_alerts()
        rules = yaml.safe_load((shipped / "semhealth.rules.yml").read_text(encoding="utf-8"))
        (self._directory / "semhealth.rules.yml").write_text(yaml.safe_dump(self._tempo.rules(rules), width=10_000))
        routes = yaml.safe_load((shipped / "alertmanager.yml").read_text(encoding="utf-8"))
        told = told_at(self._tempo.routes(routes), f"http://127.0.0.1:{port_of(self._receiver)}")
        (self._directory / "alertmanager.yml").write_text(yaml.safe_dump(told))
        shutil.copy(shipped / "semhealth.tmpl", self._directory)
        config = {
            "global": {
                "scrape_interval": self._tempo.scrape,
                "scrape_timeout": self._tempo.scrape,
                "evaluation_interval": self._tempo.evaluation,
                "external_labels": self._alerting.labels,
            },
            "rule_files": ["semhealth.rules.yml"],
            "alerting": {
                "alert_relabel_configs": [
                    {"source_labels": ["alertname"], "regex": name, "action": "drop"} for name in self._alerting.unsent
                ],
                "alertmanagers": [
                    {"static_configs": [{"targets": [f"127.0.0.1:{self._alertmanager}"]}]},
                    *self._alerting.besides,
                ],
            },
            "scrape_configs": [
                {"job_name": "semhealth",
                 "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "1s"}]},
                {"job_name": "legacy-layer",
                 "static_configs": [{"targets": [f"127.0.0.1:{port_of(self.ghosts)}"]}],
                 "metric_relabel_configs": LEGACY_NAMES},
            ],
        }  # fmt: skip
        (self._directory / "prometheus.yml").write_text(yaml.safe_dump(config))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Both, the receiver, and a look at what fires twice a second."""
        prometheus, alertmanager = binaries()
        here = self._directory
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(serving(self._take, self._receiver))
            await stack.enter_async_context(running(
                (alertmanager, f"--config.file={here / 'alertmanager.yml'}", f"--storage.path={here / 'alertmanager'}",
                 f"--web.listen-address=127.0.0.1:{self._alertmanager}", "--cluster.listen-address="),
                log=here / "alertmanager.log",
            ))  # fmt: skip
            await self._ready(self._alertmanager, "alertmanager")
            await stack.enter_async_context(running(
                (prometheus, f"--config.file={here / 'prometheus.yml'}", f"--storage.tsdb.path={here / 'data'}",
                 f"--web.listen-address=127.0.0.1:{self._prometheus}",
                 f"--rules.alert.resend-delay={self._tempo.resend}"),
                log=here / "prometheus.log",
            ))  # fmt: skip
            await self._ready(self._prometheus, "prometheus")
            looking = asyncio.create_task(self._look())
            try:
                yield
            finally:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)

    async def _take(self, request: web.BaseRequest) -> web.Response:
        now = time.monotonic()
        for alert in json.loads(await request.read())["alerts"]:
            if alert["status"] == "firing" and len(self.deliveries) < MOST_DELIVERIES:
                self.deliveries.append(Delivery(now, request.path.strip("/"), alert["labels"]))
        return web.Response()

    async def _look(self) -> None:
        url = f"http://127.0.0.1:{self._prometheus}/api/v1/alerts"
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with self._session.get(url) as answer:
                    alerts = (await answer.json())["data"]["alerts"]
                now = time.monotonic()
                for alert in alerts:
                    if alert["state"] == "firing":
                        key = tuple(sorted(alert["labels"].items()))
                        self.seen.setdefault(key, Seen(alert["labels"], now, now)).last = now
            await asyncio.sleep(POLL)

    async def _ready(self, port: int, name: str) -> None:
        deadline = time.monotonic() + START
        while time.monotonic() < deadline:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                async with self._session.get(f"http://127.0.0.1:{port}/-/ready") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.2)
        said = (self._directory / f"{name}.log").read_text(errors="replace")[-500:]
        raise DrillError(f"{name} did not start within {START:g} s: {said}")


# As in deploy/prometheus.yml: what the exporters of a retired layer report gets a prefix (R22).
LEGACY_NAMES = [
    {
        "source_labels": ["__name__"],
        "regex": "(?:legacy_layer_|layer_)?(.+)",
        "target_label": "__name__",
        "replacement": "legacy_layer_$1",
    }
]
