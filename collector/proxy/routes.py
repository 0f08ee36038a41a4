"""Which upstream a path belongs to, and the path that it has there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from collector.aws import signer_of
from collector.config import Route, Settings, Sigv4, parse_upstream, routes_of
from collector.forward_proxy import ForwardProxy, forward_proxy_of
from collector.proxy.heads import client_host, load_request
from collector.proxy.outbound import authorization_line

NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})

Sign = Callable[[bytes, bytes, float], bytes]  # head, body and Unix seconds → the head signed anew


_SEGMENT_ENDS = frozenset([b"", b"/", b"?", b"#"])


class Origin(Struct, frozen=True, cache_hash=True):
    """Where to connect, and through which proxy. Connections to one origin are shared by all routes that lead there."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    proxy: ForwardProxy | None = None


class Destination(Struct, frozen=True):
    """A route, ready for use: `host` is what stands in the Host line, `base` the upstream's own path.

    Where a forward proxy is asked for a plain upstream, the line for the proxy follows the host, and `server` stands
    before the base (RFC 9112, 3.2.2); else it is empty.
    `load_request` is the header line that asks the upstream for its load; empty where the route does not ask.
    With `preserves_host` the client's Host goes on. `sign` is None where signatures pass as they are.
    """

    route: str
    origin: Origin
    host: bytes
    prefix: bytes
    base: bytes
    strip_prefix: bool
    load_request: bytes
    server: bytes = b""
    preserves_host: bool = False
    sign: Sign | None = None

    def host_line(self, raw: bytes) -> bytes:
        """What follows `Host:` for a request head of a client whose host is preserved."""
        sent = client_host(raw)
        _, line_end, line = self.host.partition(b"\r\n")  # the line for a forward proxy
        return self.host if sent is None else sent + line_end + line

    def target(self, target: bytes) -> bytes:
        """The request target at the upstream; query and percent-encoding stay byte for byte."""
        if target == b"*":
            return self.server or target
        rest = target[len(self.prefix) :] if self.strip_prefix else target
        if not rest or rest[:1] == b"?":
            return self.server + (self.base or b"/") + rest
        return self.server + self.base + rest


class Routes:
    """Destinations by path; the longest prefix that ends at a segment's boundary wins."""

    def __init__(self, destinations: tuple[Destination, ...]) -> None:
        self._longest_first = sorted(destinations, key=lambda destination: -len(destination.prefix))

    def find(self, target: bytes) -> Destination | None:
        """The destination of a request target, None where no route leads anywhere."""
        path = b"/" if target == b"*" else target
        for destination in self._longest_first:
            prefix = destination.prefix
            if path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in _SEGMENT_ENDS:
                return destination
        return None


def routes_to(settings: Settings, environ: Mapping[str, str] = NO_ENVIRONMENT) -> Routes:
    """The routes that settings name. ConfigError where a URL, a prefix or a forward proxy cannot be used."""
    return Routes(tuple(destination_of(route, environ) for route in routes_of(settings)))


def destination_of(route: Route, environ: Mapping[str, str] = NO_ENVIRONMENT) -> Destination:
    """A route of the settings, made ready. ConfigError where its URL or its forward proxy cannot be used."""
    upstream = parse_upstream(route.upstream)
    proxy = forward_proxy_of(route, environ)
    asked = proxy if upstream.scheme == "http" else None  # the proxy reads the request itself
    return Destination(
        route=route.name,
        origin=Origin(upstream.scheme, upstream.host, upstream.port, proxy),
        host=upstream.authority.encode() + (b"" if asked is None else authorization_line(asked)),
        prefix=route.prefix.rstrip("/").encode(),
        base=upstream.path.encode(),
        strip_prefix=route.strip_prefix,
        load_request=b"" if route.orca is None else load_request(route.orca),
        server=b"" if asked is None else b"http://" + upstream.authority.encode(),
        preserves_host=route.host == "preserve",
        sign=None if route.sigv4 is None else _sign_of(route.sigv4, environ),
    )


def _sign_of(sigv4: Sigv4, environ: Mapping[str, str]) -> Sign:
    """How a route signs. ConfigError where it cannot."""
    signer = signer_of(sigv4, environ)
    # botocore is an extra, and takes 7 MB: only a route that signs loads it.
    from collector.proxy.signing import signed_request  # noqa: PLC0415

    return lambda head, body, now: signed_request(head, body, signer, now)
