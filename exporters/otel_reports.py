"""What is said of failed exports: at most a line a minute, and nothing that an endpoint or a header holds."""

from __future__ import annotations

import logging
import re
import threading
import time

from exporters.otel_environment import Destination, Signal
from exporters.prometheus import PrometheusExporter

log = logging.getLogger("exporters.otel")

SAY_AGAIN = 60.0  # seconds between lines about failed exports
MOST_REASONS = 4
FAILURES = "semantic_health_export_failures_total"
DROPPED = "semantic_health_telemetry_dropped_total"

# All that is repeated of the SDK's own messages, which may hold addresses and keys.
REASON = re.compile(
    r"StatusCode\.[A-Z_]+|code: \d{3}|\b[A-Z]\w*(?:Error|Timeout|Exception)\b|Connection refused|timed out"
)


class Reports:
    """Counts and tells the failures of one signal's thread, which is to `attach` and to `detach`."""

    def __init__(self, prometheus: PrometheusExporter, signal: Signal, destination: Destination) -> None:
        self._prometheus = prometheus
        self._signal = signal
        self._place = destination.place
        self._messages = _Messages()
        self._unsaid = 0  # failures since the last line about them
        self._said_at: float | None = None
        self._is_said_to_fail = False

    def attach(self) -> None:
        """From now on the SDK's own lines of this thread are kept back."""
        self._messages.attach()

    def detach(self) -> None:
        self._messages.detach()

    def begin(self) -> None:
        """An export begins."""
        self._messages.clear()

    def went_well(self) -> None:
        if self._is_said_to_fail:
            log.info("OTLP export of %s to %s works again", self._signal, self._place)
            self._is_said_to_fail = False

    def failed(self, reason: Exception | None = None) -> None:
        """The export failed; without a reason, for the one that the SDK gave."""
        self._prometheus.add(FAILURES)
        self._unsaid += 1
        now = time.monotonic()
        if self._said_at is None or now - self._said_at >= SAY_AGAIN:
            log.warning(
                "OTLP export of %s to %s failed (%d since last said): %s",
                self._signal, self._place, self._unsaid, self._messages.reason() if reason is None else _name(reason),
            )  # fmt: skip
            self._said_at = now
            self._is_said_to_fail = True
            self._unsaid = 0

    def dropped(self, number: int, reason: str) -> None:
        """So much will not reach the receiver; `reason` is of the catalogue's TELEMETRY_DROPS."""
        if number > 0:
            self._prometheus.add(DROPPED, float(number), (self._signal, reason))


def _name(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return "OTLP over gRPC needs an extra: pip install 'semhealth[grpc]', or use http/protobuf"
    return type(error).__name__


class _Messages(logging.Handler):
    """Takes the SDK's own log lines away, which come several per failed export, and keeps why it failed."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._reasons: dict[str, None] = {}  # in order; at most MOST_REASONS
        self._thread = 0

    def attach(self) -> None:
        self._thread = threading.get_ident()
        sdk = logging.getLogger("opentelemetry")
        sdk.setLevel(logging.WARNING)
        sdk.propagate = False
        sdk.addHandler(self)
        logging.getLogger("urllib3").setLevel(logging.WARNING)  # two lines per try at level debug

    def detach(self) -> None:
        logging.getLogger("opentelemetry").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != self._thread:
            return
        for reason in REASON.findall(record.getMessage()):
            if len(self._reasons) < MOST_REASONS:
                self._reasons[reason] = None

    def clear(self) -> None:
        self._reasons.clear()

    def reason(self) -> str:
        return ", ".join(self._reasons) if self._reasons else "no reason given"
