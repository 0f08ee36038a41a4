"""Records in OpenTelemetry's words: names, errors, finish reasons, evaluations and attributes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from collector import model
from collector.catalogue import ERROR_KINDS, OUTCOMES
from exporters.otel_attributes import (
    Evaluation,
    Server,
    error_type,
    evaluations,
    finding_attributes,
    finish_reasons,
    span_attributes,
    span_name,
)

from .told import a_record, facts

SERVER = Server("api.openai.com", 443)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "chat gpt-4o"),
        ({"request_model": None}, "chat"),
        ({"operation": None}, "POST"),
        ({"operation": None, "method": "other"}, "other"),
    ],
)
def test_a_span_is_named_by_operation_and_requested_model(changes: dict[str, Any], name: str) -> None:
    assert span_name(a_record(**changes)) == name


def failed(type_: str | None, code: str | None, kind: str = "overloaded") -> model.ErrorFact:
    return model.ErrorFact(type_, code, kind, "upstream", None, False)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"outcome": "incomplete"}, None),
        ({"outcome": "blocked"}, None),
        ({"outcome": "client_disconnect"}, None),
        ({"outcome": "truncated"}, "truncated"),
        ({"outcome": "upstream_error", "status": 529, "error": failed("overloaded_error", None)}, "overloaded_error"),
        ({"outcome": "upstream_error", "status": 429, "error": failed("requests", "rate_limit")}, "rate_limit"),
        ({"outcome": "upstream_error", "status": 503, "error": failed(None, None)}, "503"),
        ({"outcome": "upstream_error", "status": None, "error": failed("upstream_closed", None)}, "upstream_closed"),
        ({"outcome": "error_event", "status": 200, "error": failed(None, None)}, "overloaded"),
        ({"outcome": "error_event", "status": 200, "error": None}, "_OTHER"),
    ],
)
def test_an_error_has_the_providers_word_else_the_status_else_ours(changes: Any, expected: str | None) -> None:
    assert error_type(a_record(**changes)) == expected


@pytest.mark.parametrize(
    ("outcome", "told", "expected"),
    [
        ("completed", ("stop", "length"), ("stop", "length")),
        ("completed", ("stop", None), ()),
        ("completed", (), ()),
        ("upstream_error", (), ()),
        ("truncated", (), ("error",)),
        ("truncated", ("stop", None), ("stop", "error")),
        ("error_event", (None,), ("error",)),
        ("client_disconnect", (None, None), ("error", "error")),
    ],
)
def test_a_finish_reason_that_was_due_and_did_not_come_is_error(outcome: str, told: Any, expected: Any) -> None:
    assert finish_reasons(a_record(outcome=outcome, finish_reasons=told)) == expected


def test_validity_and_the_scores_there_are_become_evaluations() -> None:
    assert evaluations(a_record()) == (
        Evaluation("semantic_health_model_output_validity_rate", 0.0, "schema_violation"),
        Evaluation("semantic_health_context_relevance", 0.8),
        Evaluation("semantic_health_answer_relevance", 0.7),
        Evaluation("semantic_health_groundedness", 0.6),
    )
    unchecked = model.Validity(False, None, "truncated", "json", None, ())
    unscored = model.Relevance(False, "no_context", answer_relevance=0.5)
    assert evaluations(a_record(validity=unchecked, relevance=unscored)) == (
        Evaluation("semantic_health_model_output_validity_rate", error="truncated"),
        Evaluation("semantic_health_answer_relevance", 0.5),
    )
    assert evaluations(a_record(validity=None, relevance=model.Relevance(False, "no_query"))) == ()


def test_a_span_tells_the_conventions_attributes_and_the_measurements() -> None:
    said = span_attributes(facts(), SERVER, newer=False)
    conventional = {name: value for name, value in said.items() if not name.startswith("semantic_health.")}
    assert conventional == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 300,
        "gen_ai.output.type": "json",
        "gen_ai.response.model": "gpt-4o-2024-08-06",
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.response.time_to_first_chunk": 0.2,
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 34,
        "gen_ai.usage.cache_read.input_tokens": 5,
        "gen_ai.usage.cache_creation.input_tokens": 6,
        "gen_ai.usage.reasoning.output_tokens": 7,
        "server.address": "api.openai.com",
        "server.port": 443,
        "http.request.method": "POST",
        "http.response.status_code": 200,
    }
    ours = {name.removeprefix("semantic_health."): value for name, value in said.items() if name not in conventional}
    assert ours == {
        "exchange.id": "e1", "route": "r", "dialect": "openai.chat", "transport": "sse", "outcome": "completed",
        "retry_attempt": 1, "client.request_id": "c-1", "time_to_first_token": 0.25, "time_per_output_token": 0.06,
        "stream.gap_stddev": 0.02, "stream.longest_gap": 0.15, "stream.stalls": 0, "client_blocked": 0.0,
        "added": 0.0001, "validity.result": "schema_violation", "validity.valid": False, "relevance.context": 0.8,
        "relevance.answer": 0.7, "relevance.groundedness": 0.6, "cost_usd": 0.002,
        "findings": ("stream_stalls", "wrong_region"), "anomalies": ("usage_missing",), "upstream.request_id": "req_1",
        "upstream.region": "eu", "upstream.model_load": 0.4, "upstream.kv_cache_hit_ratio": 0.9,
        "upstream.cache_hit": True, "upstream.processing": 1.5, "upstream.phase.queue": 0.1,
        "rate_limit.requests.minute.remaining": 7.0, "rate_limit.tokens.remaining": 0.0,
    }  # fmt: skip


def test_names_of_the_conventions_are_those_of_the_semconv_package() -> None:
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    said = {name for name in span_attributes(facts(), SERVER, newer=False) if name.startswith("gen_ai.")}
    assert len(said) > 10
    assert said <= known


def test_the_newer_names_differ_where_the_newer_conventions_do() -> None:
    older, newer = (span_attributes(facts(), SERVER, newer=newer) for newer in (False, True))
    assert {name for name in older if name not in newer} == {"gen_ai.usage.cache_creation.input_tokens"}
    assert newer["gen_ai.usage.cache_write.input_tokens"] == 6


def test_what_is_unknown_is_left_out_and_zero_is_told() -> None:
    bare = a_record(
        usage=model.Usage(input_tokens=0), timing=model.Timing(), rate_limits=(), upstream=model.UpstreamFacts(),
        validity=None, relevance=model.Relevance(False, "no_query"), findings=(), anomalies=(), cost_usd=None,
        provider=None, request_model=None, response_model=None, status=None, stream=False, retry_attempt=0,
        client_request_id=None,
    )  # fmt: skip
    said = span_attributes(model.SpanFacts(bare, 0.0, 1.0), None, newer=False)
    assert said == {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 0,
        "http.request.method": "POST",
        "semantic_health.exchange.id": "e1",
        "semantic_health.route": "r",
        "semantic_health.dialect": "openai.chat",
        "semantic_health.transport": "sse",
        "semantic_health.outcome": "completed",
        "semantic_health.retry_attempt": 0,
        "semantic_health.relevance.unscored": "no_query",
    }


def test_a_span_has_a_bounded_number_of_attributes_and_never_a_hash_of_text() -> None:
    many = tuple(model.RateLimit(f"scope{number}", "minute", 1.0, 1.0) for number in range(100))
    said = span_attributes(facts(rate_limits=many), SERVER, newer=False)
    assert len(said) < 80
    assert not [name for name in said if re.search("sha256|arguments|chars|gaps", name)]


def test_a_finding_tells_its_facts_and_where_it_was_made() -> None:
    record = a_record()
    assert finding_attributes(record, record.findings[0]) == {
        "semantic_health.finding.rule": "stream_stalls",
        "semantic_health.finding.severity": "warning",
        "semantic_health.finding.stalls": 2,
        "semantic_health.finding.longest_gap": 1.5,
        "semantic_health.route": "r",
        "semantic_health.exchange.id": "e1",
        "semantic_health.upstream.request_id": "req_1",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.response.model": "gpt-4o-2024-08-06",
    }


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("kind", ERROR_KINDS)
def test_every_outcome_and_kind_of_error_makes_attributes_of_otlps_types(outcome: str, kind: str) -> None:
    said = span_attributes(facts(outcome=outcome, error=failed(None, None, kind)), SERVER, newer=True)
    for value in said.values():
        assert isinstance(value, str | bool | int | float) or all(isinstance(each, str) for each in value)
