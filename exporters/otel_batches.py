"""OTLP spans and log records: exchanges wait in a bounded queue for a thread that converts and sends them."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from exporters.otel_attributes import Server, Told
from exporters.otel_environment import Destination
from exporters.otel_reports import Reports
from exporters.prometheus import PrometheusExporter

if TYPE_CHECKING:
    from exporters.otel_senders import Sender

# As the batch processors of the specification (OTEL_BSP_*).
DELAY = 5.0  # seconds that an exchange waits at most before it is sent
BATCH = 512  # exchanges of one request
QUEUE = 2048  # exchanges that wait; further ones are dropped, and counted

Convert = Callable[[Told], Iterable[Any]]


class Identity(Struct, frozen=True):
    """What spans and log records say of where they come from."""

    version: str
    instance: str
    latest: bool
    servers: Mapping[str, Server]


class BatchExporter:
    """Sends what exchanges become in one signal. `weigh` tells how many spans or log records that is.

    `take` is for one thread, and neither waits nor raises. What waits is sent after `delay` seconds, or when there are
    BATCH. What is lost is counted with a reason; a failed export is said at most once a minute.
    """

    def __init__(
        self,
        signal: Literal["traces", "logs"],
        destination: Destination,
        identity: Identity,
        prometheus: PrometheusExporter,
        weigh: Callable[[Told], int],
        delay: float = DELAY,
    ) -> None:
        self._signal: Literal["traces", "logs"] = signal
        self._destination = destination
        self._identity = identity
        self._weigh = weigh
        self._delay = delay
        self._reports = Reports(prometheus, signal, destination)
        self._waiting: deque[Told] = deque()  # at most QUEUE
        self._wake = threading.Event()
        self._stopping = False
        self._gave_up = False
        self._sender: Sender | None = None
        self._convert: Convert | None = None
        self._thread = threading.Thread(target=self._run, name=f"otlp-{signal}", daemon=True)

    def start(self) -> None:
        """Start the thread. The SDK is imported there, off the caller's time."""
        self._thread.start()

    def take(self, told: Told) -> None:
        """Queue one exchange."""
        if len(self._waiting) >= QUEUE:
            self._reports.dropped(self._weigh(told), "queue_full")
            return
        self._waiting.append(told)
        if len(self._waiting) == BATCH:
            self._wake.set()

    def stop(self) -> None:
        """Ask for what waits to be sent, without waiting for it."""
        self._stopping = True
        self._wake.set()

    def shutdown(self, timeout: float) -> bool:
        """Send what waits and stop, in at most `timeout` seconds. False when it did not end; the rest is dropped."""
        self.stop()
        self._thread.join(timeout)
        if not self._thread.is_alive():
            return True
        self._gave_up = True
        self._reports.dropped(sum(map(self._weigh, self._taken_out(QUEUE))), "shutdown")
        if self._sender is not None:
            self._sender.shutdown()  # ends the wait between two tries
        return False

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        self._reports.attach()
        while not self._stopping:
            self._wake.wait(self._delay)
            self._wake.clear()
            self._send_all()
        self._send_all()
        if self._sender is not None and not self._gave_up:
            self._sender.shutdown()
        self._reports.detach()

    def _send_all(self) -> None:
        while self._waiting and not self._gave_up:
            self._send(self._taken_out(BATCH))

    def _taken_out(self, most: int) -> list[Told]:
        batch: list[Told] = []
        with contextlib.suppress(IndexError):  # at the end two threads may take out
            while len(batch) < most:
                batch.append(self._waiting.popleft())
        return batch

    def _send(self, batch: list[Told]) -> None:
        reports = self._reports
        reports.begin()
        try:
            is_taken, rejected = self._try_to_send(batch)
        except Exception as error:  # noqa: BLE001 - the boundary of this thread: whatever it is, one export failed
            reports.failed(error)
            reports.dropped(sum(map(self._weigh, batch)), "export_failed")
            return
        if is_taken:
            reports.went_well()
            reports.dropped(rejected, "rejected")
        else:
            reports.failed()
            reports.dropped(sum(map(self._weigh, batch)), "export_failed")

    def _try_to_send(self, batch: list[Told]) -> tuple[bool, int]:
        if self._sender is None or self._convert is None:
            self._sender, self._convert = self._prepare()
        converted = [each for told in batch for each in self._convert(told)]
        return self._sender.send(converted), self._sender.rejected()

    def _prepare(self) -> tuple[Sender, Convert]:
        # The SDK is loaded only where it exports.
        from exporters.otel_conversion import resource_of, scope_of  # noqa: PLC0415
        from exporters.otel_senders import make_sender  # noqa: PLC0415
        from exporters.otel_spans import SpanConversion  # noqa: PLC0415

        told = self._identity
        conversion = SpanConversion(
            resource_of(told.version, told.instance),
            scope_of(told.version, told.latest),
            told.servers,
            newer=told.latest,
        )
        sender = make_sender(self._signal, self._destination)
        return sender, conversion.spans if self._signal == "traces" else conversion.logs
