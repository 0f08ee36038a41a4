"""The composition root: what the analyst process is made of, and the tuples of dialects it reads."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
import uvloop
from aiohttp import web

from collector.admin import access
from collector.admin.server import application, no_reload
from collector.analyst.accumulate import NewDigest, digest_of
from collector.analyst.analyst import Account, AnalysedRoute, Analyst
from collector.analyst.answer import Limits
from collector.analyst.fold import RouteFacts, Rules
from collector.analyst.ledger import Ledger
from collector.analyst.receiver import Receiver, Recorded
from collector.analyst.sampler import Sampler
from collector.analyst.scorer import EmbeddingScorer
from collector.changes import why_a_new_analyst
from collector.config import ConfigError, FindingSettings, Route, Settings, extra_labels, parse_upstream, routes_of
from collector.control import Control, Note, ends_at_signals, wait_to_go
from collector.dialects.anthropic_completions import AnthropicCompletions
from collector.dialects.anthropic_messages import AnthropicMessages
from collector.dialects.bedrock_converse import BedrockConverse
from collector.dialects.bedrock_invoke import BedrockEmbeddings, BedrockInvoke, Families
from collector.dialects.cohere import CohereChat, CohereEmbeddings
from collector.dialects.gemini import GeminiEmbeddings, GeminiGenerate
from collector.dialects.gemini_interactions import GeminiInteractions
from collector.dialects.ollama import Ollama, OllamaEmbeddings
from collector.dialects.openai_chat import OpenAiChat
from collector.dialects.openai_completions import OpenAiCompletions
from collector.dialects.openai_embeddings import OpenAiEmbeddings, Rerank
from collector.dialects.openai_realtime import OpenAiRealtime
from collector.dialects.openai_responses import OpenAiResponses
from collector.dialects.replicate import Replicate
from collector.dialects.tgi import Tgi
from collector.dialects.token_counts import TokenCounts
from collector.dialects.unknown import Unknown
from collector.dialects.watsonx import WatsonxChat, WatsonxGeneration
from collector.embedding.client import EmbeddingClient
from collector.findings.policy import DIAGNOSTIC_PREFIXES, Policy
from collector.measures.objectives import stated
from collector.model import Dialect, Objective, Reading, Record, RuleSet
from collector.objectives import objectives_of
from collector.prices import price_tables
from collector.supervisor import RELOAD_FILE, SETTINGS_FILE, WORKERS_STAY, ReloadState
from collector.validation.client import ValidatorClient
from collector.validation.contract import usable_contract
from exporters.exchange_log import ExchangeLog, last_ids
from exporters.otel_attributes import Server
from exporters.prometheus import PrometheusExporter
from exporters.telemetry import Telemetry

log = logging.getLogger("semhealth.analyst")

_CHAT, _MESSAGES, _CONVERSE, _COHERE = OpenAiChat(), AnthropicMessages(), BedrockConverse(), CohereChat()
_FAMILIES = Families(messages=_MESSAGES, converse=_CONVERSE, chat=_CHAT, cohere=_COHERE)

# The first that speaks so reads the exchange; the last one speaks anything.
DIALECTS: tuple[Dialect, ...] = (
    _CHAT,
    TokenCounts(),
    _MESSAGES,
    AnthropicCompletions(),
    OpenAiResponses(),
    OpenAiCompletions(),
    OpenAiRealtime(),
    GeminiGenerate(),
    GeminiInteractions(),
    GeminiEmbeddings(),
    _CONVERSE,
    BedrockInvoke(_FAMILIES),
    BedrockEmbeddings(_FAMILIES),
    _COHERE,
    CohereEmbeddings(),
    Ollama(),
    OllamaEmbeddings(),
    Replicate(),
    Tgi(),
    WatsonxGeneration(),
    WatsonxChat(_CHAT),
    OpenAiEmbeddings(),
    Rerank(),
    Unknown(),
)

PROCESSES = ("proxy", "analyst", "embedder", "validator")
EMPTYING = 2.0  # seconds that the analyst goes on after the proxies have ended
SETTLING = 2.0  # seconds that records may still wait for a judge
FLUSHING = 3.0  # seconds for the last export
RETIRING = 1.0  # seconds that an analyst goes on with what it judges when another takes its place
RELOADING = 90.0  # seconds after which a reload that the admin port asked for is not waited for
ACCOUNT_FILE = "account.json"  # in the runtime directory: what the next analyst has to know of workers that ended
LOOK_AROUND = 0.5  # seconds between looks at what the supervisor tells in files
LOG_FORMAT = "%(asctime)s %(name)s %(levelname)s %(message)s"


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


def installed_version() -> str:
    """The version of semhealth, `unknown` when it is run without being installed."""
    try:
        return version("semhealth")
    except PackageNotFoundError:
        return "unknown"


def rules_of(settings: Settings) -> Rules:
    """How exchanges are read under these settings. Raises KeyError when the HMAC key's variable is not set,
    ConfigError when the file of prices cannot be read."""
    analysis = settings.analysis
    limits = Limits(
        stall=analysis.stall_threshold,
        first_token_deadline=analysis.first_token_deadline,
        token_deadline=analysis.token_deadline,
        text=analysis.text_cap,
        request=analysis.request_cap,
        body=analysis.body_cap,
        event=analysis.event_cap,
        decoded=analysis.decoded_cap,
    )
    prices = price_tables(Path(settings.prices) if settings.prices is not None else None)
    return Rules(DIALECTS, limits, _digest(settings), prices)


def _digest(settings: Settings) -> NewDigest:
    privacy = settings.privacy
    key = os.environ[privacy.hmac_key_env].encode() if privacy.text_hash == "hmac" else b""
    return digest_of(privacy.text_hash, key)


def analysed_routes(settings: Settings) -> dict[str, AnalysedRoute]:
    """Every route by name, with its contract read and its labels in the exporter's order."""
    names = extra_labels(settings)
    routes = {}
    for route in routes_of(settings):
        upstream = parse_upstream(route.upstream)
        schema, rules, loaded = _contract(route)
        routes[route.name] = AnalysedRoute(
            RouteFacts(route.name, upstream.authority, route.dialect, route.provider),
            schema,
            tuple(route.labels.get(name, "") for name in names),
            tuple((names.index(name), header.lower()) for name, header in settings.label_headers.items()),
            _promised(settings, route),
            policy_of(settings.findings if route.findings == FindingSettings() else route.findings),
            rules,
            loaded,
            settings.analysis.long_context_tokens,
            route.cost_per_hour,
        )
    return routes


def _promised(settings: Settings, route: Route) -> tuple[Objective, ...]:
    return tuple(
        Objective(each.name, each.measure, each.share, each.at_most, each.at_least, each.prompts)
        for each in objectives_of(settings, route)
    )


def servers_of(settings: Settings) -> dict[str, Server]:
    """Where each route's upstream is."""
    upstreams = {route.name: parse_upstream(route.upstream) for route in routes_of(settings)}
    return {name: Server(upstream.host, upstream.port) for name, upstream in upstreams.items()}


def _contract(route: Route) -> tuple[bytes | None, RuleSet | None, bool | None]:
    """The schema and the rules of a route's contract, and whether it is in force; None where it states none.

    It was sound when the sidecar started. If it is not any more, the route does without: the analyst must come back.
    """
    if route.contract is None:
        return None, None, None
    try:
        contract = usable_contract(Path(route.contract))
    except ConfigError as error:
        for problem in error.problems:
            log.error("route %s is judged without its contract: %s", route.name, problem)
        return None, None, False
    return contract.schema, contract.rule_set(), True


STRICT_SYSTEM_PROMPT = 128  # tokens, R13


def policy_of(settings: FindingSettings) -> Policy:
    """The settings as the rules read them."""
    tokens = settings.system_prompt_tokens
    if tokens is None and settings.profile == "strict":
        tokens = STRICT_SYSTEM_PROMPT
    prefixes = settings.diagnostic_prefixes
    return Policy(
        off=frozenset(settings.off),
        system_prompt_tokens=tokens,
        checked_headers=settings.checked_headers,
        aliases=frozenset((alias.asked, alias.served) for alias in settings.aliases),
        diagnostic_prefixes=DIAGNOSTIC_PREFIXES if prefixes is None else prefixes,
        overload_load=settings.overload_load,
        retry_storm=settings.retry_storm,
    )


class AnalystProcess:
    """Everything that runs in the analyst process, from its sockets to its exporters."""

    def __init__(self, settings: Settings, runtime: Path, control: socket.socket | None = None) -> None:
        self._settings = settings
        self._runtime = runtime
        self._control_end = control
        self._control: Control | None = None
        self._asked: asyncio.Future[tuple[int, str]] | None = None  # of a reload, one at a time
        self._servers = servers_of(settings)
        clock = SystemClock()
        exporters = settings.exporters
        self._prometheus = PrometheusExporter(
            extra_labels(settings), settings.analysis.window, exporters.max_series, clock
        )
        otlp = exporters.otlp
        self._telemetry = Telemetry(
            self._prometheus,
            os.environ,
            servers=self._servers,
            signals=otlp.signals,
            endpoint=otlp.endpoint,
            protocol=otlp.protocol,
            interval=otlp.interval,
            timeout=otlp.timeout,
            version=installed_version(),
        )
        path = exporters.exchange_log.path
        self._recorded_before = last_ids(path) if path is not None else []
        self._log = (
            ExchangeLog(path, exporters.exchange_log.max_size, exporters.exchange_log.keep, self._log_lost)
            if path is not None
            else None
        )
        self._validator = ValidatorClient(runtime / "validator.sock", settings.validator)
        self._embedder = EmbeddingClient(runtime / "embedder.sock", settings.embedder, clock)
        self._analyst = Analyst(
            rules_of(settings),
            analysed_routes(settings),
            self._prometheus,
            Ledger(settings.analysis.records),
            self._write,
            self._validator,
            EmbeddingScorer(self._embedder, clock, Sampler(settings.embedder.cpu_share)),
            clock,
            self._telemetry.take if self._telemetry.exports_exchanges else None,
            self._keep_account,
        )
        self._go_on_from_account()

    def _go_on_from_account(self) -> None:
        try:
            account = msgspec.json.decode((self._runtime / ACCOUNT_FILE).read_bytes(), type=Account)
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("totals of workers that ended are not known any more: %s", type(error).__name__)
            return
        self._analyst.go_on_from(account)

    def _keep_account(self) -> None:
        new = self._runtime / f"{ACCOUNT_FILE}.new"
        try:
            new.write_bytes(msgspec.json.encode(self._analyst.account()))
            new.replace(self._runtime / ACCOUNT_FILE)
        except OSError as error:
            log.warning("totals of workers that ended could not be kept: %s", error.strerror)

    def _write(self, record: Record) -> None:
        if self._log is not None:
            self._log.append(record)

    def _log_lost(self, records: int) -> None:
        self._prometheus.add("semantic_health_exchange_log_lost_total", float(records))

    def _restarts(self, runtime: Path) -> None:
        """Restarts are told by the supervisor in a file of the runtime directory, a line each."""
        try:
            lines = (runtime / "restarts").read_text().split()
        except OSError:
            return
        for process in lines[self._restarts_seen :]:
            self._prometheus.add("semantic_health_process_restarts_total", 1.0, (process,))
        self._restarts_seen = len(lines)

    _restarts_seen = 0

    def _reloads(self) -> None:
        """How the last reload went, as the supervisor tells it in a file of the runtime directory."""
        try:
            state = msgspec.json.decode((self._runtime / RELOAD_FILE).read_bytes(), type=ReloadState)
        except (OSError, msgspec.MsgspecError):
            return
        successful = Reading("semantic_health_config_last_reload_successful", float(state.successful))
        self._prometheus.record(successful)
        self._prometheus.record(Reading("semantic_health_config_last_reload_success_timestamp_seconds", state.at))

    # ------------------------------------------------------------ other settings

    def take(self, settings: Settings, *, workers_stay: bool) -> str:
        """Go by other settings from now on, all of them or none; the reason where a new process has to."""
        reason = why_a_new_analyst(self._settings, settings) or self._would_stay_stated(settings)
        if reason:
            return reason
        rules, routes = rules_of(settings), analysed_routes(settings)
        self._analyst.change(rules, routes, workers_stay=workers_stay)
        self._servers.clear()
        self._servers.update(servers_of(settings))
        logging.getLogger().setLevel(settings.log_level.upper())
        self._settings = settings
        return ""

    def _would_stay_stated(self, settings: Settings) -> str:
        """A gauge that was stated once stays: what is promised no more needs a registry without it."""
        gone = _stated(self._settings) - _stated(settings)
        return f"route {min(gone)[1]} no longer promises what it did" if gone else ""

    async def _hear(self, control: Control) -> None:
        """Do as the supervisor says, until it has gone."""
        while (note := await control.hear()) is not None:
            if note.kind == "take":
                control.say(Note("taken", self._taken(workers_stay=note.text == WORKERS_STAY)))
            elif note.kind == "answer":
                self._answer(note.status, note.text)
        self._control = None
        self._answer(*await no_reload())

    def _answer(self, status: int, text: str) -> None:
        if self._asked is not None and not self._asked.done():
            self._asked.set_result((status, text))

    def _taken(self, *, workers_stay: bool) -> str:
        try:
            return self.take(_settings_in(self._runtime), workers_stay=workers_stay)
        except Exception as error:  # noqa: BLE001 - the boundary of a reload: a new process may do what this one cannot
            log.warning("settings could not be taken: %s", type(error).__name__)
            return f"it could not take them: {type(error).__name__}"

    async def _ask_to_reload(self) -> tuple[int, str]:
        if self._control is None:
            return await no_reload()
        if self._asked is not None:
            return 409, "another reload is under way; try again"
        self._asked = asyncio.get_running_loop().create_future()
        try:
            self._control.say(Note("reload"))
            async with asyncio.timeout(RELOADING):
                return await self._asked
        except TimeoutError:
            return 503, "the supervisor has not answered; the log of semhealth says more"
        finally:
            self._asked = None

    # ------------------------------------------------------------ running

    async def run(self, events: socket.socket, admin: socket.socket, runtime: Path) -> None:
        """Until SIGTERM or SIGINT; then takes in what the proxies still told, settles and flushes.

        At SIGUSR1 another analyst takes its place: it hangs up on the proxies, which will turn to that one.
        """
        loop = asyncio.get_running_loop()
        stop, leave = ends_at_signals()
        if self._log is not None:
            loop.add_signal_handler(signal.SIGHUP, self._log.reopen)
        else:
            loop.add_signal_handler(signal.SIGHUP, lambda: None)
        self._prometheus.record(Reading("semantic_health_build_info", 1.0, (installed_version(),)))
        for name in PROCESSES:  # a counter that begins with its first count would never be seen to increase
            self._prometheus.add("semantic_health_process_restarts_total", 0.0, (name,))
        self._analyst.state_objectives()
        self._telemetry.start()
        background = [asyncio.create_task(each) for each in (self._validator.run(), self._embedder.run())]
        background.append(asyncio.create_task(self._watch(runtime)))
        when_written = self._log.when_written if self._log is not None else None
        recorded = Recorded((*self._recorded_before, *self._analyst.account().lost_lately))
        self._reloads()
        receivers: set[Receiver] = set()  # one per worker that is connected

        def receiver() -> Receiver:
            made = Receiver(self._analyst, when_written, recorded, lambda: left(made))
            receivers.add(made)
            return made

        def left(gone: Receiver) -> None:
            receivers.discard(gone)
            self._keep_account()

        server = await loop.create_unix_server(receiver, sock=events)
        asked = application(self._analyst, self._prometheus.render, self._ask_to_reload)
        runner = web.AppRunner(access.guarded(asked, self._settings, os.environ), access_log=None)
        await runner.setup()
        await self._open_admin(runner, admin)
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        if self._control_end is not None:
            self._control = await Control.on(self._control_end)
            background.append(asyncio.create_task(self._hear(self._control)))
            self._control.say(Note("serving"))
        await leave.wait()
        if stop.is_set():
            await self._empty()
            await self._analyst.settle(SETTLING)
            server.close()
        else:
            server.close()
            await self._analyst.settle(RETIRING)
            await self._written()
            for each in list(receivers):
                each.hang_up()
        self._keep_account()
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        await runner.cleanup()
        await asyncio.to_thread(self._telemetry.shutdown, FLUSHING)
        if self._log is not None:
            await asyncio.to_thread(self._log.close)

    async def _written(self) -> None:
        """Wait until what is recorded is in the log, and the proxies have been told."""
        if self._log is None:
            return
        loop = asyncio.get_running_loop()
        written = asyncio.Event()

        def tell() -> None:
            loop.call_soon_threadsafe(written.set)

        self._log.when_written(tell)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETIRING):
                await written.wait()

    async def _open_admin(self, runner: web.AppRunner, admin: socket.socket) -> None:
        """Serve the admin port; not at all where its TLS cannot be had any more, rather than without."""
        for warning in access.warnings(self._settings, os.environ):
            log.warning(warning)
        try:
            tls = access.server_tls(self._settings.admin_tls)
        except OSError as error:
            log.error("the admin port stays closed, its certificate cannot be used: %s", error.strerror)
            return
        await web.SockSite(runner, admin, ssl_context=tls).start()

    async def _empty(self) -> None:
        """Wait until the proxy workers have hung up, so that nothing they told is lost."""
        deadline = time.monotonic() + EMPTYING
        while self._analyst.workers and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    async def _watch(self, runtime: Path) -> None:
        while True:
            if self._settings.embedder.kind != "none":
                self._prometheus.record(Reading("semantic_health_relevance_ready", float(self._embedder.ready)))
            for reading in self._embedder.readings():
                self._prometheus.record(reading)
            self._restarts(runtime)
            self._reloads()
            await asyncio.sleep(LOOK_AROUND)


def _settings_in(runtime: Path) -> Settings:
    return msgspec.json.decode((runtime / SETTINGS_FILE).read_bytes(), type=Settings)


def _stated(settings: Settings) -> set[tuple[str, ...]]:
    """Metric, labels and labels of the user of every gauge that is stated once."""
    names = extra_labels(settings)
    found = set()
    for route in routes_of(settings):
        extra = tuple(route.labels.get(name, "") for name in names)
        if route.contract is not None:
            found.add(("semantic_health_contract_loaded", route.name, *extra))
        for reading in stated(route.name, _promised(settings, route), route.cost_per_hour):
            found.add((reading.metric, *reading.labels, *extra))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """`--runtime DIR --fd events=N --fd admin=N`: the analyst process."""
    parser = argparse.ArgumentParser(prog="python -m collector.app", description="The analyst process.")
    parser.add_argument("--runtime", required=True, type=Path, metavar="DIR")
    parser.add_argument("--fd", required=True, action="append", metavar="NAME=N")
    given = parser.parse_args(arguments)
    sockets = dict(each.partition("=")[::2] for each in given.fd)
    control = socket.socket(fileno=int(sockets["control"])) if "control" in sockets else None
    if control is not None and not wait_to_go(control):
        return 2
    settings = _settings_in(given.runtime)
    logging.basicConfig(level=settings.log_level.upper(), format=LOG_FORMAT)
    events = socket.socket(fileno=int(sockets["events"]))
    admin = socket.socket(fileno=int(sockets["admin"]))
    process = AnalystProcess(settings, given.runtime, control)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(process.run(events, admin, given.runtime))
    return 0


if __name__ == "__main__":
    sys.exit(main())
