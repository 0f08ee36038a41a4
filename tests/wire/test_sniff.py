"""The response decides its transport: the headers first, and the bytes where they say otherwise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.model import Headers, ResponseHead
from collector.wire.sniff import BOM, FIRST_LINE, LOOK, Sniffer, media_type


def head_of(content_type: str | None, status: int = 200) -> ResponseHead:
    return ResponseHead(status, Headers((("content-type", content_type),) if content_type is not None else ()))


def decide(content_type: str | None, body: bytes, status: int = 200) -> tuple[str | None, bool]:
    sniffer = Sniffer(head_of(content_type, status))
    return sniffer.decide(body, ended=True), sniffer.mismatch


@pytest.mark.parametrize(
    ("content_type", "body", "transport", "mismatch"),
    [
        ("application/json", b'{"a":1}', "json", False),
        ("application/json; charset=utf-8", b" \n [1]", "json", False),
        ("application/problem+json", b"{}", "json", False),
        ("APPLICATION/JSON", b"", "json", False),
        ("application/json", b"Error", "json", False),
        ("application/json", b"data: {}\n\n", "sse", True),
        ("application/json", b": ping\n\ndata: {}", "sse", True),
        ("application/json", BOM + b"data: {}", "sse", True),
        ("text/event-stream", b"data: {}", "sse", False),
        ("text/event-stream;charset=utf-8", b"", "sse", False),
        ("text/event-stream", b'{"error":{}}', "json", True),
        ("text/event-stream", b"\n\n\r\n", "sse", False),
        ("text/event-stream", b"retry: 1\n\n", "sse", False),
        (None, b"{}", "json", False),
        (None, b"event: x\n", "sse", False),
        (None, b"<html>", "opaque", False),
        ("text/plain", b"id: 1\n", "sse", False),
        ("application/octet-stream", b"[", "json", False),
        ("text/html", b"{}", "opaque", False),
        ("audio/mpeg", b"data: {}", "opaque", False),
        ("application/x-ndjson", b"{}\n{}", "ndjson", False),
        ("application/x-claude-token-stream", b"\0", "length_prefixed", False),
        ("application/json", b'{"a":1}\n{"a":2}\n', "ndjson", True),
        ("application/json", b'{"a":1}\r\n\r\n{"a"', "ndjson", True),
        ("text/event-stream", b"{}\n{}", "ndjson", True),
        (None, b"{}\n{}", "ndjson", False),
        ("application/json", b'{"a":1}\n', "json", False),
        ("application/json", b'{\n  "a": {}\n}\n', "json", False),
        ("application/json", b'{"a": {}\n, "b": 1}', "json", False),
        ("application/json", b'{"a": {}\n}', "json", False),
        ("application/stream+json", b"{}", "ndjson", False),
        ("application/vnd.amazon.eventstream", b"", "eventstream", False),
    ],
)
def test_headers_and_first_bytes_decide(content_type: str | None, body: bytes, transport: str, mismatch: bool) -> None:
    assert decide(content_type, body) == (transport, mismatch)


@pytest.mark.parametrize(
    ("path", "status", "body", "transport"),
    [
        ("/v1beta/models/m:streamGenerateContent", 200, b"[{", "json_array"),
        ("/v1beta/models/m:streamGenerateContent", 200, BOM + b"\n [", "json_array"),
        ("/v1beta/models/m:streamGenerateContent", 200, b"data: {}", "sse"),
        ("/v1beta/models/m:streamGenerateContent", 200, b"{}", "json"),
        ("/v1beta/models/m:streamGenerateContent", 400, b"[{", "json"),
        ("/v1beta/models/m:generateContent", 200, b"[{", "json"),
    ],
)
def test_an_array_is_a_stream_where_one_was_asked_for(path: str, status: int, body: bytes, transport: str) -> None:
    sniffer = Sniffer(head_of("application/json", status), path)
    assert sniffer.decide(body, ended=True) == transport
    assert sniffer.mismatch == (transport == "sse")


def test_a_first_line_is_waited_for_within_a_bound() -> None:
    sniffer = Sniffer(head_of("application/json"))
    assert sniffer.decide(b'{"a":1}') is None
    assert sniffer.decide(b'{"a":1}\n') is None
    assert sniffer.decide(b'{"a":1}\n{') == "ndjson"
    assert sniffer.decide(b'{"a":"' + b"x" * FIRST_LINE) == "json"


def test_a_switch_of_protocols_is_a_websocket() -> None:
    assert decide("application/json", b"{}", status=101) == ("websocket", False)


def test_half_a_field_name_is_waited_for() -> None:
    sniffer = Sniffer(head_of("application/json"))
    assert [sniffer.decide(body) for body in (b"", b"d", b"da", b"data", b"\n", b"\xef", BOM, BOM + b"ev")] == [
        None
    ] * 8
    assert sniffer.decide(b"dax") == "json"
    assert sniffer.decide(b"data:") == "sse"
    assert sniffer.mismatch


def test_blanks_are_not_waited_for_beyond_a_bound() -> None:
    assert Sniffer(head_of("application/json")).decide(b" " * LOOK) == "json"
    assert Sniffer(head_of("text/event-stream")).decide(b"\n" * LOOK) == "sse"


def test_headers_that_say_enough_need_no_bytes() -> None:
    assert Sniffer(head_of("application/x-ndjson")).decide(b"") == "ndjson"
    assert Sniffer(head_of("image/png")).decide(b"") == "opaque"


def test_a_media_type_has_no_parameters() -> None:
    assert media_type(" Text/Event-Stream ; x=y") == "text/event-stream"
    assert media_type("") == ""


STARTS = st.sampled_from([
    b"data: {}\n\n", BOM + b"data: {}\n\n", b'{"a":1}', b"  [1]", b": c\n", b"junk", b"da", b"\xef\xbb", b"",
    b'{"a":1}\n{"b":2}', b"{\n}", b" " * 300 + b"{}", b" " * 254 + b"dat", b" " * 250 + b"{}\n{",
])  # fmt: skip
TYPES = st.sampled_from(["application/json", "text/event-stream", None, "text/plain", "text/html"])


@given(TYPES, STARTS | st.binary(max_size=20))
def test_the_decision_does_not_depend_on_where_bytes_are_cut(content_type: str | None, body: bytes) -> None:
    sniffer = Sniffer(head_of(content_type))
    found = None
    for end in range(len(body) + 1):
        found = sniffer.decide(body[:end])
        if found is not None:
            break
    if found is None:
        found = sniffer.decide(body, ended=True)
    assert (found, sniffer.mismatch) == decide(content_type, body)
