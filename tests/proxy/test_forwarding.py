"""What passes: bytes, order, framing and connections, over real sockets."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import random
from typing import Any

import pytest

from collector.config import Route
from collector.model import BytesSeen, ExchangeEnded, RequestSeen, ResponseSeen
from collector.proxy import exchange

GET = b"GET /v1/models?a=%2F&b=c HTTP/1.1\r\nHost: api.test\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def post(body: bytes, *lines: bytes) -> bytes:
    extra = b"".join(line + b"\r\n" for line in lines)
    return b"POST /v1/chat HTTP/1.1\r\nHost: api.test\r\n%bContent-Length: %d\r\n\r\n%b" % (extra, len(body), body)


def answering(*pieces: bytes, pause: float = 0.0) -> Any:
    """An upstream that answers every request with these bytes."""

    async def serve(peer: Any) -> None:
        while True:
            await peer.request()
            await peer.send(*pieces, pause=pause)

    return serve


async def test_head_lines_keep_their_bytes_order_case_and_duplicates_both_ways(side: Any) -> None:
    seen: list[bytes] = []

    async def serve(peer: Any) -> None:
        head, body = await peer.request()
        seen.append(head + body)
        await peer.send(
            b"HTTP/1.1 200 Fine  by me\r\nsEt-cookie:a=1\r\nX-B: \t 2 \r\nSET-COOKIE: b=2\r\n"
            b"content-LENGTH: 3\r\nX-\xc3\xa9:y\r\n\r\nabc".replace(b"X-\xc3\xa9", b"X-Y")
        )

    upstream = await side.serve(serve)
    peer = await side.dial()
    await peer.send(
        b"POST /v1/x?q=a+b%20c HTTP/1.1\r\nhOsT:   api.test\r\nx-A:1\r\nX-a: \xff\xfe\r\nAccept:*/*\r\nCookie: a\r\n"
        b"Cookie: b\r\ncontent-length: 4\r\nAuthorization: Bearer k\r\n\r\nbody"
    )
    assert await peer.head() == (
        b"HTTP/1.1 200 Fine  by me\r\nsEt-cookie:a=1\r\nX-B: \t 2 \r\nSET-COOKIE: b=2\r\n"
        b"content-LENGTH: 3\r\nX-Y:y\r\n\r\n"
    )
    assert await peer.exactly(3) == b"abc"
    assert seen == [
        b"POST /v1/x?q=a+b%%20c HTTP/1.1\r\nhOsT: 127.0.0.1:%d\r\nx-A:1\r\nX-a: \xff\xfe\r\nAccept:*/*\r\nCookie: a\r\n"
        b"Cookie: b\r\ncontent-length: 4\r\nAuthorization: Bearer k\r\n\r\nbody" % upstream.port
    ]


async def test_hop_by_hop_lines_stop_here_in_both_directions(side: Any) -> None:
    seen: list[bytes] = []

    async def serve(peer: Any) -> None:
        head, _ = await peer.request()
        seen.append(head)
        await peer.send(
            b"HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nKeep-Alive: timeout=5\r\nX-Hop: 1\r\n"
            b"Proxy-Authenticate: Basic\r\nUpgrade: h2c\r\nX-Up: 1\r\nContent-Length: 0\r\n\r\n"
        )

    await side.serve(serve)
    peer = await side.dial()
    await peer.send(
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Foo\r\nX-Foo: 1\r\nTE: trailers\r\nKeep-Alive: 5\r\n"
        b"Proxy-Authorization: Basic eDp5\r\nProxy-Connection: keep-alive\r\nX-Keep: 1\r\n\r\n"
    )
    assert await peer.head() == b"HTTP/1.1 200 OK\r\nX-Up: 1\r\nContent-Length: 0\r\n\r\n"
    assert seen[0].split(b"\r\n")[2:] == [b"X-Keep: 1", b"", b""]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world",
        CHUNKED + b"5\r\nhello\r\n6;x=y\r\n\r\n\r\nok\r\n0\r\nServer-Timing: a;dur=1\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
    ],
    ids=["length", "chunked with trailer", "after an interim answer"],
)
async def test_an_answer_is_the_same_however_upstream_cuts_it(side: Any, answer: bytes) -> None:
    async def serve(peer: Any) -> None:
        for cut in itertools.count(0):
            await peer.request()
            if cut == 0:
                await peer.send_bytewise(answer)
            else:
                await peer.send(answer[:cut], answer[cut:], pause=0.001)

    upstream = await side.serve(serve)
    peer = await side.dial()
    for _ in range(len(answer)):
        await peer.send(GET)
        assert await peer.exactly(len(answer)) == answer
    assert len(upstream.connections) == 1, "the connection was kept"


@pytest.mark.parametrize(
    "request_bytes",
    [
        post(b"hello"),
        b"POST / HTTP/1.1\r\nHost:a\r\nTransfer-Encoding:chunked\r\n\r\n"
        b"3\r\nabc\r\n4\r\n\r\n\r\n\r\n0\r\nX-T: 1\r\n\r\n",
    ],
    ids=["length", "chunked"],
)
async def test_a_request_is_the_same_however_the_client_cuts_it(side: Any, request_bytes: bytes) -> None:
    head, _, body = request_bytes.partition(b"\r\n\r\n")
    seen: list[bytes] = []

    async def serve(peer: Any) -> None:
        while True:
            await peer.head()
            seen.append(await peer.exactly(len(body)))
            await peer.send(OK)

    await side.serve(serve)
    peer = await side.dial()
    await peer.send_bytewise(request_bytes)
    await peer.exactly(len(OK))
    for cut in range(1, len(request_bytes), 3):
        await peer.send(request_bytes[:cut], request_bytes[cut:], pause=0.001)
        assert await peer.exactly(len(OK)) == OK
    assert set(seen) == {body}
    await side.analyst.ended(2)
    assert side.analyst.one(1, RequestSeen).head == head + b"\r\n\r\n"
    assert side.analyst.body(1, from_upstream=False) == body
    assert side.analyst.body(2, from_upstream=False) == body


async def test_events_tell_the_exchange_exactly(side: Any) -> None:
    body = b"2\r\nhi\r\n0\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n"
    await side.serve(answering(head, body[:3], body[3:], pause=0.02))
    peer = await side.dial()
    raw = post(b'{"a":1}', b"Connection: keep-alive")
    await peer.send(raw)
    await peer.until(b"0\r\n\r\n")
    ended = await side.analyst.ended()
    request, response = side.analyst.one(1, RequestSeen), side.analyst.one(1, ResponseSeen)
    assert request.head + side.analyst.body(1, from_upstream=False) == raw
    assert (request.route, response.head) == ("default", head)
    assert side.analyst.body(1, from_upstream=True) == body
    kinds = [type(event) for event in side.analyst.of(1)]
    assert kinds == [RequestSeen, BytesSeen, ResponseSeen, BytesSeen, BytesSeen, ExchangeEnded]
    times = [event.at for event in side.analyst.of(1)]
    assert times[2:] == sorted(times[2:])
    assert ended.how == "complete"
    assert (ended.status, response.connect) == (None, ended.connect)
    assert response.connect is not None
    assert 0 <= ended.added < 1
    assert request.at <= response.forwarded_at <= response.at


async def test_pipelined_requests_are_answered_in_order(side: Any) -> None:
    async def serve(peer: Any) -> None:
        while True:
            head, body = await peer.request()
            path = head.split()[1]
            await asyncio.sleep(random.random() / 50)  # noqa: S311
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b%b" % (len(path + body), path, body))

    await side.serve(serve)
    peer = await side.dial()
    raw = b"".join(
        b"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\r\n" % number for number in range(10, 30)
    )
    await peer.send(raw[:200], raw[200:], pause=0.01)
    for number in range(10, 30):
        await peer.head()
        assert await peer.exactly(6) == b"/%dabc" % number
    assert side.worker.plane.tap.forwarded == 20


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_without_a_body_leave_the_connection_usable(side: Any, status: int) -> None:
    answer = (
        b"HTTP/1.1 %d X\r\nContent-Length: 10\r\nETag: a\r\n\r\n" % status
        if status == 304
        else (b"HTTP/1.1 204 No Content\r\n\r\n")
    )
    upstream = await side.serve(answering(answer))
    peer = await side.dial()
    for _ in range(3):
        await peer.send(GET)
        assert await peer.head() == answer
    assert len(upstream.connections) == 1


async def test_head_answers_keep_their_length_and_have_no_body(side: Any) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"
    upstream = await side.serve(answering(answer))
    peer = await side.dial()
    for _ in range(3):
        await peer.send(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert await peer.head() == answer
    assert len(upstream.connections) == 1


async def test_a_body_that_ends_with_the_connection_ends_so_for_the_client(side: Any) -> None:
    async def serve(peer: Any) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.0 200 OK\r\nX: 1\r\n\r\n", b"part one, ", b"part two", pause=0.01)

    await side.serve(serve)
    answer = await side.ask(GET)
    assert answer == b"HTTP/1.0 200 OK\r\nX: 1\r\nConnection: close\r\n\r\npart one, part two"
    assert (await side.analyst.ended()).how == "complete"


async def test_a_client_of_http_1_0_gets_the_content_without_chunks(side: Any) -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"
    await side.serve(answering(*[chunked[at : at + 1] for at in range(len(chunked))]))
    answer = await side.ask(b"GET / HTTP/1.0\r\n\r\n")
    assert answer == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello!"
    await side.analyst.ended()
    assert side.analyst.body(1, from_upstream=True) == chunked.partition(b"\r\n\r\n")[2]


async def test_a_client_that_asks_to_close_is_closed_after_its_answer(side: Any) -> None:
    await side.serve(answering(OK))
    answer = await side.ask(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" + GET)
    assert answer == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


async def test_expect_100_continue_is_passed_on_and_its_answer_relayed(side: Any) -> None:
    async def serve(peer: Any) -> None:
        head = await peer.head()
        assert b"Expect: 100-continue" in head
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await peer.exactly(5) == b"hello"
        await peer.send(OK)

    await side.serve(serve)
    peer = await side.dial()
    head, _, body = post(b"hello", b"Expect: 100-continue").partition(b"\r\n\r\n")
    await peer.send(head + b"\r\n\r\n")
    assert await peer.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
    await peer.send(body)
    assert await peer.exactly(len(OK)) == OK


async def test_an_early_refusal_reaches_a_client_that_is_still_uploading(side: Any) -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig"

    async def serve(peer: Any) -> None:
        await peer.head()
        await peer.send(refusal)
        await peer.is_gone()

    upstream = await side.serve(serve)
    peer = await side.dial()
    await peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n" + b"x" * 1000)
    answer = await peer.everything()
    assert answer == b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig"
    await peer.send(b"x" * 100_000)
    assert (await side.analyst.ended()).how == "complete"
    assert len(side.worker.plane.pool) == 0
    assert len(upstream.connections) == 1


UPLOAD = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"
EARLY = b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok"
TOLD_EARLY = EARLY.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


async def begin_upload(side: Any, then: Any, raw: bytes = UPLOAD) -> tuple[Any, Any]:
    """An upload of which half was sent, and whose answer is complete; `then` is what its upstream does next."""

    async def serve(peer: Any) -> None:
        await peer.head()
        await peer.exactly(5)
        await peer.send(EARLY)
        await then(peer)

    upstream = await side.serve(serve)
    peer = await side.dial()
    await peer.send(raw + b"01234")
    assert await peer.exactly(len(TOLD_EARLY)) == TOLD_EARLY
    return upstream, peer


@pytest.mark.parametrize("ends", ["whole", "in one with the next request"])
async def test_an_upload_goes_on_after_its_answer_and_both_connections_end_with_it(side: Any, ends: str) -> None:
    rest = asyncio.get_running_loop().create_future()

    async def read_on(peer: Any) -> None:
        rest.set_result(await peer.everything())

    upstream, peer = await begin_upload(side, read_on)
    await peer.send(b"56")
    await asyncio.sleep(0.05)
    assert side.worker.plane.in_flight == 1
    await peer.send(b"789" if ends == "whole" else b"789" + GET)
    assert await rest == b"56789", "and nothing of the next request"
    assert await peer.is_gone()
    assert (await side.analyst.ended()).how == "complete"
    assert side.analyst.body(1, from_upstream=False) == b"0123456789"
    assert side.analyst.body(1, from_upstream=True) == b"ok"
    assert (len(side.worker.plane.pool), len(upstream.connections)) == (0, 1)


@pytest.mark.parametrize("how", ["leaves", "says more", "reads no more"])
async def test_an_upload_whose_upstream_has_done_with_it_ends(
    side: Any, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "UPLOAD_PATIENCE", 0.2)
    done = asyncio.Event()

    async def be_done(peer: Any) -> None:
        if how == "says more":
            await peer.send(b"more")
        elif how == "reads no more":
            await peer.is_gone()
        done.set()

    _, peer = await begin_upload(side, be_done)
    assert await peer.everything() == b""
    await peer.send(b"5678")  # it may not know yet
    assert (await side.analyst.ended()).how == "complete"
    assert side.analyst.body(1, from_upstream=True) == b"ok"
    await done.wait()
    assert len(side.worker.plane.pool) == 0


async def test_an_upload_that_goes_on_slowly_after_its_answer_is_not_given_up(
    side: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "UPLOAD_PATIENCE", 0.2)
    rest = asyncio.get_running_loop().create_future()

    async def read_on(peer: Any) -> None:
        rest.set_result(await peer.everything())

    _, peer = await begin_upload(side, read_on)
    for letter in b"56789":
        await asyncio.sleep(0.1)
        await peer.send(bytes([letter]))
    assert await rest == b"56789"


@pytest.mark.parametrize("how", ["close", "reset", "finish"])
async def test_a_client_that_leaves_its_upload_after_the_answer_takes_the_upstream_along(side: Any, how: str) -> None:
    gone = asyncio.Event()

    async def read_on(peer: Any) -> None:
        await peer.is_gone()
        gone.set()

    _, peer = await begin_upload(side, read_on)
    getattr(peer, how)()
    await asyncio.wait_for(gone.wait(), side.PATIENCE)
    assert (await side.analyst.ended()).how == "complete", "its answer was"
    assert side.worker.plane.in_flight == 0


async def test_an_upload_that_breaks_its_coding_after_the_answer_ends_there(side: Any) -> None:
    rest = asyncio.get_running_loop().create_future()

    async def read_on(peer: Any) -> None:
        await peer.is_gone()
        rest.set_result(None)

    # What follows the head is "01234": a chunk's size, of which the line end is yet to come.
    _, peer = await begin_upload(side, read_on, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    await peer.send(b"zz\r\n")
    await rest
    assert await peer.everything() == b""
    assert (await side.analyst.ended()).how == "complete"


async def test_a_shutdown_does_not_wait_for_an_upload_whose_answer_is_complete(side: Any) -> None:
    async def read_on(peer: Any) -> None:
        await peer.is_gone()

    await begin_upload(side, read_on)
    await side.worker.drain()
    assert (await side.analyst.ended()).how == "complete"


async def test_answer_and_upload_may_run_at_the_same_time(side: Any) -> None:
    async def serve(peer: Any) -> None:
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            await peer.send(b"1\r\n" + await peer.exactly(1) + b"\r\n")
        await peer.send(b"0\r\n\r\n")

    await side.serve(serve)
    peer = await side.dial()
    await peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n")
    assert b"Connection: close" in await peer.head()
    for letter in (b"a", b"b", b"c"):
        await peer.send(letter)
        assert await peer.exactly(6) == b"1\r\n" + letter + b"\r\n"
    assert await peer.everything() == b"0\r\n\r\n"


async def test_a_websocket_is_tunnelled_after_its_upgrade(side: Any) -> None:
    async def serve(peer: Any) -> None:
        head = await peer.head()
        assert b"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n" in head
        await peer.send(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\nX: 1\r\n\r\nfirst")
        while piece := await peer.reader.read(100):
            await peer.send(piece)

    await side.serve(serve)
    peer = await side.dial()
    await peer.send(
        b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Key: k\r\n\r\n"
    )
    assert await peer.head() == b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX: 1\r\n\r\n"
    assert await peer.exactly(5) == b"first"
    frame = bytes(range(256))
    await peer.send(frame)
    assert await peer.exactly(256) == frame
    peer.finish()
    assert await peer.everything() == b""
    ended = await side.analyst.ended()
    assert ended.how == "complete"
    assert side.analyst.body(1, from_upstream=False) == frame
    assert side.analyst.body(1, from_upstream=True) == b"first" + frame


async def test_an_offer_of_h2c_is_passed_over_and_the_request_served(side: Any) -> None:
    seen: list[bytes] = []

    async def serve(peer: Any) -> None:
        seen.append(await peer.head())
        await peer.send(OK)

    await side.serve(serve)
    peer = await side.dial()
    await peer.send(
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAA\r\nX: 1\r\n\r\n"
    )
    assert await peer.exactly(len(OK)) == OK
    assert seen[0].split(b"\r\n")[2:] == [b"X: 1", b"", b""]


async def test_methods_nobody_knows_pass(side: Any) -> None:
    seen: list[bytes] = []

    async def serve(peer: Any) -> None:
        seen.append(await peer.head())
        await peer.send(OK)

    await side.serve(serve)
    peer = await side.dial()
    await peer.send(b"FROBNICATE /x HTTP/1.1\r\nHost: a\r\n\r\n")
    assert await peer.exactly(len(OK)) == OK
    assert seen[0].startswith(b"FROBNICATE /x HTTP/1.1\r\n")


async def test_a_response_with_both_framings_keeps_only_the_one_that_counts(side: Any) -> None:
    body = b"2\r\nok\r\n0\r\n\r\n"
    await side.serve(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + body))
    peer = await side.dial()
    await peer.send(GET)
    assert await peer.head() == b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert await peer.exactly(len(body)) == body


async def test_large_bodies_pass_unchanged_both_ways(side: Any) -> None:
    size = 4 * 1024 * 1024
    body = random.Random(7).randbytes(size)  # noqa: S311
    wanted = hashlib.sha256(body).digest()
    arrived: list[bytes] = []

    async def serve(peer: Any) -> None:
        _, received = await peer.request()
        arrived.append(hashlib.sha256(received).digest())
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size, received)

    await side.serve(serve)
    peer = await side.dial()
    sending = asyncio.ensure_future(peer.send(post(body)))
    await peer.head()
    assert hashlib.sha256(await peer.exactly(size)).digest() == wanted
    assert arrived == [wanted]
    await sending
    await side.analyst.ended()
    for from_upstream in (False, True):
        told = side.analyst.body(1, from_upstream=from_upstream)
        assert hashlib.sha256(told).digest() == wanted


async def test_surplus_bytes_of_an_upstream_never_reach_a_client(side: Any) -> None:
    count = itertools.count(1)

    async def serve(peer: Any) -> None:
        number = next(count)
        await peer.request()
        answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n%d\r\n0\r\n\r\n" % number
        await peer.send(answer + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        await peer.is_gone()

    upstream = await side.serve(serve)
    peer = await side.dial()
    for number in (1, 2):
        await peer.send(GET)
        await peer.head()
        assert await peer.exactly(11) == b"1\r\n%d\r\n0\r\n\r\n" % number
    assert len(upstream.connections) == 2


async def test_longest_prefix_wins_and_paths_are_put_together_byte_for_byte(side: Any) -> None:
    async def serve(peer: Any) -> None:
        while True:
            head, _ = await peer.request()
            target = head.split()[1]
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(target), target))

    upstream = await side.upstream(serve)
    base = f"http://127.0.0.1:{upstream.port}"
    routes = (
        Route(name="all", upstream=base, prefix="/"),
        Route(name="one", upstream=f"{base}/v1/", prefix="/one"),
        Route(name="deep", upstream=f"{base}/deep", prefix="/one/deep"),
        Route(name="kept", upstream=f"{base}/base", prefix="/kept", strip_prefix=False),
    )
    await side.start(routes=routes)
    peer = await side.dial()
    for given, wanted in [
        (b"/one/chat?x=%2f&y=a+b#f", b"/v1/chat?x=%2f&y=a+b#f"),
        (b"/one", b"/v1"),
        (b"/one?q", b"/v1?q"),
        (b"/onex/y", b"/onex/y"),
        (b"/one/deep/%7Ea//b", b"/deep/%7Ea//b"),
        (b"/one/deeper", b"/v1/deeper"),
        (b"/kept/x", b"/base/kept/x"),
        (b"http://other.test/one/z?k", b"/v1/z?k"),
        (b"http://other.test", b"/"),
        (b"/?", b"/?"),
    ]:
        await peer.send(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % given)
        await peer.head()
        assert await peer.exactly(len(wanted)) == wanted
    assert len(upstream.connections) == 1, "routes to one origin share its connections"


async def test_traceparent_is_untouched_unless_the_sidecar_is_to_be_the_parent(side: Any) -> None:
    seen: list[bytes] = []

    async def serve(peer: Any) -> None:
        while True:
            head, _ = await peer.request()
            seen.append(head)
            await peer.send(OK)

    await side.serve(serve, trace_parent=True)
    line = b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    peer = await side.dial()
    await peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n%b\r\ntracestate: x=y\r\n\r\n" % line)
    await peer.exactly(len(OK))
    await peer.send(GET)
    await peer.exactly(len(OK))
    sent = seen[0].split(b"\r\n")[2]
    assert sent != line
    assert (sent[:49], sent[-3:], len(sent)) == (line[:49], line[-3:], len(line))
    assert b"\r\ntracestate: x=y\r\n" in seen[0]
    assert b"traceparent" not in seen[1]


async def test_problems_are_json_that_names_semhealth(side: Any) -> None:
    await side.start(routes=(Route(name="a", upstream="http://127.0.0.1:9", prefix="/a"),))
    head, _, body = (await side.ask(b"GET /b HTTP/1.1\r\nHost: x\r\n\r\n")).partition(b"\r\n\r\n")
    error = json.loads(body)["error"]
    assert head.startswith(b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n")
    assert b"\r\nx-semhealth-error: no_route\r\n" in head
    assert (error["source"], error["type"], error["code"]) == ("semhealth", "no_route", 404)
    assert "semhealth" in error["message"]
    assert side.worker.plane.refused["no_route"] == 1
    assert side.worker.plane.tap.forwarded == 0
