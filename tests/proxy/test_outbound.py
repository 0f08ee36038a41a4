"""Tunnels through a forward proxy, and what a proxy may do wrong."""

from __future__ import annotations

import asyncio
import socket

import pytest

from collector.forward_proxy import ForwardProxy
from collector.proxy.outbound import MAX_ANSWER, ForwardProxyError, connect_request, tunnel


async def _through(answer: bytes, *, piece: int = 1 << 20) -> tuple[bytes, bytes]:
    """What the proxy was sent, and what came back through the tunnel."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        for at in range(0, len(answer), piece):
            writer.write(answer[at : at + piece])
            await asyncio.sleep(0.001)
        if answer.startswith(b"HTTP/1.1 2") and b"\r\n\r\n" in answer:
            writer.write(await reader.read(100))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    loop = asyncio.get_running_loop()
    try:
        port = server.sockets[0].getsockname()[1]
        connection = await tunnel(loop, ForwardProxy("127.0.0.1", port, b"Basic eA=="), "api.example", 443)
        with connection:
            await loop.sock_sendall(connection, b"hello")
            return asked[0], await loop.sock_recv(connection, 100)
    finally:
        server.close()


@pytest.mark.parametrize("piece", [1, 1000])
@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 299 \r\nVia: x\r\n\r\n"])
async def test_the_proxy_is_asked_once_and_then_bytes_pass(answer: bytes, piece: int) -> None:
    asked, heard = await _through(answer.replace(b"1.0", b"1.1"), piece=piece)
    assert asked == (
        b"CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\nProxy-Authorization: Basic eA==\r\n\r\n"
    )
    assert heard == b"hello"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 407 Who\r\n\r\n", "its forward proxy refused with 407"),
        (b"HTTP/1.1 503 \r\nX: 1\r\n\r\n", "its forward proxy refused with 503"),
        (b"SSH-2.0-x\r\n\r\n", "its forward proxy did not answer as one"),
        (b"HTTP/1.1 2", "its forward proxy did not answer as one"),
        (b"", "its forward proxy did not answer as one"),
        (b"HTTP/1.1 200 OK\r\n\r\nearly", "its forward proxy did not answer as one"),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * MAX_ANSWER, "its forward proxy did not answer as one"),
    ],
)
async def test_a_proxy_that_makes_no_connection_is_said_to(answer: bytes, message: str) -> None:
    with pytest.raises(ForwardProxyError) as refused:
        await _through(answer)
    assert str(refused.value) == message


async def test_a_proxy_that_is_not_there_is_said_to_be_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    loop = asyncio.get_running_loop()
    with pytest.raises(ForwardProxyError, match="could not be reached"):
        await tunnel(loop, ForwardProxy("127.0.0.1", port), "api.example", 443)
    with pytest.raises(ForwardProxyError, match="could not be resolved"):
        await tunnel(loop, ForwardProxy("proxy.invalid", 80), "api.example", 443)


async def test_who_stops_waiting_for_a_proxy_leaves_no_socket_open() -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        gone.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await tunnel(asyncio.get_running_loop(), ForwardProxy("127.0.0.1", port), "api.example", 443)
    async with asyncio.timeout(10):
        await gone.wait()
    server.close()


def test_an_address_of_ipv6_is_asked_for_in_brackets() -> None:
    assert connect_request(ForwardProxy("p", 1), "fd00::1", 443) == (
        b"CONNECT [fd00::1]:443 HTTP/1.1\r\nHost: [fd00::1]:443\r\n\r\n"
    )
