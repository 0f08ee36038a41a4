"""Tests of collector.measures.objectives."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from collector.catalogue import SLO_UNJUDGED, SLO_VERDICTS
from collector.labels import place_of
from collector.measures.objectives import Prompt, judged, measure, prompt_of, stated
from collector.model import (
    ChunkGaps,
    ErrorFact,
    FrameCounts,
    Objective,
    Reading,
    Record,
    Relevance,
    ReportedUsage,
    TextFacts,
    Timing,
    UpstreamFacts,
    Usage,
    Validity,
)

from .records import Heard

RECORD = Record(
    id="r",
    started_at=None,
    route="chat",
    method="POST",
    trace_id=None,
    client_request_id=None,
    retry_attempt=None,
    dialect="openai.chat",
    provider="openai",
    operation="chat",
    transport="sse",
    stream=True,
    status=200,
    outcome="completed",
    phase=None,
    request_model="m",
    response_model="m",
    finish_reasons=("stop",),
    usage=None,
    usage_reported=ReportedUsage(),
    text=TextFacts(None, 0),
    correction_ratio=None,
    tool_calls=(),
    error=None,
    frames=FrameCounts(),
    timing=Timing(duration=1.0, first_token=0.2, chunk_gaps=ChunkGaps(2, 0.02, 0.004, 0.03)),
    bytes_in=0,
    bytes_out=0,
    rate_limits=(),
    retry_after=None,
    upstream=UpstreamFacts(),
    validity=None,
    relevance=Relevance(True, context_relevance=0.8, groundedness=0.4),
    findings=(),
    anomalies=(),
)


def record(**changes: object) -> Record:
    return msgspec.structs.replace(RECORD, **changes)


def objective(measure: str, at_most: float | None = None, at_least: float | None = None) -> Objective:
    return Objective("o", measure, 0.9, at_most, at_least)


def error(kind: str) -> ErrorFact:
    return ErrorFact(None, None, kind, "upstream", None, False)


def validity(checked: bool, valid: bool | None) -> Validity:
    return Validity(checked, valid, "valid" if valid else "truncated", "json", None, ())


@pytest.mark.parametrize(
    ("given", "promised", "verdict"),
    [
        (record(), objective("duration", at_most=1.0), "good"),
        (record(), objective("duration", at_most=0.9), "bad"),
        (record(outcome="upstream_error"), objective("duration", at_most=0.9), "not_answered"),
        (record(outcome="client_disconnect"), objective("duration", at_most=0.9), "client_left"),
        (record(), objective("first_token", at_most=0.2), "good"),
        (record(), objective("first_token", at_most=0.1), "bad"),
        (record(outcome="truncated"), objective("first_token", at_most=0.1), "bad"),
        (record(timing=Timing(duration=1.0)), objective("first_token", at_most=0.1), "not_streamed"),
        (record(timing=Timing(), outcome="truncated"), objective("first_token", at_most=0.1), "not_answered"),
        (record(), objective("jitter", at_most=0.005), "good"),
        (record(), objective("jitter", at_most=0.003), "bad"),
        (record(timing=Timing(first_token=0.1)), objective("jitter", at_most=0.003), "too_few_gaps"),
        (record(), objective("validity"), None),
        (record(validity=validity(True, True)), objective("validity"), "good"),
        (record(validity=validity(True, False)), objective("validity"), "bad"),
        (record(validity=validity(False, None)), objective("validity"), "unchecked"),
        (record(), objective("context_relevance", at_least=0.8), "good"),
        (record(), objective("groundedness", at_least=0.5), "bad"),
        (record(), objective("answer_relevance", at_least=0.5), "unscored"),
        (record(dialect="unknown"), objective("groundedness", at_least=0.5), None),
        (record(upstream=UpstreamFacts(kv_cache_hit_ratio=0.95)), objective("kv_cache_hit", at_least=0.95), "good"),
        (record(upstream=UpstreamFacts(kv_cache_hit_ratio=0.94)), objective("kv_cache_hit", at_least=0.95), "bad"),
        (record(), objective("kv_cache_hit", at_least=0.95), "not_stated"),
        (record(outcome="upstream_error"), objective("kv_cache_hit", at_least=0.95), None),
        (record(), objective("errors"), "good"),
        (record(outcome="truncated"), objective("errors"), "bad"),
        (record(outcome="error_event", error=error("overloaded")), objective("errors"), "bad"),
        (record(outcome="upstream_error", error=error("server_error")), objective("errors"), "bad"),
        (record(outcome="upstream_error", error=error("overloaded")), objective("errors"), "bad"),
        (record(outcome="upstream_error", error=error("rate_limited")), objective("errors"), "client_fault"),
        (record(outcome="upstream_error", error=error("auth")), objective("errors"), "client_fault"),
        (record(outcome="client_disconnect"), objective("errors"), "client_left"),
    ],
)
def test_an_exchange_is_judged_against_an_objective(given: Record, promised: Objective, verdict: str | None) -> None:
    assert judged(given, promised) == verdict
    assert verdict is None or verdict in SLO_VERDICTS + SLO_UNJUDGED


def told_by(given: Record, promised: Sequence[Objective]) -> list[Reading]:
    heard = Heard(place_of(given))
    measure(given, promised, heard)
    return heard.readings


def test_each_objective_that_applies_gives_one_reading() -> None:
    promised = (objective("errors"), objective("validity"), objective("answer_relevance", at_least=0.5))
    told = [(reading.metric, reading.labels) for reading in told_by(record(), promised)]
    assert told == [
        ("semantic_health_prompts_total", ("chat", "short_prompt", "estimated")),
        ("semantic_health_slo_events_total", ("chat", "o", "good")),
        ("semantic_health_slo_unjudged_total", ("chat", "o", "unscored")),
    ]


def test_the_objective_itself_is_a_metric() -> None:
    (reading,) = stated("chat", (objective("errors"),))
    assert (reading.metric, reading.value, reading.labels) == (
        "semantic_health_slo_objective_ratio",
        0.9,
        ("chat", "o"),
    )


@pytest.mark.parametrize(
    ("given", "prompt"),
    [
        (record(usage=Usage(input_tokens=100), bytes_in=80_000), Prompt("short_prompt", "reported")),
        (record(usage=Usage(input_tokens=101)), Prompt("long_context", "reported")),
        (record(usage=Usage(output_tokens=5), bytes_in=400), Prompt("short_prompt", "estimated")),
        (record(bytes_in=404), Prompt("long_context", "estimated")),
        (record(dialect="unknown", bytes_in=404), None),
    ],
)
def test_the_class_of_a_prompt_is_by_reported_tokens_else_by_a_quarter_of_the_bytes(
    given: Record, prompt: Prompt | None
) -> None:
    assert prompt_of(given, 100) == prompt


def test_an_objective_of_one_class_of_prompts_says_nothing_of_the_other() -> None:
    promised = [Objective(name, "errors", 0.9, prompts=name) for name in ("short_prompt", "long_context")]
    for tokens, name in ((10, "short_prompt"), (5000, "long_context")):
        told = told_by(record(usage=Usage(input_tokens=tokens)), promised)
        judged_of = [each.labels[1] for each in told if each.metric == "semantic_health_slo_events_total"]
        assert judged_of == [name]


def test_thresholds_and_the_budget_are_metrics_too() -> None:
    told = stated("chat", (objective("jitter", at_most=0.015), objective("groundedness", at_least=0.6)), 2.5)
    assert [(each.metric, each.value, each.labels) for each in told if "ratio" not in each.metric] == [
        ("semantic_health_slo_threshold", 0.015, ("chat", "o", "jitter")),
        ("semantic_health_slo_threshold", 0.6, ("chat", "o", "groundedness")),
        ("semantic_health_cost_budget_usd_per_hour", 2.5, ("chat",)),
    ]
