"""What the analyst is told: a bounded queue of events, lossy by whole exchange, every loss counted with its reason."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from collector.model import (
    Acknowledged,
    Event,
    ExchangeDropped,
    ExchangeEnded,
    ProxyVitals,
    decode_acknowledged,
    encode_events,
)

BATCH_BYTES = 64 * 1024  # a batch is sent when it holds so much,
BATCH_DELAY = 0.02  # or so many seconds after its first event, since a batch wakes the analyst,
END_DELAY = 0.005  # or after the first end in it: judging many at once would hold up others on the analyst's core
EVENT_SIZE = 48  # bytes that an event takes besides what it carries
RECONNECT_DELAY = 0.2
# Acknowledgements are read so often while some are awaited: reading each as it comes wakes the proxy once or twice a
# batch, which costs as much as sending it.
ACKNOWLEDGEMENT_DELAY = 0.05
MOST_IN_DOUBT = 100_000  # exchanges; with more of them all count as lost
# From where the queue is so full, exchanges that carry much are given up one after the other, each at a fill of its
# own, so that the analyst has time for the others: were nobody given up before it is full, then all would be at once.
CROWDED = 0.5
FULL_FOR_HEAVY = 0.9  # what is above it is for exchanges that carry little
HEAVY = 64 * 1024  # bytes that an exchange told while the queue was crowded; less, where so much of all would be
HEAVY_SHARE = 0.1  # of the queue
SPREAD = 0.6180339887  # its multiples, less their whole parts, lie evenly between 0 and 1 (Weyl)
SEND_BUFFER = 1024 * 1024
ACKNOWLEDGEMENT_LIMIT = 16 * 1024 * 1024  # a longer one is no acknowledgement


class Watch:
    """What the tap knows of one exchange: `unobserved` is why it will have no record, None while it may have one."""

    __slots__ = ("id", "in_crowd", "unobserved")

    def __init__(self, number: int) -> None:
        self.id = number
        self.unobserved: str | None = None
        self.in_crowd = 0  # bytes told while the queue was crowded


class Ledger:
    """The accounts of the tap, without its socket.

    `queued` counts the bytes of every event that waits, or was sent and is not acknowledged; it never passes `bound`
    by more than the small notices that an exchange was dropped. When it is crowded, exchanges that carry much are
    dropped first. At any time
    forwarded = acknowledged + all unobserved + ended and not yet acknowledged. When an analyst dies, what it did not
    acknowledge is in doubt until the next one greets: it knows which of them were recorded, and the rest is lost.
    """

    def __init__(self, bound: int, wake: Callable[[], None], hurry: Callable[[], None]) -> None:
        self.bound = bound
        self.connected = False
        self.forwarded = 0
        self.acknowledged = 0
        self.unobserved = {"queue_full": 0, "analyst_down": 0, "analyst_lost": 0}
        self._wake = wake  # called with the first event of a batch
        self._hurry = hurry  # called when a batch is large
        self._events: list[Event] = []
        self._batch = 0  # bytes of the events that wait,
        self._room = -1  # and what they may become; less than nothing while there is no analyst
        self._free = -1  # up to where the queue is not crowded
        self._sent: deque[int] = deque()  # bytes of each batch that is not acknowledged
        self._sent_bytes = 0
        self._open: dict[int, Watch] = {}
        self._awaiting: set[int] = set()
        self._in_doubt: set[int] = set()  # what a dead analyst did not acknowledge

    @property
    def queued(self) -> int:
        """Bytes of the events that wait, or were sent and are not acknowledged."""
        return self._sent_bytes + self._batch

    @property
    def unacknowledged(self) -> int:
        """Exchanges that ended, were told in full, and are not acknowledged yet."""
        return len(self._awaiting) + len(self._in_doubt)

    @property
    def is_settled(self) -> bool:
        """Whether nothing waits, every batch was read and every ended exchange recorded."""
        return not self._events and not self._sent and not self._awaiting and not self._in_doubt

    def begin(self, watch: Watch, size: int, *told: Event) -> None:
        """Queue the first events of an exchange, or do without the exchange."""
        batch = self._batch + size + EVENT_SIZE * len(told)
        if batch > self._free and not self._has_room(watch, batch, size):
            watch.unobserved = "queue_full" if self.connected else "analyst_down"
            return
        self._open[watch.id] = watch
        self._put(batch, told)

    def tell(self, watch: Watch, size: int, *told: Event) -> None:
        """Queue events of an exchange that has begun, carrying `size` bytes; or give up the exchange."""
        if watch.unobserved is not None:
            return
        batch = self._batch + size + EVENT_SIZE * len(told)
        if batch > self._free and not self._has_room(watch, batch, size):
            self._drop(watch)
            return
        # The same as _put, without its call: this runs once per chunk.
        self._batch = batch
        events = self._events
        if not events:
            self._wake()
        events += told
        if batch >= BATCH_BYTES:
            self._hurry()

    def end(self, watch: Watch, event: ExchangeEnded) -> None:
        """Tell the last event of an exchange and count it as forwarded."""
        self.tell(watch, 0, event)
        self.forwarded += 1
        if watch.unobserved is None:
            del self._open[watch.id]
            self._awaiting.add(watch.id)
        else:
            self.unobserved[watch.unobserved] += 1

    def report(self, vitals: ProxyVitals) -> None:
        """Queue the totals; left out when the queue is full, since the next ones say all that they say."""
        if self._batch + 4 * EVENT_SIZE <= self._room:
            self._put(self._batch + 3 * EVENT_SIZE, (vitals,))

    def take_batch(self) -> list[Event]:
        """All events that wait; their bytes stay counted until the batch is acknowledged."""
        events, self._events = self._events, []
        if events:
            self._sent.append(self._batch)
            self._sent_bytes += self._batch
            self._room -= self._batch
            self._free -= self._batch
            self._batch = 0
        return events

    def acknowledge(self, answer: Acknowledged) -> None:
        """So many more batches were read, and these ended exchanges are recorded. ValueError for batches never sent."""
        if not 0 <= answer.batches <= len(self._sent):
            raise ValueError("an acknowledgement of a batch that was not sent")
        for _ in range(answer.batches):
            size = self._sent.popleft()
            self._sent_bytes -= size
            self._room += size
            self._free += size
        if answer.is_greeting:
            self._settle_doubt(answer.ended)
            return
        for number in answer.ended:
            if number in self._awaiting:
                self._awaiting.remove(number)
                self.acknowledged += 1

    def connect(self) -> None:
        """An analyst is there."""
        self.connected = True
        self._room = self.bound
        self._free = int(self.bound * CROWDED)

    def disconnect(self) -> None:
        """The analyst is gone. What it was told and did not acknowledge is in doubt."""
        self.connected = False
        self._in_doubt |= self._awaiting
        self._awaiting.clear()
        if len(self._in_doubt) > MOST_IN_DOUBT:
            self.give_up_doubt()
        for watch in self._open.values():
            watch.unobserved = "analyst_lost"
        self._open.clear()
        self._events = []
        self._sent.clear()
        self._batch = self._sent_bytes = 0
        self._room = self._free = -1

    def give_up_doubt(self) -> None:
        """No analyst will come that could tell what was recorded."""
        self._settle_doubt(())

    def _settle_doubt(self, recorded: Iterable[int]) -> None:
        known = self._in_doubt.intersection(recorded)
        self.acknowledged += len(known)
        self.unobserved["analyst_lost"] += len(self._in_doubt) - len(known)
        self._in_doubt.clear()

    def _has_room(self, watch: Watch, batch: int, size: int) -> bool:
        """Whether an exchange may tell so many bytes more, which make the batch so large, although it is crowded."""
        watch.in_crowd += size
        room = self._room
        others = len(self._open)
        if others > 1 and room >= 0 and watch.in_crowd > min(HEAVY, self.bound * HEAVY_SHARE / others):
            patience = watch.id * SPREAD % 1.0
            room -= int(self.bound * (1.0 - CROWDED - (FULL_FOR_HEAVY - CROWDED) * patience))
        return batch <= room

    def _put(self, batch: int, told: tuple[Event, ...]) -> None:
        self._batch = batch
        if not self._events:
            self._wake()
        self._events += told
        if batch >= BATCH_BYTES:
            self._hurry()

    def _drop(self, watch: Watch) -> None:
        watch.unobserved = "queue_full"
        del self._open[watch.id]
        self._put(self._batch + EVENT_SIZE, (ExchangeDropped(watch.id),))


class Tap(Ledger):
    """The ledger on its Unix socket: connects and reconnects, sends batches, reads acknowledgements, never waits."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, path: str | None, bound: int, vitals: Callable[[], ProxyVitals]
    ) -> None:
        super().__init__(bound, self._arm, self.flush)
        self._loop = loop
        self._path = path
        self._vitals = vitals
        self._socket: socket.socket | None = None
        self._out: deque[memoryview] = deque()  # encoded batches; their bytes are within `queued`
        self._in = bytearray()
        self._waits_to_write = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_soon = False  # an end waits, so that the timer is set to END_DELAY
        self._listener: asyncio.TimerHandle | None = None  # None: the socket is watched, since nothing is awaited
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False

    def open(self) -> None:
        """Connect now, and again each time the connection is lost."""
        self._retry = None
        if self._path is None or self._closed:
            return
        attempt = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        attempt.setblocking(False)
        try:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            attempt.connect(self._path)
        except OSError:
            attempt.close()
            self._retry = self._loop.call_later(RECONNECT_DELAY, self.open)
            return
        self._socket = attempt
        self._loop.add_reader(attempt.fileno(), self._read)
        self.connect()
        self.report(self._vitals())

    def end(self, watch: Watch, event: ExchangeEnded) -> None:
        super().end(watch, event)
        if not self._is_soon and self._timer is not None:
            self._is_soon = True
            self._timer.cancel()
            self._timer = self._loop.call_later(END_DELAY, self.flush)

    async def close(self, patience: float) -> None:
        """Tell the last totals, wait at most `patience` seconds for acknowledgements, and hang up."""
        if self._socket is not None:
            self.report(self._vitals())
            self.flush()
            deadline = self._loop.time() + patience
            while self._socket is not None and not self.is_settled:
                self._read()
                if self._loop.time() >= deadline:
                    break
                await asyncio.sleep(0.005)
        self._closed = True
        self._hang_up()
        self.give_up_doubt()
        if self._retry is not None:
            self._retry.cancel()

    def flush(self) -> None:
        """Encode what waits, and send what the socket takes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_soon = False
        if self._socket is None:
            return
        events = self.take_batch()
        if events:
            body = encode_events(events)
            self._out.append(memoryview(len(body).to_bytes(4, "big") + body))
            self._send(self._socket)  # even if it was full: the loop would ask again only after a turn of its own
            if self._sent_bytes > self.bound // 4:
                self._read()
            if self._listener is None and self._socket is not None:
                self._loop.remove_reader(self._socket.fileno())
                self._listener = self._loop.call_later(ACKNOWLEDGEMENT_DELAY, self._listen)

    def _listen(self) -> None:
        """Read what was acknowledged; once nothing is awaited any more, watch the socket for its end."""
        self._listener = None
        self._read()
        if self._socket is None:
            return
        if self._sent or self._awaiting:
            self._listener = self._loop.call_later(ACKNOWLEDGEMENT_DELAY, self._listen)
        else:
            self._loop.add_reader(self._socket.fileno(), self._read)

    def _arm(self) -> None:
        self._timer = self._loop.call_later(BATCH_DELAY, self.flush)

    def _send(self, to: socket.socket) -> None:
        out = self._out
        while out:
            try:
                sent = to.send(out[0])
            except (BlockingIOError, InterruptedError):
                if not self._waits_to_write:
                    self._waits_to_write = True
                    self._loop.add_writer(to.fileno(), self._send, to)
                return
            except OSError:
                self._hang_up()
                return
            if sent < len(out[0]):
                out[0] = out[0][sent:]
            else:
                out.popleft()
        if self._waits_to_write:
            self._waits_to_write = False
            self._loop.remove_writer(to.fileno())

    def _read(self) -> None:
        source = self._socket
        if source is None:
            return
        try:
            received = source.recv(BATCH_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            received = b""
        if not received:
            self._hang_up()
            return
        self._in += received
        try:
            self._read_acknowledgements()
        except (ValueError, msgspec.DecodeError):
            # Whoever answers so is no analyst; what it was told is lost.
            self._hang_up()

    def _read_acknowledgements(self) -> None:
        received = self._in
        at = 0
        while len(received) - at >= 4:
            size = int.from_bytes(received[at : at + 4], "big")
            if size > ACKNOWLEDGEMENT_LIMIT:
                raise ValueError("an acknowledgement is too long")
            if len(received) - at - 4 < size:
                break
            self.acknowledge(decode_acknowledged(bytes(received[at + 4 : at + 4 + size])))
            at += 4 + size
        del received[:at]

    def _hang_up(self) -> None:
        lost, self._socket = self._socket, None
        if lost is None:
            return
        self._loop.remove_reader(lost.fileno())
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None
        if self._waits_to_write:
            self._loop.remove_writer(lost.fileno())
            self._waits_to_write = False
        lost.close()
        self._out.clear()
        self._in.clear()
        self.disconnect()
        if not self._closed:
            self._retry = self._loop.call_later(RECONNECT_DELAY, self.open)
