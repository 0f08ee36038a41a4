"""The way to an upstream through a forward proxy."""

from __future__ import annotations

import asyncio
import re
import socket

from collector.forward_proxy import ForwardProxy

MAX_ANSWER = 16 * 1024  # bytes of a proxy's answer to CONNECT

_END = b"\r\n\r\n"
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r]")


class ForwardProxyError(ConnectionError):
    """The proxy was not reached, or did not make the connection; the message says which, without an address."""


async def dial(loop: asyncio.AbstractEventLoop, proxy: ForwardProxy) -> socket.socket:
    """A connection to the proxy itself. ForwardProxyError where there is none to be had."""
    try:
        found = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ForwardProxyError("the name of its forward proxy could not be resolved") from error
    failure: OSError | None = None
    for family, kind, protocol, _, address in found:
        connection = socket.socket(family, kind, protocol)
        try:
            connection.setblocking(False)
            await loop.sock_connect(connection, address)
        except OSError as error:
            connection.close()
            failure = error
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise ForwardProxyError("its forward proxy could not be reached") from failure


async def tunnel(loop: asyncio.AbstractEventLoop, proxy: ForwardProxy, host: str, port: int) -> socket.socket:
    """A connection to the upstream itself, made by the proxy (RFC 9110, 9.3.6). ForwardProxyError where it is not."""
    connection = await dial(loop, proxy)
    try:
        await loop.sock_sendall(connection, connect_request(proxy, host, port))
        answer = b""
        while _END not in answer:
            more = await loop.sock_recv(connection, MAX_ANSWER)
            answer += more
            if not more or len(answer) > MAX_ANSWER:
                raise ForwardProxyError("its forward proxy did not answer as one")
        _check(answer)
    except ForwardProxyError:
        connection.close()
        raise
    except OSError as error:
        connection.close()
        raise ForwardProxyError("its forward proxy closed the connection") from error
    except BaseException:
        connection.close()
        raise
    return connection


def connect_request(proxy: ForwardProxy, host: str, port: int) -> bytes:
    """What a proxy is asked to connect to `host`."""
    authority = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}").encode()
    return b"CONNECT %b HTTP/1.1\r\nHost: %b%b\r\n\r\n" % (authority, authority, authorization_line(proxy))


def authorization_line(proxy: ForwardProxy) -> bytes:
    """The line that shows the proxy who asks, with the line end before it; empty where it need not know."""
    return b"\r\nProxy-Authorization: " + proxy.authorization if proxy.authorization else b""


def _check(answer: bytes) -> None:
    status = _STATUS.match(answer)
    if status is None or not answer.endswith(_END):
        raise ForwardProxyError("its forward proxy did not answer as one")
    if status[1][:1] != b"2":
        raise ForwardProxyError(f"its forward proxy refused with {status[1].decode()}")
