"""Every exchange that is forwarded is recorded or counted, whatever becomes of the analyst."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.model import (
    Acknowledged,
    BytesSeen,
    Event,
    ExchangeDropped,
    ExchangeEnded,
    ProxyVitals,
    RequestSeen,
)
from collector.proxy import tap as tap_module
from collector.proxy.tap import EVENT_SIZE, Ledger, Watch

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


FLOOD = 400  # rounds


def make_ledger(bound: int) -> Ledger:
    return Ledger(bound, lambda: None, lambda: None)


def seen(watch: Watch, size: int) -> tuple[Watch, int, Event]:
    return watch, size, BytesSeen(watch.id, 0.0, True, b"")


def end(watch: Watch) -> ExchangeEnded:
    return ExchangeEnded(watch.id, 0.0, "complete", 0.0)


Step = st.one_of(
    st.tuples(st.just("begin"), st.integers(0, 400)),
    st.tuples(st.just("bytes"), st.integers(0, 5)),
    st.tuples(st.just("end"), st.integers(0, 5)),
    st.tuples(st.just("send"), st.just(0)),
    st.tuples(st.just("acknowledge"), st.integers(0, 3)),
    st.tuples(st.just("record"), st.integers(0, 5)),
    st.tuples(st.just("connect"), st.just(0)),
    st.tuples(st.just("disconnect"), st.just(0)),
)


@given(st.lists(Step, max_size=120), st.integers(200, 2000))
@settings(max_examples=300, deadline=None)
def test_the_account_always_balances_and_the_queue_keeps_its_bound(steps: list[tuple[str, int]], bound: int) -> None:
    ledger = make_ledger(bound)
    watches: list[Watch] = []
    number = ended = 0
    told: dict[int, list[Event]] = {}
    sent = 0
    recordable: list[int] = []
    dropped = 0
    for step, value in steps:
        match step:
            case "begin":
                number += 1
                watches.append(Watch(number))
                ledger.begin(watches[-1], value, RequestSeen(number, 0.0, 0.0, "r", b""))
            case "bytes" if watches:
                ledger.tell(*seen(watches[value % len(watches)], 100))
            case "end" if watches:
                watch = watches.pop(value % len(watches))
                ledger.end(watch, end(watch))
                ended += 1
            case "send":
                batch = ledger.take_batch()
                sent += bool(batch)
                for event in batch:
                    told.setdefault(event.id, []).append(event)  # type: ignore[union-attr]
                    if isinstance(event, ExchangeEnded):
                        recordable.append(event.id)
                    dropped += isinstance(event, ExchangeDropped)
            case "acknowledge":
                batches = min(value, sent)
                sent -= batches
                ledger.acknowledge(Acknowledged(batches, []))
            case "record" if recordable:
                ledger.acknowledge(Acknowledged(0, [recordable.pop(value % len(recordable))]))
            case "connect" if not ledger.connected:
                ledger.connect()
            case "disconnect" if ledger.connected:
                ledger.disconnect()
                sent, recordable = 0, []
                told.clear()
        assert ledger.forwarded == ended
        assert ledger.forwarded == ledger.acknowledged + sum(ledger.unobserved.values()) + ledger.unacknowledged
        assert 0 <= ledger.queued <= bound + (number + 1) * 2 * EVENT_SIZE
    for events in told.values():
        kinds = [type(event) for event in events]
        assert kinds[0] is RequestSeen, "an exchange is told from its start"
        assert kinds.count(ExchangeEnded) + kinds.count(ExchangeDropped) <= 1
        assert kinds[-1] in (ExchangeEnded, ExchangeDropped) or ExchangeEnded not in kinds


def test_a_fast_analyst_never_blocks_a_long_stream() -> None:
    ledger = make_ledger(10_000)
    ledger.connect()
    watch = Watch(1)
    ledger.begin(*seen(watch, 1000))
    for _ in range(999):
        ledger.tell(*seen(watch, 1000))
        ledger.take_batch()
        ledger.acknowledge(Acknowledged(1, []))
    ledger.end(watch, end(watch))
    assert watch.unobserved is None
    assert ledger.unacknowledged == 1


def test_the_bound_holds_inside_one_exchange_and_it_is_dropped_whole() -> None:
    ledger = make_ledger(10_000)
    ledger.connect()
    watch = Watch(1)
    ledger.begin(*seen(watch, 1000))
    for _ in range(999):
        ledger.tell(*seen(watch, 1000))
    ledger.end(watch, end(watch))
    assert ledger.queued <= 10_000 + 2 * EVENT_SIZE
    batch = ledger.take_batch()
    assert [type(event) for event in batch[-1:]] == [ExchangeDropped]
    assert not any(isinstance(event, ExchangeEnded) for event in batch)
    assert ledger.unobserved == {"queue_full": 1, "analyst_down": 0, "analyst_lost": 0}


def flooded(heavy: int, piece: int, read: float) -> tuple[set[int], int]:
    """So many exchanges tell a piece each a round, of which the analyst reads this share, and a small one begins.

    Those that are still observed after FLOOD rounds, and how many small ones were.
    """
    behind: list[int] = []

    def send() -> None:
        size = ledger._batch
        if ledger.take_batch():
            behind.append(size)

    ledger = Ledger(1 << 24, lambda: None, send)
    ledger.connect()
    watches = [Watch(number) for number in range(heavy)]
    for watch in watches:
        ledger.begin(*seen(watch, 500))
    small = 0
    budget = 0.0
    for number in range(heavy, heavy + FLOOD):
        for watch in watches:
            ledger.tell(*seen(watch, piece))
        other = Watch(number)
        ledger.begin(*seen(other, 2000))
        ledger.end(other, end(other))
        small += other.unobserved is None
        send()
        budget += heavy * piece * read
        while behind and behind[0] <= budget:
            budget -= behind.pop(0)
            ledger.acknowledge(Acknowledged(1, []))
        if not behind:
            budget = 0.0
    assert ledger.queued <= ledger.bound + 2 * EVENT_SIZE * heavy
    return {watch.id for watch in watches if watch.unobserved is None}, small


@pytest.mark.parametrize(("heavy", "piece"), [(10, 20_000), (10, 200_000), (50, 20_000), (300, 20_000), (300, 2000)])
@pytest.mark.parametrize("read", [0.1, 0.3, 0.6, 0.9])
def test_where_the_analyst_is_too_slow_it_is_told_as_many_exchanges_as_it_can_read(
    heavy: int, piece: int, read: float
) -> None:
    kept, small = flooded(heavy, piece, read)
    assert read - 0.11 <= len(kept) / heavy <= read + 0.05
    assert small == FLOOD, "those that carry little are not given up for those that carry much"


def test_an_exchange_alone_may_fill_the_queue() -> None:
    ledger = make_ledger(1 << 24)
    ledger.connect()
    watch = Watch(1)  # of little patience
    ledger.begin(*seen(watch, 500))
    while ledger.queued < 0.97 * ledger.bound:
        ledger.tell(*seen(watch, 100_000))
    assert watch.unobserved is None


def test_an_exchange_that_begins_while_the_queue_is_full_is_counted_and_nothing_of_it_is_told() -> None:
    ledger = make_ledger(1000)
    ledger.connect()
    told, late = Watch(1), Watch(2)
    ledger.begin(*seen(told, 900))
    ledger.begin(*seen(late, 900))
    ledger.tell(*seen(late, 1))
    ledger.end(late, end(late))
    ledger.end(told, end(told))
    assert [event.id for event in ledger.take_batch() if not isinstance(event, ProxyVitals)] == [1, 1]
    assert ledger.unobserved == {"queue_full": 1, "analyst_down": 0, "analyst_lost": 0}
    assert (ledger.forwarded, ledger.unacknowledged) == (2, 1)


async def test_the_end_of_an_analyst_is_noticed_whether_or_not_something_is_awaited_from_it(side: Any) -> None:
    await side.serve(answer)
    tap = side.worker.plane.tap
    peer = await side.dial()
    for is_awaited in (False, True):
        await side.until(lambda: tap.connected)
        side.analyst.acknowledges = not is_awaited
        await ask(peer)
        if not is_awaited:
            await side.until(lambda: tap.is_settled)
            await asyncio.sleep(0.1)
        await side.analyst.die()
        await side.until(lambda: not tap.connected)
        await side.analyst.start()


async def test_a_batch_tries_a_socket_that_was_full_without_waiting_for_a_turn_of_the_loop(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    loop = asyncio.get_running_loop()
    path = str(tmp_path_factory.mktemp("t") / "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        tap = tap_module.Tap(loop, path, 1 << 26, lambda: ProxyVitals(0, "b", 0.0, 0, {}, {}, 0, 0, 0.0))
        tap.open()
        analyst, _ = server.accept()
        with analyst:
            analyst.setblocking(False)
            watch = Watch(1)
            tap.begin(*seen(watch, 10))
            while not tap._waits_to_write:
                tap.tell(watch, 100_000, BytesSeen(1, 0.0, True, bytes(100_000)))
            with contextlib.suppress(BlockingIOError):
                while analyst.recv(1 << 20):
                    pass
            tap.tell(watch, 100_000, BytesSeen(1, 0.0, True, bytes(100_000)))
            assert analyst.recv(1 << 20), "nothing else ran in between"
        await tap.close(0.0)


def in_doubt(ledger: Ledger, *numbers: int) -> None:
    """Exchanges that end, are sent, and are not acknowledged by an analyst that dies."""
    ledger.connect()
    for watch in map(Watch, numbers):
        ledger.begin(*seen(watch, 10))
        ledger.end(watch, end(watch))
    ledger.take_batch()
    ledger.disconnect()


def test_doubt_lasts_until_an_analyst_greets() -> None:
    ledger = make_ledger(10_000)
    in_doubt(ledger, 1, 2)
    in_doubt(ledger, 3)
    ledger.connect()
    ledger.acknowledge(Acknowledged(0, [3]))
    assert (ledger.unacknowledged, ledger.unobserved["analyst_lost"]) == (3, 0)
    ledger.acknowledge(Acknowledged(0, [2, 3, 4], is_greeting=True))
    assert (ledger.acknowledged, ledger.unacknowledged, ledger.unobserved["analyst_lost"]) == (2, 0, 1)
    assert ledger.is_settled


def test_doubt_that_nobody_settles_is_loss() -> None:
    ledger = make_ledger(10_000)
    in_doubt(ledger, 1, 2)
    ledger.give_up_doubt()
    assert (ledger.unacknowledged, ledger.unobserved["analyst_lost"]) == (0, 2)


def test_an_acknowledgement_of_what_was_not_sent_is_an_error() -> None:
    ledger = make_ledger(1000)
    ledger.connect()
    with pytest.raises(ValueError, match="not sent"):
        ledger.acknowledge(Acknowledged(1, []))


async def answer(peer: Any) -> None:
    while True:
        await peer.request()
        await peer.send(OK)


async def ask(peer: Any, times: int = 1) -> None:
    for _ in range(times):
        await peer.send(GET)
        assert await peer.exactly(len(OK)) == OK


async def test_without_an_analyst_traffic_flows_and_each_exchange_counts_as_analyst_down(side: Any) -> None:
    upstream = await side.upstream(answer)
    await side.start(upstream.port, analyst=False)
    peer = await side.dial()
    await ask(peer, 5)
    assert side.worker.plane.tap.unobserved["analyst_down"] == 5
    await side.analyst.start()
    await side.until(lambda: side.worker.plane.tap.connected)
    await ask(peer, 5)
    await side.until(lambda: side.worker.plane.tap.acknowledged == 5)
    first = side.analyst.events[0]
    assert isinstance(first, ProxyVitals)
    assert (first.forwarded, first.unobserved["analyst_down"]) == (5, 5)
    assert side.balance() == (10, 10)


async def test_what_a_dead_analyst_did_not_acknowledge_is_lost_unless_it_was_recorded(side: Any) -> None:
    release = asyncio.Event()

    async def serve(peer: Any) -> None:
        while True:
            head, _ = await peer.request()
            if b"/slow" in head:
                await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
                await release.wait()
                await peer.send(b"k")
            else:
                await peer.send(OK)

    await side.serve(serve)
    slow, peer = await side.dial(), await side.dial()
    await slow.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
    await slow.head()
    await ask(peer, 3)
    await side.until(lambda: side.worker.plane.tap.acknowledged == 3)
    side.analyst.acknowledges = False
    await ask(peer, 4)
    await asyncio.sleep(0.05)
    await side.analyst.die()
    await ask(peer, 2)
    tap = side.worker.plane.tap
    assert tap.unobserved == {"queue_full": 0, "analyst_down": 2, "analyst_lost": 0}
    assert (tap.unacknowledged, tap.is_settled) == (4, False), "they are in doubt"
    side.analyst.acknowledges = True
    side.analyst.recorded = [1, 5, 7, 99]
    await side.analyst.start()
    await side.until(lambda: tap.connected)
    await side.until(lambda: not tap.unacknowledged)
    assert (tap.acknowledged, tap.unobserved["analyst_lost"]) == (5, 2)
    release.set()
    assert await slow.exactly(2) == b"ok"
    await ask(peer, 1)
    await side.until(lambda: tap.acknowledged == 6)
    assert tap.unobserved["analyst_lost"] == 3, "the open exchange was partly told, and is told no further"
    assert [event.id for event in side.analyst.events if isinstance(event, RequestSeen)].count(11) == 1
    assert side.balance() == (11, 11)


async def test_frames_wait_for_more_of_them_and_an_end_takes_them_along_soon(
    side: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tap_module, "BATCH_DELAY", 60.0)
    release = asyncio.Event()

    async def serve(peer: Any) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\no")
        await release.wait()
        await peer.send(b"kk")

    await side.serve(serve)
    await side.until(lambda: side.worker.plane.tap.connected)
    peer = await side.dial()
    await peer.send(GET)
    await peer.head()
    await peer.exactly(1)
    await asyncio.sleep(0.1)
    assert not side.analyst.of(1)
    release.set()
    await peer.exactly(2)
    assert (await side.analyst.ended()).how == "complete"
    assert side.analyst.body(1, from_upstream=True) == b"okk"


async def test_a_stalled_analyst_delays_nothing_and_what_does_not_fit_is_dropped_whole(side: Any) -> None:
    body = b"x" * 100_000

    async def serve(peer: Any) -> None:
        while True:
            await peer.request()
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    await side.serve(serve, queue=2_000_000)
    await asyncio.sleep(0.05)
    side.analyst.reads.clear()
    peer = await side.dial()
    async with asyncio.timeout(side.PATIENCE):
        for _ in range(100):
            await peer.send(GET)
            await peer.head()
            assert (await peer.exactly(len(body))).count(b"x") == len(body)
    tap = side.worker.plane.tap
    assert tap.queued <= 2_100_000
    assert 60 < tap.unobserved["queue_full"] < 100
    side.analyst.reads.set()
    await side.until(lambda: tap.acknowledged + tap.unobserved["queue_full"] == 100)
    await side.until(lambda: tap.queued < 1000)
    ended = {event.id for event in side.analyst.events if isinstance(event, ExchangeEnded)}
    assert len(ended) == tap.acknowledged
    for exchange in ended:
        told = side.analyst.body(exchange, from_upstream=True)
        assert told.count(b"x") == len(told) == len(body), "what is told is told in full"
    await ask_large(peer, body)
    await side.until(lambda: tap.unacknowledged == 0)
    assert side.balance() == (101, 101)


async def ask_large(peer: Any, body: bytes) -> None:
    await peer.send(GET)
    await peer.head()
    assert (await peer.exactly(len(body))).count(b"x") == len(body)


async def test_whoever_answers_nonsense_on_the_socket_is_hung_up_on(side: Any) -> None:
    await side.serve(answer)
    await side.until(lambda: bool(side.analyst.writers))
    side.analyst.writers[0].write(b"\xff\xff\xff\xffnonsense")
    await side.until(lambda: len(side.analyst.writers) == 2)
    peer = await side.dial()
    await ask(peer)
    await side.analyst.ended()


async def test_vitals_tell_changes_within_a_second_or_so(side: Any) -> None:
    await side.serve(answer)
    peer = await side.dial()
    await ask(peer, 2)
    await side.ask(b"nonsense\r\n\r\n")

    def told() -> bool:
        last = [event for event in side.analyst.events if isinstance(event, ProxyVitals)][-1:]
        return bool(last) and (last[0].forwarded, last[0].refused["bad_request"]) == (2, 1)

    await side.until(told)
    boots = {event.boot for event in side.analyst.events if isinstance(event, ProxyVitals)}
    assert len(boots) == 1
