"""Realtime events of one connection, with the client's own, become one record."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.analyst.accumulate import digest_of
from collector.analyst.fold import ExchangeFold, RouteFacts, Rules
from collector.app import DIALECTS
from collector.catalogue import ERROR_KINDS
from collector.dialects.openai_realtime import MAX_TALK, OpenAiRealtime, RealtimeReader
from collector.model import (
    MAX_CALLS,
    MAX_CHOICES,
    BytesSeen,
    Delta,
    Exchange,
    ExchangeEnded,
    Finish,
    Frame,
    Headers,
    RateLimit,
    Record,
    RequestHead,
    RequestSeen,
    ResponseHead,
    ResponseSeen,
    TextPiece,
    Timing,
    ToolPiece,
    Usage,
    WireError,
)

from ..wire.pieces import cut, single  # noqa: TID252 - the root is not on the path of plain pytest
from ..wire.socket_frames import BINARY, PING, TEXT, Deflating, close, frame, message  # noqa: TID252

PATH = "/v1/realtime?model=gpt-realtime&api-version=1"
UPGRADED = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
DEFLATES = "Sec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover\r\n"


def usage(came: int, made: int, cached: int | None = None) -> dict[str, Any]:
    details = {} if cached is None else {"cached_tokens": cached, "text_tokens": came}
    return {"total_tokens": came + made, "input_tokens": came, "output_tokens": made, "input_token_details": details}


def created(name: str = "resp_1") -> dict[str, Any]:
    return {"type": "response.created", "response": {"id": name, "status": "in_progress", "output": []}}


def said(text: str, name: str = "resp_1", kind: str = "output_text") -> dict[str, Any]:
    where = {"item_id": "item_1", "output_index": 0, "content_index": 0}
    return {"type": f"response.{kind}.delta", "response_id": name, **where, "delta": text}


def done(name: str = "resp_1", status: str = "completed", **more: Any) -> dict[str, Any]:
    return {"type": "response.done", "response": {"id": name, "status": status, **more}}


def answered(text: str, kind: str = "output_text", field: str = "text") -> dict[str, Any]:
    part = {"type": kind, field: text}
    return {"id": "item_1", "type": "message", "role": "assistant", "content": [part]}


SESSION = {"type": "session.created", "session": {"model": "gpt-realtime-1", "tools": []}}
ANSWER = [
    SESSION,
    {"type": "rate_limits.updated", "rate_limits": [
        {"name": "requests", "limit": 1000, "remaining": 999, "reset_seconds": 60},
        {"name": "tokens", "limit": 50000, "remaining": 49950, "reset_seconds": 0.5},
    ]},
    created(), said("Hé 🙂"), said("\u2028 lo"),
    done(usage=usage(10, 4, 2), output=[answered("Hé 🙂\u2028 lo")]),
]  # fmt: skip
ASKED = [
    {"type": "session.update", "session": {
        "instructions": "Be brief.", "max_output_tokens": 50, "model": "gpt-realtime",
        "tools": [{"type": "function", "name": "find", "parameters": {"type": "object"}}],
    }},
    {"type": "input_audio_buffer.append", "audio": "AAAA"},
    {"type": "conversation.item.create", "item": {
        "type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is the weather?"}],
    }},
    {"type": "response.create"},
]  # fmt: skip

Piece = tuple[float, bool, bytes]  # when, from upstream, what


def exchange(
    pieces: list[Piece], *, head: str = UPGRADED, path: str = PATH, how: Any = "complete", host: str = "h"
) -> Exchange:
    seen = RequestSeen(1, 0.0, 0.0, "r", f"GET {path} HTTP/1.1\r\nUpgrade: websocket\r\n\r\n".encode())
    rules = Rules(DIALECTS, new_digest=digest_of("sha256", b""))
    fold = ExchangeFold("x", seen, RouteFacts("r", host), rules)
    fold.response_seen(ResponseSeen(1, 1.0, 0.5, None, f"{head}\r\n".encode()))
    for at, from_upstream, data in pieces:
        fold.bytes_seen(BytesSeen(1, at, from_upstream, data))
    return fold.ended(ExchangeEnded(1, 90.0, how, 0.0))


def record(*bodies: Any, then: bytes = b"", **how: Any) -> Record:
    wire = b"".join(message(body) for body in bodies) + then
    return exchange([(2.0, True, wire)], **how).record


def read(*bodies: Any, by: RealtimeReader | None = None) -> list[Delta]:
    by = by if by is not None else RealtimeReader(ResponseHead(101, Headers()))
    deltas = [by.read(Frame(body if isinstance(body, bytes) else json.dumps(body).encode())) for body in bodies]
    return [delta for delta in deltas if delta is not None]


# ---------------------------------------------------------------- one connection


def test_one_answer_on_a_connection() -> None:
    pieces: list[Piece] = [(1.5, True, message(ANSWER[0]))]
    pieces += [(2.0 + number, False, message(body, masked=True)) for number, body in enumerate(ASKED)]
    pieces += [(6.0 + number, True, message(body)) for number, body in enumerate(ANSWER[1:])]
    pieces += [(20.0, False, frame(PING, masked=True)), (20.1, True, frame(BINARY, b"x")), (21.0, False, close(1000))]
    found = exchange(pieces)
    told = found.record
    assert (told.dialect, told.operation, told.provider, told.transport) == (
        "openai.realtime", "realtime", "openai", "websocket",
    )  # fmt: skip
    assert (told.status, told.outcome, told.stream, told.anomalies) == (101, "completed", True, ())
    assert (told.request_model, told.response_model) == ("gpt-realtime", "gpt-realtime-1")
    assert told.finish_reasons == ("completed",)
    assert told.usage == Usage(10, 4, 2, None, None)
    assert told.text.sha256 == hashlib.sha256("Hé 🙂\u2028 lo".encode()).hexdigest()
    assert told.correction_ratio == 0.0
    assert (told.frames.data, told.frames.pings, told.frames.content) == (7, 1, 2)
    # Asked at 5.0, begun at 7.0, first token at 8.0; the limits came five seconds after the head.
    assert (told.timing.first_token, told.timing.chunk_gaps.gaps) == (3.0, (1.0,))
    assert told.rate_limits == (
        RateLimit("requests", None, 1000.0, 999.0, None, 65.0),
        RateLimit("tokens", None, 50000.0, 49950.0, None, 5.5),
    )
    assert told.bytes_in == sum(len(data) for _, from_upstream, data in pieces if not from_upstream)
    assert (found.request.query, found.request.max_output_tokens) == ("What is the weather?", 50)
    assert found.request.tool_schemas == {"find": b'{"type": "object"}'}


def test_several_answers_are_choices_and_their_usage_is_summed() -> None:
    call = {"type": "function_call", "id": "item_2", "name": "find", "call_id": "c"}
    delta = {"type": "response.function_call_arguments.delta", "response_id": "resp_2", "item_id": "item_2"}
    bodies = [
        SESSION, created(), said("one", kind="audio_transcript"),
        done(usage=usage(10, 4, 2), output=[answered("one", "audio", "transcript")]),
        created("resp_2"),
        {"type": "response.output_item.added", "response_id": "resp_2", "output_index": 0, "item": call},
        {**delta, "output_index": 0, "delta": '{"a":'}, {**delta, "output_index": 0, "delta": "1}"},
        {**delta, "type": "response.function_call_arguments.done", "output_index": 0, "arguments": '{"a":1}'},
        {"type": "response.output_item.done", "response_id": "resp_2", "output_index": 0,
         "item": {**call, "arguments": '{"a":1}'}},
        done("resp_2", usage=usage(20, 6), output=[{**call, "arguments": '{"a":1}'}]),
        created("resp_3"), said("thr", "resp_3", "output_audio_transcript"), done("resp_3", "cancelled"),
    ]  # fmt: skip
    told = record(*bodies)
    assert told.finish_reasons == ("completed", "completed", "cancelled")
    assert (told.outcome, told.usage) == ("incomplete", Usage(30, 10, 2, None, None))
    assert [fact.chars for fact in told.text.choices] == [3, 0, 3]
    assert [(fact.choice, fact.index, fact.name, fact.arguments_chars) for fact in told.tool_calls] == [
        (1, 0, "find", 7)
    ]
    assert told.tool_calls[0].arguments_sha256 == hashlib.sha256(b'{"a":1}').hexdigest()
    assert told.correction_ratio == 0.0


def test_the_time_between_two_answers_is_no_gap() -> None:
    bodies = [created(), said("a"), said("b"), done(), created("resp_2"), said("c", "resp_2"), said("d", "resp_2")]
    pieces: list[Piece] = [(2.0 + number, True, message(body)) for number, body in enumerate(bodies[:4])]
    pieces += [(50.0 + number, True, message(body)) for number, body in enumerate([*bodies[4:], done("resp_2")])]
    told = exchange(pieces).record
    assert told.timing.chunk_gaps.gaps == (1.0, 1.0)
    assert told.timing.first_token == 1.0  # from where the server began, since nobody asked


def test_an_answer_that_was_not_streamed_is_in_its_end() -> None:
    call = {"type": "function_call", "id": "i", "name": "find", "arguments": "{}"}
    told = record(created(), done(output=[answered("whole"), call]))
    assert (told.text.chars, len(told.tool_calls), told.correction_ratio) == (5, 1, None)


def test_what_is_said_otherwise_in_the_end_is_a_correction() -> None:
    told = record(created(), said("abcd"), done(output=[answered("abXd")]))
    assert told.correction_ratio == 0.25


# ---------------------------------------------------------------- endings


def test_a_connection_that_ends_within_an_answer_is_truncated() -> None:
    told = record(created(), said("a"))
    assert (told.outcome, told.phase, told.finish_reasons) == ("truncated", "streaming", (None,))
    assert record(created(), said("a"), then=close(1000)).outcome == "truncated"
    assert record(created(), said("a"), done(), then=frame(TEXT, b"x" * 9)[:-1]).outcome == "completed"


def test_a_client_that_closes_within_an_answer_has_left() -> None:
    wire = message(created()) + message(said("a"))
    told = exchange([(2.0, True, wire), (3.0, False, close(1000, masked=True)), (3.1, True, close(1000))]).record
    assert (told.outcome, told.phase) == ("client_disconnect", "streaming")
    answered_close = exchange([(2.0, True, wire + close(1000)), (3.0, False, close(1000, masked=True))]).record
    assert answered_close.outcome == "truncated"


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (1011, b"", WireError(None, "1011", "server_error")),
        (1013, b"try again later", WireError(None, "1013", "overloaded")),
        (4000, b"invalid_request_error.invalid_model",
         WireError("invalid_request_error.invalid_model", "4000", "invalid_request")),
        (3999, b"\xff\xfe", WireError(None, "3999", "unclassified")),
    ],
)  # fmt: skip
def test_a_close_that_tells_of_an_error(code: int, reason: bytes, error: WireError) -> None:
    told = record(SESSION, then=close(code, reason))
    assert told.outcome == "error_event"
    assert told.error is not None
    assert (told.error.type, told.error.code, told.error.kind) == (error.type, error.code, error.kind)
    assert told.error.mid_stream


@pytest.mark.parametrize("then", [b"", close(1000), close(1001, b"going"), frame(8)])
def test_a_quiet_connection_is_completed(then: bytes) -> None:
    told = record(SESSION, then=then)
    assert (told.outcome, told.finish_reasons, told.usage) == ("completed", (), None)


def test_errors() -> None:
    body = {"type": "error", "error": {"type": "invalid_request_error", "code": "session_expired", "message": "x"}}
    told = record(SESSION, body)
    assert (told.outcome, told.error and told.error.code) == ("error_event", "session_expired")
    failed = {"type": "failed", "error": {"type": "server_error", "code": "rate_limit_exceeded"}}
    told = record(created(), done(status="failed", status_details=failed))
    assert (told.outcome, told.error and told.error.kind) == ("error_event", "rate_limited")
    told = record(created(), done(status="failed"))
    assert told.error is not None
    assert told.error.kind == "server_error"


def test_an_answer_that_was_filtered_is_blocked() -> None:
    details = {"type": "incomplete", "reason": "content_filter"}
    assert record(created(), done(status="incomplete", status_details=details)).outcome == "blocked"
    assert record(created(), done(status="incomplete")).outcome == "incomplete"


def test_an_upgrade_that_is_refused_is_an_error_like_any_other() -> None:
    head = "HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\n"
    body = json.dumps({"error": {"type": "invalid_request_error", "code": "invalid_api_key"}}).encode()
    told = exchange([(2.0, True, body)], head=head).record
    assert (told.dialect, told.outcome, told.transport) == ("openai.realtime", "upstream_error", "json")
    assert told.error is not None
    assert (told.error.code, told.error.kind) == ("invalid_api_key", "auth")
    assert told.request_model == "gpt-realtime"


def test_a_websocket_of_another_kind_is_counted_not_read() -> None:
    wire = frame(TEXT, b"hello") + frame(PING) + frame(BINARY, b"123")
    pieces: list[Piece] = [(2.0, True, wire), (2.1, False, frame(TEXT, b"{", masked=True)), (2.2, True, close(1000))]
    told = exchange(pieces, path="/v1/other").record
    assert (told.dialect, told.outcome, told.frames.data, told.frames.pings) == ("unknown", "completed", 2, 1)
    assert (told.anomalies, told.bytes_in) == ((), 7)


def test_another_protocol_is_not_read_at_all() -> None:
    told = exchange([(2.0, True, b"\x00" * 9)], head="HTTP/1.1 101 x\r\nUpgrade: other\r\n", path="/x").record
    assert (told.outcome, told.anomalies, told.frames.data, told.bytes_out) == ("completed", (), None, 9)


# ---------------------------------------------------------------- bytes


def timeless(told: Record) -> Record:
    return msgspec.structs.replace(told, timing=Timing())


@pytest.mark.parametrize("deflates", [False, True])
def test_the_record_does_not_depend_on_where_bytes_are_cut(deflates: bool) -> None:
    bodies = [json.dumps(body, ensure_ascii=False).encode() for body in ANSWER]
    head = UPGRADED + DEFLATES if deflates else UPGRADED
    sender = Deflating()
    wire = b"".join(
        frame(TEXT, sender.deflated(body), reserved=0x40) if deflates else frame(TEXT, body) for body in bodies
    )
    asked = b"".join(
        frame(TEXT, Deflating().deflated(json.dumps(body).encode()), reserved=0x40, masked=True)
        if deflates
        else message(body, masked=True)
        for body in ASKED
    )

    def told(ours: list[bytes], theirs: list[bytes]) -> tuple[Record, str | None]:
        pieces: list[Piece] = [(2.0, False, piece) for piece in theirs] + [(2.0, True, piece) for piece in ours]
        found = exchange(pieces, head=head)
        return timeless(found.record), found.request.query

    whole = told([wire], [asked])
    assert (whole[0].outcome, whole[0].anomalies, whole[1]) == ("completed", (), "What is the weather?")
    assert whole[0].text.chars == 8

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.integers(0, len(wire)), max_size=6), st.lists(st.integers(0, len(asked)), max_size=6))
    def at_any_places(ours: list[int], theirs: list[int]) -> None:
        assert told(cut(wire, ours), cut(asked, theirs)) == whole

    at_any_places()
    assert told(single(wire), single(asked)) == whole


KINDS = st.sampled_from([
    "session.created", "response.created", "response.done", "response.text.delta", "response.output_item.added",
    "response.output_item.done", "response.function_call_arguments.delta", "rate_limits.updated", "error",
    "session.update", "conversation.item.create", "response.create", "response.function_call_arguments.done",
    "conversation.item.input_audio_transcription.completed",
])  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["a", "function_call", "message"])
NAMES = st.sampled_from([
    "response_id", "item_id", "output_index", "delta", "item", "response", "session", "id", "type", "name", "arguments",
    "usage", "input_tokens", "input_token_details", "cached_tokens", "status", "status_details", "error", "code",
    "output", "content", "text", "transcript", "rate_limits", "limit", "remaining", "reset_seconds", "tools",
    "parameters", "instructions", "input", "role", "reason", "max_output_tokens",
])  # fmt: skip
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=8
)
BODIES = st.builds(lambda kind, rest: {**rest, "type": kind}, KINDS, st.dictionaries(NAMES, VALUES, max_size=6))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.booleans(), BODIES.map(lambda body: json.dumps(body).encode()) | st.binary(max_size=20))))
def test_no_events_are_too_odd(events: list[tuple[bool, bytes]]) -> None:
    pieces: list[Piece] = [(2.0, up, frame(TEXT, body[:60_000], masked=not up)) for up, body in events]
    told = exchange(pieces).record
    assert told.error is None or told.error.kind in ERROR_KINDS
    assert len(told.finish_reasons) <= MAX_CHOICES


# ---------------------------------------------------------------- bounds and odd events


def test_more_answers_than_are_followed_are_told_and_still_counted() -> None:
    bodies = [body for n in range(MAX_CHOICES + 2) for body in (created(f"r{n}"), done(f"r{n}", usage=usage(1, 1)))]
    told = record(*bodies)
    assert (len(told.finish_reasons), told.usage) == (MAX_CHOICES, Usage(MAX_CHOICES + 2, MAX_CHOICES + 2))
    assert told.anomalies == ("choices_over_cap",)
    assert told.outcome == "completed"


def test_more_calls_than_are_followed_are_told() -> None:
    item = {"type": "function_call", "name": "f"}
    bodies = [
        {"type": "response.output_item.added", "response_id": "r", "output_index": n, "item": item}
        for n in range(MAX_CALLS + 1)
    ]
    told = record(created("r"), *bodies, done("r"))
    assert (len(told.tool_calls), told.anomalies) == (MAX_CALLS, ("choices_over_cap", "usage_missing"))


def test_an_end_that_is_told_again_counts_once() -> None:
    assert record(created(), done(usage=usage(1, 2)), done(usage=usage(1, 2))).usage == Usage(1, 2)


def test_events_that_name_no_response_belong_to_the_last() -> None:
    deltas = read(
        {"type": "response.created"}, {"type": "response.text.delta", "delta": "a"}, {"type": "response.done"}
    )
    assert deltas[1].text == (TextPiece(0, "a"),)
    assert deltas[2].finish == (Finish(0, "completed"),)
    late = read({"type": "response.text.delta", "response_id": "x", "delta": "a"}, done("x"))
    assert (late[0].text, late[1].finish) == ((TextPiece(0, "a"),), (Finish(0, "completed"),))


def test_arguments_that_come_only_at_their_end() -> None:
    added = {"type": "response.output_item.added", "output_index": 1, "item": {"type": "function_call", "name": "f"}}
    end = {"type": "response.function_call_arguments.done", "output_index": 1, "arguments": "{}"}
    deltas = read(created(), added, end, {**end, "type": "response.output_item.done", "item": {"type": "message"}})
    assert [piece for delta in deltas for piece in delta.tools] == [ToolPiece(0, 0, "f"), ToolPiece(0, 0, None, "{}")]


def test_limits_that_are_no_numbers_are_left_out() -> None:
    limits = [{"name": "requests", "limit": -1}, {"name": "No Name", "limit": 1}, {"name": "tokens", "limit": "many"}]
    assert read({"type": "rate_limits.updated", "rate_limits": limits})[0].limits == ()


def test_what_the_user_said_aloud_is_the_query_of_the_one_answer() -> None:
    heard = {"type": "conversation.item.input_audio_transcription.completed", "transcript": "What is new?"}
    by = RealtimeReader(ResponseHead(101, Headers()))
    read(heard, created(), done(), by=by)
    assert by.asked().query == "What is new?"
    read(created("resp_2"), by=by)
    assert by.asked().query is None


def test_what_the_client_says_is_bounded() -> None:
    by = RealtimeReader(ResponseHead(101, Headers()))
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x" * 50_000}]}
    event = json.dumps({"type": "conversation.item.create", "item": item}).encode()
    for _ in range(10):
        assert not by.hear(Frame(event))
    assert by._heard._chars <= MAX_TALK
    assert not by.hear(Frame(b"{"))
    assert by.hear(Frame(b'{"type":"response.create","response":{"input":[{"type":"function_call_output"}]}}'))


@pytest.mark.parametrize(
    ("method", "path", "speaks"),
    [
        ("GET", "/v1/realtime", True), ("GET", "/openai/realtime", True), ("GET", "/openai/v1/realtime/", True),
        ("POST", "/v1/realtime", False), ("GET", "/v1/realtime/sessions", False), ("GET", "/v1/models", False),
    ],
)  # fmt: skip
def test_which_requests_it_speaks(method: str, path: str, speaks: bool) -> None:
    assert OpenAiRealtime().speaks(RequestHead(method, path, "h", Headers()), ResponseHead(101, Headers())) is speaks
