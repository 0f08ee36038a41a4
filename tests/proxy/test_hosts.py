"""Whose name the Host line has at the upstream."""

from __future__ import annotations

from typing import Any

import pytest

from collector.config import Route
from collector.proxy.heads import client_host
from collector.proxy.routes import destination_of

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def hosts(side: Any, requests: tuple[bytes, ...], **route: Any) -> tuple[list[bytes], bytes]:
    """What the upstream got as Host for each request, and what its URL calls it."""
    heads = []

    async def serve(peer: Any) -> None:
        while True:
            head, _ = await peer.request()
            heads.append(head)
            await peer.send(OK)

    upstream = await side.upstream(serve)
    await side.start(routes=(Route(name="a", upstream=f"http://127.0.0.1:{upstream.port}", **route),))
    for request in requests:
        peer = await side.dial()
        await peer.send(request)
        await peer.exactly(len(OK))
    return [client_host(head) or b"" for head in heads], b"127.0.0.1:%d" % upstream.port


REQUESTS = (
    b"GET / HTTP/1.1\r\nX: 1\r\nhOST:  api.test:99 \r\n\r\n",
    b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
    b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
)


async def test_the_host_is_the_upstreams_own_where_nothing_else_is_said(side: Any) -> None:
    got, own = await hosts(side, REQUESTS)
    assert got == [own, own, own]


async def test_a_preserved_host_is_the_clients_where_it_names_one(side: Any) -> None:
    got, own = await hosts(side, REQUESTS, host="preserve")
    assert got == [b"api.test:99", own, own]


@pytest.mark.parametrize("line", [b"Host: a", b"hOsT:a", b"Host:\t a \t"])
def test_the_value_is_found_however_the_line_is_written(line: bytes) -> None:
    assert client_host(b"GET / HTTP/1.1\r\nX-Host: b\r\n%b\r\n\r\n" % line) == b"a"


def test_the_line_for_a_forward_proxy_follows_a_preserved_host() -> None:
    route = Route(name="a", upstream="http://api.test", host="preserve")
    destination = destination_of(route, {"http_proxy": "http://user:pass@proxy.test:3128"})
    line = destination.host_line(b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n")
    assert line == b"other.test\r\nProxy-Authorization: Basic dXNlcjpwYXNz"
