"""When the machine's clock is set, only what states a time of day differs: no rate, gap, window or duration does."""

from __future__ import annotations

import msgspec
import pytest

from collector.analyst.analyst import AnalysedRoute, Analyst, Worker
from collector.analyst.answer import Limits
from collector.analyst.fold import RouteFacts, Rules
from collector.analyst.ledger import Ledger
from collector.app import DIALECTS
from collector.model import BytesSeen, Event, ExchangeEnded, Record, RequestSeen, ResponseSeen
from exporters.prometheus import PrometheusExporter

from .test_analyst import HeldJudge, NoScorer

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
FRAME = b'data: {"model":"m","choices":[{"index":0,"delta":{"content":" word"}}]}\n\n'
LAST = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
DAY = 86_400.0
WALL = 1_787_150_000.0


class SetClock:
    """Monotonic time that passes, and a wall clock that is set now and then."""

    def __init__(self) -> None:
        self.now = 100.0
        self.set_by = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return WALL + self.now + self.set_by


def stream(number: int, clock: SetClock, step: float) -> list[Event]:
    """One stream of five frames, in whose middle the clock is set by so many seconds; the clock goes to its end."""
    told: list[Event] = [
        RequestSeen(number, clock.now, clock.wall(), "main", b"POST /v1/chat/completions HTTP/1.1\r\n\r\n"),
        BytesSeen(number, clock.now, False, b'{"model":"m","stream":true,"messages":[]}'),
        ResponseSeen(number, clock.now + 0.1, clock.now, None, HEAD),
    ]
    for place in range(5):
        clock.now += 0.02 * (1 + place % 2)
        if place == 2:
            clock.set_by += step
        told.append(BytesSeen(number, clock.now, True, FRAME))
    told += [BytesSeen(number, clock.now, True, LAST), ExchangeEnded(number, clock.now, "complete", 0.001)]
    return told


def observed(step: float) -> tuple[bytes, list[Record]]:
    """/metrics and the records after streams over some minutes, in each of which the clock is set."""
    clock, records = SetClock(), list[Record]()
    exporter = PrometheusExporter((), 300.0, 5000, clock)
    route = AnalysedRoute(RouteFacts("main", "api.example"))
    analyst = Analyst(
        Rules(DIALECTS, Limits()), {"main": route}, exporter, Ledger(100), records.append, HeldJudge(), NoScorer(),
        clock,
    )  # fmt: skip
    worker = Worker(lambda batches, ended: None)
    analyst.connected(worker)
    for number in range(1, 21):
        analyst.take(worker, stream(number, clock, step if number % 2 else -step / 2))
        clock.now += 20.0
    return exporter.render("")[0], records


@pytest.mark.parametrize("step", [DAY, -DAY, 0.03, -0.03])
def test_a_clock_that_is_set_changes_no_metric_and_nothing_of_a_record_but_its_beginning(step: float) -> None:
    metrics, records = observed(step)
    steady_metrics, steady_records = observed(0.0)
    assert metrics == steady_metrics
    assert b"semantic_health_stream_continuity_index_seconds_observations" in metrics
    assert [record.started_at for record in records] != [record.started_at for record in steady_records]
    assert [msgspec.structs.replace(record, started_at="") for record in records] == [
        msgspec.structs.replace(record, started_at="") for record in steady_records
    ]
    assert records[0].timing.chunk_gaps is not None
    assert records[0].timing.chunk_gaps.count == 4
