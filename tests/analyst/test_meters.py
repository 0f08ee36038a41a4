"""What exchanges tell through meters is what their readings tell one by one, whenever somebody looks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from collector.analyst.accumulate import digest_of
from collector.analyst.analyst import AnalysedRoute, Analyst, Worker
from collector.analyst.fold import RouteFacts, Rules
from collector.analyst.ledger import Ledger
from collector.app import DIALECTS
from collector.labels import reading_of
from collector.model import (
    ANY_PROVIDER,
    BytesSeen,
    Event,
    ExchangeEnded,
    Objective,
    Place,
    Price,
    Rates,
    RequestSeen,
    ResponseSeen,
)
from exporters.prometheus import PrometheusExporter

from .test_analyst import HeldJudge, NoScorer

ASKED = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Why?"}]}).encode()
HEADERS = (
    "x-ratelimit-limit-requests: 100", "x-ratelimit-remaining-requests: 7", "x-ratelimit-reset-requests: 6s",
    "x-ratelimit-remaining-tokens: 5", "x-ratelimit-reset-tokens: soon", "x-model-load: 0.4", "x-model-load: 0",
    "openai-processing-ms: 12", "server-timing: queue;dur=3, decode;dur=5", "x-ratelimit-of-new-kind: 3",
    "deprecation: true", 'x-trace-detail: {"kv_cache_hit_rate": 0.5, "prefill_time_ms": 20}', "retry-after: 1",
)  # fmt: skip
USAGES: tuple[dict[str, Any] | None, ...] = (
    None,
    {"prompt_tokens": 6, "completion_tokens": 4},
    {"prompt_tokens": 9000, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 10}},
    {"prompt_tokens": 4, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 40}},
    {"completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 1}},
)
PARENTS = ("", f"traceparent: 00-{'a' * 32}-{'b' * 16}-01\r\n", f"traceparent: 00-{'a' * 32}-{'b' * 16}-00\r\n")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1.7e9 + self.now


class OneByOne(PrometheusExporter):
    """Takes every reading by itself, and knows none again."""

    def meters(self, place: Place | None, extra: tuple[str, ...] = (), trace_id: str | None = None) -> Any:
        self._meters.clear()
        return super().meters(None, extra, trace_id) if place is None else Each(self, place, extra, trace_id)


class Each(dict[str | tuple[str, ...], Callable[[float], None]]):
    def __init__(self, exporter: OneByOne, place: Place, extra: tuple[str, ...], trace_id: str | None) -> None:
        super().__init__()
        self._exporter, self._place, self._extra, self._trace_id = exporter, place, extra, trace_id

    def __missing__(self, series: str | tuple[str, ...]) -> Callable[[float], None]:
        def take(value: float) -> None:
            self._exporter.record_all((reading_of(self._place, series, value),), self._extra, self._trace_id)

        return take


class Desk:
    def __init__(self, exporter: type[PrometheusExporter], max_series: int) -> None:
        self.clock = Clock()
        self.exporter = exporter(("team",), 300.0, max_series, self.clock)
        promised = (Objective("fast", "duration", 0.9, at_most=0.5),)
        priced = {ANY_PROVIDER: {"m": Price(Rates(1.0, 0.5, 1.5, 2.0, 3.0))}}
        self.analyst = Analyst(
            Rules(DIALECTS, new_digest=digest_of("none", b""), prices=(priced,)),
            {
                "a": AnalysedRoute(RouteFacts("a", "api.openai.com"), extra=("red",)),
                "b": AnalysedRoute(RouteFacts("b", "h"), extra=("blue",), objectives=promised),
            },
            self.exporter,
            Ledger(10),
            lambda record: None,
            HeldJudge(),
            NoScorer(),
            self.clock,
        )
        self.worker = Worker(lambda batches, ended: None)

    def play(self, told: Sequence[list[Event]], *, is_watched: bool = False) -> None:
        for events in told:
            self.clock.now += 1.0
            self.analyst.take(self.worker, events)
            if is_watched:
                self.exporter.render()


@st.composite
def exchanges(draw: st.DrawFn) -> list[list[Event]]:
    """Several exchanges of a few kinds, each of them several times with other times."""
    kinds = draw(st.lists(st.tuples(
        st.sampled_from("ab"), st.sampled_from((200, 200, 200, 404, 429, 503)), st.sets(st.sampled_from(HEADERS)),
        st.sampled_from(USAGES), st.sampled_from(("stop", "length", "content_filter")), st.sampled_from(("m", "n")),
        st.sampled_from(PARENTS),
    ), min_size=1, max_size=3))  # fmt: skip
    told = []
    for number in range(draw(st.integers(2, 9))):
        route, status, headers, usage, finish, model, parent = kinds[draw(st.integers(0, len(kinds) - 1))]
        message = {"role": "assistant", "content": "Because."}
        answer = {"model": model, "choices": [{"index": 0, "message": message, "finish_reason": finish}]}
        body = json.dumps(answer if usage is None else answer | {"usage": usage}).encode()
        lines = "\r\n".join(("content-type: application/json", *sorted(headers)))
        at = draw(st.floats(0.0, 5.0))
        request = f"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\n{parent}\r\n".encode()
        told.append([
            RequestSeen(number, 0.0, draw(st.sampled_from((0.0, 1.7e9))), route, request),
            BytesSeen(number, 0.0, False, ASKED),
            ResponseSeen(number, at, 0.0, None, f"HTTP/1.1 {status} X\r\n{lines}\r\n\r\n".encode()),
            BytesSeen(number, at, True, body),
            ExchangeEnded(number, at + 0.1, "complete", draw(st.floats(0.0, 0.01))),
        ])  # fmt: skip
    return told


@given(exchanges(), st.sampled_from((100, 700, 5000)), st.booleans())
@settings(max_examples=150, deadline=None)
def test_meters_show_what_readings_show_one_by_one(told: list[list[Event]], max_series: int, is_watched: bool) -> None:
    metered, alone = Desk(PrometheusExporter, max_series), Desk(OneByOne, max_series)
    for _ in range(2):
        metered.play(told, is_watched=is_watched)
        alone.play(told)
        for accept in ("", "application/openmetrics-text; version=1.0.0"):
            assert metered.exporter.render(accept) == alone.exporter.render(accept)
    samples = [[list(family.samples) for family in desk.exporter.registry.collect()] for desk in (metered, alone)]
    assert samples[0] == samples[1]


def test_what_was_met_before_is_taken_without_care(monkeypatch: Any) -> None:
    desk = Desk(PrometheusExporter, 5000)
    body = json.dumps({
        "model": "m", "choices": [{"index": 0, "message": {"content": "So."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }).encode()  # fmt: skip
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-ratelimit-remaining-requests: 7\r\n\r\n"
    asked = b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\n\r\n"
    told: list[list[Event]] = [
        [
            RequestSeen(number, 0.0, 1.7e9, "a", asked),
            ResponseSeen(number, 0.2, 0.0, None, head),
            BytesSeen(number, 0.2, True, body),
            ExchangeEnded(number, 0.3, "complete", 0.001),
        ]
        for number in range(5)
    ]
    desk.play(told[:2])
    [meters] = [each for (place, _, _), each in desk.exporter._meters.items() if place is not None]
    monkeypatch.setattr(meters, "_with_care", None)
    desk.play(told[2:])
    page = desk.exporter.render()[0].decode()
    of = 'model="m",operation="chat"'
    by = 'provider="openai",route="a",team="red"'
    assert f'semantic_health_exchanges_total{{{of},outcome="completed",{by}}} 5.0\n' in page
    assert f"semantic_health_operation_duration_seconds_count{{{of},{by}}} 5.0\n" in page
    assert 'semantic_health_tokens_total{model="m",route="a",team="red",type="input"} 15.0\n' in page
