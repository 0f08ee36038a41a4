"""OTLP as a whole: metrics, spans and log records, each with a thread of its own, under one name and one limit."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Collection, Mapping

from collector.model import SpanFacts, TraceParent
from exporters.otel import OtlpExporter
from exporters.otel_attributes import Server, Told, log_records
from exporters.otel_batches import DELAY, BatchExporter, Identity
from exporters.otel_environment import SIGNALS, Environment, Protocol, Signal
from exporters.prometheus import PrometheusExporter

_new_id = random.Random().getrandbits  # noqa: S311 - trace ids are no secrets


def _not_sampled(_: int, parent: TraceParent | None) -> bool:
    return parent is not None and parent.is_sampled


class Telemetry:
    """Exports the `signals` that have a destination; nothing where none has. What is given wins over the environment.

    `interval` is of metrics, and the longest that spans and log records wait where it is below 5 s. `servers` are the
    upstreams by route. Nothing here raises, and nothing but `shutdown` waits.
    """

    def __init__(
        self,
        prometheus: PrometheusExporter,
        variables: Mapping[str, str],
        *,
        servers: Mapping[str, Server],
        signals: Collection[Signal] = SIGNALS,
        endpoint: str | None = None,
        protocol: Protocol | None = None,
        interval: float | None = None,
        timeout: float | None = None,
        version: str = "",
    ) -> None:
        environment = Environment(variables)
        identity = Identity(version, str(uuid.uuid4()), environment.takes_latest, servers)
        delay = DELAY if interval is None else min(DELAY, interval)
        newer = environment.takes_latest

        def batches(signal: Signal) -> BatchExporter | None:
            destination = environment.destination(signal, endpoint, protocol, timeout) if signal in signals else None
            if destination is None or signal == "metrics":
                return None
            return BatchExporter(signal, destination, identity, prometheus, weights[signal], delay)

        weights = {"traces": lambda _: 1, "logs": lambda told: log_records(told.facts, newer=newer)}
        self._newer = newer
        self._traces, self._logs = batches("traces"), batches("logs")
        self._metrics = (
            OtlpExporter(
                prometheus,
                endpoint=endpoint,
                protocol=protocol,
                interval=interval,
                timeout=timeout,
                version=version,
                instance=identity.instance,
                environment=environment,
            )
            if "metrics" in signals
            else None
        )
        self._is_sampled = environment.sampler() if self._traces is not None else _not_sampled
        if self.exports_exchanges or (self._metrics is not None and self._metrics.enabled):
            environment.warn_of_others()

    @property
    def exports_exchanges(self) -> bool:
        """Whether `take` leads anywhere."""
        return self._traces is not None or self._logs is not None

    def start(self) -> None:
        for each in (self._metrics, self._traces, self._logs):
            if each is not None:
                each.start()

    def take(self, facts: SpanFacts) -> None:
        """An exchange has been recorded."""
        parent = facts.parent
        trace_id = int(parent.trace_id, 16) if parent is not None else _new_id(128) or 1
        is_sampled = self._is_sampled(trace_id, parent)
        has_logs = self._logs is not None and log_records(facts, newer=self._newer) > 0
        if not (has_logs or (is_sampled and self._traces is not None)):
            return
        span_id = int(facts.span_id, 16) if facts.span_id is not None else _new_id(64) or 1
        told = Told(facts, trace_id, span_id, is_sampled)
        if is_sampled and self._traces is not None:
            self._traces.take(told)
        if has_logs and self._logs is not None:
            self._logs.take(told)

    def shutdown(self, timeout: float) -> bool:
        """Send what waits and stop, all at once, in at most `timeout` seconds. False when one did not end well."""
        deadline = time.monotonic() + timeout
        running = [each for each in (self._traces, self._logs, self._metrics) if each is not None]
        for each in running:
            each.stop()
        ended_well = [each.shutdown(max(0.0, deadline - time.monotonic())) for each in running]
        return all(ended_well)
