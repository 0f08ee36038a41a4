"""What telemetry costs: CPU of a span per exchange beside none, and how long /metrics takes at its series bound.

Spans go through a real analyst, the batches, the SDK's encoder and HTTP to a receiver in a process of its own; times
are CPU time of all threads of this process. Scrapes are elapsed time in a thread, idle and beside a busy one.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from statistics import median, quantiles

from msgspec.structs import replace

from bench.analyst import LEDGER, Traffic, _Unasked, batches, openai_json, openai_stream, rules, worker
from collector.analyst.analyst import AnalysedRoute, Analyst
from collector.analyst.fold import RouteFacts
from collector.analyst.ledger import Ledger
from collector.app import SystemClock
from collector.model import Reading, SpanFacts, decode_events
from exporters.otel_attributes import Server
from exporters.otel_environment import Signal
from exporters.prometheus import PrometheusExporter
from exporters.telemetry import Telemetry

SERIES = 5000
SPANS_ONLY: tuple[Signal, ...] = ("traces",)
TRACE = b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n\r\n"
FORMATS = {"text": "text/plain; version=0.0.4", "OpenMetrics": "application/openmetrics-text; version=1.0.0"}


def receiver(tell: Connection) -> None:
    """Takes whatever is sent; tells its port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    tell.send(server.server_address[1])
    server.serve_forever()


def analyst_of(traffic: Traffic, trace: Callable[[SpanFacts], None] | None) -> Analyst:
    clock, unasked = SystemClock(), _Unasked()
    return Analyst(
        rules(),
        {traffic.name: AnalysedRoute(RouteFacts(traffic.name, traffic.host))},
        PrometheusExporter((), 300.0, SERIES, clock),
        Ledger(LEDGER),
        lambda record: None,
        unasked,
        unasked,
        clock,
        trace,
    )


def spent(traffic: Traffic, exchanges: int, port: int | None, sampler: str) -> float:
    """CPU seconds of one exchange; without a port nothing is exported."""
    telemetry = None
    registry = PrometheusExporter((), 300.0, SERIES, SystemClock())
    if port is not None:
        telemetry = Telemetry(
            registry,
            {"OTEL_TRACES_SAMPLER": sampler},
            servers={traffic.name: Server(traffic.host, 443)},
            signals=SPANS_ONLY,
            endpoint=f"http://127.0.0.1:{port}",
        )
        telemetry.start()
    analyst, told_by = analyst_of(traffic, telemetry.take if telemetry is not None else None), worker()
    encoded = batches(traffic, exchanges)
    for batch in batches(traffic, 20):  # makes the series, loads the SDK
        analyst.take(told_by, decode_events(batch))
    time.sleep(0.5 if telemetry is not None else 0.0)
    began = time.process_time()
    for batch in encoded:
        analyst.take(told_by, decode_events(batch))
    if telemetry is not None:
        assert telemetry.shutdown(60.0)
        lost = [
            sample.value
            for family in registry.registry.collect()
            if family.name == "semantic_health_telemetry_dropped"
            for sample in family.samples
        ]
        assert sum(lost) == 0, lost
    return (time.process_time() - began) / exchanges


def cost_of_spans(rounds: int) -> None:
    """CPU of an exchange with no telemetry, with all sampled out, and with a span for each."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=receiver, args=(theirs,), daemon=True)
    process.start()
    port = int(ours.recv())
    print("| traffic | off, µs | sampled out, µs | a span each, µs | the span, µs | share |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for traffic, exchanges in ((openai_json(), 1500), (openai_stream(), 100)):
        traced = replace(traffic, request=traffic.request.removesuffix(b"\r\n") + TRACE)
        rows = [
            (
                spent(traced, exchanges, None, ""),
                spent(traced, exchanges, port, "always_off"),
                spent(traced, exchanges, port, "always_on"),
            )
            for _ in range(rounds)
        ]
        off, out, on = (median(row[column] for row in rows) * 1e6 for column in range(3))
        print(f"| {traffic.name} | {off:.0f} | {out:.0f} | {on:.0f} | {on - off:.0f} | {(on - off) / off:.0%} |")
    process.terminate()


def full_registry() -> PrometheusExporter:
    """A registry at its bound, with an exemplar in every bucket that was hit."""
    exporter = PrometheusExporter((), 300.0, SERIES, SystemClock())
    for number in range(200):
        where = (f"route{number % 20}", f"model-{number}")
        trace = f"{number:032x}"
        for metric in ("stream_gap_stddev_seconds", "stream_longest_gap_seconds", "time_to_first_token_seconds"):
            exporter.record(Reading(f"semantic_health_{metric}", 0.01 * (number % 50), where), trace)
        labels = (where[0], "openai", where[1], "chat")
        exporter.record(Reading("semantic_health_operation_duration_seconds", 0.1, labels), trace)
        exporter.record(Reading("semantic_health_exchanges_total", 1.0, (*labels, "completed")))
        exporter.record(Reading("semantic_health_stream_continuity_index_seconds", 0.01, where))
    return exporter


def scrapes(rounds: int) -> None:
    """Elapsed time of a scrape at the series bound, while another thread is idle or busy."""
    exporter = full_registry()
    lines = sum(not line.startswith(b"#") for line in exporter.render()[0].splitlines())
    print(f"\n| /metrics, {lines} lines | p50, ms | p99, ms | worst, ms |")
    print("| --- | ---: | ---: | ---: |")
    for name, accept in FORMATS.items():
        for is_busy in (False, True):
            taken = [each * 1e3 for each in _timed_scrapes(exporter, accept, rounds, is_busy)]
            cuts = quantiles(taken, n=100, method="inclusive")
            label = f"{name}, {'beside a busy thread' if is_busy else 'idle'}"
            print(f"| {label} | {median(taken):.1f} | {cuts[98]:.1f} | {max(taken):.1f} |")


def _timed_scrapes(exporter: PrometheusExporter, accept: str, rounds: int, is_busy: bool) -> list[float]:
    stop = threading.Event()
    traffic = openai_json()
    analyst, told_by, encoded = analyst_of(traffic, None), worker(), batches(traffic, 50)

    def work() -> None:
        while not stop.is_set():
            for batch in encoded:
                analyst.take(told_by, decode_events(batch))

    busy = threading.Thread(target=work, daemon=True)
    if is_busy:
        busy.start()
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        exporter.render(accept)
        taken.append(time.perf_counter() - began)
        time.sleep(0.01)
    stop.set()
    if is_busy:
        busy.join()
    return taken


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints tables in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.telemetry", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="rounds, of which medians are taken")
    parser.add_argument("--scrapes", type=int, default=200, metavar="N", help="scrapes of each kind")
    given = parser.parse_args(arguments)
    logging.disable(logging.WARNING)  # the traffic makes findings
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    cost_of_spans(given.rounds)
    scrapes(given.scrapes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
