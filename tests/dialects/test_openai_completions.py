"""Text completions, streamed and whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.catalogue import ERROR_KINDS
from collector.dialects.decoding import UnreadableError
from collector.dialects.openai_completions import CompletionsReader, OpenAiCompletions
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
    WireError,
)

REQUEST = RequestHead("POST", "/v1/completions", "h", Headers())


def reader(status: int = 200) -> CompletionsReader:
    return CompletionsReader(REQUEST, ResponseHead(status, Headers()))


def read(*bodies: Any, by: CompletionsReader | None = None) -> list[Delta]:
    by = by if by is not None else reader()
    deltas = [by.read(Frame(body if isinstance(body, bytes) else json.dumps(body).encode())) for body in bodies]
    return [delta for delta in deltas if delta is not None]


def chunk(text: str | None, index: int | None = 0, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": index, "text": text, "logprobs": None, "finish_reason": finish}
    return {"object": "text_completion", "model": "m", "choices": [choice], **more}


def test_the_usual_stream_is_text_then_a_finish_then_usage_then_the_marker() -> None:
    by = reader()
    deltas = read(
        chunk("Hel"),
        chunk("lo", usage=None),
        chunk("", finish="length"),
        {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}},
        b"[DONE]",
        by=by,
    )
    assert [delta.text for delta in deltas] == [(TextPiece(0, "Hel"),), (TextPiece(0, "lo"),), (), (), ()]
    assert deltas[2].finish == (Finish(0, "length"),)
    assert deltas[3].usage == ReportedUsage(5, 2)
    assert deltas[4] == Delta(terminal=True, marker=True)
    assert by.ended_well()


def test_choices_are_told_apart_by_index_and_by_place() -> None:
    both = [{"index": 1, "text": "b", "finish_reason": "stop"}, {"index": 0, "text": "a", "finish_reason": "length"}]
    (delta,) = read({"choices": both, "model": "m", "usage": {"prompt_tokens": 1, "completion_tokens": 2}})
    assert delta == Delta(
        text=(TextPiece(1, "b"), TextPiece(0, "a")), finish=(Finish(1, "stop"), Finish(0, "length")), choices=2,
        model="m", usage=ReportedUsage(1, 2),
    )  # fmt: skip
    assert read({"choices": [{"text": "a"}, {"text": "b"}]})[0].text == (TextPiece(0, "a"), TextPiece(1, "b"))


def test_frames_of_bare_values_are_text_without_choices_and_end_by_ending() -> None:
    by = reader()
    deltas = read({"value": "Hel"}, {"value": ""}, {"value": "lo"}, by=by)
    assert [delta.text for delta in deltas] == [(TextPiece(0, "Hel"),), (), (TextPiece(0, "lo"),)]
    assert all(delta.choices == 0 for delta in deltas)
    assert by.ended_well()
    assert not reader().ended_well()


def test_a_choice_without_a_finish_has_not_ended_well() -> None:
    by = reader()
    read(chunk("a"), chunk("", 1, "stop"), by=by)
    assert not by.ended_well()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"error": {"type": "overloaded_error", "code": 503}}, WireError("overloaded_error", "503", "overloaded")),
        ({"error": "rate_limited"}, WireError("rate_limited", None, "rate_limited")),
        ({"object": "error", "type": "BadRequestError", "code": 400},
         WireError("BadRequestError", "400", "invalid_request")),
        ({"choices": [{"index": 0, "error": {"code": 502, "message": "m"}}]}, WireError(None, "502", "server_error")),
        ({"error": None, "choices": []}, None),
    ],
)  # fmt: skip
def test_an_error_inside_a_200_is_an_error(body: dict[str, Any], error: WireError | None) -> None:
    assert read(body)[0].error == error


def test_with_an_error_status_any_body_tells_the_error() -> None:
    (delta,) = read({"error": {"type": "invalid_request_error", "code": "invalid_api_key"}}, by=reader(401))
    assert delta.error == WireError("invalid_request_error", "invalid_api_key", "auth")


def test_it_speaks_where_completions_are_posted_that_are_no_chat() -> None:
    response = ResponseHead(200, Headers())
    for method, path, speaks in (
        ("POST", "/v1/completions", True), ("POST", "//openai/deployments/d/completions", True),
        ("POST", "/v1/chat/completions", False), ("GET", "/v1/completions", False), ("POST", "/completion", False),
    ):  # fmt: skip
        assert OpenAiCompletions().speaks(RequestHead(method, path, "h", Headers()), response) == speaks


def test_a_request_says_what_it_wants() -> None:
    speaks = OpenAiCompletions().request_facts
    facts = speaks(b'{"model":"m","stream":true,"prompt":"Why is the sky blue?","max_tokens":5}')
    assert (facts.model, facts.stream, facts.query, facts.max_output_tokens) == ("m", True, "Why is the sky blue?", 5)
    assert speaks(b'{"prompt":["Why is it blue?"]}').query == "Why is it blue?"
    assert speaks(b'{"prompt":[[1,2],[3]]}').query is speaks(b'{"prompt":[1,2]}').query is None
    with pytest.raises(UnreadableError):
        speaks(b"<xml/>")


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ({"response_format": {"type": "json_object"}}, Expectation("json")),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}},
         Expectation("json_schema", b'{"type": "object"}', "n")),
        ({"guided_json": {"type": "object"}}, Expectation("json_schema", b'{"type": "object"}')),
        ({"guided_json": None, "response_format": {"type": "text"}}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_the_wish_for_a_format_is_read(wish: dict[str, Any], expected: Expectation | None) -> None:
    assert OpenAiCompletions().request_facts(json.dumps(wish).encode()).expectation == expected


WORDS = [
    "choices",
    "index",
    "text",
    "finish_reason",
    "usage",
    "prompt_tokens",
    "error",
    "code",
    "value",
    "type",
    "prompt",
]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats() | st.sampled_from(["", "stop", "error", "\ud83d"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=6),
    max_leaves=20,
)


@given(st.lists(JUNK.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=30), max_size=6))
def test_any_frames_give_facts(bodies: list[bytes]) -> None:
    by = reader()
    for delta in read(*bodies, by=by):
        assert delta.error is None or delta.error.kind in ERROR_KINDS
        if delta.usage is not None:
            by.normal_usage(delta.usage)
    by.ended_well()


@given(JUNK.map(lambda value: json.dumps(value).encode()))
def test_any_request_gives_facts(body: bytes) -> None:
    facts = OpenAiCompletions().request_facts(body)
    assert facts.model is None or isinstance(facts.model, str)
