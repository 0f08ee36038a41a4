"""Cohere's chat in both versions, its legacy generate, and embeddings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.dialects.cohere import ChatReader, CohereChat
from collector.model import (
    MAX_CALLS,
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

from .wires import exchange, lines, sse

USAGE = {
    "billed_units": {"input_tokens": 1, "output_tokens": 2},
    "tokens": {"input_tokens": 30, "output_tokens": 40, "reasoning_tokens": 5},
    "cached_tokens": 16,
}


def reader() -> ChatReader:
    return ChatReader(ResponseHead(200, Headers()))


def read(*bodies: Any, by: ChatReader | None = None) -> list[Delta]:
    by = by if by is not None else reader()
    return [delta for body in bodies if (delta := by.read(Frame(json.dumps(body).encode()))) is not None]


def said(kind: str, index: int | None = None, **message: Any) -> dict[str, Any]:
    return {"type": kind, "index": index, "delta": {"message": message}}


STREAM = (
    said("message-start", role="assistant", content=[], tool_calls=[], citations=[]),
    said("tool-plan-delta", tool_plan="I shall look."),
    said("content-start", 0, content={"type": "thinking", "thinking": ""}),
    said("content-delta", 0, content={"thinking": "hm"}),
    said("content-start", 1, content={"type": "text", "text": ""}),
    said("content-delta", 1, content={"text": "Hi"}),
    said("citation-start", 0, citations={"text": "Hi", "sources": []}),
    said("tool-call-start", 0, tool_calls={"id": "t", "type": "function", "function": {"name": "f", "arguments": ""}}),
    said("tool-call-delta", 0, tool_calls={"function": {"arguments": '{"a":1}'}}),
    {"type": "tool-call-end", "index": 0},
    {"type": "message-end", "delta": {"finish_reason": "TOOL_CALL", "usage": USAGE}},
)


def test_a_stream_of_the_second_version() -> None:
    deltas = read(*STREAM)
    assert [piece.text for delta in deltas for piece in delta.reasoning] == ["I shall look.", "hm"]
    assert [delta.text for delta in deltas if delta.text] == [(TextPiece(0, "Hi"),)]
    assert [piece for delta in deltas for piece in delta.tools] == [
        ToolPiece(0, 0, "f"),
        ToolPiece(0, 0, None, '{"a":1}'),
    ]
    assert deltas[-1] == Delta(choices=1, finish=(Finish(0, "TOOL_CALL"),), usage=ReportedUsage(30, 40), terminal=True)
    assert deltas[2] == deltas[4] == deltas[6] == deltas[9] == Delta()


def test_a_whole_answer_of_the_second_version() -> None:
    (delta,) = read(
        {
            "id": "1",
            "finish_reason": "COMPLETE",
            "usage": USAGE,
            "message": {
                "role": "assistant",
                "tool_plan": "plan",
                "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Hi"}],
                "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
        }
    )
    assert delta == Delta(
        text=(TextPiece(0, "Hi"),),
        reasoning=(TextPiece(0, "plan"), TextPiece(0, "hm")),
        tools=(ToolPiece(0, 0, "f", "{}"),),
        finish=(Finish(0, "COMPLETE"),),
        choices=1,
        usage=ReportedUsage(30, 40),
    )


def test_what_was_cached_and_thought_is_inside_the_tokens_and_billed_units_are_a_last_resort() -> None:
    by = reader()
    read(STREAM[-1], by=by)
    assert by.normal_usage(ReportedUsage(30, 40)) == Usage(30, 40, 16, None, 5)
    by = reader()
    read(
        {"finish_reason": "COMPLETE", "text": "a", "meta": {"billed_units": {"input_tokens": 3, "output_tokens": 4.0}}},
        by=by,
    )
    assert by.normal_usage(ReportedUsage()) == Usage(3, 4)
    assert reader().normal_usage(ReportedUsage()) == Usage()


FIRST = (
    {"event_type": "stream-start", "generation_id": "g", "is_finished": False},
    {"event_type": "search-results", "documents": [{"text": "d"}], "is_finished": False},
    {"event_type": "text-generation", "text": "H", "is_finished": False},
    {"event_type": "text-generation", "text": "i", "is_finished": False},
    {"event_type": "citation-generation", "citations": [], "is_finished": False},
    {
        "event_type": "stream-end",
        "finish_reason": "COMPLETE",
        "is_finished": True,
        "response": {
            "text": "Hi",
            "finish_reason": "COMPLETE",
            "meta": {"tokens": {"input_tokens": 3, "output_tokens": 4}},
        },
    },
)


def test_a_stream_of_the_first_version_ends_with_all_of_it_again() -> None:
    deltas = read(*FIRST)
    assert [piece.text for delta in deltas for piece in delta.text] == ["H", "i"]
    assert deltas[-1] == Delta(
        choices=1,
        finish=(Finish(0, "COMPLETE"),),
        usage=ReportedUsage(3, 4),
        full_text=(TextPiece(0, "Hi"),),
        terminal=True,
    )


def test_calls_of_the_first_version_come_in_pieces_or_whole_and_are_not_taken_twice() -> None:
    whole = {"event_type": "tool-calls-generation", "tool_calls": [{"name": "f", "parameters": {"a": 1}}]}
    assert read(whole)[0].tools == (ToolPiece(0, 0, "f", '{"a":1}'),)
    deltas = read(
        {"event_type": "tool-calls-chunk", "text": "I shall look."},
        {"event_type": "tool-calls-chunk", "tool_call_delta": {"index": 0, "name": "f"}},
        {"event_type": "tool-calls-chunk", "tool_call_delta": {"index": 0, "parameters": '{"a":1}'}},
        whole,
    )
    assert [delta.tools for delta in deltas] == [(), (ToolPiece(0, 0, "f"),), (ToolPiece(0, 0, None, '{"a":1}'),), ()]


def test_the_legacy_generate_is_read_whole_and_in_lines() -> None:
    (delta,) = read({"id": "1", "generations": [{"text": "a", "finish_reason": "COMPLETE"}, {"text": "b"}], "meta": {}})
    assert (delta.text, delta.finish, delta.choices) == (
        (TextPiece(0, "a"), TextPiece(1, "b")),
        (Finish(0, "COMPLETE"),),
        2,
    )
    deltas = read({"text": "a", "is_finished": False}, {"is_finished": True, "finish_reason": "MAX_TOKENS"})
    assert deltas[0] == Delta(text=(TextPiece(0, "a"),))
    assert (deltas[1].finish, deltas[1].terminal) == ((Finish(0, "MAX_TOKENS"),), True)


def test_records_of_all_versions() -> None:
    named = [(each["type"], each) for each in STREAM]
    second = exchange("/v2/chat", sse(*named, ("done", b"[DONE]"), names=True), kind="text/event-stream").record
    assert (second.dialect, second.outcome, second.frames.data, second.frames.done_marker) == (
        "cohere.chat",
        "completed",
        11,
        True,
    )
    first = exchange(
        "/v1/chat", lines(*FIRST), kind="application/stream+json", host="api.cohere.test", provider="cohere"
    ).record
    assert (first.transport, first.outcome, first.text.chars, first.correction_ratio) == ("ndjson", "completed", 2, 0.0)
    cut = exchange("/v2/chat", sse(*named[:6], names=True), kind="text/event-stream").record
    assert (cut.outcome, cut.finish_reasons) == ("truncated", (None,))
    toxic = exchange(
        "/v2/chat", json.dumps({"message": {"content": []}, "finish_reason": "ERROR_TOXIC"}).encode()
    ).record
    assert toxic.outcome == "blocked"
    wrong = exchange("/v2/chat", b'{"id":"1","message":"Incorrect key."}', status=401).record
    assert wrong.error is not None
    assert (wrong.error.type, wrong.error.kind) == (None, "auth")


def test_embeddings_are_counted_by_what_is_billed() -> None:
    body = json.dumps({"embeddings": {"float": [[0.1]]}, "meta": {"billed_units": {"input_tokens": 6}}}).encode()
    record = exchange("/v2/embed", body, request={"model": "embed-v4"}).record
    assert (record.dialect, record.operation, record.request_model) == ("cohere.embeddings", "embeddings", "embed-v4")
    assert (record.usage, record.usage_reported, record.finish_reasons) == (Usage(6), ReportedUsage(), ())


def test_a_request_of_the_second_version_says_what_it_wants() -> None:
    facts = CohereChat().request_facts(
        json.dumps(
            {
                "model": "c",
                "stream": True,
                "max_tokens": 7,
                "messages": [
                    {"role": "system", "content": "Be kind."},
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "How high is it?"},
                            {"type": "document", "document": {"data": "It is in Paris."}},
                        ],
                    },
                    {"role": "tool", "content": "It is 300 m high."},
                ],
                "documents": ["It was built in 1889.", {"id": "d", "data": {"title": "t", "text": "It is of iron."}}],
                "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
                "response_format": {"type": "json_object", "json_schema": {"type": "object"}},
            }
        ).encode()
    )
    assert (facts.model, facts.stream, facts.max_output_tokens, facts.query) == ("c", True, 7, "How high is it?")
    assert set(facts.context) == {"It was built in 1889.", "It is of iron.", "It is in Paris.", "It is 300 m high."}
    assert facts.tool_schemas == {"f": b'{"type": "object"}'}
    assert facts.expectation == Expectation("json_schema", b'{"type": "object"}')


def test_a_request_of_the_first_version_says_what_it_wants() -> None:
    facts = CohereChat().request_facts(
        json.dumps(
            {
                "model": "c",
                "message": "How high is it?",
                "preamble": "Be kind.",
                "chat_history": [{"role": "USER", "message": "Hi"}, {"role": "CHATBOT", "message": "Hello"}],
                "documents": [{"title": "t", "snippet": "It is 300 m high."}],
                "tool_results": [{"call": {}, "outputs": [{"text": "It is of iron."}]}],
                "tools": [
                    {
                        "name": "f",
                        "parameter_definitions": {
                            "a": {"type": "str", "required": True},
                            "b": {"type": "List[int]"},
                            "c": {"type": "X"},
                        },
                    }
                ],
                "response_format": {"type": "json_object"},
            }
        ).encode()
    )
    assert facts.query == "How high is it?"
    assert set(facts.context) == {"It is 300 m high.", "It is of iron."}
    assert json.loads(facts.tool_schemas["f"]) == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "array"}, "c": {}},
        "required": ["a"],
    }
    assert facts.expectation == Expectation("json")


def test_a_flood_of_calls_is_bounded() -> None:
    by = reader()
    for number in range(1000):
        (delta,) = read(said("tool-call-start", number, tool_calls={"function": {"name": "f"}}), by=by)
        assert delta.tools[0].index == min(number, MAX_CALLS)
    assert len(by._calls) == MAX_CALLS


@pytest.mark.parametrize(
    ("path", "host", "expected"),
    [
        ("/v2/chat", "h", True),
        ("/v1/chat", "api.cohere.com", True),
        ("/v1/chat", "api.writer.com", False),
        ("/v1/generate", "api.cohere.ai", True),
        ("/v1/generate", "h", False),
        ("/v2/chat/completions", "h", False),
    ],
)
def test_it_speaks_where_cohere_chats(path: str, host: str, expected: bool) -> None:
    assert CohereChat().speaks(RequestHead("POST", path, host, Headers()), ResponseHead(200, Headers())) is expected
