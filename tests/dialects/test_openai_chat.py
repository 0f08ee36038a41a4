"""Chat completions, in every mix that providers who speak like OpenAI send."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.catalogue import ERROR_KINDS
from collector.dialects.decoding import UnreadableError
from collector.dialects.openai_chat import ChatReader, OpenAiChat
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


def reader(status: int = 200) -> ChatReader:
    return ChatReader(ResponseHead(status, Headers()))


def read(*bodies: Any, by: ChatReader | None = None) -> list[Delta]:
    by = by if by is not None else reader()
    deltas = [by.read(Frame(body if isinstance(body, bytes) else json.dumps(body).encode())) for body in bodies]
    assert None not in deltas
    return [as_delta(delta) for delta in deltas if delta is not None]


def chunk(delta: dict[str, Any] | None = None, index: int | None = 0, **more: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "finish_reason": more.pop("finish", None)}
    return {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **more}


def calls_of(*pieces: list[dict[str, Any]]) -> dict[int, tuple[str | None, str]]:
    """Calls by number after these pieces of tool calls, put together as the fold puts them together."""
    made: dict[int, tuple[str | None, str]] = {}
    for delta in read(*(chunk({"tool_calls": piece}) for piece in pieces)):
        for piece in delta.tools:
            name, arguments = made.get(piece.index, (None, ""))
            made[piece.index] = (name if name is not None else piece.name, arguments + piece.arguments)
    return made


def call(index: int | None, call_id: str | None, name: str | None, arguments: str | None = None) -> dict[str, Any]:
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


# ---------------------------------------------------------------- text


def test_the_usual_stream_is_text_then_a_finish_then_usage_then_the_marker() -> None:
    deltas = read(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk({}, finish="stop"),
        {"choices": [], "model": "m", "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
        b"[DONE]",
    )
    assert [delta.text for delta in deltas] == [(), (TextPiece(0, "Hel"),), (TextPiece(0, "lo"),), (), (), ()]
    assert deltas[3].finish == (Finish(0, "stop"),)
    assert deltas[4].usage == ReportedUsage(5, 2)
    assert deltas[5] == Delta(terminal=True, marker=True)


def test_text_in_the_first_frame_is_read_like_any_other() -> None:
    assert read(chunk({"content": "a"}), chunk({"content": "a"}))[0].text == (TextPiece(0, "a"),)


def test_choices_are_told_apart_by_index_and_by_place_where_there_is_none() -> None:
    both = [{"index": 1, "delta": {"content": "b"}}, {"index": 0, "delta": {"content": "a"}}]
    assert read({"choices": both})[0].text == (TextPiece(1, "b"), TextPiece(0, "a"))
    bare = [{"delta": {"content": "a"}}, {"delta": {"content": "b"}}]
    assert read({"choices": bare})[0].text == (TextPiece(0, "a"), TextPiece(1, "b"))


def test_content_may_be_a_list_of_parts() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "a"},
        {"type": "image", "text": "no"},
        {"type": "refusal", "refusal": "never"},
    ]
    (delta,) = read(chunk({"content": parts}))
    assert (delta.text, delta.reasoning, delta.refusal) == (
        (TextPiece(0, "a"),), (TextPiece(0, "hm"),), (TextPiece(0, "never"),),
    )  # fmt: skip


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_is_told_apart_from_text_and_counted_once(field: str) -> None:
    (delta,) = read(chunk({field: "hm", "content": ""}))
    assert (delta.reasoning, delta.text) == ((TextPiece(0, "hm"),), ())
    (both,) = read(chunk({"reasoning": "hm", "reasoning_content": "hm"}))
    assert both.reasoning == (TextPiece(0, "hm"),)


def test_halves_of_a_surrogate_pair_are_kept_for_the_fold_to_join() -> None:
    deltas = read(b'{"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}', chunk({"content": "\ude42"}))
    assert [delta.text[0].text for delta in deltas] == ["\ud83d", "\ude42"]


def test_frames_before_and_beside_the_answer_say_nothing() -> None:
    (azure,) = read({"choices": [], "model": "", "prompt_filter_results": [{"prompt_index": 0}]})
    assert azure == Delta()
    (annotation,) = read({"choices": [{"index": 0, "content_filter_offsets": {}, "finish_reason": None}], "model": "m"})
    assert annotation == Delta(model="m")


def test_no_choices_or_a_null_is_survived() -> None:
    for body in ({}, {"choices": None}, {"choices": [None]}, {"choices": [{}]}, {"choices": {}}, None, [], 3):
        assert read(body)[0].text == ()


# ---------------------------------------------------------------- ends


def test_the_marker_may_be_padded() -> None:
    for body in (b"[DONE]", b" [DONE]", b"[DONE] \t"):
        assert read(body) == [Delta(terminal=True, marker=True)]
    assert read(b"[1]") == [Delta()]


def test_a_stream_ended_well_when_every_choice_said_how() -> None:
    by = reader()
    assert not by.ended_well()
    read(chunk({"content": "a"}), chunk({"content": "b"}, index=1), by=by)
    read(chunk({}, finish="stop"), by=by)
    assert not by.ended_well()
    read(chunk({}, index=1, finish="length"), by=by)
    assert by.ended_well()


def test_an_empty_finish_word_is_none_in_a_stream_and_the_word_of_a_whole_answer() -> None:
    assert read(chunk({"content": "a"}, finish=""))[0].finish == ()
    assert read({"choices": [{"message": {"content": "a"}, "finish_reason": ""}]})[0].finish == (Finish(0, ""),)


def test_a_ping_is_a_ping_whatever_it_holds() -> None:
    assert reader().read(Frame(b"keep alive", "ping")) == Delta(ping=True)
    assert read({"type": "ping"})[0].ping


# ---------------------------------------------------------------- errors in a 200


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"error": {"type": "insufficient_quota", "message": "of pat@example.test"}},
         WireError("insufficient_quota", None, "quota_exhausted")),
        ({"error": {"message": "something broke"}}, WireError(None, None, "unclassified")),
        ({"error": {"code": 502, "message": "x"}, "choices": []}, WireError(None, "502", "server_error")),
        ({"error": "overloaded"}, WireError("overloaded", None, "overloaded")),
        ({"object": "error", "type": "BadRequestError", "code": 400},
         WireError("BadRequestError", "400", "invalid_request")),
        ({"choices": [{"error": {"code": 504}, "finish_reason": "error"}]}, WireError(None, "504", "timeout")),
        ({"x_groq": {"error": "over_capacity"}}, WireError("over_capacity", None, "overloaded")),
    ],
)  # fmt: skip
def test_an_error_inside_a_200_is_an_error(body: dict[str, Any], error: WireError) -> None:
    assert read(body)[0].error == error


@pytest.mark.parametrize("error", [None, {}, "", {"code": None, "message": ""}])
def test_an_empty_error_is_none(error: Any) -> None:
    assert read(chunk({"content": "a"}, error=error))[0].error is None


def test_an_event_named_error_is_one_even_where_its_data_is_not_json() -> None:
    for data in (b"{}", b'{"error":{}}', b"Internal Server Error"):
        delta = reader().read(Frame(data, "error"))
        assert delta is not None
        assert delta.error is not None


def test_with_an_error_status_any_body_tells_the_error() -> None:
    (delta,) = read({"error": {"type": "rate_limit_error"}}, by=reader(429))
    assert delta == Delta(error=WireError("rate_limit_error", None, "rate_limited"))


@pytest.mark.parametrize("body", [b"{", b"upstream timeout", b"\xff", b'{"choices":[{"delta":{"content":"\xff"}}]}'])
def test_what_is_no_json_is_malformed(body: bytes) -> None:
    assert read(body) == [Delta(malformed=True)]


# ---------------------------------------------------------------- tool calls


def test_calls_come_by_index() -> None:
    made = calls_of(
        [call(0, "a", "f", "")], [call(0, None, None, '{"x"')], [call(1, "b", "g", "")], [call(0, None, None, ":1}")],
        [call(1, None, "", "{}")],
    )  # fmt: skip
    assert made == {0: ("f", '{"x":1}'), 1: ("g", "{}")}


def test_calls_without_an_index_come_by_id() -> None:
    made = calls_of(
        [call(None, "a", "f", "{"), call(None, "b", "g", "[")],
        [call(None, "b", None, "]")],
        [call(None, "a", "f", "}")],
    )
    assert made == {0: ("f", "{}"), 1: ("g", "[]")}


def test_calls_with_neither_come_by_name_and_what_follows_belongs_to_the_last() -> None:
    made = calls_of(
        [call(None, None, "f", "{")],
        [call(None, None, None, "}")],
        [call(None, None, "f", "[")],
        [call(None, "", "", "]")],
    )
    assert made == {0: ("f", "{}"), 1: ("f", "[]")}


def test_an_index_given_again_with_another_id_and_a_name_is_another_call() -> None:
    made = calls_of(
        [call(0, "a", "f", "{}")], [call(0, "b", "g", "{")], [call(0, None, None, "}")], [call(0, "c", "f", "1")]
    )
    assert made == {0: ("f", "{}"), 1: ("g", "{}"), 2: ("f", "1")}


def test_another_id_without_a_name_goes_on_with_the_call() -> None:
    assert calls_of([call(0, "a", "f", "{")], [call(0, "b", None, "}")], [call(0, "c", "", " ")]) == {0: ("f", "{} ")}


def test_a_repeated_name_is_the_same_call() -> None:
    assert calls_of([call(0, "a", "f", "{")], [call(0, "a", "f", "}")], [call(0, None, "f", " ")]) == {0: ("f", "{} ")}


def test_an_index_that_comes_after_an_id_alone_finds_the_same_call() -> None:
    assert calls_of([call(0, "a", "f", "{")], [call(None, "a", None, "}")], [call(None, None, None, " ")]) == {
        0: ("f", "{} ")
    }


def test_calls_may_come_out_of_order() -> None:
    assert calls_of([call(1, "b", "g", "1")], [call(0, "a", "f", "0")]) == {1: ("g", "1"), 0: ("f", "0")}


def test_a_piece_that_says_nothing_is_no_call() -> None:
    assert calls_of([{"index": 0}], [{"index": 0, "function": {}}], [call(0, "a", "", "")]) == {}


def test_arguments_may_be_an_object() -> None:
    (delta,) = read({"choices": [{"message": {"tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}}]})
    assert delta.tools == (ToolPiece(0, 0, "f", '{"a":1}'),)


def test_calls_of_a_whole_answer_come_by_place() -> None:
    same = {"id": "same", "index": 0, "function": {"name": "f", "arguments": "{}"}}
    (delta,) = read({"choices": [{"message": {"tool_calls": [same, same]}, "finish_reason": "tool_calls"}]})
    assert [piece.index for piece in delta.tools] == [0, 1]


def test_the_old_function_call_is_a_call() -> None:
    deltas = read(
        chunk({"function_call": {"name": "f", "arguments": ""}}), chunk({"function_call": {"arguments": "{}"}})
    )
    assert [delta.tools for delta in deltas] == [(ToolPiece(0, 0, "f", ""),), (ToolPiece(0, 0, None, "{}"),)]


def test_a_flood_of_calls_and_choices_is_bounded() -> None:
    by = reader()
    for number in range(2000):
        read(chunk({"tool_calls": [call(None, f"id{number}", "f", "")]}, index=number * 1000), by=by)
        (delta,) = read(chunk({"tool_calls": [call(number, f"id{number}", "f", "")]}), by=by)
        assert 0 <= delta.tools[0].index <= MAX_CALLS
    assert len(by._calls._known) <= 2 * MAX_CALLS
    assert len(by._seen_choices) <= 128


# ---------------------------------------------------------------- usage


def test_usage_is_reported_as_sent_and_normal_as_openai_counts() -> None:
    usage = {
        "prompt_tokens": 2008, "completion_tokens": 266,
        "prompt_tokens_details": {"cached_tokens": 1920}, "completion_tokens_details": {"reasoning_tokens": 261},
    }  # fmt: skip
    by = reader()
    (delta,) = read({"choices": [], "usage": usage}, by=by)
    assert delta.usage == ReportedUsage(2008, 266, 1920, None, 261)
    assert by.normal_usage(delta.usage) == Usage(2008, 266, 1920, None, 261)


def test_what_was_written_to_a_cache_keeps_the_providers_name_and_has_one_in_normal_form() -> None:
    by = reader()
    (delta,) = read({"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cache_write_tokens": 4}}}, by=by)
    assert delta.usage == ReportedUsage(9, cache_write_tokens=4)
    assert by.normal_usage(delta.usage).cache_write_input_tokens == 4


def test_groq_tells_usage_and_phases_beside() -> None:
    told = {"prompt_tokens": 1, "completion_tokens": 2, "queue_time": 0.25, "prompt_time": -1, "total_time": 1e300}
    (delta,) = read(chunk({}, finish="stop", x_groq={"usage": told}))
    assert delta.usage == ReportedUsage(1, 2)
    assert delta.phases == (("queue", 0.25),)


@pytest.mark.parametrize("junk", [-1, 1.5, "7", None, 1e300, {}, True])
def test_a_count_that_is_none_is_unknown(junk: Any) -> None:
    (delta,) = read({"usage": {"prompt_tokens": junk, "completion_tokens": 3}})
    assert delta.usage == ReportedUsage(None, 3)


# ---------------------------------------------------------------- requests


def test_all_that_was_said_so_far_is_a_repeat_and_no_new_text() -> None:
    def both(delta: str | None, message: str | None, finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": {"content": delta}, "message": {"content": message}, "finish_reason": finish}
        return {"choices": [choice]}

    deltas = read(both("1", "1"), both(" 2", "1 2"), both("", "1 2!", "stop"))
    assert [delta.text for delta in deltas] == [(TextPiece(0, "1"),), (TextPiece(0, " 2"),), ()]
    assert [delta.full_text for delta in deltas] == [(), (TextPiece(0, "1 2"),), (TextPiece(0, "1 2!"),)]
    # What is sent twice is no repeat.
    assert [delta.full_text for delta in read(both("a", "a"), both("b", "b"), both(None, None))] == [(), (), ()]


def test_reasoning_beside_the_output_is_added_to_it() -> None:
    by = reader()
    details = {"reasoning_tokens": 25}
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 37, "completion_tokens_details": details}
    (delta,) = read({"choices": [], "usage": usage}, by=by)
    assert delta.usage == ReportedUsage(10, 2, None, None, 25)
    assert by.normal_usage(delta.usage) == Usage(10, 27, None, None, 25)


def test_times_beside_the_usage_are_phases() -> None:
    (llama,) = read({"choices": [], "timings": {"prompt_ms": 50.0, "predicted_ms": 400.0}})
    assert llama.phases == (("prefill", 0.05), ("decode", 0.4))
    (cerebras,) = read({"choices": [], "time_info": {"queue_time": 0.5, "total_time": 1.5}})
    assert cerebras.phases == (("queue", 0.5), ("total", 1.5))


def test_it_speaks_under_paths_that_others_have_too() -> None:
    response = ResponseHead(200, Headers())
    raw = "/v1/projects/p/locations/l/publishers/{}/models/m:streamRawPredict"
    for path, host, hint, speaks in (
        ("/v1/chat", "api.writer.com", None, True), ("/v1/chat", "h", "writer", True),
        ("/v1/chat", "api.cohere.com", None, False), (raw.format("mistralai"), "h", None, True),
        (raw.format("anthropic"), "h", None, False),
    ):  # fmt: skip
        assert OpenAiChat().speaks(RequestHead("POST", path, host, Headers(), hint), response) == speaks


def test_it_speaks_where_chat_completions_are_posted() -> None:
    response = ResponseHead(200, Headers())
    for method, path, expected in (
        ("POST", "/v1/chat/completions", True), ("POST", "/openai/deployments/d/chat/completions/", True),
        ("GET", "/v1/chat/completions", False), ("POST", "/v1/completions", False),
    ):  # fmt: skip
        assert OpenAiChat().speaks(RequestHead(method, path, "h", Headers()), response) is expected


def test_a_request_says_what_it_wants() -> None:
    facts = OpenAiChat().request_facts(json.dumps({
        "model": "m", "stream": True, "max_tokens": 5, "max_completion_tokens": 7,
        "messages": [{"role": "user", "content": "q?"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}, {"type": "x"}],
    }).encode())  # fmt: skip
    assert (facts.model, facts.stream, facts.max_output_tokens, facts.query) == ("m", True, 7, "q?")
    assert facts.expectation == Expectation("json_schema", b'{"type": "object"}', "n")
    assert facts.tool_schemas == {"f": b'{"type": "object"}'}


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ({"type": "text"}, None), ({"type": "json_object"}, Expectation("json")), (None, None),
        ({"type": "json_schema"}, Expectation("json")),
        ({"type": "json_schema", "schema": {}}, Expectation("json_schema", b"{}")),
    ],
)  # fmt: skip
def test_the_wish_for_a_format_is_read(wish: Any, expected: Expectation | None) -> None:
    assert OpenAiChat().request_facts(json.dumps({"response_format": wish}).encode()).expectation == expected


def test_a_request_that_is_no_json_is_unreadable() -> None:
    with pytest.raises(UnreadableError):
        OpenAiChat().request_facts(b"model=m")


# ---------------------------------------------------------------- anything

WORDS = [
    "choices", "delta", "message", "content", "tool_calls", "function", "name", "arguments", "index", "id", "usage",
    "error", "finish_reason", "prompt_tokens", "completion_tokens", "reasoning", "refusal", "model", "type", "text",
    "x_groq", "code", "object", "thinking", "queue_time", "function_call", "prompt_tokens_details", "cached_tokens",
]  # fmt: skip
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats() | st.text(max_size=3) | st.just("\ud83d"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=6),
    max_leaves=25,
)
CHUNKS = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries({"delta": JUNK}, optional={"index": JUNK, "finish_reason": JUNK}) | JUNK
        )
    },
    optional={"usage": JUNK, "error": JUNK, "model": JUNK, "x_groq": JUNK},
)


@given(st.lists((CHUNKS | JUNK).map(lambda value: json.dumps(value).encode()) | st.binary(max_size=30), max_size=6))
def test_any_frames_give_facts_that_can_be_written(bodies: list[bytes]) -> None:
    by = reader()
    for body in bodies:
        delta = by.read(Frame(body))
        assert delta is not None
        assert all(0 <= piece.index <= MAX_CALLS for piece in delta.tools)
        assert delta.error is None or delta.error.kind in ERROR_KINDS
        assert all(0 <= seconds < 1e6 for _, seconds in delta.phases)
        assert 0 <= delta.choices <= 128
        if delta.usage is not None:
            counts = msgspec.structs.astuple(delta.usage)
            assert all(count is None or (type(count) is int and count >= 0) for count in counts)
            by.normal_usage(delta.usage)
    by.ended_well()


@given(JUNK.map(lambda value: json.dumps(value).encode()))
def test_any_request_gives_facts_or_is_unreadable(body: bytes) -> None:
    facts = OpenAiChat().request_facts(body)
    assert facts.model is None or isinstance(facts.model, str)
