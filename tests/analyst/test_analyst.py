"""Every exchange becomes one record or one count, whatever happens to it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest

from collector.analyst import analyst as module
from collector.analyst.analyst import Account, AnalysedRoute, Analyst, Worker
from collector.analyst.answer import Limits
from collector.analyst.fold import RouteFacts, Rules
from collector.analyst.ledger import Ledger
from collector.app import DIALECTS
from collector.labels import reading_of
from collector.measures import validity
from collector.model import (
    BytesSeen,
    ClientBlocked,
    Event,
    Exchange,
    ExchangeDropped,
    ExchangeEnded,
    Judgement,
    Meters,
    Place,
    ProxyVitals,
    Reading,
    Record,
    Relevance,
    RequestSeen,
    ResponseSeen,
    SpanFacts,
    ValidationTask,
)

ANSWER = b'{"model":"m","choices":[{"index":0,"message":{"content":"{}"},"finish_reason":"stop"}]}'
PLAIN = b'{"messages":[]}'
WISH = json.dumps({"messages": [], "response_format": {"type": "json_object"}}).encode()


class Clock:
    def monotonic(self) -> float:
        return 10.0

    def wall(self) -> float:
        return 1_787_150_000.0


class Told:
    """An exporter that keeps what it is told."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []

    def record(self, reading: Reading, trace_id: str | None = None) -> None:
        self.readings.append(reading)

    def record_all(self, readings: Iterable[Reading], extra: tuple[str, ...] = (), trace_id: str | None = None) -> None:
        self.readings += [msgspec.structs.replace(reading, extra=extra) for reading in readings]

    def meters(self, place: Place, extra: tuple[str, ...] = (), trace_id: str | None = None) -> Meters:
        return Kept(self.readings, place, extra)

    def total(self, metric: str) -> float:
        return sum(reading.value for reading in self.readings if reading.metric == f"semantic_health_{metric}")


class Kept(dict[str | tuple[str, ...], Callable[[float], object]]):
    """Meters that keep what they are told as readings."""

    def __init__(self, readings: list[Reading], place: Place, extra: tuple[str, ...]) -> None:
        super().__init__()
        self._readings, self._place, self._extra = readings, place, extra

    def __missing__(self, series: str | tuple[str, ...]) -> Callable[[float], object]:
        return lambda value: self._readings.append(
            msgspec.structs.replace(reading_of(self._place, series, value), extra=self._extra)
        )


class HeldJudge:
    """A judge that finds everything valid once it may, or fails."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.fault: Exception | None = None

    async def judge(self, tasks: Sequence[ValidationTask]) -> Sequence[Judgement]:
        await self.may.wait()
        if self.fault is not None:
            raise self.fault
        return [validity.judgement(task, "valid") for task in tasks]


class NoScorer:
    @property
    def ready(self) -> bool:
        return False

    languages = None

    def admit(self, exchange: Exchange) -> str | None:
        return "model_not_ready"

    async def score(self, exchange: Exchange) -> Relevance:
        raise AssertionError(f"nobody asked for a score of {exchange.record.id}")


class Desk:
    """An analyst with one worker, and everything that came out of it."""

    def __init__(self, route: AnalysedRoute | None = None, trace: Callable[[SpanFacts], None] | None = None) -> None:
        self.told, self.judge, self.written = Told(), HeldJudge(), list[Record]()
        self.batches, self.ended = 0, list[int]()
        self.kept: list[tuple[Account, list[int]]] = []  # with the exchanges that were acknowledged by then
        route = route if route is not None else AnalysedRoute(RouteFacts("main", "api.example"))
        self.analyst = Analyst(
            Rules(DIALECTS, Limits()), {"main": route}, self.told, Ledger(100), self.written.append, self.judge,
            NoScorer(), Clock(), trace, self._keep_account,
        )  # fmt: skip
        self.worker = Worker(self._acknowledge)
        self.analyst.connected(self.worker)

    def _keep_account(self) -> None:
        self.kept.append((self.analyst.account(), list(self.ended)))

    def _acknowledge(self, batches: int, ended: list[int]) -> None:
        self.batches += batches
        self.ended += ended

    def take(self, *events: Event) -> None:
        self.analyst.take(self.worker, events)


def exchange(number: int, request: bytes = PLAIN, route: str = "main", headers: str = "") -> list[Event]:
    head = f"POST /v1/chat/completions HTTP/1.1\r\n{headers}\r\n".encode()
    return [
        RequestSeen(number, 1.0, 1_787_150_000.0, route, head),
        BytesSeen(number, 1.0, False, request),
        ResponseSeen(number, 1.5, 1.0, None, b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"),
        ClientBlocked(number, 1.6, 0.1),
        BytesSeen(number, 1.7, True, ANSWER),
        ExchangeEnded(number, 2.0, "complete", 0.001),
    ]


def vitals(forwarded: int, boot: str = "b1", *, starved: int = 0, **unobserved: int) -> ProxyVitals:
    return ProxyVitals(0, boot, 1.0, forwarded, unobserved, {"no_route": forwarded}, 1, 10, 0.001, starved)


async def test_an_exchange_with_nothing_to_judge_is_recorded_with_its_batch() -> None:
    desk = Desk()
    desk.take(*exchange(7))
    assert (desk.batches, desk.ended) == (1, [7])
    assert [record.outcome for record in desk.written] == ["completed"]
    assert desk.analyst.ledger.look_up(desk.written[0].id) == desk.written[0]
    assert desk.told.total("exchanges_total") == 1.0


async def test_the_id_of_an_answer_is_read_only_where_spans_tell_it() -> None:
    named = ANSWER.replace(b"{", b'{"id":"chatcmpl-1",', 1)
    events = exchange(1)
    events[4] = BytesSeen(1, 1.7, True, named)
    spans: list[SpanFacts] = []
    Desk(trace=spans.append).take(*events)
    assert [span.response_id for span in spans] == ["chatcmpl-1"]
    desk = Desk()
    desk.analyst.change(Rules(DIALECTS, Limits()), desk.worker.routes, workers_stay=True)
    desk.take(*events[:-1])
    ended = events[-1]
    assert isinstance(ended, ExchangeEnded)
    assert desk.worker.open[1].ended(ended).response_id is None


async def test_exchanges_may_be_told_in_any_mix_and_in_many_batches() -> None:
    desk = Desk()
    for one, two in zip(exchange(1), exchange(2), strict=True):
        desk.take(one, two)
    assert (desk.batches, desk.ended) == (6, [1, 2])
    assert desk.worker.open == {}


async def test_an_output_to_judge_is_recorded_once_it_is_judged() -> None:
    desk = Desk()
    desk.take(*exchange(1, WISH))
    assert (desk.batches, desk.ended, desk.written) == (1, [], [])
    desk.judge.may.set()
    await desk.analyst.settle(10.0)
    assert (desk.batches, desk.ended) == (1, [1])
    assert desk.written[0].validity is not None
    assert desk.written[0].validity.result == "valid"
    assert desk.told.total("model_output_validity_rate") == 1.0


async def test_a_judge_that_fails_costs_one_record_that_is_counted() -> None:
    desk = Desk()
    desk.judge.fault = OSError("gone")
    desk.judge.may.set()
    desk.take(*exchange(1, WISH), *exchange(2))
    await desk.analyst.settle(10.0)
    assert sorted(desk.ended) == [1, 2]
    assert len(desk.written) == 1
    assert desk.analyst.summary().totals.unobserved == {"analysis_failed": 1}


async def test_an_exchange_that_cannot_be_analysed_is_counted_once_and_hurts_no_other() -> None:
    desk = Desk()
    desk.take(*exchange(1, route="gone"), *exchange(2))
    assert sorted(desk.ended) == [1, 2]
    assert [record.route for record in desk.written] == ["main"]
    assert desk.analyst.summary().totals.unobserved == {"analysis_failed": 1}


async def test_a_fault_at_any_event_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bytes_seen", "response_seen", "ended", "client_blocked"):
        desk = Desk()
        with monkeypatch.context() as patched:
            patched.setattr(f"collector.analyst.fold.ExchangeFold.{name}", broken)
            desk.take(*exchange(1))
        desk.take(*exchange(2))
        assert desk.ended == [1, 2], name
        assert desk.analyst.summary().totals.unobserved == {"analysis_failed": 1}, name
        assert len(desk.written) == 1, name


async def test_what_is_lost_here_is_in_the_account_before_its_worker_is_told() -> None:
    desk = Desk()
    desk.judge.fault = OSError("gone")
    desk.judge.may.set()
    desk.take(*exchange(1, route="gone"), *exchange(2, WISH))
    await desk.analyst.settle(10.0)
    assert [account.lost for account, _ in desk.kept] == [{"analysis_failed": 1}, {"analysis_failed": 2}]
    assert desk.kept[-1][0].lost_lately == ((desk.worker.boot, 1), (desk.worker.boot, 2))
    successor = Desk()
    successor.analyst.go_on_from(desk.kept[-1][0])
    assert successor.analyst.account().lost_lately == desk.kept[-1][0].lost_lately
    assert [ended for _, ended in desk.kept] == [[], [1]]
    assert sorted(desk.ended) == [1, 2]


@pytest.mark.parametrize("wish", [PLAIN, WISH])
async def test_what_fails_after_an_exchange_was_recorded_does_not_count_it_as_lost(
    monkeypatch: pytest.MonkeyPatch, wish: bytes
) -> None:
    record = Analyst._record

    def record_and_fail(analyst: Analyst, *given: Any) -> None:
        record(analyst, *given)
        raise MemoryError

    monkeypatch.setattr(Analyst, "_record", record_and_fail)
    desk = Desk()
    desk.judge.may.set()
    desk.take(*exchange(1, wish))
    await desk.analyst.settle(10.0)
    assert (len(desk.written), desk.ended) == (1, [1])
    assert desk.analyst.summary().totals.unobserved == {}


async def test_an_exchange_that_fails_while_it_runs_is_counted_by_whoever_sees_it_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("collector.analyst.fold.ExchangeFold.response_seen", broken)
    desk = Desk()
    desk.take(*exchange(1)[:-1])
    assert desk.analyst.summary().totals.unobserved == {}
    desk.take(ExchangeDropped(1))  # which the proxy counts
    desk.take(*exchange(2)[:-1])
    desk.analyst.disconnected(desk.worker)
    assert desk.analyst.summary().totals.unobserved == {"proxy_lost": 1}


def broken(*_: object) -> None:
    raise ZeroDivisionError


async def test_a_dropped_exchange_is_forgotten_and_was_counted_by_the_proxy() -> None:
    desk = Desk()
    desk.take(*exchange(1)[:4], ExchangeDropped(1))
    assert desk.worker.open == {}
    assert (desk.written, desk.analyst.summary().totals.unobserved) == ([], {})


async def test_what_a_dead_worker_had_not_finished_telling_is_lost_and_counted() -> None:
    desk = Desk()
    desk.take(*exchange(1)[:3], *exchange(2)[:5], *exchange(3))
    desk.analyst.disconnected(desk.worker)
    assert desk.analyst.summary().totals.unobserved == {"proxy_lost": 2}
    assert desk.told.total("unobserved_total") == 2.0
    assert desk.analyst.workers == 0


async def test_totals_of_the_proxy_are_counted_as_they_grow_over_the_lives_of_a_worker() -> None:
    desk = Desk()
    desk.take(
        vitals(3, queue_full=1, starved=4), vitals(5, queue_full=2, starved=4), vitals(5, queue_full=2, starved=6)
    )
    desk.take(vitals(2, boot="b2", starved=1))
    assert desk.told.total("accept_failures_total") == 7.0
    assert desk.told.total("forwarded_total") == 7.0
    assert desk.told.total("unobserved_total") == 2.0
    assert desk.told.total("refused_total") == 7.0
    totals = desk.analyst.summary().totals
    assert (totals.forwarded, totals.unobserved, totals.in_flight) == (7, {"queue_full": 2}, 1)


async def test_the_accounts_add_up() -> None:
    desk = Desk()
    desk.judge.may.set()
    desk.take(*exchange(1), *exchange(2, WISH), *exchange(3, route="gone"), *exchange(4)[:2], vitals(4, analyst_down=1))
    await desk.analyst.settle(10.0)
    desk.analyst.disconnected(desk.worker)
    totals = desk.analyst.summary().totals
    assert totals.recorded == 2
    assert Counter(totals.unobserved) == Counter(analysis_failed=1, proxy_lost=1, analyst_down=1)


async def test_labels_of_a_route_may_come_from_an_allowed_header() -> None:
    desk = Desk(AnalysedRoute(RouteFacts("main", "h"), extra=("prod", "nobody"), header_labels=((1, "x-team"),)))
    desk.take(*exchange(1, headers="X-Team: blue\r\n"), *exchange(2))
    extras = {reading.extra for reading in desk.told.readings if reading.metric.endswith("exchanges_total")}
    assert extras == {("prod", "blue"), ("prod", "nobody")}


async def test_a_contract_of_the_route_is_judged_where_the_request_asks_for_nothing() -> None:
    desk = Desk(AnalysedRoute(RouteFacts("main", "h"), contract=b'{"type":"object"}'))
    desk.judge.may.set()
    desk.take(*exchange(1))
    await desk.analyst.settle(10.0)
    assert desk.written[0].validity is not None
    assert desk.written[0].validity.kind == "contract"


async def test_settling_does_not_wait_for_ever() -> None:
    desk = Desk()
    desk.take(*exchange(1, WISH))
    await desk.analyst.settle(0.01)
    assert desk.written == []
    desk.judge.may.set()
    await desk.analyst.settle(10.0)
    assert len(desk.written) == 1


async def test_a_request_that_comes_back_before_its_time_is_counted() -> None:
    throttled = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 20\r\nContent-Type: application/json\r\n\r\n"

    def asked(number: int, at: float, body: bytes, head: bytes) -> list[Event]:
        request = b"POST /v1/chat/completions HTTP/1.1\r\n\r\n"
        return [
            RequestSeen(number, at, 1_787_150_000.0 + at, "main", request),
            BytesSeen(number, at, False, body),
            ResponseSeen(number, at + 0.1, at, None, head),
            BytesSeen(number, at + 0.1, True, b"{}"),
            ExchangeEnded(number, at + 0.2, "complete", 0.001),
        ]

    desk = Desk()
    desk.take(*asked(1, 1.0, PLAIN, throttled), *asked(2, 2.0, b'{"messages":[1]}', throttled))
    assert desk.told.total("early_retries_total") == 0
    desk.take(*asked(3, 3.0, PLAIN, throttled), *asked(4, 60.0, PLAIN, throttled))
    assert desk.told.total("early_retries_total") == 1
    assert [record.status for record in desk.written] == [429] * 4


# ---------------------------------------------------------------- other settings, and another analyst


async def test_a_connected_worker_goes_on_by_its_routes_and_one_that_comes_goes_by_the_new_ones() -> None:
    desk = Desk()
    former = desk.worker
    desk.take(*exchange(1)[:3])
    desk.analyst.change(
        Rules(DIALECTS, Limits()), {"other": AnalysedRoute(RouteFacts("other", "new.example"))}, workers_stay=False
    )
    desk.worker = Worker(desk._acknowledge)
    desk.analyst.connected(desk.worker)
    desk.take(*exchange(1, route="other"))
    desk.analyst.take(former, exchange(1)[3:])
    desk.analyst.take(former, exchange(2))
    assert [record.route for record in desk.written] == ["other", "main", "main"]
    assert desk.told.total("unobserved_total") == 0


async def test_workers_that_stay_go_by_the_new_routes() -> None:
    desk = Desk()
    promised = AnalysedRoute(RouteFacts("main", "api.example"), contract=b'{"type":"object"}')
    desk.analyst.change(Rules(DIALECTS, Limits()), {"main": promised}, workers_stay=True)
    desk.judge.may.set()
    desk.take(*exchange(1))
    await desk.analyst.settle(5.0)
    assert [record.validity is not None for record in desk.written] == [True]


async def test_what_one_analyst_counted_the_next_one_goes_on_from() -> None:
    former, next_one = Desk(), Desk()
    former.take(vitals(10, "ended", analyst_down=2), vitals(4, "lives", queue_full=1))
    former.take(*exchange(1)[:2])
    former.analyst.disconnected(former.worker)
    account = msgspec.json.decode(msgspec.json.encode(former.analyst.account()), type=Account)
    next_one.analyst.go_on_from(account)
    for desk in (former, next_one):
        assert desk.told.total("forwarded_total") == 14
        assert desk.told.total("refused_total") == 14
        assert desk.told.total("unobserved_total") == 4  # one of them with the worker
    next_one.take(vitals(9, "lives", queue_full=3))
    assert next_one.told.total("forwarded_total") == 19
    assert next_one.told.total("unobserved_total") == 6
    assert next_one.analyst.summary().totals.forwarded == 19


async def test_lives_that_ended_long_ago_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LIVES", 10)
    desk = Desk()
    for number in range(100):
        desk.take(vitals(number, f"life{number}", queue_full=1))
    account = desk.analyst.account()
    assert len(account.vitals) == 10
    assert sum(each.forwarded for each in account.vitals) == sum(range(100)) == desk.told.total("forwarded_total")
    assert sum(each.unobserved["queue_full"] for each in account.vitals) == 100
    assert {each.boot for each in account.vitals} >= {f"life{number}" for number in range(91, 100)}


async def test_what_two_workers_of_one_number_carry_is_told_as_one() -> None:
    desk = Desk()
    follower = Worker(lambda batches, ended: None)
    desk.analyst.connected(follower)
    desk.take(vitals(1, "old"))
    desk.analyst.take(follower, [vitals(1, "new")])
    last = [reading for reading in desk.told.readings if reading.metric == "semantic_health_in_flight"][-1]
    assert (last.value, last.labels) == (2.0, ("0",))
