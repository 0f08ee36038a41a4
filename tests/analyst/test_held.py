"""Frames that are read together make the same record as frames that are read one by one."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.analyst import answer
from collector.analyst.accumulate import digest_of
from collector.analyst.answer import HELD, HELD_SIZE, Limits
from collector.analyst.fold import ExchangeFold, RouteFacts, Rules
from collector.app import DIALECTS
from collector.model import (
    BytesSeen,
    ClientBlocked,
    Exchange,
    ExchangeEnded,
    Headers,
    RequestHead,
    RequestSeen,
    ResponseHead,
    ResponseSeen,
)

from ..wire.event_messages import event, exception  # noqa: TID252 - the root is not on the path of plain pytest

Step = bytes | tuple[str, float]  # a read, or seconds for which the client blocked

SMALL = Limits(text=60, event=500, body=700)
DONE = b"data: [DONE]\n\n"


def to_json(value: Any) -> bytes:
    written = json.dumps(value, ensure_ascii=False)
    return written.encode() if written.isprintable() else json.dumps(value).encode()  # half a pair is no UTF-8


def chat(delta: dict[str, Any], index: int | None = 0, model: str | None = "m", **more: Any) -> bytes:
    choice = {"index": index, "delta": delta, **{key: more.pop(key) for key in ("finish_reason",) if key in more}}
    return b"data: %b\n\n" % to_json({"model": model, "choices": [choice], **more})


def claude(text: str, kind: str = "text_delta", name: str = "content_block_delta", **more: Any) -> bytes:
    told = {"type": "content_block_delta", "index": 0, "delta": {"type": kind, "text": text, **more}}
    return b"event: %b\ndata: %b\n\n" % (name.encode(), to_json(told))


def converse(text: str, name: str = "contentBlockDelta", **more: Any) -> bytes:
    return event(name, to_json({"contentBlockIndex": 0, "delta": {"text": text, **more}}))


WORDS = ("The", " ", "é😊", "x" * 70, "\ud83d", "\ude42", "\u2028")
COMMON = {
    "chat": [chat({"content": word}) for word in WORDS],
    "claude": [claude(word) for word in WORDS],
    "converse": [converse(word) for word in WORDS],
}
ODD = {
    "chat": [
        chat({"content": ""}), chat({"content": "b"}, index=1), chat({"content": "c"}, index=None),
        chat({"content": "d"}, model="other"), chat({"content": "e"}, model=None), chat({}, finish_reason="stop"),
        chat({"content": "f"}, finish_reason="length"), chat({"content": "g", "reasoning_content": "h"}),
        chat({"content": "i"}, usage={"prompt_tokens": 3, "completion_tokens": 5}), chat({"content": 7}),
        chat({"content": "j"}, object="error"), chat({"content": "k"}, error={"message": "l"}),
        chat({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]}),
        chat({"content": "m"}, timings={"prompt_ms": "none"}), chat({"content": "n"}, x_groq={"usage": None}),
        b"event: ping\n" + chat({"content": "o"}), b"event: error\n" + chat({"content": "p"}), DONE, b": hello\n\n",
        chat({"content": "q"}).replace(b"}\n\n", b"\r}\n\n"), chat({"content": "r"}).replace(b"\n", b"\r\n"),
        chat({"content": "s"}) + chat({"content": "t"}), b"data: {\n\n", chat({"content": "u"})[:-2], b"\n",
        chat({"content": "v" * HELD_SIZE}), b"\xef\xbb\xbf" + chat({"content": "w"}), b"data: \xff{}\n\n",
    ],
    "claude": [
        claude(""), claude("b", kind="thinking_delta"), claude("c", name="ping"), claude("d", name="other"),
        claude("e", partial_json="f"), claude("g", citation={"cited_text": "h"}),
        b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n',
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n', b'event: error\ndata: {"type":"error"}\n\n',
        claude("i").replace(b'"content_block_delta",', b'"ping",'), claude("j")[7:], b"event: ping\n\n",
    ],
    "converse": [
        converse(""), converse("b", name="other"), converse("c", toolUse={"input": "d"}), converse("e")[:-1],
        converse("f")[:-1] + b"\0", event("contentBlockDelta", b""), exception("throttlingException", b"{}"),
        converse("g") + converse("h"), event("messageStop", b'{"stopReason":"end_turn"}'), b"\0",
        event("metadata", b'{"usage":{"inputTokens":3,"outputTokens":4}}'),
    ],
}  # fmt: skip
ASKED = {
    "chat": ("/v1/chat/completions", "text/event-stream"),
    "claude": ("/v1/messages", "text/event-stream"),
    "converse": ("/model/m/converse-stream", "application/vnd.amazon.eventstream"),
}


CHUNKED = "transfer-encoding: chunked\r\n"
CODINGS = ["", CHUNKED, "content-encoding: gzip\r\n", CHUNKED + "content-encoding: gzip\r\n"]


@contextmanager
def one_by_one() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answer, "_reads_texts", lambda reader: False)
        yield


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def coded(steps: list[Step], coding: str) -> Iterator[Step]:
    """The steps in these codings, and what ends the body."""
    squeeze = zlib.compressobj(wbits=31) if "gzip" in coding else None
    frame = chunked if CHUNKED in coding else bytes
    for step in steps:
        if isinstance(step, bytes) and squeeze is not None:
            yield frame(squeeze.compress(step) + squeeze.flush(zlib.Z_SYNC_FLUSH))
        else:
            yield frame(step) if isinstance(step, bytes) else step
    yield (frame(squeeze.flush()) if squeeze is not None else b"") + (b"0\r\n\r\n" if CHUNKED in coding else b"")


def played(kind: str, steps: list[Step], times: list[float], coding: str, limits: Limits) -> Exchange:
    """What is recorded where these steps come, each so many seconds after the one before."""
    path, media_type = ASKED[kind]
    seen = RequestSeen(1, 0.0, 1.7e9, "r", f"POST {path} HTTP/1.1\r\n\r\n".encode())
    rules = Rules(DIALECTS, limits, digest_of("sha256", b""))
    fold = ExchangeFold("x", seen, RouteFacts("r", "h"), rules)
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\n{coding}\r\n"
    fold.response_seen(ResponseSeen(1, 0.1, 0.0, None, head.encode()))
    at = 0.1
    for step, after in zip(steps, times, strict=True):
        at += after
        if isinstance(step, bytes):
            fold.bytes_seen(BytesSeen(1, at, True, step))
        else:
            fold.client_blocked(ClientBlocked(1, at, step[1]))
    return fold.ended(ExchangeEnded(1, at + 0.2, "complete", 0.0))


def said(draw: st.DrawFn, kind: str) -> list[Step]:
    """Mostly plain text, with anything else in between, and a few events cut in two."""
    plain = st.lists(st.sampled_from(COMMON[kind][:3]), min_size=1, max_size=2 * HELD)
    odd = st.lists(st.sampled_from([*COMMON[kind], *ODD[kind]]), max_size=3)
    steps: list[Step] = []
    for part in draw(st.lists(plain | odd, max_size=6)):
        steps += part
    for place in draw(st.lists(st.integers(0, 200), max_size=3)):
        step = steps[place % len(steps)] if steps else b""
        if isinstance(step, bytes) and len(step) > 1:
            half = draw(st.integers(1, len(step) - 1))
            steps[place % len(steps) : place % len(steps) + 1] = [step[:half], step[half:]]
    return steps


def recut(draw: st.DrawFn, steps: list[Step], sizes: st.SearchStrategy[int]) -> list[Step]:
    """The same bytes in reads of other sizes."""
    data = b"".join(step for step in steps if isinstance(step, bytes))
    reads: list[Step] = []
    for size in draw(st.lists(sizes, max_size=40)):
        if data:
            reads.append(data[:size])
            data = data[size:]
    return [*reads, data] if data else reads


SIZES = st.sampled_from([1, 2, 50, 200, 700, 5000, HELD_SIZE + 1]) | st.integers(1, 3000)


@st.composite
def streams(draw: st.DrawFn) -> tuple[str, list[Step], list[float], str]:
    """A kind, the reads of its stream, and the times between them; the body in a coding, which may be cut as well."""
    kind, coding = draw(st.sampled_from(sorted(COMMON))), draw(st.sampled_from(CODINGS))
    steps = said(draw, kind)
    if draw(st.booleans()):
        steps = recut(draw, steps, SIZES)
    steps = list(coded(steps, coding))
    if coding and draw(st.booleans()):
        steps = recut(draw, steps, SIZES)
    for place in draw(st.lists(st.integers(0, 200), max_size=2)):
        steps.insert(place % (len(steps) + 1), ("blocked", draw(st.sampled_from([0.02, 0.5, 3.0]))))
    times = draw(st.lists(st.sampled_from([0.0, 0.01, 0.11, 1.5]), min_size=len(steps), max_size=len(steps)))
    return kind, steps, times, coding


@given(streams(), st.sampled_from([Limits(), SMALL]))
@settings(max_examples=800, deadline=None)
def test_a_stream_says_the_same_whether_or_not_its_frames_are_read_together(
    stream: tuple[str, list[Step], list[float], str], limits: Limits
) -> None:
    together = played(*stream, limits)
    with one_by_one():
        assert played(*stream, limits) == together


@pytest.mark.parametrize("kind", COMMON)
@pytest.mark.parametrize("coding", CODINGS, ids=["bare", "chunked", "gzip", "chunked gzip"])
@pytest.mark.parametrize("cut", [None, 40, 700, 60_000], ids=["events", "small", "odd", "large"])
def test_frames_of_plain_text_are_read_together(
    kind: str, coding: str, cut: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins = chat({"role": "assistant", "content": ""}) if kind == "chat" else COMMON[kind][0]
    steps: list[Step] = [begins, *COMMON[kind][:1] * (2 + 10 * HELD)]
    if cut is not None:
        data = b"".join(COMMON[kind][:1] * (10 * HELD))
        steps = [*steps[:3], *(data[at : at + cut] for at in range(0, len(data), cut))]
    framed = list(coded(steps, coding))
    read: list[int] = []
    together = answer.Answer._take_texts

    def counted(self: answer.Answer, texts: list[str], times: list[float]) -> None:
        together(self, texts, times)
        read.append(len(texts))

    monkeypatch.setattr(answer.Answer, "_take_texts", counted)
    exchange = played(kind, framed, [0.01] * len(framed), coding, Limits())
    assert sum(read) >= 9 * HELD
    assert exchange.choices[0].text == "The" * (10 * HELD + 2 + (kind != "chat"))


def test_a_large_read_does_not_wait_for_others() -> None:
    head = ResponseHead(200, Headers((("content-type", "text/event-stream"),)))
    body = answer.Answer(Limits(), None)
    body.begin(RequestHead("POST", "/v1/chat/completions", "h", Headers()), head, ResponseSeen(1, 0.1, 0.0, None, b""),
               DIALECTS)  # fmt: skip
    text = COMMON["chat"][0]
    for read in [chat({"role": "assistant", "content": ""}), text, text]:
        body.bytes_seen(BytesSeen(1, 0.2, True, read))
    taken = body.body_size
    body.bytes_seen(BytesSeen(1, 0.3, True, text))
    assert body.body_size == taken  # it waits
    large = chat({"content": "z" * HELD_SIZE})
    body.bytes_seen(BytesSeen(1, 0.4, True, large))
    assert body.body_size == taken + len(text) + len(large)
