"""Text Generation Inference's own wire, streamed and whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.catalogue import ERROR_KINDS
from collector.dialects.decoding import UnreadableError
from collector.dialects.tgi import MAX_REPEATED, Tgi, TgiReader
from collector.model import Expectation, Frame, Headers, Record, RequestHead, ResponseHead, Usage

from ..wire.memory import held_by  # noqa: TID252 - the root is not on the path of plain pytest
from ..wire.pieces import cut, single  # noqa: TID252 - the root is not on the path of plain pytest
from .wires import exchange, sse

STREAM = "text/event-stream"


def token(text: str, *, special: bool = False, **more: Any) -> dict[str, Any]:
    told = {"index": 1, "token": {"id": 7, "text": text, "logprob": -0.5, "special": special}}
    return {**told, "generated_text": None, "details": None, **more}


def last(text: str, whole: str, reason: str = "length", *, special: bool = False) -> dict[str, Any]:
    details = {"finish_reason": reason, "generated_tokens": 3, "input_length": 9, "seed": None}
    return token(text, special=special, generated_text=whole, details=details)


def streamed(*pieces: bytes, **more: Any) -> Record:
    return exchange("/generate_stream", *pieces, kind=STREAM, **more).record


def test_a_stream_with_its_special_token_left_out() -> None:
    told = streamed(sse(token("Hé"), token(" 🙂"), last("</s>", "Hé 🙂", "eos_token", special=True)))
    assert (told.dialect, told.outcome, told.finish_reasons) == ("tgi", "completed", ("eos_token",))
    assert (told.text.chars, told.usage, told.correction_ratio) == (4, Usage(9, 3), 0.0)
    assert (told.frames.data, told.frames.content, told.anomalies) == (3, 2, ())


def test_a_limit_ends_it_early_and_a_cut_truncates_it() -> None:
    assert streamed(sse(token("a"), last("b", "ab"))).outcome == "incomplete"
    assert streamed(sse(token("a"))).outcome == "truncated"


def test_the_prompt_before_the_whole_text_is_no_correction() -> None:
    assert streamed(sse(token("a"), last("b", "Say: ab"))).correction_ratio == 0.0
    assert streamed(sse(token("a"), last("b", "Ab"))).correction_ratio == 0.5


def test_more_than_is_compared_is_no_correction_either() -> None:
    reader = TgiReader(ResponseHead(200, Headers()))
    reader.read(Frame(json.dumps(token("x" * (MAX_REPEATED + 1))).encode()))
    said = reader.read(Frame(json.dumps(last("y", "z")).encode()))
    assert said is not None
    assert said.full_text == ()


def test_little_pieces_take_little_more_than_their_characters_and_nothing_once_they_are_too_many() -> None:
    reader = TgiReader(ResponseHead(200, Headers()))
    little = Frame(json.dumps(token("ab")).encode())
    for _ in range(20_000):
        reader.read(little)
    assert held_by(reader) < 4 * 40_000
    reader.read(Frame(json.dumps(token("x" * MAX_REPEATED)).encode()))
    for _ in range(5000):
        reader.read(little)
    assert held_by(reader) < 10_000


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("overloaded", "overloaded"), ("validation", "invalid_request"), ("generation", "server_error"),
        (None, "server_error"),
    ],
)  # fmt: skip
def test_errors_in_a_stream(word: str | None, kind: str) -> None:
    told = streamed(sse(token("a"), {"error": "Request failed during generation", "error_type": word}))
    assert told.outcome == "error_event"
    assert told.error is not None
    assert (told.error.type, told.error.kind, told.error.mid_stream) == (word, kind, True)


def test_a_whole_answer_counts_its_input_in_a_header() -> None:
    body = {"generated_text": "ab", "details": {"finish_reason": "stop_sequence", "generated_tokens": 2}}
    headers = ("x-prompt-tokens: 11", "x-generated-tokens: 2", "x-queue-time: 3", "x-time-per-token: 20")
    told = exchange("/generate", json.dumps(body).encode(), headers=headers).record
    assert (told.outcome, told.finish_reasons, told.usage) == ("completed", ("stop_sequence",), Usage(11, 2))
    assert told.upstream.phases == {"queue": 0.003, "per_token": 0.02}
    bare = exchange("/generate", b'{"generated_text":"ab"}', headers=("x-compute-type: cpu",)).record
    assert (bare.finish_reasons, bare.text.chars, bare.usage) == ((None,), 2, None)


def test_an_error_with_a_status() -> None:
    body = b'{"error":"Model is overloaded","error_type":"overloaded"}'
    told = exchange("/generate_stream", body, status=429).record
    assert told.error is not None
    assert (told.outcome, told.error.type, told.error.kind) == ("upstream_error", "overloaded", "overloaded")


@pytest.mark.parametrize(
    ("grammar", "expected"),
    [
        ({"type": "json", "value": '{"type": "object"}'}, Expectation("json_schema", b'{"type": "object"}')),
        ({"type": "json_schema", "value": {"name": "n", "schema": {"type": "array"}}},
         Expectation("json_schema", b'{"type": "array"}', "n")),
        ({"type": "regex", "value": "a+"}, Expectation("json_schema", b'{"pattern":"^(?:a+)$"}', is_text=True)),
        ({"type": "regex"}, None),
        ({"type": "ebnf", "value": "root ::= [a]"}, None),
        (None, None),
    ],
)  # fmt: skip
def test_the_grammar_is_read(grammar: Any, expected: Expectation | None) -> None:
    """huggingface.co/docs/text-generation-inference, Guidance; router/src/lib.rs, GrammarType."""
    asked = {"inputs": "What?", "parameters": {"grammar": grammar}}
    assert Tgi().request_facts(json.dumps(asked).encode()).expectation == expected


def test_the_request() -> None:
    schema = {"type": "object"}
    asked = {"inputs": "What?", "parameters": {"max_new_tokens": 5, "grammar": {"type": "json", "value": schema}}}
    facts = Tgi().request_facts(json.dumps(asked).encode())
    assert (facts.query, facts.max_output_tokens) == ("What?", 5)
    assert facts.expectation == Expectation("json_schema", b'{"type": "object"}')
    assert Tgi().request_facts(b"{}").query is None
    with pytest.raises(UnreadableError):
        Tgi().request_facts(b"{")


COMPUTED = (("x-compute-type", "1-cpu"),)


@pytest.mark.parametrize(
    ("method", "path", "headers", "speaks"),
    [
        ("POST", "/generate", COMPUTED, True), ("POST", "/generate", (), False), ("GET", "/generate", COMPUTED, False),
        ("POST", "/x/generate_stream/", (), True), ("POST", "/v1", COMPUTED, False),
    ],
)  # fmt: skip
def test_which_requests_it_speaks(method: str, path: str, headers: tuple[tuple[str, str], ...], speaks: bool) -> None:
    request, response = RequestHead(method, path, "h", Headers()), ResponseHead(200, Headers(headers))
    assert Tgi().speaks(request, response) is speaks


BODY = sse(token("Hé"), token(" 🙂\u2028"), last("", "Hé 🙂\u2028"))


@given(st.lists(st.integers(0, len(BODY)), max_size=8))
def test_the_record_does_not_depend_on_where_bytes_are_cut(places: list[int]) -> None:
    whole = streamed(BODY)
    told = streamed(*cut(BODY, places))
    assert (told.text, told.usage, told.outcome, told.frames) == (whole.text, whole.usage, whole.outcome, whole.frames)
    told = streamed(*single(BODY))
    assert (told.text, told.usage, told.outcome, told.frames) == (whole.text, whole.usage, whole.outcome, whole.frames)


VALUES = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["text", "special", "finish_reason", "input_length"]), inner, max_size=3)
    ),
    max_leaves=5,
)
NAMES = st.sampled_from(["token", "generated_text", "details", "error", "error_type", "index"])


@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=4).map(lambda body: json.dumps(body).encode()) | st.binary()))
def test_no_body_is_too_odd(bodies: list[bytes]) -> None:
    told = streamed(b"".join(b"data: " + body + b"\n\n" for body in bodies))
    assert told.error is None or told.error.kind in ERROR_KINDS
