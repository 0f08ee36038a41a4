"""OTLP metrics: the one registry, converted at each export and sent from a thread of its own."""

from __future__ import annotations

import os
import threading
import time
import uuid
from typing import TYPE_CHECKING

from exporters.otel_environment import Destination, Environment, Protocol
from exporters.otel_reports import Reports
from exporters.prometheus import PrometheusExporter

if TYPE_CHECKING:
    from exporters.otel_conversion import Conversion
    from exporters.otel_senders import Sender

SHORTEST_INTERVAL = 0.05  # seconds


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
        instance: str | None = None,
        environment: Environment | None = None,
    ) -> None:
        told = environment if environment is not None else Environment(os.environ)
        self._prometheus = prometheus
        self._version = version
        self._instance = instance if instance is not None else str(uuid.uuid4())
        self._latest = told.takes_latest
        self._interval = max(interval if interval is not None else told.interval(), SHORTEST_INTERVAL)
        self._destination = told.destination("metrics", endpoint, protocol, timeout)
        self._sender: Sender | None = None
        self._conversion: Conversion | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._went_well = False

    @property
    def enabled(self) -> bool:
        """Whether there is anywhere to export to."""
        return self._destination is not None

    def start(self) -> None:
        """Start the thread, where an endpoint is set. The SDK is imported there, off the caller's time."""
        if self._destination is not None and self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(self._destination,), name="otlp", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ask for the last export, without waiting for it."""
        self._stopping.set()

    def shutdown(self, timeout: float) -> bool:
        """Export once more and stop, in at most `timeout` seconds. False when that export failed or did not end."""
        thread = self._thread
        if thread is None:
            return True
        self.stop()
        thread.join(timeout)
        if thread.is_alive():
            if self._sender is not None:
                self._sender.shutdown()  # ends the wait between two tries
            return False
        return self._went_well

    def _run(self, destination: Destination) -> None:
        reports = Reports(self._prometheus, "metrics", destination)
        reports.attach()
        while not self._stopping.wait(self._interval):
            self._export(destination, reports)
        self._export(destination, reports)
        if self._sender is not None:
            self._sender.shutdown()
        reports.detach()

    def _export(self, destination: Destination, reports: Reports) -> None:
        reports.begin()
        try:
            self._went_well = self._try_to_export(destination, reports)
        except Exception as error:  # noqa: BLE001 - the boundary of this thread: whatever it is, one export failed
            self._went_well = False
            reports.failed(error)
            return
        if self._went_well:
            reports.went_well()
        else:
            reports.failed()

    def _try_to_export(self, destination: Destination, reports: Reports) -> bool:
        # The SDK is loaded only where it exports.
        from exporters.otel_conversion import Conversion  # noqa: PLC0415
        from exporters.otel_senders import make_sender  # noqa: PLC0415

        if self._sender is None or self._conversion is None:
            self._sender = make_sender("metrics", destination)
            self._conversion = Conversion(
                version=self._version,
                instance=self._instance,
                started=self._prometheus.started,
                latest=self._latest,
            )
        families = self._prometheus.registry.collect()
        is_taken = self._sender.send(self._conversion.metrics_data(families, time.time()))
        reports.dropped(self._sender.rejected(), "rejected")
        return is_taken
