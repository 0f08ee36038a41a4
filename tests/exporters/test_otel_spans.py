"""Spans and log records as they are on the wire."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource

from collector import model
from collector.catalogue import FINDING_RULES
from collector.model import TraceParent
from exporters.otel_attributes import Server, Told, log_records
from exporters.otel_conversion import scope_of
from exporters.otel_spans import SpanConversion

from .told import ENDED, PARENT, STARTED, facts

SPAN_ID = 0x00F067AA0BA902B7


def conversion(newer: bool = False) -> SpanConversion:
    servers = {"r": Server("api.openai.com", 443)}
    return SpanConversion(Resource({"service.name": "s"}), scope_of("1.2.3", newer), servers, newer=newer)


def told(parent: TraceParent | None = PARENT, is_sampled: bool = True, **changes: Any) -> Told:
    return Told(facts(parent, **changes), int(PARENT.trace_id, 16), SPAN_ID, is_sampled)


def span(one: Told, newer: bool = False) -> Any:
    request = encode_spans(list(conversion(newer).spans(one)))
    [found] = request.resource_spans[0].scope_spans[0].spans
    return found


def logs(one: Told, newer: bool = False) -> list[Any]:
    request = encode_logs(list(conversion(newer).logs(one)))
    return list(request.resource_logs[0].scope_logs[0].log_records) if request.resource_logs else []


def value(attributes: Any, name: str) -> Any:
    [found] = [attribute.value for attribute in attributes if attribute.key == name]
    return getattr(found, found.WhichOneof("value"))


def test_a_span_is_a_client_span_under_the_clients_own() -> None:
    found = span(told())
    assert found.name == "chat gpt-4o"
    assert found.kind == found.SPAN_KIND_CLIENT
    assert found.trace_id.hex() == PARENT.trace_id
    assert found.parent_span_id.hex() == PARENT.span_id
    assert found.span_id.hex() == f"{SPAN_ID:016x}"
    assert found.trace_state == "vendor=1"
    assert (found.start_time_unix_nano, found.end_time_unix_nano) == (int(STARTED * 1e9), int(ENDED * 1e9))
    assert found.status.code == found.status.STATUS_CODE_UNSET


def test_a_span_without_a_parent_is_a_root() -> None:
    found = span(told(parent=None))
    assert found.parent_span_id == b""
    assert found.trace_state == ""


def test_a_trace_state_that_does_not_parse_is_left_out() -> None:
    junk = TraceParent(PARENT.trace_id, PARENT.span_id, True, "no pair,UPPER=1,,==")
    assert span(told(parent=junk)).trace_state == ""


@pytest.mark.parametrize("outcome", ["truncated", "error_event", "upstream_error"])
def test_a_failure_is_an_error_with_its_type_and_no_message(outcome: str) -> None:
    found = span(
        told(outcome=outcome, error=model.ErrorFact("overloaded_error", None, "overloaded", "upstream", None, True))
    )
    assert found.status.code == found.status.STATUS_CODE_ERROR
    assert found.status.message == ""
    assert value(found.attributes, "error.type")


def test_a_broken_stream_has_error_for_its_finish_reason() -> None:
    found = span(told(outcome="truncated", finish_reasons=(None,)))
    reasons = value(found.attributes, "gen_ai.response.finish_reasons")
    assert [each.string_value for each in reasons.values] == ["error"]


def test_evaluations_are_events_of_the_span() -> None:
    events = span(told()).events
    assert {event.name for event in events} == {"gen_ai.evaluation.result"}
    scores = {
        value(event.attributes, "gen_ai.evaluation.name"): value(event.attributes, "gen_ai.evaluation.score.value")
        for event in events
    }
    assert scores == {
        "semantic_health_model_output_validity_rate": 0.0,
        "semantic_health_context_relevance": 0.8,
        "semantic_health_answer_relevance": 0.7,
        "semantic_health_groundedness": 0.6,
    }
    assert value(events[0].attributes, "gen_ai.evaluation.score.label") == "schema_violation"


def test_findings_are_log_records_in_the_spans_context() -> None:
    stalls, region = logs(told())
    assert (stalls.severity_text, stalls.severity_number) == ("WARN", 13)
    assert (region.severity_text, region.severity_number) == ("ERROR", 17)
    assert stalls.event_name == "semantic_health.finding"
    assert stalls.body.string_value == "The stream stood still for longer than the stall threshold."
    assert (stalls.trace_id.hex(), stalls.span_id.hex()) == (PARENT.trace_id, f"{SPAN_ID:016x}")
    assert stalls.flags == 1
    assert stalls.time_unix_nano == int(ENDED * 1e9)
    assert value(stalls.attributes, "semantic_health.finding.longest_gap") == 1.5


def test_a_finding_of_an_unsampled_exchange_says_that_there_is_no_span() -> None:
    assert {log.flags for log in logs(told(is_sampled=False))} == {0}


def test_by_the_newer_conventions_evaluations_are_log_records_too() -> None:
    names = [log.event_name for log in logs(told(), newer=True)]
    assert names == ["semantic_health.finding"] * 2 + ["gen_ai.evaluation.result"] * 4


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize(
    "changes", [{}, {"findings": ()}, {"validity": None}, {"relevance": model.Relevance(False, "no_query")}]
)
def test_log_records_are_as_many_as_were_weighed(changes: Any, newer: bool) -> None:
    one = told(**changes)
    assert len(logs(one, newer)) == log_records(one.facts, newer=newer)


@pytest.mark.parametrize("rule", FINDING_RULES, ids=lambda rule: rule.id)
def test_every_rule_of_the_catalogue_can_be_told(rule: Any) -> None:
    [found] = logs(told(findings=(model.Finding(rule.id, rule.severity, dict.fromkeys(rule.facts, 1.0)),)))
    assert found.body.string_value == rule.saw
    assert value(found.attributes, "semantic_health.finding.rule") == rule.id


def test_the_schema_is_of_the_names_that_are_used() -> None:
    older, newer = (encode_spans(list(conversion(newer).spans(told()))) for newer in (False, True))
    assert older.resource_spans[0].scope_spans[0].schema_url == "https://opentelemetry.io/schemas/1.41.0"
    assert newer.resource_spans[0].scope_spans[0].schema_url == "https://opentelemetry.io/schemas/gen-ai/1.42.0"
