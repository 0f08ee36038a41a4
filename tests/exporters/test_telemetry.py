"""Spans, log records and metrics over the wire: real receivers, such as are slow, dead or lie, and the bounds."""

from __future__ import annotations

import asyncio
import logging
import queue
import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import certifi
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from oteltap import OtelTapHttpProtobufReceiver, OtelTapHttpProtobufReceiverSettings

from collector.config import Exporters
from collector.model import Reading
from exporters import otel_attributes, otel_batches, otel_senders
from exporters.otel_attributes import Server
from exporters.prometheus import PrometheusExporter
from exporters.telemetry import Telemetry

from .otlp_receiver import OtlpReceiver
from .told import PARENT, facts

BASE = "OTEL_EXPORTER_OTLP"
DROPPED = "semantic_health_telemetry_dropped_total"
FAILURES = "semantic_health_export_failures_total"
CANARY = "sk-canary"
FINDINGS = 2  # of the record of told.py


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """Sets variables for the SDK and gives them; none is set beside them."""
    import os

    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)

    def told(**variables: str) -> dict[str, str]:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return variables

    return told


@pytest.fixture
def begin(exporter: PrometheusExporter) -> Iterator[Callable[..., Telemetry]]:
    """Starts telemetry on the registry; it is shut down afterwards."""
    started: list[Telemetry] = []

    def start(variables: dict[str, str] | None = None, **named: Any) -> Telemetry:
        named = {"interval": 0.1, "version": "1.2.3", "servers": {"r": Server("api.openai.com", 443)}, **named}
        started.append(Telemetry(exporter, variables or {}, **named))
        started[-1].start()
        return started[-1]

    yield start
    for telemetry in started:
        telemetry.shutdown(0.0)


def dropped(exporter: PrometheusExporter, signal: str, reason: str) -> float:
    return exporter.registry.get_sample_value(DROPPED, {"signal": signal, "reason": reason}) or 0.0


def ours(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What we say; pytest also catches what the SDK said to our handler."""
    return [record.getMessage() for record in caplog.records if record.name == "exporters.otel"]


def wait_until(claim: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


# ---------------------------------------------------------------- receivers that are there


async def test_a_real_receiver_gets_spans_log_records_and_metrics_over_http(
    begin: Callable[..., Telemetry], free_port: int
) -> None:
    async with OtelTapHttpProtobufReceiver(OtelTapHttpProtobufReceiverSettings(http_port=free_port)) as tap:
        waits = [
            asyncio.create_task(tap.await_trace(lambda span: span.name == "chat gpt-4o", timeout=30)),
            asyncio.create_task(tap.await_log(lambda log: log.severity_text == "ERROR", timeout=30)),
            asyncio.create_task(tap.await_metric(lambda metric: metric.name == FAILURES, timeout=30)),
        ]
        await asyncio.sleep(0)
        telemetry = begin(endpoint=f"http://127.0.0.1:{free_port}")
        telemetry.take(facts())
        span, log, _ = await asyncio.gather(*waits)
        assert await asyncio.to_thread(telemetry.shutdown, 10.0)
    assert span.trace_id.hex() == log.trace_id.hex() == PARENT.trace_id
    assert span.span_id == log.span_id
    assert span.parent_span_id.hex() == PARENT.span_id


def test_a_real_receiver_gets_spans_and_log_records_over_grpc(begin: Callable[..., Telemetry]) -> None:
    import grpc
    from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

    received: queue.Queue[Any] = queue.Queue()

    class Traces(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            received.put(request)
            return trace_service_pb2.ExportTraceServiceResponse()

    class Logs(logs_service_pb2_grpc.LogsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            received.put(request)
            return logs_service_pb2.ExportLogsServiceResponse()

    server = grpc.server(futures.ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(), server)
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(Logs(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        telemetry = begin(endpoint=f"http://127.0.0.1:{port}", protocol="grpc", signals=("traces", "logs"))
        telemetry.take(facts())
        kinds = {type(received.get(timeout=30)).__name__ for _ in range(2)}
        assert telemetry.shutdown(10.0)
    finally:
        server.stop(None)
    assert kinds == {"ExportTraceServiceRequest", "ExportLogsServiceRequest"}


def test_all_signals_tell_the_same_resource(
    begin: Callable[..., Telemetry], receive: Callable[..., OtlpReceiver], environment: Callable[..., dict[str, str]]
) -> None:
    receiver = receive()
    told = environment(OTEL_SERVICE_NAME="shop", OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=prod")
    begin(told, endpoint=receiver.endpoint).take(facts())
    found: dict[str, dict[str, str]] = {}
    while len(found) < 3:
        request = receiver.requests.get(timeout=30)
        found[request.signal] = request.resource()
    assert found["traces"] == found["logs"] == found["metrics"]
    assert found["traces"]["service.name"] == "shop"
    assert found["traces"]["service.version"] == "1.2.3"
    assert found["traces"]["service.instance.id"]
    assert found["traces"]["deployment.environment.name"] == "prod"


@pytest.mark.parametrize("of", ["", "TRACES_"])
def test_headers_and_compression_are_followed_for_all_and_for_one_signal(
    of: str,
    begin: Callable[..., Telemetry],
    receive: Callable[..., OtlpReceiver],
    environment: Callable[..., dict[str, str]],
) -> None:
    receiver = receive()
    told = environment(
        **{f"{BASE}_ENDPOINT": receiver.endpoint, f"{BASE}_{of}HEADERS": "x-key=k,x-team=a",
           f"{BASE}_{of}COMPRESSION": "gzip"}
    )  # fmt: skip
    begin(told).take(facts())
    request = receiver.of("traces")
    assert (request.headers["x-key"], request.headers["x-team"]) == ("k", "a")
    assert request.headers["content-encoding"] == "gzip"
    assert len(request.spans()) == 1
    begin(told).take(facts())
    other = receiver.of("logs")
    assert ("x-key" in other.headers, other.headers.get("content-encoding")) == (
        (True, "gzip") if not of else (False, None)
    )


def test_each_signal_may_have_an_endpoint_of_its_own(
    begin: Callable[..., Telemetry], receive: Callable[..., OtlpReceiver], environment: Callable[..., dict[str, str]]
) -> None:
    general, own = receive(), receive()
    begin(
        environment(**{f"{BASE}_ENDPOINT": general.endpoint, f"{BASE}_TRACES_ENDPOINT": own.endpoint + "/mine/traces"})
    ).take(facts())
    assert own.of("traces").path == "/mine/traces"
    assert general.of("logs").path == "/v1/logs"
    assert {request.signal for request in own.rest()} <= {"traces"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a certificate for localhost that nobody else vouches for."""
    home = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
         "key.pem", "-out", "cert.pem", "-subj", "/CN=localhost", "-days", "2", "-addext",
         "subjectAltName=DNS:localhost"],
        cwd=home, check=True, capture_output=True,
    )  # fmt: skip
    return home


@pytest.mark.parametrize("of", ["", "TRACES_"])
def test_a_receiver_over_tls_is_verified_by_the_certificate_that_is_named(
    of: str,
    authority: Path,
    begin: Callable[..., Telemetry],
    exporter: PrometheusExporter,
    receive: Callable[..., OtlpReceiver],
    environment: Callable[..., dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certifi.where()))  # of requests; it must not win
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "cert.pem", authority / "key.pem")
    receiver = receive(tls=context)
    untrusting = begin({f"{BASE}_ENDPOINT": receiver.endpoint}, signals=("traces",), timeout=1.0)
    untrusting.take(facts())
    wait_until(lambda: dropped(exporter, "traces", "export_failed") == 1)
    told = environment(
        **{f"{BASE}_ENDPOINT": receiver.endpoint, f"{BASE}_{of}CERTIFICATE": str(authority / "cert.pem")}
    )
    begin(told, signals=("traces",)).take(facts())
    assert len(receiver.of("traces").spans()) == 1


def test_what_waits_is_sent_when_the_sidecar_stops(
    begin: Callable[..., Telemetry], receive: Callable[..., OtlpReceiver]
) -> None:
    receiver = receive()
    telemetry = begin(endpoint=receiver.endpoint, interval=3600.0)
    for _ in range(20):
        telemetry.take(facts())
    assert telemetry.shutdown(20.0)
    assert len(receiver.of("traces").spans()) == 20


def test_exchanges_go_out_in_batches_before_their_time(
    begin: Callable[..., Telemetry], receive: Callable[..., OtlpReceiver]
) -> None:
    receiver = receive()
    telemetry = begin(endpoint=receiver.endpoint, interval=3600.0, signals=("traces",))
    for _ in range(otel_batches.BATCH):
        telemetry.take(facts(findings=()))
    began = time.monotonic()
    assert len(receiver.of("traces").spans()) == otel_batches.BATCH
    assert time.monotonic() - began < otel_batches.DELAY


# ---------------------------------------------------------------- what is not exported


@pytest.mark.parametrize(
    ("variables", "spans"),
    [
        ({"OTEL_TRACES_SAMPLER": "always_off"}, 0),
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_off"}, 1),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}, 0),
        ({"OTEL_TRACES_SAMPLER": "always_on"}, 2),
        ({}, 2),
    ],
)
def test_spans_are_sampled_and_findings_are_not(
    begin: Callable[..., Telemetry], receive: Callable[..., OtlpReceiver], variables: dict[str, str], spans: int
) -> None:
    receiver = receive()
    telemetry = begin(variables, endpoint=receiver.endpoint, signals=("traces", "logs"))
    telemetry.take(facts())  # under a parent that is sampled
    telemetry.take(facts(parent=None))
    assert telemetry.shutdown(20.0)
    requests = list(receiver.rest())
    assert sum(len(request.spans()) for request in requests if request.signal == "traces") == spans
    assert sum(len(request.log_records()) for request in requests if request.signal == "logs") == 2 * FINDINGS


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({}, {}),
        ({"OTEL_SDK_DISABLED": "true"}, {"endpoint": "http://127.0.0.1:1"}),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}, {"endpoint": "http://127.0.0.1:1"}),
        ({}, {"endpoint": "http://127.0.0.1:1", "signals": ("metrics",)}),
    ],
)
def test_with_nowhere_to_go_exchanges_go_nowhere(
    begin: Callable[..., Telemetry], variables: dict[str, str], named: dict[str, Any]
) -> None:
    before = set(threading.enumerate())
    telemetry = begin(variables, **named)
    assert not telemetry.exports_exchanges
    telemetry.take(facts())
    started = set(threading.enumerate()) - before
    assert not [thread for thread in started if thread.name in {"otlp-traces", "otlp-logs"}]


def test_others_are_warned_about_only_where_something_is_exported(
    begin: Callable[..., Telemetry], caplog: pytest.LogCaptureFixture
) -> None:
    begin({"OTEL_BSP_SCHEDULE_DELAY": "1"})
    assert not [record for record in caplog.records if record.name.startswith("exporters")]
    begin({"OTEL_BSP_SCHEDULE_DELAY": "1"}, endpoint="http://127.0.0.1:1", timeout=0.1)
    assert [record.getMessage() for record in caplog.records if "OTEL_BSP_SCHEDULE_DELAY" in record.getMessage()]


# ---------------------------------------------------------------- receivers that are slow, dead or lie


def test_what_a_dead_receiver_did_not_get_is_counted_and_said_once(
    begin: Callable[..., Telemetry], exporter: PrometheusExporter, free_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = begin(endpoint=f"http://127.0.0.1:{free_port}", timeout=0.3, signals=("traces", "logs"))
    for number in range(1, 4):
        telemetry.take(facts())
        wait_until(lambda number=number: dropped(exporter, "traces", "export_failed") == number)  # type: ignore[misc]
        wait_until(lambda number=number: dropped(exporter, "logs", "export_failed") == FINDINGS * number)  # type: ignore[misc]
    said = [line for line in ours(caplog) if f":{free_port}" in line]
    assert sorted(line.split()[3] for line in said) == ["logs", "traces"]


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def test_a_receiver_that_never_answers_fills_a_bounded_queue_and_holds_nobody_up(
    begin: Callable[..., Telemetry], exporter: PrometheusExporter, silent: socket.socket
) -> None:
    endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
    telemetry = begin(endpoint=endpoint, timeout=60.0, signals=("traces",))
    telemetry.take(facts())
    connection, _ = silent.accept()
    more = otel_batches.QUEUE + 100
    began = time.monotonic()
    for _ in range(more):
        telemetry.take(facts())
    assert time.monotonic() - began < 2.0
    assert dropped(exporter, "traces", "queue_full") == 100
    began = time.monotonic()
    assert not telemetry.shutdown(0.5)
    assert time.monotonic() - began < 3.0
    assert dropped(exporter, "traces", "shutdown") == otel_batches.QUEUE
    connection.close()


def test_what_a_receiver_rejects_is_counted(
    begin: Callable[..., Telemetry], exporter: PrometheusExporter, receive: Callable[..., OtlpReceiver]
) -> None:
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 3
    receiver = receive(answer=answer.SerializeToString(), headers={"Content-Type": "application/x-protobuf"})
    telemetry = begin(endpoint=receiver.endpoint, signals=("traces",))
    for _ in range(5):
        telemetry.take(facts())
    wait_until(lambda: dropped(exporter, "traces", "rejected") > 0)
    assert telemetry.shutdown(10.0)
    requests = 1 + len(list(receiver.rest()))
    assert dropped(exporter, "traces", "rejected") in {3.0 * number for number in range(1, requests + 1)}
    assert dropped(exporter, "traces", "export_failed") == 0


@pytest.mark.parametrize(
    ("status", "headers"),
    [(200, {"Content-Type": "text/html; charset=utf-8"}), (302, {"Location": "/elsewhere"}), (400, {}), (500, {})],
)
def test_an_answer_that_is_no_receivers_is_a_failure(
    begin: Callable[..., Telemetry],
    exporter: PrometheusExporter,
    receive: Callable[..., OtlpReceiver],
    status: int,
    headers: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    receiver = receive(status, b"<html>log in</html>", headers)
    begin(endpoint=receiver.endpoint, signals=("traces",)).take(facts())
    wait_until(lambda: dropped(exporter, "traces", "export_failed") == 1)
    [line] = [line for line in ours(caplog) if receiver.endpoint in line]
    assert str(status) in line
    assert "log in" not in line


def test_an_answer_without_end_is_not_read(begin: Callable[..., Telemetry], exporter: PrometheusExporter) -> None:
    written = 0

    def flood(listening: socket.socket) -> None:
        nonlocal written
        connection, _ = listening.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\n\r\n")
            try:
                while True:
                    connection.sendall(b"\0" * 65536)
                    written += 65536
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=flood, args=(listening,), daemon=True).start()
        telemetry = begin(
            endpoint=f"http://127.0.0.1:{listening.getsockname()[1]}", signals=("traces",), interval=3600.0
        )
        telemetry.take(facts())
        assert telemetry.shutdown(10.0)
    assert written < 16 * 1024 * 1024  # what the sockets' buffers hold
    assert dropped(exporter, "traces", "export_failed") == 0


def test_export_goes_on_when_the_receiver_comes_back(
    begin: Callable[..., Telemetry], exporter: PrometheusExporter, receive: Callable[..., OtlpReceiver],
    caplog: pytest.LogCaptureFixture, free_port: int, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    caplog.set_level(logging.INFO)
    telemetry = begin(endpoint=f"http://127.0.0.1:{free_port}", timeout=0.3, signals=("traces",))
    telemetry.take(facts())
    wait_until(lambda: dropped(exporter, "traces", "export_failed") == 1)

    async def receive_one() -> str:
        async with OtelTapHttpProtobufReceiver(OtelTapHttpProtobufReceiverSettings(http_port=free_port)) as tap:
            wait = asyncio.create_task(tap.await_trace(lambda _: True, timeout=30))
            await asyncio.sleep(0)
            telemetry.take(facts())
            return str((await wait).name)

    assert asyncio.run(receive_one()) == "chat gpt-4o"
    wait_until(lambda: any("works again" in record.getMessage() for record in caplog.records))


def test_a_failure_is_said_without_what_the_endpoint_and_headers_hold(
    begin: Callable[..., Telemetry],
    exporter: PrometheusExporter,
    receive: Callable[..., OtlpReceiver],
    environment: Callable[..., dict[str, str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    receiver = receive(401)
    host = receiver.endpoint.removeprefix("http://")
    told = environment(**{f"{BASE}_HEADERS": f"authorization=Bearer {CANARY}"})
    endpoint = f"http://user:{CANARY}@{host}/{CANARY}"
    begin(told, endpoint=endpoint, signals=("traces", "logs")).take(facts())
    wait_until(lambda: dropped(exporter, "logs", "export_failed") > 0)
    wait_until(lambda: dropped(exporter, "traces", "export_failed") > 0)
    assert [line for line in ours(caplog) if "401" in line]
    assert not [line for line in ours(caplog) if CANARY in line]


# ---------------------------------------------------------------- one name on every path


def test_the_dropped_counters_are_there_from_the_start(exporter: PrometheusExporter) -> None:
    exporter.record(Reading(DROPPED, 0.0, ("traces", "queue_full")))
    for signal in ("metrics", "traces", "logs"):
        for reason in ("queue_full", "export_failed", "rejected", "shutdown"):
            assert exporter.registry.get_sample_value(DROPPED, {"signal": signal, "reason": reason}) == 0.0


def test_the_page_of_limits_has_every_bound_of_telemetry_with_its_value() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "limits.md").read_text("utf-8")
    row = re.compile(r"\| ([\d,]+)( KiB)? \| `([A-Z_]+)` in `exporters/(\w+)\.py` \|")
    told = {
        (module, name): int(number.replace(",", "")) * (1024 if kib else 1)
        for number, kib, name, module in row.findall(page)
    }
    assert told == {
        ("otel_batches", "QUEUE"): otel_batches.QUEUE,
        ("otel_batches", "BATCH"): otel_batches.BATCH,
        ("otel_attributes", "MOST_LIMITS"): otel_attributes.MOST_LIMITS,
        ("otel_senders", "MAX_ANSWER"): otel_senders.MAX_ANSWER,
    }
    assert f"{Exporters().max_series:,}" in page
