"""Events of one exchange become its record, the same one wherever its bytes were cut."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.analyst.answer import Limits
from collector.catalogue import ANOMALIES, ERROR_KINDS, METHODS, OUTCOMES, TRANSPORTS
from collector.findings.judge import Findings
from collector.model import ChunkGaps, Exchange, Price, Rates, Record, ReportedUsage, TextFact, Timing, Usage

GOLDEN = sorted((Path(__file__).parent.parent / "golden").glob("*.http"))
SSE = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
JSON = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"
MESSAGES = "POST /v1/messages HTTP/1.1\r\nHost: api.example\r\n"
DONE = b"data: [DONE]\n\n"


def event(content: str | None = None, finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    delta = {} if content is None else {"content": content}
    body = {"model": "m", "choices": [{"index": index, "delta": delta, "finish_reason": finish}], **more}
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


def named(kind: str, **body: Any) -> bytes:
    return f"event: {kind}\ndata: ".encode() + json.dumps({"type": kind, **body}).encode() + b"\n\n"


def timeless(exchange: Exchange) -> Any:
    record = msgspec.structs.replace(exchange.record, timing=Timing(chunk_gaps=ChunkGaps(None)))
    return msgspec.json.encode(record)


def chunked(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body) if body else b""


# ---------------------------------------------------------------- golden records


def exchange_of(path: Path, play: Any) -> Exchange:
    """A `.http` file: request head and body, `<<<`, response head and body. Its blocks come 50 ms apart."""
    asked, answered = path.read_text(encoding="utf-8").split("<<<\n")
    request_head, _, request_body = asked.partition("\n\n")
    response_head, _, body = answered.partition("\n\n")
    blocks = (
        [block + "\n\n" for block in body.removesuffix("\n\n").split("\n\n")]
        if "event-stream" in response_head
        else [body]
    )
    return play(
        [(0.05, block.encode()) for block in blocks],
        request=request_head.replace("\n", "\r\n") + "\r\n",
        body=request_body.strip().encode(),
        head=response_head.replace("\n", "\r\n") + "\r\n",
        host=request_head.partition("Host: ")[2].partition("\n")[0],
    )


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_the_record_is_the_golden_one(path: Path, play: Any) -> None:
    got = msgspec.json.decode(msgspec.json.encode(exchange_of(path, play).record))
    assert rounded(got) == json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))


# What these exchanges were made to show; of all others there is nothing to find.
FOUND = {
    "anthropic_whole_max_tokens": ["cut_by_length"],
    "openai_stream_two_choices": ["include_usage_missing", "cut_by_length"],
}


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_findings_are_made_of_what_is_wrong_and_of_nothing_else(path: Path, play: Any) -> None:
    assert [found.rule for found in Findings().judge(exchange_of(path, play))] == FOUND.get(path.stem, [])


def rounded(value: Any) -> Any:
    """Seconds to the microsecond, so that a sum of binary fractions can be written down."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    return round(value, 6) if isinstance(value, float) else value


def test_there_are_golden_records() -> None:
    assert len(GOLDEN) >= 10


# ---------------------------------------------------------------- cuts

STREAMS = {
    "chat": b": hi\n\n" + event("") + event("H\u00e9\U0001f642") + event("b", index=1) + event(None, "stop")
    + event(None, "length", 1) + b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}\n\n' + DONE,
    "calls": event() + b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"id":"a","function":{"name":"f",'
    b'"arguments":"{}"}}]},"finish_reason":"tool_calls"}]}\n\nretry: 5\n\ndata:\n\n' + DONE,
    "cut": event("a") + b'data: {"choices":[{"del',
    "no blank line": event("a", "stop") + b"data: [DONE]",
    "error": event("a") + b'event: error\ndata: {"error":{"type":"overloaded_error"}}\n\n',
    "malformed": event("a") + b"data: oops\n\n" + event("b", "stop") + DONE,
    "surrogates": b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"content":"\\ude42"},"finish_reason":"stop"}]}\n\n' + DONE,
    "byte order mark": b"\xef\xbb\xbf" + event("a", "stop") + DONE,
    "messages": named("message_start", message={"model": "c", "usage": {"input_tokens": 3, "output_tokens": 1}})
    + named("ping") + named("content_block_start", index=0, content_block={"type": "text", "text": ""})
    + named("content_block_delta", index=0, delta={"type": "text_delta", "text": "hi"})
    + named("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2}) + named("message_stop"),
    "json": b' {"model":"m","choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}]}',
    "junk": b"\x00\xff{[data",
}  # fmt: skip
CODINGS = {"plain": bytes, "gzip": gzip.compress, "deflate": zlib.compress}


@settings(max_examples=150)
@given(
    name=st.sampled_from(sorted(STREAMS)),
    ends=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    coding=st.sampled_from(sorted(CODINGS)),
    is_chunked=st.booleans(),
    content_type=st.sampled_from(["text/event-stream", "application/json", "text/plain"]),
    places=st.lists(st.integers(0, 3000), max_size=20),
    small=st.booleans(),
)
def test_the_record_does_not_depend_on_where_bytes_are_cut(
    play: Any, name: str, ends: bytes, coding: str, is_chunked: bool, content_type: str, places: list[int], small: bool
) -> None:
    body = CODINGS[coding](STREAMS[name].replace(b"\n", ends))
    wire = chunked(body[:7]) + chunked(body[7:]) + b"0\r\n\r\n" if is_chunked else body
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n" + (CHUNKED if is_chunked else "")
    if coding != "plain":
        head += f"Content-Encoding: {coding}\r\n"
    request = MESSAGES if name == "messages" else None
    more = {"head": head, **({"request": request} if request else {})}
    if small:
        more["limits"] = Limits(text=3, event=120, body=60)
    marks = sorted({place % (len(wire) + 1) for place in places} | {0, len(wire)})
    whole = timeless(play([wire], **more))
    assert timeless(play([wire[a:b] for a, b in itertools.pairwise(marks)], **more)) == whole
    assert timeless(play([wire[i : i + 1] for i in range(len(wire))], **more)) == whole


@given(st.sampled_from(sorted(STREAMS)), st.lists(st.integers(0, 3000), max_size=4))
def test_line_ends_make_no_difference(play: Any, name: str, places: list[int]) -> None:
    request = {"request": MESSAGES} if name == "messages" else {}
    records = []
    for ends in (b"\n", b"\r\n", b"\r"):
        record = play([STREAMS[name].replace(b"\n", ends)], **request).record
        records.append(msgspec.structs.replace(record, bytes_out=0, timing=Timing()))
    assert records[0] == records[1] == records[2]


# ---------------------------------------------------------------- anything


def assert_sound(record: Record) -> None:
    assert record.outcome in OUTCOMES
    assert record.transport in TRANSPORTS
    assert record.method in (*METHODS, "other")
    assert set(record.anomalies) <= set(ANOMALIES)
    assert record.error is None or record.error.kind in ERROR_KINDS
    assert (record.error is not None) == (record.outcome in ("upstream_error", "error_event"))
    assert (record.phase is not None) == (record.outcome in ("client_disconnect", "truncated"))
    for value in numbers(msgspec.to_builtins(record)):
        assert math.isfinite(value)
        assert value >= 0
    msgspec.json.encode(record)


def numbers(value: Any) -> Any:
    if isinstance(value, dict):
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from numbers(inner)
    elif isinstance(value, int | float):
        yield value


BYTES = st.binary(max_size=60) | st.sampled_from([
    *STREAMS.values(), DONE, b"data: ", b"\n\n", b'{"error":{"type":"x y","code":NaN}}',
    b'data: {"choices":[{"index":99999999999}]}\n\n',
    b'data: {"choices":[{"index":-5,"delta":{"content":"x","reasoning":"y","refusal":"z"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1e3,"function":{"name":"\\ud83d"}}]}}]}\n\n',
    b'data: {"model":"\\ud83d","choices":[{"index":0,"finish_reason":"\\ud83d"}],"usage":{"prompt_tokens":1e400}}\n\n',
    b"5\r\nhello\r\n", b"\x1f\x8b\x08", gzip.compress(b"data: {}\n\n"),
])  # fmt: skip
LINES = st.sampled_from([
    "Content-Type: text/event-stream", "Content-Type: application/json", "Content-Type: text/plain", "Content-Type: x",
    "Content-Encoding: gzip", "Content-Encoding: br, zstd", "Content-Encoding: what", "Transfer-Encoding: chunked",
    "Retry-After: Fri, 99", "Retry-After: 1", "x-ratelimit-reset: 0001-01-01T00:00:00Z", "x-ratelimit-limit: inf",
    "X-Model-Load: nan", "Server-Timing: a;dur=1e9", 'X-Trace-Detail: {"queue_time_ms": 1e308}', "no colon",
    "\xff: \xfe",
    "Content-Length: 5", "Date: soon",
])  # fmt: skip


@settings(max_examples=200)
@given(
    pieces=st.lists(BYTES, max_size=6),
    lines=st.lists(LINES, max_size=4),
    status=st.sampled_from([200, 204, 101, 304, 400, 429, 500, 529, 99]),
    method=st.sampled_from(["POST", "GET", "HEAD", "BREW", ""]),
    path=st.sampled_from(["/v1/chat/completions", "/v1/messages", "/x"]),
    body=BYTES,
    how=st.sampled_from(["complete", "client_disconnect", "upstream_cut", "shutdown"]),
    blocked=st.lists(st.tuples(st.integers(0, 5), st.floats(0, 100)), max_size=2),
)
def test_any_exchange_gives_a_sound_record(
    play: Any, pieces: list[bytes], lines: list[str], status: int, method: str, path: str, body: bytes, how: str,
    blocked: list[tuple[int, float]],
) -> None:  # fmt: skip
    exchange = play(
        pieces,
        request=f"{method} {path} HTTP/1.1\r\nHost: h\r\n",
        body=body,
        head="\r\n".join([f"HTTP/1.1 {status} X", *lines, ""]),
        how=how,
        blocked=blocked,
        limits=Limits(text=50, request=200, body=300, event=200, decoded=5000),
    )
    assert_sound(exchange.record)
    assert len(exchange.choices) <= 128
    assert len(exchange.record.finish_reasons) == len(exchange.choices)


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize(
    ("pieces", "how", "outcome", "phase"),
    [
        ([event("a"), event(None, "stop"), DONE], "complete", "completed", None),
        ([event("a"), event(None, "stop")], "complete", "completed", None),
        ([event("a", "stop"), b"data: [DONE]"], "complete", "completed", None),
        ([event("a"), event("b")], "complete", "truncated", "streaming"),
        ([event("")], "complete", "truncated", "before_first_token"),
        ([], "complete", "truncated", "before_first_token"),
        ([event("a"), event("b", index=1), event(None, "stop")], "complete", "truncated", "streaming"),
        ([event("a"), event(None, "stop")], "upstream_cut", "truncated", "streaming"),
        ([event("a"), event(None, "stop"), DONE], "upstream_cut", "completed", None),
        ([event("a")], "client_disconnect", "client_disconnect", "streaming"),
        ([], "client_disconnect", "client_disconnect", "before_first_token"),
        ([event("a", "stop"), DONE], "client_disconnect", "completed", None),
        ([event("a")], "shutdown", "truncated", "streaming"),
        ([event("a"), event(None, "length"), DONE], "complete", "incomplete", None),
        ([event("a"), event(None, "content_filter"), DONE], "complete", "blocked", None),
        ([event("a", "stop"), event("b", "length", 1), DONE], "complete", "incomplete", None),
        ([event("a", "length"), event("b", "content_filter", 1), DONE], "complete", "blocked", None),
        ([event("a"), b'data: {"error":{"type":"x"}}\n\n', DONE], "complete", "error_event", None),
        ([event("a", "length"), event(error={"code": 502}), DONE], "complete", "error_event", None),
        ([event("a", "error"), DONE], "complete", "error_event", None),
        ([event("a"), b'data: {"error":{"type":"x"}}\n\n'], "client_disconnect", "client_disconnect", "streaming"),
    ],
)
def test_the_outcome_is_decided_when_the_body_ends(
    play: Any, pieces: list[bytes], how: str, outcome: str, phase: str | None
) -> None:
    record = play(pieces, how=how).record
    assert (record.outcome, record.phase) == (outcome, phase)
    assert_sound(record)


@pytest.mark.parametrize("how", ["connect_failed", "upstream_failed", "upstream_timeout"])
def test_an_answer_that_the_sidecar_made_says_so(play: Any, how: str) -> None:
    record = play(head=None, how=how, status=504 if how == "upstream_timeout" else 502).record
    assert record.outcome == "upstream_error"
    assert record.error is not None
    assert (record.error.source, record.error.mid_stream) == ("sidecar", False)
    assert record.error.kind == ("timeout" if how == "upstream_timeout" else "server_error")
    assert (record.dialect, record.timing.headers, record.timing.connect) == ("openai.chat", None, 0.02)
    assert_sound(record)


def test_a_client_that_leaves_before_any_answer_is_no_error(play: Any) -> None:
    record = play(head=None, how="client_disconnect").record
    assert (record.outcome, record.phase, record.status) == ("client_disconnect", "before_first_token", None)
    assert_sound(record)


def test_an_anthropic_stream_without_its_stop_is_truncated(play: Any) -> None:
    body = STREAMS["messages"]
    assert play([body], request=MESSAGES).record.outcome == "completed"
    assert play([body.replace(named("message_stop"), b"")], request=MESSAGES).record.outcome == "truncated"


def test_a_json_body_cut_short_is_truncated_unless_its_length_was_met(play: Any) -> None:
    assert play([b'{"choices":[{"mess'], head=JSON).record.outcome == "truncated"
    assert play([STREAMS["json"]], head=JSON).record.outcome == "completed"


def test_what_could_not_be_read_is_not_called_truncated(play: Any) -> None:
    for body, head, limits in (
        (event("a"), SSE + "Content-Encoding: exi\r\n", None),
        (event("a"), SSE, Limits(event=10)),
        (STREAMS["json"], JSON, Limits(body=10)),
        (b"ID3", "HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\n", None),
    ):
        record = play([body], head=head, limits=limits).record
        assert record.outcome == "completed"
        assert "usage_missing" not in record.anomalies
        assert play([body], head=head, limits=limits, how="upstream_cut").record.outcome == "truncated"


def test_an_answer_to_head_has_no_body_to_be_cut(play: Any) -> None:
    assert play([], request="HEAD /v1/chat/completions HTTP/1.1\r\n").record.outcome == "completed"
    assert play([], head="HTTP/1.1 204 No Content\r\nContent-Type: text/event-stream\r\n").record.outcome == "completed"


def test_a_provider_nobody_knows_is_told_by_status_sizes_and_times(play: Any) -> None:
    record = play([b'{"answer":"hi"}'], request="POST /generate HTTP/1.1\r\n", head=JSON).record
    assert (record.dialect, record.operation, record.outcome, record.usage) == ("unknown", None, "completed", None)
    assert (record.bytes_in, record.bytes_out) == (17, 15)
    assert record.anomalies == ()


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("status", "body", "kind", "type"),
    [
        (429, b'{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}', "quota_exhausted",
         "insufficient_quota"),
        (429, b"Error", "unclassified", None), (529, b'{"error":{"type":"overloaded_error"}}', "overloaded",
                                                "overloaded_error"),
        (500, b"", "server_error", None), (401, b"{}", "auth", None),
    ],
)  # fmt: skip
def test_an_error_status_is_an_upstream_error_with_a_kind(
    play: Any,
    status: int,
    body: bytes,
    kind: str,
    type: str | None,  # noqa: A002
) -> None:
    for coding, code in (("", bytes), ("Content-Encoding: gzip\r\n", gzip.compress)):
        record = play([code(body)], head=f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{coding}").record
        assert record.outcome == "upstream_error"
        assert record.error is not None
        assert (record.error.kind, record.error.type, record.error.source) == (kind, type, "upstream")
        assert not record.error.mid_stream


def test_headers_turn_a_bare_429_into_a_rate_limit_and_name_the_limiter(play: Any) -> None:
    head = "HTTP/1.1 429 X\r\nContent-Type: application/json\r\nRetry-After: 7\r\nX-RateLimit-Source: Gateway\r\n"
    record = play([b"Error"], head=head).record
    assert record.error is not None
    assert (record.error.kind, record.error.limiter, record.retry_after) == ("rate_limited", "gateway", 7.0)


def test_an_error_in_a_stream_keeps_what_was_said_and_hides_its_message(play: Any) -> None:
    record = play([event("par"), b'data: {"error":{"message":"pat@example.test","type":"a b"}}\n\n']).record
    assert record.error is not None
    assert (record.error.type, record.error.mid_stream, record.text.chars) == (None, True, 3)
    assert b"pat@example" not in msgspec.json.encode(record)


def test_a_json_error_under_a_stream_type_is_no_stream(play: Any) -> None:
    record = play([b'{"error":{"type":"server_error"}}']).record
    assert (record.transport, record.stream, record.outcome) == ("json", False, "error_event")
    assert "content_type_mismatch" in record.anomalies


# ---------------------------------------------------------------- content and usage


def test_choices_have_their_own_texts_and_join_in_index_order(play: Any) -> None:
    record = play([event("b", index=1), event("a"), event("B", "stop", 1), event(None, "length"), DONE]).record
    one, two = play([event("a"), DONE]).record.text, play([event("bB"), DONE]).record.text
    assert record.text.choices == (one.choices[0], two.choices[0])
    assert record.text.sha256 == play([event("abB"), DONE]).record.text.sha256
    assert record.finish_reasons == ("length", "stop")


def test_a_choice_that_said_nothing_is_there_with_no_finish(play: Any) -> None:
    record = play([event(""), event("b", "stop", 1), DONE]).record
    assert record.finish_reasons == (None, "stop")
    assert record.text.choices[0] == TextFact(None, 0)


def test_wild_choices_are_left_out_and_said(play: Any) -> None:
    record = play([event("a", "stop"), event("b", "stop", 10**9), event("c", "stop", -1), DONE]).record
    assert record.finish_reasons == ("stop",)
    assert record.text.chars == 1
    assert record.anomalies.count("choices_over_cap") == 1


def test_text_over_the_cap_is_counted_and_said(play: Any) -> None:
    exchange = play([event("abc"), event("def", "stop"), DONE], limits=Limits(text=4))
    assert (exchange.record.text.chars, exchange.choices[0].text, exchange.choices[0].text_complete) == (
        6,
        "abcd",
        False,
    )
    assert "text_over_cap" in exchange.record.anomalies


def test_usage_is_the_last_word_on_each_number_and_never_a_sum(play: Any) -> None:
    told = [
        {"prompt_tokens": 10, "completion_tokens": 1}, {"completion_tokens": 4}, {"completion_tokens": 5},
        {"completion_tokens": None}, {},
    ]  # fmt: skip
    record = play([*(event("a", usage=usage) for usage in told), event(None, "stop"), DONE]).record
    assert record.usage_reported == ReportedUsage(10, 5)
    assert record.usage == Usage(10, 5)


def test_usage_that_says_nothing_is_unknown_and_missing(play: Any) -> None:
    for usage in (None, {}, {"prompt_tokens": None}):
        record = play([event("a", "stop", usage=usage), DONE]).record
        assert (record.usage, record.usage_reported) == (None, ReportedUsage())
        assert record.anomalies == ("usage_missing",)


def test_the_last_served_name_wins_and_an_empty_one_does_not(play: Any) -> None:
    assert (
        play([event("a"), event("b", model="m-2"), event(None, "stop", model=""), DONE]).record.response_model == "m-2"
    )
    assert play([event("a", model="a\nb"), DONE]).record.response_model is None
    assert play([event("a", model=None), DONE], head=SSE + "openai-model: m-3\r\n").record.response_model == "m-3"


def test_a_tool_name_that_is_no_text_can_still_be_written(play: Any) -> None:
    body = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"f\\ud83d"}}]}}]}\n\n'
    record = play([body, DONE]).record
    assert record.tool_calls[0].name == "f\ufffd"
    msgspec.json.encode(record)


def test_frames_are_counted_by_what_they_are(play: Any) -> None:
    body = b": c\n\nretry: 1\n\ndata:\n\nevent: ping\ndata: {}\n\n" + event("") + event("a") + b"data: oops\n\n"
    frames = play([body, event(None, "stop"), DONE]).record.frames
    assert (frames.data, frames.comments, frames.pings, frames.malformed, frames.content) == (5, 1, 1, 1, 1)
    assert frames.done_marker
    assert play([STREAMS["json"]], head=JSON).record.frames.data is None


def test_a_request_that_cannot_be_read_is_said(play: Any) -> None:
    assert "request_unreadable" in play([DONE], body=b"{").record.anomalies
    assert "request_over_cap" in play([DONE], body=b"x" * 100, limits=Limits(request=10)).record.anomalies
    assert play([DONE], body=b'{"model":"asked"}').record.request_model == "asked"


def test_a_header_that_cannot_be_read_is_said(play: Any) -> None:
    assert "header_unreadable" in play([DONE], head=SSE + "x-ratelimit-limit: lots\r\n").record.anomalies
    assert "header_unreadable" in play([DONE], head=SSE + "X-Model-Load: 17\r\n").record.anomalies


def test_a_bomb_is_said_and_let_go(play: Any) -> None:
    bomb = gzip.compress(bytes(32 * 1024 * 1024))
    assert play([bomb], head=JSON + "Content-Encoding: gzip\r\n").record.anomalies == ("decompress_over_cap",)
    asked = play([DONE], body=bomb, request="POST /v1/chat/completions HTTP/1.1\r\nContent-Encoding: gzip\r\n").record
    assert "decompress_over_cap" in asked.anomalies
    assert "request_unreadable" not in asked.anomalies


def test_an_answer_that_was_whole_before_its_coding_broke_is_read(play: Any) -> None:
    record = play([gzip.compress(STREAMS["json"]) + b"junk"], head=JSON + "Content-Encoding: gzip\r\n").record
    assert (record.outcome, record.text.chars, record.anomalies) == ("completed", 2, ("encoding_broken",))


def test_what_is_not_chunked_as_said_is_broken_and_cut(play: Any) -> None:
    record = play([b"zz\r\n" + event("a", "stop")], head=SSE + CHUNKED).record
    assert (record.outcome, record.anomalies) == ("truncated", ("framing_broken",))


# ---------------------------------------------------------------- times


def test_times_count_from_when_the_request_was_forwarded(play: Any) -> None:
    record = play([(0.1, event("")), (0.2, event("a")), (0.3, event("b", "stop")), (0.4, DONE)]).record
    timing = record.timing
    assert [timing.connect, timing.headers, timing.first_byte, timing.first_token, timing.duration] == pytest.approx(
        [0.02, 0.1, 0.2, 0.4, 1.6]
    )
    assert timing.chunk_gaps.gaps == pytest.approx([0.3])
    assert (timing.max_byte_gap, timing.client_blocked, timing.added) == (pytest.approx(0.4), 0.0, 0.0001)
    assert record.started_at == "2026-08-19T14:33:20.000Z"


def test_reasoning_is_a_token_but_not_a_visible_one(play: Any) -> None:
    thought = b'data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}\n\n'
    timing = play([(0.1, event("")), (0.1, thought), (0.1, thought), (0.5, event("ans", "stop")), DONE]).record.timing
    assert (timing.first_token, timing.first_visible_token) == (pytest.approx(0.3), pytest.approx(0.9))
    assert timing.chunk_gaps.gaps == pytest.approx([0.1, 0.5])


def test_usage_ends_and_pings_are_no_tokens(play: Any) -> None:
    ping, usage = b'data: {"type":"ping"}\n\n', b'data: {"choices":[],"usage":{"completion_tokens":9}}\n\n'
    pings = [(0.25, ping)] * 6
    timing = play([(0.1, event("a")), *pings, (0.25, event("b", "stop")), (0.6, usage), DONE]).record.timing
    assert timing.chunk_gaps.gaps == pytest.approx([1.75])
    assert (timing.stalls, timing.max_byte_gap) == (1, pytest.approx(0.6))
    assert timing.time_per_output_token == pytest.approx(1.75 / 8)


def test_a_calls_name_and_arguments_are_tokens_and_its_empty_piece_is_not(play: Any) -> None:
    pieces = [
        named("message_start", message={}),
        named("content_block_start", index=0, content_block={"type": "tool_use", "name": "f", "input": {}}),
        named("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": ""}),
        (0.5, named("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": "{}"})),
        named("message_stop"),
    ]
    record = play(pieces, request=MESSAGES).record
    assert record.frames.content == 2
    assert record.timing.chunk_gaps.gaps == pytest.approx([0.51])
    assert record.timing.first_visible_token is None


def test_the_time_a_client_blocks_is_in_no_gap(play: Any) -> None:
    timing = play([event("a"), event("b"), event("c", "stop"), DONE], blocked=[(2, 30.0)]).record.timing
    assert timing.chunk_gaps.max == pytest.approx(0.01)
    assert timing.max_byte_gap == pytest.approx(0.01)
    assert (timing.stalls, timing.client_blocked) == (0, 30.0)


def test_a_last_event_without_its_blank_line_came_with_its_bytes_not_with_the_end(play: Any) -> None:
    record = play([event("a"), (0.2, event("b", "stop").rstrip())]).record
    assert record.timing.chunk_gaps.gaps == pytest.approx([0.2])
    assert "unterminated_final_event" in record.anomalies
    assert record.outcome == "completed"


def test_a_whole_answer_has_no_rhythm(play: Any) -> None:
    timing = play([STREAMS["json"]], head=JSON).record.timing
    assert (timing.first_token, timing.stalls, timing.chunk_gaps) == (None, None, ChunkGaps(0))
    assert timing.first_byte == pytest.approx(0.11)


def test_resets_count_from_the_arrival_of_the_response(play: Any) -> None:
    head = (
        SSE
        + "anthropic-ratelimit-requests-reset: 2026-08-19T14:33:50.2Z\r\nRetry-After: Wed, 19 Aug 2026 14:33:22 GMT\r\n"
    )
    record = play([DONE], head=head).record  # the response came 0.2 s after the start, at 14:33:20.2
    assert record.rate_limits[0].reset_after == pytest.approx(30.0, abs=1e-3)
    assert record.retry_after == pytest.approx(1.8, abs=1e-3)


# ---------------------------------------------------------------- cost and notices

PRICES = ({"openai": {"m-1": Price(Rates(2.0, 0.5, output=10.0), batch=0.5)}},)


def priced(model: str = "m-1-2026-08-06", **usage: Any) -> list[bytes]:
    choice = {"index": 0, "message": {"content": "Yes."}, "finish_reason": "stop"}
    told = {"prompt_tokens": 1000, "completion_tokens": 100, **usage}
    return [json.dumps({"model": model, "choices": [choice], "usage": told}).encode()]


def test_an_answer_with_a_price_and_a_usage_has_a_cost(play: Any) -> None:
    cached = {"prompt_tokens_details": {"cached_tokens": 400}}
    found = play(priced(**cached), head=JSON, host="api.openai.com", prices=PRICES)
    assert found.record.cost_usd == pytest.approx((600 * 2.0 + 400 * 0.5 + 100 * 10.0) / 1e6)
    assert [kind for kind, _ in found.cost] == ["input", "cache_read", "output"]
    assert sum(dollars for _, dollars in found.cost) == found.record.cost_usd


@pytest.mark.parametrize(
    ("body", "share"),
    [
        (b'{"service_tier":"flex"}', 0.5), (b'{"service_tier":"auto"}', 1.0), (b'{"service_tier":null}', 1.0),
        (b'{"service_tier":"priority"}', None), (b'{"a":"\\"service_tier\\""}', 1.0), (b'{"service_tier":3}', 1.0),
    ],
)  # fmt: skip
def test_the_tier_that_was_asked_for_decides_the_rate(play: Any, body: bytes, share: float | None) -> None:
    found = play(priced(), head=JSON, host="api.openai.com", prices=PRICES, body=body)
    expected = None if share is None else pytest.approx(share * (1000 * 2.0 + 100 * 10.0) / 1e6)
    assert found.record.cost_usd == expected


def test_no_price_is_no_cost(play: Any) -> None:
    assert play(priced("house-model"), head=JSON, host="api.openai.com", prices=PRICES).record.cost_usd is None
    assert play(priced(), head=JSON, host="openrouter.ai", prices=PRICES).record.cost_usd is None
    assert play([b"{}"], head=JSON, host="api.openai.com", prices=PRICES).record.cost_usd is None


def test_the_same_body_on_the_same_path_is_the_same_request(play: Any) -> None:
    first, again = play(priced(), head=JSON, body=b'{"a":1}'), play(priced(), head=JSON, body=b'{"a":1}')
    other = play(priced(), head=JSON, body=b'{"a":2}')
    assert first.body_hash == again.body_hash != other.body_hash
    assert play(priced(), head=JSON, body=b"").body_hash is None
    assert (first.started, first.answered) == (0.9, 1.1)


def test_notices_in_headers_are_kept_beside_the_record(play: Any) -> None:
    head = JSON + "X-RateLimit-Mood: calm\r\nllm_provider-x-ratelimit-limit-tokens: 5\r\nDeprecation: @1688169599\r\n"
    found = play(priced(), head=head)
    assert (found.unknown_headers, found.is_deprecated) == (("x-ratelimit-mood",), True)
    assert [(limit.scope, limit.limit) for limit in found.record.rate_limits] == [("tokens", 5.0)]
    assert (play(priced(), head=JSON).unknown_headers, play(priced(), head=JSON).is_deprecated) == ((), False)
