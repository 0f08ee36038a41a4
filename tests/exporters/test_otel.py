"""OTLP over the wire: real receivers over HTTP and gRPC, and collectors that are not there."""

from __future__ import annotations

import asyncio
import logging
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent import futures

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from oteltap import OtelTapHttpProtobufReceiver, OtelTapHttpProtobufReceiverSettings

from collector.model import Reading
from exporters.otel import OtlpExporter
from exporters.prometheus import PrometheusExporter

from .otlp_receiver import OtlpReceiver

VALIDITY = "semantic_health_model_output_validity_rate"
EXCHANGES = "semantic_health_exchanges_total"
FAILURES = "semantic_health_export_failures_total"


@pytest.fixture(autouse=True)
def _no_otel_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def told(exporter: PrometheusExporter) -> PrometheusExporter:
    exporter.record(Reading(VALIDITY, 1.0, ("r", "gpt")))
    exporter.record(Reading(EXCHANGES, 3.0, ("r", "openai", "gpt", "chat", "completed")))
    exporter.record(Reading("semantic_health_operation_duration_seconds", 0.3, ("r", "openai", "gpt", "chat")))
    return exporter


def started(exporter: PrometheusExporter, **values: object) -> OtlpExporter:
    otlp = OtlpExporter(exporter, version="1.2.3", **values)  # type: ignore[arg-type]
    otlp.start()
    return otlp


def failures(exporter: PrometheusExporter) -> float:
    return exporter.registry.get_sample_value(FAILURES) or 0.0


def wait_until(claim: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


# ---------------------------------------------------------------- receivers that are there


async def test_a_real_receiver_gets_the_metrics_over_http(told: PrometheusExporter, port: int) -> None:
    async with OtelTapHttpProtobufReceiver(OtelTapHttpProtobufReceiverSettings(http_port=port)) as tap:
        waits = [
            asyncio.create_task(tap.await_metric(lambda m, name=name: m.name == name, timeout=30))
            for name in (VALIDITY, EXCHANGES, "gen_ai.client.operation.duration")
        ]
        await asyncio.sleep(0)
        otlp = started(told, endpoint=f"http://127.0.0.1:{port}", interval=0.2)
        validity, exchanges, duration = await asyncio.gather(*waits)
        assert await asyncio.to_thread(otlp.shutdown, 10.0)
    assert [point.as_double for point in validity.gauge.data_points] == [1.0]
    assert exchanges.sum.is_monotonic
    assert sum(point.as_double for point in exchanges.sum.data_points) == 3.0
    assert duration.unit == "s"
    assert [point.count for point in duration.histogram.data_points] == [1]
    assert failures(told) == 0


def test_a_real_receiver_gets_the_metrics_over_grpc(told: PrometheusExporter) -> None:
    import grpc
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as service

    requests: queue.Queue[tuple[ExportMetricsServiceRequest, dict[str, str]]] = queue.Queue()

    class Servicer(service.MetricsServiceServicer):
        def Export(
            self, request: ExportMetricsServiceRequest, context: grpc.ServicerContext
        ) -> ExportMetricsServiceResponse:
            requests.put((request, dict(context.invocation_metadata())))
            return ExportMetricsServiceResponse()

    server = grpc.server(futures.ThreadPoolExecutor(2))
    service.add_MetricsServiceServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        otlp = started(told, endpoint=f"http://127.0.0.1:{port}", protocol="grpc", interval=0.2)
        request, _ = requests.get(timeout=30)
        assert otlp.shutdown(10.0)
    finally:
        server.stop(None)
    metrics = {metric.name: metric for metric in request.resource_metrics[0].scope_metrics[0].metrics}
    assert metrics[VALIDITY].gauge.data_points[0].as_double == 1.0
    assert sum(point.as_double for point in metrics[EXCHANGES].sum.data_points) == 3.0


def test_the_standard_variables_say_where_how_often_and_with_what_headers(
    told: PrometheusExporter, receive: Callable[..., OtlpReceiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = receive()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint + "/base/")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=sk-canary,x-team=a")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    otlp = started(told)
    received = receiver.requests.get(timeout=30)
    path, headers, request = received.path, received.headers, received.body
    assert otlp.shutdown(10.0)
    assert path == "/base/v1/metrics"
    assert (headers["x-api-key"], headers["x-team"]) == ("sk-canary", "a")
    attributes = {a.key: a.value.string_value for a in request.resource_metrics[0].resource.attributes}
    assert attributes["service.name"] == "shop"
    assert attributes["service.version"] == "1.2.3"
    assert attributes["service.instance.id"]


@pytest.mark.parametrize("suffix", ["", "/", "/v1/metrics"])
def test_an_endpoint_that_is_given_wins_and_gets_its_path_once(
    told: PrometheusExporter, receive: Callable[..., OtlpReceiver], monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    receiver = receive()
    otlp = started(told, endpoint=receiver.endpoint + suffix, interval=0.1)
    path = receiver.requests.get(timeout=30).path
    assert otlp.shutdown(10.0)
    assert path == "/v1/metrics"


def test_shutdown_sends_what_was_not_yet_sent(told: PrometheusExporter, receive: Callable[..., OtlpReceiver]) -> None:
    receiver = receive()
    otlp = started(told, endpoint=receiver.endpoint, interval=3600.0)
    told.record(Reading(EXCHANGES, 4.0, ("r", "openai", "gpt", "chat", "completed")))
    assert otlp.shutdown(20.0)
    request = receiver.requests.get_nowait().body
    metrics = {metric.name: metric for metric in request.resource_metrics[0].scope_metrics[0].metrics}
    assert sum(point.as_double for point in metrics[EXCHANGES].sum.data_points) == 7.0
    assert receiver.requests.empty()


# ---------------------------------------------------------------- nowhere to export to


@pytest.mark.parametrize(
    ("values", "environment"),
    [
        ({}, {}),
        ({"endpoint": "http://127.0.0.1:4318"}, {"OTEL_SDK_DISABLED": "true"}),
        ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "TRUE"}),
        ({"endpoint": "collector"}, {}),
        ({"endpoint": "http://[::1"}, {}),
        ({"endpoint": "http://"}, {}),
    ],
)
def test_with_nowhere_to_export_to_no_thread_runs(
    exporter: PrometheusExporter,
    monkeypatch: pytest.MonkeyPatch,
    values: dict[str, str],
    environment: dict[str, str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    otlp = started(exporter, **values)
    assert not otlp.enabled
    assert not [thread for thread in threading.enumerate() if thread.name == "otlp"]
    assert otlp.shutdown(0.0)


LOADED = """
import sys, time
from exporters.otel import OtlpExporter
from exporters.prometheus import PrometheusExporter
class Clock:
    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
assert "opentelemetry.sdk" not in sys.modules
otlp = OtlpExporter(PrometheusExporter((), 300.0, 5000, Clock()), endpoint="http://127.0.0.1:1", timeout=0.2)
otlp.start()
otlp.shutdown(30)
assert "opentelemetry.sdk.metrics" in sys.modules
assert "grpc" not in sys.modules
"""


def test_grpc_is_loaded_only_when_it_is_asked_for() -> None:
    subprocess.run([sys.executable, "-c", LOADED], check=True, timeout=60)


# ---------------------------------------------------------------- collectors that are not there


REFUSED = """
import logging, resource, sys, time
from exporters.otel import OtlpExporter
from exporters.prometheus import PrometheusExporter
class Clock:
    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
def seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
def failures():
    return prometheus.registry.get_sample_value("semantic_health_export_failures_total")
logging.basicConfig(level=logging.DEBUG, format="%(name)s %(message)s")
prometheus = PrometheusExporter((), 300.0, 5000, Clock())
otlp = OtlpExporter(prometheus, endpoint=sys.argv[1], protocol=sys.argv[2], interval=0.1, timeout=2.0)
otlp.start()
while not failures():
    time.sleep(0.05)
before = seconds()
time.sleep(3)
print(seconds() - before, failures())
otlp.shutdown(10)
"""


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_refused_collector_costs_one_line_and_little_time(port: int, protocol: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", REFUSED, f"http://127.0.0.1:{port}", protocol],
        check=True, timeout=90, capture_output=True, text=True,
    )  # fmt: skip
    used, failed = (float(word) for word in ran.stdout.split())
    said = ran.stderr.splitlines()
    assert failed >= 2
    assert len(said) == 1, said
    assert f"127.0.0.1:{port}" in said[0]
    assert "Connection refused" in said[0]
    assert used < 0.6  # a fifth of a core


def test_a_failure_is_said_without_what_the_endpoint_and_headers_hold(
    told: PrometheusExporter,
    receive: Callable[..., OtlpReceiver],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer sk-canary-1")
    receiver = receive(401)
    host = receiver.endpoint.removeprefix("http://")
    otlp = started(told, endpoint=f"http://user:sk-canary-2@{host}/sk-canary-3?key=sk-canary-4", interval=0.1)
    wait_until(lambda: failures(told) >= 2)
    assert not otlp.shutdown(10.0)
    ours = [record.getMessage() for record in caplog.records if record.name == "exporters.otel"]
    assert len(ours) == 1
    assert "401" in ours[0]
    assert host in ours[0]
    assert not [message for message in ours if "canary" in message]


def test_export_goes_on_when_the_collector_comes_back(
    told: PrometheusExporter, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    otlp = started(told, endpoint=f"http://127.0.0.1:{port}", interval=0.1, timeout=0.3)
    wait_until(lambda: failures(told) >= 2)

    async def receive_one() -> None:
        async with OtelTapHttpProtobufReceiver(OtelTapHttpProtobufReceiverSettings(http_port=port)) as tap:
            await tap.await_metric(lambda metric: metric.name == EXCHANGES, timeout=30)
            await asyncio.to_thread(otlp.shutdown, 10.0)

    asyncio.run(receive_one())
    assert any("works again" in record.getMessage() for record in caplog.records)


def test_shutdown_ends_in_its_time_though_the_collector_never_answers(told: PrometheusExporter) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        otlp = started(told, endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}", interval=0.05, timeout=60.0)
        connection, _ = silent.accept()
        began = time.monotonic()
        assert not otlp.shutdown(0.5)
        assert time.monotonic() - began < 5.0
        connection.close()
