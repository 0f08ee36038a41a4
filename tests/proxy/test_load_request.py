"""A route that asks for load reports: what the upstream is asked, what the client gets, what the analyst is told."""

from __future__ import annotations

from typing import Any

import pytest

from collector.config import Route
from collector.model import RequestSeen, ResponseSeen

ASK = b"\r\nendpoint-load-metrics-format: TEXT"
REPORT = b"\r\nEndpoint-Load-Metrics: TEXT named_metrics.kv_cache_usage_perc=0.25"
BINARY = b"\r\nendpoint-load-metrics-BIN:CQAAAAAAANA/"
GET = b"GET /v1/models HTTP/1.1\r\nHost: api.test\r\nX-A: 1%b\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a>%b\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nX-B:2%b\r\nContent-Length: 2%b\r\n\r\nok"


class Served:
    """An upstream that reports its load with every answer, asked or not, and the heads of the requests it got.

    On the request with the number `unanswered` it closes instead.
    """

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.unanswered = 0

    async def __call__(self, peer: Any) -> None:
        while True:
            head, _ = await peer.request()
            self.heads.append(head)
            if len(self.heads) == self.unanswered:
                return
            await peer.send(HINTS % REPORT + OK % (BINARY + REPORT, REPORT))


async def served(side: Any, **route: Any) -> tuple[Served, Any, bytes]:
    """The upstream, a client in front of its route, and the Host that the upstream is to be given."""
    serve = Served()
    upstream = await side.upstream(serve)
    await side.start(routes=(Route(name="a", upstream=f"http://127.0.0.1:{upstream.port}", **route),))
    return serve, await side.dial(), b"127.0.0.1:%d" % upstream.port


async def answer(peer: Any) -> bytes:
    hints, head = await peer.head(), await peer.head()
    return bytes(hints + head + await peer.exactly(2))


def forwarded(host: bytes, extra: bytes = b"") -> bytes:
    return (GET % extra).replace(b"api.test", host)


async def test_the_sidecar_asks_for_the_load_and_the_client_does_not_see_the_report(side: Any) -> None:
    serve, peer, host = await served(side, orca="TEXT")
    await peer.send(GET % b"")
    assert await answer(peer) == HINTS % b"" + OK % (b"", b"")
    assert serve.heads == [forwarded(host, ASK)]
    await side.analyst.ended()
    assert side.analyst.one(1, RequestSeen).head == GET % b""
    assert side.analyst.one(1, ResponseSeen).head == (OK % (BINARY + REPORT, REPORT)).removesuffix(b"ok")


@pytest.mark.parametrize("line", [ASK, b"\r\nEndpoint-Load-Metrics-FORMAT:json", b"\r\nendpoint-load-metrics-format:"])
async def test_a_client_that_asks_by_itself_gets_its_answer(side: Any, line: bytes) -> None:
    serve, peer, host = await served(side, orca="BIN")
    await peer.send(GET % line)
    assert await answer(peer) == HINTS % REPORT + OK % (BINARY + REPORT, REPORT)
    assert serve.heads == [forwarded(host, line)]


async def test_a_route_that_does_not_ask_passes_reports_on(side: Any) -> None:
    serve, peer, host = await served(side)
    await peer.send(GET % b"")
    assert await answer(peer) == HINTS % REPORT + OK % (BINARY + REPORT, REPORT)
    assert serve.heads == [forwarded(host)]


async def test_who_asked_is_known_per_request_not_per_connection(side: Any) -> None:
    serve, peer, host = await served(side, orca="TEXT")
    for line in (b"", ASK, b"", ASK):
        await peer.send(GET % line)
        shown = HINTS % line.replace(ASK, REPORT)
        assert (await answer(peer)).startswith(shown)
    assert serve.heads == [forwarded(host, ASK)] * 4


async def test_a_request_that_is_sent_again_asks_again(side: Any) -> None:
    serve, peer, host = await served(side, orca="TEXT")
    serve.unanswered = 2
    for _ in range(2):
        await peer.send(GET % b"")
        assert await answer(peer) == HINTS % b"" + OK % (b"", b"")
    assert serve.heads == [forwarded(host, ASK)] * 3


async def test_a_connection_that_ends_with_the_answer_loses_the_report_too(side: Any) -> None:
    _, peer, _ = await served(side, orca="TEXT")
    await peer.send(GET % b"\r\nConnection: close")
    assert await peer.everything() == HINTS % b"" + OK % (b"", b"\r\nConnection: close")
