"""Heads that the proxy has validated are told apart, and any others are survived."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.model import Headers
from collector.wire import heads
from collector.wire.heads import (
    MAX_KINDS,
    MAX_KNOWN,
    MAX_LINES,
    MAX_PATTERN,
    MAX_PATTERNS,
    OFTEN,
    path_of,
    request_head,
    response_head,
)


def test_a_request_head_is_method_target_and_headers() -> None:
    method, target, headers = request_head(b"POST /v1/x?key=1 HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nx-a:  2 \r\n\r\n")
    assert (method, target) == ("POST", "/v1/x?key=1")
    assert headers == Headers((("host", "a"), ("x-a", "1"), ("x-a", "2")))
    assert headers.first("x-a") == "1"
    assert headers.all("x-a") == ["1", "2"]
    assert headers.first("x-b") is None


def test_values_are_utf8_or_else_latin_1() -> None:
    _, _, headers = request_head("GET / HTTP/1.1\r\na: é\r\n".encode() + b"b: \xe9\r\n\r\n")
    assert headers.lines == (("a", "é"), ("b", "é"))


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"HTTP/1.1 200 OK", 200), (b"HTTP/1.1 429 ", 429), (b"HTTP/1.0 503", 503), (b"HTTP/1.1 99999999999 x", 0),
        (b"HTTP/1.1 -20 x", 0), (b"HTTP/1.1 abc", 0), (b"", 0), (b"HTTP/1.1 " + b"9" * 5000, 0),
    ],
)  # fmt: skip
def test_the_status_is_three_digits(line: bytes, status: int) -> None:
    assert response_head(line + b"\r\nA: 1\r\n\r\n").status == status


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/v1/chat?key=secret", "/v1/chat"), ("/v1/chat#x", "/v1/chat"), ("http://h:1/v1/x?y", "/v1/x"),
        ("http://h", "/"),
        ("/proxy/https://api.example/v1/x", "/proxy/https://api.example/v1/x"), ("*", "*"), ("", ""),
        ("/a?u=http://b/c", "/a"),
    ],
)  # fmt: skip
def test_a_path_has_no_host_and_no_query(target: str, path: str) -> None:
    assert path_of(target) == path


def test_a_line_that_is_no_utf_8_leaves_the_others_as_they_are() -> None:
    headers = response_head(b"HTTP/1.1 200 OK\r\nX-A: caf\xc3\xa9\r\nX-B: caf\xe9\r\n\r\n").headers
    assert headers.lines == (("x-a", "café"), ("x-b", "café"))


def test_heads_with_the_same_names_share_them() -> None:
    first = response_head(b"HTTP/1.1 200 OK\r\nA-B: 1\r\nC: 2\r\n\r\n").headers
    again = response_head(b"HTTP/1.1 404 No\r\nA-B: 3\r\nC: 4\r\n\r\n").headers
    assert again.shared is first.shared
    assert again.lines == (("a-b", "3"), ("c", "4"))
    assert request_head(b"GET / HTTP/1.1\r\na-b: 3\r\nC: 4\r\n\r\n")[2] == again


def test_names_of_large_heads_are_not_remembered() -> None:
    head = b"HTTP/1.1 200 OK\r\nA: " + b"x" * MAX_KNOWN + b"\r\n\r\n"
    assert response_head(head).headers.shared is not response_head(head).headers.shared


def test_values_and_queries_are_not_remembered() -> None:
    head = b"POST /only-once?key=1 HTTP/1.1\r\nAuthorization: Bearer 1\r\nX: 1\r\n\r\n"
    request_head(head)
    for remembers in (heads._known_line, heads._known_path, heads._known_kind, heads._known_status):
        before = remembers.cache_info().currsize
        request_head(head.replace(b"1\r\n", b"2\r\n").replace(b"key=1", b"key=2"))
        path_of("/only-once?key=3")
        assert remembers.cache_info().currsize == before


@given(st.lists(st.sampled_from([b"A: 1", b"a:2", b" B :  3 ", b"none", b"", b": x", b"c\xff: y"]), max_size=6))
def test_requests_and_responses_have_their_lines_read_alike(lines: list[bytes]) -> None:
    block = b"".join(b"\r\n" + line for line in lines)
    headers = response_head(b"HTTP/1.1 200 OK" + block).headers
    assert request_head(b"GET / HTTP/1.1" + block)[2] == headers
    for name, _ in headers.lines:
        assert headers.first(name) == headers.all(name)[0]


def plainly(block: bytes) -> list[tuple[str, str]]:
    """Names and values as they are meant to be read."""
    found = []
    for line in block.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon:
            found.append(tuple(_text(part).strip() for part in (name, value)))
    return [(name.lower(), value) for name, value in found]


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


@given(st.lists(st.binary(max_size=12) | st.sampled_from([b"A: 1", b"a:2 ", b" B :\t3", b"", b"::", b"c: \xe9"])))
def test_lines_are_read_plainly(lines: list[bytes]) -> None:
    block = b"\r\n".join(lines)
    assert list(response_head(b"HTTP/1.1 200 OK\r\n" + block).headers.lines) == plainly(block)
    assert list(response_head(b"HTTP/1.1 200 OK\r\n" + block + b"\r\n\r\n").headers.lines) == plainly(block)


NAME = st.sampled_from([b"A", b"a", b"X-B", b" c ", b"", b"(d*", b"\xc3\xa9", b"\xe9", b"e\rf"])
VALUE = st.sampled_from([
    b" 1", b"2", b"  3\t", b"", b" ", b" a: b", b" caf\xc3\xa9", b" caf\xe9", b" x\xc2\xa0", b"\x1fy", b"y\rz", b"\nq",
    b" 1\r\nA: 1", b" 1\r\n\r\n", b" none\r\nnone",
])  # fmt: skip


@given(st.lists(NAME, min_size=1, max_size=4), st.lists(st.lists(VALUE, min_size=4, max_size=4), max_size=6))
def test_patterns_tell_what_lines_tell(names: list[bytes], told: list[list[bytes]]) -> None:
    heads._patterns.clear()
    usual = b"HTTP/1.1 200 OK\r\n" + b"\r\n".join(name + b": 1" for name in names) + b"\r\n\r\n"
    for _ in range(OFTEN):
        before = response_head(usual).headers
    assert heads._patterns
    assert response_head(usual).headers == before
    for values in told:
        block = b"\r\n".join(name + b":" + value for name, value in zip(names, values, strict=False))
        for end in (b"\r\n\r\n", b"\r\n", b""):
            assert list(response_head(b"HTTP/1.1 200 OK\r\n" + block + end).headers.lines) == plainly(block)


def test_a_pattern_is_made_of_usual_heads_and_holds_no_value() -> None:
    heads._patterns.clear()
    for number in range(2 * OFTEN):
        request_head(b"POST /x HTTP/1.1\r\nHost: h\r\nX-Pattern: only-%d\r\n\r\n" % number)
    [(fullmatch, names)] = heads._patterns["POST"]
    assert names.all == ("host", "x-pattern")
    found = fullmatch("Host: h\r\nX-Pattern: other\r\n\r\n")
    assert found is not None
    assert found.groups() == ("h", "other")
    assert "only" not in found.re.pattern


def test_patterns_are_bounded() -> None:
    for status in range(200, 200 + MAX_PATTERNS + 8):
        for kind in range(MAX_KINDS + 2):
            for _ in range(OFTEN + 1):
                response_head(b"HTTP/1.1 %d OK\r\nX-Kind-%d: 1\r\n\r\n" % (status, kind))
    assert len(heads._patterns) <= MAX_PATTERNS
    assert {len(known) for known in heads._patterns.values()} == {MAX_KINDS}
    for _ in range(OFTEN + 1):
        response_head(b"HTTP/1.1 299 OK\r\n" + b"a: 1\r\n" * (MAX_PATTERN + 1) + b"\r\n")
    assert 299 not in heads._patterns


def test_a_flood_of_lines_is_bounded() -> None:
    assert len(response_head(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 5000).headers.lines) == MAX_LINES


@given(st.binary(max_size=300))
def test_any_bytes_are_survived(head: bytes) -> None:
    method, target, headers = request_head(head)
    assert "?" not in path_of(target)
    assert 0 <= response_head(head).status <= 999
    assert all(name == name.strip().lower() for name, _ in headers.lines)
    (method + target).encode()
