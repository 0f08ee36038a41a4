"""What is refused before anything of it reaches an upstream."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from collector.config import Route

GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
UPGRADE = b"Connection: upgrade\r\nUpgrade: websocket\r\n"

BAD_REQUESTS: dict[str, bytes] = {
    "both framings": POST + b"Content-Length: 5\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
    "both framings, other order": POST + CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "the same length twice": POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": POST + b"Content-Length: 5, 5\r\n\r\nhello",
    "a signed length": POST + b"Content-Length: +5\r\n\r\nhello",
    "a negative length": POST + b"Content-Length: -5\r\n\r\nhello",
    "an endless length": POST + b"Content-Length: 99999999999999999999\r\n\r\n",
    "space before the colon": POST + b"Content-Length : 5\r\n\r\nhello",
    "a folded line": GET + b"X: a\r\n b\r\n\r\n",
    "a bare line feed in the head": b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
    "bare line feeds alone": b"GET / HTTP/1.1\nHost: a\n\n",
    "a bare carriage return": GET + b"X: a\rY: b\r\n\r\n",
    "a zero byte": GET + b"X: a\0b\r\n\r\n",
    "a line without a colon": GET + b"nonsense\r\n\r\n",
    "a coding after chunked": POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n",
    "a coding that looks like chunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n",
    "chunked twice": POST + CHUNKED + CHUNKED + b"\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
    "both framings beside an upgrade": POST + UPGRADE + b"Content-Length: 4\r\n" + CHUNKED + b"\r\n",
    "two hosts": GET + b"Host: b\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\nX: a\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "two spaces": b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    "not HTTP": b"\x16\x03\x01\x02\x00\x01",
    "a target that is no path": b"GET x HTTP/1.1\r\nHost: a\r\n\r\n",
}
REFUSED: list[tuple[str, bytes, int, str]] = [
    *((name, raw, 400, "bad_request") for name, raw in BAD_REQUESTS.items()),
    ("a tunnel", b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 405, "unsupported_protocol"),
    ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "unsupported_protocol"),
    ("HTTP/2 in a request line", b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505, "unsupported_protocol"),
    ("a long head", GET + b"X: " + b"a" * 140_000, 431, "head_over_cap"),
    ("a long and complete head", GET + b"X: " + b"a" * 140_000 + b"\r\n\r\n", 431, "head_over_cap"),
]


@pytest.mark.parametrize(("raw", "status", "reason"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
@pytest.mark.parametrize("bytewise", [False, True], ids=["whole", "bytewise"])
async def test_what_may_be_understood_in_two_ways_never_reaches_an_upstream(
    side: Any, raw: bytes, status: int, reason: str, bytewise: bool
) -> None:
    async def serve(peer: Any) -> None:
        raise AssertionError("something reached the upstream")

    upstream = await side.serve(serve)
    peer = await side.dial()
    if bytewise and len(raw) < 1000:
        await peer.send_bytewise(raw)
    else:
        await peer.send(raw)
    answer = await peer.everything()
    head, _, body = answer.partition(b"\r\n\r\n")
    error = json.loads(body)["error"]
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert (error["type"], error["source"], error["code"]) == (reason, "semhealth", status)
    assert len(re.findall(rb"HTTP/1\.1 [0-9]{3} ", answer)) == 1, "nothing after it is taken for a request"
    assert side.worker.plane.refused == {**dict.fromkeys(side.worker.plane.refused, 0), reason: 1}
    assert upstream.connections == []
    assert side.balance() == (0, 0)


async def test_refusals_repeat_nothing_of_the_request(side: Any) -> None:
    await side.start(routes=(Route(name="a", upstream="http://127.0.0.1:9", prefix="/a"),))
    answer = await side.ask(b"GET /CANARY?CANARY HTTP/1.1\r\nHost: CANARY\r\nAuthorization: CANARY\r\n\r\n")
    assert b"CANARY" not in answer
    answer = await side.ask(b"GET /a HTTP/1.1\r\nHost: a\r\nCANARY\r\n\r\n")
    assert b"CANARY" not in answer


async def test_broken_chunks_of_a_request_end_it_without_passing_on(side: Any) -> None:
    got = bytearray()

    async def serve(peer: Any) -> None:
        await peer.head()
        while piece := await peer.reader.read(1000):
            got.extend(piece)

    await side.serve(serve)
    peer = await side.dial()
    await peer.send(
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"2\r\nok\r\n",
        b"zz\r\nbad\r\n",
        pause=0.05,
    )
    assert (await peer.everything()).startswith(b"HTTP/1.1 400 ")
    ended = await side.analyst.ended()
    assert (ended.how, ended.status) == ("client_disconnect", 400)
    assert bytes(got) == b"2\r\nok\r\n"


async def test_connections_over_the_bound_are_refused_and_room_is_made_again(side: Any) -> None:
    async def serve(peer: Any) -> None:
        while True:
            await peer.request()
            await peer.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    await side.serve(serve, max_connections=2)
    request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    held = [await side.dial(), await side.dial()]
    for peer in held:
        await peer.send(request)
        await peer.head()
    assert (await side.ask(request)).startswith(b"HTTP/1.1 503 ")
    assert side.worker.plane.refused["over_connections"] == 1
    held[0].close()
    await side.until(lambda: len(side.worker.plane.clients) == 1)
    peer = await side.dial()
    await peer.send(request)
    assert await peer.head() == b"HTTP/1.1 204 No Content\r\n\r\n"


async def test_health_is_answered_by_the_proxy_itself(side: Any) -> None:
    await side.start(1)  # nothing listens there
    peer = await side.dial()
    for path, body in ((b"/-/healthz", b"ok\n"), (b"/-/readyz", b"ready\n"), (b"/-/healthz?x=1", b"ok\n")):
        await peer.send(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path)
        head = await peer.head()
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert await peer.exactly(len(body)) == body
    await peer.send(b"HEAD /-/healthz HTTP/1.1\r\nHost: a\r\n\r\nGET /-/nothing HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (await peer.head()).startswith(b"HTTP/1.1 200 OK\r\n")
    assert (await peer.everything()).startswith(b"HTTP/1.1 404 ")
    assert side.balance() == (0, 0)


async def test_the_health_port_answers_health_and_nothing_else(side: Any) -> None:
    await side.start(1)
    for raw, status in [
        (b"GET /-/readyz HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        (b"GET /-/healthz HTTP/1.0\r\n\r\n", 200),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 404),
        (b"POST /-/healthz HTTP/1.1\r\nHost: a\r\n\r\n", 404),
        (b"nonsense\r\n\r\n", 400),
    ]:
        peer = await side.dial(side.health_port)
        await peer.send(raw)
        assert (await peer.everything()).startswith(b"HTTP/1.1 %d " % status)
    assert set(side.worker.plane.refused.values()) == {0}


async def test_an_idle_connection_is_closed_after_keep_alive(side: Any) -> None:
    await side.start(1, keep_alive=0.1)
    peer = await side.dial()
    await peer.send(b"GET /-/healthz HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (await peer.everything()).endswith(b"ok\n")
    half = await side.dial()
    await half.send(b"GET /-/healthz HT")
    assert await half.everything() == b""
