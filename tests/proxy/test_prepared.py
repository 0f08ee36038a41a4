"""A head that repeats the last one but for its length is made ready as if it had been read anew."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.config import Route, Settings
from collector.proxy.heads import HeadError, read_request
from collector.proxy.prepared import LONGEST_REMEMBERED, Prepared, prepare, remembered
from collector.proxy.routes import Destination, routes_to

SETTINGS = Settings(
    routes=(
        Route(name="preserved", upstream="http://a.test/base", prefix="/p", strip_prefix=True, host="preserve"),
        Route(name="loaded", upstream="http://b.test", prefix="/l", orca="TEXT"),
        Route(name="rest", upstream="http://c.test"),
    )
)
ROUTES = routes_to(SETTINGS)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

names = st.sampled_from([b"Content-Length", b"content-length", b"X-Content-Length", b"Accept", b"Connection", b"X"])
values = st.sampled_from([b"a", b"close", b"12", b" 7 ", b"content-length: 5"]) | st.from_regex(
    rb"[ \t]?[\x21-\x7e]{0,8}", fullmatch=True
)
lines = st.lists(st.tuples(names, values), max_size=4)
targets = st.sampled_from([b"/p/x?y=1", b"/l/chat", b"/v1/5", b"*", b"http://elsewhere/p"])
lengths = st.integers(0, 10**20).map(lambda number: b"%d" % number) | st.sampled_from(
    [b"007", b"0", b"00", b"", b"+1", b"1_0", b"1 0", b"\xb2", b"5, 5", b"9" * 18, b"9" * 19]
)


def head(target: bytes, before: list[tuple[bytes, bytes]], length: bytes, after: list[tuple[bytes, bytes]]) -> bytes:
    fields = [(b"Host", b"client"), *before, (b"Content-Length", length), *after]
    return b"POST %b HTTP/1.1" % target + b"".join(b"\r\n%b:%b" % field for field in fields) + b"\r\n\r\n"


def read(raw: bytes) -> Prepared | None:
    """What the head becomes when it is read; None where it is refused or leads nowhere."""
    try:
        request = read_request(raw)
    except HeadError:
        return None
    destination = ROUTES.find(request.target)
    return None if destination is None else prepare(request, destination)


@given(targets, lines, lines, lengths, lengths, st.booleans())
def test_a_head_that_repeats_the_last_one_becomes_what_it_would_become_by_itself(
    target: bytes,
    before: list[tuple[bytes, bytes]],
    after: list[tuple[bytes, bytes]],
    length: bytes,
    other: bytes,
    is_swapped: bool,
) -> None:
    first = read(head(target, before, length, after))
    if first is None:
        return
    last = remembered(first)
    assert last is not None
    raw = head(target, after, other, before) if is_swapped else head(target, before, other, after)
    again = last.again(raw)
    if again is not None:
        assert again == read(raw)


def of(raw: bytes) -> Prepared:
    prepared = read(raw)
    assert prepared is not None
    return prepared


def test_only_the_digits_of_a_length_may_differ() -> None:
    last = remembered(of(head(b"/v1", [(b"A", b"b")], b" 10", [(b"C", b"d")])))
    assert last is not None
    again = last.again(head(b"/v1", [(b"A", b"b")], b" 123456", [(b"C", b"d")]))
    assert again is not None
    assert (again.length, again.framing) == (123456, "length")
    for raw in (
        head(b"/v2", [(b"A", b"b")], b" 10", [(b"C", b"d")]),
        head(b"/v1", [(b"A", b"b"), (b"E", b"f")], b" 10", [(b"C", b"d")]),
        head(b"/v1", [(b"A", b"b")], b" 1\r\nContent-Length: 0", [(b"C", b"d")]),
        head(b"/v1", [(b"A", b"b")], b" 0", [(b"C", b"d")]),
        head(b"/v1", [(b"A", b"b")], b" " + b"9" * 19, [(b"C", b"d")]),
        b"POST /v1 HTTP/1.1\r\nHost:client\r\nA:b\r\nContent-Length:\r\nC:d\r\n\r\n",
    ):
        assert last.again(raw) is None, raw


@pytest.mark.parametrize("raw", [b"GET /v1 HTTP/1.1\r\nHost: a\r\n\r\n", head(b"/v1", [], b"0", [])])
def test_a_head_without_a_body_is_known_by_its_bytes_alone(raw: bytes) -> None:
    last = remembered(of(raw))
    assert last is not None
    assert last.again(raw) == of(raw)
    assert last.again(raw.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n")) is None
    assert last.again(raw + b"5\r\n\r\n") is None


def test_what_is_long_or_has_a_span_of_its_own_is_not_remembered() -> None:
    assert remembered(of(head(b"/v1", [(b"X", b"x" * LONGEST_REMEMBERED)], b"5", []))) is None
    raw = head(b"/v1", [(b"traceparent", b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01")], b"5", [])
    destination = ROUTES.find(b"/v1")
    assert isinstance(destination, Destination)
    asked = prepare(read_request(raw), destination, rewrites_trace=True)
    assert asked.span_id is not None
    assert asked.span_id.encode() in asked.sent
    assert remembered(asked) is None


async def test_requests_of_one_connection_reach_the_upstream_as_each_would_alone(side: Any) -> None:
    heard: list[tuple[bytes, bytes]] = []

    async def serve(peer: Any) -> None:
        while True:
            heard.append(await peer.request())
            await peer.send(OK)

    await side.serve(serve)
    peer = await side.dial()
    bodies = [b"a", b"bc" * 5000, b"", b"d", b"d"]
    asked = [
        b"POST /v1/%d HTTP/1.1\r\nHost: a\r\nconnection: keep-alive\r\ncontent-length: %d\r\nX: y\r\n\r\n"
        % (path, size)
        for path, size in zip((1, 1, 1, 1, 2), map(len, bodies), strict=True)
    ]
    for head_sent, body in zip(asked, bodies, strict=True):
        await peer.send(head_sent + body)
        assert await peer.exactly(len(OK)) == OK
    await peer.send(asked[0] + bodies[0] + asked[1] + bodies[1])  # in one piece
    assert await peer.exactly(2 * len(OK)) == OK * 2
    here = b"Host: 127.0.0.1:%d" % side.worker.plane.routes.find(b"/").origin.port
    sent = [part.replace(b"Host: a\r\nconnection: keep-alive", here) for part in asked]
    assert heard == list(zip([*sent, *sent[:2]], [*bodies, *bodies[:2]], strict=True))
    await side.until(lambda: side.worker.plane.tap.acknowledged == 7)
    told = [event for event in side.analyst.events if type(event).__name__ == "RequestSeen"]
    assert [event.head for event in told] == [*asked, *asked[:2]]
    assert [side.analyst.body(event.id, from_upstream=False) for event in told] == [*bodies, *bodies[:2]]


async def test_a_worker_that_drains_refuses_a_request_that_it_knows(side: Any) -> None:
    async def serve(peer: Any) -> None:
        while True:
            await peer.request()
            await peer.send(OK)

    await side.serve(serve)
    peer = await side.dial()
    raw = head(b"/v1", [], b"1", []) + b"x"
    await peer.send(raw)
    assert await peer.exactly(len(OK)) == OK
    side.worker.plane.draining = True
    await peer.send(raw)
    assert (await peer.head()).startswith(b"HTTP/1.1 503 ")
