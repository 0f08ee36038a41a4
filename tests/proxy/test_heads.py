"""Heads: what is read of them, and that nothing but the lines in question changes."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collector.proxy.heads import (
    HeadError,
    asks_for_load,
    forwarded_request,
    forwarded_response,
    load_request,
    read_request,
    read_response,
)

HOP = {
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"te",
    b"upgrade",
    b"proxy-authorization",
    b"proxy-authenticate",
}
names = st.from_regex(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,12}", fullmatch=True)
values = st.from_regex(rb"[ \t]?[\x21-\x7e\x80-\xff]{0,20}", fullmatch=True)
special = HOP | {b"host", b"content-length", b"transfer-encoding", b"traceparent", b"trailer"}
lines = st.lists(st.tuples(names, values).filter(lambda line: line[0].lower() not in special), max_size=12)
hop_lines = st.lists(
    st.tuples(st.sampled_from([b"TE", b"keep-Alive", b"Proxy-Connection", b"PROXY-AUTHORIZATION"]), values), max_size=4
)

LOAD = [b"endpoint-load-metrics", b"Endpoint-Load-METRICS", b"ENDPOINT-LOAD-METRICS-BIN", b"endpoint-load-metrics-bin"]
LIKE_LOAD = [b"endpoint-load-metrics-bins", b"x-endpoint-load-metrics", b"endpoint-load", b"endpoint-load-metrics-b"]
REPORTS = [b"", b" \t TEXT cpu_utilization=0.3, eps=1 \t", b' JSON {"eps": 1}']
load_lines = st.lists(st.tuples(st.sampled_from(LOAD), values | st.sampled_from(REPORTS)), max_size=4)
like_load = st.lists(st.tuples(st.sampled_from(LIKE_LOAD), values), max_size=3)


def head(first: bytes, fields: list[tuple[bytes, bytes]]) -> bytes:
    return first + b"".join(b"\r\n%b:%b" % field for field in fields) + b"\r\n\r\n"


@given(lines, hop_lines, st.randoms(use_true_random=False))
def test_a_request_loses_its_hop_lines_and_nothing_else(
    kept: list[tuple[bytes, bytes]], hop: list[tuple[bytes, bytes]], random: object
) -> None:
    mixed = [*kept, *hop]
    random.shuffle(mixed)  # type: ignore[attr-defined]
    raw = head(b"GET /a HTTP/1.1", [(b"hoST", b"old"), *mixed])
    sent = forwarded_request(read_request(raw), b"/b?c", b"new:1")
    assert sent == head(b"GET /b?c HTTP/1.1", [(b"hoST", b" new:1"), *[line for line in mixed if line not in hop]])


@given(lines, st.booleans())
def test_an_answer_loses_its_hop_lines_and_nothing_else(kept: list[tuple[bytes, bytes]], close: bool) -> None:
    raw = head(b"HTTP/1.1 200 \xff odd  reason", [(b"Keep-Alive", b" a"), *kept, (b"connection", b"x")])
    if any(name.lower() == b"x" for name, _ in kept):
        return
    sent = forwarded_response(read_response(raw, b"GET"), close=close)
    extra = [(b"Connection", b" close")] if close else []
    assert sent == head(b"HTTP/1.1 200 \xff odd  reason", [*kept, *extra])


@given(st.binary(max_size=200))
@example(b"\r\n\r\n\0")
@example(b"x\r\n\r\nPOST")
@example(b"\r\ncontent-length:")
def test_any_bytes_are_read_or_refused(junk: bytes) -> None:
    statuses: set[int] = set()
    answer_statuses: set[int] = set()
    for raw in (junk + b"\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n" + junk + b"\r\n\r\n"):
        try:
            read = read_request(raw)
        except HeadError as error:
            statuses.add(error.status)
        else:
            sent = forwarded_request(read, b"/", b"h")
            assert sent.endswith(b"\r\n\r\n")
            assert b"\n" not in re.sub(rb"\r\n", b"", sent)
            assert sent.lower().count(b"\r\nhost:") == 1
        try:
            forwarded_response(read_response(b"HTTP/1.1 200 OK\r\n" + junk + b"\r\n\r\n", b"GET"))
        except HeadError as error:
            answer_statuses.add(error.status)
    assert statuses <= {400, 405, 505}
    assert answer_statuses <= {502}


@pytest.mark.parametrize(
    ("fields", "framing", "length"),
    [
        (b"", "none", 0),
        (b"Content-Length: 0\r\n", "none", 0),
        (b"content-length:\t 12 \r\n", "length", 12),
        (b"TRANSFER-ENCODING: Chunked\r\n", "chunked", 0),
        (b"Transfer-Encoding: gzip, chunked\r\n", "chunked", 0),
        (b"Connection: upgrade\r\nUpgrade: x\r\nContent-Length: 3\r\n", "length", 3),
    ],
)
def test_the_framing_of_a_request(fields: bytes, framing: str, length: int) -> None:
    read = read_request(b"POST / HTTP/1.1\r\nHost: a\r\n" + fields + b"\r\n")
    assert (read.framing, read.length) == (framing, length)


@pytest.mark.parametrize(
    ("line", "fields", "method", "framing"),
    [
        (b"HTTP/1.1 200 OK", b"", b"GET", "close"),
        (b"HTTP/1.1 200", b"Content-Length: 5\r\n", b"GET", "length"),
        (b"HTTP/1.1 200 OK", b"Content-Length: 0\r\n", b"GET", "none"),
        (b"HTTP/1.1 200 OK", b"Content-Length: 5\r\n", b"HEAD", "none"),
        (b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked\r\n", b"HEAD", "none"),
        (b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked\r\n", b"GET", "chunked"),
        (b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", b"GET", "chunked"),
        (b"HTTP/1.1 200 OK", b"Transfer-Encoding: gzip\r\n", b"GET", "close"),
        (b"HTTP/1.1 200 OK", b"Content-Length: 5\r\nContent-Length: 5\r\n", b"GET", "length"),
        (b"HTTP/1.1 204 No", b"", b"GET", "none"),
        (b"HTTP/1.1 304 No", b"Content-Length: 5\r\n", b"GET", "none"),
        (b"HTTP/1.1 100 Go", b"", b"GET", "none"),
        (b"HTTP/1.1 101 Go", b"Connection: upgrade\r\nUpgrade: x\r\n", b"GET", "none"),
    ],
)
def test_the_framing_of_an_answer_and_that_it_is_said_once(
    line: bytes, fields: bytes, method: bytes, framing: str
) -> None:
    read = read_response(line + b"\r\n" + fields + b"\r\n", method)
    assert read.framing == framing
    sent = forwarded_response(read).lower()
    assert sent.count(b"content-length") + sent.count(b"transfer-encoding") <= 1


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        # What could be read in two ways, so that it might be hidden from the client in one and not in the other.
        b"HTTP/1.1 200 OK\r\nendpoint-load-metrics : TEXT eps=1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nendpoint-load-metrics: TEXT eps=1,\r\n cpu_utilization=1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n endpoint-load-metrics: TEXT eps=1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: 1\nendpoint-load-metrics: TEXT eps=1\r\n\r\n",
    ],
)
def test_a_broken_answer_is_refused(raw: bytes) -> None:
    with pytest.raises(HeadError):
        read_response(raw, b"GET")


def test_connection_cannot_list_away_what_holds_the_message_together() -> None:
    raw = (
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: content-length, Host, X-A , transfer-encoding\r\n"
        b"X-A: 1\r\nx-a: 2\r\nX-AB: 3\r\nContent-Length: 3\r\n\r\n"
    )
    sent = forwarded_request(read_request(raw), b"/", b"b")
    assert sent == b"POST / HTTP/1.1\r\nHost: b\r\nX-AB: 3\r\nContent-Length: 3\r\n\r\n"


def test_an_old_request_gets_a_host_and_the_version_that_is_spoken() -> None:
    read = read_request(b"GET /x HTTP/1.0\r\nX: 1\r\n\r\n")
    assert read.wants_close
    assert forwarded_request(read, b"/x", b"h") == b"GET /x HTTP/1.1\r\nHost: h\r\nX: 1\r\n\r\n"


@pytest.mark.parametrize("value", [b"00-xyz", b"", b"00-" + b"a" * 32 + b"-short-01"])
def test_a_trace_parent_that_is_none_stays_as_it_is(value: bytes) -> None:
    raw = b"GET / HTTP/1.1\r\nHost: a\r\ntraceparent: " + value + b"\r\n\r\n"
    assert forwarded_request(read_request(raw), b"/", b"a", b"b" * 16) == raw


@given(lines, like_load, load_lines, st.booleans(), st.randoms(use_true_random=False))
def test_an_answer_loses_its_load_reports_and_nothing_else(
    kept: list[tuple[bytes, bytes]],
    like: list[tuple[bytes, bytes]],
    reports: list[tuple[bytes, bytes]],
    close: bool,
    random: object,
) -> None:
    mixed = [*kept, *like, *reports]
    random.shuffle(mixed)  # type: ignore[attr-defined]
    raw = head(b"HTTP/1.1 200 endpoint-load-metrics: 1", mixed)
    read = read_response(raw, b"GET")
    extra = [(b"Connection", b" close")] if close else []
    left = [line for line in mixed if line not in reports]
    assert forwarded_response(read, close=close, hide_load=True) == head(
        b"HTTP/1.1 200 endpoint-load-metrics: 1", [*left, *extra]
    )
    assert forwarded_response(read, close=close) == head(b"HTTP/1.1 200 endpoint-load-metrics: 1", [*mixed, *extra])
    assert read.raw == raw


@given(lines, like_load)
def test_a_request_for_the_load_is_one_line_more(
    kept: list[tuple[bytes, bytes]], like: list[tuple[bytes, bytes]]
) -> None:
    read = read_request(head(b"GET /a HTTP/1.1", [(b"Host", b"a"), *kept, *like]))
    assert not asks_for_load(read)
    assert forwarded_request(read, b"/b", b"c", None, load_request("TEXT")) == head(
        b"GET /b HTTP/1.1", [(b"Host", b" c"), *kept, *like, (b"endpoint-load-metrics-format", b" TEXT")]
    )


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /x HTTP/1.0\r\n\r\n",
        b"GET /x HTTP/1.0\r\nConnection: endpoint-load-metrics-format\r\n\r\n",
        b"GET /x HTTP/1.1\r\nTE: trailers\r\nHost: old\r\nKeep-Alive: 5\r\n\r\n",
    ],
    ids=["no line", "the only line is cut", "the last line is cut"],
)
def test_the_line_is_added_whatever_stands_before_it(raw: bytes) -> None:
    sent = forwarded_request(read_request(raw), b"/x", b"h", None, load_request("json"))
    assert sent == b"GET /x HTTP/1.1\r\nHost: h\r\nendpoint-load-metrics-format: json\r\n\r\n"


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        (b"endpoint-load-metrics-format: TEXT", True),
        (b"ENDPOINT-load-METRICS-Format:\t bin", True),
        (b"Endpoint-Load-Metrics-Format:", True),
        (b"X: 1\r\nendpoint-load-metrics-format: JSON\r\nendpoint-load-metrics-format: TEXT", True),
        (b"X: endpoint-load-metrics-format: TEXT", False),
        (b"X-endpoint-load-metrics-format: TEXT", False),
        (b"endpoint-load-metrics-formats: TEXT", False),
        (b"endpoint-load-metrics: TEXT", False),
    ],
)
def test_a_client_that_asks_for_the_load_by_itself_is_known(line: bytes, asks: bool) -> None:
    raw = b"GET /endpoint-load-metrics-format: HTTP/1.1\r\nHost: a\r\n" + line + b"\r\n\r\n"
    with_space = raw.replace(b"format: HTTP", b"format:%20 HTTP")
    assert asks_for_load(read_request(raw)) is asks
    assert asks_for_load(read_request(with_space)) is asks


def test_a_load_report_that_is_also_hop_by_hop_is_cut_once() -> None:
    raw = (
        b"HTTP/1.1 200 OK\r\nConnection: Endpoint-Load-Metrics\r\nX: 1\r\nendpoint-load-metrics: TEXT eps=1\r\n"
        b"Content-Length: 0\r\n\r\n"
    )
    sent = forwarded_response(read_response(raw, b"GET"), hide_load=True)
    assert sent == b"HTTP/1.1 200 OK\r\nX: 1\r\nContent-Length: 0\r\n\r\n"


def test_load_reports_of_a_huge_head_are_cut_out_of_it() -> None:
    report = b"Endpoint-Load-Metrics: TEXT " + b"named_metrics.a=1, " * 1000 + b"eps=1\r\n"
    other = b"".join(b"X-%d: endpoint-load-metrics: %d\r\n" % (number, number) for number in range(2000))
    raw = b"HTTP/1.1 200 OK\r\n" + report + other + report * 100 + b"Content-Length: 0\r\n\r\n"
    sent = forwarded_response(read_response(raw, b"GET"), hide_load=True)
    assert sent == b"HTTP/1.1 200 OK\r\n" + other + b"Content-Length: 0\r\n\r\n"


@pytest.mark.parametrize("target", [b"/caf\xe9", "/€?ü=🙂".encode(), b"/\xff\x80?\xfe"])
@pytest.mark.parametrize("method", [b"GET", b"BREW"])
def test_bytes_above_ascii_pass_in_a_target(method: bytes, target: bytes) -> None:
    raw = method + b" " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n"
    assert read_request(raw).target == target


@pytest.mark.parametrize("byte", [b"\x00", b"\t", b"\x7f", b"\x1b"])
def test_control_bytes_do_not_whatever_stands_beside_them(byte: bytes) -> None:
    for target in (b"/a" + byte, b"/\xe9" + byte):
        with pytest.raises(HeadError):
            read_request(b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n")
