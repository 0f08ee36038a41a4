"""Gemini's interactions, streamed and whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.dialects.gemini_interactions import GeminiInteractions, InteractionReader
from collector.model import (
    Delta,
    Expectation,
    Finish,
    Frame,
    Headers,
    ReportedUsage,
    RequestHead,
    ResponseHead,
    TextPiece,
    ToolPiece,
    Usage,
)

from .wires import exchange, sse

PATH = "/v1beta/interactions"
COUNTS = {"total_input_tokens": 9, "total_output_tokens": 2, "total_thought_tokens": 5, "total_cached_tokens": 0}


def read(*bodies: Any, by: InteractionReader | None = None) -> list[Delta]:
    by = by if by is not None else InteractionReader(ResponseHead(200, Headers()))
    return [delta for body in bodies if (delta := by.read(Frame(json.dumps(body).encode()))) is not None]


def event(kind: str, **more: Any) -> dict[str, Any]:
    return {"event_type": kind, **more}


STREAM = (
    event("interaction.created", interaction={"status": "in_progress", "model": "g"}),
    event("interaction.status_update", status="in_progress"),
    event("step.start", index=0, step={"type": "thought"}),
    event("step.delta", index=0, delta={"type": "thought_summary", "content": {"type": "text", "text": "hm"}}),
    event("step.delta", index=0, delta={"type": "thought_signature", "signature": "x"}),
    event("step.start", index=1, step={"type": "model_output"}),
    event("step.delta", index=1, delta={"type": "text", "text": "Hi"}, metadata={"usage": {"total_input_tokens": 9}}),
    event("step.start", index=2, step={"type": "function_call", "name": "f", "arguments": {}}),
    event("step.delta", index=2, delta={"type": "arguments_delta", "partial_arguments": '{"a":1}'}),
    event("step.stop", index=2),
    event("interaction.completed", interaction={"status": "completed", "model": "g", "usage": COUNTS}),
)


def test_a_stream_is_its_steps_and_then_its_status() -> None:
    deltas = read(*STREAM)
    assert [delta.reasoning for delta in deltas if delta.reasoning] == [(TextPiece(0, "hm"),)]
    assert [delta.text for delta in deltas if delta.text] == [(TextPiece(0, "Hi"),)]
    assert [piece for delta in deltas for piece in delta.tools] == [
        ToolPiece(0, 0, "f"),
        ToolPiece(0, 0, None, '{"a":1}'),
    ]
    assert [delta.terminal for delta in deltas] == [False] * 10 + [True]
    assert (deltas[-1].finish, deltas[-1].usage) == ((Finish(0, "completed"),), ReportedUsage(9, 2, 0, None, 5))


def test_a_whole_interaction_is_all_of_it_at_once() -> None:
    (delta,) = read(
        {
            "status": "incomplete",
            "model": "g",
            "usage": COUNTS,
            "object": "interaction",
            "steps": [
                {"type": "thought", "summary": [{"type": "text", "text": "hm"}]},
                {"type": "model_output", "content": [{"type": "text", "text": "a"}, {"type": "image", "data": "x"}]},
                {"type": "function_call", "name": "f", "arguments": {}},
            ],
        }
    )
    assert (delta.text, delta.reasoning) == ((TextPiece(0, "a"),), (TextPiece(0, "hm"),))
    assert delta.tools == (ToolPiece(0, 0, "f", "{}"),)
    assert (delta.finish, delta.choices, delta.model) == ((Finish(0, "incomplete"),), 1, "g")


def test_the_first_form_of_the_api_is_read_too() -> None:
    (whole,) = read({"status": "completed", "outputs": [{"type": "text", "text": "a"}]})
    assert whole.text == (TextPiece(0, "a"),)
    deltas = read(
        event("content.start", index=0, content={"type": "text"}),
        event("content.delta", index=0, delta={"type": "text", "text": "b"}),
        event("interaction.complete", interaction={"status": "completed"}),
    )
    assert [delta.text for delta in deltas] == [(), (TextPiece(0, "b"),), ()]
    assert deltas[2].terminal


def test_thoughts_are_counted_into_the_output() -> None:
    by = InteractionReader(ResponseHead(200, Headers()))
    read({"status": "completed", "usage": {**COUNTS, "total_tool_use_tokens": 3}}, by=by)
    assert by.normal_usage(ReportedUsage(9, 2, 0, None, 5)) == Usage(12, 7, 0, None, 5)


def test_errors_come_as_events_as_failures_and_as_answers() -> None:
    error = {"code": "overloaded", "message": "later"}
    (delta,) = read(event("error", error=error))
    assert delta.error is not None
    assert (delta.error.code, delta.error.kind) == ("overloaded", "overloaded")
    record = exchange(
        PATH, sse(event("interaction.failed", interaction={"status": "failed"})), kind="text/event-stream"
    ).record
    assert (record.outcome, record.finish_reasons) == ("error_event", ("failed",))
    record = exchange(PATH, b'{"error":{"code":400,"status":"INVALID_ARGUMENT"}}', status=400).record
    assert record.error is not None
    assert record.error.type == "INVALID_ARGUMENT"


def test_a_stream_makes_a_record_and_its_marker_is_no_data() -> None:
    named = [(each["event_type"], each) for each in STREAM]
    record = exchange(PATH, sse(*named, ("done", b"[DONE]"), names=True), kind="text/event-stream").record
    assert (record.dialect, record.outcome, record.frames.data, record.frames.done_marker) == (
        "gemini.interactions",
        "completed",
        11,
        True,
    )
    cut = exchange(PATH, sse(*named[:8], names=True), kind="text/event-stream").record
    assert cut.outcome == "truncated"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"response_format": {"type": "object"}}, Expectation("json_schema", b'{"type": "object"}')),
        (
            {"response_format": {"type": "text", "mime_type": "application/json", "schema": {"type": "array"}}},
            Expectation("json_schema", b'{"type": "array"}'),
        ),
        ({"response_format": {"type": "text", "mime_type": "application/json"}}, Expectation("json")),
        ({"response_format": {"type": "text"}}, None),
        ({"response_mime_type": "application/json"}, Expectation("json")),
        ({}, None),
        ({"response_format": [{"type": "text"}]}, None),
    ],
)
def test_a_format_is_a_schema_or_names_one(told: dict[str, Any], expected: Expectation | None) -> None:
    assert GeminiInteractions().request_facts(json.dumps(told).encode()).expectation == expected


def test_a_request_says_what_it_wants() -> None:
    facts = GeminiInteractions().request_facts(
        json.dumps(
            {
                "model": "g",
                "stream": True,
                "generation_config": {"max_output_tokens": 5},
                "system_instruction": "Be kind.",
                "tools": [
                    {"type": "function", "name": "f", "parameters": {"type": "object"}},
                    {"type": "google_search"},
                ],
                "input": [
                    {"type": "user_input", "content": [{"type": "text", "text": "How high is it?"}]},
                    {"type": "model_output", "content": [{"type": "text", "text": "I shall look."}]},
                    {"type": "function_result", "name": "f", "result": {"text": "It is 300 m high."}},
                ],
            }
        ).encode()
    )
    assert (facts.model, facts.stream, facts.max_output_tokens, facts.query) == ("g", True, 5, "How high is it?")
    assert facts.context == ("It is 300 m high.",)
    assert facts.tool_schemas == {"f": b'{"type": "object"}'}
    assert GeminiInteractions().request_facts(b'{"input":"Why?"}').query == "Why?"


def test_it_speaks_where_interactions_are_posted() -> None:
    response = ResponseHead(200, Headers())
    for path, expected in ((PATH, True), ("/v1/interactions/", True), ("/interactions", False), (PATH + "/x", False)):
        assert GeminiInteractions().speaks(RequestHead("POST", path, "h", Headers()), response) is expected
