"""Tries alerts: switches on the fault that each is for, and sees whether it reaches a receiver."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web
from msgspec import UNSET, Struct, UnsetType

from collector.drill.alertmanager import SETTLE, Address, Alertmanager, Arrival, drill_labels, sent_to
from collector.drill.faults import FAULTS, LAST, RULE, Fault
from collector.drill.scaling import longest_window
from collector.drill.service import TIMEOUT, Service
from collector.drill.stage import (
    GHOSTS,
    SHORTENED,
    START,
    Alerting,
    DrillError,
    Sidecar,
    Tempo,
    Watch,
    binaries,
    port_of,
    reserved,
    serving,
    shipped_alerts,
)
from collector.simulator import api
from collector.simulator.pacing import Pacing

AFTER = 2.0  # seconds in which others may still follow
QUIET_LEAST = 185.0  # seconds without a fault
KILL_EVERY = 0.4
KILL_ANALYST_EVERY = 6.5  # it is back, and scraped, in between
QUIET = "quiet"
WATCHDOG = "SemhealthWatchdog"
PACING = Pacing(first=0.05, gap=0.004, gap_sigma=0.0005)
PRICES = {"tables": {"drill": {"sources": ["https://example.invalid/prices"], "providers": ["*"],
                               "models": {"sim-large": {"input": 1.0, "output": 10.0}}}}}  # fmt: skip
QUIET_ROUTE: dict[str, Any] = {
    "objectives": [
        {"name": "errors", "measure": "errors", "share": 0.99},
        {"name": "validity", "measure": "validity", "share": 0.97},
        {"name": "first_token", "measure": "first_token", "at_most": 2.0, "share": 0.95},
        {"name": "jitter", "measure": "jitter", "at_most": 0.2, "share": 0.9},
        {"name": "kv_cache", "measure": "kv_cache_hit", "at_least": 0.9, "share": 0.95},
    ],
    "cost_per_hour": 1000.0,
}

Say = Callable[[str], None]


class Outcome(Struct, frozen=True):
    """What became of one alert: `seconds` from the fault to the drill's receiver, None where it never came."""

    fired: bool
    delivered: bool
    seconds: float | None
    others: tuple[str, ...]
    alertmanager: Arrival | UnsetType = UNSET  # with an Alertmanager of the user's alone


class Quiet(Struct, frozen=True):
    """How long nothing was wrong, and what fired all the same."""

    seconds: float
    others: tuple[str, ...]


class Report(Struct, frozen=True):
    alerts: dict[str, Outcome]
    quiet: Quiet

    @property
    def is_good(self) -> bool:
        return all(_arrived(each) for each in self.alerts.values()) and not self.quiet.others


def _arrived(outcome: Outcome) -> bool:
    there = outcome.alertmanager
    return outcome.delivered and (there is UNSET or bool(there.receivers))


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """The alerts to try, all where none is named; DrillError for one that does not exist."""
    for name in names:
        if name not in FAULTS:
            raise DrillError(f"no alert is called {name!r}; alerts/README.md lists them")
    return tuple(name for name in FAULTS if not names or name in names)


async def drill(
    names: Sequence[str],
    quiet_seconds: float | None,
    say: Say,
    tempo: Tempo = SHORTENED,
    address: Address | None = None,
) -> Report:
    """Try these alerts. Without `quiet_seconds` all rule windows are filled twice first.

    Those at `address` are told besides. Their watchdog stays away from there unless it is named: it would keep a dead
    man's switch quiet.
    """
    binaries()
    directory = Path(tempfile.mkdtemp(prefix="semhealth-drill-"))
    try:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
            labels, theirs, alerting = drill_labels(), None, Alerting()
            if address is not None:
                theirs = Alertmanager(address, labels, session)
                await theirs.check()
                unsent = () if WATCHDOG in names else (WATCHDOG,)
                alerting = Alerting(labels, (sent_to(address),), unsent)
            stage = _Stage(directory, session, names, say, tempo, alerting, theirs)
            async with stage.running():
                return await stage.run(quiet_seconds)
    except OSError as error:
        raise DrillError(f"something a drill needs cannot be had: {error}") from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def table(report: Report) -> str:
    """The report for people; a column of the user's Alertmanager where there is one."""
    rows = [("alert", "fired", "delivered", "seconds", "others", "your Alertmanager tells")]
    for name, each in report.alerts.items():
        took = "-" if each.seconds is None else f"{each.seconds:.1f}"
        fired, delivered = ("yes" if is_so else "NO" for is_so in (each.fired, each.delivered))
        rows.append((name, fired, delivered, took, ", ".join(each.others) or "-", _told(each.alertmanager)))
    is_told = any(each.alertmanager is not UNSET for each in report.alerts.values())
    shown = rows if is_told else [row[:-1] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]
    lines.append(f"quiet for {report.quiet.seconds:.0f} s: {', '.join(report.quiet.others) or 'nothing fired'}")
    return "\n".join(lines) + "\n"


def _told(arrival: Arrival | UnsetType) -> str:
    if arrival is UNSET:
        return "-"
    if not arrival.received:
        return "NO (did not arrive)"
    return ", ".join(arrival.receivers) or "NOBODY (silenced, inhibited or too short)"


class _Api:
    """A simulated API of one route, which can go away."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.base = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._stack = contextlib.AsyncExitStack()

    async def start(self) -> None:
        await self._stack.enter_async_context(api.serving(api.Settings(pacing=PACING), self._listener))

    async def stop(self) -> None:
        await self._stack.aclose()


class _Stage:
    def __init__(
        self,
        directory: Path,
        session: aiohttp.ClientSession,
        names: Sequence[str],
        say: Say,
        tempo: Tempo,
        alerting: Alerting,
        theirs: Alertmanager | None,
    ) -> None:
        self._theirs = theirs
        self._say = say
        self._tempo = tempo
        self._names = names
        self._session = session
        self._stack = contextlib.AsyncExitStack()
        self._collector = contextlib.AsyncExitStack()
        self._collector_place = reserved()
        self._contract = directory / "contract.yaml"
        (directory / "prices.yaml").write_text(yaml.safe_dump(PRICES))
        self._apis = {name: _Api() for name in (*names, QUIET)}
        together = {name: FAULTS[name] for name in names if not FAULTS[name].alone}
        routes = [self._route(name, directory, fault.route) for name, fault in together.items()]
        routes.append(self._route(QUIET, directory, QUIET_ROUTE))
        self._common = Sidecar(directory / "common", self._config(directory, routes))
        self._alone = {
            name: Sidecar(
                directory / name,
                self._config(directory, [self._route(name, directory, FAULTS[name].route)], name),
            )
            for name in names
            if FAULTS[name].alone
        }
        sidecars = (self._common, *self._alone.values())
        self._watch = Watch(directory, session, [each.admin for each in sidecars], tempo, alerting)

    def _route(self, name: str, directory: Path, settings: dict[str, Any]) -> dict[str, Any]:
        route = {"name": name, "prefix": f"/{name}", "upstream": self._apis[name].base, "provider": "openai"}
        if "contract" not in settings:
            return {**route, **settings}
        path = directory / f"contract-{name}.yaml"
        path.write_text(yaml.safe_dump(RULE))
        return {**route, **settings, "contract": str(path)}

    def _config(self, directory: Path, routes: list[dict[str, Any]], name: str | None = None) -> dict[str, Any]:
        config: dict[str, Any] = {
            "routes": routes,
            "prices": str(directory / "prices.yaml"),
            "embedder": {"cpu_share": 1.0},
            "proxy": {"drain_timeout": "1s"},
            "exporters": {"max_series": 50_000},
            "log_level": "error",
        }
        if name == "SemhealthExportsFailing":
            endpoint = f"http://127.0.0.1:{port_of(self._collector_place)}"
            config["exporters"]["otlp"] = {"endpoint": endpoint, "interval": "500ms", "timeout": "300ms"}
        return config

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        sidecars = (self._common, *self._alone.values())
        async with self._stack as stack:
            for each in self._apis.values():
                await each.start()
                stack.push_async_callback(each.stop)
            await self._collector.enter_async_context(serving(_accept, self._collector_place))
            stack.push_async_callback(self._collector.aclose)
            for sidecar in sidecars:
                await stack.enter_async_context(sidecar.running())
            await asyncio.gather(*(self._ready(each) for each in sidecars))
            await stack.enter_async_context(self._watch.running())
            yield

    async def _ready(self, sidecar: Sidecar) -> None:
        """Until the sidecar forwards and scores."""
        deadline = time.monotonic() + START
        while time.monotonic() < deadline:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                async with self._session.get(f"http://{sidecar.admin}/metrics") as answer:
                    if b"semantic_health_relevance_ready 1" in await answer.read():
                        return
            await asyncio.sleep(0.2)
        said = (sidecar.directory / "log").read_text(errors="replace")[-500:]
        raise DrillError(f"a sidecar was not ready within {START:g} s: {said}")

    async def run(self, quiet_seconds: float | None) -> Report:
        quiet = await self._be_quiet(quiet_seconds)
        outcomes: dict[str, Outcome] = {}
        places = asyncio.Semaphore(self._tempo.at_once)

        async def one(name: str) -> None:
            async with places:
                outcomes[name] = await self._try(name, FAULTS[name])
                came = outcomes[name]
                self._say(f"{name}: {f'{came.seconds:.1f} s' if came.seconds is not None else 'did not arrive'}")

        await asyncio.gather(*(one(name) for name in self._names if name not in LAST))
        for name in self._names:
            if name in LAST:
                await one(name)
        return Report({name: outcomes[name] for name in self._names}, quiet)

    async def _be_quiet(self, seconds: float | None) -> Quiet:
        rules = yaml.safe_load((shipped_alerts() / "semhealth.rules.yml").read_text(encoding="utf-8"))
        lasting = max(QUIET_LEAST, 2.0 * longest_window(rules) + 5.0) if seconds is None else seconds
        if lasting <= 0.0:
            return Quiet(0.0, ())
        self._say(f"nothing is wrong for {lasting:.0f} s")
        began = time.monotonic()
        async with self._serving(QUIET, Fault()):
            await asyncio.sleep(lasting)
            fired = {each.labels["alertname"] for each in self._watch.seen.values()}
        return Quiet(round(time.monotonic() - began, 1), tuple(sorted(fired - {WATCHDOG})))

    @contextlib.asynccontextmanager
    async def _serving(self, name: str, fault: Fault) -> AsyncIterator[tuple[Service, asyncio.Task[None]]]:
        base = f"http://{self._alone.get(name, self._common).listen}/{name}"
        service = Service(self._session, base, fault.rate, fault.good, name)
        task = asyncio.create_task(service.run())
        try:
            yield service, task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _try(self, name: str, fault: Fault) -> Outcome:
        async with self._serving(name, fault) as (service, traffic):
            if fault.act != "none":
                await asyncio.sleep(max(fault.warm, self._tempo.warm))
            began = time.monotonic() if fault.act != "none" else 0.0
            acting = asyncio.create_task(self._switch_on(name, fault, service, traffic))
            waited = time.monotonic()
            while (delivered := self._delivered(name, began)) is None and time.monotonic() < waited + self._tempo.limit:
                if acting.done() and acting.exception() is not None:
                    break
                await asyncio.sleep(0.2)
            there = await self._follow(name, delivered is not None)
            await asyncio.sleep(AFTER)
            acting.cancel()
            await asyncio.gather(acting, return_exceptions=True)
            await self._faults(name, [])
        fired = {each.labels["alertname"] for each in self._watch.seen.values() if each.last >= began
                 and self._concerns(name, each.labels)}  # fmt: skip
        took = None if delivered is None else round(delivered - (began or waited), 1)
        others = () if fault.act == "none" else tuple(sorted(fired - {name, WATCHDOG}))
        return Outcome(name in fired or delivered is not None, delivered is not None,
                       None if took is None else max(0.0, took), others, there)  # fmt: skip

    async def _follow(self, name: str, is_delivered: bool) -> Arrival | UnsetType:
        """What becomes of the alert at the user's Alertmanager, while its fault goes on."""
        if self._theirs is None:
            return UNSET
        self._say(f"{name}: waiting for {self._theirs.address.shown} to notify")
        patience = SETTLE if is_delivered else 0.0
        return await self._theirs.follow(name, lambda labels: self._concerns(name, labels), patience)

    def _concerns(self, name: str, labels: dict[str, str]) -> bool:
        """Whether an alert is about this route, or this sidecar, or about neither and is the one that is tried."""
        alone = self._alone.get(name)
        about = labels.get("route") == name or (alone is not None and labels.get("instance") == alone.admin)
        return about or (labels["alertname"] == name and "route" not in labels and "instance" not in labels)

    def _delivered(self, name: str, since: float) -> float | None:
        for each in self._watch.deliveries:
            if each.at >= since and each.labels["alertname"] == name and self._concerns(name, each.labels):
                return each.at
        return None

    async def _faults(self, name: str, settings: list[dict[str, Any]]) -> None:
        """Switch the faults of the route's API on, or with none all off; one that is gone takes none."""
        url = f"{self._apis[name].base}/-/faults"
        with contextlib.suppress(aiohttp.ClientError, OSError):
            if not settings:
                async with self._session.delete(url):
                    return
            async with self._session.post(url, data=json.dumps(settings)) as answer:
                if answer.status != 200:
                    raise DrillError(f"{name}: the simulated API refused its fault: {await answer.text()}")

    async def _switch_on(self, name: str, fault: Fault, service: Service, traffic: asyncio.Task[None]) -> None:
        ours = [each for each in fault.api if each["fault"] != "context_lost"]
        service.context_lost = max(
            (each["share"] for each in fault.api if each["fault"] == "context_lost"), default=0.0
        )
        if ours:
            await self._faults(name, ours)
        if fault.asks is not None:
            service.asks = fault.asks
        sidecar = self._alone.get(name, self._common)
        match fault.act:
            case "stop_api":
                await self._apis[name].stop()
            case "stop_traffic":
                traffic.cancel()
            case "more_traffic":
                service.rate *= 10
            case "kill_sidecar":
                sidecar.signal(None, signal.SIGKILL)
            case "kill_validator":
                sidecar.signal("collector.validation.process", signal.SIGKILL)
            case "kill_analyst":
                await _kill_again(sidecar, "collector.app", KILL_ANALYST_EVERY)
            case "kill_embedder":
                await _kill_again(sidecar, "collector.embedding.process", KILL_EVERY)
            case "stop_collector":
                await self._collector.aclose()
            case "lose_contract":
                path = self._common.directory.parent / f"contract-{name}.yaml"
                path.write_text("rules: broken\n")
                sidecar.signal("collector.app", signal.SIGKILL)
            case "break_config":
                sidecar.config.write_text("routes: broken\n")
                sidecar.signal(None, signal.SIGHUP)
            case "start_ghost":
                await self._stack.enter_async_context(serving(_ghosts, self._watch.ghosts))
            case "lose_targets":
                self._watch.state_targets(())
            case "none" | None:
                pass


async def _kill_again(sidecar: Sidecar, module: str, every: float) -> None:
    while True:
        sidecar.signal(module, signal.SIGKILL)
        await asyncio.sleep(every)


async def _accept(request: web.BaseRequest) -> web.Response:
    await request.read()
    return web.Response(content_type="application/x-protobuf")


async def _ghosts(_: web.BaseRequest) -> web.Response:
    return web.Response(text=GHOSTS)
