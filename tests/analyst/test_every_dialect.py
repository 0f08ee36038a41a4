"""What holds for every dialect in every transport, from bytes to record: no cut matters, no bytes are too odd."""

from __future__ import annotations

import functools
import gzip
import json
import sys
import zlib
from collections.abc import Callable
from typing import Any

import brotli
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.analyst.accumulate import digest_of
from collector.analyst.answer import Limits
from collector.analyst.fold import ExchangeFold, RouteFacts, Rules
from collector.app import DIALECTS
from collector.catalogue import ANOMALIES, ERROR_KINDS, OUTCOMES, TRANSPORTS
from collector.model import BytesSeen, Exchange, ExchangeEnded, Record, RequestSeen, ResponseSeen, Timing

from ..dialects.answers import ANSWERS, Answer  # noqa: TID252 - the root is not on the path of plain pytest
from ..wire.event_messages import event, exception, message  # noqa: TID252
from ..wire.pieces import cut, single  # noqa: TID252
from ..wire.socket_frames import PING, close, frame  # noqa: TID252

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

NAMES = [dialect.name for dialect in DIALECTS]
# Small enough that junk reaches every bound, large enough for every answer.
SMALL = Limits(text=40, request=600, body=900, event=700, decoded=3000)
MAX_RECORD = 256 * 1024  # bytes of JSON, whatever came


def payload(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()


def as_events(answer: Answer) -> bytes:
    found = b": hello\n\n"
    for name, value in answer.messages:
        found += (b"event: %s\n" % name.encode() if name else b"") + b"data: %s\n\n" % payload(value)
    return found


def as_whole(answer: Answer) -> bytes:
    return payload(answer.messages[0][1])


def as_lines(answer: Answer) -> bytes:
    return b"".join(payload(value) + b"\n" for _, value in answer.messages)


def as_array(answer: Answer) -> bytes:
    return b"[" + b"\n,\r\n".join(payload(value) for _, value in answer.messages if value != b"[DONE]") + b"]\n"


def as_event_stream(answer: Answer) -> bytes:
    found = b"".join(event(name or "chunk", payload(value)) for name, value in answer.messages)
    return found + message(b"") + exception("throttlingException", b"{}") if answer.transport == "sse" else found


def as_prefixed(answer: Answer) -> bytes:
    return b"".join(len(data).to_bytes(4, "big") + data for data in (payload(value) for _, value in answer.messages))


def as_socket(answer: Answer) -> bytes:
    first, *rest = (payload(value) for _, value in answer.messages)
    fragments = frame(1, first[:9], last=False) + frame(PING, b"x") + frame(0, first[9:])
    return fragments + b"".join(frame(1, data) for data in rest) + close(1000, b"bye")


class Way:
    """One transport: its media type, what a path must end in, and how an answer is put into it."""

    def __init__(self, wrap: Callable[[Answer], bytes], kind: str, path: str | None = None) -> None:
        self.wrap, self.kind, self.path = wrap, kind, path


WAYS = {
    "sse": Way(as_events, "text/event-stream"),
    "json": Way(as_whole, "application/json"),
    "ndjson": Way(as_lines, "application/x-ndjson"),
    "json_array": Way(as_array, "application/json", "/v1/models/m:streamGenerateContent"),
    "eventstream": Way(as_event_stream, "application/vnd.amazon.eventstream"),
    "length_prefixed": Way(as_prefixed, "application/x-claude-token-stream"),
    "websocket": Way(as_socket, ""),
    "opaque": Way(as_events, "audio/mpeg"),
}
CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": functools.partial(brotli.compress, quality=4),
    "zstd": zstd.compress,
}
ASKED = frame(1, b'{"type":"response.create","response":{"instructions":"Be brief."}}', masked=True)


def exchange(
    name: str,
    transport: str,
    pieces: list[bytes],
    *,
    named: bool = True,
    coding: str = "identity",
    chunked: bool = False,
    status: int = 200,
    limits: Limits | None = None,
    asked: bytes = b'{"model":"m","messages":[{"role":"user","content":"Why?"}]}',
) -> Exchange:
    """One exchange, its answer in pieces. `named`: the route names the dialect; else the request shows it."""
    answer, way = ANSWERS[name], WAYS[transport]
    path = way.path if named and way.path is not None else answer.path
    rules = Rules(DIALECTS, limits or Limits(), digest_of("sha256", b""))
    seen = RequestSeen(1, 0.0, 0.0, "r", f"{answer.method} {path} HTTP/1.1\r\n\r\n".encode())
    fold = ExchangeFold("x", seen, RouteFacts("r", answer.host, name if named else None), rules)
    if transport != "websocket":
        fold.bytes_seen(BytesSeen(1, 0.0, False, asked))
    upgraded = transport == "websocket" and status == 200
    head = (
        "HTTP/1.1 101 \r\nUpgrade: websocket\r\n" if upgraded else f"HTTP/1.1 {status} \r\nContent-Type: {way.kind}\r\n"
    )
    head += f"Content-Encoding: {coding}\r\n" if coding != "identity" else ""
    head += "Transfer-Encoding: chunked\r\n" if chunked else ""
    fold.response_seen(ResponseSeen(1, 0.1, 0.0, None, f"{head}\r\n".encode()))
    if upgraded:
        fold.bytes_seen(BytesSeen(1, 0.15, False, ASKED))
    for number, piece in enumerate(pieces):
        fold.bytes_seen(BytesSeen(1, 0.2 + number / 1e6, True, piece))
    return fold.ended(ExchangeEnded(1, 9.0, "complete", 0.0))


def record(name: str, transport: str, pieces: list[bytes], **how: Any) -> Record:
    """Without the times, which are those of the reads."""
    found = exchange(name, transport, pieces, **how)
    sound(found)
    return msgspec.structs.replace(found.record, timing=Timing())


def sound(found: Exchange) -> None:
    """What holds of every record: it can be written, it is not large, and its words are of the catalogue."""
    told = found.record
    written = msgspec.json.encode(told)
    assert len(written) <= MAX_RECORD
    assert msgspec.json.decode(written, type=Record) == told
    assert told.outcome in OUTCOMES
    assert told.transport in TRANSPORTS
    assert set(told.anomalies) <= set(ANOMALIES)
    assert told.error is None or told.error.kind in ERROR_KINDS
    assert len(told.text.choices) == len(found.choices)
    assert told.frames.data is None or told.frames.data >= told.frames.content


# ---------------------------------------------------------------- coverage


def test_every_dialect_has_an_answer_and_every_transport_a_way() -> None:
    assert list(ANSWERS) == NAMES
    assert sorted(WAYS) == sorted(TRANSPORTS)


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_in_its_own_transport_is_read(name: str) -> None:
    answer = ANSWERS[name]
    found = exchange(name, answer.transport, [WAYS[answer.transport].wrap(answer)], named=False)
    told = found.record
    assert (told.dialect, told.transport, told.outcome, told.frames.malformed) == (
        name, answer.transport, "completed", 0
    )  # fmt: skip
    assert "".join(choice.text for choice in found.choices) == answer.text


# ---------------------------------------------------------------- any cut


@pytest.mark.parametrize("transport", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_a_record_does_not_depend_on_where_bytes_are_cut(name: str, transport: str) -> None:
    body = WAYS[transport].wrap(ANSWERS[name])
    whole = record(name, transport, [body])
    assert record(name, transport, single(body)) == whole
    assert record(name, transport, [body[:-7]]) == record(name, transport, single(body[:-7]))

    @settings(max_examples=3, deadline=None)
    @given(
        st.sampled_from(sorted(CODINGS)),
        st.booleans(),
        st.booleans(),
        st.lists(st.integers(0, 5000), min_size=1, max_size=9),
    )
    def at_any_places(coding: str, chunked: bool, small: bool, places: list[int]) -> None:
        wire = CODINGS[coding](body)
        if chunked:
            wire = b"%x\r\n%s\r\n1;a=b\r\n" % (len(wire) - 1, wire[:-1]) + wire[-1:] + b"\r\n0\r\n\r\n"
        how = {"coding": coding, "chunked": chunked, "limits": SMALL if small else None}
        assert record(name, transport, cut(wire, places), **how) == record(name, transport, [wire], **how)

    at_any_places()


# ---------------------------------------------------------------- any bytes


def mutated(body: bytes, other: bytes, steps: list[tuple[str, int, int]]) -> bytes:
    """The body with bytes flipped, left out or doubled, and with parts of another spliced in."""
    for what, place, size in steps:
        at = place % (len(body) + 1)
        match what:
            case "flip":
                body = body[:at] + bytes(byte ^ (1 << size % 8) for byte in body[at : at + 1]) + body[at + 1 :]
            case "leave out":
                body = body[:at] + body[at + size :]
            case "double":
                body = body[: at + size] + body[at:]
            case "splice":
                start = place % (len(other) + 1)
                body = body[:at] + other[start : start + size] + body[at:]
            case "mark":
                body = body[:at] + MARKS[size % len(MARKS)] + body[at:]
    return body


MARKS = (
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\n", b"\r", b"\n\n", b"\0", b"\xff\xff\xff\xff", b"\xef\xbb\xbf",
    b"\\ud83d", b"null", b"-1", b"1e999", b"1" * 400, b"[" * 600, b'"' + b'\\"' * 300, b"data:", b"event: error\n",
)  # fmt: skip
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["flip", "leave out", "double", "splice", "mark"]), st.integers(0, 3000), st.integers(0, 120)
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("name", NAMES)
def test_answers_with_faults_give_records_wherever_they_are_cut(name: str) -> None:
    @settings(max_examples=40, deadline=None)
    @given(
        st.sampled_from(sorted(WAYS)),
        st.sampled_from(NAMES),
        STEPS,
        st.lists(st.integers(0, 3000), max_size=6),
        st.sampled_from([200, 200, 200, 429, 500, 204]),
        st.booleans(),
    )
    def for_any(transport: str, other: str, steps: Any, places: list[int], status: int, small: bool) -> None:
        wrap = WAYS[transport].wrap
        body = mutated(wrap(ANSWERS[name]), wrap(ANSWERS[other]), steps)
        how = {"status": status, "limits": SMALL if small else None}
        assert record(name, transport, cut(body, places), **how) == record(name, transport, [body], **how)

    for_any()


@pytest.mark.parametrize("name", NAMES)
def test_any_bytes_give_a_record(name: str) -> None:
    @settings(max_examples=40, deadline=None)
    @given(
        st.sampled_from(sorted(WAYS)),
        st.lists(st.binary(max_size=60) | st.sampled_from(MARKS), max_size=8),
        st.sampled_from(["identity", "identity", "gzip", "br", "zstd", "deflate", "gzip, br", "exi"]),
        st.booleans(),
        st.binary(max_size=40),
    )
    def for_any(transport: str, pieces: list[bytes], coding: str, chunked: bool, asked: bytes) -> None:
        record(name, transport, pieces, coding=coding, chunked=chunked, limits=SMALL, asked=asked)

    for_any()


@pytest.mark.parametrize("name", NAMES)
def test_requests_with_faults_give_records_too(name: str) -> None:
    answer = ANSWERS[name]

    @settings(max_examples=25, deadline=None)
    @given(STEPS, st.booleans())
    def for_any(steps: Any, small: bool) -> None:
        asked = mutated(as_whole(ANSWERS["openai.chat"]) + REQUEST, as_lines(answer), steps)
        how = {"asked": asked, "limits": SMALL if small else None}
        told = record(name, answer.transport, [WAYS[answer.transport].wrap(answer)], **how)
        assert told.dialect == name

    for_any()


REQUEST = payload(
    {
        "model": "m",
        "messages": [
            {"role": "system", "content": "<doc>One.</doc>"},
            {"role": "user", "content": [{"type": "text", "text": "Why?"}]},
        ],
        "contents": [{"parts": [{"text": "Why?"}]}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}},
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "max_tokens": 9,
    }
)
