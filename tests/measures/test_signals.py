"""What does the upstream say of its limits, its load and its phases?"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from collector.labels import place_of
from collector.measures.signals import measure, warn
from collector.model import (
    ErrorFact,
    Exchange,
    RateLimit,
    RequestFacts,
    UpstreamFacts,
)

from .records import RECORD, Heard


def read(arrived: float | None = 1000.0, **facts: Any) -> dict[tuple[str, ...], float]:
    found = {}
    record = msgspec.structs.replace(RECORD, **facts)
    heard = Heard(place_of(record))
    measure(record, arrived, heard)
    for reading in heard.readings:
        found[reading.metric.removeprefix("semantic_health_"), *reading.labels[1:]] = reading.value
    return found


def test_a_limit_is_stated_with_its_times() -> None:
    assert read(rate_limits=(RateLimit("tokens", "minute", 100.0, 0.0, None, 30.0),)) == {
        ("rate_limit_limit", "openai", "tokens", "minute"): 100.0,
        ("rate_limit_remaining", "openai", "tokens", "minute"): 0.0,
        ("rate_limit_observed_timestamp_seconds", "openai", "tokens", "minute"): 1000.0,
        ("rate_limit_reset_timestamp_seconds", "openai", "tokens", "minute"): 1030.0,
    }


def test_what_a_limit_does_not_say_is_not_stated() -> None:
    assert read(rate_limits=(RateLimit("requests", limit=5.0, reset_after=3.0),), arrived=None, provider=None) == {
        ("rate_limit_limit", "unknown", "requests", "unknown"): 5.0
    }


@pytest.mark.parametrize("status", [429, 503, 529])
def test_throttling_is_an_error_that_says_come_back_later(status: int) -> None:
    error = ErrorFact("x", None, "rate_limited", "upstream", "gateway", False)
    assert read(status=status, error=error) == {("throttled_total", "upstream", "gateway", "rate_limited"): 1.0}
    unnamed = msgspec.structs.replace(error, limiter=None)
    assert read(status=status, error=unnamed) == {("throttled_total", "upstream", "unknown", "rate_limited"): 1.0}


def test_a_retry_hint_on_a_success_is_no_throttling() -> None:
    assert read(status=200, retry_after=30.0) == {}
    assert read(status=500, error=ErrorFact(None, None, "server_error", "upstream", None, False)) == {}


def test_load_phases_and_caches_are_stated() -> None:
    upstream = UpstreamFacts(model_load=0.0, kv_cache_hit_ratio=0.7, phases={"queue": 0.01}, processing=0.4)
    assert read(upstream=upstream) == {
        ("model_load_ratio", "m-1"): 0.0,
        ("upstream_phase_seconds", "m-1", "queue"): 0.01,
        ("upstream_phase_seconds", "m-1", "processing"): 0.4,
        ("kv_cache_hit_ratio", "m-1", "prefill"): 0.7,
    }
    assert upstream.phases == {"queue": 0.01}


def test_new_limits_and_what_will_go_away_are_counted() -> None:
    def told(**notes: Any) -> list[tuple[str, tuple[str, ...], float]]:
        heard = Heard()
        warn(Exchange(RECORD, RequestFacts(), (), (), 0.0, 0.0, **notes), heard)
        return [(each.metric.removeprefix("semantic_health_"), each.labels, each.value) for each in heard.readings]

    assert told() == []
    assert told(unknown_headers=("x-ratelimit-mood",), is_deprecated=True) == [
        ("unknown_headers_total", ("main", "x-ratelimit-mood"), 1.0), ("deprecations_total", ("main", "m-1"), 1.0),
    ]  # fmt: skip
