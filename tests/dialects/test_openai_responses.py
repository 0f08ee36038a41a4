"""Responses, streamed and whole, as OpenAI and those who took over its events send them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.catalogue import ERROR_KINDS
from collector.dialects.decoding import UnreadableError
from collector.dialects.openai_responses import MAX_PARTS, MAX_REPEATED, OpenAiResponses, ResponsesReader
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
    WireError,
)

USAGE = {
    "input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 16,
}  # fmt: skip


def reader(status: int = 200) -> ResponsesReader:
    return ResponsesReader(ResponseHead(status, Headers()))


def read(*bodies: Any, by: ResponsesReader | None = None) -> list[Delta]:
    by = by if by is not None else reader()
    deltas = [by.read(Frame(body if isinstance(body, bytes) else json.dumps(body).encode())) for body in bodies]
    assert None not in deltas
    return [delta for delta in deltas if delta is not None]


def event(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "sequence_number": 0, **more}


def ending(kind: str = "completed", **more: Any) -> dict[str, Any]:
    return event(kind, response={"object": "response", "model": "m-1", "status": kind, **more})


def text_of(deltas: list[Delta]) -> str:
    return "".join(piece.text for delta in deltas for piece in delta.text)


def calls_of(deltas: list[Delta]) -> dict[int, tuple[str | None, str]]:
    """Calls by number, put together as the fold puts them together."""
    made: dict[int, tuple[str | None, str]] = {}
    for delta in deltas:
        for piece in delta.tools:
            name, arguments = made.get(piece.index, (None, ""))
            made[piece.index] = (name if name is not None else piece.name, arguments + piece.arguments)
    return made


MESSAGE = {"type": "message", "id": "msg", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}


# ---------------------------------------------------------------- text


def test_the_usual_stream_is_created_then_text_then_completed() -> None:
    deltas = read(
        event("created", response={"model": "m-0", "status": "in_progress", "usage": None, "output": []}),
        event("output_item.added", output_index=0, item={"type": "message", "content": []}),
        event("output_text.delta", output_index=0, content_index=0, delta="Hel", logprobs=[], obfuscation="x"),
        event("output_text.delta", output_index=0, content_index=0, delta="lo"),
        event("output_text.done", output_index=0, content_index=0, text="Hello"),
        event("output_item.done", output_index=0, item=MESSAGE),
        ending(output=[MESSAGE], usage=USAGE),
    )
    assert text_of(deltas) == "Hello"
    assert deltas[0] == Delta(choices=1, model="m-0")
    assert deltas[-1] == Delta(
        finish=(Finish(0, "completed"),), choices=1, model="m-1", usage=ReportedUsage(9, 7, 4, None, 2), terminal=True,
        full_text=(TextPiece(0, "Hello"),),
    )  # fmt: skip
    assert all(not delta.terminal for delta in deltas[:-1])


def test_a_text_that_is_told_only_when_it_is_done_is_text() -> None:
    done = event("output_text.done", output_index=0, content_index=0, text="Hello")
    assert text_of(read(done, done)) == "Hello"


def test_pieces_that_name_no_part_are_not_told_twice() -> None:
    done = event("output_text.done", output_index=3, content_index=1, text="Hello")
    assert text_of(read(event("output_text.delta", delta="Hello"), done)) == "Hello"


def test_an_ending_that_is_all_that_came_tells_the_whole_answer() -> None:
    (delta,) = read(ending(output=[MESSAGE]))
    assert (delta.text, delta.full_text) == ((TextPiece(0, "Hello"),), ())


def test_the_repeat_is_taken_from_the_parts_or_else_from_the_ending_and_is_bounded() -> None:
    piece = event("output_text.delta", output_index=0, delta="Helo")
    assert read(piece, ending(output=[MESSAGE]))[-1].full_text == (TextPiece(0, "Hello"),)
    parts = [event("output_text.done", output_index=at, text=text) for at, text in enumerate("ab")]
    assert read(*parts, ending(output=[MESSAGE]))[-1].full_text == (TextPiece(0, "ab"),)
    huge = event("output_text.done", output_index=0, text="x" * (MAX_REPEATED + 1))
    assert read(piece, huge, ending(output=[MESSAGE]))[-1].full_text == ()


def test_reasoning_and_refusals_are_told_apart_from_text() -> None:
    deltas = read(
        event("reasoning_summary_text.delta", delta="a"),
        event("reasoning_text.delta", delta="b"),
        event("reasoning_text.done", text="b"),
        event("refusal.delta", output_index=1, delta="No"),
        event("refusal.done", output_index=1, refusal="No"),
        event("refusal.done", output_index=2, refusal="Never"),
    )
    assert [piece.text for delta in deltas for piece in delta.reasoning] == ["a", "b"]
    assert [piece.text for delta in deltas for piece in delta.refusal] == ["No", "Never"]
    assert text_of(deltas) == ""


def test_a_whole_response_is_read_by_item() -> None:
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "content": None},
        {"type": "web_search_call", "status": "completed", "action": {"type": "search"}},
        {"type": "function_call", "name": "f", "arguments": '{"a":1}', "call_id": "c"},
        {"type": "custom_tool_call", "name": "g", "input": "ls -l"},
        {"type": "message", "content": [
            {"type": "output_text", "text": "He"}, {"type": "output_text", "text": "llo", "annotations": []},
            {"type": "refusal", "refusal": "no"},
        ]},
    ]  # fmt: skip
    (delta,) = read({"object": "response", "model": "m", "status": "completed", "output": output, "usage": USAGE})
    assert delta == Delta(
        text=(TextPiece(0, "He"), TextPiece(0, "llo")), reasoning=(TextPiece(0, "hm"),), refusal=(TextPiece(0, "no"),),
        tools=(ToolPiece(0, 0, "f", '{"a":1}'), ToolPiece(0, 1, "g", "ls -l")), finish=(Finish(0, "completed"),),
        choices=1, model="m", usage=ReportedUsage(9, 7, 4, None, 2), terminal=True,
    )  # fmt: skip


# ---------------------------------------------------------------- tool calls


def test_arguments_come_in_pieces_and_are_not_told_again() -> None:
    item = {"type": "function_call", "id": "fc", "name": "f", "arguments": ""}
    deltas = read(
        event("output_item.added", output_index=2, item=item),
        event("function_call_arguments.delta", output_index=2, item_id="fc", delta='{"a"'),
        event("function_call_arguments.delta", item_id="fc", delta=":1}"),
        event("function_call_arguments.done", output_index=2, arguments='{"a":1}'),
        event("output_item.done", output_index=2, item={**item, "arguments": '{"a":1}'}),
        ending(output=[{**item, "arguments": '{"a":1}'}]),
    )
    assert calls_of(deltas) == {0: ("f", '{"a":1}')}


@pytest.mark.parametrize("told", ["arguments.done", "item.done"])
def test_arguments_may_come_only_when_they_are_done(told: str) -> None:
    item = {"type": "function_call", "id": "fc", "name": "f", "arguments": '{"a":1}'}
    deltas = read(
        event("output_item.added", output_index=0, item={**item, "arguments": ""}),
        *[event("function_call_arguments.done", item_id="fc", arguments='{"a":1}')] * (told == "arguments.done"),
        event("output_item.done", output_index=0, item=item),
    )
    assert calls_of(deltas) == {0: ("f", '{"a":1}')}


def test_calls_are_numbered_as_they_come_and_what_servers_do_is_no_call() -> None:
    deltas = read(
        event("output_item.added", output_index=0, item={"type": "shell_call", "status": "in_progress"}),
        event("shell_call_command.delta", output_index=0, delta="ls"),
        event("output_item.done", output_index=1, item={"type": "function_call", "name": "f", "arguments": {"a": 1}}),
        event("output_item.added", output_index=2, item={"type": "custom_tool_call", "name": "g", "input": ""}),
        event("custom_tool_call_input.delta", output_index=2, delta="x"),
        event("function_call_arguments.delta", output_index=9, delta="nobody's"),
    )
    assert calls_of(deltas) == {0: ("f", '{"a":1}'), 1: ("g", "x")}


def test_a_flood_of_calls_and_parts_is_bounded() -> None:
    by = reader()
    for at in range(MAX_CALLS + 3):
        read(event("output_item.added", output_index=at, item={"type": "function_call", "name": "f"}), by=by)
    assert len(by._calls) == MAX_CALLS
    for at in range(MAX_PARTS + 3):
        read(event("output_text.delta", output_index=at, delta="x"), by=by)
    assert len(by._streamed) == MAX_PARTS


# ---------------------------------------------------------------- ends and errors


@pytest.mark.parametrize(
    ("body", "word", "error", "blocked"),
    [
        (ending("incomplete", incomplete_details={"reason": "max_output_tokens"}), "incomplete", None, False),
        (ending("incomplete", incomplete_details={"reason": "content_filter"}), "incomplete", None, True),
        (ending("failed", error={"code": "rate_limit_exceeded", "message": "m"}), "failed",
         WireError(None, "rate_limit_exceeded", "rate_limited"), False),
        (ending("failed"), "failed", WireError(None, None, "server_error"), False),
        (event("done", response={"status": "cancelled"}), "cancelled", None, False),
        (event("done"), "completed", None, False),
    ],
)  # fmt: skip
def test_every_ending_ends_the_stream(body: Any, word: str, error: WireError | None, blocked: bool) -> None:
    (delta,) = read(body)
    assert (delta.terminal, delta.finish, delta.error, delta.blocked) == (True, (Finish(0, word),), error, blocked)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"type": "error", "code": "server_error", "message": "m", "param": None},
         WireError(None, "server_error", "server_error")),
        ({"type": "error", "error": {"type": "too_many_requests", "code": "c", "message": "m"}},
         WireError("too_many_requests", "c", "rate_limited")),
        ({"error": {"type": "invalid_request_error", "message": "m"}},
         WireError("invalid_request_error", None, "invalid_request")),
    ],
)  # fmt: skip
def test_an_error_event_is_an_error_and_the_end(body: Any, error: WireError) -> None:
    assert read(body) == [Delta(error=error, terminal=True)]


def test_with_an_error_status_any_body_tells_the_error() -> None:
    (delta,) = read({"error": {"type": "invalid_request_error", "code": "x"}}, by=reader(400))
    assert delta.error == WireError("invalid_request_error", "x", "invalid_request")


def test_what_is_no_json_is_malformed_and_a_marker_is_no_data() -> None:
    assert read(b"{", b"[DONE]") == [Delta(malformed=True), Delta(terminal=True, marker=True)]
    assert reader().read(Frame(b"", None, "comment")) is None


def test_a_stream_that_says_no_end_has_not_ended_well() -> None:
    by = reader()
    read(event("output_text.delta", delta="x"), by=by)
    assert not by.ended_well()


def test_the_name_of_an_event_stands_for_a_type_left_out() -> None:
    delta = reader().read(Frame(b'{"delta":"x"}', "response.output_text.delta"))
    assert delta == Delta(text=(TextPiece(0, "x"),))


def test_normal_usage_has_cached_and_reasoning_inside() -> None:
    assert reader().normal_usage(ReportedUsage(9, 7, 4, None, 2)) == Usage(9, 7, 4, None, 2)
    assert reader().normal_usage(ReportedUsage(9, 7, 4, None, 2, 3)) == Usage(9, 7, 4, 3, 2)


# ---------------------------------------------------------------- the request


def test_it_speaks_where_responses_are_posted() -> None:
    response = ResponseHead(200, Headers())
    for method, path, speaks in (
        ("POST", "/v1/responses", True), ("POST", "/openai/v1/responses/", True), ("GET", "/v1/responses", False),
        ("POST", "/v1/responses/resp_1/cancel", False), ("POST", "/v1/chat/completions", False),
    ):  # fmt: skip
        assert OpenAiResponses().speaks(RequestHead(method, path, "h", Headers()), response) == speaks


def test_a_request_says_what_it_wants() -> None:
    facts = OpenAiResponses().request_facts(json.dumps({
        "model": "m", "stream": True, "instructions": "Be kind.", "max_output_tokens": 5,
        "input": [{"role": "developer", "content": "Be brief."},
                  {"role": "user", "content": [{"type": "input_text", "text": "How high is the tower?"}]}],
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}},
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}, {"type": "web_search"}],
    }).encode())  # fmt: skip
    assert (facts.model, facts.stream, facts.max_output_tokens) == ("m", True, 5)
    assert facts.query == "How high is the tower?"
    assert facts.expectation == Expectation("json_schema", b'{"type": "object"}', "n")
    assert facts.tool_schemas == {"f": b'{"type": "object"}'}


def test_what_tools_and_searches_gave_is_context() -> None:
    facts = OpenAiResponses().request_facts(json.dumps({"input": [
        {"type": "message", "role": "user", "content": "How high is the tower?"},
        {"type": "function_call", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "The tower is 300 m high."},
        {"type": "custom_tool_call_output", "output": [{"type": "input_text", "text": "It is in Paris."}]},
        {"type": "file_search_call", "results": [{"text": "It was built in 1889.", "score": 1}]},
    ]}).encode())  # fmt: skip
    assert facts.query == "How high is the tower?"
    assert set(facts.context) == {"The tower is 300 m high.", "It is in Paris.", "It was built in 1889."}
    assert OpenAiResponses().request_facts(b'{"input":"Why?"}').query == "Why?"


@pytest.mark.parametrize(
    ("format_", "expected"),
    [({"type": "text"}, None), ({"type": "json_object"}, Expectation("json")), (None, None), ({}, None)],
)
def test_the_wish_for_a_format_is_read(format_: Any, expected: Expectation | None) -> None:
    assert OpenAiResponses().request_facts(json.dumps({"text": {"format": format_}}).encode()).expectation == expected


def test_a_request_that_is_no_json_is_unreadable() -> None:
    with pytest.raises(UnreadableError):
        OpenAiResponses().request_facts(b"<xml/>")


# ---------------------------------------------------------------- properties

KINDS = [
    "response.created", "response.output_text.delta", "response.output_text.done", "response.output_item.added",
    "response.output_item.done", "response.function_call_arguments.delta", "response.function_call_arguments.done",
    "response.completed", "response.failed", "response.refusal.done", "response.reasoning_text.delta", "error",
    "message", "function_call", "reasoning", "output_text", "response",
]  # fmt: skip
WORDS = [
    "type", "delta", "text", "output_index", "content_index", "item_id", "item", "response", "output", "content",
    "arguments", "name", "id", "status", "usage", "input_tokens", "output_tokens", "error", "code", "model", "object",
    "summary", "incomplete_details", "reason", "input", "refusal", "input_tokens_details", "cached_tokens",
]  # fmt: skip
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats() | st.sampled_from([*KINDS, "", "\ud83d"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=6),
    max_leaves=20,
)
EVENTS = st.fixed_dictionaries({"type": st.sampled_from(KINDS)}, optional=dict.fromkeys(WORDS[1:15], JUNK))


@given(st.lists((EVENTS | JUNK).map(lambda value: json.dumps(value).encode()) | st.binary(max_size=30), max_size=6))
def test_any_frames_give_facts_that_can_be_written(bodies: list[bytes]) -> None:
    by = reader()
    for body in bodies:
        delta = by.read(Frame(body))
        assert delta is not None
        assert all(0 <= piece.index <= MAX_CALLS for piece in delta.tools)
        assert delta.error is None or delta.error.kind in ERROR_KINDS
        if delta.usage is not None:
            counts = msgspec.structs.astuple(delta.usage)
            assert all(count is None or (type(count) is int and count >= 0) for count in counts)
            by.normal_usage(delta.usage)


@given(JUNK.map(lambda value: json.dumps(value).encode()))
def test_any_request_gives_facts(body: bytes) -> None:
    facts = OpenAiResponses().request_facts(body)
    assert facts.model is None or isinstance(facts.model, str)
