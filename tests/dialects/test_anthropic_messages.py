"""Anthropic messages, streamed and whole."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.catalogue import ERROR_KINDS
from collector.dialects.anthropic_messages import AnthropicMessages, MessagesReader
from collector.dialects.decoding import UnreadableError
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

from .wires import as_delta


def reader(status: int = 200) -> MessagesReader:
    return MessagesReader(ResponseHead(status, Headers()))


def read(*bodies: Any, by: MessagesReader | None = None) -> list[Delta]:
    by = by if by is not None else reader()
    deltas = [by.read(Frame(body if isinstance(body, bytes) else json.dumps(body).encode())) for body in bodies]
    assert None not in deltas
    return [as_delta(delta) for delta in deltas if delta is not None]


def starts(at: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": at, "content_block": block}


def goes_on(at: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": at, "delta": delta}


def test_a_stream_is_a_start_its_blocks_a_delta_and_a_stop() -> None:
    usage = {"input_tokens": 25, "output_tokens": 1, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 4}
    deltas = read(
        {"type": "message_start", "message": {"id": "m1", "model": "claude", "content": [], "usage": usage}},
        starts(0, type="text", text=""),
        {"type": "ping"},
        goes_on(0, type="text_delta", text="Hel"),
        goes_on(0, type="text_delta", text="lo"),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 15}},
        {"type": "message_stop"},
    )
    assert deltas[0] == Delta(choices=1, model="claude", usage=ReportedUsage(25, 1, 3, 4))
    assert [delta.ping for delta in deltas] == [False, False, True, False, False, False, False, False]
    assert [delta.text for delta in deltas[3:5]] == [(TextPiece(0, "Hel"),), (TextPiece(0, "lo"),)]
    assert deltas[6] == Delta(finish=(Finish(0, "end_turn"),), usage=ReportedUsage(None, 15))
    assert deltas[7] == Delta(terminal=True)
    assert deltas[1] == deltas[5] == Delta()


def test_only_message_stop_ends_a_stream() -> None:
    by = reader()
    read({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, by=by)
    assert not by.ended_well()


def test_thinking_is_reasoning_and_signatures_are_nothing() -> None:
    deltas = read(
        starts(0, type="thinking", thinking="", signature=""),
        goes_on(0, type="thinking_delta", thinking="hm"),
        goes_on(0, type="signature_delta", signature="abc"),
        starts(1, type="redacted_thinking", data="xyz"),
    )
    assert [delta.reasoning for delta in deltas] == [(), (TextPiece(0, "hm"),), (), ()]
    assert not any(delta.text for delta in deltas)


def test_a_call_is_its_name_and_then_its_arguments_and_an_empty_piece_is_nothing() -> None:
    deltas = read(
        starts(1, type="tool_use", id="t1", name="f", input={}),
        goes_on(1, type="input_json_delta", partial_json=""),
        goes_on(1, type="input_json_delta", partial_json='{"a"'),
        goes_on(1, type="input_json_delta", partial_json=":1}"),
        starts(2, type="tool_use", id="t2", name="g", input={}),
    )
    assert [delta.tools for delta in deltas] == [
        (ToolPiece(0, 0, "f", ""),), (), (ToolPiece(0, 0, None, '{"a"'),), (ToolPiece(0, 0, None, ":1}"),),
        (ToolPiece(0, 1, "g", ""),),
    ]  # fmt: skip


def test_an_input_that_came_whole_at_the_start_is_not_taken_twice() -> None:
    deltas = read(
        starts(0, type="tool_use", name="f", input={"a": 1}),
        goes_on(0, type="input_json_delta", partial_json='{"a":1}'),
    )
    assert [delta.tools for delta in deltas] == [(ToolPiece(0, 0, "f", '{"a":1}'),), ()]


def test_tools_of_the_server_are_no_calls_to_the_client() -> None:
    deltas = read(
        starts(0, type="server_tool_use", name="web_search", input={}),
        goes_on(0, type="input_json_delta", partial_json='{"q":1}'),
        starts(1, type="web_search_tool_result", content=[]),
    )
    assert deltas == [Delta()] * 3


def test_a_whole_message_is_all_of_it_at_once() -> None:
    (delta,) = read({
        "type": "message", "id": "m1", "model": "claude", "stop_reason": "tool_use",
        "content": [
            {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"},
            {"type": "tool_use", "name": "f", "input": {}}, {"type": "tool_use", "name": "g", "input": {"x": [1]}},
        ],
        "usage": {"input_tokens": 1, "output_tokens": 2, "output_tokens_details": {"thinking_tokens": 1}},
    })  # fmt: skip
    assert delta == Delta(
        text=(TextPiece(0, "a"), TextPiece(0, "b")),
        reasoning=(TextPiece(0, "hm"),),
        tools=(ToolPiece(0, 0, "f", "{}"), ToolPiece(0, 1, "g", '{"x":[1]}')),
        finish=(Finish(0, "tool_use"),),
        choices=1,
        model="claude",
        usage=ReportedUsage(1, 2, None, None, 1),
        terminal=True,
    )


def test_the_events_name_stands_for_a_missing_type() -> None:
    assert reader().read(Frame(b"{}", "message_stop")) == Delta(terminal=True)
    assert reader().read(Frame(b"anything", "ping")) == Delta(ping=True)


@pytest.mark.parametrize("data", [b'{"type":"error","error":{"type":"overloaded_error","message":"x"}}',
                                  b'{"error":{"type":"overloaded_error"}}'])  # fmt: skip
def test_an_error_event_is_an_error(data: bytes) -> None:
    for name in ("error", None):
        delta = reader().read(Frame(data, name))
        assert delta == Delta(error=WireError("overloaded_error", None, "overloaded"))


def test_an_error_event_with_junk_is_an_error_too() -> None:
    delta = reader().read(Frame(b"oops", "error"))
    assert delta is not None
    assert delta.error == WireError(None, None, "unclassified")


def test_with_an_error_status_the_body_tells_the_error() -> None:
    (delta,) = read({"type": "error", "error": {"type": "rate_limit_error"}}, by=reader(429))
    assert delta == Delta(error=WireError("rate_limit_error", None, "rate_limited"))


def test_usage_in_normal_form_counts_cached_tokens_inside_the_input() -> None:
    assert reader().normal_usage(ReportedUsage(25, 15, 3, 4)) == Usage(32, 15, 3, 4)
    assert reader().normal_usage(ReportedUsage(None, 15, 3)) == Usage(None, 15, 3)
    assert reader().normal_usage(ReportedUsage(0, 0)) == Usage(0, 0)


def test_what_is_no_json_is_malformed_and_an_unknown_event_is_nothing() -> None:
    assert read(b"{", {"type": "new_event"}, {}, []) == [Delta(malformed=True), Delta(), Delta(), Delta()]
    assert reader().read(Frame(b"", None, "comment")) is None


def test_a_flood_of_calls_is_bounded() -> None:
    by = reader()
    for number in range(1000):
        (delta,) = read(starts(number, type="tool_use", name="f"), by=by)
        assert delta.tools[0].index == min(number, MAX_CALLS)
    assert len(by._calls) == MAX_CALLS


def test_it_speaks_where_messages_are_posted() -> None:
    response = ResponseHead(200, Headers())
    for method, path, expected in (
        ("POST", "/v1/messages", True), ("POST", "/proxy/v1/messages/", True), ("GET", "/v1/messages", False),
        ("POST", "/v1/threads/t/messages", False), ("POST", "/v1/messages/count_tokens", False),
    ):  # fmt: skip
        assert AnthropicMessages().speaks(RequestHead(method, path, "h", Headers()), response) is expected


def test_a_request_says_what_it_wants() -> None:
    facts = AnthropicMessages().request_facts(json.dumps({
        "model": "m", "stream": True, "max_tokens": 7, "system": [{"type": "text", "text": "Be kind."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "q?"}]}],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "w"}],
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
    }).encode())  # fmt: skip
    assert (facts.model, facts.stream, facts.max_output_tokens, facts.query) == ("m", True, 7, "q?")
    assert facts.expectation == Expectation("json_schema", b'{"type": "object"}')
    assert facts.tool_schemas == {"f": b'{"type": "object"}'}


def test_documents_and_tool_results_are_context() -> None:
    facts = AnthropicMessages().request_facts(json.dumps({"messages": [{"role": "user", "content": [
        {"type": "document", "source": {"type": "text", "data": "The tower is 300 m high."}},
        {"type": "search_result", "content": [{"type": "text", "text": "It was built in 1889."}]},
        {"type": "tool_result", "content": "It is in Paris."},
        {"type": "text", "text": "How high is the tower?"},
    ]}]}).encode())  # fmt: skip
    assert facts.query == "How high is the tower?"
    assert {"The tower is 300 m high.", "It was built in 1889.", "It is in Paris."} <= set(facts.context)


def test_it_speaks_on_vertex_where_the_path_names_its_models() -> None:
    response = ResponseHead(200, Headers())
    raw = "/v1/projects/p/locations/l/publishers/{}/models/m@1{}"
    for publisher, way, speaks in (
        ("anthropic", ":rawPredict", True), ("anthropic", ":streamRawPredict", True),
        ("anthropic", "%3ArawPredict", True), ("mistralai", ":rawPredict", False), ("anthropic", ":predict", False),
    ):  # fmt: skip
        request = RequestHead("POST", raw.format(publisher, way), "h", Headers())
        assert AnthropicMessages().speaks(request, response) == speaks


def test_a_request_that_is_no_json_is_unreadable() -> None:
    with pytest.raises(UnreadableError):
        AnthropicMessages().request_facts(b"<xml/>")


WORDS = [
    "type", "index", "delta", "message", "content_block", "usage", "error", "content", "stop_reason", "text", "input",
    "partial_json", "thinking", "name", "input_tokens", "output_tokens", "model", "output_tokens_details", "code",
]  # fmt: skip
TYPES = [
    "content_block_delta", "content_block_start", "message_start", "message_delta", "message", "text_delta", "tool_use",
    "text", "input_json_delta", "error", "thinking", "thinking_delta",
]  # fmt: skip
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats() | st.sampled_from([*TYPES, "", "\ud83d"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=6),
    max_leaves=20,
)
EVENTS = st.fixed_dictionaries({"type": st.sampled_from(TYPES)}, optional=dict.fromkeys(WORDS[1:9], JUNK))


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
    facts = AnthropicMessages().request_facts(body)
    assert facts.model is None or isinstance(facts.model, str)
