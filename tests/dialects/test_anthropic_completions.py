"""Anthropic's text completions, in both of their versions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.dialects.anthropic_completions import MAX_SAID, AnthropicCompletions, CompleteReader
from collector.dialects.decoding import UnreadableError
from collector.model import Delta, Finish, Frame, Headers, RequestHead, ResponseHead, TextPiece, WireError

from ..wire.memory import held_by  # noqa: TID252 - the root is not on the path of plain pytest


def reader(status: int = 200) -> CompleteReader:
    return CompleteReader(ResponseHead(status, Headers()))


def read(*bodies: Any, by: CompleteReader | None = None, event: str | None = None) -> list[Delta]:
    by = by if by is not None else reader()
    found = []
    for body in bodies:
        delta = by.read(Frame(body if isinstance(body, bytes) else json.dumps(body).encode(), event))
        assert delta is not None
        found.append(delta)
    return found


def text_of(deltas: list[Delta]) -> str:
    return "".join(piece.text for delta in deltas for piece in delta.text)


def test_typed_events_tell_what_is_new() -> None:
    by = reader()
    words = [" ha", " ha", " ha ha"]
    bodies = [{"type": "completion", "completion": word, "stop_reason": None, "model": "m"} for word in words]
    deltas = read(*bodies, {"type": "completion", "completion": "", "stop_reason": "stop_sequence"}, by=by)
    assert text_of(deltas) == " ha ha ha ha"
    assert deltas[-1].finish == (Finish(0, "stop_sequence"),)
    assert by.ended_well()


def test_events_without_a_type_tell_everything_again() -> None:
    bodies = [{"completion": said, "stop_reason": None, "model": "m"} for said in (" He", " Hello", " Hello")]
    deltas = read(*bodies, {"completion": " Hello!", "stop_reason": "max_tokens"}, b"[DONE]")
    assert [delta.text for delta in deltas] == [
        (TextPiece(0, " He"),), (TextPiece(0, "llo"),), (), (TextPiece(0, "!"),), (),
    ]  # fmt: skip
    assert deltas[-1] == Delta(terminal=True, marker=True)


def test_little_pieces_take_little_more_than_their_characters() -> None:
    by = reader()
    read({"completion": "x"}, by=by)
    for _ in range(20_000):
        read({"completion": "ab"}, by=by)
    assert held_by(by) < 4 * 40_000
    assert text_of(read({"completion": "x" + "ab" * 20_000 + "!"}, by=by)) == "!"
    assert text_of(read({"completion": "x" * MAX_SAID}, {"completion": "y"}, by=by)) == "x" * MAX_SAID + "y"
    assert held_by(by) < 4 * 40_000


def test_a_whole_answer_is_read_at_once() -> None:
    (delta,) = read({"type": "completion", "completion": " Hi", "stop_reason": "stop_sequence", "model": "m"})
    assert delta == Delta(text=(TextPiece(0, " Hi"),), finish=(Finish(0, "stop_sequence"),), choices=1, model="m")


def test_pings_and_errors_are_told() -> None:
    assert read({"type": "ping"}) == [Delta(ping=True)]
    (delta,) = read({"error": {"type": "overloaded_error", "message": "m"}}, event="error")
    assert delta.error == WireError("overloaded_error", None, "overloaded")
    (failed,) = read({"error": {"type": "authentication_error"}}, by=reader(401))
    assert failed.error == WireError("authentication_error", None, "auth")
    assert read(b"{") == [Delta(malformed=True)]


def test_a_stream_that_says_no_reason_has_not_ended_well() -> None:
    by = reader()
    read({"type": "completion", "completion": " Hi", "stop_reason": None}, by=by)
    assert not by.ended_well()


def test_a_prompt_is_read_by_its_turns() -> None:
    prompt = "Be kind.\n\nHuman: Who are you?\n\nAssistant: A model.\n\nHuman: Why is it blue?\n\nAssistant:"
    asked = json.dumps({"model": "m", "stream": True, "prompt": prompt, "max_tokens_to_sample": 9}).encode()
    facts = AnthropicCompletions().request_facts(asked)
    assert (facts.model, facts.stream, facts.query, facts.max_output_tokens) == ("m", True, "Why is it blue?", 9)
    with pytest.raises(UnreadableError):
        AnthropicCompletions().request_facts(b"<xml/>")


def test_it_speaks_where_completions_are_posted() -> None:
    response = ResponseHead(200, Headers())
    assert AnthropicCompletions().speaks(RequestHead("POST", "/v1/complete", "h", Headers()), response)
    assert not AnthropicCompletions().speaks(RequestHead("POST", "/v1/completions", "h", Headers()), response)


@given(st.lists(st.binary(max_size=20) | st.from_regex(rb'\{"(completion|error|type)":[\[\]{}0-9"a-z]{0,8}\}')))
def test_any_frames_are_survived(bodies: list[bytes]) -> None:
    assert len(read(*bodies)) == len(bodies)
