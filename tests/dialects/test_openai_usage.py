"""What counts of tokens leave out, and the times told beside them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from collector.dialects.openai_usage import (
    Account,
    CompletionUsage,
    PerfMetrics,
    TimeInfo,
    Timings,
    phases_of,
)
from collector.model import Headers, RequestHead, Usage


def normal(usage: dict[str, Any], host: str = "h", hint: str | None = None) -> Usage:
    account = Account(RequestHead("POST", "/v1/chat/completions", host, Headers(), hint))
    return account.normal(account.take(msgspec.convert(usage, CompletionUsage)))


def counts(prompt: int, made: int, total: int | None, thought: int | None) -> dict[str, Any]:
    details = {"reasoning_tokens": thought}
    return {
        "prompt_tokens": prompt,
        "completion_tokens": made,
        "total_tokens": total,
        "completion_tokens_details": details,
    }


@pytest.mark.parametrize(
    ("usage", "output"),
    [
        (counts(10, 50, 60, 40), 50),  # OpenAI: inside
        (counts(10, 2, 37, 25), 27),  # xAI: beside, in the total only
        (counts(10, 14, 24, 112), 126),  # beside, and in no sum: it could not be inside
        (counts(10, 14, None, 14), 14),
        (counts(10, 14, 999, 5), 14),  # a total that fits neither way proves nothing
        (counts(10, 0, 10, 0), 0),
    ],
)
def test_reasoning_is_inside_the_output_however_it_is_counted(usage: dict[str, Any], output: int) -> None:
    assert normal(usage).output_tokens == output


def test_googles_front_ends_count_thoughts_in_the_total_only() -> None:
    usage = {"prompt_tokens": 35, "completion_tokens": 12, "total_tokens": 109}
    assert normal(usage, "generativelanguage.googleapis.com").output_tokens == 74
    assert normal(usage, hint="gcp.gemini").output_tokens == 74
    assert normal(usage).output_tokens == 12


def test_the_last_usage_holds() -> None:
    account = Account()
    account.take(msgspec.convert(counts(10, 2, 37, 25), CompletionUsage))
    told = account.take(msgspec.convert(counts(10, 50, 60, 40), CompletionUsage))
    assert account.normal(told).output_tokens == 50


def test_phases_are_seconds_whoever_tells_them() -> None:
    groq = CompletionUsage(queue_time=0.1, prompt_time=0.2, completion_time=0.3, total_time=0.6)
    every = (("queue", 0.1), ("prefill", 0.2), ("decode", 0.3), ("total", 0.6))
    assert phases_of(groq) == phases_of(None, None, TimeInfo(0.1, 0.2, 0.3, 0.6)) == every
    assert phases_of(CompletionUsage(time_to_first_token_ms=59.0)) == (("first_token", pytest.approx(0.059)),)
    assert phases_of(None, Timings(50.0, 400.0)) == (("prefill", pytest.approx(0.05)), ("decode", pytest.approx(0.4)))
    assert phases_of(CompletionUsage(queue_time=-1.0, total_time=float("nan"))) == phases_of(None) == ()


@pytest.mark.parametrize(
    ("told", "phases"),
    [
        ({"server-time-to-first-token": 0.125, "server-processing-time": "0.5"},
         (("first_token", 0.125), ("total", 0.5))),
        ({"prefill-duration": 0.25, "prefill-queue-duration": 0, "generation-queue-duration": "0.0"},
         (("prefill", 0.25), ("queue", 0.0), ("decode_queue", 0.0))),
        ({"server-time-to-first-token": 150, "server-processing-time": "2000"}, ()),  # of no known unit
        ({"server-time-to-first-token": "-0.5", "prefill-duration": "soon", "server-processing-time": -0.5}, ()),
        ({"server-time-to-first-token": "1e9", "prefill-duration": 1e300}, ()),
    ],
)  # fmt: skip
def test_fireworks_times_are_seconds_where_that_is_sure(told: Any, phases: tuple[tuple[str, float], ...]) -> None:
    assert phases_of(None, perf=msgspec.convert(told, PerfMetrics)) == phases
