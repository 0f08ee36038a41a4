"""Which upstream a path belongs to, and the path that it has there."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from collector.config import Route, Settings, parse_upstream, routes_of
from collector.proxy.heads import load_request


class Origin(Struct, frozen=True):
    """Where to connect. Connections to one origin are shared by all routes that lead there."""

    scheme: Literal["http", "https"]
    host: str
    port: int


class Destination(Struct, frozen=True):
    """A route, ready for use: `host` is what stands in the Host line, `base` the upstream's own path.

    `load_request` is the header line that asks the upstream for its load; empty where the route does not ask.
    """

    route: str
    origin: Origin
    host: bytes
    prefix: bytes
    base: bytes
    strip_prefix: bool
    load_request: bytes

    def target(self, target: bytes) -> bytes:
        """The request target at the upstream; query and percent-encoding stay byte for byte."""
        if target == b"*":
            return target
        rest = target[len(self.prefix) :] if self.strip_prefix else target
        if not rest or rest[:1] == b"?":
            return (self.base or b"/") + rest
        return self.base + rest


class Routes:
    """Destinations by path; the longest prefix that ends at a segment's boundary wins."""

    def __init__(self, destinations: tuple[Destination, ...]) -> None:
        self._longest_first = sorted(destinations, key=lambda destination: -len(destination.prefix))

    def find(self, target: bytes) -> Destination | None:
        """The destination of a request target, None where no route leads anywhere."""
        path = b"/" if target == b"*" else target.partition(b"?")[0].partition(b"#")[0]
        for destination in self._longest_first:
            prefix = destination.prefix
            if path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in (b"", b"/"):
                return destination
        return None


def routes_to(settings: Settings) -> Routes:
    """The routes that settings name. ConfigError where a URL or a prefix cannot be used."""
    return Routes(tuple(destination_of(route) for route in routes_of(settings)))


def destination_of(route: Route) -> Destination:
    """A route of the settings, made ready. ConfigError where its URL cannot be used."""
    upstream = parse_upstream(route.upstream)
    return Destination(
        route=route.name,
        origin=Origin(upstream.scheme, upstream.host, upstream.port),
        host=upstream.authority.encode(),
        prefix=route.prefix.rstrip("/").encode(),
        base=upstream.path.encode(),
        strip_prefix=route.strip_prefix,
        load_request=b"" if route.orca is None else load_request(route.orca),
    )
