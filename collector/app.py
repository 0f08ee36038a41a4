"""The composition root: what the analyst process is made of, and the tuples of dialects it reads."""

from __future__ import annotations

import argparse
import asyncio
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

from collector.admin.server import application
from collector.analyst.accumulate import NewDigest, digest_of
from collector.analyst.analyst import AnalysedRoute, Analyst
from collector.analyst.answer import Limits
from collector.analyst.fold import RouteFacts, Rules
from collector.analyst.ledger import Ledger
from collector.analyst.receiver import Receiver, Recorded
from collector.analyst.sampler import Sampler
from collector.analyst.scorer import EmbeddingScorer
from collector.config import ConfigError, FindingSettings, Route, Settings, extra_labels, parse_upstream, routes_of
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
from collector.model import Dialect, Objective, Reading, Record, RuleSet
from collector.objectives import objectives_of
from collector.prices import price_tables
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
            tuple(
                Objective(each.name, each.measure, each.share, each.at_most, each.at_least, each.prompts)
                for each in objectives_of(settings, route)
            ),
            policy_of(settings.findings if route.findings == FindingSettings() else route.findings),
            rules,
            loaded,
            settings.analysis.long_context_tokens,
            route.cost_per_hour,
        )
    return routes


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

    def __init__(self, settings: Settings, runtime: Path) -> None:
        self._settings = settings
        clock = SystemClock()
        exporters = settings.exporters
        self._prometheus = PrometheusExporter(
            extra_labels(settings), settings.analysis.window, exporters.max_series, clock
        )
        otlp = exporters.otlp
        self._telemetry = Telemetry(
            self._prometheus,
            os.environ,
            servers=servers_of(settings),
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
        )

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

    async def run(self, events: socket.socket, admin: socket.socket, runtime: Path) -> None:
        """Until SIGTERM or SIGINT; then takes in what the proxies still told, settles and flushes."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
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
        recorded = Recorded(self._recorded_before)
        server = await loop.create_unix_server(lambda: Receiver(self._analyst, when_written, recorded), sock=events)
        runner = web.AppRunner(application(self._analyst, self._prometheus.render), access_log=None)
        await runner.setup()
        await web.SockSite(runner, admin).start()
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        await stop.wait()
        await self._empty()
        await self._analyst.settle(SETTLING)
        server.close()
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        await runner.cleanup()
        await asyncio.to_thread(self._telemetry.shutdown, FLUSHING)
        if self._log is not None:
            await asyncio.to_thread(self._log.close)

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
            await asyncio.sleep(0.5)


def main(arguments: Sequence[str] | None = None) -> int:
    """`--runtime DIR --fd events=N --fd admin=N`: the analyst process."""
    parser = argparse.ArgumentParser(prog="python -m collector.app", description="The analyst process.")
    parser.add_argument("--runtime", required=True, type=Path, metavar="DIR")
    parser.add_argument("--fd", required=True, action="append", metavar="NAME=N")
    given = parser.parse_args(arguments)
    sockets = dict(each.partition("=")[::2] for each in given.fd)
    settings = msgspec.json.decode((given.runtime / "settings.json").read_bytes(), type=Settings)
    logging.basicConfig(level=settings.log_level.upper(), format=LOG_FORMAT)
    events = socket.socket(fileno=int(sockets["events"]))
    admin = socket.socket(fileno=int(sockets["admin"]))
    process = AnalystProcess(settings, given.runtime)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(process.run(events, admin, given.runtime))
    return 0


if __name__ == "__main__":
    sys.exit(main())
