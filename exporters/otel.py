"""OTLP metrics: the one registry, converted at each export and sent from a thread of its own."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import uuid
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from exporters.prometheus import PrometheusExporter

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter

    from exporters.otel_conversion import Conversion

log = logging.getLogger(__name__)

Protocol = Literal["http/protobuf", "grpc"]

METRICS_PATH = "/v1/metrics"
INTERVAL = 60.0  # seconds, as the specification's OTEL_METRIC_EXPORT_INTERVAL
TIMEOUT = 10.0  # seconds, as the specification's OTEL_EXPORTER_OTLP_TIMEOUT
SHORTEST_INTERVAL = 0.05  # seconds
SAY_AGAIN = 60.0  # seconds between lines about failed exports
MOST_REASONS = 4
FAILURES = "semantic_health_export_failures_total"
OPT_IN = "gen_ai_latest_experimental"

# All that is repeated of the SDK's own messages, which may hold addresses and keys.
REASON = re.compile(
    r"StatusCode\.[A-Z_]+|code: \d{3}|\b[A-Z]\w*(?:Error|Timeout|Exception)\b|Connection refused|timed out"
)


class OtlpExporter:
    """Sends the registry every `interval` seconds, where an endpoint is given or set by OTEL_EXPORTER_OTLP_*.

    What is given wins over the environment, and OTEL_SDK_DISABLED over both. `timeout` is for one export with its
    retries, in seconds. A failed export is counted, and said at most once a minute; the totals are cumulative, so the
    next one makes up for it. Nothing here raises.
    """

    def __init__(
        self,
        prometheus: PrometheusExporter,
        *,
        endpoint: str | None = None,
        protocol: Protocol | None = None,
        interval: float | None = None,
        timeout: float | None = None,
        version: str = "",
    ) -> None:
        self._prometheus = prometheus
        self._version = version
        self._protocol = protocol if protocol is not None else _protocol()
        self._endpoint = _endpoint(endpoint, self._protocol)
        self._interval = max(interval if interval is not None else _interval(), SHORTEST_INTERVAL)
        self._timeout = timeout if timeout is not None else _timeout()
        self._exporter: MetricExporter | None = None
        self._conversion: Conversion | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._messages = _Messages()
        self._went_well = False
        self._unsaid = 0  # failures since the last line about them
        self._said_at: float | None = None
        self._is_said_to_fail = False

    @property
    def enabled(self) -> bool:
        """Whether there is anywhere to export to."""
        return self._endpoint is not None

    def start(self) -> None:
        """Start the thread, where an endpoint is set. The SDK is imported there, off the caller's time."""
        if self._endpoint is not None and self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(self._endpoint,), name="otlp", daemon=True)
            self._thread.start()

    def shutdown(self, timeout: float) -> bool:
        """Export once more and stop, in at most `timeout` seconds. False when that export failed or did not end."""
        thread = self._thread
        if thread is None:
            return True
        self._stopping.set()
        thread.join(timeout)
        if thread.is_alive():
            if self._exporter is not None:
                self._exporter.shutdown()  # ends the wait between two tries
            return False
        return self._went_well

    def _run(self, endpoint: str) -> None:
        self._messages.attach()
        while not self._stopping.wait(self._interval):
            self._export(endpoint)
        self._export(endpoint)
        if self._exporter is not None:
            self._exporter.shutdown()
        self._messages.detach()

    def _export(self, endpoint: str) -> None:
        self._messages.clear()
        try:
            self._went_well = self._try_to_export(endpoint)
            reason = self._messages.reason()
        except ModuleNotFoundError:
            self._went_well = False
            reason = "OTLP over gRPC needs an extra: pip install 'semhealth[grpc]', or use http/protobuf"
        except Exception as error:  # noqa: BLE001 - the boundary of this thread: whatever it is, one export failed
            self._went_well = False
            reason = type(error).__name__
        if not self._went_well:
            self._count_failure(endpoint, reason)
        elif self._is_said_to_fail:
            log.info("OTLP export to %s works again", _place(endpoint))
            self._is_said_to_fail = False

    def _try_to_export(self, endpoint: str) -> bool:
        from exporters import otel_conversion as otlp  # noqa: PLC0415 - the SDK is loaded only where it exports

        if self._exporter is None or self._conversion is None:
            self._exporter = otlp.make_exporter(self._protocol, endpoint, self._timeout)
            self._conversion = otlp.Conversion(
                version=self._version,
                instance=str(uuid.uuid4()),
                started=self._prometheus.started,
                latest=OPT_IN in re.split(r"\s*,\s*", os.environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "").strip()),
            )
        families = self._prometheus.registry.collect()
        return otlp.export(self._exporter, self._conversion.metrics_data(families, time.time()))

    def _count_failure(self, endpoint: str, reason: str) -> None:
        self._prometheus.add(FAILURES)
        self._unsaid += 1
        now = time.monotonic()
        if self._said_at is None or now - self._said_at >= SAY_AGAIN:
            log.warning("OTLP export to %s failed (%d since last said): %s", _place(endpoint), self._unsaid, reason)
            self._said_at = now
            self._is_said_to_fail = True
            self._unsaid = 0


class _Messages(logging.Handler):
    """Takes the SDK's own log lines away, which come several per failed export, and keeps why it failed."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._reasons: dict[str, None] = {}  # in order; at most MOST_REASONS

    def attach(self) -> None:
        sdk = logging.getLogger("opentelemetry")
        sdk.setLevel(logging.WARNING)
        sdk.propagate = False
        sdk.addHandler(self)
        logging.getLogger("urllib3").setLevel(logging.WARNING)  # two lines per try at level debug

    def detach(self) -> None:
        logging.getLogger("opentelemetry").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        for reason in REASON.findall(record.getMessage()):
            if len(self._reasons) < MOST_REASONS:
                self._reasons[reason] = None

    def clear(self) -> None:
        self._reasons.clear()

    def reason(self) -> str:
        return ", ".join(self._reasons) if self._reasons else "no reason given"


# ---------------------------------------------------------------- what the environment says


def _protocol() -> Protocol:
    said = _first("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    if said == "grpc":
        return "grpc"
    if said not in {None, "http/protobuf"}:
        log.warning("OTEL_EXPORTER_OTLP_PROTOCOL: http/protobuf is used; expected http/protobuf or grpc")
    return "http/protobuf"


def _endpoint(given: str | None, protocol: Protocol) -> str | None:
    """Where metrics go, in full; None for nowhere."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    for_metrics = None if given is not None else _first("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    endpoint = given if given is not None else for_metrics or _first("OTEL_EXPORTER_OTLP_ENDPOINT")
    if endpoint is None or (protocol == "grpc" and _host(endpoint)):
        return endpoint
    if not endpoint.startswith(("http://", "https://")) or not _host(endpoint):
        log.error("OTLP endpoint: expected http(s)://host[:port], got something else; nothing is exported")
        return None
    base = endpoint.rstrip("/")
    if for_metrics is not None or base.endswith(METRICS_PATH):
        return endpoint
    return base + METRICS_PATH


def _interval() -> float:
    return _number("OTEL_METRIC_EXPORT_INTERVAL", 1e3 * INTERVAL) / 1e3


def _timeout() -> float:
    """Seconds. The specification says milliseconds and the Python SDK reads seconds; 600 and more are the former."""
    name = "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT"
    said = _number(name if _first(name) is not None else "OTEL_EXPORTER_OTLP_TIMEOUT", TIMEOUT)
    return said if said < 600.0 else said / 1e3


def _number(name: str, default: float) -> float:
    said = _first(name)
    if said is None:
        return default
    try:
        number = float(said)
    except ValueError:
        number = -1.0
    if not 0.0 < number < float("inf"):
        log.warning("%s: %s is used; expected a number above 0", name, default)
        return default
    return number


def _first(*names: str) -> str | None:
    """The first of these variables that is set to anything."""
    return next((said for name in names if (said := os.environ.get(name, "").strip())), None)


def _place(endpoint: str) -> str:
    """Scheme, host and port: the rest of an endpoint may hold a key."""
    scheme = endpoint.partition("://")[0] + "://" if "://" in endpoint else ""
    return scheme + _host(endpoint)


def _host(endpoint: str) -> str:
    """Host and port; empty when there are none."""
    try:
        return urlsplit(endpoint if "://" in endpoint else f"//{endpoint}").netloc.rpartition("@")[2]
    except ValueError:  # a bracket of an IPv6 address is missing
        return ""
