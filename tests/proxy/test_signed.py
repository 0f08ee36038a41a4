"""A route that signs anew: what the upstream gets, what is held for it, and what is refused."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

pytest.importorskip("botocore", reason="the extra `aws` brings botocore")

from collector.config import ConfigError, Route, Sigv4
from collector.model import BytesSeen, RequestSeen
from collector.proxy import signed
from collector.proxy.routes import destination_of
from collector.simulator import sigv4

KEYS = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "secret"}
SIGV4 = Sigv4(region="us-east-1")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HEAD = (
    b"POST /model/sim%%3A0/converse HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAuthorization: Bearer of-nothing\r\n"
    b"Content-Type: application/json\r\n%bContent-Length: %d\r\n\r\n"
)


class Bedrock:
    """An upstream that checks signatures; `got` are the requests that passed."""

    def __init__(self) -> None:
        self.got: list[tuple[bytes, bytes]] = []
        self.arrived = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.closes_after = 0  # the number of a request after which the connection is closed, without a word

    async def __call__(self, peer: Any) -> None:
        while True:
            head, body = await peer.request()
            self.arrived.set()
            check(head, body)
            self.got.append((head, body))
            await self.may_answer.wait()
            await peer.send(OK)
            if len(self.got) == self.closes_after:
                return


def check(head: bytes, body: bytes) -> None:
    """SignatureError unless the request is signed by KEYS."""
    line, *lines = head.decode().split("\r\n")[:-2]
    method, target, _ = line.split(" ")
    named = [(name, value.strip()) for name, _, value in (each.partition(":") for each in lines)]
    sigv4.check(sigv4.Keys("AKIA", "secret"), method, target, named, body, time.time())


@pytest.fixture
async def bedrock(side: Any, monkeypatch: pytest.MonkeyPatch) -> Bedrock:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    serve = Bedrock()
    upstream = await side.upstream(serve)
    await side.start(routes=(Route(name="a", upstream=f"http://127.0.0.1:{upstream.port}", sigv4=SIGV4),))
    return serve


@pytest.mark.parametrize("size", [0, 1, 1000, signed.MAX_BODY])
async def test_a_request_arrives_signed_with_its_body_byte_for_byte(side: Any, bedrock: Bedrock, size: int) -> None:
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    peer = await side.dial()
    head = HEAD % (b"", size)
    await peer.send(head + body)
    assert await peer.exactly(len(OK)) == OK
    (arrived,) = bedrock.got
    assert arrived[1] == body
    assert b"Bearer" not in arrived[0]
    await side.analyst.ended()
    assert side.analyst.one(1, RequestSeen).head == head  # what the client sent, as for every other route
    assert side.analyst.body(1, from_upstream=False) == body
    assert side.worker.plane.held == 0


async def test_a_request_is_held_until_its_last_byte(side: Any, bedrock: Bedrock) -> None:
    peer = await side.dial()
    await peer.send(HEAD % (b"", 6), b"abc", pause=0.05)
    assert not bedrock.arrived.is_set()
    assert side.worker.plane.held == 6
    await peer.send(b"def" + HEAD % (b"", 1) + b"g")  # and the next one behind it
    assert await peer.exactly(2 * len(OK)) == OK + OK
    assert [body for _, body in bedrock.got] == [b"abcdef", b"g"]
    assert side.worker.plane.held == 0


async def test_nothing_is_held_while_the_upstream_thinks(side: Any, bedrock: Bedrock) -> None:
    bedrock.may_answer.clear()
    peer = await side.dial()
    await peer.send(HEAD % (b"", 1000) + bytes(1000))
    await asyncio.wait_for(bedrock.arrived.wait(), side.PATIENCE)
    assert (side.worker.plane.in_flight, side.worker.plane.held) == (1, 0)
    bedrock.may_answer.set()
    assert await peer.exactly(len(OK)) == OK


async def test_the_time_that_the_client_takes_is_not_the_sidecars(side: Any, bedrock: Bedrock) -> None:
    peer = await side.dial()
    await peer.send(HEAD % (b"", 2) + b"a", b"b", pause=0.3)
    assert await peer.exactly(len(OK)) == OK
    assert (await side.analyst.ended()).added < 0.2


async def test_a_client_that_leaves_meanwhile_gives_back_what_was_held(side: Any, bedrock: Bedrock) -> None:
    peer = await side.dial()
    await peer.send(HEAD % (b"", 1000) + b"abc")
    await side.until(lambda: side.worker.plane.held == 1000)
    peer.close()
    assert (await side.analyst.ended()).how == "client_disconnect"
    assert side.worker.plane.held == 0
    assert not bedrock.arrived.is_set()


async def test_a_client_that_asks_for_leave_gets_it_from_the_sidecar(side: Any, bedrock: Bedrock) -> None:
    peer = await side.dial()
    await peer.send(HEAD % (b"Expect: 100-continue\r\n", 3))
    assert await peer.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
    await peer.send(b"abc")
    assert await peer.exactly(len(OK)) == OK
    assert b"expect" not in bedrock.got[0][0].lower()


async def test_a_stale_connection_is_replaced_and_the_request_goes_out_once_more(side: Any, bedrock: Bedrock) -> None:
    bedrock.closes_after = 1
    peer = await side.dial()
    for number in (1, 2):
        await peer.send(HEAD % (b"", 1) + b"%d" % number)
        assert await peer.exactly(len(OK)) == OK
    assert [body for _, body in bedrock.got] == [b"1", b"2"]


@pytest.mark.parametrize(
    ("request_head", "status", "reason"),
    [
        (HEAD % (b"", signed.MAX_BODY + 1), b"413", "body_over_cap"),
        (HEAD.replace(b"Content-Length: %d", b"Transfer-Encoding: chunked") % b"", b"411", "bad_request"),
    ],
    ids=["too long", "in chunks"],
)
async def test_what_cannot_be_held_is_refused_and_counted(
    side: Any, bedrock: Bedrock, request_head: bytes, status: bytes, reason: str
) -> None:
    answer = await side.ask(request_head)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"\r\nx-semhealth-error: " + reason.encode() in answer
    assert side.worker.plane.refused[reason] == 1
    assert not bedrock.arrived.is_set()


async def test_all_that_is_held_together_is_bounded(side: Any, bedrock: Bedrock) -> None:
    holding = signed.MAX_HELD // signed.MAX_BODY
    for _ in range(holding):
        peer = await side.dial()
        await peer.send(HEAD % (b"", signed.MAX_BODY))
    await side.until(lambda: side.worker.plane.held == signed.MAX_HELD)
    answer = await side.ask(HEAD % (b"", 1) + b"a")
    assert answer.startswith(b"HTTP/1.1 503")
    assert side.worker.plane.refused["body_over_cap"] == 1
    assert (await side.ask(HEAD.replace(b"Content-Type", b"Connection: close\r\nContent-Type") % (b"", 0))).endswith(
        OK[-2:]
    )


def test_a_route_without_credentials_is_refused() -> None:
    with pytest.raises(ConfigError, match="AWS_SECRET_ACCESS_KEY"):
        destination_of(Route(name="a", upstream="https://a", sigv4=SIGV4), {"AWS_ACCESS_KEY_ID": "AKIA"})


async def test_the_body_is_told_as_it_arrives(side: Any, bedrock: Bedrock) -> None:
    peer = await side.dial()
    await peer.send(HEAD % (b"", 2) + b"a", b"b", pause=0.1)
    assert await peer.exactly(len(OK)) == OK
    await side.analyst.ended()
    told = [event.data for event in side.analyst.of(1) if isinstance(event, BytesSeen) and not event.from_upstream]
    assert told == [b"a", b"b"]
