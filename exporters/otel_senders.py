"""The OpenTelemetry exporters of each signal and protocol, guarded against receivers that are none."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import requests
from google.protobuf.message import DecodeError
from msgspec import Struct
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from exporters.otel_environment import Destination, Protocol, Signal

# gRPC takes 15 MB: it is loaded only when asked for.
EXPORTERS: dict[tuple[Protocol, Signal], tuple[str, str]] = {
    ("http/protobuf", "metrics"): ("opentelemetry.exporter.otlp.proto.http.metric_exporter", "OTLPMetricExporter"),
    ("http/protobuf", "traces"): ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "OTLPSpanExporter"),
    ("http/protobuf", "logs"): ("opentelemetry.exporter.otlp.proto.http._log_exporter", "OTLPLogExporter"),
    ("grpc", "metrics"): ("opentelemetry.exporter.otlp.proto.grpc.metric_exporter", "OTLPMetricExporter"),
    ("grpc", "traces"): ("opentelemetry.exporter.otlp.proto.grpc.trace_exporter", "OTLPSpanExporter"),
    ("grpc", "logs"): ("opentelemetry.exporter.otlp.proto.grpc._log_exporter", "OTLPLogExporter"),
}
MAX_ANSWER = 4096  # bytes of a receiver's answer that are read; one that is longer, or of no stated length, is not


class NotAReceiverError(Exception):
    """What answered is no OTLP receiver."""


class Sender(Struct, frozen=True):
    """`send` takes what the signal's encoder takes, with the exporter's own retries until its time-out, and is True
    when it was taken. `rejected` tells, once, how much of it the receiver then refused."""

    send: Callable[[Any], bool]
    rejected: Callable[[], int]
    shutdown: Callable[[], object]


def make_sender(signal: Signal, destination: Destination) -> Sender:
    """The sender of a signal. Headers, TLS and compression follow their OTEL_* variables.

    Raises ModuleNotFoundError where gRPC is asked for and not installed. Over gRPC a part that was rejected is not
    told: the SDK keeps the answer to itself.
    """
    module, name = EXPORTERS[destination.protocol, signal]
    new_exporter = getattr(import_module(module), name)
    if destination.protocol == "grpc":
        exporter = new_exporter(endpoint=destination.endpoint, timeout=destination.timeout)
        return Sender(lambda batch: _is_success(exporter.export(batch)), lambda: 0, exporter.shutdown)
    answers = _Answers()
    session = requests.Session()
    session.stream = True
    session.hooks["response"].append(answers.look)
    exporter = new_exporter(endpoint=destination.endpoint, timeout=destination.timeout, session=session)
    if isinstance(session.verify, str):
        # requests would put REQUESTS_CA_BUNDLE before the certificate that an OTEL_* variable names.
        session.trust_env = False
        session.proxies = requests.utils.get_environ_proxies(destination.endpoint)
    return Sender(lambda batch: _is_success(exporter.export(batch)), answers.take_rejected, exporter.shutdown)


def _is_success(result: Any) -> bool:
    """Each signal has an enumeration of its own, with the same words."""
    return bool(result.name == "SUCCESS")


class _Answers:
    """Looks at each answer before requests does: reads little, follows nothing, and keeps what was rejected."""

    def __init__(self) -> None:
        self._rejected = 0

    def look(self, response: requests.Response, *_: object, **__: object) -> None:
        """A hook of requests. Raises NotAReceiverError; the exporter takes that for an answer that is an error."""
        length = response.headers.get("Content-Length", "")
        is_short = length.isascii() and length.isdigit() and int(length) <= MAX_ANSWER
        body = response.raw.read(int(length), decode_content=False) if is_short else b""
        if not is_short:
            response.close()  # else it would have to be read before the connection can be used again
        response._content = body  # what `content` gives; there is no public way to bound it
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if 300 <= response.status_code < 400 or (response.status_code < 300 and kind == "text/html"):
            raise NotAReceiverError(f"NotAReceiverError code: {response.status_code}")
        if body and response.status_code < 300 and "Content-Encoding" not in response.headers:
            self._rejected += _rejected(body)

    def take_rejected(self) -> int:
        rejected, self._rejected = self._rejected, 0
        return rejected


def _rejected(body: bytes) -> int:
    """Of an answer to any signal: all three have the number of what was rejected in the same place."""
    try:
        return max(0, int(ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans))
    except DecodeError:
        return 0
